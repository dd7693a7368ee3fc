"""What is read of generated programs, against what Python itself hands over when it runs them."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import types
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.model.embedded.document import DocumentMaker
from dslint.model.embedded.python import readings
from dslint.parse.data import DataDoc

_KEYS = ["stage", "a", "b", "zero_optimization"]
_NAMES = ["c", "d", "ds_config"]


class _Writer:
    """Writes a program of assignments, changes, branches, loops and functions, from one random source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.functions: list[str] = []

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def value(self, depth: int = 0) -> str:
        if depth < 2 and self.rng.random() < 0.4:
            inner = ", ".join(self.entry(depth + 1) for _ in range(self.rng.randint(0, 3)))
            return self.pick("{%s}", "{%s}", "dict({%s})") % inner
        name = self.pick(*_NAMES)
        return self.pick(
            "1",
            "2",
            "True",
            "'x'",
            "None",
            "N",
            "N + 1",
            "flip()",
            f"1 if flip() else {self.rng.randint(1, 2)}",
            f"{name}.get('stage')",
            f"{name}.get('a', 3)",
            f"dict({name})",
            f"copy.deepcopy({name})",
            name,
            "(1, 2)",
            f"make({self.pick('1', 'flip()')})",
            f"{{**{name}, 'b': 2}}",
            f"{{'b': 2, **{name}}}",
            f"{name} | {{'a': 1}}",
        )

    def entry(self, depth: int) -> str:
        if self.rng.random() < 0.1:
            return f"{self.pick('key()', 'flip()')}: {self.value(depth)}"
        return f"'{self.pick(*_KEYS)}': {self.value(depth)}"

    def place(self) -> str:
        name, key = self.pick(*_NAMES), self.pick(*_KEYS)
        return self.pick(f"{name}['{key}']", f"{name}['zero_optimization']['{key}']", f"{name}[key()]")

    def statement(self, depth: int) -> list[str]:
        name, key = self.pick(*_NAMES), self.pick(*_KEYS)
        kind = self.rng.random()
        if kind < 0.3 or depth > 2:
            return [
                self.pick(
                    f"{self.place()} = {self.value()}",
                    f"{name} = {self.value()}",
                    f"{name}.update({self.value()})",
                    f"{name}.update({key}={self.value()})",
                    f"{name} |= {self.value()}",
                    f"del {self.place()}",
                    f"{name}.pop('{key}', None)",
                    f"{name}.setdefault('{key}', {self.value()})",
                    f"adapt({name})",
                    f"other({name})",
                    f"{name}.clear()",
                    f"{self.pick(*_NAMES)} = {name}",
                    f"print({name})",
                    f"{name} = {name}['zero_optimization']",
                    f"{name}, _ = {name}, 1",
                    f"holder.x = {name}",
                    "touch()",
                    f"{name} = make_two({name})",
                    f"holder.take({name})",
                )
            ]
        body = [f"    {line}" for _ in range(self.rng.randint(1, 3)) for line in self.statement(depth + 1)]
        if kind < 0.6:
            other = [f"    {line}" for line in self.statement(depth + 1)]
            return [f"if {self.pick('flip()', 'flip()', 'N == 2', 'N')}:", *body, "else:", *other]
        if kind < 0.75:
            end = [f"    if flip(): {self.pick('break', 'continue')}"] if self.rng.random() < 0.5 else []
            return [f"for i in {self.pick('range(2)', 'range(0)', '(1,)')}:", *end, *body]
        if kind < 0.9:
            return [
                "try:",
                *body,
                "    fail()",
                "except KeyError:",
                "    c = {'b': 1}",
                "except Exception:",
                "    pass",
            ]
        return [f"with open_({name}) as d:", *body]

    def program(self) -> str:
        lines = ["c = {'stage': 1}", "d = {'a': 1, 'zero_optimization': {'stage': 2}}", "ds_config = {'b': {}}"]
        for _ in range(self.rng.randint(1, 6)):
            lines += self.statement(0)
        lines += [self.pick("touch()", "adapt(SHARED)", "c['b'] = 5"), f"read({self.pick('SHARED', *_NAMES)})"]
        main = "\n".join(f"    {line}" for line in lines)
        # Calls of itself inside of `try` never end.
        helper = "\n".join(f"    {line}" for line in self.statement(2)).replace("adapt(", "other(")
        return (
            "import copy\nimport deepspeed\nfrom world import flip, key, fail, other, holder, open_\nN = 2\n"
            "SHARED = {'stage': 1, 'zero_optimization': {'stage': 1}}\n\n"
            "def make(stage):\n    zero = {'stage': stage}\n    return {'zero_optimization': zero}\n\n"
            f"def adapt(c):\n    d, ds_config = c, SHARED\n{helper}\n\n"
            "def touch():\n    SHARED['stage'] = 3\n\n"
            "def make_two(c):\n    if flip():\n        return c\n    return {'stage': 2, 'zero_optimization': c}\n\n"
            "def read(config):\n    config['b'] = flip()\n    deepspeed.initialize(config=config)\n\n"
            f"def main():\n{main}\n\nmain()\n"
        )


