"""A parser while it is built: ``add_argument`` calls become options, and whatever may add others opens it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.plan.parser.modules import Module
from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.model.plan.pyscript import PyScript, text_of

_ACTIONS = ("store", "store_true", "store_false", "store_const", "append", "append_const", "extend", "count")
_BARE = ("store_true", "store_false", "store_const", "append_const", "count")
_NARGS = {
    "argparse.OPTIONAL": "?",
    "argparse.ZERO_OR_MORE": "*",
    "argparse.ONE_OR_MORE": "+",
    "argparse.REMAINDER": "...",
    "argparse.PARSER": "A...",
}
_TYPES = ("int", "float", "str", "bool")
# ``deepspeed.add_config_arguments`` and ``add_tuning_arguments``, of all releases.
DEEPSPEED_OPTIONS = (
    ("deepspeed_mpi", "store_true", "", False),  # before 0.13.1
    ("deepspeed", "store_true", "", False),
    ("deepspeed_config", "store", "str", None),
    ("deepscale", "store_true", "", False),
    ("deepscale_config", "store", "str", None),
)
TUNING_OPTIONS = (
    *(("lr_schedule", "store", "str", None), ("lr_range_test_staircase", "store_true", "", False)),
    *((name, "store", "float", default) for name, default in (
        ("lr_range_test_min_lr", 0.001), ("lr_range_test_step_rate", 1.0), ("cycle_min_lr", 0.01),
        ("cycle_max_lr", 0.1), ("decay_lr_rate", 0.0), ("cycle_min_mom", 0.8), ("cycle_max_mom", 0.9),
        ("decay_mom_rate", 0.0),
        ("warmup_min_lr", 0), ("warmup_max_lr", 0.001), ("warmup_min_ratio", 0.01), ("cos_min_ratio", 0.01),
    )),
    *((name, "store", "int", default) for name, default in (
        ("lr_range_test_step_size", 1000), ("cycle_first_step_size", 1000), ("cycle_first_stair_count", -1),
        ("cycle_second_step_size", -1), ("cycle_second_stair_count", -1), ("decay_step_size", 1000),
        ("warmup_num_steps", 1000),
    )),
    *(("cycle_momentum", "store_true", "", False), ("warmup_type", "store", "str", "log")),
)  # fmt: skip


@dataclass(eq=False, slots=True)
class Made:
    """One parser object. ``is_certain`` is false inside of a condition: what is added there may not exist."""

    kind: str = "argparse"
    options: list[Option] = field(default_factory=list)
    open_because: str = ""
    abbreviates: bool = True
    parses: list[Location] = field(default_factory=list)
    libraries: list[tuple[str, str]] = field(default_factory=list)
    overridden: set[str] = field(default_factory=set)
    helps: bool = True
    reads_file: bool = False

    def open(self, why: str) -> None:
        """From here on the parser may take more than what is seen."""
        self.open_because = self.open_because or why

    def result(self) -> ScriptParser:
        """The finished parser."""
        help_option = (
            ()
            if not self.helps or not self.parses
            else (Option("help", ("-h", "--help"), self.parses[0], action="help"),)
        )
        options = tuple(o if o.dest not in self.overridden else _without_default(o) for o in self.options)
        return ScriptParser(
            self.kind,
            not self.open_because,
            (*help_option, *options),
            self.open_because,
            self.parses[0] if self.parses else None,
            self.abbreviates,
            tuple(dict.fromkeys(self.libraries)),
            self.reads_file,
        )

    def add(self, call: ast.Call, module: Module, is_certain: bool) -> None:
        """Take in one ``add_argument(...)``."""
        script = module.script
        names = [text_of(script.resolved(a)) for a in call.args]
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        flags = tuple(n for n in names if n is not None)
        if len(flags) != len(names) or (not flags and "dest" not in keywords):
            self.open("an option has a computed name")
            return
        spread = len(keywords) != len(call.keywords)
        if not flags:
            flags = (text_of(keywords["dest"]) or "",)
        is_operand = not flags[0].startswith("-")
        long = next((f for f in flags if f.startswith("--")), flags[0])
        dest = text_of(keywords.get("dest")) or (flags[0] if is_operand else long.lstrip("-").replace("-", "_"))
        action = _action(keywords.get("action"), script)
        nargs, is_known = _nargs(keywords.get("nargs"), script)
        if action is None or spread:
            action, is_known = action or "store", False
        if action in ("help", "version"):
            is_operand = False
        required = script.literal(keywords["required"]).get_or(False) is True if "required" in keywords else False
        self.options.append(
            Option(
                dest,
                () if is_operand else flags,
                script.location(call),
                _default(keywords, action, call, script),
                _type(keywords.get("type"), script),
                # A converter of the script may turn the words into others.
                _choices(keywords.get("choices"), script) if _is_plain(keywords.get("type"), script) else None,
                nargs,
                action,
                is_certain and not spread and (required or (is_operand and nargs in (None, "+"))),
                not is_known,
            )
        )

    def add_known(self, table: tuple[tuple[str, str, str, object], ...], place: Location) -> None:
        """The options that a function of a library adds."""
        for dest, action, kind, default in table:
            self.options.append(Option(dest, (f"--{dest}",), place, known(default, place), kind, action=action))


def _without_default(option: Option) -> Option:
    return Option(
        option.dest, option.flags, option.location, unknown("`set_defaults` gives it another default"), option.type,
        option.choices, option.nargs, option.action, False, option.is_opaque,
    )  # fmt: skip


def _action(node: ast.expr | None, script: PyScript) -> str | None:
    if node is None:
        return "store"
    text = text_of(node)
    if text is not None:
        return text if text in (*_ACTIONS, "help", "version") else None
    name = script.qualified(node).rpartition(".")[2]
    return "boolean" if name == "BooleanOptionalAction" else None


def _nargs(node: ast.expr | None, script: PyScript) -> tuple[str | int | None, bool]:
    if node is None:
        return None, True
    named = _NARGS.get(script.qualified(node))
    if named is not None:
        return named, True
    value = script.literal(node).get_or("")
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value, True
    return (value, True) if isinstance(value, str) and value in ("?", "*", "+", "...", "A...") else (None, False)


def _type(node: ast.expr | None, script: PyScript) -> str:
    name = script.qualified(node) if node is not None else ""
    return name if name in _TYPES and name not in script.functions else ""


def _is_plain(node: ast.expr | None, script: PyScript) -> bool:
    return node is None or _type(node, script) in ("int", "float", "str")


def _choices(node: ast.expr | None, script: PyScript) -> tuple[object, ...] | None:
    if node is None:
        return None
    value = script.literal(node).get_or(None)
    if isinstance(value, (list, tuple, set, dict)):
        return tuple(value)
    resolved = script.resolved(node)
    if isinstance(resolved, ast.Call) and script.qualified(resolved.func) == "range" and not resolved.keywords:
        bounds = [script.literal(a).get_or(None) for a in resolved.args]
        numbers = [b for b in bounds if isinstance(b, int) and not isinstance(b, bool)]
        if bounds and len(numbers) == len(bounds) and (len(numbers) < 3 or numbers[2]):
            span = range(*numbers)
            return tuple(span) if len(span) <= 256 else None
    return None


def _default(keywords: dict[str, ast.expr], action: str, call: ast.Call, script: PyScript) -> Fact[object]:
    if "default" in keywords:
        return script.literal(keywords["default"], "the default of the script")
    if action == "store_true":
        return known(False, script.location(call))
    if action == "store_false":
        return known(True, script.location(call))
    return absent()
