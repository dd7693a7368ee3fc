"""Arguments -> settings -> engine -> report; the only module that exits.

Exit codes: 0 nothing at or above the threshold, 1 findings, 2 usage, settings or internal error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dslint.arguments import COMMANDS, check_parser, plan_parser, rule_parser, rules_parser, run_parser, versions_parser
from dslint.core.commandline import say
from dslint.core.garbage import never_again, seldom_collected

if TYPE_CHECKING:
    from dslint.engine.run import Result
    from dslint.engine.standard_input import StandardInput
    from dslint.probe.experiment import Subject
    from dslint.settings import Settings

OK, FINDINGS, TROUBLE, INTERRUPTED = 0, 1, 2, 130
# Commands that need nothing but their arguments.
_MODULES = {"doctor": "dslint.doctor.command", "facts": "dslint.factsview.command", "schema": "dslint.schema_command",
            "triage": "dslint.triage.command"}  # fmt: skip
# Flags that say what to do with this run; the others are settings.
_ACTIONS = frozenset(
    {"paths", "diff", "fix_only", "stdin_filename", "output_file", "statistics", "color", "quiet", "verbose", "config",
     "isolated", "show_files", "show_settings", "ignore_noqa", "profile", "project_rules"}
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The ``dslint`` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        code = run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) went away: nothing is wrong. Python would complain once more at exit.
        _let_go_of_output()
        code = OK
    except OSError as error:
        # A full disk, or --output-file in a folder that does not exist.
        say(f"{error.filename or 'the report cannot be written'}: {error.strerror or error}")
        if os.environ.get("DSLINT_DEBUG"):
            raise
        _let_go_of_output()
        code = TROUBLE
    except Exception as error:
        say(f"internal error: {type(error).__name__}: {error} (DSLINT_DEBUG=1 prints the traceback; please report it)")
        if os.environ.get("DSLINT_DEBUG"):
            raise
        code = TROUBLE
    if arguments is None:  # else the caller goes on
        never_again()
    sys.exit(code)


def _let_go_of_output() -> None:
    """What standard output does not take is lost: Python would try again at exit, and give another exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    command = arguments[0] if arguments and arguments[0] in COMMANDS else "check"
    rest = arguments[1:] if arguments and arguments[0] in COMMANDS else arguments
    if command == "rule":
        given = rule_parser().parse_args(rest)
        return _explain(given.rules, given.project_rules)
    if command in ("plan", "versions"):
        return _view(command, rest)
    if command == "run":
        from dslint.runner.command import main as preflight

        return preflight(rest, run_parser())
    if command in _MODULES:
        from importlib import import_module

        return int(import_module(_MODULES[command]).main(rest))
    if command == "rules":
        listed = rules_parser().parse_args(rest)
        return _list_rules(listed.output_format, listed.project_rules)
    if command == "probe":
        from dslint.probe.command import main as probe

        return probe(rest, _subjects)
    with seldom_collected():  # modules are made of objects, too
        return check(check_parser().parse_args(rest))


def _view(command: str, rest: list[str]) -> int:
    """What a project is, seen from one side; nothing of it is judged."""
    from importlib import import_module

    given = (plan_parser if command == "plan" else versions_parser)().parse_args(rest)
    return int(import_module(f"dslint.{command}view.command").main(given, _start))


def _explain(selectors: Sequence[str], project_rules: bool) -> int:
    from dslint.rules.explain import explain
    from dslint.rules.registry import UnknownSelector, find

    if project_rules and not _load_project_rules():
        return TROUBLE
    try:
        codes = [info.code for selector in selectors for info in find(selector)]
    except UnknownSelector as error:
        say(str(error))
        return TROUBLE
    for code in dict.fromkeys(codes):
        explain(code, sys.stdout)
    return OK


def _load_project_rules() -> bool:
    """Those that the settings here name; a mistake in them is said."""
    from dslint.settings import SettingsError, load_settings

    try:
        load_settings(Path(), {}, run_rules=True)
    except SettingsError as error:
        say(str(error))
        return False
    return True


def _list_rules(output_format: str, project_rules: bool) -> int:
    from dslint.rules.registry import all_rules

    if project_rules and not _load_project_rules():
        return TROUBLE
    rules = all_rules()
    if output_format == "json":
        import json

        rows = [{"code": r.code, "name": r.name, "kind": r.kind, "severity": r.severity, "summary": r.summary,
                 "fix": r.fix, "since": r.since} for r in rules]  # fmt: skip
        sys.stdout.write(json.dumps({"version": 1, "rules": rows}, indent=2) + "\n")
        return OK
    width = max(len(r.name) for r in rules)
    for r in rules:
        sys.stdout.write(f"{r.code}  {r.name:<{width}}  {r.severity:<7}  {r.summary}\n")
    return OK


