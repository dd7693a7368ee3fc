"""Random programs that make a parser: the options that dslint reads are those that argparse has when it parses.

Python runs each program with a `parse_args` that keeps the parser. An open parser may miss some.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.model.plan.parser.reader import script_parser
from dslint.model.workspace import Workspace

PROGRAMS = 400
TYPES = ("", "int", "float", "str", "bool", "convert")
DEFAULTS = {"": "'x'", "int": "3", "float": "0.5", "str": "'y'", "bool": "True", "convert": "1"}
CHOICES = {"": "['a', 'b']", "int": "[1, 2, 3]", "float": "(0.5, 1.5)", "str": "CHOICES"}
ACTIONS = ("store_true", "store_false", "count", "append", "store_const", "boolean")
HEAD = """\
import argparse
import sys

DEBUG = False
LEVEL = 2
CHOICES = ["x", "y", "z"]


def convert(text):
    return text


def flag_of(name):
    return "--" + name.replace("_", "-")


class Holder:
    def __init__(self, parser):
        self.parser = parser

    def add(self, *names, **options):
        self.parser.add_argument(*names, **options)
        return self


def made(**options):
    return argparse.ArgumentParser(**options)
"""


class Writer:
    """Writes one program; the names of its options are all different."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.lines: list[str] = []
        self.other: list[str] = ["import argparse", ""]
        self.has_operand = False

    def name(self) -> str:
        """A new name of an option."""
        self.count += 1
        return f"{self.random.choice(('lr', 'seed', 'num-steps', 'out_dir', 'x'))}{self.count}"

    def keywords(self, *, is_operand: bool = False) -> str:
        """What `add_argument` may be given for an option."""
        draw = self.random
        if not is_operand and draw.random() < 0.3:
            action = draw.choice(ACTIONS)
            if action == "boolean":
                return "action=argparse.BooleanOptionalAction"
            return f"action={action!r}" + (", const=3" if action == "store_const" else "")
        kind = draw.choice(TYPES)
        parts = [f"type={kind}"] if kind else []
        if draw.random() < 0.4:
            parts.append(f"default={DEFAULTS[kind] if draw.random() < 0.7 else 'LEVEL'}")
        if kind in CHOICES and draw.random() < 0.3:
            parts.append(f"choices={CHOICES[kind]}")
        if draw.random() < 0.25:
            parts.append(f"nargs={draw.choice(('2', repr('?'), repr('*'), repr('+'), 'argparse.ONE_OR_MORE'))}")
        if not is_operand and draw.random() < 0.15:
            parts.append("required=True")
        if not is_operand and draw.random() < 0.15:
            parts.append(f"dest={'dest' + str(self.count)!r}")
        return ", ".join(parts)

    def call(self, target: str, method: str = "add_argument") -> str:
        """One call that adds an option."""
        if not self.has_operand and self.random.random() < 0.05:
            self.has_operand = True
            parts = [repr(f"operand{self.count}"), self.keywords(is_operand=True)]
        else:
            name = self.name()
            short = [repr(f"-{chr(97 + self.count % 26)}{self.count}")] if self.random.random() < 0.2 else []
            parts = [*short, repr(f"--{name}"), self.keywords()]
        return f"{target}.{method}({', '.join(part for part in parts if part)})"

    def block(self, target: str, indent: str = "", depth: int = 0) -> list[str]:
        """Some statements that add to a parser."""
        forms = [
            self.plain, self.group, self.exclusive, self.loop, self.table, self.condition, self.helper, self.bound,
            self.holder, self.unknown, self.spread, self.defaults, self.elsewhere, self.nested, self.later,
            self.views, self.looked_at,
        ]  # fmt: skip
        found: list[str] = []
        for _ in range(self.random.randint(1, 4) if depth else self.random.randint(3, 9)):
            found += self.random.choice(forms)(target, depth)
        return [indent + line for line in found]

    def plain(self, target: str, depth: int) -> list[str]:
        return [self.call(target)]

    def group(self, target: str, depth: int) -> list[str]:
        name = f"group{self.count}"
        return [f"{name} = {target}.add_argument_group('some')", self.call(name), self.call(name)]

    def exclusive(self, target: str, depth: int) -> list[str]:
        one, two = self.name(), self.name()
        head = f"either{self.count} = {target}.add_mutually_exclusive_group()"
        return [head, *(f"either{self.count}.add_argument('--{n}', action='store_true')" for n in (one, two))]

    def loop(self, target: str, depth: int) -> list[str]:
        names = [self.name() for _ in range(3)]
        form = self.random.choice(("'--' + name", "f'--{name}'", "flag_of(name)", "'--%s' % name"))
        body = [f"    {target}.add_argument({form}, {self.keywords()})"]
        if self.random.random() < 0.3:
            body.insert(0, f"    if name == {names[0]!r}:\n        continue")
        return [f"for name in {names!r}:", *"\n".join(body).split("\n")]

    def table(self, target: str, depth: int) -> list[str]:
        rows = [(self.name(), self.random.choice(("int", "float", "str")), self.random.randint(0, 9)) for _ in range(3)]
        texts = ", ".join(f"({name!r}, {kind}, {default})" for name, kind, default in rows)
        return [
            f"for name, kind, default in [{texts}]:",
            f"    {target}.add_argument('--' + name, type=kind, default=default)",
        ]

    def views(self, target: str, depth: int) -> list[str]:
        names = [self.name().replace("-", "_") for _ in range(4)]
        table = {name: self.random.choice((1, 0.5, "x", False, None)) for name in names}
        op = self.random.choice(("&", "-", "|"))
        return [
            f"table = {table!r}",
            f"for name in table.keys() {op} {dict.fromkeys(names[1:3], 1)!r}.keys():",
            "    given = {'default': table[name]}",
            "    if table[name] is False:",
            "        given['action'] = 'store_true'",
            "    elif table[name] is not None:",
            "        given['type'] = type(table[name])",
            f"    {target}.add_argument(f'--{{name}}', **given)",
        ]

    def looked_at(self, target: str, depth: int) -> list[str]:
        made = [self.call(target), "seen = {}", f"for action in {target}._actions:"]
        change = ["    if action.dest != 'help':", "        action.default = 5"] if self.random.random() < 0.3 else []
        return [*made, "    seen[action.dest] = action.option_strings", *change]

    def condition(self, target: str, depth: int) -> list[str]:
        test = self.random.choice(("DEBUG", "not DEBUG", "LEVEL > 1", "LEVEL == 3", "'x' in CHOICES"))
        found = [f"if {test}:", *self._inner(target, depth)]
        return [*found, "else:", *self._inner(target, depth)] if self.random.random() < 0.4 else found

    def unknown(self, target: str, depth: int) -> list[str]:
        return ["if hasattr(sys, 'gettrace'):", *self._inner(target, depth)]

    def _inner(self, target: str, depth: int) -> list[str]:
        return self.block(target, "    ", depth + 1) if depth < 2 else ["    " + self.call(target)]

    def helper(self, target: str, depth: int) -> list[str]:
        name = f"helper{self.count}"
        self.count += 1
        body = self.block("parser", "    ", depth + 1) if depth < 2 else ["    " + self.call("parser")]
        return [f"def {name}(parser):", *body, "    return parser", f"{name}({target})"]

    def bound(self, target: str, depth: int) -> list[str]:
        name = f"add{self.count}"
        call = self.call("x").removeprefix("x.add_argument")
        return [f"{name} = {target}.add_argument", f"{name}{call}"]

    def holder(self, target: str, depth: int) -> list[str]:
        return [self.call(f"Holder({target})", "add")]

    def spread(self, target: str, depth: int) -> list[str]:
        name = self.name()
        return [f"options = dict(type=int, default={self.count})", f"{target}.add_argument('--{name}', **options)"]

    def defaults(self, target: str, depth: int) -> list[str]:
        name = self.name()
        dest = name.replace("-", "_")
        calls = [f"{target}.add_argument('--{name}', type=int)", f"{target}.set_defaults({dest}={self.count})"]
        return calls if self.random.random() < 0.5 else calls[::-1]

    def elsewhere(self, target: str, depth: int) -> list[str]:
        name = f"outer{self.count}"
        self.other += [f"def {name}(parser, prefix='--'):"]
        self.other += [f"    parser.add_argument(prefix + {self.name()!r}, default={self.count})", ""]
        return [f"import opts{'' if self.random.random() < 0.5 else ' as opts'}", f"opts.{name}({target})"]

    def nested(self, target: str, depth: int) -> list[str]:
        return [f"[{self.call(target)} for _ in range(1)]" if self.random.random() < 0.2 else self.call(target)]

    def later(self, target: str, depth: int) -> list[str]:
        return [f"action = {self.call(target)}", "action.help = 'more'"]

    def program(self) -> dict[str, str]:
        """The files of the program."""
        draw = self.random
        self.lines = []
        options = [t for t in ("add_help=False", "allow_abbrev=False", "description='d'") if draw.random() < 0.15]
        if draw.random() < 0.2:
            self.lines += ["base = argparse.ArgumentParser(add_help=False)", *self.block("base", depth=1)]
            options.append("parents=[base]")
        maker = draw.choice(("argparse.ArgumentParser", "made"))
        self.lines += [f"parser = {maker}({', '.join(options)})", *self.block("parser")]
        if draw.random() < 0.06:
            self.lines += ["sub = parser.add_subparsers(dest='command')", "one = sub.add_parser('one')"]
            self.lines += [self.call("one")]
        if draw.random() < 0.06:
            self.lines.append("parser.add_argument('--' + str(id(parser)))")
        if draw.random() < 0.5:
            body = ["    " + line for line in self.lines]
            self.lines = ["def build():", *body, "    return parser", "", "args = build().parse_args()"]
        else:
            self.lines.append("args = parser.parse_args()")
        return {"train.py": HEAD + "\n" + "\n".join(self.lines) + "\n", "opts.py": "\n".join(self.other) + "\n"}


