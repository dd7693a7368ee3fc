"""Rules of a project's own: loaded only when allowed, then like any other rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import dslint

from dslint.engine.run import check_paths
from dslint.engine.scripts import POOL_THRESHOLD
from dslint.rules.registry import BY_CODE, PROJECT, all_rules, use_project_rules
from dslint.settings import SettingsError, load_settings, make_settings
from dslint.testing import ExampleCase, example_cases

ROOT = Path(__file__).resolve().parents[2]
# The rule of the documentation is the rule of the tests.
RULE = next(
    block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    if "class Check" in block
)
TRAIN = "from mylib.dist import sync_metrics\nfor batch in loader:\n    sync_metrics(batch)\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / ".git").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sync_rule.py").write_text(RULE)
    (tmp_path / "dslint.toml").write_text('rules = ["tools/sync_rule.py"]\n')
    (tmp_path / "train.py").write_text(TRAIN)
    yield tmp_path
    use_project_rules(())


def codes(paths: list[str], **more: object) -> list[str]:
    settings = load_settings(Path(), {"cache": False, **more}, run_rules=True)
    return [f.code for f in check_paths(paths, settings).findings]


def test_without_permission_no_code_runs_and_the_user_is_told(project: Path) -> None:
    (project / "tools" / "sync_rule.py").write_text("raise SystemExit('ran')\n")
    (project / "dslint.toml").write_text(
        'rules = ["tools/sync_rule.py"]\nextend-select = ["MY001"]\n[severity]\nMY = "error"\n'
    )
    (project / "train.py").write_text(TRAIN.replace("(batch)", "(batch)  # dslint: ignore[MY001] meant"))
    done = dslint("train.py")
    assert (done.code, done.codes) == (0, [])
    assert "--project-rules runs their code" in done.err
    assert "MY001" not in PROJECT


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_with_permission_the_rule_is_like_any_other(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("DSLINT_PROJECT_RULES", "1")
    flags = ["--project-rules"] if by == "flag" else []
    assert dslint(*flags, "train.py").codes == ["MY001"]
    assert dslint(*flags, "--ignore", "MY", "train.py").codes == []
    assert dslint(*flags, "--ignore", "sync-metrics-in-loop", "train.py").codes == []
    assert dslint(*flags, "--select", "DSL2", "train.py").codes == []
    assert dslint(*flags, "--select", "MY001", "train.py").codes == ["MY001"]


def test_a_dotted_name_is_a_file_below_the_settings(project: Path) -> None:
    (project / "dslint.toml").write_text('rules = ["tools.sync_rule"]\n')
    assert codes(["train.py"]) == ["MY001"]


def test_suppressions_and_severities_hold(project: Path) -> None:
    (project / "dslint.toml").write_text('rules = ["tools/sync_rule.py"]\n[severity]\nMY001 = "error"\n')
    (found,) = check_paths(["train.py"], load_settings(Path(), {"cache": False}, run_rules=True)).findings
    assert found.severity.value == "error"
    (project / "train.py").write_text(TRAIN.replace("(batch)", "(batch)  # dslint: ignore[MY001] meant"))
    assert codes(["train.py"]) == []
    (project / "train.py").write_text("x = 1  # dslint: ignore[MY001] not needed\n")
    assert codes(["train.py"]) == ["DSL903"]


def test_rules_of_one_project_are_unknown_in_the_next() -> None:
    assert codes(["train.py"]) == ["MY001"]
    assert check_paths(["train.py"], make_settings({"cache": False})).findings == []
    assert "MY001" not in BY_CODE
    assert not any(rule.code == "MY001" for rule in all_rules())


def test_workers_know_the_rule(project: Path) -> None:
    for number in range(POOL_THRESHOLD + 4):
        (project / f"train{number}.py").write_text(TRAIN + f"x = {number}\n" + "# filled\n" * 1500)
    found = [codes(["."], jobs=jobs, select=["MY001"]) for jobs in (1, 2)]
    assert found[0] == found[1] == ["MY001"] * (POOL_THRESHOLD + 5)


def test_kept_results_belong_to_the_code_of_the_rule(project: Path) -> None:
    flags = ("--project-rules", "train.py")
    assert dslint(*flags).codes == ["MY001"]
    assert dslint("train.py").codes == []
    assert dslint(*flags).codes == ["MY001"]
    changed = RULE.replace("and self.ctx.loops(node)", "and not self.ctx.loops(node)")
    (project / "tools" / "sync_rule.py").write_text(changed)
    assert dslint(*flags).codes == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("x = (\n", "SyntaxError"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\n", "`META` must be a RuleMeta"),
        (RULE.replace('"MY001"', '"DSL201"'), "must not begin with DSL"),
        (RULE.replace('"MY001"', '"my1"'), "2 to 8 capital letters and 3 digits"),
        (RULE.replace("sync-metrics-in-loop", "collective-under-rank-guard"), "that no other rule has"),
        (RULE.replace('kind="script"', 'kind="config"'), "`kind` must be 'script', found 'config'"),
        (RULE.replace("(ScriptCheck)", ""), "`Check` must be a subclass of ScriptCheck"),
        (RULE.replace("EXAMPLES =", "OTHERS ="), "`EXAMPLES` must be a tuple"),
        (RULE.replace('("sync_metrics",)', '("(",)'), "a marker is no regular expression"),
        (
            RULE.replace('("sync_metrics",)', '"sync_metrics"'),
            "`markers` must be a tuple of strings, found 'sync_metrics'",
        ),
        (RULE.replace("Severity.WARNING", '"warning"'), "`severity` must be one of `Severity`, found 'warning'"),
        (RULE.replace('"MY001"', "1"), "`code` must be a string, found 1"),
        (
            RULE.replace("    summary=", '    fix="yes",\n    summary='),
            "`fix` must be 'safe', 'unsafe' or 'none', found 'yes'",
        ),
        (
            RULE.replace("    summary=", '    optional="no",\n    summary='),
            "`optional` must be True or False, found 'no'",
        ),
        (RULE + "EXAMPLES = ('x',)\n", "`EXAMPLES` must be a tuple of"),
        (RULE + "precheck = 3\n", "`precheck` must be a function"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_a_rule_that_cannot_be_used_is_one_line(project: Path, text: str | None, message: str) -> None:
    file = project / "tools" / "sync_rule.py"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(Path(), {}, run_rules=True)
    assert str(caught.value).startswith("dslint.toml:1: `rules`: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not PROJECT


def test_a_code_is_taken_once(project: Path) -> None:
    (project / "second.py").write_text(RULE + "\n")
    (project / "dslint.toml").write_text('rules = ["tools/sync_rule.py", "second.py"]\n')
    with pytest.raises(SettingsError, match="is taken by another rule"):
        load_settings(Path(), {}, run_rules=True)


def test_a_rule_that_fails_is_a_finding(project: Path) -> None:
    (project / "tools" / "sync_rule.py").write_text(RULE.replace("self.report(", "self.missing("))
    assert codes(["train.py"]) == ["DSL901"]


def test_the_commands_about_rules_know_it() -> None:
    assert "MY001  sync-metrics-in-loop" in dslint("rules", "--project-rules").out
    page = dslint("rule", "MY001", "--project-rules").out
    assert "# MY001 sync-metrics-in-loop" in page
    assert "In the loop" in page
    use_project_rules(())
    done = dslint("rule", "MY001")
    assert done.code == 2
    assert "--project-rules" in done.err


def test_every_report_can_name_it() -> None:
    for name in ("concise", "full", "json", "github", "sarif"):
        done = dslint("--project-rules", "--output-format", name, "train.py")
        assert done.code == 1
        assert "MY001" in done.out


def test_examples_are_tests(project: Path) -> None:
    cases = example_cases("tools/sync_rule.py")
    assert [str(case) for case in cases] == ["MY001-bad-In-the-loop", "MY001-good-After-the-loop"]
    for case in cases:
        case.check()
    assert Path.cwd() == project
    bad, good = cases
    with pytest.raises(AssertionError, match=r"train\.py:3"):
        ExampleCase(bad.file, bad.code, good.example.__class__("x", bad.example.files, ("train.py:2",))).check()
    with pytest.raises(AssertionError, match="must be silent"):
        ExampleCase(bad.file, bad.code, good.example.__class__("x", bad.example.files)).check()
    only_good = RULE.replace(', "train.py:3"),', ", ()),")
    (project / "tools" / "sync_rule.py").write_text(only_good)
    with pytest.raises(ValueError, match="at least one bad"):
        example_cases("tools/sync_rule.py")
