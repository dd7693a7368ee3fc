"""One rank skips a step, or leaves the loop, because of its own data.

**What.** A test on the data of this rank (`torch.isnan(loss)`, `len(batch) == 0`, `mask.sum() == 0`) decides over a
collective: `continue`, `break` or `return` before `model_engine.backward(...)`, `loss.backward()` of a DDP model or an
`all_reduce`, or the collective is in one branch only.

**Why it hurts.** The other ranks do not see this batch and continue: their backward waits for the rank that skipped,
until the process-group timeout. When each rank skips one batch at another step, nothing hangs, and gradients of
different steps are averaged silently.

**Fix.** Let the ranks agree first: `flag = torch.isnan(loss).float(); dist.all_reduce(flag, op=dist.ReduceOp.MAX)`, and
let all of them skip; or keep the graph and multiply the loss by 0.

A rank whose share of the items is empty (`if not paths[rank::world_size]: return`) parts from the others in the same
way as soon as there are fewer items than ranks. A rank that does not find the state file of its own
(`state_{rank}.json`) begins at step 0, and makes more steps than the others.

The loops of `transformers` and Lightning look at flags (`control.should_training_stop`, `trainer.should_stop`) that are
each rank's own: setting one under a test of the rank, of its data or of its clock is the same mistake, as is
`trainer.should_stop = time.time() > end`. Two ranks never read the same time: one passes the limit a step before the
other.

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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt
from dslint.python.queries.asked import expressions_of
from dslint.python.queries.parting import Parting
from dslint.python.varies import HOST, MISSING, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.batchsizes import counts_batch_sizes, is_batch_size, is_layout
from dslint.rules.examples.clockscripts import AGREED_TIME, LIMIT_OF_TIME, SAVE_BY_CLOCK, STOP_BY_CLOCK, TOLD_TIME
from dslint.rules.examples.rankscripts import (
    BUFFER_EMPTIED,
    DRAWS_OWN,
    DRAWS_SAME,
    EMPTY_BATCH,
    FILLED,
    GRADIENTS_OF_SOME,
    OUT_OF_MEMORY,
    OWN_MINIBATCHES,
    RESUMES,
    SERIES,
    SHARE_DEALT,
    SHARE_EMPTY_GOES_ON,
    SHARE_OF_NOTHING,
    SHARE_RETURNS,
    SHARE_USED,
    STOP_OF_A_LIST,
    SUMMED,
)
from dslint.rules.examples.snippets import (
    COUNTS_SIZES,
    DDP_LOOP,
    HF_CALLBACK,
    LIGHTNING_CALLBACK,
    LOADER_FROM_ELSEWHERE,
    LOSS_OF_POSITIVES,
    STEP_OF_AN_ENGINE,
    STOP_OF_RANK_0,
    STOP_THAT_IS_TOLD,
)
from dslint.rules.markers import OWN_DATA, WAITS
from dslint.rules.ranks import parted
from dslint.rules.ranks.loneflags import lone_flags
from dslint.rules.ranks.lonelycalls import since
from dslint.rules.ranks.syncedmetrics import is_synced_metric

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
    alone=(OWN_DATA, WAITS),
    also_told_by=parted.RANKS_PART,
    references=(
        "https://github.com/pytorch/pytorch/issues/38174",
        "https://pytorch.org/docs/stable/notes/ddp.html",
    ),
)

_CALL = "the call that the ranks do not share"


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield tests of what one rank has for itself that decide over collectives, and flags that it sets alone."""
    yield from _tests(run)
    yield from _flags(run)


def _tests(run: RunQuery) -> Iterator[Finding]:
    """Yield the tests of own data that decide over collectives."""
    for parting in parted.partings(run, of_releases=True):
        test = parted.test_node(parting)
        if (release := since(run, parting.event)) is None or is_synced_metric(run, parted.origin(run, parting)):
            continue
        if not parted.is_about_data(parting) or parting.order or any(map(is_batch_size, _expressions(parting))):
            continue
        if counts_batch_sizes(parting.test.node) or is_layout(test, _expressions(parting)):
            continue
        module = parting.test.module
        cause, label = parted.cause(parting)
        does = "calls" if parting.on_true else "skips"
        others = "waits for the others" if parting.on_true else "leaves the others waiting"
        name = parted.called(run, parting)
        label_of_call = f"the ranks do not share this call, which waits since {release}" if release else _CALL
        yield run.finding(
            META,
            module,
            parting.test.node if isinstance(parting.test.node, ast.If) else test,
            f"`{run.text(module, test)}` {cause}: a rank that {does} `{name}` alone {others}",
            hint="Reduce the flag over all ranks first (`dist.all_reduce(flag, op=dist.ReduceOp.MAX)`), so that all of"
            " them decide alike; or multiply the loss by 0",
            related=(
                run.location(*parted.place(parting), label_of_call),
                *parted.begins(run, parting, label),
            ),
            severity=Severity.INFO if _is_guess(parting, test) else META.severity,
            varies=parting.varies,
            origin=parted.origin(run, parting),
            facts={"collective": parted.key(parting.event), "family": "run"},
        )


