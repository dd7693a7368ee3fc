"""**What.** `add_argument("--local_rank")` without `type=int`, where the script uses the value as a number.

**Why it hurts.** The launcher passes `--local_rank=0`, and argparse keeps the text `"0"`. A text is never equal to a
number: `args.local_rank == 0` is false on every rank, so nobody saves and nobody logs; `args.local_rank in (-1, 0)` and
`args.local_rank != -1` are wrong in the same way, silently. `torch.cuda.set_device` refuses a text.

**Fix.** `type=int`. The safe fix appends it.

**When it stays quiet.** When the script reads the value only through `int(...)` or as text, as in
`f"cuda:{args.local_rank}"`, compares it with a text somewhere, or never reads it; arguments with a `type` or an
`action`.

**Evidence.** Two processes with `--local_rank=0` and `--local_rank=1`: as written no rank believes it is the main
one, with `type=int` exactly one does. Python `argparse`: "by default, the parser reads command-line arguments in as
simple strings".
"""

from __future__ import annotations

import ast
import re

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.parse import cst
from dslint.python.names import is_nothing
from dslint.rules.argparsing import declarations
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

_SETTLED = re.compile(rb"\b(?:type|action)\s*=")
_RANK = re.compile(rb"[\"']--(?:local[-_]|global[-_]|node[-_])?rank[\"']")
_WRITTEN = re.compile(rb"\s*[rbu]?[\"']|\s*$|\s*#")
_NAMES = frozenset({"local_rank", "global_rank", "node_rank", "rank"})

META = RuleMeta(
    code="DSL252",
    name="arg-missing-type",
    kind="script",
    severity=Severity.ERROR,
    summary="A rank argument without `type=int` is a text, and is compared with numbers",
    fix="safe",
    markers=(r"add_argument", r"rank"),
    references=("https://docs.python.org/3/library/argparse.html#type",),
)

_HEAD = "import argparse\n\nparser = argparse.ArgumentParser()\n"
_BARE = 'parser.add_argument("--local_rank", default=-1)\n'
_TYPED = 'parser.add_argument("--local_rank", default=-1, type=int)\n'
_SAVE = "args = parser.parse_args()\nif args.local_rank in (-1, 0):\n    print('saved')\n"

EXAMPLES = (
    bad(
        "the main rank is never found",
        {"train.py": _HEAD + _BARE + _SAVE},
        at="train.py:4 error",
        fixed={"train.py": _HEAD + _TYPED + _SAVE},
    ),
    bad(
        "the device is a text",
        {
            "train.py": "import argparse\n\nimport torch\n\n\ndef main():\n"
            "    parser = argparse.ArgumentParser()\n"
            "    parser.add_argument('--local-rank', '--local_rank')\n"
            "    args = parser.parse_args()\n"
            "    torch.cuda.set_device(args.local_rank)\n"
        },
        at="train.py:8",
        fixed={
            "train.py": "import argparse\n\nimport torch\n\n\ndef main():\n"
            "    parser = argparse.ArgumentParser()\n"
            "    parser.add_argument('--local-rank', '--local_rank', type=int)\n"
            "    args = parser.parse_args()\n"
            "    torch.cuda.set_device(args.local_rank)\n"
        },
    ),
    bad(
        "a text is true, also that of rank 0",
        {"train.py": _HEAD + _BARE + "args = parser.parse_args()\nif not args.local_rank:\n    print('main')\n"},
        at="train.py:4",
    ),
    bad(
        "parsed by a function of the file",
        {
            "train.py": "import argparse\n\n\ndef read():\n    parser = argparse.ArgumentParser()\n"
            "    parser.add_argument('-r', '--local_rank', default=0)\n    return parser.parse_args()\n\n\n"
            "args = read()\nprint(args.local_rank == 0)\n"
        },
        at="train.py:6",
    ),
    good(
        "the rank of another object",
        {
            "train.py": _HEAD
            + _BARE
            + "args = parser.parse_args()\nengine = make_engine(args)\nprint(engine.local_rank == 0)\n"
        },
    ),
    good("with its type", {"train.py": _HEAD + _TYPED + _SAVE}),
    good(
        "converted where it is read",
        {"train.py": _HEAD + _BARE + "args = parser.parse_args()\nif int(args.local_rank) == 0:\n    print('main')\n"},
    ),
    good(
        "used as a text",
        {"train.py": _HEAD + _BARE + "args = parser.parse_args()\nprint(f'cuda:{args.local_rank}')\n"},
    ),
    good(
        "compared with a text",
        {"train.py": _HEAD + _BARE + "args = parser.parse_args()\nif args.local_rank == '0':\n    print('main')\n"},
    ),
    good("declared for the launcher only", {"train.py": _HEAD + _BARE + "args = parser.parse_args()\n"}),
    good(
        "replaced by what the environment says",
        {
            "train.py": "import argparse\nimport os\n\nparser = argparse.ArgumentParser()\n"
            + _BARE
            + "args = parser.parse_args()\nargs.local_rank = int(os.environ['LOCAL_RANK'])\n"
            "if args.local_rank == 0:\n    print('main')\n"
        },
    ),
)


