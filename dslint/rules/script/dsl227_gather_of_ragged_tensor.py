"""A tensor whose shape differs between the ranks is gathered without padding.

**What.** `accelerator.gather(x)`, `gather_for_metrics(x)`, or `dist.all_gather(parts, x)` with parts shaped like `x`,
where `x` is the result of `generate`, a boolean selection (`x[mask]`), `nonzero`, `masked_select` or `unique`:
its length is what the data of this rank makes it.

**Why it hurts.** These calls expect the same shape from every rank and do not check it. Over gloo one rank aborts and
another returns memory that nobody wrote; NCCL waits for ever, or writes past the end of a buffer. It works as long as
the lengths happen to agree, as they do with one GPU.

**Fix.** `accelerator.pad_across_processes(x, dim=1, pad_index=pad_id)` before the gather (`gather_for_metrics` does not
pad), gather text or objects (`gather_object`), or gather first and select afterwards.

**When it stays quiet.** Anything that may have padded or reduced the tensor in between, an assignment in a branch, a
selection that is reduced (`x[mask].mean()`), the decoded text of generated ids, lists made for the lengths of each
rank, `gather_object`, and everything whose shape the code does not tell.

**Evidence.** Two gloo ranks, 2 against 3 rows: `Received data size doesn't match` on one rank, numbers that nobody sent
on the other (accelerate 1.15 `gather`, torch 2.13 `all_gather`). Padded first, both pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.data.ragged import Ragged
from dslint.model.script.dotted import keyword
from dslint.model.script.quick import call_name, flat
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.python.varies import DATA
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training import first_made
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL227",
    name="gather-of-ragged-tensor",
    kind="script",
    severity=Severity.WARNING,
    summary="a tensor is gathered whose shape differs between the ranks",
    markers=(
        r"gather\w*\(",
        r"\.distributed|from torch import|accelerat|deepspeed",
        r"\.generate\(|nonzero|masked_select|argwhere|\bunique|\w\[[^\]\n]*(?:[<>=!]=|[<>]|mask|~|keep|valid|:, ?:\w)",
    ),
    references=("https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.gather",),
    depends_on_run=True,
)

_HEAD = "from accelerate import Accelerator\n\naccelerator = Accelerator()\n\n\n"

_CUT = """\
import torch
import torch.distributed as dist


def gather(tensor):
    parts = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def queries(ids, mask):
    longest = mask.sum(1).max()%s
    ids, mask = ids[:, :length], mask[:, :length]
    return gather(ids), mask
