"""One rank skips a step, or leaves the loop, because of its own data.

**What.** A test on the data of this rank (`torch.isnan(loss)`, `len(batch) == 0`, `mask.sum() == 0`) decides over a
collective: `continue`, `break` or `return` before `model_engine.backward(...)`, `loss.backward()` of a DDP model or an
`all_reduce`, or the collective stands in one branch only.

**Why it hurts.** The other ranks do not see this batch and go on: their backward waits for the rank that skipped, until
the process-group timeout. When each rank skips one batch at another step, nothing hangs, and gradients of different
steps are averaged without a word.

**Fix.** Let the ranks agree first: `flag = torch.isnan(loss).float(); dist.all_reduce(flag, op=dist.ReduceOp.MAX)`, and
let all of them skip; or keep the graph and multiply the loss by 0.

The loops of `transformers` and Lightning look at flags (`control.should_training_stop`, `trainer.should_stop`) that are
each rank's own: setting one behind a test of the rank is the same mistake.

**When it stays quiet.** The tested value went through an `all_reduce`, `gather` or `broadcast`; the test asks for a
step counter, an argument, a shape, a key or `None`, which are usually the same on all ranks; the branch raises (the
launcher then ends the other ranks); both branches run the same collectives; no engine, DDP model or collective is in
sight.

**Evidence.** Two ranks: a `continue` on a NaN loss, or on a caught out-of-memory error, on one rank of a DDP model
leaves the other in its backward until the timeout; with the flag reduced first both pass (torch 2.13). One public
ZeRO-3 example skips batches whose mask is empty in this way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.precheck import skipping_tests
from dslint.model.script.quick import flat
from dslint.model.script.traces.data import DataDivergence
from dslint.model.script.traces.lookahead import asks_alone
from dslint.python.events import Alt
from dslint.python.varies import MISSING
from dslint.rules import parted
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.snippets import (
    DDP_LOOP,
    HF_CALLBACK,
    LIGHTNING_CALLBACK,
    LOSS_OF_POSITIVES,
    STEP_OF_AN_ENGINE,
    STOP_THAT_IS_TOLD,
)
from dslint.rules.walk import ScriptCheck

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL204",
    name="data-dependent-exit-between-collectives",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank skips a collective because of its own data, and the others wait for it",
    markers=(
        r"isnan|isinf|isfinite|\blen\(|\.sum\(|\.item\(|numel\(|time\(|perf_counter|rank|RANK|is_main|process_index"
        r"|_zero\b",
        r"backward\(|all_reduce|all_gather|\.step\(|barrier\(|\.gather\(|broadcast|\.should_\w+ *= *True"
        r"|safe_[gs]et_full",
        r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|FSDP|fully_shard|distributed"
        r"|lightning|TrainerCallback",
    ),
    also_told_by=parted.RANKS_PART,
    references=(
        "https://github.com/pytorch/pytorch/issues/38174",
        "https://pytorch.org/docs/stable/notes/ddp.html",
    ),
)


def precheck(tree: ast.Module) -> bool:
    """A loop branches on its data, or on what one rank knows, and some test decides over what waits for other ranks."""
    nodes = flat(tree)
    if any(isinstance(t, ast.Attribute) and t.attr in _FLAGS for a in nodes.nodes(ast.Assign) for t in a.targets):
        return True
    if not asks_alone(nodes, [*nodes.nodes(ast.If), *nodes.nodes(ast.While)]):
        return False  # the cheaper question first
    deciding = skipping_tests(tree)
    return bool(deciding) and asks_alone(nodes, deciding)


# What the loops of a Trainer look at, without a word to the other ranks: owner, attribute, library.
_FLAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "should_stop": ("trainer", ("lightning", "pytorch_lightning")),
    **dict.fromkeys(
        ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log"),
        ("control", ("transformers",)),
    ),
}
_TELLS = re.compile(r"reduce|gather|broadcast|bcast")


class Check(ScriptCheck):
    """Reports tests of one rank's data that decide over collectives."""

    def finish(self) -> None:
        """One finding a test."""
        for found in self.ctx.data_divergences.tests():
            self._report(found)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        """`trainer.should_stop = True` of Lightning, `control.should_training_stop = True` of transformers."""
        target = node.target
        if not isinstance(target, cst.Attribute) or target.attr.value not in _FLAGS:
            return
        owner, libraries = _FLAGS[target.attr.value]
        statement = self.ctx.parent(node)
        is_set = isinstance(statement, cst.Assign) and last_name(statement.value) == "True"
        guard = self.ctx.guard(node) if is_set and last_name(target.value) == owner else None
        if guard is None or not self.ctx.imports(*libraries) or self._is_told(node):
            return
        self.report(
            target,
            f"`{self.ctx.text(target)}` is set on some ranks only, and the loop of each rank looks at its own: a rank"
            " that stops (or saves, or evaluates) alone leaves the others in their next collective",
            hint="Set it on every rank from a value that they share: broadcast it, or"
            " `trainer.strategy.reduce_boolean_decision(...)`",
            related=(self.ctx.location(guard.test, "only some ranks get past this test"),),
            facts={"collective": "flag", "family": libraries[0]},
        )

    def _is_told(self, node: cst.CSTNode) -> bool:
        """The function hands values on among the ranks afterwards."""
        function = self.ctx.enclosing_function(node)
        after = self.ctx.tree.position(node)
        calls = (n for n in self.ctx.tree.own_nodes(function) if isinstance(n, cst.Call)) if function else ()
        return any(self.ctx.tree.position(c) > after and self._tells(c) for c in calls)

    def _tells(self, call: cst.Call) -> bool:
        """``strategy.reduce_boolean_decision(...)``, also by a local name of the method."""
        behind = self.ctx.names.single_value(call.func) if isinstance(call.func, cst.Name) else None
        return any(_TELLS.search(last_name(f)) for f in (call.func, behind) if f is not None)

    def _report(self, found: DataDivergence) -> None:
        test = self.ctx.text(found.node)
        name = self.ctx.text(found.op.call.func)
        what = "skips" if found.skips else "makes"
        others = "the other ranks wait for it there" if found.skips else "the other ranks do not come"
        related = [self.ctx.location(found.op.call, "what the ranks do not share")]
        cause = "looks at the data of this rank alone"
        if found.variant is not None:
            label = "each rank has data of its own from here"
            if found.variant.is_lone:
                cause, label = "is set on some ranks only and nothing tells the others", "only some ranks come here"
            elif found.variant.is_clock:
                cause, label = "reads the clock of this rank", "no two ranks pass a limit at the same step"
            related.append(self.ctx.location(found.variant.source, label))
        self.report(
            found.node,
            f"`{test}` {cause}, and a rank for which it is true {what} `{name}`: {others}"
            " until the process-group timeout, or take its next call for this one",
            hint="Reduce the flag over all ranks first (`dist.all_reduce(flag, op=dist.ReduceOp.MAX)`), so that all of"
            " them decide alike; or multiply the loss by 0",
            related=tuple(related),
            facts={"collective": found.op.key, "family": found.op.collective.family},
        )


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield the tests of own data that the visitor of the file cannot see."""
    for parting in parted.partings(run):
        if not parted.is_about_data(parting) or parting.order:
            continue
        test = parted.test_node(parting)
        module = parting.test.module
        cause, label = parted.cause(parting)
        does = "makes" if parting.on_true else "skips"
        others = "the other ranks do not come" if parting.on_true else "the other ranks wait for it there"
        name = parted.called(run, parting)
        value = parting.test.test if isinstance(parting.test, Alt) else parting.test.subject
        yield run.finding(
            META,
            module,
            parting.test.node if isinstance(parting.test.node, ast.If) else test,
            f"`{run.text(module, test)}` {cause}, and a rank for which it is true {does} `{name}`: {others}"
            " until the process-group timeout, or take its next call for this one",
            hint="Reduce the flag over all ranks first (`dist.all_reduce(flag, op=dist.ReduceOp.MAX)`), so that all of"
            " them decide alike; or multiply the loss by 0",
            related=(
                run.location(*parted.place(parting), "what the ranks do not share"),
                *run.origin(value, label),
            ),
            severity=Severity.INFO if parting.varies & MISSING and _asks_for_field(test) else META.severity,
            varies=parting.varies,
            origin=parted.origin(run, parting),
            facts={"collective": parted.key(parting.event), "family": "run"},
        )


def _asks_for_field(test: ast.AST) -> bool:
    """`if labels is None or weights is None:`. That a field is in the batches of some ranks only is a guess."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    return all(isinstance(part, ast.Compare) and isinstance(part.left, ast.Name) for part in parts)


