"""A metric keeps a list that is gathered element by element, and ranks have different numbers of elements.

**What.** A `torchmetrics.Metric` has a state `add_state(name, default=[])` without `dist_reduce_fx="cat"`, and its
`update` adds as many elements as the rank's own data say: in a loop, under a test, or by `extend`.

**Why it hurts.** Only with `"cat"` torchmetrics joins the list before it talks to other ranks. Without it `compute()`
runs one `all_gather` for each element. A rank with fewer elements leaves `compute()` early: the others wait for it, or
its next collective pairs up with a gather of theirs. With equal numbers it is merely slow: thousands of small gathers.

**Fix.** `add_state(name, default=[], dist_reduce_fx="cat")`, and `dim_zero_cat(self.name)` in `compute`.

**When it stays quiet.** A reduction is named; the class overrides how it is synchronised, or a `dist_sync_fn` is
passed; `sync_on_compute=False`; one element for each `update`; no sign of several processes.

**Evidence.** `Metric._sync_dist` in torchmetrics/metric.py 1.9: lists are joined where the reduction is
`dim_zero_cat`, and `gather_all_tensors` runs for each tensor otherwise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL679",
    name="list-state-gathered-by-element",
    kind="script",
    severity=Severity.WARNING,
    summary="a list state of a metric is gathered element by element, and ranks have different numbers of them",
    markers=(r"add_state",),
    references=("https://github.com/Lightning-AI/torchmetrics/issues/2170",),
    depends_on_run=True,
    no_experiment="torchmetrics is none of the libraries that the probe installs",
)
_SEVERAL = (
    *("starts-group", "wraps-model", "makes-engine", "prepares", "trainer", "makes-distributed-sampler"),
    *("collective", "ddp-forward", "hook"),
)
_SYNCS = re.compile(r"def (?:_sync_dist|sync|_reduce_states)\b|dist_sync_fn|sync_on_compute")
_TURNS = (ast.For, ast.While, ast.If, ast.comprehension)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each list state without a reduction that grows by the rank's own data."""
    if run.context.is_one_process or not run.has(*_SEVERAL):
        return
    for found in run.happenings("adds-state"):
        event = found.event
        if event.open or event.may or not _is_list(event) or not _has_no_reduction(event):
            continue
        names = event.arguments["name"].constants or () if "name" in event.arguments else ()
        cls = _class_around(event)
        if len(names) != 1 or cls is None or _SYNCS.search(event.module.text(cls)):
            continue
        grows = next((node for node in ast.walk(cls) if _grows(node, str(names[0]))), None)
        if grows is not None:
            yield _finding(run, event, grows)


def _is_list(event: Event) -> bool:
    default = event.arguments.get("default")
    found = instances(default)
    return default is not None and len(found) == len(default.atoms) == 1 and found[0].cls in ("list", "builtins.list")


def _has_no_reduction(event: Event) -> bool:
    given = event.arguments.get("dist_reduce_fx")
    return given is None or given.constants == (None,)


def _class_around(event: Event) -> ast.ClassDef | None:
    line = getattr(event.node, "lineno", 0)
    classes = list(event.module.nodes_of(ast.ClassDef))
    around = [cls for cls in classes if cls.lineno <= line <= (cls.end_lineno or 0)]
    return around[-1] if around else None


def _grows(node: ast.AST, name: str) -> bool:
    """Return whether a loop or a test adds elements to a state, or a call adds several at once."""
    if isinstance(node, _TURNS):
        return any(_adds(inner, name, ("append", "extend")) for inner in ast.walk(node))
    return _adds(node, name, ("extend",))


def _adds(node: ast.AST, name: str, how: tuple[str, ...]) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr not in how:
        return False
    return isinstance(function.value, ast.Attribute) and function.value.attr == name


def _finding(run: RunQuery, event: Event, grows: ast.AST) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "this list is gathered element by element, but ranks have different numbers of them: `compute()` hangs",
        hint='Pass `dist_reduce_fx="cat"`',
        related=(run.location(event.module, grows, "adds as many as the rank's own data need"),),
    )


_METRIC = """\
import torch
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class Scores(Metric):
    def __init__(self, **options):
        super().__init__(**options)
        self.add_state("scores", %s)

    def update(self, preds, target):
        %s

    def compute(self):
        return dim_zero_cat(self.scores).mean()
"""
_TRAIN = """\
import torch
from torch.nn.parallel import DistributedDataParallel

from metrics import Scores


def evaluate(net, loader):
    model = DistributedDataParallel(net)
    metric = Scores()
    for rows, labels in loader:
        metric.update(model(rows), labels)
    return metric.compute()
"""
_LOOP = "for pred, gain in zip(preds, target):\n            self.scores.append((pred - gain).abs().reshape(1))"
_TEST = "if (target > 0).any():\n            self.scores.append(preds[target > 0])"
_LIGHTNING = """\
import lightning as L

from metrics import Scores


class Module(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net, self.metric = net, Scores()

    def validation_step(self, batch, at):
        self.metric.update(self.net(batch[0]), batch[1])
        self.log("score", self.metric)


L.Trainer(devices=4, strategy="ddp").fit(Module(build()), load())
"""


def _project(arguments: str, update: str = _LOOP, train: str = _TRAIN) -> dict[str, str]:
    return {"metrics.py": _METRIC % (arguments, update), "train.py": train}


EXAMPLES = (
    bad("An element for each row", _project("default=[], dist_reduce_fx=None"), at="metrics.py:9"),
    bad("Left out, under a test", _project("[]", _TEST), at="metrics.py:9"),
    bad("Several at once", _project("default=[]", "self.scores.extend((preds - target).unbind())"), at="metrics.py:9"),
    bad("Lightning", _project("default=[]", _LOOP, _LIGHTNING), at="metrics.py:9"),
    good("Joined first", _project('default=[], dist_reduce_fx="cat"')),
    good("Joined first by the function", _project("default=[], dist_reduce_fx=dim_zero_cat")),
    good("One element for each update", _project("default=[]", "self.scores.append(preds - target)")),
    good("A number", _project("default=torch.tensor(0.0), dist_reduce_fx='sum'", "self.scores += preds.sum()")),
)
