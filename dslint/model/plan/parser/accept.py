"""What a parser makes of the words of a command.

argparse itself is asked: a parser with the same options is built, with actions that write down what would be refused
and go on, so that one mistake does not hide the next. A word that is not known is accepted by every option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dslint.core.fact import Fact, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.parser.judge import Judge, judge_of
from dslint.model.plan.parser.options import ARGUMENT_FILES, Passed, Problem, ScriptParser
from dslint.model.plan.parser.texts import Text, as_text
from dslint.model.plan.parser.values import given_value


def read_words(parser: ScriptParser, command: LaunchCommand) -> tuple[ScriptParser, Passed]:
    """The parser with the commands that the words name, and what the script gets from the words.

    The problems ``unknown``, ``choice`` and ``type`` hold for every completion of the command; the others only occur
    where all of its words are seen.
    """
    judge = judge_of(parser)
    texts = [as_text(w) for w in command.script_args]
    namespace, extras = judge.parse(texts)
    parser = _narrowed(parser, judge.chosen)
    if _only_helps(parser, command) or _is_file(parser, command):
        return parser, Passed()
    if parser.takes_words_beside_file and _names_file(command):
        because = "the script reads the words beside a file of arguments by itself"
        return replace(parser, is_closed=False, open_because=parser.open_because or because), Passed()
    hides = command.may_hide_flags(sum(not o.flags for o in parser.options))
    problems = list(judge.problems)
    if namespace is None:
        # The parser stopped at the first mistake; names are still judged.
        problems += [p for p in (judge.stopped,) if p is not None and not hides]
        extras = [t for t in texts if _is_unknown_flag(t, judge)]
        return parser, Passed({}, tuple(_unknown(extras, True) + problems))
    unknown_words = _unknown(extras, hides)
    # Behind an option that is not known stands its value, and no command.
    values = {id(b.word) for a, b in pairwise(texts) if any(a.word is p.word for p in unknown_words)}
    problems = unknown_words + [p for p in problems if p.option is not parser.command or id(p.word) not in values]
    if not hides and not any(e.startswith("\ue000") for e in extras):
        problems += [Problem("missing", option=o) for o in parser.options if o.required and o.dest not in judge.seen]
    is_whole = not hides and not any(e.startswith("\ue000") for e in extras)
    return parser, Passed(_values(parser, judge, hides), tuple(problems), frozenset(judge.seen), is_whole)


def _narrowed(parser: ScriptParser, chosen: Sequence[str | None]) -> ScriptParser:
    """The parser with the options of the commands that the words name; open where one is not known."""
    if parser.command is None:
        return parser
    options, libraries, because, at = (
        [*parser.options, parser.command],
        [*parser.libraries],
        parser.open_because,
        parser,
    )
    for name in chosen:
        if name is None:
            because = because or "the command that it runs is not known"
            break
        at = dict(at.commands)[name]
        options += [*at.options, *([at.command] if at.command is not None else [])]
        libraries += at.libraries
        because = because or at.open_because
    return replace(
        parser, options=tuple(options), libraries=tuple(libraries), is_closed=not because, open_because=because,
        whole=parser,
    )  # fmt: skip


def _only_helps(parser: ScriptParser, command: LaunchCommand) -> bool:
    """``--help``: the script prints its options and ends, whatever else the command passes or lacks."""
    asked = (parser.option(word.text) for word in command.script_args if word.text in ("-h", "--help", "--version"))
    return any(option is not None and option.action in ("help", "version") for option in asked)


def _is_file(parser: ScriptParser, command: LaunchCommand) -> bool:
    """``train.py args.yaml``: the one word is a file of arguments, which the script reads instead of its words."""
    return parser.reads_file and len(command.script_args) == 1 and _names_file(command)


def _names_file(command: LaunchCommand) -> bool:
    """Whether the first word is the name of a file of arguments."""
    return any((word.text or "").endswith(ARGUMENT_FILES) for word in command.script_args[:1])


def _unknown(extras: Sequence[Text], hides: bool) -> list[Problem]:
    problems: list[Problem] = []
    after_unknown = False
    for text in extras:
        word = text.word
        if text == "--":
            continue
        if text.startswith("-") and not _is_number(text):
            problems.append(Problem("unknown", word))
            after_unknown = True
        elif not after_unknown and not hides and word.text is not None:
            problems.append(Problem("leftover", word))  # beside an unknown option it is its value
        else:
            after_unknown = False
    return problems


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_unknown_flag(text: Text, judge: Judge) -> bool:
    name = text.partition("=")[0]
    if not text.startswith("--") or len(text) == 2 or " " in name:
        return False
    return not any(flag == name or flag.startswith(name) for flag in judge.flags)


def _values(parser: ScriptParser, judge: Judge, hides: bool) -> dict[str, Fact[Any]]:
    """A value for each destination: what the command says, else the default where it is known and nothing is hidden."""
    values: dict[str, Fact[Any]] = {}
    for option in parser.options:
        if option.action in ("help", "version"):
            continue
        if option.dest in judge.seen or is_unnamed(option.dest):
            continue
        if hides:
            values[option.dest] = unknown("the command may set it", option.location)
        elif option.default.is_known or option.dest not in values:
            values[option.dest] = option.default
    for dest, (option, texts) in judge.seen.items():
        if not is_unnamed(dest):
            values[dest] = given_value(option, texts, judge.texts)
    return values


def is_unnamed(dest: str) -> bool:
    """``{train,eval}``: the operand of a command that the script keeps nowhere."""
    return dest.startswith("{")