class _Parsed(Exception):  # noqa: N818
    """Carries the parser out of the program."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def really(files: dict[str, str]) -> argparse.ArgumentParser | None:
    """The parser that a program has when it parses; ``None`` when the program is wrong."""

    def kept(self: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Parsed(self)

    module = ModuleType("opts")
    before, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, kept  # type: ignore[method-assign, assignment]
    sys.modules["opts"] = module
    try:
        exec(compile(files["opts.py"], "opts.py", "exec"), vars(module))  # noqa: S102
        exec(compile(files["train.py"], "train.py", "exec"), {"__name__": "__main__"})  # noqa: S102
    except _Parsed as found:
        return found.parser
    except (argparse.ArgumentError, TypeError, ValueError):
        return None
    finally:
        argparse.ArgumentParser.parse_args = before  # type: ignore[method-assign]
        del sys.modules["opts"]
    return None


_KINDS = {
    argparse._StoreAction: "store", argparse._StoreTrueAction: "store_true", argparse._HelpAction: "help",
    argparse._StoreFalseAction: "store_false", argparse._CountAction: "count", argparse._AppendAction: "append",
    argparse._StoreConstAction: "store_const", argparse.BooleanOptionalAction: "boolean",
}  # fmt: skip


def differences(parser: ScriptParser, real: argparse.ArgumentParser) -> list[str]:
    """What dslint believes of the options that is not so."""
    found: list[str] = []
    actions = {tuple(_flags(a)) or (a.dest,): a for a in real._actions if type(a) in _KINDS}
    options = {option.flags or (option.dest,): option for option in parser.options}
    found += [f"{flags}: not there" for flags in options.keys() - actions.keys() if options[flags].required]
    if parser.is_closed:
        found += [f"{flags}: not read" for flags in actions.keys() - options.keys()]
        if parser.abbreviates != real.allow_abbrev:
            found.append("abbreviations")
    for flags in options.keys() & actions.keys():
        found += [f"{flags}: {what}" for what in _option(options[flags], actions[flags])]
    return found


def _flags(action: argparse.Action) -> list[str]:
    """The spellings without those that `BooleanOptionalAction` adds."""
    is_pair = isinstance(action, argparse.BooleanOptionalAction)
    return [flag for flag in action.option_strings if not (is_pair and flag.startswith("--no-"))]


def _option(option: Option, action: argparse.Action) -> list[str]:
    found = []
    if option.dest != action.dest:
        found.append(f"dest {option.dest} is {action.dest}")
    if option.action != _KINDS[type(action)]:
        found.append(f"action {option.action} is {action}")
    if option.default.is_known and option.default.get() != action.default:
        found.append(f"default {option.default.get()} is {action.default}")
    if option.default.is_absent and action.default not in (None, argparse.SUPPRESS):
        found.append(f"no default is {action.default}")
    if option.type and option.type != getattr(action.type, "__name__", ""):
        found.append(f"type {option.type} is {action.type}")
    if option.choices is not None and list(option.choices) != list(action.choices or ()):
        found.append(f"choices {option.choices} are {action.choices}")
    if not option.is_opaque and option.action in ("store", "append") and option.nargs != action.nargs:
        found.append(f"nargs {option.nargs} is {action.nargs}")
    if option.required and not action.required:
        found.append("it is not required")
    return found


def test_options_are_those_of_argparse() -> None:
    closed = read = 0
    wrong: list[str] = []
    for seed in range(PROGRAMS):
        files = Writer(seed).program()
        real = really(files)
        if real is None:
            continue
        parser = script_parser("train.py", Workspace(Path("/nonexistent"), files))
        assert parser is not None, files["train.py"]
        read += 1
        closed += parser.is_closed
        wrong += [f"program {seed}: {what}" for what in differences(parser, real)]
    print(f"{read} programs, {closed} parsers closed ({100 * closed // read} %)")
    assert not wrong, "\n".join(wrong[:20])
    assert read >= 300
    assert closed >= 0.85 * read
