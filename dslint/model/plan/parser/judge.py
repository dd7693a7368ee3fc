"""The parser of a script, made again of argparse itself: its actions write down what would be refused, and go on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dslint.model.plan.parser.options import Option, Problem, ScriptParser
from dslint.model.plan.parser.texts import Text, same_text, text_of_value
from dslint.model.plan.parser.values import converts, is_choice
from dslint.model.trainerargs import fields_ever


class _RefusedError(Exception):
    """argparse stops; with its message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


_BARE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version", "boolean")


def _made(parser: ScriptParser) -> _Parser:
    return _Parser(**_reading(parser))


def _reading(parser: ScriptParser) -> dict[str, Any]:
    return {"add_help": False, "allow_abbrev": parser.abbreviates, "conflict_handler": "resolve"}


class _Note(argparse.Action):
    """Any action of the script: it only writes down what it gets."""

    judge: Judge
    option: Option

    def __call__(self, *words: Any) -> None:
        self.judge.take(self.option, words[2])


if TYPE_CHECKING:
    _Base = argparse._SubParsersAction[_Parser]
else:
    _Base = argparse._SubParsersAction


class _Commands(_Base):
    """The operand that names a command."""

    judge: Judge
    option: Option

    def __call__(self, *words: Any) -> None:
        judge, text = self.judge, text_of_value(words[2][0], self.judge.texts)
        judge.seen[self.option.dest] = (self.option, [text])
        if text in self._name_parser_map:
            judge.chosen.append(str(text))
            super().__call__(*words)
        elif text.word.text is None:
            judge.chosen.append(None)
        else:
            judge.problems.append(Problem("choice", text.word, self.option))


_judges: dict[int, tuple[ScriptParser, Judge]] = {}
_KEPT = 16  # parsers; most commands of a project start few scripts


def judge_of(parser: ScriptParser) -> Judge:
    """The judge of a parser, which costs milliseconds to make."""
    kept = _judges.get(id(parser))
    if kept is None or kept[0] is not parser:
        if len(_judges) >= _KEPT:
            _judges.clear()
        kept = _judges[id(parser)] = (parser, Judge(parser))
    return kept[1]


class Judge:
    """The same parser, made again."""

    def __init__(self, parser: ScriptParser) -> None:
        self.problems: list[Problem] = []
        self.stopped: Problem | None = None
        self.seen: dict[str, tuple[Option, list[Text]]] = {}
        self.texts: Sequence[Text] = ()
        # The names of the commands that words have chosen, outermost first; `None` for one that is not known.
        self.chosen: list[str | None] = []
        self.flags: set[str] = set()
        self.is_joined = parser.is_joined
        self.made = _made(parser)
        self._fill(self.made, parser)

    def _fill(self, made: _Parser, parser: ScriptParser) -> None:
        """Give a parser its options and commands."""
        self.flags |= {flag for option in parser.options for flag in option.flags}
        for option in parser.options:
            self._add(made, option)
        for name in _library_fields(parser):
            flags = {
                f"--{name}",
                f"--{name.replace('_', '-')}",
                f"--no_{name}",
                f"--no-{name.replace('_', '-')}",
            } - made._option_string_actions.keys()
            self.flags |= flags
            if flags:
                made.add_argument(*sorted(flags), dest=f"{name} of the library", nargs="*")
        if parser.command is not None:
            action = made.add_subparsers(action=_Commands, prog=" ")
            assert isinstance(action, _Commands)
            action.judge, action.option = self, parser.command
            for name, command in parser.commands:
                self._fill(action.add_parser(name, **_reading(command)), command)
            action.choices = None  # type: ignore[assignment]  # whether there is such a command it says itself

    def parse(self, texts: Sequence[Text]) -> tuple[argparse.Namespace | None, list[Text]]:
        """The namespace, ``None`` when the parser stops; and the words that nobody takes."""
        self.problems, self.stopped, self.seen, self.texts, self.chosen = [], None, {}, texts, []
        try:
            namespace, extras = self.made.parse_known_args(list(texts))
        except _RefusedError as stop:
            self.stopped = self._stop(str(stop), texts)
            return None, []
        return namespace, [same_text(e, texts) for e in extras]

    def _add(self, made: _Parser, option: Option) -> None:
        nargs: Any = "*" if option.is_opaque else option.nargs
        if option.action in _BARE:
            nargs = 0
        if not option.flags:
            nargs = "?" if nargs is None else "*" if nargs == "+" else nargs
            self._note(option, made.add_argument(option.dest, action=_Note, nargs=nargs))
            return
        flags = list(option.flags)
        if option.action == "boolean":
            flags += [f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")]
            self.flags |= set(flags)
        try:
            added = made.add_argument(*flags, dest=option.dest, action=_Note, nargs=nargs)
        except (ValueError, TypeError):  # the script itself would stop here
            added = made.add_argument(*flags, dest=option.dest, action=_Note, nargs="*")
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
        if self.is_joined:
            return None  # another of the parsers may have taken what stands there
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
