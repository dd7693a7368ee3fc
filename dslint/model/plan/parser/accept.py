"""What a parser makes of the words of a command.

argparse itself is asked: a parser with the same options is built, with actions that write down what would be refused
and go on, so that one mistake does not hide the next. A word that is not known is accepted by every option.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.plan.parser.options import Option, Passed, Problem, ScriptParser
from dslint.model.trainerargs import fields_ever

_TRUE = ("yes", "true", "t", "y", "1")
_FALSE = ("no", "false", "f", "n", "0")


class _Text(str):
    """The text of a word as argparse handles it."""

    word: Word


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
    if _only_helps(parser, command):
        return Passed()
    hides = command.may_hide_flags(sum(not o.flags for o in parser.options))
    judge = _judge_of(parser)
    texts = [_text(w) for w in command.script_args]
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
    return Passed(_values(parser, judge, hides), tuple(problems))


def _only_helps(parser: ScriptParser, command: LaunchCommand) -> bool:
    """``--help``: the script prints its options and ends, whatever else the command passes or lacks."""
    asked = (parser.option(word.text) for word in command.script_args if word.text in ("-h", "--help", "--version"))
    return any(option is not None and option.action in ("help", "version") for option in asked)


def _text(word: Word) -> _Text:
    """The word as argparse would see it; what is not known of it is a text that no option has."""
    name, equals, _ = word.raw.partition("=")
    if word.text is not None:
        text = _Text(word.text)
    elif equals and re.fullmatch(r"--?[A-Za-z][\w.-]*", name):
        text = _Text(f"{name}=\ue000{word.raw}")
    else:
        text = _Text("\ue000" + word.raw)
    text.word = word
    return text


def _unknown(extras: Sequence[_Text], hides: bool) -> list[Problem]:
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


def _is_unknown_flag(text: _Text, judge: _Judge) -> bool:
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
        self.seen: dict[str, tuple[Option, list[_Text]]] = {}
        self.texts: Sequence[_Text] = ()
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

    def parse(self, texts: Sequence[_Text]) -> tuple[argparse.Namespace | None, list[_Text]]:
        """The namespace, ``None`` when the parser stops; and the words that nobody takes."""
        self.problems, self.stopped, self.seen, self.texts = [], None, {}, texts
        try:
            namespace, extras = self.made.parse_known_args(list(texts))
        except _RefusedError as stop:
            self.stopped = self._stop(str(stop), texts)
            return None, []
        return namespace, [_same(e, texts) for e in extras]

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
            self._take(option, [_of(value, self.texts) for value in values])

    def _take(self, option: Option, values: list[_Text]) -> None:
        self.seen[option.dest] = (option, values)
        for value in values:
            if value.word.text is None:
                continue
            if not _converts(option, value):
                self.problems.append(Problem("type", value.word, option))
            elif option.choices is not None and not _is_choice(option, value):
                self.problems.append(Problem("choice", value.word, option))

    def _stop(self, message: str, texts: Sequence[_Text]) -> Problem | None:
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


def _same(extra: str, texts: Sequence[_Text]) -> _Text:
    """The word behind a text that argparse hands back, perhaps as a copy."""
    if isinstance(extra, _Text):
        return extra
    return next((t for t in texts if t == extra), texts[-1])


def _of(value: str, texts: Sequence[_Text]) -> _Text:
    """The value that argparse cut out of ``--name=value`` as a text with its word."""
    if isinstance(value, _Text):
        return value
    text = _Text(value)
    whole = next((t for t in reversed(texts) if t.endswith(f"={value}")), None)
    text.word = (whole or _same(value, texts)).word
    if text.word.text is not None and whole is None:
        text.word = Word(None, text.word.raw, text.word.location)
    return text


def _library_fields(parser: ScriptParser) -> Iterable[str]:
    return dict.fromkeys(name for owner in parser.libraries for name in fields_ever(owner))


def _converts(option: Option, text: str) -> bool:
    if option.type == "bool" and option.nargs == "?":  # HfArgumentParser
        return text.lower() in (*_TRUE, *_FALSE)
    if option.type not in ("int", "float"):
        return True
    try:
        (int if option.type == "int" else float)(text)
    except ValueError:
        return False
    return True


def _is_choice(option: Option, text: str) -> bool:
    assert option.choices is not None
    if option.type in ("int", "float"):
        return _value(option, text) in option.choices
    # Without a converter numbers among the choices are never met by a text, but HfArgumentParser compares texts.
    return text in option.choices or any(text == str(choice) for choice in option.choices if option.type == "")


def _value(option: Option, text: str) -> Any:
    if option.type == "int":
        return int(text)
    if option.type == "float":
        return float(text)
    if option.type == "bool" and option.nargs == "?":
        return text.lower() in _TRUE
    return text


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
        values[dest] = _given(option, texts, judge.texts)
    return values


def _given(option: Option, texts: list[_Text], words: Sequence[_Text]) -> Fact[Any]:
    places: tuple[Location, ...] = tuple(p for t in texts for p in (t.word.location, *t.word.origins))
    if not places:
        named = (t for t in reversed(words) if t.startswith("-") and any(f.startswith(t) for f in option.flags))
        places = tuple(t.word.location for t in list(named)[:1])
    if option.is_opaque or option.action in ("store_const", "append_const", "count", "append", "extend", "boolean"):
        return unknown("the action of the option decides", *places)
    if option.action in ("store_true", "store_false"):
        return known(option.action == "store_true", *places)
    if any(t.word.text is None for t in texts):
        return unknown(f"`{next(t.word.raw for t in texts if t.word.text is None)}` is not known here", *places)
    if not all(_converts(option, t) for t in texts):
        return unknown("it is refused", *places)
    found = [_value(option, t) if option.type else str(t) for t in texts]
    if option.nargs in ("+", "*", "...", "A...") or isinstance(option.nargs, int):
        return known(found, *places)
    if not found:
        return known(True, *places) if option.type == "bool" else unknown("the constant of the option", *places)
    return known(found[0], *places)
