"""Draws typed expressions that never fail: the words of random programs.

A template is text with typed holes: `scale(<int>, by=<int>)`. Families of constructs add templates of what they define.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

INT, STR, FLOAT, BOOL, INTS, STRS, DICT, SET, TENSOR = (
    "int",
    "str",
    "float",
    "bool",
    "ints",
    "strs",
    "dict",
    "set",
    "tensor",
)
HOLE = re.compile(r"<(int|str|float|bool|ints|strs|dict|set|tensor|name:\w+)>")
LITERALS: dict[str, tuple[str, ...]] = {
    INT: ("0", "1", "2", "3", "5", "7", "10", "-1", "64"),
    STR: ("'a'", "'train'", "'eval'", "'x-y'", "'lr'", "''", "'model'"),
    FLOAT: ("0.0", "0.5", "1.5", "1e-3", "2.0"),
    BOOL: ("True", "False"),
    INTS: ("[]", "[1, 2, 3]", "[4]", "[3, 1, 2]", "list(range(4))"),
    STRS: ("['a', 'b']", "[]", "['lr', 'wd', 'lr']", "'p q r'.split()"),
    DICT: ("{}", "{'a': 1, 'b': 2}", "{'lr': 3}", "dict(a=1, c=4)"),
    SET: ("{1, 2, 3}", "set()", "{2, 5}"),
    TENSOR: ("torch.zeros(2)", "torch.ones(2)", "torch.tensor([1.0, 2.0])"),
}
# What builtins make of typed parts. Every form is total: no index out of range, no division by zero.
FORMS: dict[str, tuple[str, ...]] = {
    INT: (
        "(<int> + <int>)",
        "(<int> - <int>)",
        "(<int> * <int> % 97)",
        "<int> // (abs(<int>) + 1)",
        "<int> % (abs(<int>) + 1)",
        "-<int>",
        "(<int> & 15 | 1)",
        "(abs(<int>) % 5) ** 2",
        "len(<ints>)",
        "len(<str>)",
        "len(<dict>)",
        "sum(<ints>)",
        "max(<ints>, default=0)",
        "min([*<ints>, <int>])",
        "max(<int>, <int>)",
        "abs(<int>)",
        "int(<bool>)",
        "(<int> if <bool> else <int>)",
        "<dict>.get('a', <int>)",
        "<dict>.get(<str>, 0)",
        "(<ints> or [0])[0]",
        "(<ints> + [1])[-1]",
        "[<int>, <int>, <int>][<int> % 3]",
        "(<int>, <int>)[1]",
        "<str>.count('a')",
        "divmod(<int>, 7)[1]",
        "sum(v * 2 for v in <ints> if v != <int>)",
        "len([k for k, v in <dict>.items() if v > <int>])",
        "sum(1 for _ in <strs>)",
        "(lambda p, q=2: p + q)(<int>)",
        "int(str(abs(<int>) % 10))",
        "(<int> or <int>)",
        "(<int> and <int>)",
        "len(<set> | <set>)",
        "next(iter(<ints>), <int>)",
        "functools.reduce(lambda p, q: (p + q) % 31, <ints>, 1)",
        "round(<float>)",
    ),
    STR: (
        "(<str> + <str>)[:12]",
        "<str>.upper()",
        "<str>.strip('-').lower()",
        "<str>[:3]",
        "<str>[::-1]",
        "<str>.replace('a', 'b')",
        "str(<int>)",
        "'-'.join(<strs>)",
        "', '.join(str(v) for v in <ints>)",
        "('%d:%s' % (<int>, <str>))",
        "'{}/{}'.format(<int>, <str>)",
        "(<str> if <bool> else <str>)",
        "(<str> or 'none')",
        "<str>.split('-')[0]",
        "repr(<int>)",
        "type(<int>).__name__",
        "f'{<name:int>:>3}'",
        "f'{<name:int>}-{<name:str>!r}'",
        "f'step{<name:int> + 1}'",
        "'-'.join(sorted(<dict>))",
        "os.path.join('out', <str>.strip('/') or 'x')",
        "<str>.partition('-')[2]",
        "<str>.title().zfill(4)",
    ),
    FLOAT: ("float(<int>)", "(<float> + <float>) / 2", "<int> / 4", "round(<float>, 3)", "<int> * 0.5"),
    BOOL: (
        "<int> < <int>",
        "<int> == <int>",
        "(<int> < <int> <= <int>)",
        "<int> in <ints>",
        "<str> not in <strs>",
        "not <bool>",
        "(<bool> and <bool>)",
        "(<bool> or <int> > 2)",
        "bool(<ints>)",
        "<str>.startswith('t')",
        "<str> == <str>",
        "isinstance(<int>, (int, str))",
        "any(v > <int> for v in <ints>)",
        "all(v < 9 for v in <ints>)",
        "'a' in <dict>",
        "(<int> % 2 == 0) is True",
        "<float> >= <float>",
        "<str>.isdigit()",
        "hasattr(<str>, 'upper')",
        "<ints> != <ints>",
    ),
    INTS: (
        "[<int>, <int>]",
        "[*<ints>, <int>][:6]",
        "(<ints> + <ints>)[:6]",
        "<ints>[1:]",
        "<ints>[::-1]",
        "[v + <int> for v in <ints>]",
        "[v for v in <ints> if v % 2 == 0 or v > <int>]",
        "[i * v for i, v in enumerate(<ints>)]",
        "[p - q for p, q in zip(<ints>, <ints>)]",
        "[p + q for p in <ints>[:2] for q in <ints>[:2]]",
        "sorted(<ints>)",
        "sorted(<ints>, key=lambda v: -v)",
        "list(map(lambda v: v % 5, <ints>))",
        "list(filter(None, <ints>))",
        "list(reversed(<ints>))",
        "list(range(<int> % 4))",
        "list(<dict>.values())",
        "sorted(<set>)",
        "[len(w) for w in <strs>]",
        "[(lambda w: w * 2)(v) for v in <ints>]",
        "[v for row in [<ints>, <ints>] for v in row][:6]",
    ),
    STRS: (
        "[<str>, <str>]",
        "list(<dict>)",
        "[w.upper() for w in <strs>]",
        "sorted(<strs>, key=len)",
        "(<strs> + [<str>])[:5]",
        "[f'{w}{i}' for i, w in enumerate(<strs>)]",
        "<str>.split('-')",
        "list(dict.fromkeys(<strs>))",
        "[str(v) for v in <ints>]",
    ),
    DICT: (
        "{**<dict>, 'k': <int>}",
        "{w: len(w) for w in <strs>}",
        "dict(zip(<strs>, <ints>))",
        "{k: v + 1 for k, v in <dict>.items()}",
        "dict(a=<int>, b=<int>)",
        "{'x': <int>, <str>: <int>}",
        "dict(sorted(<dict>.items()))",
    ),
    SET: ("{<int>, <int>}", "set(<ints>)", "<set> - <set>", "{v % 3 for v in <ints>}", "<set> & <set> | {1}"),
    TENSOR: (
        "(<tensor> * 2)",
        "(<tensor> + <tensor>)",
        "torch.tensor([float(<int>), 1.0])",
        "torch.full((2,), <float>)",
    ),
}


@dataclass
class Scope:
    """Names that are certainly bound here, by type."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def child(self) -> Scope:
        return Scope({kind: list(names) for kind, names in self.names.items()})

    def add(self, kind: str, name: str) -> None:
        for names in self.names.values():
            if name in names:
                names.remove(name)
        self.names.setdefault(kind, []).append(name)

    def of(self, kind: str) -> list[str]:
        return self.names.get(kind, [])

    def drop(self, name: str) -> None:
        for names in self.names.values():
            if name in names:
                names.remove(name)