"""

_MAIN = (
    "from accelerate import Accelerator\nfrom torch.utils.data import DataLoader\n"
    "from transformers import AutoModelForSeq2SeqLM\nfrom answers import answer, collect\n\n\n"
    "def main(rows):\n    accelerator = Accelerator()\n"
    "    model = accelerator.prepare(AutoModelForSeq2SeqLM.from_pretrained('t5-small'))\n"
    "    for batch in accelerator.prepare(DataLoader(rows, batch_size=8)):\n"
    "        collect(accelerator, answer(accelerator.unwrap_model(model), batch))\n\n\nmain([{}])\n"
)
_ANSWERS = (
    "import torch\n\n\n@torch.no_grad()\ndef answer(model, batch):\n    return model.generate(**batch%s)\n\n\n"
    "def collect(accelerator, ids):\n    return accelerator.gather_for_metrics(%s)\n"
)

EXAMPLES = (
    bad(
        "generated in another file",
        {"answers.py": _ANSWERS % ("", "ids"), "train.py": _MAIN},
        "answers.py:10",
    ),
    good(
        "all as long, or padded",
        {
            "answers.py": _ANSWERS % (", min_new_tokens=8, max_new_tokens=8", "ids"),
            "train.py": _MAIN,
        },
    ),
    good(
        "padded in the helper",
        {
            "answers.py": _ANSWERS % ("", "accelerator.pad_across_processes(ids, dim=1)"),
            "train.py": _MAIN,
        },
    ),
    bad(
        "cut at the longest row of this rank",
        {"queries.py": (_CUT % ".item()").replace("longest", "length")},
        "queries.py:7",
    ),
    good(
        "cut at the longest row of all ranks",
        {"queries.py": _CUT % "\n    dist.all_reduce(longest, op=dist.ReduceOp.MAX)\n    length = longest.item()"},
    ),
    bad(
        "generated ids of different length",
        {
            "evaluate.py": _HEAD + "def evaluate(model, batch, tokenizer):\n"
            "    ids = accelerator.unwrap_model(model).generate(**batch, max_new_tokens=64)\n"
            "    ids = ids[:, batch['input_ids'].shape[1] :].contiguous()\n"
            "    ids = accelerator.gather_for_metrics(ids)\n"
            "    return tokenizer.batch_decode(ids)\n"
        },
        at="evaluate.py:9",
    ),
    bad(
        "the rows that a mask leaves",
        {
            "losses.py": "import torch\nimport torch.distributed as dist\n\n\ndef losses(loss, labels):\n"
            "    valid = labels != -100\n    mine = loss[valid]\n"
            "    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]\n"
            "    dist.all_gather(parts, mine)\n    return torch.cat(parts)\n"
        },
        at="losses.py:9",
    ),
    good(
        "padded first, or decoded first",
        {
            "evaluate.py": _HEAD + "def evaluate(model, batch, tokenizer):\n"
            "    ids = accelerator.unwrap_model(model).generate(**batch)\n"
            "    ids = accelerator.pad_across_processes(ids, dim=1, pad_index=tokenizer.pad_token_id)\n"
            "    return accelerator.gather(ids)\n\n\n"
            "def texts(model, batch, tokenizer):\n    ids = model.generate(**batch)\n"
            "    ids = tokenizer.batch_decode(ids)\n    return accelerator.gather_for_metrics(ids)\n"
        },
    ),
    good(
        "padded where it is needed",
        {
            "evaluate.py": _HEAD + "def evaluate(args, model, batch):\n    ids = model.generate(**batch)\n"
            "    if not args.pad_to_max_length:\n        ids = accelerator.pad_across_processes(ids, dim=1)\n"
            "    return accelerator.gather(ids)\n"
        },
    ),
    good(
        "the selection is reduced to one number, or made after the gather",
        {
            "losses.py": _HEAD + "def losses(loss, labels):\n"
            "    mean = accelerator.gather(loss[labels != -100].mean()).mean()\n"
            "    everything = accelerator.gather(loss)\n    return mean, everything[everything > 0]\n"
        },
    ),
    good(
        "room is made for the length of each rank; rows are chosen by number",
        {
            "losses.py": "import torch\nimport torch.distributed as dist\n\n\ndef share(rows, mask, sizes, index):\n"
            "    mine = rows[mask.bool()]\n    parts = [rows.new_empty(size) for size in sizes]\n"
            "    dist.all_gather(parts, mine)\n    chosen = rows[index]\n"
            "    dist.all_gather([torch.empty_like(chosen)], chosen)\n    return parts, chosen\n"
        },
    ),
)

_FUNCTIONS = {
    "torch.distributed.all_gather": 1,
    "torch.distributed.all_gather_into_tensor": 1,
    "deepspeed.comm.all_gather": 1,
    "deepspeed.comm.all_gather_into_tensor": 1,
    "accelerate.utils.gather": 0,
    "accelerate.utils.operations.gather": 0,
}
_METHODS = frozenset({"gather", "gather_for_metrics"})
_NAMES = _METHODS | {name.rsplit(".", 1)[-1] for name in _FUNCTIONS}


def precheck(tree: ast.Module) -> bool:
    """A gather, and something that makes a shape depend on data."""
    nodes = flat(tree)
    calls = nodes.nodes(ast.Call)
    if not any(call_name(c) in _NAMES and c.args for c in calls):
        return False
    makes = {"generate", "nonzero", "masked_select", "argwhere", "unique", "unique_consecutive"}
    return any(call_name(c) in makes for c in calls) or any(
        isinstance(s.slice, ast.Name | ast.Compare | ast.UnaryOp | ast.BinOp | ast.Call) or _is_cut(s.slice)
        for s in nodes.nodes(ast.Subscript)
    )


def _is_cut(index: ast.expr) -> bool:
    """``[:, :length]``"""
    last = index.elts[-1] if isinstance(index, ast.Tuple) and len(index.elts) == 2 else None
    return isinstance(last, ast.Slice) and isinstance(last.upper, ast.Name | ast.Call)


_GIVEN = ("tensor", "input_data")
_FIXED = ("min_new_tokens", "min_length")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on texts of own length that accelerate gathers, wherever they were generated."""
    for found in run.happenings("collective"):
        event = found.event
        if event.api.rpartition(".")[2] not in _METHODS or not event.api.startswith("accelerate.") or event.may:
            continue
        if "use_gather_object" in event.arguments:
            continue
        value = next((event.arguments[name] for name in _GIVEN if name in event.arguments), None)
        atom = value.single if value is not None else None
        maker = run.makers.get(first_made(run, atom)) if isinstance(atom, Instance) else None
        if maker is None or "generate" not in maker.tags or any(name in maker.arguments for name in _FIXED):
            continue
        if _is_of_own_data(run, maker):
            yield _generated(run, event, maker)


