"""Text on standard input: its name, its kind, its settings, and what --fix gives back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import SCRIPT, SCRIPT_FIXED, dslint

PORT = "torchrun --nproc_per_node 8 --master_port 70000 train.py\n"
CONFIG = '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "overlap_com": 1}\n}\n'
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": SCRIPT},
        ],
        "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (SCRIPT, ["DSL221", "DSL201"]),
        ("# a comment\n" + SCRIPT, ["DSL221", "DSL201"]),
        (f"#!/usr/bin/env python3\n{SCRIPT}", ["DSL221", "DSL201"]),
        (f"#!/bin/bash\n{PORT}", ["DSL309"]),
        (f"#!/usr/bin/env -S bash -e\n{PORT}", ["DSL309"]),
        (PORT, ["DSL309"]),
        (f"set -e\nexport X=1\n{PORT}", ["DSL309"]),
        (f"# Run\n\n```bash\n{PORT}```\n", ["DSL309"]),
        (CONFIG, ["DSL102"]),
        (f"\n\n// why\n{CONFIG}", ["DSL102"]),
        (NOTEBOOK, ["DSL221", "DSL201"]),
        (
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n\tmachine_rank: 0\n",
            ["DSL900"],
        ),
        ('{"name": "some package", "version": "1.0"}', []),
        ("#!/usr/bin/env perl\nprint 'torchrun --master_port 70000 train.py'\n", []),
        ("", []),
        ("hello", []),
    ],
)
def test_a_text_without_a_name_is_judged_by_its_content(text: str, codes: list[str]) -> None:
    done = dslint("-", stdin=text.encode())
    assert done.codes == codes, done
    assert all(place.startswith("<stdin>:") for place, _ in done.places)
    assert done.code == (1 if codes else 0)


def test_a_name_wins_over_the_content() -> None:
    assert dslint("-", "--stdin-filename", "run.sh", stdin=SCRIPT.encode()).codes == []
    assert dslint("-", "--stdin-filename", "configs/a.txt", stdin=CONFIG.encode()).codes == []
    done = dslint("-", "--stdin-filename", "configs/ds.json", stdin=CONFIG.encode())
    assert done.places == [("configs/ds.json:3:37", "DSL102")]


def test_a_name_alone_means_standard_input() -> None:
    assert dslint("--stdin-filename", "a.py", stdin=SCRIPT.encode()).codes == ["DSL221", "DSL201"]


@pytest.mark.parametrize("arguments", [["-", "a.py"], ["-", "-"], ["a.py", "--stdin-filename", "b.py"]])
def test_standard_input_stands_alone(arguments: list[str], project: Path) -> None:
    (project / "a.py").write_text(SCRIPT)
    for more in ([], ["--fix"]):
        done = dslint(*arguments, *more, stdin=SCRIPT.encode())
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("dslint: ")
        assert done.err.count("\n") == 1
    assert (project / "a.py").read_text() == SCRIPT


def test_settings_are_looked_up_from_the_folder_of_the_name(project: Path) -> None:
    (project / "sub/inner").mkdir(parents=True)
    (project / "sub/dslint.toml").write_text('ignore = ["DSL201"]\n[per-file-ignores]\n"inner/*.py" = ["DSL221"]\n')
    for name in ("sub/a.py", str(project / "sub/a.py"), "./sub/new/folder/a.py"):
        assert dslint("-", "--stdin-filename", name, stdin=SCRIPT.encode()).codes == ["DSL221"]
    assert dslint("-", "--stdin-filename", "sub/inner/a.py", stdin=SCRIPT.encode()).codes == []
    assert dslint("-", "--stdin-filename", "a.py", stdin=SCRIPT.encode()).codes == ["DSL221", "DSL201"]


def test_excludes_hold_for_the_name_when_forced(project: Path) -> None:
    (project / "dslint.toml").write_text('extend-exclude = ["gen/"]\n')
    text = SCRIPT.encode()
    assert dslint("-", "--stdin-filename", "gen/a.py", stdin=text).codes == ["DSL221", "DSL201"]
    done = dslint("-", "--stdin-filename", "gen/a.py", "--force-exclude", stdin=text)
    assert (done.code, done.out) == (0, "")
    fixed = dslint("-", "--stdin-filename", "gen/a.py", "--force-exclude", "--fix", stdin=text)
    assert (fixed.code, fixed.raw) == (0, text)


def test_absolute_names_are_shown_as_the_same_file_on_disk_would_be(project: Path) -> None:
    done = dslint("-", "--stdin-filename", str(project / "a.py"), stdin=SCRIPT.encode())
    assert done.places[0] == ("a.py:3:41", "DSL221")
    done = dslint("-", "--stdin-filename", str(project.parent / "other/a.py"), stdin=SCRIPT.encode())
    assert done.places[0] == (f"{project.parent}/other/a.py:3:41", "DSL221")


def test_the_text_replaces_the_file_and_its_neighbours_are_read_from_disk(project: Path) -> None:
    """An editor sends the unsaved text of a launch script; the config it names stands beside it."""
    (project / "job").mkdir()
    (project / "job/run.sh").write_text("echo old\n")
    (project / "job/train.py").write_text("import deepspeed\ndeepspeed.initialize()\n")
    (project / "job/ds.json").write_text(
        '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
    )
    text = b"deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"
    done = dslint("-", "--stdin-filename", "job/run.sh", stdin=text)
    assert "DSL408" in done.codes, done


def test_files_and_settings_can_be_shown_for_a_text() -> None:
    assert dslint("-", "--show-files", "--stdin-filename", "new.py", stdin=b"").out == "new.py\n"
    assert dslint("-", "--show-settings", stdin=b"").code == 0


# fixing


def test_the_fixed_text_goes_to_standard_output_and_findings_to_standard_error() -> None:
    text = b"torchrun --nproc_per_node 8 \\ \n  --master_port 70000 train.py\n"
    done = dslint("-", "--fix", stdin=text)
    assert done.raw == text.replace(b"\\ \n", b"\\\n")
    said = done.err.splitlines()
    assert said[0] == "dslint: fixed 1 finding in 1 file"
    assert said[1].startswith("<stdin>:2:17: DSL309 ")
    assert done.code == 1
    assert dslint("-", "--fix", "--exit-zero", stdin=text).code == 0
    only = dslint("-", "--fix-only", stdin=text)
    assert only == (0, done.raw, "dslint: fixed 1 finding in 1 file\n")
    assert dslint("-", "--fix-only", "-q", stdin=text).err == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"print(1)",
        b"\xef\xbb\xbfprint(1)\r\n",
        b"\xff\xfe\x00",
        b"caf\xe9 = 1\n",
        NOTEBOOK.encode(),
        b"x = 1\r\ny = 2\ry = 3\n",
    ],
)
def test_a_text_without_fixes_comes_back_byte_for_byte(raw: bytes) -> None:
    for name in ([], ["--stdin-filename", "a.py"]):
        assert dslint("-", "--fix", *name, stdin=raw).raw == raw


def test_byte_order_mark_and_line_ends_survive_the_fix() -> None:
    bom = b"\xef\xbb\xbf"
    crlf = SCRIPT.replace("\n", "\r\n").encode()
    assert dslint("-", "--fix", stdin=bom + crlf).raw == bom + SCRIPT_FIXED.replace("\n", "\r\n").encode()
    done = dslint("-", "--diff", "--stdin-filename", "a.py", stdin=SCRIPT.encode())
    assert done.code == 1
    assert done.out.startswith("--- a.py\n+++ a.py\n@@ ")


def test_standard_input_is_never_written_to_disk(project: Path) -> None:
    (project / "a.py").write_text("on disk\n")
    dslint("-", "--fix", "--stdin-filename", "a.py", stdin=SCRIPT.encode())
    assert (project / "a.py").read_text() == "on disk\n"