_CLASSES = """\
import copy
import json
from dataclasses import asdict, dataclass, field
import deepspeed
from world import flip, key, fail, other, holder, open_
N = 2
TABLE = {'a': 1, 'b': {'stage': 2}}

@dataclass
class Zero:
    stage: int = 2
    a: object = None

@dataclass
class Config:
    b: int = 8
    zero_optimization: Zero = field(default_factory=Zero)

def make(stage=1, *, a=None, **more):
    return {'stage': stage, 'zero_optimization': {'a': a}, **more}

class Trainer:
    defaults = {'b': 1}

    def __init__(self, stage=2, **more):
        self.config = {'stage': stage, 'zero_optimization': dict(self.defaults), **more}

    def set(self, name, value):
        self.config[name] = value
        return self

    def zero(self, **changes):
        self.config['zero_optimization'].update(changes)

    def build(self):
        deepspeed.initialize(config=self.config)

"""


class _ObjectsWriter(_Writer):
    """Writes programs whose configs come from objects, functions with defaults, tables, comprehensions and copies."""

    def value(self, depth: int = 0) -> str:
        if depth > 1:
            return super().value(2)
        key, name = self.pick(*_KEYS), self.pick("c", "d")
        inner = self.value(depth + 1)
        return self.pick(
            super().value(depth),
            f"make({self.pick('', '3', 'flip()')})",
            f"make(a={inner}, b={inner})",
            f"make(**{{'b': {inner}}})",
            f"make(**TABLE) if flip() else make({inner})",
            f"asdict(Config({self.pick('', 'b=flip()', 'zero_optimization=Zero(3)')}))",
            f'json.loads(\'{{"{key}": {{"stage": 3, "a": [1, 2]}}}}\')',
            f"copy.deepcopy({self.pick('TABLE', name, 't.config')})",
            f"{{k: v for k, v in {self.pick('TABLE', name)}.items()}}",
            f"{{k: {inner} for k in ('a', '{key}')}}",
            f"[{{'stage': s}} for s in (1, 2)][{self.pick('0', '1')}]",
            "t.config",
            "Trainer(3, a=4).config",
        )

    def statement(self, depth: int) -> list[str]:
        name, key, value = self.pick("c", "d"), self.pick(*_KEYS), self.value()
        kind = self.rng.random()
        if kind < 0.4:
            return super().statement(2)
        if kind < 0.8 or depth > 1:
            return [
                self.pick(
                    f"t.set('{key}', {value})",
                    f"t.set(key(), {value}).set('{key}', 2)",
                    f"t.zero({key}={value})",
                    f"t.config = {name}",
                    f"u.zero({key}={value})",
                    f"u = Trainer({self.pick('', '1', 'flip()', 'a=2')})",
                    "Trainer.defaults['b'] = 3",
                    f"TABLE['{key}'] = {value}",
                    f"{name} = {value}",
                    f"{name}['{key}'] = {value}",
                )
            ]
        body = [f"    {line}" for line in self.statement(depth + 1)]
        head = self.pick("for k, v in TABLE.items():", "for k in ('a', 'b'):", "if flip():", "for i in range(2):")
        return [head, *body, f"    {name}[{'k' if head.startswith('for k') else repr(key)}] = {self.pick('1', name)}"]

    def program(self) -> str:
        lines = ["c, d, ds_config = {'stage': 1}, make(), {}", "t, u = Trainer(), Trainer(1, b={})"]
        for _ in range(self.rng.randint(1, 6)):
            lines += self.statement(0)
        lines.append(
            self.pick("t.build()", "u.build()", "deepspeed.initialize(config=c)", "deepspeed.initialize(config=d)")
        )
        main = "\n".join(f"    {line}" for line in lines)
        helpers = (
            "def adapt(c):\n    c['a'] = flip()\n\ndef touch():\n    TABLE['a'] = 5\n\n"
            "def make_two(c):\n    return c if flip() else make()\n\n"
        )
        return f"{_CLASSES}{helpers}def main():\n{main}\n\nmain()\n"


