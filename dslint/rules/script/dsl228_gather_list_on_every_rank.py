"""**What.** `dist.gather(tensor, gather_list=parts, dst=0)` (or `gather_object`, or `scatter` with `scatter_list=`) is
called by every rank with a list, where only the destination (of `scatter`: the source) may pass one.

**Why it hurts.** Every other rank raises `ValueError: Argument gather_list must NOT be specified on non-destination
ranks`, and the destination waits for them.

**Fix.** `gather_list=parts if dist.get_rank() == 0 else None`. The safe fix writes that where the destination and the
spelling of `get_rank` are plain.

**When it stays quiet.** The call stands behind a test of any kind, or its function is called behind a rank test; the
list is made by a condition, is `None` on some path, is empty, or comes from elsewhere; the destination is computed from
the rank; `scatter_object_list`, which ignores the list of the other ranks.

**Evidence.** torch 2.13 `distributed_c10d._validate_output_list_for_rank` and `scatter`. Two gloo ranks: rank 1 raises
for `gather`, `gather_object` and `scatter`; with `None` there all three pass.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL228",
    name="gather-list-on-every-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="Ranks other than the destination pass a list to `gather`",
    fix="safe",
    markers=(r"er(?:_object)?\(", r"\b(?:gather|gather_object|scatter)\(", r"distributed|deepspeed", r"\[|list"),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.gather",),
)

# The name of the list, and of the rank that may pass it; the list is the second argument, the rank the third.
_CALLS = {
    "gather": ("gather_list", "dst"),
    "gather_object": ("object_gather_list", "dst"),
    "scatter": ("scatter_list", "src"),
}
_ROOTS = ("torch.distributed.", "torch.distributed.distributed_c10d.", "deepspeed.comm.")


def precheck(tree: ast.Module) -> bool:
    """A list is passed to one of the calls."""
    nodes = flat(tree)
    names = {name for name, _ in _CALLS.values()}
    given = [
        value
        for call in nodes.nodes(ast.Call)
        if call_name(call) in _CALLS
        for value in (*call.args[1:2], *(k.value for k in call.keywords if k.arg in names))
    ]
    if any(isinstance(value, _LISTS) for value in given):
        return True
    variables = {value.id for value in given if isinstance(value, ast.Name)}
    assigned: list[tuple[ast.expr, ast.expr | None]] = [
        *((target, node.value) for node in nodes.nodes(ast.Assign) for target in node.targets),
        *((node.target, node.value) for node in nodes.nodes(ast.AnnAssign)),
        *((node.target, node.value) for node in nodes.nodes(ast.NamedExpr)),
    ]
    return bool(variables) and any(_names(target, variables) and _holds_list(value) for target, value in assigned)


_LISTS = (ast.List, ast.ListComp, ast.BinOp)


def _names(target: ast.expr, variables: set[str]) -> bool:
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return any(isinstance(part, ast.Name) and part.id in variables for part in parts)


def _holds_list(value: ast.expr | None) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    return isinstance(value, _LISTS) or any(isinstance(part, _LISTS) for part in parts)


class Check(ScriptCheck):
    """Looks at each gather and scatter that every rank reaches."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the list is certainly there on every rank."""
        name = self.ctx.qualified_name(node.func) or ""
        root, _, short = name.rpartition(".")
        if short not in _CALLS or not f"{root}.".startswith(_ROOTS) or self.ctx.has_unpacked_arguments(node):
            return
        keyword, at = _CALLS[short]
        value, rank = self.ctx.argument(node, keyword, 1), self.ctx.argument(node, at, 2)
        if value is None or not self._is_list(value) or not self._every_rank(node):
            return
        where = "the destination" if at == "dst" else "the source"
        if rank is not None and not isinstance(self.ctx.constant(rank).get_or(None), int):
            return
        self.report(
            value,
            f"every rank passes `{keyword}` to `{short}`, but only {where} may: all others raise a ValueError, and"
            f" {where} waits for them",
            hint=f"Pass `None` for `{keyword}` on all ranks but {where}",
            fix=self._fix(node, value, rank),
            facts={"call": short},
        )

    def _is_list(self, value: cst.BaseExpression) -> bool:
        """A list with elements, on every rank."""
        if isinstance(value, cst.Name):
            found = self.ctx.names.single_value(value)
            if found is None or not self._every_rank(found):
                return False
            value = found
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply):
            value = value.left if isinstance(value.left, cst.List) else value.right
        if isinstance(value, cst.List):
            return bool(value.elements)
        if not isinstance(value, cst.ListComp) or value.for_in.ifs:
            return False
        # ``[... for _ in range(n if rank == 0 else 0)]``
        choices = (cst.IfExp, cst.BooleanOperation, cst.Comparison)
        return not any(isinstance(n, choices) for n in self.ctx.descendants(value.for_in.iter))

    def _every_rank(self, node: cst.CSTNode) -> bool:
        """No condition but "is this run distributed" decides who comes here."""
        if self.ctx.guard(node) is not None or self.ctx.guards.is_conditional(node):
            return False
        function = self.ctx.enclosing_function(node)
        if function is None:
            return True
        callers = [c for c in self.ctx.names.callers.of(function) if c is not node]
        return all(self.ctx.guard(c) is None and not self.ctx.guards.is_conditional(c) for c in callers)

    def _fix(self, node: cst.Call, value: cst.BaseExpression, rank: cst.BaseExpression | None) -> Fix | None:
        if not isinstance(node.func, cst.Attribute) or self.ctx.argument(node, "group", 3) is not None:
            return None
        target = "0" if rank is None else self.ctx.text(rank)
        call = f"{self.ctx.text(node.func.value)}.get_rank()"
        span = self.ctx.span(value)
        text = f"{self.ctx.text(value)} if {call} == {target} else None"
        return Fix("Pass the list on one rank only", (Edit(self.ctx.doc.path, span, text),))


