"""accelerate joins the batches of a stream on rank 0, and each batch is padded to its own longest row.

**What.** An `IterableDataset` (or a streamed data set) goes to a Trainer, or its loader to `accelerator.prepare`, the
collator pads each batch to the longest row in it, and nothing sets `dispatch_batches=False`.

**Why it hurts.** For an iterable data set accelerate turns `dispatch_batches` on: rank 0 fetches a batch for each
process, joins them along the first dimension and sends the parts out. Batches of different width cannot be joined:
rank 0 raises a `RuntimeError` ("You can't use batches of different size with `dispatch_batches=True`"), and the others
wait for its broadcast. One process joins nothing, so that a test on one GPU passes.

**Fix.** `accelerator_config={"dispatch_batches": False}` in the training arguments, or `DataLoaderConfiguration(
dispatch_batches=False)` for an Accelerator, with a stream that divides itself by rank; or pad to a fixed length.

**When it stays quiet.** `dispatch_batches` or `split_batches` is set; rows are padded, cut or packed to one length
anywhere in the project; a collator whose code nobody knows; a Trainer that makes its loader itself; one process.

**Evidence.** Two gloo ranks, accelerate 1.15: batches of 3 and 5 columns from a stream raise on rank 0, those of 5
columns pass. `DataLoaderDispatcher._fetch_batches` in accelerate/data_loader.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Event
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.python.values import Bound, ClassAtom, Function, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import ITERABLE
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import maker_of
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL677",
    name="stream-of-ragged-batches",
    kind="script",
    severity=Severity.WARNING,
    summary="accelerate joins the batches of a stream on rank 0, and each is padded to its own longest row",
    markers=(r"Trainer|accelerat", r"IterableDataset|streaming|to_iterable_dataset", r"collat"),
    references=("https://github.com/huggingface/transformers/issues/26548",),
    depends_on_run=True,
)
_STREAMS = (ITERABLE, "datasets.IterableDataset", "datasets.IterableDatasetDict")
_SETTINGS = ("accelerator_config", "dispatch_batches", "split_batches", "dataloader_config")
# Code that pads a batch to its longest row, and code that gives all rows one length.
_LONGEST = re.compile(
    r"max\(\s*\(?\[?(?:len\(|map\(len|\w+\.(?:shape|size|numel))|pad_sequence\(|padding=(?:True|'longest')"
)
_ONE_LENGTH = re.compile(
    r"padding=['\"]max_length|['\"]max_length['\"]|block_size|chunk|pack(?:ed|ing)\b|ConstantLength|dispatch_batches|split_batches"
    r"|def get_train_dataloader"
)
_CUT = re.compile(r"truncation=True|\[: *\w*max_\w+\]")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each stream whose batches accelerate joins, and whose collator pads each for itself."""
    if run.context.is_one_process:
        return
    modules = run.machine.program.modules()
    if any(module.search(_ONE_LENGTH) for module in modules):
        return
    for found in run.happenings("trainer"):
        event = found.event
        if not event.open and event.api.startswith("transformers.") and not _is_set(run, event.arguments.get("args")):
            yield from _judge(run, event, event.arguments.get("train_dataset"), event.arguments.get("data_collator"))
    for found in run.happenings("prepares"):
        maker = maker_of(run, found.event.receiver)
        if maker is None or set(_SETTINGS) & maker.arguments.keys():
            continue
        for atom in (atom for value in found.event.arguments.values() for atom in instances(value)):
            made = run.makers.get(atom)
            if made is not None and "makes-loader" in made.tags and not made.open:
                yield from _judge(run, made, made.arguments.get("dataset"), made.arguments.get("collate_fn"))


def _judge(run: RunQuery, event: Event, data: Value | None, collator: Value | None) -> Iterator[Finding]:
    pads = _pads(run, collator)
    if data is not None and pads is not None and _is_stream(run, data):
        yield _finding(run, event, pads)


def _is_set(run: RunQuery, arguments: Value | None) -> bool:
    """Return whether training arguments say how batches are handed out, or may say so."""
    makers = [run.makers.get(atom) for atom in instances(arguments)]
    return any(made is not None and (made.open or set(_SETTINGS) & made.arguments.keys()) for made in makers)