class Words:
    """Draws expressions. `templates` are calls of what the program defines."""

    def __init__(self, rng: random.Random, *, own_share: float = 0.3) -> None:
        self.rng, self.own_share = rng, own_share
        self.templates: dict[str, list[str]] = {}
        self._pending: list[tuple[str, str]] = []
        self._names = 0

    def pick(self, options: tuple[str, ...] | list[str]) -> str:
        return self.rng.choice(options)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def fresh(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def define(self, kind: str, template: str) -> None:
        """The program has something of type `kind` to call, once the definition that is being written is complete."""
        self._pending.append((kind, template))

    def publish(self) -> None:
        """What was defined may be called from now on: definitions never call themselves by accident."""
        for kind, template in self._pending:
            self.templates.setdefault(kind, []).append(template)
        self._pending.clear()

    def expr(self, kind: str, scope: Scope, depth: int = 2) -> str:
        """An expression of type `kind` over the names of `scope`."""
        names, roll = scope.of(kind), self.rng.random()
        if depth > 0 and roll < self.own_share and self.templates.get(kind):
            return self.fill(self.pick(self.templates[kind]), scope, depth - 1)
        if depth > 0 and roll < 0.75:
            return self.fill(self.pick(FORMS[kind]), scope, depth - 1)
        if names and self.maybe(0.8):
            return self.pick(names)
        return self._literal(kind)

    def _literal(self, kind: str) -> str:
        text = self.pick(LITERALS[kind])
        return f"({text})" if text.startswith("-") else text

    def fill(self, template: str, scope: Scope, depth: int = 1) -> str:
        """Put expressions into the holes of a template (`<name:int>`: only a name will do)."""

        def one(found: re.Match[str]) -> str:
            kind = found[1]
            if kind.startswith("name:"):
                names = scope.of(kind[5:])
                return self.pick(names) if names else "__name__" if kind == "name:str" else "7"
            return self.expr(kind, scope, depth)

        return HOLE.sub(one, template)


Lines = list[str]
Maker = Callable[..., Lines]


def indent(lines: Lines) -> Lines:
    return [f"    {line}" if line else "" for line in lines]
