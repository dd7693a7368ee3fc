"""The command line: flags and their help. Nothing heavy is imported here: ``--help`` must answer at once."""

from __future__ import annotations

import argparse

from dslint import __version__
from dslint.core.commandline import Parser, format_flag, positive
from dslint.translate import LANGUAGES

COMMANDS = (
    "check", "run", "plan", "rule", "rules", "probe", "triage", "doctor", "schema", "facts", "versions", "server",
    "init", "completion", "help",
)  # fmt: skip
PLAN_FORMATS = ("text", "json", "mermaid", "svg")
CONFIDENCES = ("certain", "likely")
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
CONSUMERS = ("deepspeed", "hf", "accelerate", "lightning")

_EPILOG = """\
commands:
  dslint [PATHS]            the same as dslint check [PATHS]
  dslint run -- COMMAND     check a command as it is about to start, then start it (dslint run --help)
  dslint plan [PATHS]       what the launch commands will run: processes, script, configs, batch arithmetic
  dslint rule CODE|NAME     explain a rule, with examples
  dslint rules [DSL2]       list all rules, or those of a prefix
  dslint probe [PATHS]      show findings on real ranks (dslint probe --help)
  dslint triage LOG...      read the log of a hung or failed run: symptoms, causes, what to check
  dslint schema WHAT        print a JSON Schema for editors: deepspeed [--version 0.16], accelerate, dslint, plan
  dslint versions [PATHS]   the releases of each library that a project can run with, and what to pin
  dslint facts FILE:LINE    what dslint believes at a line of a script, and why something is unknown to it
  dslint server             the language server for editors (docs/editor.md)
  dslint doctor             look at this machine: stale locks, broken builds, versions, network, limits
  dslint init               write settings, a pre-commit entry and a GitHub workflow, after showing them
  dslint completion SHELL   a completion script for bash, zsh or fish
  dslint help COMMAND       the flags of a command
To lint a file or folder that is called like a command, write ./rule.

exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage, settings or an internal error.
"""
_PROJECT_RULES = "run the code of the rules that the settings of the project name (docs/extending.md)"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _rules(text: str) -> list[str]:
    rules = _listed(text)
    if not rules:
        # An unset variable of a script: to select nothing would look like a clean project.
        raise argparse.ArgumentTypeError("names no rule")
    return rules


def _ignores(text: str) -> list[str]:
    items = _listed(text)
    if not items:
        raise argparse.ArgumentTypeError("must be PATTERN:RULE")
    return items


