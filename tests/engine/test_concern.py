"""A launch or plan rule is called only where it may find something: everywhere else it must have nothing to say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dslint.core.fact import known
from dslint.core.source import SourceFile
from dslint.engine.alternatives import variants
from dslint.engine.discovery import discover
from dslint.engine.planning import excludes_of, load, naming_scripts, plans_of, workspace_of
from dslint.engine.surroundings import Surroundings
from dslint.model.context import Context, VersionFact
from dslint.model.launch.document import LaunchDoc, read_launch_docs
from dslint.model.launch.launchers.releases import has_table
from dslint.model.plan.runplan import RunPlan
from dslint.parse.reading import decode
from dslint.rules.concern import LaunchRules, PlanRules, is_pattern
from dslint.rules.index import RULES
from dslint.rules.info import RuleInfo
from dslint.rules.registry import load_rule
from dslint.settings import make_settings

HERE = Path(__file__).parents[1]
FOLDERS = (HERE / "bash" / "scripts", HERE / "fixtures" / "incidents", HERE / "fixtures" / "recall")
LAUNCH = [rule for rule in RULES if rule.kind == "launch"]
PLAN = [rule for rule in RULES if rule.kind == "plan"]
CONTEXTS = (
    Context(),
    Context(
        world_size=known(8),
        deepspeed=VersionFact("==0.19.8"),
        libraries={name: VersionFact("==2.13") for name in ("torch", "transformers", "accelerate", "trl")},
    ),
)


@cache
def written(folder: Path) -> tuple[list[LaunchDoc], list[RunPlan]]:
    """Every example of the launch and plan rules in a folder of its own, and what the tests of the reader hold."""
    for rule in (*LAUNCH, *PLAN):
        for number, example in enumerate(load_rule(rule.code).examples):
            for name, text in example.files.items():
                path = folder / rule.code / str(number) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    (folder / ".git").mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        settings = make_settings({}, folder)
        inputs = load(discover([".", *map(str, FOLDERS)], excludes_of(settings), {}), {})
        plans = plans_of(inputs, naming_scripts(inputs), workspace_of({}), Surroundings(settings, {}))
        texts = [(decode(file.raw), file) for file in inputs.launch_files.values()]
        read = [(SourceFile(file.path, text), file.kind) for text, file in texts if isinstance(text, str)]
        docs = [doc for source, kind in read for doc in read_launch_docs(source, kind, workspace_of({}))]
    finally:
        os.chdir(before)
    return docs, plans


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[LaunchDoc], list[RunPlan]]:
    return written(tmp_path_factory.mktemp("project"))


def said(rule: RuleInfo, subject: Any) -> Iterator[str]:
    check = load_rule(rule.code).module.check
    for context in CONTEXTS:
        yield from (f"{rule.code} {finding.location}: {finding.message}" for finding in check(subject, context))


def test_a_launch_rule_is_silent_where_it_is_not_called(project: tuple[list[LaunchDoc], list[RunPlan]]) -> None:
    rules = LaunchRules(LAUNCH)
    called = set()
    for doc in project[0]:
        concerned = rules.concerned(doc)
        called.update(rule.code for rule in concerned)
        for rule in LAUNCH:
            if rule not in concerned:
                assert [text for _, variant in variants(doc) for text in said(rule, variant)] == []
    assert called == {rule.code for rule in LAUNCH}


def test_a_plan_rule_is_silent_where_it_is_not_called(project: tuple[list[LaunchDoc], list[RunPlan]]) -> None:
    rules = PlanRules(PLAN)
    called = set()
    for plan in project[1]:
        concerned = rules.concerned(plan)
        called.update(rule.code for rule in concerned)
        for rule in PLAN:
            assert rule in concerned or list(said(rule, plan)) == []
    assert called == {rule.code for rule in PLAN}


def doc_of(text: str) -> LaunchDoc:
    return read_launch_docs(SourceFile("run.sh", text), "shell")[0]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("python tools/convert.py --input a --output b\n", ["DSL305"]),
        (
            "torchrun --nproc_per_node 8 train.py \\\n  --lr 1e-5 \\\n  --bf16 True\n",
            ["DSL305", "DSL308", "DSL386", "DSL395"],
        ),
        ("bash scripts/train.sh\nls -l\n", ["DSL300"]),
    ],
)
def test_most_rules_are_not_called_for_a_plain_command(text: str, codes: list[str]) -> None:
    assert [rule.code for rule in LaunchRules(LAUNCH).concerned(doc_of(text)) if rule.needs] == codes


def test_a_plan_without_files_concerns_few_rules() -> None:
    (command,) = doc_of("torchrun --nproc_per_node 8 train.py --lr 1e-5\n").commands
    plan = RunPlan(command, command.nodes, command.processes_per_node, command.world_size)
    assert [rule.code for rule in PlanRules(PLAN).concerned(plan) if rule.needs] == []


def test_needs_are_well_formed() -> None:
    for rule in LAUNCH:
        for need in rule.needs:
            assert not is_pattern(need) or (need.endswith("/") and re.compile(need[1:-1]))
    for rule in PLAN:
        # Options are compared as the launchers spell them.
        assert all("-" not in need.lstrip("-") for need in rule.needs)
    unknown_flag = next(rule for rule in LAUNCH if rule.code == "DSL308")
    assert all(map(has_table, unknown_flag.needs))
