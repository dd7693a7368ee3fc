"""Suppression through the whole program: every kind of file, and what may be called unused."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import dslint

from dslint.engine import check_paths
from dslint.rules.base import Example
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import make_settings

PORT = "torchrun --nproc_per_node 8 --master_port 70000 train.py"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".cache"))
    (tmp_path / ".git").mkdir()  # a project of its own: nothing above it is read
    return tmp_path


def bad_examples() -> list[pytest.param]:
    rows = []
    for info in all_rules():
        for example in load_rule(info.code).examples if info.kind != "dslint" else ():
            if example.at:
                rows.append(pytest.param(info.code, example, id=f"{info.code}-{example.title.replace(' ', '-')[:50]}"))
    return rows


@pytest.mark.parametrize(("code", "example"), bad_examples())
def test_a_rule_whose_finding_goes_with_the_facts_around_the_file_says_so(
    code: str, example: Example, project: Path
) -> None:
    """The file alone, without flags: a suppression that is needed in the full run must not be called unused."""
    path = example.at[0].partition(":")[0]
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_bytes(example.files[path].encode())
    alone = check_paths([path], make_settings({"cache": False, "jobs": 1}, project)).findings
    (info,) = (rule for rule in all_rules() if rule.code == code)
    assert info.depends_on_run or any(f.code == code for f in alone)


@pytest.mark.parametrize("code", ["DSL130", "DSL160", "DSL207", "DSL270", "DSL408", "ALL", "DSL2"])
def test_a_suppression_that_another_run_may_need_is_not_unused(code: str, project: Path) -> None:
    (project / "train.py").write_text(f"import torch.distributed as dist\ndist.barrier()  # dslint: ignore[{code}]\n")
    assert dslint(".").out == ""


def test_a_suppression_of_a_rule_that_needs_only_the_file_is_unused(project: Path) -> None:
    (project / "train.py").write_text("import torch.distributed as dist\ndist.barrier()  # dslint: ignore[DSL201]\n")
    assert dslint(".").places == [("train.py:2:17", "DSL903")]
    assert dslint(".", "--ignore", "DSL201").out == ""
    assert dslint(".", "--select", "DSL1").out == ""
