"""Some ranks make a call that all ranks must make.

**What.** A collective (`dist.barrier()`, `model_engine.save_checkpoint(...)`, `accelerator.gather(...)`,
`trainer.evaluate()`, the forward of an FSDP model, the backward of a DDP model, `fabric.barrier()`, ...), or a function
of the project that runs one (imports are followed), is under a test that only some ranks pass: `if rank == 0:`,
`if accelerator.is_main_process:`, after `if rank != 0: return`, under `@rank_zero_only`.

**Why it hurts.** The ranks under the test wait for partners that never come. The job is still, with the GPUs
at 100 %, until the process-group timeout (10 to 30 minutes) ends it; or the waiting call pairs up with the *next*
collective of the other ranks, which then fail or read the wrong data. A checkpoint saved this way is lost: the
first thing that `save_checkpoint` does is a barrier.

**Fix.** Call the collective on every rank and keep only logging, printing and tokenizer saving under the test.
`save_checkpoint`, `save_16bit_model` and `trainer.save_model` choose the writing ranks themselves. The fix dedents
the call where it is the only statement under a plain rank test.

**When it stays quiet.** The other ranks run the same operation on their own path (`if/else` with the same call on
both sides, `if rank != 0: barrier()` ... `if rank == 0: barrier()`, context managers like `main_process_first`);
the test is the same on every rank (`rank == -1`, `is_initialized()`, `step % n == 0`, `state.should_save`); the
call works on a subgroup (`group=`); the others leave before the process group is made, or are a set that the file
does not tell (`rank % tp == 0`, `rank < n`), or work in a loop without an end on what callbacks of rank 0 send; the
helper under the test runs no collective, tests the rank itself, or tests a rank that it is told and is told `rank=-1`;
every call passes a constant for the rank.
Where the call runs only for callers that leave an argument out, and none in the file does, it is an information.
Calls that talk to other ranks only when parameters are partitioned (`trainer.save_model`, `engine.generate`,
`zero.GatheredParameters`) are reported only when ZeRO stage 3 is known.

**Evidence.** Two ranks over gloo with a timeout of 8 s: guarded `barrier`, `broadcast_object_list`, `save_checkpoint`
(ZeRO-2), `engine.backward` (stages 0, 2, 3), `accelerator.gather`, `reduce`, `pad_across_processes` and
`wait_for_everyone` all end in the timeout; `trainer.evaluate`, `predict` and `train` hang until killed; without the
guard each passes. A forward of a stage-3 model on rank 0 hangs even inside `with GatheredParameters(...)`, because the
hooks of the model gather again. In the same way `new_group`, the construction of `DistributedDataParallel`, the
backward of a DDP model, `torch.distributed.checkpoint.save` and `Accelerator.check_trigger` on rank 0 alone, a barrier
under `rank == 1`, and two barriers against one: the lonely side times out or loses its peer (torch 2.13). A group of
rank 0 alone, `new_group([0])`, is made without the others; the next group, which all ranks make, then finds nobody.
FSDP over gloo (torch 2.13): the forward, `state_dict`, `load_state_dict`, `clip_grad_norm_`, `summon_full_params` and
`optim_state_dict` of one rank wait, with `NO_SHARD` they do not; of FSDP2 the forward, `full_tensor`,
`torch.nn.utils.clip_grad_norm_` and `get_model_state_dict` with `full_state_dict=True` wait, `state_dict` does not.
`accelerator.prepare` of a model, `accelerator.backward`, entering `main_process_first()`, and DeepSpeed's
`safe_get_full_fp32_param` (stages 1 to 3) wait as well. The calls of Lightning, mmengine, OpenRLHF, ColossalAI,
composer, torchtune and Megatron are read from their sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.lonelyscripts import (
    DATA_FIRST,
    ENGINE_LOOP,
    EXPORT,
    LIGHTNING_FOLDER,
    LIGHTNING_SAVE,
    LORA,
    METRICS,
    PARTS_TOLD,
    REPORT,
    SAFE_SAVE,
    SEARCH,
    TOOLS,
    USES_TOOLS,
)
from dslint.rules.examples.snippets import DDP_LOOP
from dslint.rules.ranks import lonelycalls, parted
from dslint.rules.ranks.defaulted import left_out
from dslint.rules.ranks.lonelycalls import family, lonely, missed, name, since

if TYPE_CHECKING:
    from dslint.python.queries.parting import Parting
    from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL201",
    name="collective-under-rank-guard",
    kind="script",
    severity=Severity.ERROR,
    summary="a call that every rank must make is made by some ranks only",
    fix="safe",
    markers=parted.MARKERS,
    alone=parted.ALONE,
    also_told_by=parted.RANKS_PART,
    depends_on_run=True,
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/797",
        "https://github.com/deepspeedai/DeepSpeed/issues/2993",
        "https://github.com/huggingface/diffusers/issues/2606",
        "https://github.com/bghira/SimpleTuner/issues/262",
        "DeepSpeedEngine.save_checkpoint in deepspeed/runtime/engine.py",
    ),
)

_HINTS = {
    "save_checkpoint": "Call `save_checkpoint` on every rank: each writes its own part of the checkpoint; keep only"
    " logging and tokenizer saving under the test",
    "save_model": "Call `save_model` on every rank: the trainer writes from the main rank itself",
    "push_to_hub": "Call `push_to_hub` on every rank: the trainer uploads from the main rank itself",
    "save_state": "Call `save_state` on every rank: accelerate chooses the writing ranks itself",
    "barrier": "Move the barrier out of the branch so that every rank reaches it",
    "evaluate": "Evaluate on every rank and keep only the logging of the metrics under the test",
}
_HINT = "Call it on every rank and keep only logging under the test"
_TOGETHER = "Tell all ranks what was decided (`dist.broadcast`), and let them leave together"


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield each call that only some ranks make; after an early exit the first one stands for all that they miss."""
    left: set[int] = set()
    for parting in lonely(run):
        wait = run.waits.of(parting.event)
        if (wait is not None and wait.needs) or id(parting.test) in left:
            continue  # DSL202
        if "loads" in parting.event.tags and parting.event.receiver is not None:
            continue  # an engine or all of accelerate: DSL232
        if parting.exit:
            left.add(id(parting.test))
        yield _finding(run, parting)