def _is_of_own_data(run: RunQuery, maker: Event) -> bool:
    """Return whether a call generates from what differs by rank: `**batch` stands for the batch of a loader."""
    is_unpacked = isinstance(maker.node, ast.Call) and any(k.arg is None for k in maker.node.keywords)
    return is_unpacked or any(run.machine.deep_varies(value) & DATA for value in maker.arguments.values())


def _generated(run: RunQuery, event: Event, maker: Event) -> Finding:
    call = event.node.func if isinstance(event.node, ast.Call) else event.node
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, call)}` needs the same shape from every rank, but each rank has generated texts of "
        "its own length: a rank aborts or reads memory that nobody wrote, and NCCL waits for ever",
        hint="Pad first (`accelerator.pad_across_processes`), or gather objects",
        related=(run.location(maker.module, maker.node, "as long as the answers of this rank"),),
        facts={"call": event.api.rpartition(".")[2]},
    )


class Check(ScriptCheck):
    """Looks at what each gather gets."""

    def start(self) -> None:
        """One view of the shapes of the file."""
        self._ragged = Ragged(self.ctx.tree, self.ctx.names)

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a tensor that is ragged for a reason that the code shows."""
        for value in self._gathered(node):
            found = self._ragged.source(value)
            if found is not None:
                self._report(node, value, *found)

    def _gathered(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        name = self.ctx.qualified_name(call.func)
        if name is not None:
            position = _FUNCTIONS.get(name)
            value = self.ctx.argument(call, "tensor", position) if position is not None else None
            if value is None or self._on_group(call) or (position == 1 and not self._is_alike(call)):
                return
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value in _METHODS and call.args:
            if self.ctx.kind(call.func.value) != "accelerator":
                return
            value = call.args[0].value
        else:
            return
        if isinstance(value, cst.Tuple | cst.List):
            yield from (e.value for e in value.elements)
        else:
            yield value

    def _on_group(self, call: cst.Call) -> bool:
        return keyword(call, "group") is not None

    def _is_alike(self, call: cst.Call) -> bool:
        """The room that a rank makes has the shape of its own tensor: `[torch.empty_like(x) for ...]`."""
        room = call.args[0].value
        made = self.ctx.names.single_value(room) or room
        return any(isinstance(n, cst.Call) and self.ctx.called(n).endswith("_like") for n in self.ctx.descendants(made))

    def _report(self, call: cst.Call, value: cst.BaseExpression, source: cst.BaseExpression, what: str) -> None:
        text = " ".join(self.ctx.text(value).split())
        name = self.ctx.text(call.func)
        self.report(
            call,
            f"`{name}` needs the same shape from every rank, but `{text}` holds {what}, whose number differs: a rank "
            "aborts or reads memory that nobody wrote, and NCCL waits for ever",
            hint="Pad first (`accelerator.pad_across_processes`), or gather objects",
            related=(self.ctx.location(source, f"{what}, as many as the data of this rank gives"),),
            facts={"call": self.ctx.called(call)},
        )