def check_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint [check] [PATHS]``. Unset flags are absent from the namespace: settings decide then."""
    parser = Parser(
        prog="dslint",
        description="Find mistakes in distributed-training code, DeepSpeed configs and launch commands.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dslint {__version__}")
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="PATH", help="files and folders (default: .); - reads standard input"
    )
    _selection(parser.add_argument_group("which rules"))
    _facts(parser.add_argument_group("facts that no file states"))
    _fixing(parser.add_argument_group("fixing"))
    _files(parser.add_argument_group("which files"))
    _output(parser.add_argument_group("output"))
    _other(parser.add_argument_group("settings and running"))
    return parser


def _selection(group: argparse._ArgumentGroup, exits: bool = True) -> None:
    optional = " (rules that are off by default: by code, name or ALL, by no prefix)"
    for flag, text, more in (
        ("select", "only these rules", optional),
        ("ignore", "not these rules", ""),
        ("extend-select", "these rules too", optional),
        ("extend-ignore", "nor these rules", ""),
    ):
        group.add_argument(
            f"--{flag}",
            type=_rules,
            action="extend",
            metavar="RULES",
            help=f"{text}: codes, prefixes (DSL1), names or ALL, separated by commas{more}",
        )
    group.add_argument(
        "--per-file-ignores",
        type=_ignores,
        action="extend",
        metavar="PATTERN:RULES",
        help="not these rules in these files: 'tests/**:DSL223,DSL2,*.sh:ALL'",
    )
    group.add_argument(
        "--ignore-noqa", action="store_true", help="report in spite of suppression comments and per-file ignores"
    )
    group.add_argument(
        "--fail-on",
        choices=("error", "warning", "info"),
        help="lowest severity that makes exit code 1 (default: warning)",
    )
    group.add_argument(
        "--min-severity",
        choices=("error", "warning", "info"),
        help="lowest severity that is reported (default: warning in text for people, everything in formats for "
        "programs); the exit code stays",
    )
    group.add_argument(
        "--min-confidence",
        choices=CONFIDENCES,
        help="certain: no findings that rest on an assumption, which they name (default: likely, all findings)",
    )
    group.add_argument(
        "--baseline", metavar="FILE", help="not the findings that this file knows (see --write-baseline)"
    )
    if exits:
        group.add_argument(
            "--write-baseline", metavar="FILE", help="write a file of all findings of today, and report none of them"
        )
        group.add_argument("-e", "--exit-zero", action="store_true", help="exit with 0 even when there are findings")


def _facts(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--world-size", type=positive, metavar="N", help="number of processes (ranks) in the job")
    group.add_argument("--nnodes", type=positive, metavar="N", help="number of machines in the job")
    group.add_argument("--nproc-per-node", type=positive, metavar="N", help="processes (ranks) on each machine")
    _stated_versions(group)
    group.add_argument(
        "--consumer",
        choices=CONSUMERS,
        help="who reads the DeepSpeed configs: deepspeed.initialize, the Trainer of transformers (hf), accelerate "
        "with a loop of its own, or Lightning (default: what the project shows)",
    )


def _stated_versions(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--deepspeed-version", metavar="V", help="DeepSpeed release or range: 0.16.9, 0.16, '>=0.14,<0.18'"
    )
    group.add_argument("--transformers-version", metavar="V", help="transformers release or range")
    group.add_argument("--accelerate-version", metavar="V", help="accelerate release or range")


def _fixing(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fix", action="store_true", help="apply safe fixes, then report what is left")
    group.add_argument("--fix-only", action="store_true", help="apply safe fixes, do not report what is left")
    group.add_argument(
        "--unsafe-fixes", action="store_true", help="with --fix or --diff: also fixes that need a person's eye"
    )
    group.add_argument(
        "--add-noqa",
        action="store_true",
        help="put suppression comments (in JSON: entries of the settings) at what is found at or above --min-severity",
    )
    group.add_argument("--reason", metavar="TEXT", help="with --add-noqa: what the comments say")
    group.add_argument(
        "--exit-non-zero-on-fix", action="store_true", help="exit with 1 when a fix changed a file, whatever is left"
    )
    group.add_argument("--diff", action="store_true", help="show what --fix would change; write nothing")


def _files(group: argparse._ArgumentGroup) -> None:
    _excluding(group)
    group.add_argument("--stdin-filename", metavar="PATH", help="the name of the text on standard input")


def _excluding(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--exclude",
        type=_listed,
        action="extend",
        metavar="PATTERNS",
        help="gitignore-style patterns instead of the built-in ones",
    )
    group.add_argument(
        "--extend-exclude", type=_listed, action="extend", metavar="PATTERNS", help="patterns beside the built-in ones"
    )
    group.add_argument(
        "--force-exclude",
        action="store_true",
        help="files named on the command line are judged as in their folder: excludes hold, tests are told as notes",
    )
    group.add_argument(
        "--no-respect-gitignore", dest="respect_gitignore", action="store_false", help="look into ignored files too"
    )


def _output(group: argparse._ArgumentGroup) -> None:
    format_flag(group, FORMATS, help="default: full on a terminal, concise elsewhere")
    group.add_argument("-o", "--output-file", metavar="FILE", help="write the report to a file")
    group.add_argument("--statistics", action="store_true", help="counts by rule instead of findings")
    _language(group)
    group.add_argument("--color", choices=("auto", "always", "never"), help="default: auto")
    group.add_argument("-q", "--quiet", action="store_true", help="no summary")
    group.add_argument("-v", "--verbose", action="store_true", help="say which settings are used")


def _language(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    group.add_argument(
        "--lang",
        choices=LANGUAGES,
        default=argparse.SUPPRESS,
        help="language of messages and pages: English or Chinese (default: by LANG in text for people, else en)",
    )


def _settings_file(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config", metavar="FILE", help="settings file instead of the nearest pyproject.toml or dslint.toml"
    )
    group.add_argument("--isolated", action="store_true", help="use no settings file")


def _other(group: argparse._ArgumentGroup) -> None:
    _settings_file(group)
    group.add_argument("--project-rules", action="store_true", help=_PROJECT_RULES)
    group.add_argument("-j", "--jobs", type=positive, metavar="N", help="worker processes (default: all cores)")
    group.add_argument("--no-cache", dest="cache", action="store_false", help="neither read nor write earlier results")
    group.add_argument("--cache-dir", metavar="DIR", help="default: the user's cache folder")
    group.add_argument(
        "--profile", action="store_true", help="print to standard error which stage and rule takes how long"
    )
    group.add_argument("--watch", action="store_true", help="check again whenever a file changes; Ctrl-C ends it")
    group.add_argument("--show-files", action="store_true", help="list the files that would be looked at")
    group.add_argument("--show-settings", action="store_true", help="print the settings in force")


_PLAN_EPILOG = """\
formats: text for people, json for programs (docs/plan.md; `dslint schema plan` prints its schema), mermaid and svg for
the graph of launch command, script and configs, for a README or a review.

