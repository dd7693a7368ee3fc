"""What a parser makes of the words of a command.

argparse itself is asked: a parser with the same options is built, with actions that write down what would be refused
and go on, so that one mistake does not hide the next. A word that is not known is accepted by every option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from dslint.core.fact import Fact, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.parser.options import Option, Passed, Problem, ScriptParser
from dslint.model.plan.parser.texts import Text, as_text, same_text, text_of_value
from dslint.model.plan.parser.values import converts, given_value, is_choice
from dslint.model.trainerargs import fields_ever


class _RefusedError(Exception):
    """argparse stops; with its message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


def passed(parser: ScriptParser, command: LaunchCommand) -> Passed:
    """What the script gets from a command, and what its parser refuses.

    The problems ``unknown``, ``choice`` and ``type`` hold for every completion of the command; the others only occur
    where all of its words are seen.
    """
    if _only_helps(parser, command) or _is_file(parser, command):
        return Passed()
    hides = command.may_hide_flags(sum(not o.flags for o in parser.options))
    judge = _judge_of(parser)
    texts = [as_text(w) for w in command.script_args]
    namespace, extras = judge.parse(texts)
    problems = list(judge.problems)
    if namespace is None:
        # The parser stopped at the first mistake; names are still judged.
        problems += [p for p in (judge.stopped,) if p is not None and not hides]
        extras = [t for t in texts if _is_unknown_flag(t, judge)]
        return Passed({}, tuple(_unknown(extras, True) + problems))
    problems = _unknown(extras, hides) + problems
    if not hides and not any(e.startswith("\ue000") for e in extras):
        problems += [Problem("missing", option=o) for o in parser.options if o.required and o.dest not in judge.seen]
    is_whole = not hides and not any(e.startswith("\ue000") for e in extras)
    return Passed(_values(parser, judge, hides), tuple(problems), frozenset(judge.seen), is_whole)


def _only_helps(parser: ScriptParser, command: LaunchCommand) -> bool:
    """``--help``: the script prints its options and ends, whatever else the command passes or lacks."""
    asked = (parser.option(word.text) for word in command.script_args if word.text in ("-h", "--help", "--version"))
    return any(option is not None and option.action in ("help", "version") for option in asked)


def _is_file(parser: ScriptParser, command: LaunchCommand) -> bool:
    """``train.py args.yaml``: the one word is a file of arguments, which the script reads instead of its words."""
    words = command.script_args
    return parser.reads_file and len(words) == 1 and (words[0].text or "").endswith((".json", ".yaml", ".yml"))


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


def _is_unknown_flag(text: Text, judge: _Judge) -> bool:
    name = text.partition("=")[0]
    if not text.startswith("--") or len(text) == 2 or " " in name:
        return False
    return not any(flag == name or flag.startswith(name) for flag in judge.flags)


_BARE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version", "boolean")


class _Note(argparse.Action):
    """Any action of the script: it only writes down what it gets."""

    judge: _Judge
    option: Option

    def __call__(self, *words: Any) -> None:
        self.judge.take(self.option, words[2])


_judges: dict[int, tuple[ScriptParser, _Judge]] = {}
_KEPT = 16  # parsers; most commands of a project start few scripts


def _judge_of(parser: ScriptParser) -> _Judge:
    """The judge of a parser, which costs milliseconds to make."""
    kept = _judges.get(id(parser))
    if kept is None or kept[0] is not parser:
        if len(_judges) >= _KEPT:
            _judges.clear()
        kept = _judges[id(parser)] = (parser, _Judge(parser))
    return kept[1]