def check(args: Namespace) -> int:
    """``dslint check``: settings, then findings or fixes, then the report."""
    from dslint.settings import SettingsError, load_settings

    flags = vars(args)
    paths = list(args.paths) or (["-"] if "stdin_filename" in args else ["."])
    overrides = {name.replace("_", "-"): value for name, value in flags.items() if name not in _ACTIONS}
    try:
        _check_usage(paths, flags)
        config = Path(args.config) if "config" in args else None
        run_rules = bool(flags.get("project_rules"))
        settings = load_settings(
            _start(paths, flags), overrides, config, flags.get("isolated", False), run_rules=run_rules
        )
        if flags.get("statistics"):
            _check_statistics(_format(settings, flags))
    except (SettingsError, _UsageError) as error:
        say(str(error))
        return TROUBLE
    if settings.rules and not settings.rule_files and not flags.get("quiet"):
        say(f"rules of the project are not loaded ({', '.join(settings.rules)}): --project-rules runs their code")
    if flags.get("verbose"):
        say(f"settings: {settings.source or 'built-in'}")
    if "show_settings" in args:
        sys.stdout.write(settings.describe())
        return OK
    given = None
    if paths == ["-"]:
        from dslint.engine.standard_input import StandardInput

        given = StandardInput.read(sys.stdin.buffer if sys.stdin else None, flags.get("stdin_filename"))
        paths = [given.name]
    texts = {given.name: given.text} if given else {}
    if "show_files" in args:
        from dslint.engine.run import list_files

        sys.stdout.writelines(f"{path}\n" for path in list_files(paths, settings, texts))
        return OK
    if flags.get("profile"):
        return _profile(paths, texts, settings, flags)
    if flags.get("diff") or flags.get("fix_only") or settings.fix:
        return _fix(paths, texts, given, settings, flags)
    from dslint.engine.run import check_paths

    result = check_paths(paths, settings, texts, ignore_noqa=bool(flags.get("ignore_noqa")))
    return _report(result, settings, flags, texts)


def _profile(paths: list[str], texts: dict[str, str], settings: Settings, flags: dict[str, Any]) -> int:
    from time import perf_counter

    from dslint.core.profile import Profile
    from dslint.engine.run import check_paths

    profile, start = Profile(), perf_counter()
    result = check_paths(paths, settings, texts, bool(flags.get("ignore_noqa")), profile)
    seconds = perf_counter() - start
    code = _report(result, settings, flags, texts)
    sys.stderr.write(f"\n{profile.table()}\n{seconds:.3f} seconds in all; the workers are busy at the same time\n")
    return code


def _subjects(paths: Sequence[str], args: Namespace) -> list[Subject]:
    """Lint for the probe: findings with the text of their file and that text after their own fix.

    Raises:
        ProbeError: the settings are wrong, or a path does not exist.
    """
    from dslint.core.fix import apply_edits
    from dslint.engine.run import check_paths
    from dslint.probe.arms import ProbeError
    from dslint.probe.experiment import Subject
    from dslint.report.sources import FileSources
    from dslint.settings import SettingsError, load_settings

    stated = {"world-size": args.world_size, "deepspeed-version": args.deepspeed_version}
    try:
        settings = load_settings(_start(paths, {}), {name: value for name, value in stated.items() if value})
    except SettingsError as error:
        raise ProbeError(str(error)) from error
    result = check_paths(list(paths), settings)
    if result.problems:
        raise ProbeError(result.problems[0])
    sources = FileSources()
    subjects = []
    for finding in result.findings:
        text = sources.text(finding.location.path)
        edits = [e for e in (finding.fix.edits if finding.fix else ()) if e.path == finding.location.path]
        fixed = apply_edits(text, edits) if edits else None
        inside = finding.fact("config")
        if isinstance(inside, str):  # a config inside a program: the judges read JSON
            text, fixed = inside, None
        subjects.append(Subject(finding, text, fixed, args.world_size))
    return subjects


class _UsageError(Exception):
    """Flags that do not go together, as one line."""


def _check_usage(paths: Sequence[str], flags: dict[str, Any]) -> None:
    if "-" in paths and len(paths) > 1:
        raise _UsageError("`-` reads standard input and stands alone: it cannot be mixed with other paths")
    if "stdin_filename" in flags and "-" not in paths:
        raise _UsageError("--stdin-filename names the text on standard input: write `-` instead of paths")
    fixing = next((name for name in ("fix", "fix_only", "diff") if flags.get(name)), None)
    if "profile" in flags and fixing:
        raise _UsageError(f"--profile measures a check: it cannot be mixed with --{fixing.replace('_', '-')}")