def _loop(body: str) -> str:
    return DDP_LOOP + body


EXAMPLES = (
    bad(
        "A batch with a NaN loss is skipped by the rank that has it",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
""")
        },
        "train.py:10",
    ),
    bad(
        "The step is a function, and the loop that calls it stands elsewhere",
        {"train.py": STEP_OF_AN_ENGINE},
        "train.py:11",
    ),
    bad(
        "An empty batch on one rank",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        if len(batch) == 0:
            continue
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
"""
        },
        "train.py:7",
    ),
    bad(
        "Only rank 0 knows whether to stop",
        {
            "train.py": """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = False
        if dist.get_rank() == 0:
            stop = os.path.exists(path)
        if stop:
            break
        dist.all_reduce(grads)
"""
        },
        "train.py:11",
    ),
    bad(
        "A callback of transformers stops the training of the first process",
        {"callbacks.py": HF_CALLBACK % "            control.should_training_stop = True\n"},
        "callbacks.py:8",
    ),
    bad(
        "A callback of Lightning stops the training of the first process",
        {"callbacks.py": LIGHTNING_CALLBACK % "trainer.strategy.barrier()"},
        "callbacks.py:8",
    ),
    good(
        "All of them stop when one does",
        {
            "callbacks.py": LIGHTNING_CALLBACK
            % "trainer.should_stop = trainer.strategy.reduce_boolean_decision(trainer.should_stop, all=False)"
        },
    ),
    good(
        "Every process sees the same steps",
        {
            "callbacks.py": HF_CALLBACK.replace("if state.is_world_process_zero and os", "if os")
            % "            control.should_training_stop = True\n"
        },
    ),
    bad(
        "A loss is normalised over all ranks where this one has found something",
        {"loss.py": LOSS_OF_POSITIVES % ("if len(found) > 0:\n        ", "return losses[found].sum() / mean(found)")},
        "loss.py:13",
    ),
    good(
        "It is normalised on every rank",
        {"loss.py": LOSS_OF_POSITIVES % ("", "return losses[found].sum() / mean(found)")},
    ),
    good(
        "Rank 0 tells the others",
        {
            "train.py": """\
import os

import torch.distributed as dist


def train(steps, path, grads):
    for _ in range(steps):
        stop = [False]
        if dist.get_rank() == 0:
            stop[0] = os.path.exists(path)
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
        dist.all_reduce(grads)
"""
        },
    ),
    good(
        "Rank 0 tells the others in a list, and keeps its own value",
        {"train.py": STOP_THAT_IS_TOLD},
    ),
    good(
        "The ranks agree before they skip",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            continue
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "A step counter is the same on all ranks",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        loss.backward()
        if step % 4 == 0:
            continue
        optimizer.step()
        if step >= limit:
            break
""")
        },
    ),
    good(
        "The job ends for all",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if not torch.isfinite(loss):
            raise ValueError("the loss is not finite")
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "The loss counts as zero, and every rank goes on",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        if torch.isnan(loss):
            loss = torch.nan_to_num(loss) * 0
        loss.backward()
        optimizer.step()
""")
        },
    ),
    good(
        "Only the printing depends on the data",
        {
            "train.py": _loop("""\
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        if loss.item() > 10:
            print("high")
""")
        },
    ),
)
