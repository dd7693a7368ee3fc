"""The rule index, the registry and the rule pages."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.rules import own
from dslint.rules.explain import brief, explain, markdown
from dslint.rules.info import RuleInfo
from dslint.rules.registry import LoadedRule, UnknownSelector, all_rules, explanation, find, load_rule

ROOT = Path(__file__).resolve().parents[2]
RULES = all_rules()
KIND_OF_HUNDRED = dict(
    zip("12345679", ("config", "script", "launch", "plan", "script", "script", "script", "dslint"), strict=True)
)


def ids(info: RuleInfo) -> str:
    return info.code


def python(code: str, **options: object) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_codes_and_names_are_unique_and_sorted() -> None:
    codes = [info.code for info in RULES]
    assert codes == sorted(set(codes))
    assert len({info.name for info in RULES}) == len(RULES)


def says_what_the_rule_file_says(info: RuleInfo) -> None:
    meta = load_rule(info.code).meta
    listed = (
        info.code,
        info.name,
        info.kind,
        info.severity,
        info.summary,
        info.markers,
        info.fix,
        info.since,
        info.needs,
        info.consumers,
    )
    stated = (
        meta.code,
        meta.name,
        meta.kind,
        meta.severity.value,
        meta.summary,
        meta.markers,
        meta.fix,
        meta.since,
        meta.needs,
        meta.consumers,
    )
    assert listed == stated, "run python scripts/generate_rule_index.py"


def is_well_described(info: RuleInfo) -> None:
    assert re.fullmatch(r"DSL\d{3}", info.code)
    assert (
        KIND_OF_HUNDRED[info.code[3]] == info.kind
        or (info.kind == "accelerate" and "DSL180" <= info.code <= "DSL199")
        or (info.kind == "versions" and "DSL530" <= info.code <= "DSL549")
        or (info.kind in ("accelerate", "plan") and (info.code == "DSL325" or "DSL361" <= info.code <= "DSL389"))
        or (info.kind == "accelerate" and info.code == "DSL343")
    )
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", info.name)
    assert info.fix in ("none", "safe", "unsafe")
    assert not info.summary.endswith(".")
    assert "\n" not in info.summary
    assert len(info.summary) <= 140
    for marker in info.markers:
        re.compile(marker.encode())
    if info.kind == "script":
        assert info.markers, "without markers every Python file would be parsed"


def explains_itself(info: RuleInfo) -> None:
    rule = load_rule(info.code)
    for section in ("**What.**", "**Why it hurts.**", "**Fix.**", "**When it stays quiet.**"):
        assert section in rule.explanation, f"{info.code} has no {section}"
    if info.kind != "dslint":
        assert "**Evidence.**" in rule.explanation
        assert any(example.at for example in rule.examples)
        assert sum(not example.at for example in rule.examples) >= 2
        evidence = rule.explanation.partition("**Evidence.**")[2]
        assert rule.meta.references or re.search(r"https?://|\w\.py`|\d+\.\d+", evidence), "cite public evidence"


def prose_read_from_source_is_that_of_the_module(info: RuleInfo) -> None:
    assert explanation(info.code) == load_rule(info.code).explanation


def page_holds_every_example(info: RuleInfo) -> None:
    rule = load_rule(info.code)
    page = markdown(rule)
    assert page.startswith(f"# {info.code} {info.name}\n")
    for example in rule.examples:
        for text in example.files.values():
            assert text.replace("\r", "\u240d").rstrip() in page  # a page shows them
    fences = [line for line in page.splitlines() if re.match(r"`{3,}", line)]
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("info", RULES, ids=ids)
def test_a_rule_its_index_and_its_page(info: RuleInfo) -> None:
    says_what_the_rule_file_says(info)
    is_well_described(info)
    explains_itself(info)
    prose_read_from_source_is_that_of_the_module(info)
    page_holds_every_example(info)


def test_a_fence_is_longer_than_the_fences_in_the_text() -> None:
    from dslint.rules.base import good

    example = good("a README", {"README.md": "```bash\ntorchrun train.py\n```\n"})
    page = markdown(LoadedRule(own.SYNTAX_ERROR, own, "prose", (example,)))  # type: ignore[arg-type]
    assert "````markdown\n```bash\ntorchrun train.py\n```\n````" in page


@pytest.mark.parametrize("selector", ["DSL903", "unused-suppression", "unused_suppression", "dsl903", " DSL903 "])
def test_a_rule_is_found_by_code_or_name(selector: str) -> None:
    assert [info.code for info in find(selector)] == ["DSL903"]


def test_a_prefix_finds_the_whole_group() -> None:
    assert [info.code for info in find("DSL9")] == ["DSL900", "DSL901", "DSL902", "DSL903"]
    assert find("DSL") == find("ALL") == RULES


@pytest.mark.parametrize(
    ("selector", "suggestion"),
    [
        ("unused-supression", "unused-suppression"),
        ("DLS903", "DSL903"),
        ("rule-crash", "rule-crashed"),
        ("D", ""),
        ("", ""),
        ("E501", ""),
        ("zzzzzz", ""),
    ],
)
def test_an_unknown_selector_is_refused_with_the_nearest_one(selector: str, suggestion: str) -> None:
    with pytest.raises(UnknownSelector) as caught:
        find(selector)
    assert caught.value.suggestion == suggestion
    assert (f"did you mean `{suggestion}`?" in str(caught.value)) == bool(suggestion)
    assert f"`{selector}`" in str(caught.value)


def test_loading_an_unknown_code_is_refused() -> None:
    with pytest.raises(UnknownSelector):
        load_rule("DSL9")


def test_the_page_goes_as_markdown_to_a_pipe_and_typeset_to_a_colour_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    plain = io.StringIO()
    explain("DSL903", plain)
    assert plain.getvalue() == brief(load_rule("DSL903"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = io.StringIO()
    explain("DSL903", colored)
    assert "\x1b[1m" in colored.getvalue()
    assert "**What.**" not in colored.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    again = io.StringIO()
    explain("DSL903", again)
    assert again.getvalue() == plain.getvalue()


def test_a_page_is_short_unless_more_is_asked_for() -> None:
    rule = load_rule("DSL201")
    pages = {
        "": brief(rule),
        "examples": brief(rule, examples=True),
        "evidence": brief(rule, evidence=True),
        "all": brief(rule, examples=True, evidence=True),
    }
    held = {
        "**Why it hurts.**": {"", "examples", "evidence", "all"},
        "**Fix.**": {"", "examples", "evidence", "all"},
        "**When it stays quiet.**": {"examples", "all"},
        "**Evidence.**": {"evidence", "all"},
        "## Experiments": {"evidence", "all"},
        "## Not reported": {"examples", "all"},
        "--examples` shows": {""},
    }
    assert {words: {name for name, page in pages.items() if words in page} for words in held} == held
    assert pages["all"] == markdown(rule)
    assert pages[""].count("### ") == 1
    assert len(pages[""].splitlines()) < 60


@pytest.mark.parametrize("info", all_rules(), ids=lambda info: info.code)
def test_every_short_page_says_what_why_and_how(info: RuleInfo) -> None:
    page = brief(load_rule(info.code))
    assert [title for title in ("**What.**", "**Why it hurts.**", "**Fix.**") if title not in page] == []


def test_a_page_reaches_a_stream_that_knows_only_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    explain("DSL903", stream)
    stream.flush()


def test_the_index_imports_nothing_but_its_own_row_type() -> None:
    code = (
        "import sys; before = set(sys.modules); import dslint.rules.index; "
        "print(sorted(m for m in set(sys.modules) - before if m.startswith('dslint') or m == 'dataclasses'))"
    )
    assert eval(python(code)) == ["dslint", "dslint.rules", "dslint.rules.index", "dslint.rules.info"]


def test_explaining_a_rule_of_dslint_imports_no_parser() -> None:
    code = (
        "import sys, io; from dslint.rules.explain import explain; explain('DSL903', io.StringIO()); "
        "print(sorted({'libcst', 'rich', 'jsonschema', 'pydantic', 'tree_sitter'} & set(sys.modules)))"
    )
    assert python(code) == "[]"


def test_reading_the_prose_of_all_rules_imports_no_parser() -> None:
    code = (
        "import sys; from dslint.rules.registry import all_rules, explanation; "
        "[explanation(info.code) for info in all_rules()]; "
        "print(sorted({'libcst', 'rich', 'jsonschema', 'pydantic', 'tree_sitter'} & set(sys.modules)))"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize("script", ["generate_rule_index.py", "generate_rule_docs.py"])
def test_generated_files_are_up_to_date(script: str) -> None:
    command = [sys.executable, f"scripts/{script}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the generators read, to change at will."""
    import shutil

    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dslint", tmp_path / "dslint", ignore=ignore)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=ignore)
    return tmp_path


