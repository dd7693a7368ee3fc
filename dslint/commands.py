"""The commands by name: where the parser of each is, and what was meant by a word that is none."""

from __future__ import annotations

import argparse
import os
from importlib import import_module

from dslint.arguments import COMMANDS

# Imported when somebody asks for one: `--help` of a command must not load the others.
PARSERS = {
    "check": "dslint.arguments:check_parser",
    "run": "dslint.arguments:run_parser",
    "plan": "dslint.arguments:plan_parser",
    "rule": "dslint.arguments:rule_parser",
    "rules": "dslint.arguments:rules_parser",
    "probe": "dslint.probe.arguments:probe_parser",
    "triage": "dslint.triage.arguments:triage_parser",
    "doctor": "dslint.doctor.arguments:doctor_parser",
    "schema": "dslint.schema_command:schema_parser",
    "facts": "dslint.factsview.command:facts_parser",
    "versions": "dslint.arguments:versions_parser",
    "server": "dslint.server.command:server_parser",
    "init": "dslint.init_command:init_parser",
    "completion": "dslint.completion:completion_parser",
    "help": "dslint.commands:help_parser",
}
# What is longer was meant as a path.
_LONGEST = 40
# What people type who know another tool.
_MEANT = {
    "explain": "rule",
    "describe": "rule",
    "why": "rule",
    "lint": "check",
    "analyze": "check",
    "scan": "check",
    "list": "rules",
    "list-rules": "rules",
    "show": "plan",
    "preflight": "run",
    "exec": "run",
    "launch": "run",
    "diagnose": "doctor",
    "logs": "triage",
    "setup": "init",
    "install": "init",
    "new": "init",
    "completions": "completion",
    "generate-shell-completion": "completion",
    "version": "--version",
    "fix": "--fix",
    "diff": "--diff",
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command."""
    module, _, name = PARSERS[command].partition(":")
    parser = getattr(import_module(module), name)()
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def help_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint help``."""
    from dslint.core.commandline import Parser

    parser = Parser(prog="dslint help", description="Show the help of dslint or of one of its commands.")
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help=", ".join(COMMANDS))
    return parser


def show_help(arguments: list[str]) -> int:
    """Print the help that the arguments ask for."""
    command = help_parser().parse_args(arguments).command
    parser_of(command or "check").print_help()
    return 0


def no_command(word: str) -> str:
    """What to say of a first word that is neither a command nor a path; empty where it may be meant as a path."""
    is_word = len(word) <= _LONGEST and word.replace("-", "").isalpha() and not word.startswith("-")
    if not is_word or os.path.lexists(word):
        return ""
    meant = _MEANT.get(word.lower())
    if meant is None:
        from difflib import get_close_matches

        near = get_close_matches(word.lower(), COMMANDS, n=1, cutoff=0.7)
        meant = near[0] if near else None
    if meant is not None:
        return f"there is no command or file `{word}`; did you mean `dslint {meant}`?"
    return f"there is no command or file `{word}`; commands are {', '.join(COMMANDS)}"
