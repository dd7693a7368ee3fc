"""The baseline: what a project has today is known again after every move, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import SCRIPT, dslint

LAUNCH = "#!/bin/bash\ntorchrun --nproc_per_node 8 --master_port 70000 train.py\n"
CONFIG = '{"train_batch_size": 8, "fp16": {"enabld": true}, "bf16": {"enabld": true}}'
NOTEBOOK = {
    "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": SCRIPT}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
ALL = {"DSL102", "DSL201", "DSL221", "DSL309"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    (folder / "train.py").write_text(SCRIPT)
    (folder / "run.sh").write_text(LAUNCH)
    (folder / "ds.json").write_text(CONFIG)
    (folder / "n.ipynb").write_text(json.dumps(NOTEBOOK))
    assert set(dslint().codes) >= ALL
    return folder


def written() -> None:
    done = dslint("--write-baseline", "known.json")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("dslint: wrote ")


def test_what_is_written_is_not_reported_and_sarif_keeps_a_record() -> None:
    written()
    done = dslint("--baseline", "known.json")
    assert (done.code, done.out) == (0, "")
    assert "gone" not in done.err
    results = json.loads(dslint("--baseline", "known.json", "--format", "sarif").out)["runs"][0]["results"]
    assert len(results) == len(json.loads(Path("known.json").read_text())["findings"])
    assert all(r["suppressions"][0] == {"kind": "external", "justification": "baseline: known.json"} for r in results)
    assert set(dslint("--baseline", "known.json", "--ignore-noqa").codes) >= ALL


def test_a_second_baseline_is_the_same_file() -> None:
    written()
    before = Path("known.json").read_bytes()
    dslint("--baseline", "known.json", "--write-baseline", "known.json")
    assert Path("known.json").read_bytes() == before


def test_moved_and_indented_lines_stay_known(project: Path) -> None:
    written()
    inner = "".join(f"    {line}\n" if line else "\n" for line in SCRIPT.splitlines())
    (project / "train.py").write_text(f'"""A new head."""\n\nx = 1\n\n\ndef main():\n{inner}\n\nmain()\n')
    (project / "run.sh").write_text(LAUNCH.replace("torchrun", "cd .\n\necho go\ntorchrun"))
    (project / "ds.json").write_text(json.dumps({"steps_per_print": 5, **json.loads(CONFIG)}, indent=4))
    cells = [{**NOTEBOOK["cells"][0], "source": "import torch\n"}, *NOTEBOOK["cells"]]
    (project / "n.ipynb").write_text(json.dumps({**NOTEBOOK, "cells": cells}))
    done = dslint("--baseline", "known.json")
    assert (done.code, done.out) == (0, "")
    assert "gone" not in done.err


def test_a_renamed_file_stays_known_and_a_copy_is_new(project: Path) -> None:
    written()
    (project / "train.py").rename(project / "pretrain.py")
    assert dslint("--baseline", "known.json", "pretrain.py").out == ""
    assert dslint("--baseline", "known.json").out == ""
    (project / "train.py").write_text(SCRIPT)
    assert dslint("--baseline", "known.json", "train.py").out == ""
    assert set(dslint("--baseline", "known.json", "pretrain.py").codes) == {"DSL201", "DSL221"}


def test_one_more_of_the_same_is_new(project: Path) -> None:
    written()
    (project / "train.py").write_text(SCRIPT + SCRIPT.partition("\n\n")[2])
    done = dslint("--baseline", "known.json", "train.py")
    assert sorted(set(done.codes) - {"DSL242"}) == ["DSL201", "DSL221"]


def test_the_same_key_of_another_section_is_another_finding(project: Path) -> None:
    (project / "ds.json").write_text(CONFIG.replace(', "bf16": {"enabld": true}', ""))
    written()
    (project / "ds.json").write_text(CONFIG.replace('"fp16": {"enabld": true}, ', ""))
    done = dslint("--baseline", "known.json")
    assert "`bf16`" in done.out
    assert "1 finding of the baseline is gone (ds.json: DSL102): --write-baseline forgets it\n" in done.err


def test_what_is_gone_is_said_for_files_that_were_judged(project: Path) -> None:
    written()
    (project / "train.py").write_text("print('done')\n")
    assert (
        "2 findings of the baseline are gone (train.py: DSL201; train.py: DSL221)"
        in dslint("--baseline", "known.json").err
    )
    assert "gone" not in dslint("--baseline", "known.json", "run.sh").err
    assert "gone" not in dslint("--baseline", "known.json", "--ignore", "DSL2", "train.py").err
    (project / "train.py").unlink()
    assert "train.py: DSL221" in dslint("--baseline", "known.json").err


def test_it_is_a_setting_relative_to_its_file_and_known_from_other_folders(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written()
    (project / "dslint.toml").write_text('baseline = "known.json"\n')
    assert dslint().out == ""
    monkeypatch.chdir(project.parent)
    assert dslint("project").out == ""
    assert dslint("project/train.py", "--isolated").code == 1


def test_a_baseline_that_cannot_be_written_is_named(project: Path) -> None:
    done = dslint("--write-baseline", "missing/known.json")
    assert (done.code, done.err) == (2, "dslint: missing/known.json: No such file or directory\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no.json: there is no such baseline; `--write-baseline no.json` makes it"),
        ("{", "no.json: the baseline cannot be read"),
        ("[]", "no.json: is no baseline of version 1"),
        ('{"version": 2, "findings": []}', "no.json: is no baseline of version 1"),
        ('{"version": 1, "findings": [{"path": "a"}]}', "no.json: an entry lacks its path, code or fingerprint"),
        ('{"version": 1, "findings": [3]}', "no.json: an entry lacks its path, code or fingerprint"),
    ],
)
def test_a_baseline_that_cannot_be_used_hides_nothing(text: str | None, words: str, project: Path) -> None:
    if text is not None:
        (project / "no.json").write_text(text)
    done = dslint("--baseline", "no.json", "train.py")
    assert done.code == 2
    assert done.codes == ["DSL221", "DSL201"]
    assert words in done.err


def test_a_file_that_cannot_be_parsed_is_never_known(project: Path) -> None:
    (project / "broken.py").write_text("import torch.distributed as dist\ndist.barrier(\n")
    written()
    assert dslint("--baseline", "known.json", "broken.py").codes == ["DSL900"]


def test_a_baseline_that_cannot_be_written_leaves_nothing_behind(project: Path) -> None:
    done = dslint("--write-baseline", "nowhere/known.json")
    assert done.code == 2
    assert "nowhere" in done.err
    assert not list(project.glob("**/*.tmp"))
    assert dslint("--write-baseline", "x.json", "--fix").code == 2


def test_cached_results_are_judged_by_the_baseline_of_today(project: Path) -> None:
    assert set(dslint("train.py").codes) == {"DSL201", "DSL221"}
    written()
    assert dslint("train.py", "--baseline", "known.json").out == ""
    assert set(dslint("train.py").codes) == {"DSL201", "DSL221"}
