"""Ask a judge: a process of its own, with the release of DeepSpeed that is installed or with a source tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# An interpreter with DeepSpeed, transformers and accelerate, when the one that runs the tests has none.
ORACLE = os.environ.get("DSLINT_ORACLE_PYTHON", sys.executable)
HERE = Path(__file__).resolve().parent.parent

Verdict = dict[str, Any]


def ask(judge: str, cases: Sequence[dict[str, Any]], tree: Path | None = None, limit: int = 3000) -> list[Verdict]:
    """The verdicts of a judge (``parse``, ``engine``, ``trainer``, ``launcher``) in the order of the cases.

    Raises:
        AssertionError: the judge itself failed; its last words.
        subprocess.TimeoutExpired: it took longer than ``limit`` seconds.
    """
    if not cases:
        return []
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "cases.json"), Path(folder, "verdicts.json")
        asked.write_text(json.dumps(list(cases)), encoding="utf-8")
        done = subprocess.run(
            [ORACLE, "-m", f"harness.judges.{judge}", str(asked), str(answered)],
            cwd=folder, env=_environment(folder, tree), capture_output=True, text=True, timeout=limit,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{judge}: {done.stderr[-3000:]}"
        found: list[Verdict] = json.loads(answered.read_text(encoding="utf-8"))
        return found


def _environment(folder: str, tree: Path | None) -> dict[str, str]:
    """Nothing of a launcher, nothing of a user's caches."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ACCELERATE", "DS_", "MASTER", "RANK"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(HERE), *([str(tree)] if tree else [])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DS_ACCELERATOR": "cpu",
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_EXTENSIONS_DIR": folder,
        "DSLINT_JUDGE_FOLDER": folder,
        "TMPDIR": folder,
        "OMP_NUM_THREADS": "1",
        # Buckets of ZeRO are gigabytes that a step clears: in small pages that is seconds of the kernel's time.
        "THP_MEM_ALLOC_ENABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
