"""`gather_for_metrics` gets one mean for the batch of each process, and can cut nothing of it.

**What.** The evaluation of a prepared loader takes the mean over the batch of this process, as of the right answers,
and gathers that number by `gather_for_metrics`, batch by batch.

**Why it hurts.** accelerate repeats samples to fill the last batch, and `gather_for_metrics` drops them: it keeps the
first rows of what it has gathered, as many as samples are left. Of means each row is a whole process: repeated samples
stay inside of it, or real ones go with the row. A short batch counts as much as a full one. Nothing fails; the score
depends on the number of processes.

**Fix.** Gather the values of the samples, and take the mean over all of them in the end.

**When it stays quiet.** Losses; a mean along one dimension, which leaves a row for each sample; a number that is
repeated for the samples of the batch (`loss.repeat(batch_size)`); loaders that are not prepared, that drop their last
batch or are not filled up; a loop that trains; one process.

**Evidence.** Two gloo ranks, accelerate 1.15: of ten samples in batches of four the mean of the gathered means is
0.375; that of the gathered samples is 0.3.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Loop, events
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import fills_up

META = RuleMeta(
    code="DSL637",
    name="mean-before-gather",
    kind="script",
    severity=Severity.WARNING,
    summary="`gather_for_metrics` gets the mean of each process, and can cut no sample that fills the last batch",
    markers=(r"gather_for_metrics", r"mean\("),
    references=(
        "https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.gather_for_metrics",
        "https://github.com/huggingface/trl/issues/7010",
    ),
    depends_on_run=True,
)
_METRICS = "gather_for_metrics"
# What gives the same number in another form.
_FORMS = frozenset(
    ("reshape", "view", "unsqueeze", "detach", "clone", "to", "float", "double", "cuda", "cpu", "item", "contiguous")
)
_MAKERS = frozenset({"tensor", "as_tensor", "stack"})
_LOSS = re.compile(r"(?i)loss|entropy|nll|perplexity|mse|\bkl")
_DEPTH = 6


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each mean over the batch of a process that is gathered for a metric."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for found in run.occurrences("collective"):
        event = found.event
        given = event.nodes.get("input_data") if event.api.endswith("." + _METRICS) else None
        if given is None or id(event.node) in seen or not isinstance(given, ast.expr) or not _evaluates(run, found):
            continue
        for module, mean in _means(run.derived, event.module, given, 0):
            if id(event.node) not in seen and not _LOSS.search(ast.unparse(given) + ast.unparse(mean)):
                seen.add(id(event.node))
                yield _finding(run, found, module, mean)


def _evaluates(run: RunQuery, found: Happening) -> bool:
    """Return whether the innermost loop around a call goes over a loader that is filled up, and does not train."""
    loops = [node for node in found.around if isinstance(node, Loop)]
    trains = any(event.tags & {"backward", "engine-backward"} for loop in loops[-1:] for event in events(loop.body))
    return bool(loops) and not trains and fills_up(run, loops[-1])


def _means(derived: Derived, module: Module, node: ast.AST, depth: int) -> Iterator[Piece]:
    """Yield the mean that an expression is, in another form or by a name."""
    if isinstance(node, ast.Call) and _called(node) == "mean":
        is_whole = not node.keywords and len(node.args) == int(ast.unparse(node.func) == "torch.mean")
        yield from ((module, node),) if is_whole else ()
    elif depth < _DEPTH:
        for where, value in _same(derived, module, node):
            yield from _means(derived, where, value, depth + 1)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _same(derived: Derived, module: Module, node: ast.AST) -> Iterator[Piece]:
    """Yield the expressions whose number this one is: of a call, a list of one, a name with one value."""
    if isinstance(node, ast.Call) and _called(node) in _MAKERS and node.args:
        yield module, node.args[0]
    elif isinstance(node, ast.Call) and _called(node) in _FORMS and isinstance(node.func, ast.Attribute):
        yield module, node.func.value
    elif isinstance(node, ast.Call):
        for where, function in derived.behind(module, node.func):
            returned = (part.value for part in ast.walk(function) if isinstance(part, ast.Return))
            yield from ((where, value) for value in returned if value is not None)
    elif isinstance(node, ast.List) and len(node.elts) == 1:
        yield module, node.elts[0]
    elif isinstance(node, ast.Name):
        values = list(derived.of_name(module, node))
        yield from values if len(values) == 1 else ()


def _finding(run: RunQuery, found: Happening, module: Module, mean: ast.AST) -> Finding:
    event = found.event
    loop = next(node for node in reversed(found.around) if isinstance(node, Loop))
    return run.finding(
        META,
        event.module,
        event.node,
        "this gathers one mean per process: samples that pad the last batch stay in it, or real ones are cut",
        hint="Gather the values of the samples, and take the mean of all of them",
        related=(
            run.location(module, mean, "the mean over the batch of this process"),
            run.location(loop.module, loop.node, "the loop over the prepared loader"),
        ),
        facts={"samples": False},
    )


_RUN = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def right(logits, labels):
    return %s


@torch.no_grad()
def evaluate(accelerator, model, loader):
    hits = []
    for x, y in loader:
        found = right(model(x), y)
        %s
    return torch.cat(hits).mean().item()


def main(data):
    accelerator = Accelerator(%s)
    model = torch.nn.Linear(4, 3)
    model, loader = accelerator.prepare(model, DataLoader(data, batch_size=8%s))
    accelerator.print(evaluate(accelerator, model, loader))


if __name__ == "__main__":
    main(torch.load("data.pt"))
"""
_EACH = "(logits.argmax(-1) == labels).float()"
_GATHERED = "hits.append(accelerator.gather_for_metrics(%s))"


def _run(
    hits: str = f"{_EACH}.mean()", given: str = "found.reshape(1)", told: str = "", loader: str = ""
) -> dict[str, str]:
    return {"run.py": _RUN % (hits, _GATHERED % given, told, loader)}


EXAMPLES = (
    bad("the accuracy of each batch, of a helper", _run(), at="run.py:15 warning"),
    bad("by a function of torch", _run(hits=f"torch.mean({_EACH})"), at="run.py:15 warning"),
    bad("taken where it is gathered", _run(_EACH, "found.mean().unsqueeze(0)"), at="run.py:15 warning"),
    bad("as a new tensor", _run(given="torch.tensor([found.item()])"), at="run.py:15 warning"),
    good("each sample", _run(_EACH, "found")),
    good("a mean for each sample", _run("(logits > labels).float().mean(dim=-1)", "found")),
    good("once for each sample", _run(given="found.repeat(len(x))")),
    good("the last batch is left out", _run(loader=", drop_last=True")),
    good("batches are not filled up", _run(told="dataloader_config=None or make()")),
    good("one process", _run(), world_size=1),
)