def _is_stream(run: RunQuery, data: Value) -> bool:
    found = instances(data)
    return bool(found) and len(found) == len(data.atoms) and all(_is_iterable(run, atom) for atom in found)


def _is_iterable(run: RunQuery, atom: Instance) -> bool:
    bases = attributes.lineage(run.machine, atom.cls) if isinstance(atom.cls, ClassAtom) else [atom.cls]
    paths = [row.path for base in bases if isinstance(base, str) for row in run.machine.libraries.lineage(base)]
    return any(path in _STREAMS for path in paths)


def _pads(run: RunQuery, collator: Value | None) -> tuple[Module, ast.AST] | None:
    """Return the code of a collator that certainly pads each batch to its own longest row."""
    atom = collator.single if collator is not None else None
    function = atom.function if isinstance(atom, Bound) else atom
    if isinstance(function, Function):
        return _code_that_pads(run, function.module, function.node)
    if not isinstance(atom, Instance):
        return None
    if isinstance(atom.cls, ClassAtom):
        return _code_that_pads(run, atom.cls.module, atom.cls.node)
    made = run.makers.get(atom)
    if made is None or made.open or "pads-to-longest" not in made.tags:
        return None
    padding = made.arguments.get("padding")
    is_longest = padding is None or padding.constants in ((True,), ("longest",))
    cuts = any(module.search(_CUT) for module in run.machine.program.modules())
    return (made.module, made.node) if is_longest and cuts else None


def _code_that_pads(run: RunQuery, module: Module, node: ast.AST) -> tuple[Module, ast.AST] | None:
    pieces = reached(run.machine.program, [(module, node)])
    return next(((m, n) for m, n in pieces if _LONGEST.search(ast.unparse(n))), None)


def _finding(run: RunQuery, event: Event, pads: tuple[Module, ast.AST]) -> Finding:
    node = event.nodes.get("train_dataset") or event.nodes.get("dataset") or event.node
    return run.finding(
        META,
        event.module,
        node,
        "accelerate joins stream batches on rank 0, but their widths differ: it raises, and the others wait",
        hint="Set `dispatch_batches=False` and let the stream divide itself by rank, or pad to one length",
        related=(run.location(*pads, "pads each batch to its own longest row"),),
        facts={"batches": "ragged"},
    )


_STREAM = """\
import json

import torch
from torch.utils.data import IterableDataset


class Rows(IterableDataset):
    def __init__(self, path, tokenizer):
        self.path, self.tokenizer = path, tokenizer

    def __iter__(self):
        for line in open(self.path):
            yield self.tokenizer(json.loads(line)["text"], truncation=True)


def collate(rows):
    width = %s
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
    return {"input_ids": ids, "labels": ids.clone()}
"""
_OWN = "max(len(row['input_ids']) for row in rows)"
_TRAIN = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

from stream import Rows, collate


def main():
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    args = TrainingArguments("out", max_steps=100%s)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Rows("a.jsonl", tokenizer),
        data_collator=%s,
    )
    trainer.train()


main()
"""
_PLAIN = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from stream import Rows, collate


def main(model, optimizer, tokenizer):
    accelerator = Accelerator(%s)
    loader = DataLoader(Rows("a.jsonl", tokenizer), batch_size=8, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()


main(load(), load(), load())
"""
_OFF = "dataloader_config=DataLoaderConfiguration(dispatch_batches=False)"


def _project(main: str, width: str = _OWN) -> dict[str, str]:
    return {"stream.py": _STREAM % width, "train.py": main}


EXAMPLES = (
    bad("An own collator", _project(_TRAIN % ("", "collate")), at="train.py:13"),
    bad("A collator of the library", _project(_TRAIN % ("", "DataCollatorWithPadding(tokenizer)")), at="train.py:13"),
    bad("A loader that accelerate prepares", _project(_PLAIN % ""), at="train.py:11"),
    good(
        "Each process fetches its own",
        _project(_TRAIN % (", accelerator_config={'dispatch_batches': False}", "collate")),
    ),
    good("The same for an Accelerator", _project(_PLAIN % _OFF)),
    good("Padded to one length", _project(_TRAIN % ("", "DataCollatorWithPadding(tokenizer, padding='max_length')"))),
    good("One width", _project(_TRAIN % ("", "collate"), "512")),
    good("One process", _project(_TRAIN % ("", "collate")), world_size=1),
)
