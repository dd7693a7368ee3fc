"""A device map for a model that ZeRO stage 3 spreads over the ranks.

**What.** `from_pretrained(..., device_map=...)` with a value other than `None` in a run at ZeRO stage 3, after
transformers has been told of it (`HfDeepSpeedConfig`, `TrainingArguments`, `accelerate`).

**Why it hurts.** Stage 3 places the weights itself. transformers refuses the combination: `ValueError: DeepSpeed Zero-3
is not compatible with passing a device_map` on every rank, when the model is loaded.

In a job of several processes without ZeRO, `device_map="auto"` spreads the model of each process over the GPUs of all,
and accelerate refuses to train it: "You can't train a model that has been loaded with `device_map='auto'` in any
distributed mode", also where `SentenceTransformer(..., model_kwargs={"device_map": "auto"})` hands it on; a map to GPU
0 for quantised weights stops all but the first: "... on a different device than the one you're training on". That
several processes run it is known from the command, or taken from what only such a script has (`LOCAL_RANK`, `torchrun`,
`main_process_first`, `ddp_find_unused_parameters`, or `fsdp=`, which transformers refuses in one process).

At stage 3 the releases of transformers before 5.0 refuse `low_cpu_mem_usage=True` as well; later ones ignore it.

**Fix.** Drop `device_map`, or make it `None` at stage 3: `device_map=None if is_deepspeed_zero3_enabled() else "auto"`.

**When it stays quiet.** The value is `None` wherever stage 3 can come to it, or not known; the stage is not known to be
3, or no command at stage 3 passes the switch of the branch; transformers is unaware of stage 3 at that point (then
DSL213 speaks), so that it accepts the map; tokenizers and other things that are no models; `low_cpu_mem_usage` where
nobody states a release from 4.28 to 4.57; `"auto"` in a script that may run in one process, or for a model that neither
a Trainer nor accelerate trains.

**Evidence.** `check_and_set_device_map` of transformers 5.23 raises the `ValueError`. Two ranks at stage 3: `"auto"`
and one device both raise on every rank; at stage 2 the model loads. `from_pretrained` of transformers 4.28 to 4.57
raises for `low_cpu_mem_usage=True` as well, and `Accelerator.prepare_model` of accelerate 1.15 for a model on more than
one device in a distributed run (both read from the sources).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.versions.resolve import covers
from dslint.python.events import Alt, Event
from dslint.python.source import Module
from dslint.python.values import Const, Instance, PerRank, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.mapscripts import MAP_ARM, MAP_CHAT, MAP_DDP, MAP_HF_CONFIG, MAP_SENTENCES, MAP_WRONG_ARM
from dslint.rules.examples.rankscripts import MAP_FSDP, MAP_PLAIN, MAP_TRAIN, OF_WORLD, QLORA, QLORA_TRAIN
from dslint.rules.ranks.devices import written
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.zero.mappedmodels import is_given_to_ddp, is_on_first
from dslint.rules.zero.stagetests import ALL, ZERO3, Stages, outcome, value_behind, value_of_key

META = RuleMeta(
    code="DSL214",
    name="z3-with-device-map",
    kind="script",
    severity=Severity.ERROR,
    summary="`device_map` for a model that ZeRO stage 3 spreads over the ranks",
    markers=(
        r"device_map[\"']?\s*[=:]|low_cpu_mem_usage",
        r"from_pretrained|SentenceTransformer\(",
        r"deepspeed|accelerat|Train|trl|zero|DataParallel|DDP",
    ),
    references=(
        "check_and_set_device_map in transformers/integrations/accelerate.py",
        "https://huggingface.co/docs/transformers/main/en/deepspeed",
    ),
    depends_on_run=True,
)

# The maps that use every GPU that the process sees.
_SPREADING = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
_REFUSES = ">=4.28,<5"
_MAX_STEPS = 4


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a device map of a model that is loaded at stage 3, or in several processes of a machine."""
    seen: set[int] = set()
    for entry, tree in run.trees():
        is_told = False
        for found in happenings_of(tree, entry):
            event, finding = found.event, None
            if event.tags & {"training-arguments", "live-config"} or event.api == "accelerate.Accelerator":
                is_told = True
            elif "loads" in event.tags and event.modules and event.api.startswith("transformers."):
                finding = _judged(run, found, is_told) if id(event.node) not in seen else None
            elif "loads-inside" in event.tags:
                finding = _of_wrapper(run, found) if id(event.node) not in seen else None
            if finding is not None:
                seen.add(id(event.node))
                yield finding


def _judged(run: RunQuery, found: Happening, is_told: bool) -> Finding | None:
    value = found.event.arguments.get("device_map")
    if value is None:
        return _of_memory(run, found, is_told)
    return _of_ranks(run, found, value) or _of_stage(run, found, value, is_told)


def _of_stage(run: RunQuery, found: Happening, value: Value, is_told: bool) -> Finding | None:
    """A map that is there at stage 3."""
    event, here = found.event, run.stages.at(found)
    node = written(event, "device_map")
    if here.is_open or not here.may_be(3):
        return None
    parts = list(_parts(event.module, node, 0)) if isinstance(node, ast.expr) and node is not event.node else []
    at_3 = [(part, stages) for part, stages in parts if stages is None or 3 in stages & here.possible]
    # Each value that stage 3 can come to is a map, and one of them certainly is there at stage 3.
    if len(parts) > 1:
        if not at_3 or not all(_is_map_written(part) for part, _ in at_3) or None in [stages for _, stages in at_3]:
            return None
        certain = [part for part, stages in at_3 if stages is not None and stages & here.possible <= ZERO3]
        certain = [part for part, _ in at_3] if here.is_among(3) and (is_told or here.tests) else certain
    else:
        is_sure = _is_map(value) and here.is_among(3) and (is_told or bool(here.tests))
        certain = [node] if is_sure and isinstance(node, ast.expr) else []
    if not certain:
        return None
    shown = _shown(run, event, certain[0], value)
    return run.finding(
        META,
        event.module,
        node,
        f"`device_map={shown}` conflicts with ZeRO stage 3, which places the weights: transformers raises"
        " `ValueError` on"
        " every rank",
        hint="Drop `device_map`, or pass `None` when `is_deepspeed_zero3_enabled()`",
        related=here.places,
        facts={"device_map": "auto" if value.constants == ("auto",) or "auto" in shown else "one device"},
    )


def _of_ranks(run: RunQuery, found: Happening, value: Value) -> Finding | None:
    """`"auto"` in a job of several processes on a machine: each spreads the model over the GPUs of all of them."""
    event, processes = found.event, run.context.processes_per_node
    known = value.constants
    is_spread = bool(known) and set(known or ()) <= _SPREADING
    if run.stages.stated[0] == 3 or not (is_spread or is_on_first(run, event, value)):
        return None
    intended = intends_several(run) if processes.get_or(0) < 2 else ()
    if processes.get_or(0 if intended else 1) == 1:
        return None
    wrapped = is_spread and any(is_given_to_ddp(run, wrap.event, event) for wrap in run.happenings("wraps-model"))
    trains = wrapped or run.has("trainer", "prepares")
    if not trains or any(isinstance(n, Alt) and _is_choice(n) for n in found.around):
        return None
    node = written(event, "device_map")
    return _refused(run, event, node, _shown(run, event, node, value), intended, is_spread, "DDP" if wrapped else "")


def _of_wrapper(run: RunQuery, found: Happening) -> Finding | None:
    """`model_kwargs={"device_map": "auto"}` of a class that loads the model inside, in several processes."""
    event, processes = found.event, run.context.processes_per_node
    node = event.nodes.get("model_kwargs")
    place = value_of_key(event.module, node, "device_map") if node is not None and not event.open else None
    if not isinstance(place, ast.Constant) or place.value not in _SPREADING or not run.has("trainer", "prepares"):
        return None
    intended = intends_several(run) if processes.get_or(0) < 2 else ()
    if processes.get_or(0 if intended else 1) == 1 or any(isinstance(n, Alt) and _is_choice(n) for n in found.around):
        return None
    return _refused(run, event, place, run.text(event.module, place), intended, is_spread=True)