def applies(_: str, context: Context, raw: bytes) -> bool:
    """Some declaration may be of a rank, and has neither type nor action."""
    return context.vocabulary.stands_in(raw) or any(map(_may_be_bare, declarations(raw)))


def _may_be_bare(text: bytes) -> bool:
    return _SETTLED.search(text) is None and (_RANK.search(text) is not None or _WRITTEN.match(text) is None)


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


class Check(ScriptCheck):
    """Looks at declarations of ranks, and at how the values are read."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where a number is read from an argument that is a text."""
        if self.ctx.called(node) != "add_argument" or self.ctx.has_unpacked_arguments(node):
            return
        flags = [self.ctx.constant(value).get_or("") for value in self.ctx.positional_arguments(node)]
        dest = next((_dest(flag) for flag in flags if isinstance(flag, str) and flag.startswith("--")), "")
        if dest not in _NAMES or self.ctx.argument_names(node) & {"type", "action", "dest", "nargs", "choices"}:
            return
        use = self._numeric_use(dest)
        if use is None:
            return
        self.report(
            node,
            f'`--{dest}` has no `type` but is used as a number: `"0" == 0` is false, and no rank is the main one',
            hint="Add `type=int`",
            related=(self.ctx.location(use, "used as a number here"),),
            fix=self._fix(node),
        )

    def _numeric_use(self, name: str) -> cst.CSTNode | None:
        """The first place that takes ``args.<name>`` for a number, when no place takes or makes it otherwise."""
        found: cst.CSTNode | None = None
        for node in self.ctx.tree.order:
            if not isinstance(node, cst.Attribute) or node.attr.value != name or not isinstance(node.value, cst.Name):
                continue
            if not self._is_parsed(node.value):
                continue
            parent = self.ctx.parent(node)
            if isinstance(parent, cst.AssignTarget):
                return None
            use = self._use(node, parent)
            if use == "text":
                return None
            found = found or (node if use == "number" else None)
        return found

    def _is_parsed(self, owner: cst.Name) -> bool:
        """The object may be what the parser returns: a variable that holds it, or a parameter."""
        names, name = self.ctx.bindings, self.ctx.plain(owner)
        if not isinstance(name, ast.Name):
            return False
        found = [b for b in names.bindings(name) if b.kind != "parameter" and not is_nothing(b.value)]
        made = [names.behind(b.value) if b.value is not None else None for b in found]
        return all(isinstance(value, ast.Call) and self._parses(value) for value in made)

    def _parses(self, call: ast.Call) -> bool:
        """``parser.parse_args()``, or a function of this file that holds it."""
        function = self.ctx.bindings.definition(call.func)
        calls = (n for n in ast.walk(function or call) if isinstance(n, ast.Call))
        return any(self.ctx.bindings.called(n).startswith("parse_") for n in calls)

    def _use(self, node: cst.Attribute, parent: cst.CSTNode | None) -> str:
        if isinstance(parent, cst.ComparisonTarget):
            owner = self.ctx.parent(parent)
            return self._compared(owner, node) if isinstance(owner, cst.Comparison) else ""
        if isinstance(parent, cst.Comparison):
            return self._compared(parent, node)
        if isinstance(parent, cst.If | cst.IfExp) and parent.test is node:
            return "number"
        if isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Not):
            return "number"
        call = self.ctx.parent(parent) if isinstance(parent, cst.Arg) else None
        if isinstance(call, cst.Call):
            is_device = self.ctx.called(call) == "set_device" or (
                self.ctx.qualified_name(call.func) == "torch.device" and len(call.args) == 2 and call.args[1] is parent
            )
            return "number" if is_device else ""
        return ""

    def _compared(self, comparison: cst.Comparison, node: cst.Attribute) -> str:
        sides = [comparison.left, *(part.comparator for part in comparison.comparisons)]
        values = [self.ctx.constant(side).get_or(None) for side in sides if side is not node]
        flat_values = [v for value in values for v in (value if isinstance(value, list | tuple) else (value,))]
        if any(isinstance(value, str) for value in flat_values):
            return "text"
        return "number" if any(isinstance(value, int) for value in flat_values) else ""

    def _fix(self, node: cst.Call) -> Fix:
        end = self.ctx.span(node.args[-1].value).end
        return Fix("Read the argument as an integer", (Edit(self.ctx.doc.path, Span(end, end), ", type=int"),))
