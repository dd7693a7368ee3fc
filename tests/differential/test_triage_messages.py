"""The patterns of ``dslint triage`` against what the installed torch and DeepSpeed really print.

A pattern is only as good as the text it was written for. Here the libraries make the text; two gloo ranks are started
for the messages that only exist between ranks (about ten seconds in all).
"""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.triage.scan import Scan

ORACLE = os.environ.get("DSLINT_ORACLE_PYTHON", sys.executable)
SCRIPT = Path(__file__).with_name("triage_messages.py")
SYMPTOMS = [
    "rank-not-set", "port-out-of-range", "clients-missing", "client-socket-timeout", "address-in-use",
    "store-wait-timeout", "timeout-type", "interface-missing", "zero3-empty-weights", "checkpoint-shapes",
    "batch-triangle", "fp16-and-bf16", "config-refused", "config-removed", "config-missing", "config-duplicate-key",
    "loss-scale-minimum", "gloo-size-mismatch", "collective-mismatch", "peer-closed", "gloo-timeout",
    "monitored-barrier",
]  # fmt: skip

Said = tuple[tuple[str, str], ...]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None and "DSLINT_ORACLE_PYTHON" not in os.environ,
    reason="needs torch and deepspeed, or DSLINT_ORACLE_PYTHON",
)


@pytest.fixture(scope="module")
def said() -> Said:
    """What the libraries printed: symptom, text."""
    done = subprocess.run(
        [ORACLE, str(SCRIPT)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500, check=False
    )
    text = done.stdout.decode("utf-8", "replace")
    assert "## end" in text, text[-3000:]
    parts = [part.partition("\n") for part in text.split("## ")[1:]]
    return tuple((name.strip(), rest) for name, _, rest in parts if name.strip() != "end")


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_what_the_libraries_print_is_known(symptom: str, said: Said) -> None:
    texts = [text for name, text in said if name == symptom]
    assert texts
    for text in texts:
        found = {hit.symptom for hit in Scan("x.log").run(io.BytesIO(text.encode()).read).hits}
        assert symptom in found, text[-2000:]
        # What a mistake makes other ranks and layers say may be there too, but no other mistake.
        # Which of its consequences a rank prints when its peer leaves is a matter of timing.
        assert found <= {symptom, "client-socket-timeout", "peer-closed", "gloo-timeout", "gloo-connect"}, found


def test_every_message_is_judged(said: Said) -> None:
    assert {name for name, _ in said} == set(SYMPTOMS)
