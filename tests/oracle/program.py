"""A whole program: the imports that it needs, its helpers, and the function, class or script that runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from random import Random

from oracle.grammar import Grammar, Place, indent
from oracle.style import Style, draw

_MODULES = ("os", "sys", "math", "time", "random", "functools", "contextlib", "logging")


@dataclass(frozen=True)
class Program:
    """Source text, and what was drawn for it."""

    seed: int
    source: str
    tags: frozenset[str]


def program(seed: int) -> Program:
    """The program of a seed; the same on every machine."""
    rng = Random(seed)
    style = draw(rng)
    grammar = Grammar(style)
    place = Place(rooms=rng.choice((2, 2, 3)), returns=style.shape != "module")
    body = grammar.block(place, rng.choice((1, 2, 2, 3, 4)))
    # Something that all ranks come to at the end, or nothing.
    if style.maybe(0.5):
        body += grammar.collective(place)
    main = _main(style, body)
    source = "\n".join([*_head(style, grammar, main), *main]) + "\n"
    ast.parse(source)
    return Program(seed, source, frozenset(style.tags))


def _prepared(style: Style, body: list[str]) -> list[str]:
    """The variables that a body needs."""
    text = "\n".join(body)
    lines = [style.binding] if style.binding else []
    if style.alias and style.alias in text:
        test = f"{style.rank} == 0"
        if style.maybe(0.2):
            test = f"not {style.op('is_initialized')}() or {test}"
        lines.append(f"{style.alias} = {test}")
    if "group=group" in text:
        lines.append(f"group = {style.op('new_group')}([0])")
    for name, line in (
        ("grads", "grads = make_grads()"),
        ("stats", "stats = make_stats()"),
        ("items", "items = make_items()"),
        ("history", "history = []"),
        ("objects", "objects = [args.path]"),
        ("found", "found = []"),
        ("parts", "parts = []"),
        ("start", "start = time.time()"),
    ):
        if f"{name})" in text or f"{name}," in text or f"{name}." in text or f"{name}[" in text or f"- {name}" in text:
            lines.append(line)
    return lines


def _head(style: Style, grammar: Grammar, main: list[str]) -> list[str]:
    helpers = [line for function in grammar.helpers.values() for line in ["", "", *function]]
    text = "\n".join([*helpers, *main])
    lines = [f"import {name}" for name in _MODULES if f"{name}." in text or (name == "logging" and "log." in text)]
    lines += style.imports
    if style.used:
        lines.append(f"from torch.distributed import {', '.join(sorted(style.used))}")
    if "@rank_zero_only" in text:
        lines.append("from lightning.pytorch.utilities import rank_zero_only")
    needs_grads = "grads" in "\n".join(helpers)
    makers = [f"make_{n}" for n in ("args", "grads", "items", "loader", "model", "stats")]
    makers = [m for m in makers if m in text or (needs_grads and m == "make_grads")]
    if makers:
        lines.append(f"from common import {', '.join(makers)}")
    lines += ["", *(["log = logging.getLogger(__name__)"] if "log." in text else [])]
    if style.accelerate:
        lines.append("accelerator = Accelerator()")
    if needs_grads:
        lines.append("grads = make_grads()")
    return [*lines, *helpers, "", ""]


def _main(style: Style, body: list[str]) -> list[str]:
    lines = [*_prepared(style, body), *body]
    if style.shape == "module":
        return ["args = make_args()", "model = make_model()", "loader = make_loader()", *lines]
    if style.shape == "function":
        return [f"def main({', '.join(style.takes)}):", *indent(lines)]
    start = ["self.args = args", *([f"self.rank = {style.op('get_rank')}()"] if style.rank == "self.rank" else [])]
    return [
        "class Runner:",
        "    def __init__(self, args):",
        *indent(indent(start)),
        "",
        "    def run(self, args, model, loader):",
        *indent(indent(lines)),
        "",
        "",
        "def main(args, model, loader):",
        "    Runner(args).run(args, model, loader)",
    ]
