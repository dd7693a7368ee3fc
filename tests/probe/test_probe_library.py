"""Every experiment on the installed libraries: each case must give the verdict that it declares.

The written arms run once here; ``scripts/record_evidence.py`` and every ``dslint probe`` run those that fail twice.
By default every second case of an experiment runs, and which half it is changes with its file; ``--full`` runs all.

``NEEDS`` is accepted from a case that cannot run here, when it says what is missing.
"""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from dslint.probe.experiment import Needs
from dslint.probe.needs import Place, can_make_namespaces
from dslint.probe.outcome import Verdict
from dslint.probe.registry import Entry, entries, of_rule
from dslint.probe.reproduce import source
from dslint.probe.runner import Plan, Report, run_all
from dslint.probe.supervisor import Supervisor
from dslint.rules.evidence import records
from dslint.rules.registry import BY_CODE, all_rules, load_rule

ROOT = Path(__file__).resolve().parents[2]
CASES = [(entry, case) for entry in entries() for case in entry.experiment.cases]
ONCE = Plan(explain=False, runs=1)
IDS = [f"{entry.experiment.name}/{case.name}" for entry, case in CASES]


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest) -> dict[str, Report]:
    """All chosen cases, run side by side as ``dslint probe --all`` does; by the name of the case."""
    items = [item for item in request.session.items if getattr(item, "function", None) is PROVE]
    chosen = [item.callspec.params["number"] for item in items]  # type: ignore[attr-defined]
    with Supervisor() as supervisor:

        def place() -> Place:
            return Place(0, can_make_namespaces(), supervisor.versions)

        work = [(*CASES[number], ()) for number in chosen]
        found = list(run_all(work, supervisor, place, ONCE))
        # On a busy machine two processes may start too far apart: a case without a verdict runs once more, alone.
        undecided = [number for number, report in zip(chosen, found, strict=True) if _is_open(number, report)]
        again = [next(run_all([(*CASES[number], ())], supervisor, place, ONCE)) for number in undecided]
    return {f"{report.experiment}/{report.case}": report for report in [*found, *again]}


def _is_open(number: int, report: Report) -> bool:
    return report.verdict is Verdict.INCONCLUSIVE is not CASES[number][1].verdict


def _drawn() -> list[int]:
    """Every second case of each experiment, from one that the text of its file decides; of one case that one."""
    drawn: list[int] = []
    for entry in entries():
        own = [number for number, (other, _) in enumerate(CASES) if other is entry]
        first = zlib.crc32(inspect.getsource(entry.module).encode()) % 2
        drawn += own[first::2] or own
    return drawn


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        chosen = range(len(CASES)) if metafunc.config.getoption("--full") else _drawn()
        metafunc.parametrize("number", chosen, ids=[IDS[number] for number in chosen])


def test_the_verdict_is_the_declared_one(reports: dict[str, Report], number: int) -> None:
    entry, case = CASES[number]
    report = reports[IDS[number]]
    told = f"{report.verdict.value}: {report.reason}"
    arms = [arm.text for arm in (report.fixed, *report.written) if arm]
    if report.verdict is Verdict.NEEDS:
        assert report.reason.startswith("needs "), told
        assert entry.experiment.needs != Needs() or case.needs is not None, told
    else:
        assert report.verdict is case.verdict, "\n".join([told, *arms])


PROVE = test_the_verdict_is_the_declared_one


def test_names_are_unique_and_cases_have_names_of_their_own() -> None:
    names = [entry.experiment.name for entry in entries()]
    assert len(set(names)) == len(names)
    for entry in entries():
        own = [case.name for case in entry.experiment.cases]
        assert len(set(own)) == len(own) > 0
        assert entry.module.__doc__
        assert not entry.experiment.summary.endswith(".")


def test_a_rule_has_an_experiment_or_says_why_not() -> None:
    codes = [info.code for info in all_rules() if info.kind != "dslint"]
    wrong = [code for code in codes if bool(of_rule(code)) == bool(load_rule(code).meta.no_experiment)]
    assert wrong == [], "give the rule an experiment, or a no_experiment reason, not both"


def test_experiments_prove_rules_that_exist() -> None:
    for entry, case in CASES:
        assert set(entry.rules(case)) <= set(BY_CODE)


@pytest.mark.parametrize("info", [i for i in all_rules() if i.severity == "error"], ids=lambda i: i.code)
def test_an_error_is_confirmed_by_the_record(info: object) -> None:
    code = info.code  # type: ignore[attr-defined]
    own = [record for record in records() if code in record.rules and not record.is_control]
    for record in own:
        assert record.verdict in ("CONFIRMED", "NEEDS"), f"{record.experiment}/{record.case} on {record.platform}"
    if of_rule(code):
        assert any(record.verdict == "CONFIRMED" for record in own), "demote the rule, or record its evidence"


def test_the_record_holds_every_case() -> None:
    recorded = {f"{record.experiment}/{record.case}" for record in records() if record.platform == "cpu"}
    assert recorded == set(IDS), "run python scripts/record_evidence.py"


def test_the_table_of_the_evidence_is_up_to_date() -> None:
    command = [sys.executable, "scripts/generate_evidence.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.experiment.name)
def test_a_reproducer_compiles_and_needs_no_dslint(entry: Entry) -> None:
    cases = entry.experiment.cases
    texts = [source(entry, case) for case in cases]
    tree = ast.parse(texts[0])
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert not [name for name in imported if name.split(".")[0] == "dslint"]
    assert not [str(m.message_args[0]) for m in Checker(tree).messages if isinstance(m, UndefinedName)]
    # The other cases differ in the words at the top and in the parameters.
    parts = [(head, *rest.partition("\n")) for head, _, rest in (text.partition("\nPARAMS = ") for text in texts)]
    assert len({code for _, _, _, code in parts}) == 1
    for case, (head, params, _, _) in zip(cases, parts, strict=True):
        ast.parse(head)
        assert ast.literal_eval(params) == json.loads(json.dumps(dict(case.params))), case.name
