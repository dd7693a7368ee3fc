"""A second model is loaded while ZeRO stage 3 is active, and run without an engine.

**What.** `from_pretrained` runs after the `TrainingArguments` (or the `HfDeepSpeedConfig`, or an Accelerator with a
`DeepSpeedPlugin`) with a config of ZeRO stage 3 were made. Its model, a scorer of a metric or a teacher, is called
directly; no engine and no Trainer gets it.

**Why it hurts.** From then on transformers builds every model under `deepspeed.zero.Init`: each rank holds empty
placeholders. Only the hooks of an engine gather them before a layer runs. Without one the first layer stops with
`RuntimeError: 'weight' must be 2-D`, often after the first epoch, when the metric is computed for the first time.

**Fix.** Load the model before the arguments are made, or inside `deepspeed.zero.Init(enabled=False)`, for an
Accelerator `plugin.zero3_init_context_manager(enable=False)`; or give it an engine:
`deepspeed.initialize(model=teacher, config=...)`, `accelerator.prepare`.

**When it stays quiet.** The stage is not 3; the model comes to an engine, an Accelerator or a Trainer; it is quantized;
a test of the stage or a gather is around the call; the project switches the config off (`unset_hf_deepspeed_config`); a
plugin whose `zero3_init_flag` is false.

**Evidence.** Two gloo ranks, transformers 5.24 and DeepSpeed 0.19.8: a model that is loaded after the arguments raises
in its embedding on both ranks; one that was loaded before them runs. `PreTrainedModel.get_init_context`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.accelerators import ACCELERATOR, DEEPSPEED, plugin_of
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.zero3 import is_gathered, is_quantized, is_whole

META = RuleMeta(
    code="DSL687",
    name="second-model-without-engine",
    kind="script",
    severity=Severity.ERROR,
    summary="a second model is loaded while ZeRO stage 3 is active and runs without an engine: its weights are empty",
    markers=(r"from_pretrained", r"[dD]eep[sS]peed"),
    references=(
        "https://github.com/huggingface/transformers/issues/15244",
        "https://huggingface.co/docs/transformers/deepspeed#non-trainer-deepspeed-integration",
    ),
    depends_on_run=True,
)
_TAKES = frozenset({"makes-engine", "wraps-model", "prepares", "trainer"})
_SWITCHED_OFF = re.compile(
    r"unset_hf_deepspeed_config|zero\.Init\(\s*enabled\s*=\s*False|_hf_deepspeed_config_weak_ref"
    r"|zero3_init_context_manager|zero_init_disabled"
)
# A config file of which only the name is known.
_NAMED = re.compile(r"(?:zero|z|stage)[-_]?3(?!\d)", re.I)


@dataclass(slots=True)
class _Loaded:
    """What has happened so far: the call by which stage 3 is in force, and the models that were loaded since."""

    live: Event | None = None
    since: dict[Instance, tuple[Event, Event]] = field(default_factory=dict)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of a model that runs without an engine."""
    if any(module.search(_SWITCHED_OFF) for module in run.machine.program.modules()):
        return
    seen: set[int] = set()
    for entry, tree in run.trees():
        found = list(happenings_of(tree, entry))
        taken = _taken(found)
        state = _Loaded()
        for happening in found:
            event = happening.event
            _note(run, state, happening)
            loaded = _loaded(state, event, taken) if event.tags & {"forward", "generate"} else None
            if loaded is None or id(loaded[0].node) in seen or is_gathered(happening) or is_whole(happening):
                continue
            seen.add(id(loaded[0].node))
            yield _finding(run, happening, *loaded)


def _taken(found: list[Happening]) -> set[Instance]:
    """Return the models that come to an engine, an Accelerator or a Trainer."""
    taken: set[Instance] = set()
    for event in (h.event for h in found if h.event.tags & _TAKES):
        taken |= event.modules
        for value in event.arguments.values():
            taken |= set(instances(value))
    return taken


def _note(run: RunQuery, state: _Loaded, found: Happening) -> None:
    event = found.event
    if event.tags & {"training-arguments", "live-config"}:
        state.live = event if _is_at_3(run, event) else state.live
    elif event.api == ACCELERATOR:
        state.live = event if _inits_at_3(run, event) else state.live
    elif "loads" in event.tags and state.live is not None and not is_quantized(event) and not event.may:
        inside = any(isinstance(node, Context) and "zero-init" in node.tags for node in found.around)
        for module in () if inside or is_whole(found) else event.modules:
            state.since.setdefault(module, (event, state.live))


def _inits_at_3(run: RunQuery, event: Event) -> bool:
    """Return whether an Accelerator certainly puts stage 3 in force, by its plugin, also for what is loaded then."""
    plugin = plugin_of(run, event, "deepspeed_plugin", DEEPSPEED)
    if plugin is None or plugin.open or event.may:
        return False
    flag, stage = plugin.arguments.get("zero3_init_flag"), plugin.arguments.get("zero_stage")
    is_on = flag is None or flag.constants in ((True,), (None,))
    told = stage.constants == (3,) if stage is not None else plugin.stage == 3
    return is_on and told