def generate(project: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"scripts/{script}", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, check=False)


RULE = '''"""**What.** A trial."""

from dslint.core.finding import Severity
from dslint.rules.base import RuleMeta, bad

META = RuleMeta("{code}", "{name}", "{kind}", Severity.INFO, 'Says "no" to it\\'s own', markers=(r"\\bx\\b", "y"))
EXAMPLES = (bad("it", {{"a.json": "1"}}, at="a.json:1"),)


def precheck(tree):
    return True


def check(doc, context):
    return []
'''


def add_rule(project: Path, file: str, code: str = "DSL100", name: str = "on-trial", kind: str = "config") -> None:
    (project / "dslint/rules" / file).write_text(RULE.format(code=code, name=name, kind=kind))


def test_a_new_rule_file_makes_the_check_fail_with_the_command_to_run(project: Path) -> None:
    add_rule(project, "config/dsl100_on_trial.py")
    checked = generate(project, "generate_rule_index.py", "--check")
    assert checked.returncode == 1
    assert "run `python scripts/generate_rule_index.py`" in checked.stderr
    assert "DSL100" not in (project / "dslint/rules/index.py").read_text()


def test_a_new_rule_file_enters_the_index_and_gets_a_page(project: Path) -> None:
    add_rule(project, "config/dsl100_on_trial.py")
    assert generate(project, "generate_rule_index.py").returncode == 0
    assert generate(project, "generate_rule_index.py", "--check").returncode == 0
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "--check"]
    assert subprocess.run([*command, project / "dslint/rules/index.py"], check=False).returncode == 0
    code = "from dslint.rules.registry import *; i = find('on-trial')[0]; print(i.markers, i.has_precheck, i.summary)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == r"""('\\bx\\b', 'y') True Says "no" to it's own"""
    assert generate(project, "generate_rule_docs.py", "--check").returncode == 1
    assert generate(project, "generate_rule_docs.py").returncode == 0
    assert "[DSL100](DSL100-on-trial.md)" in (project / "docs/rules/README.md").read_text()
    assert (project / "docs/rules/DSL100-on-trial.md").exists()


