"""The ranks that hold parts of one model get different data.

**What.** A pipeline of DeepSpeed with several stages is fed by a loader whose `DistributedSampler` distributes to all
ranks of the job. Or all ranks hold parts of one model by tensor parallelism (`deepspeed.init_inference` with `tp_size`
or `mp_size` the number of ranks), and each rank takes its own share of the inputs.

**Why it hurts.** Nothing fails. The first stage reads the inputs and the last one the labels, each from its own
loader: the loss compares the outputs for one batch with the labels of another. The parts of a layer are added over the
ranks: sums of different texts are noise, and where the lengths differ the ranks wait for each other.

**Fix.** `DistributedSampler(dataset, num_replicas=engine.grid.get_data_parallel_world_size(),
rank=engine.grid.get_data_parallel_rank())`, or `training_data=dataset` for `deepspeed.initialize`; with tensor
parallelism the same inputs on every rank of the group.

**When it stays quiet.** Samplers that are told number and rank, other than those of the job; one stage; a size of the
parallel group that is not certainly the whole job.

**Evidence.** DeepSpeed 0.19 `PipelineEngine._exec_load_micro_batch`: the first stage takes the inputs of its own
iterator, the last stage the labels of its own; `deepspeed_io` makes its sampler with the data parallel size and rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL649",
    name="model-parallel-ranks-parted",
    kind="script",
    severity=Severity.WARNING,
    summary="ranks that hold parts of one model get different data",
    markers=(r"PipelineModule|init_inference", r"DistributedSampler|rank"),
    references=(
        "https://www.deepspeed.ai/tutorials/pipeline/",
        "https://github.com/HuangLK/transpeeder/issues/35",
        "https://github.com/deepspeedai/DeepSpeed/issues/7278",
    ),
    depends_on_run=True,
    no_experiment="needs a pipeline or a model on several GPUs",
)
_PIPELINE = "deepspeed.PipelineModule"
_SAMPLER = "torch.utils.data.DistributedSampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on samplers of pipelines, and on shares of what a tensor parallel model gets."""
    if not run.context.is_one_process:
        yield from _of_pipelines(run)
        yield from _of_tensors(run)


def _of_pipelines(run: RunQuery) -> Iterator[Finding]:
    engine = next((found.event for found in run.happenings("makes-engine") if _is_pipeline(run, found.event)), None)
    if engine is None:
        return
    for found in run.happenings("makes-distributed-sampler"):
        event = found.event
        if event.api == _SAMPLER and not event.open and _is_of_job(run, event):
            yield run.finding(
                META,
                event.module,
                event.node,
                "this divides the items among all ranks, but pipeline stages must read the same ones: outputs"
                " and labels"
                " mismatch",
                hint="Pass `num_replicas=engine.grid.get_data_parallel_world_size()` and"
                " `rank=engine.grid.get_data_parallel_rank()`",
                related=(run.location(engine.module, engine.node, "the engine of the pipeline"),),
            )


def _is_pipeline(run: RunQuery, engine: Event) -> bool:
    """Return whether an engine certainly runs a pipeline of more than one stage."""
    models = instances(engine.arguments.get("model"))
    made = run.makers.get(models[0]) if len(models) == 1 and models[0].cls == _PIPELINE else None
    if made is None or made.open:
        return False
    stages = made.arguments.get("num_stages")
    return stages is not None and stages.constants not in ((1,), (None,)) and _default(run, stages) != 1


def _default(run: RunQuery, value: Value) -> object:
    stated = run.machine.defaults.get(value.number) if value.number is not None else None
    known = stated.constants if stated is not None else None
    return known[0] if known and len(known) == 1 else None


def _is_of_job(run: RunQuery, event: Event) -> bool:
    """Return whether a sampler deals out to the whole job: it is told nothing, or the rank of the job."""
    rank = event.arguments.get("rank")
    return rank is None or rank.constants == (None,) or _is_rank(run, rank)


def _is_rank(run: RunQuery, value: Value) -> bool:
    atom = value.single
    values = getattr(atom, "values", None)
    worlds = run.machine.worlds
    return values is not None and all(values[lane] == worlds.lanes[lane][0] for lane in range(worlds.count))


def _of_tensors(run: RunQuery) -> Iterator[Finding]:
    made = next((f.event for f in run.happenings("wraps-model") if f.event.api == "deepspeed.init_inference"), None)
    if made is None or not _takes_whole_job(made):
        return
    for found in run.occurrences("generate", "forward"):
        for call in found.calls:
            share = _share(call.node)
            if share is not None:
                yield run.finding(
                    META,
                    call.module,
                    share,
                    f"each rank takes its own share, `{run.text(call.module, share, 40)}`, but all ranks hold"
                    " parts of one"
                    " model: inputs mix",
                    hint="Give every rank of the tensor parallel group the same inputs",
                    related=(run.location(made.module, made.node, "the model is divided among all ranks"),),
                )
                return


def _takes_whole_job(made: Event) -> bool:
    """Return whether the parallel group of a model certainly is the whole job, by the words of its size."""
    text = ast.unparse(made.node)
    return any(
        f"{key}{world}" in text.replace(" ", "")
        for key in ("'tp_size':", "mp_size=", "tp_size=")
        for world in ("world_size", "dist.get_world_size()", "args.world_size", "int(os.environ['WORLD_SIZE'])")
    )


def _share(node: ast.AST) -> ast.AST | None:
    """Return an argument of a call that is every n-th item from the rank on."""
    for argument in node.args if isinstance(node, ast.Call) else ():
        step = argument.slice if isinstance(argument, ast.Subscript) else None
        if isinstance(step, ast.Slice) and step.lower is not None and step.step is not None:
            words = ast.unparse(step.lower), ast.unparse(step.step)
            if "rank" in words[0] and "world" in words[1]:
                return argument
    return None


_PIPE = """\
import deepspeed
from deepspeed.pipe import PipelineModule
from torch.utils.data import DataLoader, DistributedSampler


def main(layers, dataset, config):
    net = PipelineModule(layers=layers, num_stages=%s, loss_fn=loss)
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
    sampler = DistributedSampler(dataset%s)
    loader = iter(DataLoader(dataset, batch_size=8, sampler=sampler))
    for _ in range(100):
        engine.train_batch(data_iter=loader)


main(make_layers(), load_data(), "config.json")
"""
_GRID = ", num_replicas=engine.grid.get_data_parallel_world_size(), rank=engine.grid.get_data_parallel_rank()"
_TENSORS = """\
import deepspeed
import torch.distributed as dist
from transformers import AutoModelForCausalLM


def answer(engine, prompts):
    return [engine.module.generate(prompt) for prompt in prompts]


def main(prompts):
    deepspeed.init_distributed()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    engine = deepspeed.init_inference(model, tensor_parallel={"tp_size": %s})
    print(answer(engine, prompts%s))


main(load_prompts())
"""

EXAMPLES = (
    bad("a pipeline", {"train.py": _PIPE % (4, "")}, at="train.py:9 warning"),
    good("the data parallel rank", {"train.py": _PIPE % (4, _GRID)}),
    good("one stage", {"train.py": _PIPE % (1, "")}),
    bad("tensor parallelism", {"infer.py": _TENSORS % ("world_size", "[rank::world_size]")}, at="infer.py:15 warning"),
    good("the same prompts", {"infer.py": _TENSORS % ("world_size", "")}),
    good("a model for each rank", {"infer.py": _TENSORS % ("1", "[rank::world_size]")}),
)