def _is_at_3(run: RunQuery, event: Event) -> bool:
    """Return whether a call puts stage 3 in force: by its config, the run, or the name of the file."""
    stage = run.stages.of(event)
    if stage is not None:
        return stage == 3
    known = run.likely(event.config) or ()
    return len(known) == 1 and isinstance(known[0], str) and _NAMED.search(known[0]) is not None


def _loaded(state: _Loaded, event: Event, taken: set[Instance]) -> tuple[Event, Event] | None:
    """Return by which call the model was loaded that certainly runs, where nothing has taken it."""
    found = instances(event.receiver)
    if event.receiver is None or event.may or not found or any(atom in taken for atom in found):
        return None
    known = [state.since[atom] for atom in found if atom in state.since]
    return known[0] if len(known) == len(found) == len(event.receiver.atoms) else None


def _finding(run: RunQuery, found: Happening, load: Event, live: Event) -> Finding:
    event = found.event
    return run.finding(
        META,
        load.module,
        load.node,
        "this model is loaded while ZeRO stage 3 is active and runs without an engine: its weights are empty",
        hint="Load it before the arguments are made, or give it an engine",
        related=(
            run.location(event.module, event.node, "runs here"),
            run.location(live.module, live.node, "activates ZeRO stage 3"),
        ),
        facts={"stage": 3},
    )


_METRICS = """\
import torch
from transformers import AutoModel, AutoTokenizer


class Scorer:
    def __init__(self, name):
        self.name = name
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.encoder = %s

    @torch.no_grad()
    def embed(self, texts):
        if self.encoder is None:
            self.encoder = AutoModel.from_pretrained(self.name).eval()
        batch = self.tokenizer(texts, padding=True, return_tensors="pt")
        return self.encoder(**batch).last_hidden_state.mean(1)
"""
_TRAIN = """\
from metrics import Scorer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(data):
    scorer = Scorer("roberta-base")
    args = TrainingArguments("out", deepspeed=%s, eval_strategy="epoch")
    model = AutoModelForCausalLM.from_pretrained("gpt2")

    def compute_metrics(result):
        return {"score": float(scorer.embed(["a", "b"]).norm())}

    trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, compute_metrics=compute_metrics)
    trainer.train()


main([])
"""
_CONFIG = """{
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": %d, "stage3_gather_16bit_weights_on_model_save": True},
}"""
_TEACHER = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Distilling(Trainer):
    def __init__(self, *args, teacher=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = %s

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        with torch.no_grad():
            wanted = self.teacher(**inputs).logits
        loss = outputs.loss + (outputs.logits - wanted).square().mean()
        return (loss, outputs) if return_outputs else loss


def main(data):
    args = TrainingArguments("out", deepspeed=CONFIG)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    teacher = AutoModelForCausalLM.from_pretrained("gpt2-xl")
    Distilling(model=model, args=args, train_dataset=data, teacher=teacher).train()


CONFIG = %s
main([])
"""
_PLUGIN = """\
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM, CLIPTextModel


def main(loader):
    plugin = DeepSpeedPlugin(zero_stage=%s)
    %s
    encoder = CLIPTextModel.from_pretrained("openai/clip-vit-large-patch14").eval()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    %s
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with torch.no_grad():
            context = encoder(batch["ids"])[0]
        accelerator.backward(model(inputs_embeds=context).logits.mean())
        optimizer.step()
"""
_EARLY = "accelerator = Accelerator(deepspeed_plugin=plugin)"

EXAMPLES = (
    bad(
        "an encoder beside a model for which an Accelerator has a plugin",
        {"train.py": _PLUGIN % ("3, zero3_init_flag=True", _EARLY, "pass")},
        at="train.py:9 error",
    ),
    bad("its flag follows from the stage", {"train.py": _PLUGIN % ("3", _EARLY, "pass")}, at="train.py:9 error"),
    good(
        "the plugin is off while it is loaded, at stage 2, or made later",
        {
            "flag.py": _PLUGIN % ("3, zero3_init_flag=False", _EARLY, "pass"),
            "two.py": _PLUGIN % ("2", _EARLY, "pass"),
            "later.py": _PLUGIN % ("3", "pass", _EARLY),
        },
    ),
    bad(
        "a metric that loads its model at first use",
        {"metrics.py": _METRICS % "None", "train.py": _TRAIN % (_CONFIG % 3)},
        at="metrics.py:14 error",
    ),
    bad(
        "the name of the config says the stage",
        {"metrics.py": _METRICS % "None", "train.py": _TRAIN % '"configs/zero3.json"'},
        at="metrics.py:14 error",
    ),
    bad("a teacher", {"train.py": _TEACHER % ("teacher.eval()", _CONFIG % 3)}, at="train.py:21 error"),
    good(
        "it is loaded before",
        {
            "metrics.py": _METRICS % "AutoModel.from_pretrained(name).eval()",
            "train.py": _TRAIN % (_CONFIG % 3),
        },
    ),
    good("stage 2", {"metrics.py": _METRICS % "None", "train.py": _TRAIN % (_CONFIG % 2)}),
    good("an engine", {"train.py": _TEACHER % ("self.accelerator.prepare(teacher)", _CONFIG % 3)}),
)
