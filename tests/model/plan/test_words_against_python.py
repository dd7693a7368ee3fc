"""Random programs with several parsers, and random words for them: Python runs each, and dslint says the same of it."""

from __future__ import annotations

import contextlib
import io
import random
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.parser.options import Passed, ScriptParser
from dslint.model.plan.runplan import build_plans
from dslint.model.workspace import Workspace

PROGRAMS = 150
COMMANDS = 6  # for each program
HEAD = """\
import argparse
import sys


class Runner:
    NAME = "runner"

    @classmethod
    def register(cls, commands):
        parser = commands.add_parser(cls.NAME)
        parser.add_argument("--speed", type=int, default=3)
        parser.set_defaults(func=cls.run)

    def run(self):
        pass


class Walker(Runner):
    NAME = "walker"


"""


class Writer:
    """Writes one program, and words for it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.count = 0
        self.flags: list[str] = []
        self.words: list[str] = ["1", "x", "0.5", "--", "--unknown", "stray"]

    def option(self, target: str) -> str:
        """One call of `add_argument`."""
        self.count += 1
        name = f"--{self.draw.choice(('lr', 'seed', 'num-steps', 'out_dir'))}{self.count}"
        self.flags.append(name)
        kinds = ("", "type=int, default=3", "action='store_true'", "choices=['x', 'y']", "nargs='+'", "required=True",
                 "type=float", "default='a'", "nargs='?'")  # fmt: skip
        weights = (4, 4, 4, 2, 1, 1, 3, 3, 1)
        keywords = self.draw.choices(kinds, weights)[0]
        return f"{target}.add_argument({name!r}{', ' + keywords if keywords else ''})"

    def options(self, target: str, most: int = 3) -> list[str]:
        """Some of them."""
        return [self.option(target) for _ in range(self.draw.randint(0, most))]

    def maybe(self, text: str, share: float = 0.4) -> str:
        """The text, or nothing."""
        return text if self.draw.random() < share else ""

    def commands(self, target: str = "parser", depth: int = 0) -> list[str]:
        """Subparsers of a parser."""
        draw = self.draw
        sub = f"sub{depth}_{self.count}"
        words = [w for w in (self.maybe(f"dest='cmd{depth}'"), self.maybe("required=True")) if w]
        lines = [f"{sub} = {target}.add_subparsers({', '.join(words)})"]
        for name in draw.sample(("train", "eval", "build", "to-fp8"), draw.randint(1, 3)):
            self.words += [name, name]
            parent = self.maybe(", parents=[base]", 0.3 if depth == 0 else 0)
            alias = self.maybe(f", aliases=['{name[0]}']", 0.2)
            made = f"p{depth}_{self.count}_{name.replace('-', '')}"
            lines.append(f"{made} = {sub}.add_parser({name!r}{parent}{alias})")
            lines += self.options(made)
            if draw.random() < 0.3:
                lines.append(f"{made}.add_argument('files', nargs={draw.choice(('None', repr('*'), repr('+')))})")
            if draw.random() < 0.3:
                lines.append(f"{made}.set_defaults(which={name!r})")
            if depth == 0 and draw.random() < 0.15:
                lines += self.commands(made, 1)
        if draw.random() < 0.2:
            self.words += ["one", "two"]
            lines += [
                "for name in ('one', 'two'):",
                f"    inner = {sub}.add_parser(name)",
                "    " + self.option("inner"),
            ]
        if depth == 0 and draw.random() < 0.2:
            self.words += ["runner", "walker"]
            lines += ["for cls in (Runner, Walker):", f"    cls.register({sub})"]
        return lines

    def program_with_commands(self) -> list[str]:
        """One parser with commands."""
        lines = ["base = argparse.ArgumentParser(add_help=False)", *self.options("base", 2)]
        lines += ["parser = argparse.ArgumentParser()", *self.options("parser", 2), *self.commands()]
        return [*lines, *self.options("parser", 1), "args = parser.parse_args()"]

    def program_with_several(self) -> list[str]:
        """Parsers one after the other, on all words or on what the one before has left."""
        self.words.remove("--")  # alone it is refused by some releases of Python
        draw = self.draw
        lines = ["first = argparse.ArgumentParser(add_help=False)", *self.options("first")]
        lines += ["second = argparse.ArgumentParser()", *self.options("second")]
        if draw.random() < 0.3 and self.flags:
            lines.append(f"second.add_argument({self.flags[0]!r}{', type=int' if draw.random() < 0.5 else ''})")
        call = draw.choice(("first.parse_known_args()", "first.parse_known_args(sys.argv[1:])"))
        form = draw.randrange(6)
        if form == 0:
            lines += [f"known, rest = {call}", "args = second.parse_args(rest)"]
        elif form == 1:
            lines += [f"known, rest = {call}", "args = second.parse_args(rest, namespace=known)"]
        elif form == 2:
            lines += [f"known, _ = {call}", "args = second.parse_args()"]
        elif form == 3:
            lines += [f"known, rest = {call}", "args, _ = second.parse_known_args(rest)"]
        elif form == 4:
            name = self.option("first")
            dest = self.flags[-1].lstrip("-").replace("-", "_")
            lines += [name, f"known, rest = {call}", f"if known.{dest}:", f"    {self.option('second')}"]
            lines.append("args = second.parse_args(rest)")
        else:
            lines += ["parsers = {'a': first, 'b': second}", "args = parsers['b'].parse_args()"]
        return lines

    def program_with_parents(self) -> list[str]:
        """Parents, and a parser that is made in one of two ways by an earlier argument."""
        lines = ["base = argparse.ArgumentParser(add_help=False)", "base.add_argument('--mode', default='a')"]
        lines += self.options("base", 2)
        lines += ["known, _ = base.parse_known_args()", "if known.mode == 'a':"]
        for name in ("one", "two"):
            lines.append(f"    {name} = argparse.ArgumentParser(parents=[base])")
            lines += ["    " + line for line in self.options(name)]
            lines.append(f"    args = {name}.parse_args()")
            lines += ["else:"] if name == "one" else []
        self.words += ["--mode", "--mode", "a"]
        return lines

    def command(self) -> str:
        """The words of one command."""
        found: list[str] = []
        for _ in range(self.draw.randint(0, 4)):
            if self.flags and self.draw.random() < 0.6:
                flag = self.draw.choice(self.flags)
                found.append(flag)
                if self.draw.random() < 0.7:
                    found.append(self.draw.choice(("1", "x", "0.5", "y")))
            else:
                found.append(self.draw.choice(self.words))
        return " ".join(found)


def read(files: dict[str, str], arguments: str) -> tuple[ScriptParser | None, Passed | None]:
    """What dslint says of a command."""
    files = {**files, "run.sh": f"python train.py {arguments}\n"}
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile("run.sh", files["run.sh"]), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan.parser, plan.given


def really(text: str, arguments: str) -> dict[str, Any] | None:
    """What the script holds when Python runs it; ``None`` when argparse ends it.

    Raises:
        ValueError: the program is wrong, whatever the words are.
    """
    before, sys.argv = sys.argv, ["train.py", *shlex.split(arguments)]
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "train.py", "exec"), names)  # noqa: S102
    except SystemExit:
        return None
    except Exception as error:
        raise ValueError(text) from error
    finally:
        sys.argv = before
    return dict(vars(names["args"]))


def differences(text: str, arguments: str) -> tuple[list[str], bool]:
    """What dslint says of one command that is not so, and whether it says that it sees all options."""
    truth = really(text, arguments)
    parser, given = read({"train.py": text}, arguments)
    assert parser is not None
    assert given is not None
    found = []
    is_refused = truth is None
    # Of several parsers all options are taken together: what one of them refuses may be taken.
    if parser.is_closed and bool(given.problems) != is_refused and not (parser.is_joined and is_refused):
        found.append(f"{'refused' if is_refused else 'taken'}, but {given.problems or 'taken'}")
    for dest, fact in given.values.items() if truth is not None else ():
        if parser.is_joined and dest not in (truth or {}):
            continue  # of another parser
        if fact.is_known and (dest not in truth or fact.get() != truth[dest]):
            found.append(f"{dest} is {truth.get(dest, 'not there')}, not {fact.get()}")
    return found, parser.is_closed or parser.lets_pass


FORMS: dict[str, Callable[[Writer], list[str]]] = {
    "commands": Writer.program_with_commands,
    "several": Writer.program_with_several,
    "parents": Writer.program_with_parents,
}


@pytest.mark.parametrize("form", FORMS)
def test_words_are_taken_and_refused_as_by_python(form: str) -> None:
    wrong: list[str] = []
    read_, closed = 0, 0
    for seed in range(PROGRAMS):
        writer = Writer(seed)
        text = HEAD + "\n".join(FORMS[form](writer)) + "\n"
        for _ in range(COMMANDS):
            arguments = writer.command()
            try:
                found, is_closed = differences(text, arguments)
            except ValueError:
                continue
            read_ += 1
            closed += is_closed
            wrong += [f"program {seed}, `{arguments}`: {what}" for what in found]
    print(f"{form}: {read_} commands, {100 * closed // read_} % closed")
    assert not wrong, f"{len(wrong)} of {read_}\n" + "\n".join(wrong[:20])
    assert read_ >= 0.8 * PROGRAMS * COMMANDS
    assert closed >= 0.9 * read_
