"""What a new user meets: the default view, words that are no command, help, completion, and ``dslint init``."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import SCRIPT, Done, dslint

from dslint.arguments import COMMANDS
from dslint.commands import PARSERS, no_command, parser_of
from dslint.completion import SHELLS
from dslint.core.progress import tell
from dslint.init_command import pieces_for, requirement_here
from dslint.progressbar import PATIENCE, Bar, shown_progress
from dslint.rules.registry import all_rules
from dslint.settings import load_settings

# One error, and one note: `overlap_comm` where nobody says which release.
CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": 1, "overlap_comm": true}}\n'
NOTE_ONLY = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "DSLINT_OUTPUT_FORMAT", "DSLINT_MIN_SEVERITY", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ds.json").write_text(CONFIG)
    return tmp_path


# the default view


def test_notes_are_one_line_of_the_summary() -> None:
    done = dslint("ds.json")
    assert done.codes == ["DSL102"]
    assert done.err == "Found 1 error in 1 of 1 file. 1 note; `--min-severity info` shows it.\n"
    assert dslint("ds.json", "--min-severity", "info").codes == ["DSL102", "DSL160"]


def test_a_project_with_notes_only_has_no_errors_or_warnings(project: Path) -> None:
    (project / "ds.json").write_text(NOTE_ONLY)
    assert dslint() == (0, b"", "No errors or warnings in 1 file. 1 note; `--min-severity info` shows it.\n")


def test_what_fails_is_shown() -> None:
    done = dslint("--fail-on", "info")
    assert (done.code, done.codes) == (1, ["DSL102", "DSL160"])


@pytest.mark.parametrize("name", ["flag", "setting", "environment"])
def test_the_least_severity_can_be_said_in_three_places_and_never_changes_the_exit_code(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(least: str, *more: str) -> Done:
        if name == "setting":
            (project / "dslint.toml").write_text(f'min-severity = "{least}"\n')
        if name == "environment":
            monkeypatch.setenv("DSLINT_MIN_SEVERITY", least)
        return dslint("ds.json", *more, *(["--min-severity", least] if name == "flag" else []))

    assert asked("info").codes == ["DSL102", "DSL160"]
    assert asked("error").codes == ["DSL102"]
    (project / "ds.json").write_text(NOTE_ONLY)
    assert asked("warning", "--fail-on", "info")[:2] == (1, b"")
    assert asked("info").code == 0


def test_programs_get_everything_unless_a_least_severity_is_stated() -> None:
    def codes(*more: str) -> list[str]:
        return [f["code"] for f in json.loads(dslint("--output-format", "json", *more).out)["findings"]]

    assert codes() == ["DSL102", "DSL160"]
    assert codes("--min-severity", "warning") == ["DSL102"]
    assert "DSL160" in dslint("--output-format", "github").out
    assert [row.split()[1] for row in dslint("--statistics").out.splitlines()] == ["DSL102", "DSL160"]


def test_a_run_before_a_job_shows_the_same(project: Path) -> None:
    (project / "train.py").write_text("import deepspeed\n\ndeepspeed.initialize(config='ds.json')\n")
    (project / "dslint.toml").write_text('[severity]\nDSL468 = "info"\n')
    command = ("--", sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py")
    done = dslint("run", "--check-only", "-q", *command)
    more = dslint("run", "--check-only", "-q", "--min-severity", "info", *command)
    assert "DSL102" in done.err
    assert "DSL468" not in done.err
    assert "DSL468 info: " in more.err


def test_a_concise_line_says_what_was_probably_meant(project: Path) -> None:
    (project / "ds.json").write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": true}}\n'
    )
    (line,) = dslint("--select", "DSL102").out.splitlines()
    assert line.startswith("ds.json:1:59: DSL102 error: ")
    assert line.endswith("; did you mean `overlap_comm`? (unknown-section-key)")


# commands and flags


@pytest.mark.parametrize(
    "command",
    [name for name in COMMANDS if name in ("check", "plan", "rules", "probe", "triage", "doctor", "facts", "run")],
)
def test_the_format_has_both_names_in_every_command(command: str) -> None:
    flags = parser_of(command)._option_string_actions
    assert flags["--format"] is flags["--output-format"]
    assert "text" in flags["--format"].choices or "full" in flags["--format"].choices


def test_every_command_has_a_parser_and_is_in_the_help() -> None:
    assert set(PARSERS) == set(COMMANDS)
    shown = dslint("--help").out
    for command in COMMANDS:
        assert parser_of(command).prog.startswith("dslint")
        assert command == "check" or f"\n  dslint {command} " in shown, command
        assert dslint("help", command).out == parser_of(command).format_help()
    assert dslint("help").out == shown


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("explain", "dslint rule"),
        ("lint", "dslint check"),
        ("rulse", "dslint rule"),
        ("plna", "dslint plan"),
        ("trige", "dslint triage"),
        ("doctr", "dslint doctor"),
        ("version", "dslint --version"),
        ("setup", "dslint init"),
        ("completions", "dslint completion"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_the_one_that_is_meant(word: str, meant: str) -> None:
    done = dslint(word, "DSL201")
    assert done == (2, b"", f"dslint: there is no command or file `{word}`; did you mean `{meant}`?\n")


def test_a_strange_word_lists_the_commands_and_a_path_is_a_path(project: Path) -> None:
    assert dslint("frobnicate").err.startswith(
        "dslint: there is no command or file `frobnicate`; commands are check, run"
    )
    (project / "explain").mkdir()
    assert dslint("explain").err == "dslint: no files to check\n"
    for word in ("missing.py", "a/b", "-", "--help", ""):
        assert no_command(word) == ""
    assert dslint("missing.py").err == "dslint: missing.py: No such file or directory\n"


def test_rules_of_a_prefix() -> None:
    expected = [rule.code for rule in all_rules() if rule.code.startswith(("DSL20", "DSL103"))]
    assert [line.split()[0] for line in dslint("rules", "DSL20", "DSL103").out.splitlines()] == sorted(
        expected, key=lambda c: c[:5] != "DSL20"
    )
    listed = json.loads(dslint("rules", "DSL20,DSL103", "--format", "json").out)["rules"]
    assert {row["code"] for row in listed} == set(expected)
    assert dslint("rules", "DSL2O1").err == "dslint: unknown rule `DSL2O1`, did you mean `DSL201`?\n"


def test_a_rule_is_explained_in_short_and_at_length() -> None:
    short, whole = dslint("rule", "DSL201").out, dslint("rule", "DSL201", "--all").out
    assert short.count("\n### ") == 1
    assert len(whole) > 3 * len(short)
    assert "## Experiments" in dslint("rule", "DSL201", "--evidence").out


# completion


def test_bash_completes_commands_flags_values_rules_and_files(tmp_path: Path) -> None:
    script = tmp_path / "complete.sh"
    script.write_text(dslint("completion", "bash").out)

    def completed(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dslint; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert {"rule", "rules", "run"} <= completed("dslint", "ru")
    assert completed("dslint", "--min-sev") == {"--min-severity"}
    assert completed("dslint", "--min-severity", "") == {"error", "warning", "info"}
    assert completed("dslint", "plan", "--format", "s") == {"svg"}
    assert completed("dslint", "rule", "DSL20") == {r.code for r in all_rules() if r.code.startswith("DSL20")}
    assert "ds.json" in completed("dslint", "check", "d")
    assert "--time-limit" in completed("dslint", "run", "--time")
    # Codes of rules, in a list and behind `=`.
    assert "DSL201" in completed("dslint", "--select", "DSL20")
    assert "DSL103,DSL201" in completed("dslint", "check", "--ignore", "DSL103,DSL20")
    assert "DSL201" in completed("dslint", "probe", "--rule", "=", "DSL20")
    assert completed("dslint", "--output-format", "=", "js") == {"json", "json-lines"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_names_every_command_and_flag(shell: str, tmp_path: Path) -> None:
    text = dslint("completion", shell).out
    for command in COMMANDS:
        assert command in text
        for flag in parser_of(command)._option_string_actions:
            assert (
                flag if shell != "fish" else f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            ) in text
    program = shutil.which(shell)
    if program is None:
        return  # bash is everywhere; what the others make of it is seen where they are
    (tmp_path / "script").write_text(text)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


# init


def test_init_shows_then_writes_what_works(project: Path) -> None:
    done = dslint("init", "--yes")
    written = {"dslint.toml", ".pre-commit-config.yaml", ".github/workflows/dslint.yml"}
    assert done.code == 0
    assert done.err == "".join(
        f"dslint: wrote {name}\n" for name in ("dslint.toml", ".pre-commit-config.yaml", ".github/workflows/dslint.yml")
    )
    for name in written:
        assert (project / name).read_text() in done.out
    assert load_settings(project, {}).source == "dslint.toml"
    workflow = (project / ".github/workflows/dslint.yml").read_text()
    assert f'pip install "{requirement_here()}"' in workflow
    assert "dslint --output-format github" in workflow


def test_every_setting_that_the_template_shows_exists(project: Path) -> None:
    text = pieces_for(project)["settings"].text
    shown = re.sub(r"^# (?=[a-z\[\"])", "", text.partition("\n\n")[2], flags=re.M)
    shown = "\n".join(
        line for line in shown.splitlines() if re.match(r'[a-z"\[]', line) and ("=" in line or line.startswith("["))
    )
    (project / "dslint.toml").write_text(shown)
    (project / "dslint-baseline.json").write_text('{"version": 1, "findings": []}')
    settings = load_settings(project, {})
    assert settings.launch.nproc_per_node == 8
    assert settings.deepspeed_version == "==0.16.9"


def test_init_never_changes_a_file_that_is_there(project: Path) -> None:
    (project / ".pre-commit-config.yaml").write_text("repos: []\n")
    (project / "pyproject.toml").write_text("[tool.dslint]\nfail-on = 'error'\n")
    done = dslint("init", "--yes")
    assert (project / ".pre-commit-config.yaml").read_text() == "repos: []\n"
    assert not (project / "dslint.toml").exists()
    assert ".pre-commit-config.yaml is there and stays as it is; add to it:\n  - repo: local" in done.out
    assert "pyproject.toml is there and stays as it is" in done.out
    again = dslint("init", "--yes")
    assert (again.code, again.err) == (0, "dslint: nothing to write\n")


def test_init_asks_and_where_nobody_can_answer_writes_nothing(project: Path) -> None:
    before = sorted(path.name for path in project.iterdir())
    done = dslint("init")
    assert done.code == 1
    assert "write dslint init --yes" in done.err
    assert sorted(path.name for path in project.iterdir()) == before
    assert dslint("init", "nowhere").err == "dslint: nowhere: no such folder\n"
    assert dslint("init", "--yes", "--only", "settings").code == 0
    assert not (project / ".github").exists()


def test_the_hook_that_init_writes_is_one_of_ours(project: Path) -> None:
    import yaml

    hook = yaml.safe_load(pieces_for(project)["pre-commit"].text)["repos"][0]["hooks"][0]
    ours = {h["id"]: h for h in yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())}
    assert {key: hook[key] for key in ("id", "entry", "language", "types", "require_serial")} == {
        key: ours["dslint"][key] for key in ("id", "entry", "language", "types", "require_serial")
    }


# progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_after_two_seconds_and_leaves_no_trace() -> None:
    now = [0.0]
    terminal = Terminal()
    bar = Bar(terminal, lambda: now[0])
    bar("scripts", 1, 400)
    assert terminal.getvalue() == ""
    now[0] = PATIENCE + 0.1
    bar("scripts", 120, 400)
    assert "scripts" in terminal.getvalue()
    assert "120/400" in terminal.getvalue()
    now[0] += 1
    bar("scripts", 240, 400)
    assert re.search(r"240/400.*0:00:\d\d", terminal.getvalue())
    bar("launch files", 3, 0)
    assert "3/?" in terminal.getvalue()
    bar.close()
    # The line is wiped.
    assert terminal.getvalue().rstrip("\r").endswith("\x1b[2K")


def test_progress_is_for_terminals_only() -> None:
    for stream, quiet in ((io.StringIO(), False), (Terminal(), True)):
        with shown_progress(quiet, stream):
            tell("scripts", 1, 2)
        assert stream.getvalue() == ""


def test_a_piped_run_shows_no_progress_however_long_it_takes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslint.progressbar.PATIENCE", 0.0)
    (project / "train.py").write_text(SCRIPT)
    done = dslint("--no-cache")
    assert "scripts" not in done.err
    assert os.linesep not in done.err.strip()


def test_watch_looks_again_when_a_file_changes_or_comes(project: Path) -> None:
    command = [sys.executable, "-m", "dslint", "--watch", "--output-format", "concise"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None

        def told_until_waiting() -> str:
            lines = []
            while "watching for changes" not in (line := running.stdout.readline()):  # type: ignore[union-attr]
                assert line, lines
                lines.append(line)
            return "".join(lines)

        try:
            assert "DSL102" in told_until_waiting()
            (project / "ds.json").write_text('{"train_batch_size": 8}\n')
            after = told_until_waiting()
            assert "a file changed" in after
            assert "DSL102" not in after
            (project / "train.py").write_text(SCRIPT)
            assert "DSL201" in told_until_waiting()
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0


@pytest.mark.parametrize("flags", [["--fix"], ["--diff"], ["--add-noqa"], ["-"], ["-o", "x"]])
def test_watch_changes_nothing(flags: list[str]) -> None:
    done = dslint("--watch", *flags)
    assert done.code == 2
    assert done.err.startswith("dslint: --watch looks at files" if flags == ["-"] else "dslint: --watch only looks")


def test_a_run_that_fixed_something_can_fail(project: Path) -> None:
    for flag in ("--fix", "--fix-only"):
        (project / "train.py").write_text(SCRIPT)
        assert dslint(flag, "train.py").code == 0
        (project / "train.py").write_text(SCRIPT)
        assert dslint(flag, "--exit-non-zero-on-fix", "train.py").code == 1
        assert dslint(flag, "--exit-non-zero-on-fix", "train.py").code == 0
