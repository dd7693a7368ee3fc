"""A tensor whose shape differs between the ranks is gathered without padding.

**What.** `accelerator.gather(x)`, `gather_for_metrics(x)`, `fabric.all_gather(x)`,
`dist.all_gather_into_tensor(out, x)`, or `dist.all_gather(parts, x)` with parts shaped like `x`, where the data of this
rank make `x` as long as it is: the result of `generate`, texts as rows of numbers padded to the longest of them, a
boolean selection (`x[mask]`), `nonzero`, `masked_select` or `unique`, a cut at the longest row of the own batch, a
batch from which the `collate_fn` has left out samples (`[s for s in samples if s is not None]`), or one item for each
of a rank's own share. Also through helpers, layers of torch, fields, loops and other files.

**Why it hurts.** These calls expect the same shape from every rank and do not check it. Over gloo one rank aborts and
another returns memory that nobody wrote; NCCL waits forever, or writes past the end of a buffer. It works as long as
the lengths happen to agree, as they do with one GPU.

**Fix.** `accelerator.pad_across_processes(x, dim=1, pad_index=pad_id)` before the gather (`gather_for_metrics` does not
pad), gather text or objects (`gather_object`), or gather first and select afterwards.

**When it stays quiet.** Anything that may have padded or reduced the tensor in between, also on one way only; a test
of lengths around the gather; a selection that is reduced (`x[mask].mean()`), `min_new_tokens`, `padding="max_length"`;
the decoded text of generated ids, lists made for the lengths of each rank, `gather_object`, a group of some ranks, a
run of one process, and everything whose shape the code does not tell.

**Evidence.** Two gloo ranks, 2 against 3 rows: `Received data size doesn't match` on one rank, numbers that nobody sent
on the other (accelerate 1.15 `gather`, torch 2.13 `all_gather`). Padded first, both pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.python.ragged import Ragged
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.keptscripts import APPENDED, KEPT, PAIR, PAIRS, STACKED
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.training import test_text

META = RuleMeta(
    code="DSL227",
    name="gather-of-ragged-tensor",
    kind="script",
    severity=Severity.WARNING,
    summary="a tensor is gathered whose shape differs between the ranks",
    markers=(r"gather\w*\(", r"torch|accelerat|deepspeed|lightning|mmengine"),
    references=("https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.gather",),
    depends_on_run=True,
)

# A test that asks for lengths: the other side may pad.
_ASKS_LENGTH = re.compile(r"shape|size|len|numel|pad")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on gathers of tensors that are as long as the data of each rank make them."""
    if run.context.is_one_process:
        return
    told: set[int] = set()
    for found in run.occurrences("collective"):
        event = found.event
        if event.ragged and id(event.node) not in told:
            ragged = _ragged(run, found)
            if ragged is not None:
                told.add(id(event.node))
                yield _finding(run, event, ragged)


def _ragged(run: RunQuery, found: Happening) -> Ragged | None:
    """Return why what a call gathers has another shape on each rank, where nothing provides for that."""
    event = found.event
    row = row_of(run, event)
    group, room = event.arguments.get("group"), row.get("room")
    if event.may or row.get("objects") in event.arguments or (group is not None and group.constants != (None,)):
        return None
    # Each rank makes room for tensors of its own shape: `[torch.empty_like(x) for ...]`.
    if room is not None and room not in event.ragged:
        return None
    tests = (test_text(node) for node in found.around if isinstance(node, Alt))
    if any(_ASKS_LENGTH.search(text) for text in tests):
        return None
    return event.ragged.get(str(row["equal_shapes"]))


def _finding(run: RunQuery, event: Event, ragged: Ragged) -> Finding:
    call = getattr(event.node, "func", event.node)
    given = event.nodes.get(str(row_of(run, event)["equal_shapes"]), event.node)
    module, place = ragged.place
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, call)}` needs equal shapes, but `{run.text(event.module, given)}` holds"
        f" {ragged.words}: ranks crash, hang or read garbage",
        hint="Pad first (`accelerator.pad_across_processes`), or gather objects",
        related=(run.location(module, place, f"{ragged.words}; the size depends on the data of this rank"),),
        facts={"call": event.api.rpartition(".")[2]},
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
        "a batch without the samples that cannot be read",
        {"train.py": PAIRS % (PAIR[0], KEPT + STACKED, PAIR[1])},
        "train.py:30 warning",
    ),
    bad(
        "the same by the function of torch",
        {"train.py": PAIRS % (PAIR[0], KEPT + "    return default_collate(samples)", PAIR[1])},
        "train.py:30",
    ),
    bad("the same in a loop", {"train.py": PAIRS % (PAIR[0], APPENDED, PAIR[1])}, "train.py:35"),
    bad(
        "the same with names",
        {"train.py": PAIRS % ('{"x": row["x"]}', KEPT + "    return default_collate(samples)", 'x = batch["x"]')},
        "train.py:30",
    ),
    good("all samples of a batch", {"train.py": PAIRS % (PAIR[0], "    return default_collate(samples)", PAIR[1])}),
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