def _finding(run: RunQuery, parting: Parting) -> Finding:
    module, node = parted.place(parting)
    who, others = parted.sides(run, parting)
    key = parted.key(parting.event)
    release = since(run, parting.event)
    what = f"since {release}, {parted.what(run, parting)}" if release else parted.what(run, parting)
    optional = left_out(module, node)
    what = f"without `{optional}`, {what}" if optional else what
    return run.finding(
        META,
        module,
        node,
        f"{what}, but {who}: {others}, and the job hangs",
        hint=_TOGETHER if parting.inner is not None else _HINTS.get(key, _HINT),
        related=(
            parted.test_place(run, parting),
            *parted.inner_place(run, parting),
            *parted.event_place(run, parting),
            *(missed(run, parting) if parting.exit else ()),
        ),
        fix=None if optional else lonelycalls.dedented(run, parting),
        severity=Severity.INFO if optional else Severity.WARNING if release else None,
        varies=parting.varies,
        origin=parted.origin(run, parting),
        facts={"collective": name(parting.event), "family": family(parting.event), "stage": run.stage},
    )


EXAMPLES = (
    bad("Lightning", {"train.py": LIGHTNING_SAVE, "requirements.txt": "lightning>=2.2\n"}, "train.py:8 error"),
    bad("Lightning of an unknown release saves on rank 0 only", {"train.py": LIGHTNING_SAVE}, "train.py:8 warning"),
    bad(
        "a property of Lightning that broadcasts",
        {"callbacks.py": LIGHTNING_FOLDER % ("@rank_zero_only", "")},
        "callbacks.py:11",
    ),
    good("the property is read on all ranks", {"callbacks.py": LIGHTNING_FOLDER % ("", "self.folder = ")}),
    good(
        "a release of Lightning whose save_checkpoint has no barrier",
        {"train.py": LIGHTNING_SAVE, "requirements.txt": "pytorch-lightning==2.0.1\n"},
    ),
    bad(
        "A checkpoint that only rank 0 saves",
        {
            "train.py": ENGINE_LOOP
            + """\
    if dist.get_rank() == 0:
        model_engine.save_checkpoint(args.output_dir)
"""
        },
        "train.py:12",
        fixed={"train.py": ENGINE_LOOP + "    model_engine.save_checkpoint(args.output_dir)\n"},
    ),
    bad(
        "A barrier after the other ranks have left",
        {"export.py": EXPORT},
        "export.py:9",
    ),
    bad(
        "A helper that waits for everybody, called by the main process",
        {"evaluate.py": REPORT},
        "evaluate.py:12",
    ),
    bad(
        "A helper of another file that waits for everybody",
        {
            "tools/__init__.py": "from .saving import save_all\n",
            "tools/saving.py": """\
import torch.distributed as dist


def save_all(model, path):
    model.save(path)
    dist.barrier()
""",
            "train.py": """\
from tools import save_all


def finish(model, path, is_main_process):
    if is_main_process:
        save_all(model, path)
""",
        },
        "train.py:6",
    ),
    bad(
        "A default that callers of other files may never use",
        {"metric.py": METRICS},
        "metric.py:9 info",
    ),
    good(
        "the other ranks work in an endless loop, and callbacks of rank 0 give them their work",
        {
            "serve.py": "import torch.distributed as dist\n\n\ndef serve(rank, app, request):\n"
            "    def answer(request):\n        dist.broadcast(request, 0)\n\n    def work():\n        while True:\n"
            "            dist.broadcast(request, 0)\n\n    if rank != 0:\n        work()\n    app.launch(answer)\n"
        },
    ),
    good("rank 0 says how many parts come, and sends them", {"train.py": PARTS_TOLD % "path"}),
    bad("what sends the parts runs on rank 0 only", {"train.py": PARTS_TOLD % "dist.get_rank() == 0"}, "train.py:21"),
    good(
        "a search on rank 0 that may end the job",
        {"train.py": SEARCH},
    ),
    good(
        "A helper of another file that chooses the rank itself, and one that both sides call",
        {
            "tools.py": TOOLS,
            "train.py": USES_TOOLS,
        },
    ),
    bad(
        "One rank leaves out the backward of a DDP model",
        {
            "train.py": DDP_LOOP
            + """\
        loss = model(batch).mean()
        if dist.get_rank() == 0 and step < limit:
            continue
        loss.backward()
        optimizer.step()
"""
        },
        "train.py:12",
    ),
    bad(
        "Rank 0 alone looks at the score and leaves the loop",
        {
            "train.py": DDP_LOOP
            + """\
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        score = loss.item()
        if dist.get_rank() == 0:
            if score < limit:
                break
"""
        },
        "train.py:10",
    ),
    good(
        "The rank of a LoRA, which is the size of its matrices",
        {"train.py": LORA},
    ),
    good(
        "Only the logging is under the test",
        {
            "train.py": ENGINE_LOOP
            + """\
    model_engine.save_checkpoint(args.output_dir)
    if dist.get_rank() == 0:
        print("saved")
"""
        },
    ),
    good(
        "Rank 0 prepares the data while the others wait: the barriers pair up",
        {"data.py": DATA_FIRST},
    ),
    good(
        "Both branches run the same collective",
        {
            "share.py": "import torch.distributed as dist\n\n\ndef share(path):\n    if dist.get_rank() == 0:\n"
            "        objects = [path.read_text()]\n        dist.broadcast_object_list(objects, src=0)\n    else:\n"
            "        objects = [None]\n        dist.broadcast_object_list(objects, src=0)\n    return objects[0]\n"
        },
    ),
    good(
        "`local_rank == -1` asks whether the run is distributed, and is the same everywhere",
        {
            "train.py": """\
import torch.distributed as dist


def finish(args):
    if args.local_rank != -1:
        dist.barrier()
"""
        },
    ),
    good(
        "The helper under the test saves without talking to other ranks",
        {"save.py": SAFE_SAVE},
    ),
)
