"""The formats of CI systems: Azure, GitLab, JUnit and reviewdog."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reports import BOTH, IN_CELL, MANY_LINES, NOTE, RUN, TEXTS, at, elsewhere, render

from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Region, SourceFile, Span
from dslint.core.terminal import use_links
from dslint.report.links import rule_url
from dslint.report.options import ReportOptions


def test_azure_escapes_what_would_end_the_command() -> None:
    odd = replace(MANY_LINES, message="50% of a;b] c\nd", location=elsewhere("a;b]100%.sh"), fix=None, assumptions=())
    assert render("azure", odd) == (
        "##vso[task.logissue type=warning;sourcepath=a%3Bb%5D100%AZP25.sh;linenumber=2;columnnumber=1;code=DSL902;]"
        "50%AZP25 of a;b] c d\n"
    )
    # There is no command for a note.
    assert render("azure", NOTE) == "run.sh:2:1: DSL903 info: unused\n"
    assert ";linenumber=1;columnnumber=1;" in render("azure", IN_CELL)
    assert "]cell 3, line 2: unused" in render("azure", IN_CELL)


def test_gitlab_issues_have_the_documented_keys_and_fingerprints_of_their_own() -> None:
    issues = json.loads(render("gitlab", BOTH, MANY_LINES, NOTE, NOTE, IN_CELL))
    assert [issue["severity"] for issue in issues] == ["critical", "major", "info", "info", "critical"]
    assert len({issue["fingerprint"] for issue in issues}) == 5
    assert issues[1]["location"] == {"path": "conf/ds.json", "lines": {"begin": 3, "end": 5}}
    assert issues[4]["location"]["lines"] == {"begin": 1, "end": 1}
    for issue in issues:
        assert issue.keys() == {"check_name", "description", "severity", "fingerprint", "location"}
        assert issue["description"].startswith(issue["check_name"])
    moved = {path: f"\n\n{text}" for path, text in TEXTS.items()}
    shifted = replace(NOTE, location=SourceFile("run.sh", moved["run.sh"]).location(Span(14, 23)))
    (again,) = json.loads(render("gitlab", shifted, texts=moved))
    assert again["fingerprint"] == issues[2]["fingerprint"]
    assert json.loads(render("gitlab")) == []


def test_junit_has_a_failure_for_each_error_and_warning() -> None:
    root = fromstring(render("junit", BOTH, MANY_LINES, NOTE, IN_CELL))
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "4", "3")
    assert [suite.get("name") for suite in root] == ["conf/ds.json", "run.sh", "a.ipynb"]
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
    case = root[0][0]
    assert (case.get("name"), case.get("classname")) == ("DSL900 syntax-error (4:16)", "conf/ds.json")
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("error", BOTH.message)
    assert "run.sh:3:17: this run reads it" in (failure.text or "")
    assert root.findtext("testsuite[2]/testcase/system-out") == "run.sh:2:1: unused"
    empty = fromstring(render("junit"))
    assert (empty.get("tests"), empty.get("failures"), len(empty.findall("testsuite/testcase"))) == ("1", "0", 1)


@given(text=st.text(max_size=30))
@pytest.mark.parametrize("name", ["junit", "checkstyle"])
def test_xml_is_xml_whatever_a_file_holds(name: str, text: str) -> None:
    odd = replace(BOTH, message=text, location=Location(text or "f", Span(0, 1), Region(1, 1, 1, 2)), hint=text)
    assert len(fromstring(render(name, odd, texts={}).encode("utf-8", "replace"))) == 1


def test_checkstyle_has_a_file_for_each_file_and_an_error_for_each_finding() -> None:
    root = fromstring(render("checkstyle", BOTH, MANY_LINES, NOTE, IN_CELL))
    assert (root.tag, [entry.get("name") for entry in root]) == ("checkstyle", ["conf/ds.json", "run.sh", "a.ipynb"])
    assert root[0][0].attrib == {
        "line": "4",
        "column": "16",
        "severity": "error",
        "message": BOTH.message,
        "source": "dslint.DSL900",
    }
    assert [entry.get("severity") for entry in root.iter("error")] == ["error", "warning", "info", "error"]
    # A cell has no line and no column in the file.
    assert (root[2][0].get("line"), root[2][0].get("column")) == ("1", None)
    assert len(fromstring(render("checkstyle"))) == 0


def test_json_lines_are_the_findings_of_json() -> None:
    rows = [json.loads(line) for line in render("json-lines", BOTH, NOTE).splitlines()]
    assert rows == json.loads(render("json", BOTH, NOTE))["findings"]
    assert render("json-lines") == ""


def test_rdjson_counts_bytes_and_suggests_one_edit() -> None:
    chinese = at("run.sh", "--deepspeed conf/ds.json")
    found = replace(MANY_LINES, location=chinese, fix=Fix("x", (Edit("run.sh", chinese.span, "--config a"),)))
    report = json.loads(render("rdjson", BOTH, found, NOTE, IN_CELL))
    rows = report["diagnostics"]
    assert report["source"] == {"name": "dslint"}
    assert [row["severity"] for row in rows] == ["ERROR", "WARNING", "INFO", "ERROR"]
    line = RUN.splitlines()[2].encode()
    where = rows[1]["location"]["range"]
    assert line[where["start"]["column"] - 1 : where["end"]["column"] - 1] == b"--deepspeed conf/ds.json"
    assert rows[1]["suggestions"] == [{"range": where, "text": "--config a"}]
    assert [other["message"] for other in rows[0]["related_locations"]] == ["and here", "this run reads it"]
    assert rows[3]["location"] == {"path": "a.ipynb", "range": {"start": {"line": 1}}}


def test_rules_have_an_address_where_their_pages_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLINT_DOCS_URL", "https://docs.example/dslint/")
    page = "https://docs.example/dslint/rules/DSL900/"
    assert json.loads(render("json", BOTH))["findings"][0]["url"] == page
    assert json.loads(render("sarif", BOTH))["runs"][0]["tool"]["driver"]["rules"][0]["helpUri"] == page
    assert json.loads(render("rdjson", BOTH))["diagnostics"][0]["code"] == {"value": "DSL900", "url": page}
    assert render("github", BOTH).endswith(f"%0A{page}\n")
    assert page in render("junit", BOTH)
    linked = ReportOptions(color=True, hyperlinks=True)
    for name in ("full", "concise"):
        assert page in render(name, BOTH, options=linked)
        assert page not in render(name, BOTH, options=replace(linked, hyperlinks=False))


def test_one_constant_is_the_address_of_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSLINT_DOCS_URL", raising=False)
    monkeypatch.setattr("dslint.report.links.DOCUMENTATION", "https://docs.example")
    assert rule_url("DSL201") == "https://docs.example/rules/DSL201/"
    assert json.loads(render("json", BOTH))["findings"][0]["url"] == "https://docs.example/rules/DSL900/"
    monkeypatch.setattr("dslint.report.links.DOCUMENTATION", "")
    assert rule_url("DSL201") == ""
    assert "helpUri" not in json.loads(render("sarif", BOTH))["runs"][0]["tool"]["driver"]["rules"][0]


@pytest.mark.parametrize(
    ("environ", "links"),
    [
        ({}, False),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"VTE_VERSION": "6800"}, True),
        ({"VTE_VERSION": "4205"}, False),
        ({"KITTY_WINDOW_ID": "1"}, True),
        ({"KITTY_WINDOW_ID": "1", "TMUX": "/tmp/x"}, False),
        ({"KITTY_WINDOW_ID": "1", "TERM": "dumb"}, False),
        ({"FORCE_HYPERLINK": "1"}, True),
        ({"FORCE_HYPERLINK": "0", "WT_SESSION": "1"}, False),
    ],
)
def test_links_are_for_terminals_that_show_them(environ: dict[str, str], links: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert use_links(Terminal(), environ) is links
    assert use_links(io.StringIO(), environ) is (environ.get("FORCE_HYPERLINK") == "1")
