"""Where settings come from, which one wins, and what a mistake in them says."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, Region, SourceFile, Span
from dslint.rules.index import RULES
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR, UNREADABLE_FILE, UNUSED_SUPPRESSION
from dslint.settings import Settings, SettingsError, load_settings, make_settings

ROOT = Path(__file__).resolve().parents[2]


def loaded(start: Path, overrides: dict[str, object] | None = None, **more: object) -> Settings:
    arguments = {"config": None, "isolated": False, "environ": {}, **more}
    return load_settings(start, overrides or {}, **arguments)  # type: ignore[arg-type]


def error_of(start: Path, **more: object) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(start, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_any_source_every_rule_is_on_but_optional_ones_and_warnings_fail() -> None:
    settings = make_settings({})
    assert all(settings.enabled(rule.code) != rule.optional for rule in RULES)
    assert (settings.fail_on, settings.source, settings.cache, settings.exclude) == ("warning", None, True, None)


def test_nearest_file_wins_and_is_not_merged_with_those_above(here: Path) -> None:
    (here / "pyproject.toml").write_text('[tool.dslint]\nworld-size = 4\nignore = ["DSL900"]\n')
    inner = here / "a" / "b"
    inner.mkdir(parents=True)
    (here / "a" / "dslint.toml").write_text("jobs = 3\n")
    settings = loaded(inner)
    assert (settings.jobs, settings.world_size, settings.ignore) == (3, None, ())
    assert settings.source == "a/dslint.toml"
    assert settings.root == here / "a"
    assert loaded(here).world_size == 4


def test_a_file_as_start_is_looked_up_from_its_folder(here: Path) -> None:
    (here / "dslint.toml").write_text("jobs = 2\n")
    (here / "train.py").write_text("")
    assert loaded(here / "train.py").jobs == 2


def test_hidden_file_beats_plain_file_beats_pyproject(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.dslint]\njobs = 1\n")
    assert loaded(here).jobs == 1
    (here / "dslint.toml").write_text("jobs = 2\n")
    assert loaded(here).jobs == 2
    (here / ".dslint.toml").write_text("jobs = 3\n")
    assert loaded(here).jobs == 3


def test_pyproject_of_others_is_passed_over_even_when_it_is_broken(here: Path) -> None:
    (here / "dslint.toml").write_text("jobs = 2\n")
    inner = here / "pkg"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n[broken\n')
    assert loaded(inner).jobs == 2
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["deepspeed-lint", "dslint"]\n')
    assert loaded(inner).jobs == 2


def test_extend_adds_lists_and_overrides_values(here: Path) -> None:
    (here / "base.toml").write_text(
        'jobs = 2\nworld-size = 8\nextend-exclude = ["old"]\nignore = ["DSL903"]\n[severity]\nDSL900 = "info"\n'
    )
    inner = here / "sub"
    inner.mkdir()
    (inner / "dslint.toml").write_text('extend = "../base.toml"\nworld-size = 4\nextend-exclude = ["new"]\n')
    settings = loaded(inner)
    assert (settings.jobs, settings.world_size) == (2, 4)
    assert settings.extend_exclude == ("old", "new")
    assert not settings.enabled("DSL903")
    assert settings.severities == {"DSL900": Severity.INFO}


def test_names_of_a_base_and_of_the_file_add_up(here: Path) -> None:
    (here / "base.toml").write_text('[names]\nguards = ["is_chief"]\ncollectives = ["sync_all"]\n')
    (here / "dslint.toml").write_text('extend = "base.toml"\n[names]\nguards = ["mylib.is_head"]\n')
    names = loaded(here).names
    assert (names.guards, names.collectives, names.engines) == (("is_chief", "mylib.is_head"), ("sync_all",), ())


def test_extend_in_a_circle_or_to_nowhere_is_an_error(here: Path) -> None:
    (here / "dslint.toml").write_text('extend = "other.toml"\n')
    assert error_of(here) == "dslint.toml:1: `extend`: there is no file other.toml"
    (here / "other.toml").write_text('extend = "dslint.toml"\n')
    assert "leads back" in error_of(here)


def test_flags_beat_environment_beats_file(here: Path) -> None:
    (here / "dslint.toml").write_text('output-format = "json"\ncache-dir = "cache"\n')
    assert loaded(here).output_format == "json"
    assert loaded(here).cache_dir == here / "cache"
    environ = {"DSLINT_OUTPUT_FORMAT": "github", "DSLINT_CACHE_DIR": "/elsewhere"}
    assert loaded(here, environ=environ).output_format == "github"
    assert loaded(here, environ=environ).cache_dir == Path("/elsewhere")
    assert loaded(here, {"output-format": "sarif"}, environ=environ).output_format == "sarif"


def test_a_mistake_in_the_environment_names_it(here: Path) -> None:
    message = error_of(here, environ={"DSLINT_OUTPUT_FORMAT": "xml"})
    assert "DSLINT_" in message
    assert "`output-format`" in message
    assert '"xml"' in message


def test_isolated_reads_no_file_and_config_reads_only_that_one(here: Path) -> None:
    (here / "dslint.toml").write_text("jobs = 2\n")
    (here / "ci.toml").write_text("jobs = 7\n")
    assert loaded(here, isolated=True).jobs is None
    settings = loaded(here / "nowhere", config=here / "ci.toml")
    assert (settings.jobs, settings.source, settings.root) == (7, "ci.toml", here)


def test_named_config_must_exist_and_be_about_dslint(here: Path) -> None:
    assert "cannot be read" in error_of(here, config=here / "none.toml")
    (here / "pyproject.toml").write_text("[project]\n")
    assert error_of(here, config=here / "pyproject.toml") == "pyproject.toml: has no [tool.dslint] table"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.dslint]\n\nselekt = []\n", "pyproject.toml:3: unknown key `selekt`; did you mean `select`?"),
        ("[tool.dslint]\nworld_size = 8\n", "pyproject.toml:2: unknown key `world_size`; did you mean `world-size`?"),
        (
            "[tool.dslint]\nworld-size = '8'\n",
            'pyproject.toml:2: `world-size` must be a whole number, found "8"',
        ),
        ("[tool.dslint]\njobs = 0\n", "pyproject.toml:2: `jobs` must be at least 1, found 0"),
        ("[tool.dslint]\nfix = 1\n", "pyproject.toml:2: `fix` must be true or false, found 1"),
        ('[tool.dslint]\nselect = "DSL9"\n', 'pyproject.toml:2: `select` must be a list of strings, found "DSL9"'),
        (
            '[tool.dslint]\nfail-on = "never"\n',
            "pyproject.toml:2: `fail-on` must be 'error', 'warning' or 'info', found \"never\"",
        ),
        (
            '[tool.dslint.severity]\nDSL900 = "off"\n',
            "pyproject.toml:2: `severity.DSL900` must be 'error', 'warning' or 'info', found \"off\"",
        ),
        (
            "[tool.dslint.launch]\nnnodes = 2\nnproc = 8\n",
            "pyproject.toml:3: unknown key `launch.nproc`; did you mean `nproc-per-node`?",
        ),
        ('[tool.dslint.names]\nguard = ["x"]\n', "pyproject.toml:2: unknown key `names.guard`; did you mean `guards`?"),
        (
            '[tool.dslint.names]\nguards = ["is chief"]\n',
            "pyproject.toml:2: `names.guards.0` must be "
            "a name in Python, with dots or without (`mylib.dist.is_chief`), "
            'found "is chief"',
        ),
        (
            '[tool.dslint]\nignore = ["DSL90X"]\n',
            "pyproject.toml:2: `ignore`: unknown rule `DSL90X`, did you mean `DSL90",
        ),
        (
            '[tool.dslint.severity]\nsyntax-eror = "info"\n',
            "pyproject.toml:2: `severity`: unknown rule `syntax-eror`, did you mean `syntax-error`?",
        ),
        (
            '[tool.dslint.per-file-ignores]\n"a.b/*.json" = ["DSL900:zero"]\n',
            "pyproject.toml:2: `per-file-ignores`: `zero` is no JSON pointer: it must begin with `/`",
        ),
        (
            '[tool.dslint]\ndeepspeed-version = "new"\n',
            "pyproject.toml:2: `deepspeed-version` must be a release or a range such as 0.16.9",
        ),
        (
            '[tool.dslint]\ntransformers-version = "4,57"\n',
            "pyproject.toml:2: `transformers-version` must be a release or a range such as 4.57.1",
        ),
        (
            '[tool.dslint]\ndeepspeed-verson = "0.16"\n',
            "pyproject.toml:2: unknown key `deepspeed-verson`; did you mean `deepspeed-version`?",
        ),
        (
            '[tool.dslint]\nconsumer = "huggingface"\n',
            "pyproject.toml:2: `consumer` must be 'deepspeed', 'hf', 'accelerate' or 'lightning', found",
        ),
        (
            '[tool.dslint.consumers]\n"*.json" = "trainer"\n',
            "pyproject.toml:2: `consumers.*.json` must be 'deepspeed', 'hf', 'accelerate' or 'lightning', found",
        ),
        ("[tool]\ndslint = 3\n", "pyproject.toml: [tool.dslint] must be a table"),
        ("[tool.dslint]\nselect = [\n", "pyproject.toml: not valid TOML: "),
        ("[tool.dslint\n", "pyproject.toml:1: not valid TOML: "),
    ],
)
def test_a_mistake_is_one_line_with_its_place(here: Path, text: str, message: str) -> None:
    (here / "pyproject.toml").write_text(text)
    assert error_of(here).startswith(message)


def test_settings_that_are_no_text_are_one_line_too(here: Path) -> None:
    (here / "dslint.toml").write_bytes(b"\xff\xfe\x00")
    assert error_of(here) == "dslint.toml: is not UTF-8"
    (here / "dslint.toml").write_text("a = " + "[" * 20_000)
    assert error_of(here).startswith("dslint.toml: not valid TOML")


def test_an_unknown_flag_is_an_error() -> None:
    with pytest.raises(SettingsError, match="command line: unknown key `wrld-size`; did you mean `world-size`"):
        make_settings({"wrld-size": 3})


def test_the_most_specific_selector_decides() -> None:
    settings = make_settings({"select": "DSL9", "ignore": ["DSL903"]})
    assert settings.enabled("DSL900")
    assert not settings.enabled("DSL903")
    settings = make_settings({"ignore": ["DSL9"], "extend-select": ["unused-suppression"]})
    assert settings.enabled("DSL903")
    assert not settings.enabled("DSL902")


def test_files_that_cannot_be_judged_stay_visible_unless_ignored_by_name() -> None:
    settings = make_settings({"select": "DSL903"})
    assert settings.enabled("DSL903")
    assert settings.enabled(SYNTAX_ERROR.code)
    assert settings.enabled(UNREADABLE_FILE.code)
    assert not make_settings({"select": "DSL903", "ignore": ["unreadable-file"]}).enabled("DSL902")


def test_selection_on_the_command_line_overrules_the_file(here: Path) -> None:
    (here / "dslint.toml").write_text('select = ["DSL901"]\nignore = ["DSL903"]\n')
    assert not loaded(here).enabled("DSL903")
    assert loaded(here, {"select": ["DSL903"]}).enabled("DSL903")
    assert loaded(here, {"extend-select": ["DSL903"]}).enabled("DSL903")
    assert not loaded(here, {"ignore": ["ALL"]}).enabled("DSL901")


def test_rules_that_are_not_to_be_fixed_have_no_fix(tmp_path: Path) -> None:
    place = SourceFile("a.sh", "x = 1\n").location(Span(0, 1))
    found = SYNTAX_ERROR.finding(place, "m", fix=Fix("mend", (Edit("a.sh", Span(0, 1), "y"),)))
    for selector in ("DSL9", "DSL900", "syntax-error", "ALL"):
        assert make_settings({"unfixable": [selector]}).adjusted(found).fix is None
    assert make_settings({"unfixable": ["DSL901"]}).adjusted(found).fix == found.fix
    with pytest.raises(SettingsError, match="unknown rule `syntax-eror`"):
        make_settings({"unfixable": ["syntax-eror"]})


def test_severity_is_overridden_by_code_prefix_or_name() -> None:
    place = Location("a.py", Span(0, 0), Region(1, 1, 1, 1))
    settings = make_settings({"severity": {"DSL9": "info", "unused-suppression": "error"}})
    assert settings.adjusted(SYNTAX_ERROR.finding(place, "m")).severity is Severity.INFO
    assert settings.adjusted(UNUSED_SUPPRESSION.finding(place, "m")).severity is Severity.ERROR
    assert make_settings({}).adjusted(RULE_CRASHED.finding(place, "m")).severity is RULE_CRASHED.severity


@pytest.mark.parametrize(
    ("given", "range_"),
    [("0.16.9", "==0.16.9"), ("0.16", "==0.16.*"), (">=0.14, <0.18", "<0.18,>=0.14"), ("0.17.0rc1", "==0.17.0rc1")],
)
def test_a_deepspeed_release_becomes_a_range(given: str, range_: str) -> None:
    assert make_settings({"deepspeed-version": given}).deepspeed_version == range_
    assert make_settings({"transformers-version": given}).transformers_version == range_
    assert make_settings({"accelerate-version": given}).accelerate_version == range_


def test_launch_gives_the_world_size_unless_it_is_stated(here: Path) -> None:
    (here / "dslint.toml").write_text("launch = { nnodes = 2, nproc-per-node = 8 }\n")
    assert loaded(here).world_size == 16
    assert loaded(here, {"world-size": 4}).world_size == 4


def test_one_reader_stated_later_beats_patterns_stated_before(here: Path) -> None:
    (here / "dslint.toml").write_text('consumers = { "a/*.json" = "hf" }\n')
    assert loaded(here).consumers == {"a/*.json": "hf"}
    stated = loaded(here, {"consumer": "deepspeed"})
    assert (stated.consumer, stated.consumers) == ("deepspeed", {})


def test_fingerprint_changes_with_what_changes_findings_only() -> None:
    plain = make_settings({}).fingerprint()
    for name, value in [
        ("world-size", 8),
        ("ignore", ["DSL903"]),
        ("deepspeed-version", "0.16"),
        ("transformers-version", "4.57"),
        ("consumer", "hf"),
        ("consumers", {"*.json": "hf"}),
        ("names", {"guards": ["is_chief"]}),
        ("severity", {"DSL900": "info"}),
        ("per-file-ignores", {"a.py": ["DSL900"]}),
    ]:
        assert make_settings({name: value}).fingerprint() != plain, name
    for name, value in [("jobs", 3), ("output-format", "json"), ("fail-on", "error"), ("cache-dir", "x")]:
        assert make_settings({name: value}).fingerprint() == plain, name


def test_settings_travel_to_other_processes() -> None:
    settings = make_settings({"severity": {"DSL900": "info"}, "select": "DSL9", "launch": {"nnodes": 2}})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_described_settings_are_settings_again(here: Path) -> None:
    given = {
        "select": ["DSL9"],
        "world-size": 8,
        "per-file-ignores": {"a b/*.json": ["DSL900:/zero"]},
        "severity": {"DSL900": "info"},
        "launch": {"nnodes": 2},
        "launches": {"slurm/*.sbatch": {"nproc-per-node": 8, "world-size": 16}},
        "deepspeed-version": ">=0.14,<0.18",
        "consumer": "deepspeed",
        "consumers": {"configs/hf/*.json": "hf"},
        "names": {"guards": ["is_chief"], "engines": ["mylib.build"]},
    }
    settings = make_settings(given, here)
    (here / "dslint.toml").write_text(settings.describe())
    again = loaded(here)
    assert again.fingerprint() == settings.fingerprint()
    assert again.describe().splitlines()[1:] == settings.describe().splitlines()[1:]


def test_right_settings_need_no_pydantic() -> None:
    program = (
        "import sys; from dslint.settings import make_settings;"
        "make_settings({'select': ['DSL9'], 'world-size': 8, 'output-format': 'json', 'fix': True,"
        "'names': {'guards': ['a.b']}});"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_published_schema_is_generated_and_judges_as_dslint_does() -> None:
    subprocess.run([sys.executable, "scripts/generate_settings_schema.py", "--check"], cwd=ROOT, check=True)
    schema = json.loads((ROOT / "schemas" / "dslint.schema.json").read_text())
    judge = jsonschema.Draft7Validator(schema)
    assert all(value.get("description") for value in schema["properties"].values())
    for good in ({}, {"select": ["ALL"]}, {"launch": {"nproc-per-node": 8}}, {"names": {"guards": ["a.b"]}}):
        make_settings(good)
        assert judge.is_valid(good), good
    for wrong in ({"selekt": []}, {"jobs": 0}, {"fix": 1}, {"launch": {"x": 1}}, {"names": {"guards": ["a b"]}}):
        assert not judge.is_valid(wrong), wrong
        with pytest.raises(SettingsError):
            make_settings(wrong)


def test_an_optional_rule_is_off_until_it_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslint.rules.registry import BY_CODE
    from dslint.settings.selection import Layer, is_enabled

    monkeypatch.setitem(BY_CODE, "DSL101", BY_CODE["DSL101"]._replace(optional=True))
    assert not is_enabled("DSL101", [])
    assert is_enabled("DSL102", [])
    assert is_enabled("DSL101", [Layer(select=("",))])
    assert is_enabled("DSL101", [Layer(extend_select=("DSL101",))])
    assert not is_enabled("DSL101", [Layer(select=("DSL2",))])
    # No prefix asks for it, however long; what was asked for stays.
    assert not is_enabled("DSL101", [Layer(select=("DSL1", "DSL10"))])
    assert not is_enabled("DSL101", [Layer(extend_select=("DSL1",))])
    assert is_enabled("DSL101", [Layer(extend_select=("DSL101",)), Layer(extend_select=("DSL1",))])
    assert not is_enabled("DSL101", [Layer(select=("",), ignore=("DSL10",))])


@pytest.mark.parametrize("table", ["[tool.dslint]\nfix = true\n", "[tool.dslint.launch]\nnnodes = 2\n"])
def test_a_table_of_pyproject_in_a_file_of_ours_says_what_to_do(table: str, tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text(f"# ours\n{table}")
    with pytest.raises(
        SettingsError, match=r"dslint.toml(:2)?: `\[tool.dslint\]` is for pyproject.toml: in dslint.toml"
    ):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("key", "text", "is_known"),
    [
        ("deepspeed-version", "99", False),
        ("deepspeed-version", ">=99", False),
        ("deepspeed-version", "0.16.99", False),
        ("deepspeed-version", "0.16", True),
        ("deepspeed-version", "0.20.1", True),
        ("deepspeed-version", "1.0", True),
        ("deepspeed-version", ">=0.14,<0.18", True),
        ("deepspeed-version", "<99", True),
        ("transformers-version", "99", False),
        ("transformers-version", "4.57.1", True),
        ("transformers-version", "2.11", True),
        ("transformers-version", "6.0.0", True),
        ("accelerate-version", "99", False),
        ("accelerate-version", "0.12.0", True),
        ("accelerate-version", "1.10.1", True),
    ],
)
def test_a_release_that_cannot_be_is_a_mistake(key: str, text: str, is_known: bool) -> None:
    if is_known:
        make_settings({key: text})
        return
    with pytest.raises(SettingsError, match=rf"`{key}`: there is no such release.*found `{text}`"):
        make_settings({key: text})