def _refused(
    run: RunQuery,
    event: Event,
    node: ast.AST,
    shown: str,
    intended: tuple[Location, ...],
    is_spread: bool,
    refuser: str = "",
) -> Finding:
    processes = run.context.processes_per_node
    who = f"each of {processes.get()} processes" if processes.is_known else "each process"
    does = "spreads every model copy over all GPUs" if is_spread else "puts every quantised copy on GPU 0"
    return run.finding(
        META,
        event.module,
        node,
        f"`device_map={shown}` in {who} {does}, and {refuser or 'accelerate'} refuses to train it",
        hint='Drop `device_map`, or give each process its own GPU: `device_map={"": local_rank}`',
        related=(*(place.labelled("several processes are started here") for place in processes.origins), *intended),
        severity=Severity.WARNING,
        facts={"device_map": "auto in several processes" if is_spread else "first device in several processes"},
    )


def _of_memory(run: RunQuery, found: Happening, is_told: bool) -> Finding | None:
    """`low_cpu_mem_usage=True`, which the releases before 5.0 refuse."""
    event, stated = found.event, run.context.libraries.get("transformers")
    value = event.arguments.get("low_cpu_mem_usage")
    if value is None or stated is None or value.constants != (True,):
        return None
    here = run.stages.at(found)
    if not ((is_told or here.tests) and here.is_among(3)) or covers(stated, _REFUSES, "transformers") != "yes":
        return None
    return run.finding(
        META,
        event.module,
        written(event, "low_cpu_mem_usage"),
        "`low_cpu_mem_usage=True` at ZeRO stage 3: transformers"
        f" {stated.specifier.removeprefix('==')} raises a `ValueError` on every rank",
        hint="Drop `low_cpu_mem_usage`: at stage 3 no rank holds the whole model anyway",
        related=(*here.places, *([stated.origin] if stated.origin is not None else [])),
        facts={"device_map": "none"},
    )


def _shown(run: RunQuery, event: Event, node: ast.AST, value: Value) -> str:
    """Return the value as the code has it; where it comes from elsewhere what it is."""
    if node is not event.node:
        return run.text(event.module, node)
    return repr(value.constants[0]) if value.constants else "..."


def _parts(module: Module, node: ast.expr, steps: int) -> Iterator[tuple[ast.expr, Stages | None]]:
    """Yield the expressions that a map may come from with the stages that choose each; `None`: nobody knows."""
    behind = value_behind(module, node)
    if isinstance(behind, ast.IfExp) and steps < _MAX_STEPS:
        return (yield from _parts(module, behind, steps + 1))
    if not isinstance(node, ast.IfExp) or steps > _MAX_STEPS:
        yield node, ALL
        return
    told = outcome(module, node.test)
    for arm, side in ((node.body, 0), (node.orelse, 1)):
        for part, stages in _parts(module, arm, steps + 1):
            yield part, None if told is None or stages is None else stages & told[side]


def _is_map_written(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict | ast.DictComp) or (isinstance(node, ast.Constant) and node.value is not None)


def _is_map(value: Value) -> bool:
    """Return whether a value is a map for certain: no `None`, and nothing that nobody knows."""
    return bool(value.atoms) and all(
        (isinstance(atom, Const) and atom.value is not None)
        or isinstance(atom, PerRank)
        or (isinstance(atom, Instance) and atom.cls in ("builtins.dict", "torch.device"))
        for atom in value.atoms
    )


def _is_choice(alt: Alt) -> bool:
    """Return whether runs may take either side of a test."""
    return bool(alt.then_lanes) and bool(alt.else_lanes)


def _loads(call: str, stage: int = 3) -> dict[str, str]:
    return {"train.py": MAP_TRAIN % (stage, call)}


_FOUR = "torchrun --nproc_per_node 4 train.py\n"

