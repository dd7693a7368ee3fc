"""What stands beside the work of a project is told as a note, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.finding import Finding, Severity
from dslint.engine.asides import is_copy
from dslint.engine.run import check_paths
from dslint.report import summary_line
from dslint.report.gathered import gathered
from dslint.settings import make_settings

STUCK = """\
import torch.distributed as dist


def main():
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        dist.barrier()


main()
"""


def _found(paths: list[str], **settings: object) -> list[Finding]:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return check_paths(paths, make_settings({"cache": False, "jobs": 1, **named})).findings


def _write(path: str, text: str = STUCK) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()


@pytest.mark.parametrize(
    ("path", "aside"),
    [
        ("tests/run.py", "a test"),
        ("pkg/test_all.py", "a test"),
        ("legacy/train.py", "an archived folder"),
        ("scripts/archived/train.py", "an archived folder"),
        ("code/train_old/train.py", "an archived folder"),
        ("third_party/tool/train.py", "a copy of another project"),
        ("train.py", ""),
        ("tools/test_net.py", ""),
        ("threshold/train.py", ""),
        ("latest/contest.py", ""),
    ],
)
def test_errors_beside_the_work_are_notes(path: str, aside: str) -> None:
    _write(path, STUCK.replace("main", "test_group") if "test_all" in path else STUCK)
    (stuck,) = (f for f in _found(["."]) if f.code == "DSL201")
    assert stuck.aside == aside
    assert stuck.severity is (Severity.INFO if aside else Severity.ERROR)
    assert (f"since this is in {aside}" in stuck.message) is bool(aside)


def test_a_script_for_evaluation_is_no_test() -> None:
    guarded = STUCK.replace("\n\nmain()", '\n\nif __name__ == "__main__":\n    main()')
    _write("tools/test_net.py", guarded)
    _write("tools/test_all.py", guarded + "\n\ndef test_main():\n    main()\n")
    found = _found(["."], select=["DSL201"])
    assert {f.location.path: f.aside for f in found} == {"tools/test_net.py": "", "tools/test_all.py": "a test"}


@pytest.mark.parametrize("asked", ["legacy/train.py", "legacy"])
def test_what_is_named_is_no_aside(asked: str) -> None:
    _write("legacy/train.py")
    assert [f.severity for f in _found([asked]) if f.code == "DSL201"] == [Severity.ERROR]


def test_files_that_a_hook_names_are_judged_as_in_the_whole_folder() -> None:
    _write("tests/run.py")
    _write("train.py")
    found = _found(["tests/run.py", "train.py"], force_exclude=True, select=["DSL201"])
    assert {f.location.path: f.severity for f in found} == {"tests/run.py": Severity.INFO, "train.py": Severity.ERROR}


def test_a_hook_does_not_fail_for_data_that_nobody_reads() -> None:
    Path("data.json").write_bytes(b'{"name": "caf\xe9"}')
    assert [f.code for f in _found(["data.json"])] == ["DSL902"]
    assert not _found(["data.json"], force_exclude=True)


def test_the_setting_keeps_severities() -> None:
    _write("legacy/train.py")
    found = _found(["."], lower_asides=False)
    assert [f.severity for f in found if f.code == "DSL201"] == [Severity.ERROR]


def test_a_notebook_alone_is_the_work() -> None:
    cells = '{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": %s}]'
    text = cells % str(STUCK.splitlines(keepends=True)).replace('"', '\\"').replace("'", '"')
    _write("train.ipynb", text + ', "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    assert [f.aside for f in _found(["."]) if f.code == "DSL201"] == [""]
    _write("other.py", "print(1)\n")
    assert [f.aside for f in _found(["."]) if f.code == "DSL201"] == ["a notebook"]


def _library(folder: str) -> None:
    for name in ("__init__", "dpo_trainer", "import_utils", "grpo_trainer"):
        _write(f"{folder}/trainer/{name}.py", "")
    for name in ("__init__", "core", "import_utils", "trainer", "models", "extras", "environment"):
        _write(f"{folder}/{name}.py", "")


def test_a_copy_is_known_by_its_layout(tmp_path: Path) -> None:
    _library("trl")
    _library("own/peft")
    assert is_copy(str(tmp_path / "trl"), str(tmp_path))
    assert not is_copy(str(tmp_path / "own/peft"), str(tmp_path))


def test_a_library_is_no_copy_of_itself(tmp_path: Path) -> None:
    _library("trl")
    _write("pyproject.toml", '[project]\nname = "trl"\n')
    assert not is_copy(str(tmp_path / "trl"), str(tmp_path))


def test_equal_notes_are_one_note() -> None:
    text = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
    for name in ("a.py", "b.py", "c.py"):
        _write(name, text)
    each = [f for f in _found(["."]) if f.code == "DSL223"]
    assert len(each) == 3
    (told,) = gathered(each)
    assert told.message.endswith("(the same at 2 more places)")
    assert [(place.path, place.label) for place in told.related] == [("b.py", "here too"), ("c.py", "here too")]


def test_the_last_line_counts_what_was_lowered() -> None:
    _write("legacy/train.py")
    found = [f for f in _found(["."]) if f.code == "DSL201"]
    assert "1 in tests, archived folders, copies or notebooks" in summary_line([], 1, found)
