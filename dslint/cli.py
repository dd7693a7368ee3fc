"""Arguments -> settings -> engine -> report; the only module that exits.

Exit codes: 0 nothing at or above the threshold, 1 findings, 2 usage, settings or internal error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from dslint.arguments import COMMANDS, check_parser, plan_parser, rule_parser, rules_parser, run_parser, versions_parser
from dslint.core.commandline import say
from dslint.core.garbage import never_again, seldom_collected

if TYPE_CHECKING:
    from argparse import Namespace

    from dslint.probe.experiment import Subject

OK, FINDINGS, TROUBLE, INTERRUPTED = 0, 1, 2, 130
# Commands that need their arguments only; each is imported when it is called.
_MAINS = {
    "doctor": "dslint.doctor.command:main",
    "facts": "dslint.factsview.command:main",
    "schema": "dslint.schema_command:main",
    "triage": "dslint.triage.command:main",
    "server": "dslint.server.command:main",
    "init": "dslint.init_command:main",
    "completion": "dslint.completion:main",
    "help": "dslint.commands:show_help",
}


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
    if arguments and arguments[0] in COMMANDS:
        return _command(arguments[0], arguments[1:])
    # Loaded for a word that may be a misspelt command only: a run must begin at once.
    if arguments and arguments[0][:1].isalpha() and not os.path.lexists(arguments[0]):
        from dslint.commands import no_command

        if problem := no_command(arguments[0]):
            say(problem)
            return TROUBLE
    return _command("check", arguments)


def _command(name: str, rest: list[str]) -> int:
    if name in _MAINS:
        module, _, function = _MAINS[name].partition(":")
        return int(getattr(import_module(module), function)(rest))
    if name == "rule":
        from dslint.rules_command import explain_rules

        return explain_rules(rule_parser().parse_args(rest))
    if name == "rules":
        from dslint.rules_command import list_rules

        return list_rules(rules_parser().parse_args(rest))
    if name == "plan":
        from dslint.check_command import start_of
        from dslint.planview.command import main as plan

        return plan(plan_parser().parse_args(rest), start_of)
    if name == "versions":
        from dslint.check_command import start_of
        from dslint.versionsview.command import main as versions

        return versions(versions_parser().parse_args(rest), start_of)
    if name == "run":
        from dslint.runner.command import main as preflight

        return preflight(rest, run_parser())
    if name == "probe":
        from dslint.probe.command import main as probe

        return probe(rest, _subjects)
    from dslint.check_command import check

    with seldom_collected():  # modules are made of objects, too
        return check(check_parser().parse_args(rest), rest)


def _subjects(paths: Sequence[str], args: Namespace) -> list[Subject]:
    """Lint for the probe: findings with the text of their file and that text after their own fix.

    Raises:
        ProbeError: the settings are wrong, or a path does not exist.
    """
    from dslint.check_command import start_of
    from dslint.core.fix import apply_edits
    from dslint.engine.run import check_paths
    from dslint.probe.arms import ProbeError
    from dslint.probe.experiment import Subject
    from dslint.report.sources import FileSources
    from dslint.settings import SettingsError, load_settings

    stated = {"world-size": args.world_size, "deepspeed-version": args.deepspeed_version}
    try:
        settings = load_settings(start_of(paths, {}), {name: value for name, value in stated.items() if value})
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