exit codes: 0 shown, also where there is no launch command, 2 wrong usage or settings, or a path that does not exist.
"""


def plan_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint plan``; it takes what ``dslint check`` takes to find files and facts."""
    parser = Parser(
        prog="dslint plan",
        description="Show what the launch commands of files and folders will run. Nothing is run for it.",
        epilog=_PLAN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="PATH", help="files and folders (default: .); a script or config shows "
        "the commands that use it"
    )  # fmt: skip
    shown = parser.add_argument_group("output")
    format_flag(shown, PLAN_FORMATS, dest="format", default="text", help="default: text")
    shown.add_argument("-o", "--output-file", metavar="FILE", help="write the plan to a file")
    shown.add_argument("--all", action="store_true", help="in text: every argument and variable")
    shown.add_argument("--color", choices=("auto", "always", "never"), help="default: auto")
    _facts(parser.add_argument_group("facts that no file states"))
    files = parser.add_argument_group("which files")
    _excluding(files)
    settings = parser.add_argument_group("settings")
    _settings_file(settings)
    return parser


_VERSIONS_EPILOG = """\
exit codes: 0 shown, 1 some library has no release that suits both files and code, 2 wrong usage or settings, or a path
that does not exist.
"""


def versions_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint versions``; it takes what ``dslint check`` takes to find files and versions."""
    parser = Parser(
        prog="dslint versions",
        description="Show which releases of each library the code of a project runs with, what its files allow, what "
        "a fresh install takes today, and what to pin. Nothing is installed or run for it.",
        epilog=_VERSIONS_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="the project (default: .)")
    shown = parser.add_argument_group("output")
    format_flag(shown, PLAN_FORMATS[:2], default="text", help="default: text")
    shown.add_argument("--requirements", action="store_true", help="only lines for a requirements file")
    shown.add_argument("-o", "--output-file", metavar="FILE", help="write it to a file")
    _stated_versions(parser.add_argument_group("facts that no file states"))
    _excluding(parser.add_argument_group("which files"))
    _settings_file(parser.add_argument_group("settings"))
    return parser


_RUN_EPILOG = """\
The report goes to standard error; then dslint replaces itself by the command: same process, arguments, environment,
folder, standard input and output. Of several ranks one reports. dslint imports nothing of your environment.

exit codes: those of the command; 1 findings at or above --fail-on, 2 wrong usage, 126 and 127 as a shell gives them.
A failure of dslint itself is one line, and the command starts. With --check-only: 0, 1 or 2 as dslint check.
"""


def run_parser() -> argparse.ArgumentParser:
    """The parser of the flags of ``dslint run``, which stand before ``--``."""
    parser = Parser(
        prog="dslint run",
        usage="dslint run [flags] -- COMMAND [ARGUMENT ...]",
        description="Check a command with the arguments, environment, folder and versions that it will have,\n"
        "then start it if nothing is found.",
        epilog=_RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--check-only", action="store_true", help="stop before the command starts")
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="SECONDS",
        help="how long the command may wait for the code of its script to be judged; 0: as long as it takes "
        "(default: 0.5, with --check-only 0)",
    )
    _selection(parser.add_argument_group("which rules"), exits=False)
    _facts(parser.add_argument_group("facts that neither the command nor the environment states"))
    output = parser.add_argument_group("output")
    format_flag(output, FORMATS[:2], help="default: full on a terminal, concise elsewhere")
    _language(output)
    output.add_argument("--color", choices=("auto", "always", "never"), help="default: auto")
    output.add_argument("-q", "--quiet", action="store_true", help="findings only: not what will run, no summary")
    settings = parser.add_argument_group("settings")
    _settings_file(settings)
    settings.add_argument("--project-rules", action="store_true", help=_PROJECT_RULES)
    return parser


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, found `{text}`")
    return found


def rule_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint rule``."""
    parser = Parser(
        prog="dslint rule",
        description="Explain rules: what, why it hurts, how to fix, and one example.",
    )
    parser.add_argument("rules", nargs="+", metavar="RULE", help="code (DSL201), prefix or name")
    parser.add_argument("--examples", action="store_true", help="all examples, and what is not reported")
    parser.add_argument("--evidence", action="store_true", help="what was observed: experiments, sources, versions")
    parser.add_argument("--all", action="store_true", help="the whole page: --examples and --evidence")
    _language(parser)
    parser.add_argument("--project-rules", action="store_true", help=_PROJECT_RULES)
    return parser


def rules_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint rules``."""
    parser = Parser(prog="dslint rules", description="List rules: all, or those that are named.")
    parser.add_argument("rules", nargs="*", metavar="RULE", help="code, prefix (DSL2) or name (default: ALL)")
    format_flag(parser, ("text", "json"), default="text", help="default: text")
    _language(parser)
    parser.add_argument("--project-rules", action="store_true", help=_PROJECT_RULES)
    return parser
