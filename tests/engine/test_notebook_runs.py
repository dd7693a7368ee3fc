"""A notebook is one process, unless it starts others or says that it is one of several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.settings import Settings

WRITES = """
import json
from accelerate import Accelerator, notebook_launcher


def main():
    accelerator = Accelerator()
    with open("log.json", "w") as file:
        json.dump({}, file)


"""
GROUP = """
import json
import torch.distributed as dist

dist.init_process_group("nccl")
with open("log.json", "w") as file:
    json.dump({}, file)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(WRITES + "main()\n", 0), (WRITES + "notebook_launcher(main, num_processes=2)\n", 1), (GROUP, 1)],
    ids=["one process", "processes that it starts", "one of several"],
)
def test_who_writes_the_file_of_a_notebook(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = check_paths(["train.ipynb"], Settings(cache=False)).findings
    assert len([f for f in found if f.code == "DSL277"]) == expected