EXAMPLES = (
    bad("DDP of a model on all GPUs", {"train.py": MAP_DDP % '"auto"'}, at="train.py:11 warning"),
    good("DDP of a model on the rank's GPU", {"train.py": MAP_DDP % '{"": rank}'}),
    bad(
        "`auto` in a script that is written for several processes, in two files",
        {"model.py": QLORA % ("", '"auto"'), "train.py": QLORA_TRAIN},
        "model.py:9 warning",
    ),
    bad("`auto` beside `fsdp`", {"train.py": MAP_FSDP % '"full_shard auto_wrap"'}, "train.py:4 warning"),
    bad(
        "in the arguments of a wrapper",
        {"train.py": MAP_SENTENCES % '{"device_map": "auto"}', "run.sh": _FOUR},
        "train.py:6 warning",
    ),
    bad(
        "in a dictionary with a name",
        {
            "train.py": (MAP_SENTENCES % "options").replace("options = {", 'options = {"device_map": "balanced", '),
            "run.sh": _FOUR,
        },
        "train.py:5 warning",
    ),
    good(
        "a wrapper without a map",
        {"train.py": MAP_SENTENCES % "options", "run.sh": "torchrun --nproc_per_node 4 train.py\n"},
    ),
    good(
        "a wrapper in one process",
        {"train.py": MAP_SENTENCES % '{"device_map": "auto"}', "run.sh": "python train.py\n"},
    ),
    good("an empty `fsdp`", {"train.py": MAP_FSDP % '""'}),
    bad(
        "quantised weights on GPU 0 in every process",
        {"model.py": QLORA % ("", '{"": 0}'), "train.py": QLORA_TRAIN},
        "model.py:9 warning",
    ),
    good(
        "Each process has its own GPU",
        {"model.py": QLORA % ("", '{"": int(os.environ["LOCAL_RANK"])}'), "train.py": QLORA_TRAIN},
    ),
    good(
        "`auto` in one process only",
        {"model.py": QLORA % (OF_WORLD, "PLACES"), "train.py": QLORA_TRAIN},
    ),
    bad(
        "`auto` on each of four processes, without ZeRO",
        {
            "train.py": MAP_PLAIN % '"auto"',
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 warning",
    ),
    good(
        "`auto` in one process",
        {"train.py": MAP_PLAIN % '"auto"', "run.sh": "python train.py\n"},
    ),
    good(
        "a device for each of four processes",
        {
            "train.py": MAP_PLAIN % '{"": local_rank}',
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
    ),
    bad(
        "`low_cpu_mem_usage`, with a release that refuses it",
        {
            **_loads('model = AutoModelForCausalLM.from_pretrained("gpt2", low_cpu_mem_usage=True)'),
            "requirements.txt": "transformers==4.41.2\n",
        },
        at="train.py:11 error",
    ),
    good(
        "`low_cpu_mem_usage`, with a release that ignores it",
        {
            **_loads('model = AutoModelForCausalLM.from_pretrained("gpt2", low_cpu_mem_usage=True)'),
            "requirements.txt": "transformers==5.23.0\n",
        },
    ),
    bad(
        "`auto`",
        _loads('model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")'),
        at="train.py:11 error",
    ),
    bad(
        "a whole device for each rank, by way of a variable",
        _loads('place = {"": local_rank}\n    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'),
        at="train.py:12",
    ),
    bad(
        "the stage of the config that a plain DeepSpeed script names",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}\n',
            "train.py": MAP_HF_CONFIG,
        },
        at="train.py:6",
    ),
    bad(
        "the wrong arm of a test that asks for stage 3",
        {"load.py": MAP_WRONG_ARM},
        at="load.py:6",
    ),
    good(
        "none at stage 3",
        _loads(
            'place = None if is_deepspeed_zero3_enabled() else "auto"\n'
            '    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'
        ),
    ),
    good(
        "an arm for runs without DeepSpeed: no command at stage 3 passes its switch",
        {
            "zero3.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n',
            "run.sh": "torchrun --nproc_per_node 8 train.py --output_dir out --deepspeed zero3.json\n",
            "train.py": MAP_ARM,
        },
    ),
    good(
        "stage 2 keeps whole models, each on its device",
        _loads('model = AutoModelForCausalLM.from_pretrained("gpt2", device_map={"": local_rank})', 2),
    ),
    good(
        "a map for quantized models only, and nobody knows whether they are",
        _loads(
            "place = None\n    if lora.q_lora:\n        place = {'': local_rank}\n"
            '    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'
        ),
    ),
    good(
        "`None`, and a map for something that is no model",
        _loads(
            'model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=None)\n'
            '    store = AutoProcessor.from_pretrained("gpt2", device_map="auto")'
        ),
    ),
    good(
        "an inference script that nothing connects with DeepSpeed",
        {"chat.py": MAP_CHAT},
    ),
)
