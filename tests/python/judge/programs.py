"""Seeded random programs that end: `program(seed)` draws definitions of some families, and a main part."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from . import idioms
from .families import BASIC, Family
from .more_families import MORE
from .statements import Place, Statements
from .writing import BOOL, INT, STR, TENSOR, Lines, Scope, Words, indent

IMPORTS = [
    "import argparse",
    "import collections",
    "import contextlib",
    "import dataclasses",
    "import enum",
    "import functools",
    "import os",
    "import sys",
    "import typing",
]
FAMILIES: dict[str, Family] = {**BASIC, **MORE}
# What `program(seed, family=...)` understands: one family of constructs, only statements, or distributed idioms.
ALL = (*FAMILIES, "statements", "distributed")


@dataclass(frozen=True)
class Program:
    """Files, and how to launch them."""

    seed: int
    files: dict[str, str]
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    families: tuple[str, ...]

    @property
    def lines(self) -> int:
        return sum(len(text.splitlines()) for text in self.files.values())


def program(seed: int, family: str | None = None, *, small: bool = False) -> Program:
    """The program of this seed. With `family`, of that family of constructs alone."""
    rng = random.Random(f"{seed}:{family}")
    words = Words(rng)
    s = Statements(words)
    top = Scope()
    is_distributed = family == "distributed" or (family is None and rng.random() < 0.7)
    chosen = _chosen(rng, family, small)
    split = rng.randrange(len(chosen) + 1) if family is None and rng.random() < 0.5 else 0
    parts = [_written(FAMILIES[name], s, top) for name in chosen[:split]]
    second = "\n".join(line for part in parts for line in part)
    files, header = _second_module(words, second) if second else ({}, [])
    lines: Lines = []
    for name in chosen[split:]:
        lines += _written(FAMILIES[name], s, top)
    if is_distributed:
        lines += _written(idioms.helpers, s, top)
        if rng.random() < 0.4:
            lines += _written(idioms.training, s, top)
            chosen.append("training")
        chosen.append("distributed")
    imports = [*IMPORTS, *(["import torch", "import torch.distributed as dist"] if is_distributed else []), *header]
    lines += _main(s, top, is_distributed, small)
    files["main.py"] = "\n".join([*imports, *lines]) + "\n"
    return Program(seed, files, _argv(rng), _env(rng), tuple(chosen))


def _written(family: Family, s: Statements, top: Scope) -> Lines:
    lines = family(s, top)
    s.words.publish()
    return lines


def _chosen(rng: random.Random, family: str | None, small: bool) -> list[str]:
    if family in FAMILIES:
        return [family]
    if family is not None:
        return []
    return rng.sample(list(FAMILIES), rng.randrange(1, 3) if small else rng.randrange(1, 4))


def _argv(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(((), ("--steps", "4"), ("--debug", "--name", "run"), ("--sizes", "1", "2", "--steps=2")))


def _env(rng: random.Random) -> tuple[tuple[str, str], ...]:
    return rng.choice(((), (("MY_STEPS", "3"),), (("MODE", "eval"), ("DEBUG", "1")), (("MY_STEPS", "many"),)))


def _main(s: Statements, top: Scope, is_distributed: bool, small: bool) -> Lines:
    """Statements of the module, `main()` with its body, and the guard that calls it."""
    words, rng = s.words, s.words.rng
    scope = top.child()
    before: Lines = []
    if rng.random() < 0.3:
        before += _plain(s, scope)
    body = ["dist.init_process_group('gloo')", "rank = dist.get_rank()"] if is_distributed else []
    if is_distributed:
        body.append("t = torch.tensor([float(rank), 1.0])")
        scope.add(INT, "rank")
        scope.add(TENSOR, "t")
    inner = scope.child()
    for kind in (INT, STR, BOOL):
        name = words.fresh("a")
        body.append(f"{name} = {words.expr(kind, inner)}")
        inner.add(kind, name)
    # A name that the body assigns is local: what the module binds is not read there under the same name.
    local = Scope({k: [n for n in names if not _bound(before, n)] for k, names in inner.names.items()})
    body += s.block(local, Place(rng.choice((1, 2, 2)), in_function=INT), rng.randrange(3, 6 if small else 11))
    body += [f"return {words.expr(INT, local)}"]
    ends = ["print('result', main())", "sys.exit(main() % 2)", "main()"]
    return [*before, "def main():", *indent(body), "if __name__ == '__main__':", f"    {rng.choice(ends)}"]


def _plain(s: Statements, scope: Scope) -> Lines:
    """Statements at the top of the module (before the job has a process group)."""
    own, s.own = s.own, []
    all_templates, s.words.templates = s.words.templates, {}
    lines = s.block(scope, Place(1), s.words.rng.randrange(1, 4))
    s.own, s.words.templates = own, all_templates
    return lines


def _bound(lines: Lines, name: str) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", line) for line in lines)


def _defined(text: str) -> list[str]:
    """Names that a module binds at its top."""
    found = re.findall(r"^(?:def|class) (\w+)|^(\w+)(?:: \w+)? = ", text, re.MULTILINE)
    return list(dict.fromkeys(a or b for a, b in found))


def _second_module(words: Words, text: str) -> tuple[dict[str, str], Lines]:
    """Put `text` into a second file; templates then name its parts as main.py imports them."""
    names, rng = _defined(text), words.rng
    text = "\n".join([*IMPORTS, text]) + "\n"
    form = rng.randrange(6)
    if form == 0:
        return {"helpers.py": text}, [f"from helpers import {', '.join(names)}"]
    if form == 1:
        return {"helpers.py": text}, ["from helpers import *"]
    if form == 2:
        _rename(words, {n: f"helpers.{n}" for n in names})
        return {"helpers.py": text}, ["import helpers"]
    if form == 3:
        _rename(words, {n: f"lib.{n}" for n in names})
        return {"pkg/__init__.py": "", "pkg/tools.py": text}, ["import pkg.tools as lib"]
    if form == 4:
        exported = f"from .tools import {', '.join(names)}\n__all__ = {names!r}\n"
        return {"pkg/__init__.py": exported, "pkg/tools.py": text}, ["from pkg import *"]
    aliases = {n: f"{n}_x" for n in names}
    _rename(words, aliases)
    listed = ", ".join(f"{n} as {alias}" for n, alias in aliases.items())
    return {"pkg/__init__.py": "", "pkg/tools.py": text}, [f"from pkg.tools import {listed}"]


def _rename(words: Words, names: dict[str, str]) -> None:
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    for kind, texts in words.templates.items():
        words.templates[kind] = [pattern.sub(lambda found: names[found[1]], text) for text in texts]
