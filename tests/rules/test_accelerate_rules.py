"""The rules for configs of `accelerate launch` beyond their examples: flags, unknown words, tests, odd documents."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.engine.run import check_paths
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.yamldoc import parse_yaml
from dslint.rules.index import RULES
from dslint.settings import make_settings

ACCELERATE = [importlib.import_module(rule.module) for rule in RULES if rule.kind == "accelerate"]
HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
NODES = HEAD.replace("num_machines: 1", "num_machines: 2")


def run(text: str, path: str = "zero.yaml") -> list[Finding]:
    doc = parse_yaml(SourceFile(path, text))
    return [finding for rule in ACCELERATE for finding in rule.check(doc, Context())]


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> list[Finding]:
    monkeypatch.chdir(folder)
    (folder / ".git").mkdir()
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_sh", ".sh").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = check_paths(["."], make_settings({"cache": False, "jobs": 1}, folder)).findings
    return [f for f in found if "DSL180" <= f.code <= "DSL199"]


def levels(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.code, f.severity.value) for f in findings]


RUN = "accelerate launch --config_file zero.yaml %s train.py\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (RUN % "", [("DSL188", "error")]),
        (RUN % "--main_process_ip 10.0.0.1", []),
        (RUN % "--main_process_ip $MASTER_ADDR", []),
        (RUN % "--main-process-ip=10.0.0.1", []),
        (RUN % "--num_machines 1", []),
        (RUN % "--num_machines $NODES", []),
        (RUN % '"$@"', []),
        (RUN % "$FLAGS", []),
        (RUN % "" + RUN % "--main_process_ip 10.0.0.1", []),
        (RUN % "--rdzv_backend c10d", []),
        ("accelerate launch --config_file other.yaml train.py\n", [("DSL188", "warning")]),
    ],
)
def test_what_a_command_says_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, expected: list[tuple[str, str]]
) -> None:
    text = NODES + "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n"
    assert levels(project(tmp_path, monkeypatch, zero_yaml=text, run_sh=command)) == expected


def test_a_command_in_a_readme_counts_where_no_launch_file_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD.replace("num_processes: 8\n", "")
    readme = "```bash\n" + RUN % "--num_processes 4" + "```\n"
    assert project(tmp_path, monkeypatch, zero_yaml=text, README_md=readme) == []


def test_files_of_tests_are_wrong_on_purpose_at_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project(tmp_path, monkeypatch, tests__configs__zero_yaml=HEAD + "no_such_key: 1\n")
    assert levels(found) == [("DSL180", "info")]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "deepspeed_config: &zero\n  zero_stage: 2\n",
        HEAD + "deepspeed_config: {zero_stage: 2}\n",
        HEAD + "deepspeed_config:\n",
        HEAD + "deepspeed_config: {}\n",
        HEAD + "deepspeed_config:\n  deepspeed_config_file: ${CONFIG}\n  zero3_init_flag: false\n",
        HEAD + "deepspeed_config:\n  zero_stage: 3\n  zero3_save_16bit_model: 'true'\n",
        HEAD + "deepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 1e-3\n",
        HEAD.replace("8", "'8'"),
        HEAD.replace("8", "auto"),
        HEAD.replace("DEEPSPEED", "TPU"),
        HEAD.replace("DEEPSPEED", "XLA").replace("num_processes: 8\n", ""),
    ],
)
def test_what_accelerate_takes_is_no_finding(text: str) -> None:
    assert run(text) == []


@pytest.mark.parametrize("text", ["", "[]", "a", "distributed_type: [DEEPSPEED]\n", "deepspeed_config: [1]\n: x\n"])
def test_an_odd_document_is_no_crash(text: str) -> None:
    for finding in run(text):
        assert finding.message


def test_no_fix_where_the_layout_is_not_certain() -> None:
    (finding,) = run("{compute_environment: LOCAL_MACHINE, distributed_type: deepspeed, num_processes: 8}\n")
    assert (finding.code, finding.fix) == ("DSL182", None)


def test_the_starter_is_the_one_that_accelerate_chooses() -> None:
    def starter(text: str) -> str | None:
        return view_of(parse_yaml(SourceFile("zero.yaml", text)), Context()).starter.get_or(None)

    assert starter(NODES) == "pdsh"
    assert starter(NODES + "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n") == "torchrun"
    assert starter(NODES.replace("DEEPSPEED", "FSDP")) == "torchrun"
    assert starter(NODES.replace("DEEPSPEED", "'NO'")) is None