def _flags(run: RunQuery) -> Iterator[Finding]:
    """`trainer.should_stop = True` of Lightning, `control.should_training_stop = True` of transformers."""
    for happening, tests in lone_flags(run):
        event = happening.event
        value = event.arguments.get("value")
        is_own = not tests and value is not None and not value.constants
        test = value if is_own else tests[-1].test if tests else None
        flag = run.text(event.module, event.node)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{flag}` gets what each rank finds for itself: a rank that stops alone leaves the others in"
            " their next collective"
            if is_own
            else f"`{flag}` is set on some ranks only: a rank that stops alone leaves the others in their next"
            " collective",
            hint="Set it on every rank from a value that they share: broadcast it, or"
            " `trainer.strategy.reduce_boolean_decision(...)`",
            related=tuple(
                run.location(alt.module, parted.asked(alt), "only some ranks get past this test") for alt in tests[-1:]
            ),
            varies=(run.machine.varies(test) if test is not None else 0) | (tests[-1].varies if tests else RANKED),
            origin=run.machine.origin(test) if test is not None else None,
            facts={"collective": "flag", "family": event.api.partition(".")[0]},
        )


def _expressions(parting: Parting) -> Iterator[ast.AST]:
    """Yield the test, and what the names and functions in it stand for."""
    yield parted.test_node(parting)
    if isinstance(parting.test, Alt):
        yield from expressions_of(parting.test)


def _is_guess(parting: Parting, test: ast.AST) -> bool:
    """`if labels is None or weights is None:`. That a field is in the batches of some ranks only is a guess."""
    if not parting.varies & MISSING or parting.varies & HOST:
        return False
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
        "The step is a function, and the loop that calls it is elsewhere",
        {"train.py": STEP_OF_AN_ENGINE},
        "train.py:11",
    ),
    bad(
        "Each rank draws its minibatches by a seed of its own, and stops its updates alone",
        {"ppo.py": OWN_MINIBATCHES % "seed + rank"},
        "ppo.py:13",
    ),
    bad(
        "A rank without memory for its batch leaves it out",
        {"train.py": _loop(OUT_OF_MEMORY)},
        "train.py:14",
    ),
    bad("An empty batch on one rank", {"train.py": EMPTY_BATCH}, "train.py:7"),
    bad("Only rank 0 knows whether to stop", {"train.py": STOP_OF_RANK_0}, "train.py:11"),
    bad(
        "The loader comes from elsewhere, and each rank looks at its clock",
        {"train.py": LOADER_FROM_ELSEWHERE},
        ("train.py:9", "train.py:11"),
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
    bad(
        "Each process stops when its own time is over",
        {
            "callbacks.py": HF_CALLBACK.replace(
                '        if state.is_world_process_zero and os.path.exists("stop"):\n',
                "        if time.monotonic() > self.limit:\n",
            ).replace("import os", "import time")
            % "            control.should_training_stop = True\n"
        },
        "callbacks.py:8",
    ),
    bad(
        "A callback of Lightning stops and saves when its own time is over",
        {"callbacks.py": LIMIT_OF_TIME % "self.passed() > self.seconds"},
        ("callbacks.py:15", "callbacks.py:16"),
    ),
    bad("The answer of each rank's clock is the flag", {"module.py": STOP_BY_CLOCK % "late"}, "module.py:11"),
    bad("Each rank saves when enough time has passed for it", {"callbacks.py": SAVE_BY_CLOCK}, "callbacks.py:9"),
    good("Rank 0 looks at the clock for all", {"callbacks.py": LIMIT_OF_TIME % TOLD_TIME}),
    good("They agree on the flag", {"module.py": STOP_BY_CLOCK % AGREED_TIME}),
    good(
        "Lightning before 2.1 saves without a barrier",
        {"callbacks.py": SAVE_BY_CLOCK, "requirements.txt": "lightning==2.0.9\n"},
    ),
    bad("A rank without items returns before the barrier", {"infer.py": SHARE_RETURNS}, "infer.py:6"),
    bad(
        "The share is distributed by a function of another file",
        {
            "infer.py": SHARE_USED,
            "share.py": SHARE_DEALT,
        },
        "infer.py:8",
    ),
    bad("A buffer that the first rank has emptied decides", {"log.py": BUFFER_EMPTIED}, "log.py:15"),
    good("All ranks draw their minibatches by one seed", {"ppo.py": OWN_MINIBATCHES % "seed"}),
    good("A rank without items writes an empty file, and comes to the barrier", {"infer.py": SHARE_EMPTY_GOES_ON}),
    good("All ranks ask how many items there are at all", {"infer.py": SHARE_OF_NOTHING}),
    bad("Each process draws whether to evaluate", {"train.py": DRAWS_OWN}, "train.py:8"),
    good("Every process draws the same numbers", {"train.py": DRAWS_SAME}),
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
    bad(
        "A layer runs for some batches, and gradients that are there are added up",
        {"train.py": GRADIENTS_OF_SOME % (SERIES, SUMMED)},
        "train.py:26",
    ),
    good("The gradient of a layer that did not run is zero", {"train.py": GRADIENTS_OF_SOME % (SERIES, FILLED)}),
    bad(
        "Each rank looks for a state file of its own, and begins at the start without it",
        {"train.py": RESUMES % ('f"state_{dist.get_rank()}.json"', "pass")},
        "train.py:22",
    ),
    good(
        "The ranks agree on whether all of them have their file",
        {"train.py": RESUMES % ('f"state_{dist.get_rank()}.json"', "dist.all_reduce(found, op=dist.ReduceOp.MIN)")},
    ),
    good("One file for all ranks", {"train.py": RESUMES % ('"state.json"', "pass")}),
    good("Rank 0 tells the others", {"train.py": STOP_OF_A_LIST}),
    good("Rank 0 tells the others in a list, and keeps its own value", {"train.py": STOP_THAT_IS_TOLD}),
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
        "The last batch is shorter on all ranks alike",
        {
            "train.py": _loop("""\
        if batch.shape[0] < 8:
            continue
        model(batch).mean().backward()
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
        "The loss counts as zero, and every rank continues",
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
    good("a loop that counts the sizes of its batches", {"train.py": COUNTS_SIZES}),
)