class _Judge:
    """The same parser, made again."""

    def __init__(self, parser: ScriptParser) -> None:
        self.problems: list[Problem] = []
        self.stopped: Problem | None = None
        self.seen: dict[str, tuple[Option, list[Text]]] = {}
        self.texts: Sequence[Text] = ()
        self.made = _Parser(add_help=False, allow_abbrev=parser.abbreviates, conflict_handler="resolve")
        self.flags = {flag for option in parser.options for flag in option.flags}
        for option in parser.options:
            self._add(option)
        for name in _library_fields(parser):
            flags = {
                f"--{name}",
                f"--{name.replace('_', '-')}",
                f"--no_{name}",
                f"--no-{name.replace('_', '-')}",
            } - self.flags
            self.flags |= flags
            if flags:
                self.made.add_argument(*sorted(flags), dest=f"{name} of the library", nargs="*")

    def parse(self, texts: Sequence[Text]) -> tuple[argparse.Namespace | None, list[Text]]:
        """The namespace, ``None`` when the parser stops; and the words that nobody takes."""
        self.problems, self.stopped, self.seen, self.texts = [], None, {}, texts
        try:
            namespace, extras = self.made.parse_known_args(list(texts))
        except _RefusedError as stop:
            self.stopped = self._stop(str(stop), texts)
            return None, []
        return namespace, [same_text(e, texts) for e in extras]

    def _add(self, option: Option) -> None:
        nargs: Any = "*" if option.is_opaque else option.nargs
        if option.action in _BARE:
            nargs = 0
        if not option.flags:
            nargs = "?" if nargs is None else "*" if nargs == "+" else nargs
            self._note(option, self.made.add_argument(option.dest, action=_Note, nargs=nargs))
            return
        flags = list(option.flags)
        if option.action == "boolean":
            flags += [f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")]
            self.flags |= set(flags)
        try:
            added = self.made.add_argument(*flags, dest=option.dest, action=_Note, nargs=nargs)
        except (ValueError, TypeError):  # the script itself would stop here
            added = self.made.add_argument(*flags, dest=option.dest, action=_Note, nargs="*")
        self._note(option, added)

    def _note(self, option: Option, added: argparse.Action) -> None:
        assert isinstance(added, _Note)
        added.judge, added.option = self, option

    def take(self, option: Option, given: Any) -> None:
        """Write down what an option gets."""
        values = given if isinstance(given, list) else [] if given is None else [given]
        if values or option.flags:
            self._take(option, [text_of_value(value, self.texts) for value in values])

    def _take(self, option: Option, values: list[Text]) -> None:
        self.seen[option.dest] = (option, values)
        for value in values:
            if value.word.text is None:
                continue
            if not converts(option, value):
                self.problems.append(Problem("type", value.word, option))
            elif option.choices is not None and not is_choice(option, value):
                self.problems.append(Problem("choice", value.word, option))

    def _stop(self, message: str, texts: Sequence[Text]) -> Problem | None:
        """``argument --lr: expected one argument`` as a problem."""
        head, _, what = message.partition(": ")
        name = head.removeprefix("argument ").partition("/")[0]
        word = next((t.word for t in texts if name and t.partition("=")[0] == name), None)
        option = next((o for o, _ in self.seen.values() if name in o.flags), None)
        for kind, text in (("no-value", "expected"), ("explicit", "ignored explicit"), ("ambiguous", "could match")):
            if text in (what or message):
                if kind == "ambiguous":
                    typed = message.removeprefix("ambiguous option: ").split(" ")[0]
                    word = next((t.word for t in texts if t.partition("=")[0] == typed.partition("=")[0]), None)
                return Problem(kind, word, option) if word is not None else None
        return None


def _library_fields(parser: ScriptParser) -> Iterable[str]:
    return dict.fromkeys(name for owner in parser.libraries for name in fields_ever(owner))


def _values(parser: ScriptParser, judge: _Judge, hides: bool) -> dict[str, Fact[Any]]:
    """A value for each destination: what the command says, else the default where it is known and nothing is hidden."""
    values: dict[str, Fact[Any]] = {}
    for option in parser.options:
        if option.action in ("help", "version"):
            continue
        if option.dest in judge.seen:
            continue
        if hides:
            values[option.dest] = unknown("the command may set it", option.location)
        elif option.default.is_known or option.dest not in values:
            values[option.dest] = option.default
    for dest, (option, texts) in judge.seen.items():
        values[dest] = given_value(option, texts, judge.texts)
    return values
