"""DeepSpeed judges the fixes: what ``--fix`` makes of the examples of the config rules is accepted by the real parser.

Every bad example of a config rule goes through the safe fixes of all rules, as ``dslint --fix`` applies them. A text
that they changed must be accepted on 1, 2 and 8 ranks, or on as many as the example states; only a batch size that does
not fit the number of ranks may be refused on some of them. Errors that dslint still reports have no safe fix and are
taken out of the question.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.core.finding import Severity
from dslint.engine.fixer import fix_paths
from dslint.rules.base import Example
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import make_settings

ORACLE = os.environ.get("DSLINT_ORACLE_PYTHON", sys.executable)
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    sys.executable == ORACLE and importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)
WORLDS = (1, 2, 8)
_DOES_NOT_FIT = re.compile(r"Check batch related parameters|has to be greater than 0")
# Examples about an older release keep keys that the newest one refuses.
_OTHER_RELEASE = re.compile(r"has been removed")


def mended(example: Example, folder: Path) -> dict[str, str]:
    """The JSON files that the safe fixes changed and about which no error is left: path -> text."""
    (folder / ".git").mkdir(parents=True)
    for path, text in example.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    given = {**example.settings, "cache": False, "jobs": 1}
    before = os.getcwd()
    os.chdir(folder)
    try:
        done = fix_paths(["."], make_settings(given, folder))
    finally:
        os.chdir(before)
    wrong = {f.location.path for f in done.result.findings if f.severity is Severity.ERROR}
    return {path: done.after[path] for path in done.changed if path.endswith(".json") and path not in wrong}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, int, bool]]:
    """``(name, text, world size, filled)`` of every changed text."""
    found = []
    for info in all_rules():
        if info.kind != "config":
            continue
        for number, example in enumerate(e for e in load_rule(info.code).examples if e.at):
            stated = example.settings.get("world-size")
            worlds = (stated,) if isinstance(stated, int) else WORLDS
            for path, text in mended(example, tmp_path_factory.mktemp(f"{info.code}-{number}")).items():
                name = f"{info.code} {example.title!r} {path}"
                found += [(name, text, world, '"auto"' in text) for world in worlds]
    return found


def test_deepspeed_accepts_what_the_safe_fixes_leave(cases: list[tuple[str, str, int, bool]], tmp_path: Path) -> None:
    asked, answered = tmp_path / "cases.json", tmp_path / "verdicts.json"
    asked.write_text(json.dumps([case[1:] for case in cases]))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"DS_ACCELERATOR": "cpu"}
    command = [ORACLE, str(HERE / "fixes_oracle.py"), str(asked), str(answered)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    refusals: dict[str, list[str]] = {}
    texts = {name: text for name, text, _, _ in cases}
    for (name, _, world, _), error in zip(cases, json.loads(answered.read_text()), strict=True):
        refusals.setdefault(name, []).append(f"x {world}: {error}" if error else "")
    wrong = [
        f"{name}: {error[:300]}\n{texts[name]}"
        for name, errors in refusals.items()
        for error in errors
        if error and not _OTHER_RELEASE.search(error) and (all(errors) or not _DOES_NOT_FIT.search(error))
    ]
    print(f"{len(refusals)} mended configs, {len(cases)} verdicts, {len(wrong)} refused")
    assert not wrong, "\n".join(wrong)
    assert len(refusals) >= 12