def test_the_page_of_a_deleted_rule_is_reported_and_deleted(project: Path) -> None:
    assert generate(project, "generate_rule_docs.py").returncode == 0
    left = project / "docs/rules/DSL198-gone.md"
    left.write_text("old")
    checked = generate(project, "generate_rule_docs.py", "--check")
    assert checked.returncode == 1
    assert "DSL198-gone.md belongs to no rule" in checked.stderr
    assert generate(project, "generate_rule_docs.py").returncode == 0
    assert not left.exists()


@pytest.mark.parametrize(
    ("file", "rule", "reason"),
    [
        ("config/dsl198_on_trial.py", {}, "META.code is 'DSL100'"),
        ("launch/dsl100_on_trial.py", {}, "META.kind is 'config'"),
        ("config/dsl903_on_trial.py", {"code": "DSL903"}, "two rules share 'DSL903'"),
        ("config/dsl100_on_trial.py", {"name": "unused-suppression"}, "two rules share 'unused-suppression'"),
    ],
)
def test_a_rule_that_contradicts_its_place_is_refused(
    project: Path, file: str, rule: dict[str, str], reason: str
) -> None:
    add_rule(project, file, **rule)
    done = generate(project, "generate_rule_index.py")
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_rule_that_cannot_be_imported_is_named(project: Path) -> None:
    (project / "dslint/rules/config/dsl100_on_trial.py").write_text("import no_such_module\n")
    done = generate(project, "generate_rule_index.py")
    assert done.returncode == 2
    assert "dslint.rules.config.dsl100_on_trial: cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr
