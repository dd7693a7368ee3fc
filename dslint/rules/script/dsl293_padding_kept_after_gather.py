"""What fills the last batch stays in the gathered results, since they are gathered or cut where it does not lie.

**What.** `gather_for_metrics` is called once, after the loop over the prepared loader. Or each batch of an evaluation
is gathered by the plain `accelerator.gather`, and nothing is cut off. Or results are gathered after the loop and cut to
the length of the data set: `gather(x)[:len(dataset)]`, `gather_object(x)[:n]` after
`split_between_processes(apply_padding=True)`.

**Why it hurts.** A prepared loader gives every process the same number of batches and repeats samples for that.
`gather_for_metrics` knows how many only while the loader is at its last batch: after the loop it is a plain `gather`,
and the repeated samples count. A cut at the end takes others: results come in the order of the processes, so the
repeated ones lie in the middle, real ones of the last process are lost, and the rest no longer is next to its input.
Nothing fails; the score depends on the number of processes.

**Fix.** Call `gather_for_metrics` (not `gather`) in the loop, for each batch. Leave `apply_padding` out:
`gather_object` takes lists of any length.

**When it stays quiet.** `gather_for_metrics` in the loop over the loader; a plain `gather` there of a loss, of a loader
with `drop_last=True`, or beside a slice or a test of the last batch; no loop that runs a model comes before; nothing is
prepared; results that carry an index of the sample; one process.

**Evidence.** accelerate 1.x on two gloo ranks, ten samples in batches of four: `gather_for_metrics` gives ten results
in the loop and sixteen after it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Loop, Node, Seq, children, events, walk
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.passes import goes_over_models
from dslint.rules.examples.paddingscripts import CAT, DROPPED, EVALUATE, LOOP, NET, REWARDS, SCORES, SPLIT, TAIL
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import fills_up
from dslint.rules.zero.enginenames import function_of

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
_GATHERS = frozenset({"accelerate.Accelerator.gather", "accelerate.utils.gather"})
# Code that drops what fills the last batch, or that knows each sample by a key of its own.
_DROPS = re.compile(
    r"\[:|end_of_dataloader|remainder|samples_seen|duplicate|unique|drop_last|_seen|set\(|dict\(|gather_for_metrics"
)


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
            found = _after(run, event, loop if is_prepared else None, padded)
            if found is not None:
                seen.add(id(event.node))
                yield found
        for event, loop in _in_loops(run, tree) if is_prepared else ():
            if id(event.node) not in seen:
                seen.add(id(event.node))
                yield _each_batch(run, event, loop)


def _after(run: RunQuery, event: Event, loop: Loop | None, padded: Event | None) -> Finding | None:
    """Return what is wrong with a gather after the loop over a prepared loader, or after padding."""
    cut = _cut(event)
    if event.api.endswith("." + _METRICS) and loop is not None:
        return _after_loop(run, event, loop)
    if cut is not None and padded is not None:
        return _at_tail(run, event, cut, padded)
    if cut is not None and loop is not None and event.api.endswith(".gather"):
        return _at_tail(run, event, cut, loop)
    return None


def _after_loop(run: RunQuery, event: Event, loop: Loop) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "`gather_for_metrics` after the loop drops nothing: samples that pad the last batch are counted twice",
        hint="Call it in the loop, for each batch",
        related=(run.location(loop.module, loop.node, "the loop over the loader"),),
        facts={"cut": False},
    )


def _each_batch(run: RunQuery, event: Event, loop: Loop) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "`gather` keeps the samples that pad the last batch of a prepared loader: they are counted twice",
        hint="Call `gather_for_metrics` instead",
        related=(run.location(loop.module, loop.node, "the loop over the prepared loader"),),
        facts={"cut": False, "plain": True},
    )


def _in_loops(run: RunQuery, tree: Seq) -> Iterator[tuple[Event, Loop]]:
    """Yield the plain gathers of an evaluation batch by batch whose padding nothing drops."""
    for loop in filter(_runs_model, _loops_in(tree)):
        if not fills_up(run, loop):
            continue
        for event in events(loop.body):
            if event.api in _GATHERS and _counts_samples(event):
                yield event, loop


def _counts_samples(event: Event) -> bool:
    """Return whether what is gathered are samples, and nothing in the function deals with the last batch."""
    given = event.nodes.get("tensor") or event.nodes.get("input_data")
    if given is None or re.search(r"loss|\.mean\(|\.sum\(|count|num|total|\bid|index", ast.unparse(given)):
        return False
    function = function_of(event.module, event.node)
    return not _DROPS.search(ast.unparse(function))


def _at_tail(run: RunQuery, event: Event, cut: ast.AST, cause: Event | Loop) -> Finding:
    label = "padded here" if isinstance(cause, Event) else "the loop over the loader, which pads the last batch"
    return run.finding(
        META,
        event.module,
        cut,
        "The padding of each process lies in the middle: this cut loses real results and keeps copies",
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
        if not _is_layer_code(node):
            pending.extend((child, loops, is_inside) for child in reversed(children(node)))


def _is_layer_code(node: Node) -> bool:
    """Return whether a node is the forward pass of a module: its loops go over layers, and not over batches."""
    return isinstance(node, Call) and getattr(node.function, "name", "") == "forward"


def _loops_in(block: Node) -> Iterator[Loop]:
    """Yield the loops in a block that are not inside the forward pass of a module."""
    pending: list[Node] = [block]
    while pending:
        node = pending.pop()
        if isinstance(node, Loop):
            yield node
        if not _is_layer_code(node):
            pending.extend(children(node))


def _holds(outer: Loop, inner: Loop) -> bool:
    return outer is not inner and any(node is inner for node in walk(outer))


def _runs_model(loop: Loop) -> bool:
    """The loop itself, and none inside of it, runs a model: it goes over batches."""
    inner = _loops_in(loop.body)
    # The losses of training batches are numbers of batches, not of samples.
    trains = any(event.tags & {"backward", "engine-backward"} for event in events(loop.body))
    return _has_forward(loop) and not trains and not any(_has_forward(node) for node in inner)


def _has_forward(loop: Loop) -> bool:
    return any(event.tags & _FORWARDS and not goes_over_models(loop, event) for event in events(loop.body))


def _cut(event: Event) -> ast.AST | None:
    """Return where the result of a call is cut to a length: at once, or by the name that it gets."""
    names = {
        target.id
        for node in event.module.nodes_of(ast.Assign)
        if node.value is event.node
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    line = getattr(event.node, "lineno", 0)
    for node in event.module.nodes:
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
            continue
        upper = node.slice.upper
        if node.slice.lower is not None or upper is None or isinstance(upper, ast.Constant | ast.UnaryOp):
            continue
        is_later = isinstance(node.value, ast.Name) and node.value.id in names and 0 <= node.lineno - line <= 12
        if node.value is event.node or is_later:
            return node
    return None


EXAMPLES = (
    bad("a plain gather of each batch", {"run.py": LOOP % ("", "", "")}, "run.py:9"),
    good("what was added is cut off", {"run.py": LOOP % (DROPPED, "", "")}),
    good("a loader without a last part", {"run.py": LOOP % ("", "", ", drop_last=True")}),
    good("batches are not filled up", {"run.py": LOOP % ("", "dataloader_config=make()", "")}),
    good("gathered for a metric", {"run.py": (LOOP % ("", "", "")).replace(".gather(", ".gather_for_metrics(")}),
    bad("a class collects the scores, and gathers them once",
        {"scores.py": SCORES % ("logits", f"self.accelerator.gather_for_metrics({CAT})"), "run.py": EVALUATE},
        "scores.py:13"),
    bad("padded shares are cut at the end",
        {"run.py": SPLIT % (", apply_padding=True", "[: len(prompts)]")}, "run.py:12"),
    bad("a plain gather is cut to the length of the data set", {"run.py": TAIL % "[: len(dataset)]"}, "run.py:11"),
    good("every batch is gathered in the loop", {
        "scores.py": SCORES % ("self.accelerator.gather_for_metrics(logits)", CAT), "run.py": EVALUATE}),
    good("a model with a loop over its layers", {
        "scores.py": SCORES % ("self.accelerator.gather_for_metrics(logits)", CAT),
        "net.py": NET, "run.py": EVALUATE.replace("from torch import nn", "import net as nn")}),
    good("shares of their own length", {"run.py": SPLIT % ("", "[: len(prompts)]")}),
    good("the first few", {"run.py": SPLIT % (", apply_padding=True", "[:5]")}),
    good("nothing is cut", {"run.py": TAIL % ""}),
    good("a loop over reward models, in the training step of a Trainer", {"grpo.py": REWARDS}),
    good("one process", {
        "scores.py": SCORES % ("logits", f"self.accelerator.gather_for_metrics({CAT})"), "run.py": EVALUATE},
        world_size=1),
)  # fmt: skip
