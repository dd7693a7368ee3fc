"""``dslint facts FILE:LINE [NAME]``: values, ranks, events, and why something is unknown."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from dslint.core.commandline import Parser, format_flag, say
from dslint.engine.projectfiles import ProjectFiles
from dslint.engine.surroundings import vocabulary_of
from dslint.python.facts import KINDS, Belief, Facts, facts_at
from dslint.python.stack import deep_calls
from dslint.settings import SettingsError, load_settings

DONE, NOTHING, USAGE = 0, 1, 2
_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+)(?::[0-9]+)?")


def main(arguments: list[str]) -> int:
    """Print what is believed at the place that the arguments name; returns the exit code."""
    options = facts_parser().parse_args(arguments)
    # With a column, as findings print it, or without.
    place = _PLACE.fullmatch(options.place)
    path, number = (place["path"], int(place["line"])) if place else ("", 0)
    if not number:
        say(f"`{options.place}` names no place: write FILE:LINE, for example train.py:42")
        return USAGE
    files = ProjectFiles()
    script = options.script or path
    for needed in (path, script):
        if files.read(files.absolute(needed)) is None:
            say(f"{needed}: {'cannot be read' if Path(needed).exists() else 'No such file'}")
            return USAGE
        if needed.endswith(".ipynb"):
            say(f"{needed}: `dslint facts` reads Python files, and no notebooks")
            return USAGE
    try:
        own = vocabulary_of(load_settings(Path(path), {}))
    except SettingsError as error:
        say(str(error))
        return USAGE
    with deep_calls():
        facts = facts_at(files, script, path, number, options.name or "", own)
    if facts is None:
        say(f"{script}: Python cannot read this file")
        return USAGE
    sys.stdout.write(as_json(facts) if options.format == "json" else as_text(facts, options.name or "", script))
    return DONE if facts.found else NOTHING


def facts_parser() -> Parser:
    """Return the parser of ``dslint facts``."""
    parser = Parser(
        prog="dslint facts",
        description="Say what dslint believes at a line of a Python file, and why something is unknown to it.",
        epilog="Exit code 0: something is known of the line; 1: nothing reaches it; 2: wrong usage.",
    )
    parser.add_argument("place", metavar="FILE:LINE", help="the line to ask about")
    parser.add_argument(
        "name", nargs="?", help="only the expression with exactly this code, such as `loss` or `self.model`"
    )
    parser.add_argument(
        "--script", metavar="FILE", help="the script that is started, when FILE is a module that it imports"
    )
    format_flag(parser, ("text", "json"), dest="format", default="text", help="default: text")
    return parser


def as_json(facts: Facts) -> str:
    """Return the facts as JSON."""
    data = {
        "version": 1,
        "path": facts.path,
        "line": facts.line,
        "reached": facts.found,
        "beliefs": [
            {**asdict(belief), "unknown": [{"kind": kind, "reason": reason} for kind, reason in belief.unknown]}
            for belief in facts.beliefs
        ],
        "events": facts.events,
        "tests": facts.tests,
        "given_up": facts.lost,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_text(facts: Facts, name: str, script: str) -> str:
    """Return the facts for people."""
    lines: list[str] = []
    if not facts.found:
        what = f"`{name}` in line {facts.line}" if name else f"line {facts.line}"
        lines.append(
            f"{facts.path}: nothing reaches {what} when {script} is interpreted: it is dead code, or no expression"
        )
        if facts.lost:
            lines.append("or the interpreter gave up before it came there")
        elif facts.path == script:
            lines.append("if another script imports the file, name that one with --script")
    chain: tuple[str, ...] | None = None
    for belief in facts.beliefs:
        if belief.called_from != chain:
            chain = belief.called_from
            lines.append("called from " + " -> ".join(chain) if chain else "at the top of the file")
        lines += _belief_lines(belief)
    lines += [f"  {text}" for text in (*facts.tests, *facts.events)]
    if facts.lost:
        lines.append("given up on the way:")
        lines += [f"  {reason}: {count} times" for reason, count in facts.lost.items()]
    return "\n".join(lines) + "\n"


def _belief_lines(belief: Belief) -> list[str]:
    lines = [f"  {belief.code}", f"    may be    {' | '.join(belief.values)}", f"    ranks     {belief.ranks}"]
    if belief.origin:
        lines[-1] += f" (from {belief.origin})"
    if belief.shape != "same on all ranks":
        lines.append(f"    shape     {belief.shape}")
    if belief.comes_here != "all ranks":
        lines.append(f"    reached   {belief.comes_here}")
    for kind, reason in belief.unknown:
        lines.append(f"    unknown   {reason} ({kind}: {KINDS.get(kind, '')})")
    return lines