def _check_statistics(output_format: str) -> None:
    from dslint.report import STATISTICS_FORMATS

    if output_format not in STATISTICS_FORMATS:
        known = ", ".join(STATISTICS_FORMATS)
        raise _UsageError(f"--statistics has no place in the format {output_format}, only in {known}")


def _start(paths: Sequence[str], flags: dict[str, Any]) -> Path:
    """Where the search for a settings file begins: the folder that holds all paths, in whatever order they come."""
    if paths[0] == "-":
        return Path(flags.get("stdin_filename", "."))
    found = [os.path.abspath(path) for path in paths if os.path.exists(path)]
    try:
        return Path(os.path.commonpath(found)) if found else Path()
    except ValueError:  # two drives
        return Path(found[0])


def _fix(
    paths: list[str], texts: dict[str, str], given: StandardInput | None, settings: Settings, flags: dict[str, Any]
) -> int:
    from dslint.engine import fixer

    ignore_noqa = bool(flags.get("ignore_noqa"))
    fixed = fixer.fix_paths(paths, settings, settings.unsafe_fixes, texts, ignore_noqa=ignore_noqa)
    for line in fixed.refused:
        say(line)
    if flags.get("diff"):
        from dslint.engine.diff import unified_diff

        head = given.raw[:3] if given else b""
        _write_output(unified_diff(fixed.changed, fixed.before, fixed.after, head), flags)
        for line in fixed.result.problems:
            say(line)
        if fixed.result.problems:
            return TROUBLE
        _say_unsafe(fixed.result, settings, flags)
        return FINDINGS if fixed.changed and not settings.exit_zero else OK
    result, texts = fixed.result, {**texts, **fixed.after}
    if given:
        # Text from standard input goes back to standard output, findings to standard error.
        sys.stdout.buffer.write(given.changed_to(texts[given.name]) if fixed.changed else given.raw)
    elif problems := fixer.write(fixed):
        # What could not be written is as it was: judge what stands on disk now.
        from dslint.engine.run import check_paths

        texts = {}
        result = check_paths(paths, settings, ignore_noqa=ignore_noqa)
        result.problems += problems
    if fixed.applied and not result.problems and not flags.get("quiet"):
        from dslint.core.words import counted

        say(f"fixed {counted(fixed.applied, 'finding')} in {counted(fixed.files, 'file')}")
    if flags.get("fix_only"):
        for line in result.problems:
            say(line)
        _say_unsafe(result, settings, flags)
        return TROUBLE if result.problems else OK
    return _report(result, settings, flags, texts, to_stderr=given is not None)


def _say_unsafe(result: Result, settings: Settings, flags: dict[str, Any]) -> None:
    """Where no report follows: an empty diff would look as if there were nothing to mend."""
    from dslint.report import unsafe_line

    line = "" if settings.unsafe_fixes or flags.get("quiet") else unsafe_line(result.findings)
    if line:
        say(line)


def _report(
    result: Result, settings: Settings, flags: dict[str, Any], texts: dict[str, str], to_stderr: bool = False
) -> int:
    from dslint import report
    from dslint.report.options import ReportOptions, terminal_width, use_color
    from dslint.report.sources import FileSources

    output_format = _format(settings, flags)
    stream = sys.stderr if to_stderr else sys.stdout
    options = ReportOptions(
        color="output_file" not in flags and use_color(flags.get("color", "auto"), stream, os.environ),
        width=terminal_width(stream, os.environ),
        files=result.files,
        suppressed=tuple(result.suppressed),
    )
    render = (report.statistics_renderer if flags.get("statistics") else report.renderer)(output_format)
    text = render(result.findings, FileSources(texts), options)
    if to_stderr:
        sys.stderr.write(text)
    else:
        _write_output(text, flags)
    for line in result.problems:
        say(line)
    if not flags.get("quiet"):
        if not result.files:
            # After a missing path that would be no news.
            if not result.problems:
                say("no files to check")
        else:
            sys.stderr.write(report.summary_line(result.findings, result.files) + "\n")
    return _exit_code(result, settings)


def _format(settings: Settings, flags: dict[str, Any]) -> str:
    if settings.output_format:
        return settings.output_format
    return "full" if sys.stdout.isatty() and "output_file" not in flags else "concise"


def _write_output(text: str, flags: dict[str, Any]) -> None:
    target = flags.get("output_file")
    if target:
        Path(target).write_text(text, encoding="utf-8")
    else:
        # A path with bytes that are no UTF-8 must not end the report.
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def _exit_code(result: Result, settings: Settings) -> int:
    from dslint.core.finding import Severity
    from dslint.rules.own import RULE_CRASHED

    if result.problems or any(f.code == RULE_CRASHED.code for f in result.findings):
        return TROUBLE
    threshold = Severity(settings.fail_on).rank
    failing = any(f.severity.rank >= threshold for f in result.findings)
    return FINDINGS if failing and not settings.exit_zero else OK
