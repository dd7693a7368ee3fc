"""What fills the last batch stays in the gathered results, since they are gathered or cut where it does not lie.

**What.** `gather_for_metrics` is called once, after the loop over the prepared loader. Or results are gathered after
the loop and cut to the length of the data set: `gather(x)[:len(dataset)]`, `gather_object(x)[:n]` after
`split_between_processes(apply_padding=True)`.

**Why it hurts.** A prepared loader gives every process the same number of batches and repeats samples for that.
`gather_for_metrics` knows how many only while the loader is at its last batch: after the loop it is a plain `gather`,
and the repeated samples count. A cut at the end takes others: results come in the order of the processes, so the
repeated ones lie in the middle, real ones of the last process are lost, and the rest no longer stands beside its input.
Nothing fails; the score depends on the number of processes.

**Fix.** Call `gather_for_metrics` in the loop, for each batch. Leave `apply_padding` out: `gather_object` takes lists
of any length.

**When it stays quiet.** The call is in the loop over the loader; no loop that runs a model comes before; nothing is
prepared; results that carry an index of the sample; one process.

**Evidence.** accelerate 1.x on two gloo ranks, ten samples in batches of four: `gather_for_metrics` gives ten results
in the loop and sixteen after it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop, Node, Seq, children, events, walk
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL293",
    name="padding-kept-after-gather",
    kind="script",
    severity=Severity.WARNING,
    summary="samples that fill the last batch are counted, since results are gathered or cut after the loop",
    markers=(r"accelerat",),
    references=(
        "https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.gather_for_metrics",
        "https://github.com/huggingface/accelerate/issues/3485",
    ),
    depends_on_run=True,
)
_FORWARDS = frozenset({"forward", "ddp-forward", "fsdp-forward", "engine-forward", "generate"})
_METRICS = "gather_for_metrics"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on results that are gathered after the loop and hold what has filled the last batch."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        padded = next((e for e in events(tree) if _pads(e)), None)
        is_prepared = any("prepares" in event.tags for event in events(tree))
        for event, loop in _after_loops(tree):
            name = event.api.rpartition(".")[2]
            if id(event.node) in seen or not event.api.startswith("accelerate.") or not name.startswith("gather"):
                continue
            seen.add(id(event.node))
            cut = _cut(event)
            if name == _METRICS and loop is not None and is_prepared:
                yield _after_loop(run, event, loop)
            elif cut is not None and padded is not None:
                yield _at_tail(run, event, cut, padded)
            elif cut is not None and loop is not None and is_prepared and name == "gather":
                yield _at_tail(run, event, cut, loop)


def _after_loop(run: RunQuery, event: Event, loop: Loop) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "`gather_for_metrics` after the loop drops nothing: samples that fill the last batch are counted twice",
        hint="Call it in the loop, for each batch",
        related=(run.location(loop.module, loop.node, "the loop over the loader"),),
        facts={"cut": False},
    )


def _at_tail(run: RunQuery, event: Event, cut: ast.AST, cause: Event | Loop) -> Finding:
    label = "filled up here" if isinstance(cause, Event) else "the loop over the loader, which fills the last batch"
    return run.finding(
        META,
        event.module,
        cut,
        "What fills the shares of the processes lies in the middle: this cut loses real results and keeps copies",
        hint="Gather without padding, or call `gather_for_metrics` for each batch",
        related=(run.location(cause.module, cause.node, label),),
        facts={"cut": True},
    )


def _pads(event: Event) -> bool:
    padding = event.arguments.get("apply_padding")
    return padding is not None and padding.constants == (True,)


def _after_loops(tree: Seq) -> Iterator[tuple[Event, Loop | None]]:
    """Yield the events that no loop with a forward pass is around, each with the last such loop before it.

    A loop around the event that does not hold the one with the forward pass may be the loop over the batches, too.
    """
    last: Loop | None = None
    pending: list[tuple[Node, tuple[Loop, ...], bool]] = [(tree, (), False)]
    seen: set[int] = set()
    while pending:
        node, loops, is_inside = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Event):
            found = last
            if not is_inside and all(found is not None and _holds(loop, found) for loop in loops):
                yield node, last
            continue
        if isinstance(node, Loop):
            loops = (*loops, node)
            if not is_inside and isinstance(node.node, ast.For | ast.AsyncFor) and _runs_model(node):
                last, is_inside = node, True
        pending.extend((child, loops, is_inside) for child in reversed(children(node)))


def _holds(outer: Loop, inner: Loop) -> bool:
    return outer is not inner and any(node is inner for node in walk(outer))


def _runs_model(loop: Loop) -> bool:
    """The loop itself, and none inside of it, runs a model: it goes over batches."""
    inner = (node for node in walk(loop.body) if isinstance(node, Loop))
    # The losses of training batches are numbers of batches, not of samples.
    trains = any(event.tags & {"backward", "engine-backward"} for event in events(loop.body))
    return _has_forward(loop) and not trains and not any(_has_forward(node) for node in inner)


def _has_forward(loop: Loop) -> bool:
    return any(event.tags & _FORWARDS for event in events(loop.body))


def _cut(event: Event) -> ast.AST | None:
    """Return where the result of a call is cut to a length: at once, or by the name that it gets."""
    names = {
        target.id
        for node in ast.walk(event.module.tree)
        if isinstance(node, ast.Assign) and node.value is event.node
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    line = getattr(event.node, "lineno", 0)
    for node in ast.walk(event.module.tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
            continue
        upper = node.slice.upper
        if node.slice.lower is not None or upper is None or isinstance(upper, ast.Constant | ast.UnaryOp):
            continue
        is_later = isinstance(node.value, ast.Name) and node.value.id in names and 0 <= node.lineno - line <= 12
        if node.value is event.node or is_later:
            return node
    return None


_SCORES = """\
import torch


