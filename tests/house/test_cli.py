"""The command line: flags, exit codes, streams and formats, as users of ruff, flake8 and shellcheck expect them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import SCRIPT, dslint

PORT = "torchrun --nproc_per_node 8 --master_port 70000 train.py\n"
CONFIG = '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "overlap_com": 1, "overlap_comm": true}\n}\n'
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["text"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": SCRIPT},
    ],
    "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
FORMATS = (
    "concise",
    "full",
    "json",
    "json-lines",
    "github",
    "sarif",
    "gitlab",
    "junit",
    "checkstyle",
    "rdjson",
    "azure",
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script (DSL221, DSL201), a launch script (DSL309) and a config (DSL102, DSL160 as info)."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "DSLINT_OUTPUT_FORMAT", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "run.sh").write_text(PORT)
    (folder / "ds.json").write_text(CONFIG)
    return folder


ALL = ["DSL102", "DSL160", "DSL309", "DSL221", "DSL201"]


def one_line(err: str) -> str:
    assert re.fullmatch(r"dslint: [^\n]+\n", err), err
    return err


# flags


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world-size", "x"], "--world-size: must be a whole number of at least 1, found `x`"),
        (["--world-size", "0"], "--world-size: must be a whole number of at least 1, found `0`"),
        (["--jobs", "-1"], "must be a whole number of at least 1"),
        (["--selct", "DSL1"], "did you mean `--select`?"),
        (["--output-fromat=json"], "did you mean `--output-format`?"),
        (["--output-format", "xml"], "invalid choice: 'xml'"),
        (["--fail-on", "never"], "invalid choice: 'never'"),
        (["--select", "DSL1O1"], "unknown rule `DSL1O1`, did you mean"),
        (["--ignore", "overlap-com"], "did you mean `overlap-comm-old-version`?"),
        (["--select", ""], "--select: names no rule"),
        (["--extend-select", " , "], "--extend-select: names no rule"),
        (["--config", "nope.toml"], "nope.toml: cannot be read"),
        (["--deepspeed-version", "new"], "found `new`"),
        (["--per-file-ignores", "train.py"], "`train.py` must be PATTERN:RULE"),
        (["--per-file-ignores", "train.py:DSL999"], "unknown rule `DSL999`"),
        (["--per-file-ignores", "train.py:DSL201,DSL999"], "unknown rule `DSL999`"),
        (["--per-file-ignores", ""], "--per-file-ignores: must be PATTERN:RULE"),
        (["rule"], "RULE"),
        (["rule", "DSL2O1"], "did you mean `DSL201`?"),
        (["rules", "--output-format", "xml"], "invalid choice"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_two(arguments: list[str], words: str) -> None:
    done = dslint(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in one_line(done.err)


def test_selectors_add_up_over_repeated_flags() -> None:
    assert dslint("--select", "DSL201", "--select", "DSL309,DSL221").codes == ["DSL309", "DSL221", "DSL201"]
    assert dslint("--ignore", "DSL1", "--ignore", "DSL2").codes == ["DSL309"]
    assert dslint("--exclude", "*.json", "--exclude", "*.py,*.md").codes == ["DSL309"]
    assert dslint("--extend-exclude", "*.json", "--extend-exclude", "*.py").codes == ["DSL309"]


def test_paths_and_flags_stand_in_any_order() -> None:
    assert dslint("train.py", "--select", "DSL2,DSL309", "run.sh").codes == ["DSL309", "DSL221", "DSL201"]
    assert dslint("--select=DSL309", "--", "train.py", "run.sh").codes == ["DSL309"]
    assert dslint("rule", "DSL201", "--project-rules", "DSL221").code == 0


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ([], ALL),
        # Every rule: those that are off by default too.
        (["--select", "ALL"], ["DSL143", *ALL[:2], "DSL310", *ALL[2:]]),
        (["--select", "all", "--ignore", "DSL1,dsl201"], ["DSL310", "DSL309", "DSL221"]),
        (["--select", "DSL2", "--ignore", "timeout-not-timedelta"], ["DSL201"]),
        (["--ignore", "DSL2", "--extend-select", "DSL201"], ["DSL102", "DSL160", "DSL309", "DSL201"]),
        (["--ignore", "ALL", "--extend-select", "port_out_of_range"], ["DSL309"]),
        (["--select", "DSL20", "--extend-ignore", "DSL2"], ["DSL201"]),
        (["--select", "DSL201", "--ignore", "DSL201"], []),
        # A prefix means the rules that are on by default; who wants another one names it.
        (["--select", "DSL3,DSL14"], ["DSL309"]),
        (["--select", "DSL3,DSL310"], ["DSL310", "DSL309"]),
        (["--select", "DSL9", "--extend-select", "port-hard-coded"], ["DSL310"]),
        (["--extend-select", "DSL31"], ALL),
    ],
)
def test_the_most_specific_selector_wins(arguments: list[str], codes: list[str]) -> None:
    assert sorted(dslint(*arguments).codes) == sorted(codes)


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        (["train.py:DSL201"], ["DSL102", "DSL160", "DSL309", "DSL221"]),
        (["train.py:DSL201,DSL221,run.sh:ALL"], ["DSL102", "DSL160"]),
        (["*.py:DSL201", "*.py:timeout-not-timedelta,*.sh:DSL3"], ["DSL102", "DSL160"]),
        (["!train.py:ALL"], ["DSL221", "DSL201"]),
        (["ds.json:DSL160:/zero_optimization/overlap_comm"], ["DSL102", "DSL309", "DSL221", "DSL201"]),
        (["ds.json:DSL102,DSL160:/zero_optimization/overlap_comm"], ["DSL309", "DSL221", "DSL201"]),
        (["ds.json:DSL160:/fp16"], [*ALL]),
    ],
)
def test_per_file_ignores_as_a_flag(flags: list[str], codes: list[str]) -> None:
    arguments = [part for flag in flags for part in ("--per-file-ignores", flag)]
    assert sorted(c for c in dslint(*arguments).codes if c != "DSL903") == sorted(codes)


def test_flags_beat_the_per_file_ignores_of_the_settings_for_the_same_pattern_only(project: Path) -> None:
    (project / "dslint.toml").write_text('[per-file-ignores]\n"train.py" = ["DSL201"]\n"run.sh" = ["DSL309"]\n')
    done = dslint("--per-file-ignores", "train.py:DSL221", "--select", "DSL2,DSL309")
    assert done.codes == ["DSL201"]


def test_patterns_of_flags_are_relative_to_where_the_user_stands(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "dslint.toml").write_text('extend-exclude = ["sub/b.py"]\n')
    (project / "sub/deep").mkdir(parents=True)
    for name in ("a.py", "b.py", "deep/c.py"):
        (project / "sub" / name).write_text(SCRIPT)
    monkeypatch.chdir(project / "sub")
    only = ("--select", "DSL201")
    assert dslint(*only).places == [("a.py:5:5", "DSL201"), ("deep/c.py:5:5", "DSL201")]
    assert dslint(*only, "--extend-exclude", "deep/c.py").places == [("a.py:5:5", "DSL201")]
    assert dslint(*only, "--extend-exclude", "sub/deep/c.py").codes == ["DSL201"] * 2
    assert dslint(*only, "--extend-exclude", str(project / "sub/deep/*.py")).codes == ["DSL201"]
    assert dslint(*only, "--per-file-ignores", "./deep/*.py:DSL201").places == [("a.py:5:5", "DSL201")]
    monkeypatch.chdir(project.parent)
    below = dslint("project/sub", *only, "--extend-exclude", "project/sub/deep/")
    assert below.places == [("project/sub/a.py:5:5", "DSL201")]


def test_nodes_and_processes_may_be_stated_apart() -> None:
    Path("ds.json").write_text(
        '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}'
    )
    arguments = ("ds.json", "--select", "DSL130")
    assert dslint(*arguments).codes == []
    assert dslint(*arguments, "--nnodes", "2", "--nproc-per-node", "8").codes == ["DSL130"]
    assert dslint(*arguments, "--nnodes", "2", "--nproc-per-node", "15").codes == []
    assert dslint(*arguments, "--nnodes", "2", "--nproc-per-node", "8", "--world-size", "30").codes == []
    assert dslint(*arguments, "--nnodes", "two").code == 2


def test_one_settings_file_holds_for_a_run_whatever_the_order_of_the_paths(project: Path) -> None:
    (project / "sub/inner").mkdir(parents=True)
    for name in ("sub/a.py", "sub/inner/b.py"):
        (project / name).write_text(SCRIPT)
    (project / "dslint.toml").write_text('select = ["DSL201"]\n')
    (project / "sub/dslint.toml").write_text('select = ["DSL221"]\n')
    assert set(dslint("sub/a.py").codes) == {"DSL221"}
    assert set(dslint("sub/inner", "sub/a.py").codes) == {"DSL221"}
    assert set(dslint("sub/a.py", "train.py").codes) == {"DSL201"}
    assert dslint("train.py", "sub/a.py") == dslint("sub/a.py", "train.py")
    assert set(dslint("sub/a.py", "missing.py").codes) == {"DSL221"}


def test_a_mistake_in_the_settings_is_one_line_with_its_place(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.other]\nx = 1\n\n[tool.dslint]\nslect = ["DSL2"]\n')
    done = dslint()
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err) == "dslint: pyproject.toml:5: unknown key `slect`; did you mean `select`?\n"
    assert dslint("--isolated").code == 1


# exit codes and streams


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 1),
        (["--exit-zero"], 0),
        (["-e"], 0),
        (["--select", "DSL160"], 0),
        (["--select", "DSL160", "--fail-on", "info"], 1),
        (["--select", "DSL160", "--fail-on", "info", "-e"], 0),
        (["--fail-on", "error"], 1),
        (["--select", "DSL9"], 0),
        (["missing.py"], 2),
        (["missing.py", "-e"], 2),
        (["train.py", "missing.py"], 2),
        (["--exclude", "*"], 0),
        (["--version"], 0),
        (["--help"], 0),
        (["rules"], 0),
        (["rule", "DSL201", "timeout-not-timedelta"], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert dslint(*arguments).code == code


def test_a_severity_given_by_the_user_counts_for_the_exit_code(project: Path) -> None:
    (project / "dslint.toml").write_text('[severity]\nDSL2 = "info"\nDSL201 = "warning"\n')
    assert dslint("train.py", "--fail-on", "error").code == 0
    assert dslint("train.py", "--fail-on", "warning").code == 1
    assert dslint("train.py", "--select", "DSL221").code == 0


def test_no_file_is_said_and_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments in (["../empty"], ["--exclude", "*"]):
        done = dslint(*arguments)
        assert done == (0, b"", "dslint: no files to check\n")


def test_a_missing_path_is_not_followed_by_good_news() -> None:
    done = dslint("missing.py")
    assert done == (2, b"", "dslint: missing.py: No such file or directory\n")


def test_the_summary_is_not_part_of_the_report() -> None:
    done = dslint("train.py")
    assert done.codes == ["DSL221", "DSL201"]
    assert done.err == "Found 2 errors in 1 of 1 file. [*] 2 fixable with `--fix`.\n"
    quiet = dslint("train.py", "-q")
    assert (quiet.out, quiet.err) == (done.out, "")


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_file_gets_exactly_the_report(output_format: str, tmp_path: Path) -> None:
    target = tmp_path / "report"
    shown = dslint("--output-format", output_format)
    written = dslint("--output-format", output_format, "-o", str(target))
    assert written.raw == b""
    assert target.read_bytes() == shown.raw
    assert written.err == shown.err


@pytest.mark.parametrize("output_format", FORMATS)
def test_colour_is_for_terminals_and_never_for_programs(output_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = dslint("--output-format", output_format, "--color", "always").out
    assert ("\x1b[" in forced) == (output_format in ("concise", "full"))
    assert "\x1b" not in dslint("--output-format", output_format).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ("\x1b[" in dslint("--output-format", output_format).out) == (output_format in ("concise", "full"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in dslint("--output-format", output_format).out


def test_statistics_in_the_formats_that_have_them() -> None:
    table = dslint("--statistics").out
    assert [line.split() for line in table.splitlines()] == [
        ["1", "DSL102", "[", "]", "error", "unknown-section-key"],
        ["1", "DSL160", "[", "]", "info", "overlap-comm-old-version"],
        ["1", "DSL201", "[*]", "error", "collective-under-rank-guard"],
        ["1", "DSL221", "[*]", "error", "timeout-not-timedelta"],
        ["1", "DSL309", "[", "]", "error", "port-out-of-range"],
    ]
    assert dslint("--statistics", "--output-format", "full").out == table
    report = json.loads(dslint("--statistics", "--output-format", "json").out)
    assert report["version"] == 1
    assert report["statistics"][2] == {
        "code": "DSL201",
        "name": "collective-under-rank-guard",
        "severities": ["error"],
        "count": 1,
        "fixable": 1,
    }
    for output_format in ("github", "sarif"):
        done = dslint("--statistics", "--output-format", output_format)
        assert (done.code, done.out) == (2, "")
        assert "--statistics" in one_line(done.err)


def test_statistics_of_nothing() -> None:
    assert dslint("--select", "DSL9", "--statistics").out == ""
    done = dslint("--select", "DSL9", "--statistics", "--output-format", "json")
    assert json.loads(done.out)["statistics"] == []


# formats


def test_concise_lines_are_what_flake8_prints(project: Path) -> None:
    (project / "my dir").mkdir()
    (project / "my dir/é.py").write_text(SCRIPT)
    line = re.compile(r"(?P<path>[^:]+):(?P<row>\d+):(?P<col>\d+): (?P<code>[A-Z]{1,3}\d{3}) (?P<text>\S.*)")
    out = dslint().out
    assert len(out.splitlines()) == 7
    for row in out.splitlines():
        assert line.fullmatch(row), row
        assert "  " not in row


def test_only_what_fix_can_mend_is_marked(project: Path) -> None:
    (project / "nb.ipynb").write_text(json.dumps(NOTEBOOK))
    marks = {(place.split(":")[0], code): "[*]" in row for row in dslint().out.splitlines()
             for place, code in [(row.split(": ")[0], row.split(": ")[1].split()[0])]}  # fmt: skip
    assert {key for key, marked in marks.items() if marked} == {("train.py", "DSL221"), ("train.py", "DSL201")}


@pytest.mark.parametrize("output_format", FORMATS)
def test_odd_names_and_notebooks_in_every_format(output_format: str, project: Path) -> None:
    names = ["a b.py", "é变.py", "new\nline.py", "a,b%c.py", "-dash.py"]
    for name in names:
        (project / name).write_text(SCRIPT)
    (project / "n b.ipynb").write_text(json.dumps(NOTEBOOK))
    # Named, since a notebook beside scripts is told as a note.
    only = ("--select", "DSL221", "--output-format", output_format, ".", "n b.ipynb")
    out = dslint(*only, "--exclude", "train.py").out
    if output_format == "json":
        findings = json.loads(out)["findings"]
        assert [f["path"] for f in findings] == sorted([*names, "n b.ipynb"])
        (cell,) = (f["cell"] for f in findings if "cell" in f)
        assert cell == 2
    elif output_format == "sarif":
        assert len(json.loads(out)["runs"][0]["results"]) == 6
    elif output_format == "gitlab":
        assert sorted(issue["location"]["path"] for issue in json.loads(out)) == sorted([*names, "n b.ipynb"])
    elif output_format == "json-lines":
        assert sorted(json.loads(line)["path"] for line in out.splitlines()) == sorted([*names, "n b.ipynb"])
    elif output_format == "checkstyle":
        from xml.etree.ElementTree import fromstring

        assert len(fromstring(out).findall("file/error")) == 6
    elif output_format == "rdjson":
        assert len(json.loads(out)["diagnostics"]) == 6
    elif output_format == "junit":
        from xml.etree.ElementTree import fromstring

        assert len(fromstring(out).findall("testsuite/testcase/failure")) == 6
    elif output_format == "full":
        assert out.count("error[DSL221]") == 6
        assert "n b.ipynb:cell 2:3:41" in out
    else:
        assert len(out.splitlines()) == 6
        assert ("n b.ipynb:cell 2:3:41: DSL221" in out) == (output_format == "concise")