_HEAD = """\
import torch
import torch.distributed as dist

parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
"""

EXAMPLES = (
    bad(
        "a list everywhere",
        {"eval.py": _HEAD + "dist.gather(score, gather_list=parts, dst=0)\n"},
        at="eval.py:5 error",
        fixed={"eval.py": _HEAD + "dist.gather(score, gather_list=parts if dist.get_rank() == 0 else None, dst=0)\n"},
    ),
    bad(
        "by position, of a distributed run only",
        {
            "eval.py": (
                "import torch.distributed as dist\n\n\ndef collect(score):\n    if not dist.is_initialized():\n"
                "        return [score]\n    found = [None] * dist.get_world_size()\n"
                "    dist.gather_object(score, found)\n    return found\n"
            )
        },
        at="eval.py:8 error",
        fixed={
            "eval.py": (
                "import torch.distributed as dist\n\n\ndef collect(score):\n    if not dist.is_initialized():\n"
                "        return [score]\n    found = [None] * dist.get_world_size()\n"
                "    dist.gather_object(score, found if dist.get_rank() == 0 else None)\n    return found\n"
            )
        },
    ),
    bad(
        "scatter",
        {"share.py": _HEAD + "dist.scatter(mine, parts, src=1)\n"},
        at="share.py:5 error",
        fixed={"share.py": _HEAD + "dist.scatter(mine, parts if dist.get_rank() == 1 else None, src=1)\n"},
    ),
    good(
        "the list on the destination only",
        {"eval.py": _HEAD + "dist.gather(score, parts if dist.get_rank() == 0 else None, dst=0)\n"},
    ),
    good(
        "a list that only one rank makes",
        {
            "eval.py": (
                "import torch\nimport torch.distributed as dist\n\nparts = None\nif dist.get_rank() == 0:\n"
                "    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]\n"
                "dist.gather(score, gather_list=parts, dst=0)\n"
            )
        },
    ),
    good(
        "two branches",
        {
            "eval.py": _HEAD + "if dist.get_rank() == 0:\n    dist.gather(score, gather_list=parts, dst=0)\n"
            "else:\n    dist.gather(score, dst=0)\n"
        },
    ),
    good(
        "an empty list is none, and `scatter_object_list` ignores it",
        {
            "eval.py": _HEAD + "dist.gather(score, [])\ndist.scatter_object_list([None], parts, src=0)\n"
            "dist.all_gather(parts, score)\n"
        },
    ),
)