class _FailedError(Exception):
    pass


def run(text: str, rng: random.Random) -> list[Any]:
    """What the program hands to ``deepspeed.initialize`` when Python runs it."""
    handed: list[Any] = []

    def fail() -> None:
        if rng.random() < 0.5:
            raise _FailedError

    def other(c: Any) -> None:
        if isinstance(c, dict) and rng.random() < 0.7:
            c[rng.choice(_KEYS)] = rng.choice([7, {"stage": 7}])

    class Holder:
        x: Any = None

        def take(self, c: Any) -> None:
            other(c)
            other(self.x)

        def __enter__(self) -> Any:
            return {"stage": 9}

        def __exit__(self, *_: object) -> None:
            return None

    world = {
        "flip": lambda: rng.random() < 0.5,
        "key": lambda: rng.choice(_KEYS),
        "fail": fail,
        "other": other,
        "holder": Holder(),
        "open_": lambda _: Holder(),
    }
    library = types.SimpleNamespace(initialize=lambda config: handed.append(copy.deepcopy(config)))
    body = text.partition("N = 2\n")[2]
    names = {"copy": copy, "json": json, "deepspeed": library, "print": lambda *_: None, "N": 2, **world}
    names |= {"dataclass": dataclasses.dataclass, "asdict": dataclasses.asdict, "field": dataclasses.field}
    names["__name__"] = "__main__"
    # Where the program ends early, what it handed over until then counts.
    with suppress(_FailedError, KeyError, TypeError, AttributeError, ValueError, RuntimeError):
        exec(compile(body, "program", "exec"), names)  # noqa: S102 - the program is our own
    return [config for config in handed if isinstance(config, dict)]


def contradiction(doc: DataDoc, config: dict[str, Any]) -> str:
    """Where the document says something that is not so; empty where it agrees."""
    pending: list[tuple[str, Any]] = [("", config)]
    while pending:
        pointer, at = pending.pop()
        if pointer.count("/") > 8:
            continue
        for key in {*_KEYS, *at}:
            if not isinstance(key, str):
                continue
            inner = f"{pointer}/{key}"
            fact = doc.fact(inner)
            value = at.get(key)
            if fact.is_absent and key in at:
                return f"{inner} is {value!r}, not absent"
            if not fact.is_known:
                continue
            if key not in at:
                return f"{inner} is missing, not {fact.get()!r}"
            if isinstance(fact.get(), dict) and isinstance(value, dict):
                pending.append((inner, value))
            elif repr(list(fact.get()) if isinstance(fact.get(), list) else fact.get()) != repr(
                list(value) if isinstance(value, tuple) else value
            ):
                return f"{inner} is {value!r}, not {fact.get()!r}"
    return ""


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_known_that_is_not_so(seed: int) -> None:
    _judge(_Writer(random.Random(seed)).program(), seed)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_known_that_is_not_so_of_objects_tables_and_copies(seed: int) -> None:
    _judge(_ObjectsWriter(random.Random(seed)).program(), seed)


def _judge(text: str, seed: int) -> None:
    read = readings(text)
    assert read is not None
    module, found = read
    maker = DocumentMaker(module, module.source)
    taken = [r.handed.dictionary for r in found if r.handed.reader == "deepspeed"]
    docs = [d for state in taken if (d := maker.document(state, "deepspeed")) is not None]
    if len(docs) < len(taken) or not docs or any(r.handed.may for r in found if r.handed.reader == "deepspeed"):
        return  # of some of the dicts nothing is known
    for turn in range(4):
        for config in run(text, random.Random(seed + turn)):
            said = [contradiction(doc, config) for doc in docs]
            assert "" in said, f"{text}\n{config}\n{said}"
