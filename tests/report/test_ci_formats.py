"""The formats of CI systems: Azure, GitLab, JUnit and reviewdog."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reports import BOTH, IN_CELL, MANY_LINES, NOTE, RUN, TEXTS, at, elsewhere, render

from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Region, SourceFile, Span


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
def test_junit_is_xml_whatever_a_file_holds(text: str) -> None:
    odd = replace(BOTH, message=text, location=Location(text or "f", Span(0, 1), Region(1, 1, 1, 2)), hint=text)
    assert len(fromstring(render("junit", odd, texts={}).encode("utf-8", "replace"))) == 1


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
