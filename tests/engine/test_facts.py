"""`dslint facts`: what the interpreter believes at a line, and why something is unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dslint

SCRIPT = """\
import os

import torch.distributed as dist

from helpers import is_main, load


def main():
    rank = dist.get_rank()
    flag = rank == 0
    data = load(os.environ["DATA"])
    if is_main():
        dist.barrier()
    return flag, data


if __name__ == "__main__":
    main()
"""
HELPERS = """\
import torch.distributed as dist

import nobody_knows


def is_main():
    return dist.get_rank() == 0


def load(path):
    return nobody_knows.read(path)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helpers.py").write_text(HELPERS)
    return tmp_path


def asked(*arguments: str) -> dict[str, object]:
    done = dslint("facts", *arguments, "--format", "json")
    assert done.code == 0, done.err
    data: dict[str, object] = json.loads(done.out)
    return data


def test_a_value_by_rank_is_said_with_its_ranks(project: Path) -> None:
    [belief] = asked("train.py:10", "rank == 0")["beliefs"]  # type: ignore[misc]
    assert belief["values"] == ["by rank: True, False, False, False on ranks 0 to 3"]
    assert belief["ranks"] == "rank"
    assert belief["called_from"] == ["train.py:18 main"]


def test_an_unknown_value_says_its_kind_and_its_reason(project: Path) -> None:
    [belief] = asked("train.py:11", 'load(os.environ["DATA"])')["beliefs"]  # type: ignore[misc]
    assert {"kind": "opaque", "reason": "no row for `nobody_knows.read`"} in belief["unknown"]


def test_a_module_is_asked_about_by_way_of_the_script_that_imports_it(project: Path) -> None:
    [belief] = asked("helpers.py:7", "dist.get_rank() == 0", "--script", "train.py")["beliefs"]  # type: ignore[misc]
    assert belief["called_from"] == ["train.py:18 main", "train.py:12 is_main"]


def test_the_events_and_the_test_of_a_line_are_told(project: Path) -> None:
    data = asked("train.py:13")
    assert any("torch.distributed.barrier" in text and "ranks 0 of 4 only" in text for text in data["events"])  # type: ignore[union-attr]
    assert asked("train.py:12")["tests"] == ["test: ranks may decide differently by rank"]


def test_text_is_for_people(project: Path) -> None:
    done = dslint("facts", "train.py:13")
    assert done.code == 0
    assert "reached   ranks 0 of 4 only" in done.out


def test_a_place_is_taken_as_findings_print_it(project: Path) -> None:
    assert dslint("facts", "train.py:13:5").out == dslint("facts", "train.py:13").out != ""


@pytest.mark.parametrize("place", ["train.py", "train.py:x", "train.py:0", "missing.py:3", "cells.ipynb:3"])
def test_wrong_usage_is_one_line_and_exit_code_two(project: Path, place: str) -> None:
    (project / "cells.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    done = dslint("facts", place)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1


def test_a_line_that_nothing_reaches_says_so(project: Path) -> None:
    done = dslint("facts", "train.py:5")
    assert done.code == 1
    assert "nothing reaches line 5" in done.out


def test_a_function_that_only_other_files_call_is_asked_with_open_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helpers.py").write_text("def total(a, b):\n    return a + b\n\n\nDONE = True\n")
    assert "parameter `a`" in dslint("facts", "helpers.py:2", "a").out
    done = dslint("facts", "helpers.py:3")
    assert (done.code, "name that one with --script" in done.out) == (1, True)