class Scores:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.found = []

    def add(self, logits):
        self.found.append(%s)

    def result(self):
        return %s
"""
_EVALUATE = """\
from accelerate import Accelerator
from torch import nn

from scores import Scores


def evaluate(accelerator, model, loader):
    scores = Scores(accelerator)
    for batch in loader:
        scores.add(model(batch))
    return scores.result()


def main(loaders):
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(8, 2))
    for loader in loaders:
        print(evaluate(accelerator, model, accelerator.prepare(loader)))
"""
_CAT = "torch.cat(self.found)"
_SPLIT = """\
from accelerate import PartialState
from accelerate.utils import gather_object


def main(prompts, complete):
    state = PartialState()
    found = []
    with state.split_between_processes(prompts%s) as mine:
        for prompt in mine:
            found.append(complete(prompt))
    every = gather_object(found)
    return every%s
"""
_TAIL = """\
import torch
from accelerate import Accelerator


def main(loader, dataset):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(torch.nn.Linear(8, 2), loader)
    found = []
    for batch in loader:
        found.append(model(batch))
    return accelerator.gather(torch.cat(found))%s
"""

EXAMPLES = (
    bad("a class collects the scores, and gathers them once",
        {"scores.py": _SCORES % ("logits", f"self.accelerator.gather_for_metrics({_CAT})"), "run.py": _EVALUATE},
        "scores.py:13"),
    bad("padded shares are cut at the end",
        {"run.py": _SPLIT % (", apply_padding=True", "[: len(prompts)]")}, "run.py:12"),
    bad("a plain gather is cut to the length of the data set", {"run.py": _TAIL % "[: len(dataset)]"}, "run.py:11"),
    good("every batch is gathered in the loop", {
        "scores.py": _SCORES % ("self.accelerator.gather_for_metrics(logits)", _CAT), "run.py": _EVALUATE}),
    good("shares of their own length", {"run.py": _SPLIT % ("", "[: len(prompts)]")}),
    good("the first few", {"run.py": _SPLIT % (", apply_padding=True", "[:5]")}),
    good("nothing is cut", {"run.py": _TAIL % ""}),
    good("one process", {
        "scores.py": _SCORES % ("logits", f"self.accelerator.gather_for_metrics({_CAT})"), "run.py": _EVALUATE},
        world_size=1),
)  # fmt: skip
