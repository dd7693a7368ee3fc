"""`"auto"` where nobody fills it in.

**What.** A value is `"auto"`, and the program that reads the config has nothing to put there. transformers fills 17
places (batch sizes, clipping, parameters of optimizer and scheduler, precision, three bucket sizes), accelerate's
plugin six more (stage, offload devices and paths, `stage3_gather_16bit_weights_on_model_save`); plain DeepSpeed and
Lightning fill none.

**Why it hurts.** accelerate, through which the Trainer goes as well, looks at every value of the config, comments
included, and stops with ``ValueError: `...` not found in kwargs. Please specify `...` without `auto` ``. Plain
DeepSpeed silently drops an `"auto"` of a validated section and takes its default instead. With one of clipping,
optimizer and schedule it computes, and stops with a `TypeError` or `ValueError`.

**Fix.** Write a value, or delete the key for DeepSpeed's default.

**When it stays quiet.** Where it is not known who reads the config; `steps_per_print`, which accelerate sets itself;
under plain DeepSpeed what other rules say (batch sizes, precision, values that break), and a
learning rate over which a schedule writes its own before the first step (`WarmupLR` with the fused Adam, say).
transformers before 4.31, which did not go through accelerate.

**Evidence.** `DeepSpeedPlugin.fill_match` and `deepspeed_config_process` in `accelerate/utils/dataclasses.py` (since
accelerate 0.10); run with a Trainer of transformers 5.23 and accelerate 1.15: every other `"auto"` raised, in
`zero_optimization`, in `fp16`, at the top level and in a key `_comment`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.accidents import TENSOR_SIZE
from dslint.model.deepspeed.config import FILLED_BY_ACCELERATE, FILLED_BY_HF
from dslint.model.deepspeed.hyper import caveat, class_name, refused
from dslint.model.deepspeed.offload import OPTIMIZER as OFFLOADED
from dslint.model.deepspeed.offload import is_offloaded, offload_device
from dslint.model.deepspeed.precision import model_format
from dslint.model.deepspeed.schema import is_strict, schema_at
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import delete_member
from dslint.parse.data import DataDoc, dotted_key, split_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL136",
    name="auto-not-filled",
    kind="config",
    severity=Severity.ERROR,
    summary='`"auto"` at a place that nobody fills in: the Trainer stops, plain DeepSpeed takes its default',
    fix="unsafe",
    consumers=("hf", "accelerate", "deepspeed", "lightning"),
    depends_on_run=True,
)

_DS = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": "auto"
  }
}
"""
_PLAIN = _DS.replace('gpu": "auto"', 'gpu": 4')

EXAMPLES = (
    bad(
        "the Trainer stops",
        {"ds.json": _DS},
        "ds.json:5 error",
        fixed={"ds.json": _DS.replace(',\n    "overlap_comm": "auto"', "")},
    ),
    bad("a comment counts", {"ds.json": _DS.replace("overlap_comm", "_overlap")}, "ds.json:5 error"),
    bad("plain DeepSpeed takes its default", {"ds.json": _PLAIN}, "ds.json:5 warning", consumer="deepspeed"),
    bad(
        "plain DeepSpeed computes with clipping and learning rate",
        {
            "ds.json": '{"train_batch_size": 8, "gradient_clipping": "auto",\n'
            '  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 0}}\n'
        },
        ("ds.json:1 error", "ds.json:2 error"),
        consumer="deepspeed",
    ),
    good("what the Trainer fills", {"ds.json": _DS.replace("overlap_comm", "reduce_bucket_size")}),
    good(
        "what accelerate fills",
        {"ds.json": _DS.replace('"overlap_comm": "auto"', '"offload_param": {"device": "auto"}')},
    ),
    bad(
        "torch's classes look at the rate before the schedule writes it",
        {
            "ds.json": '{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": "auto"}},\n'
            '  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}}\n'
        },
        "ds.json:1 error",
        consumer="deepspeed",
    ),
    bad(
        "a warm-up of an old release leaves the text where it is",
        {
            "ds.json": '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": "auto"}},\n'
            '  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}}\n'
        },
        "ds.json:1 error",
        consumer="deepspeed",
        deepspeed_version="0.12.6",
    ),
    good(
        "the schedule writes its own rate over it",
        {
            "ds.json": '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": "auto"}},\n'
            '  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}}\n'
        },
        consumer="deepspeed",
        deepspeed_version="0.19.8",
    ),
    good(
        "accelerate's file names the config, and a Trainer of trl fills it",
        {
            "ds.json": '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": '
            '{"stage": 2},\n  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}}\n',
            "acc.yaml": "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
            "  zero3_init_flag: false\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 2\n",
            "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
            "train.py": "from accelerate import Accelerator\nfrom trl import RewardConfig, RewardTrainer\n\n"
            'accelerator = Accelerator()\nargs = RewardConfig(output_dir="out")\n'
            "RewardTrainer(model=None, args=args).train()\n",
        },
    ),
    good("nobody says who reads it", {"ds.json": _PLAIN}),
)

# Filled by accelerate alone (without a Trainer) only where the script passes its stand-ins for optimizer and scheduler.
_NOT_BY_ACCELERATE = ("/optimizer/params/betas", "/optimizer/params/eps")

# Schedules of DeepSpeed that set the rate when they are made, and optimizers that do not look at it until they step.
_WRITE_THE_RATE = ("WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest")
_WRITTEN_SINCE = ">=0.15.3"  # all of them; earlier warm-ups leave the text where it is until the first step
_FUSED = ("adam", "adamw", "lamb", "lion")


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Every `"auto"` of the config."""
    view = view_of(doc, context)
    trainer = view.consumer in ("hf", "accelerate")
    if trainer and not view.is_trainer:
        return
    if trainer and view.runs("<4.31", of="transformers") == "yes":
        return
    for pointer in doc.values:
        if doc.get(pointer) != "auto" or doc.hidden(pointer) is not None or "/" not in pointer:
            continue
        finding = _for_trainer(view, pointer) if trainer else _for_deepspeed(view, pointer)
        if finding is not None:
            yield finding


def _for_trainer(view: ConfigView, pointer: str) -> Finding | None:
    filled = pointer in FILLED_BY_ACCELERATE or pointer in FILLED_BY_HF or pointer == "/steps_per_print"
    if view.consumer == "accelerate" and pointer in _NOT_BY_ACCELERATE:
        filled = False
    # A list is no place of its own to accelerate.
    if filled or any(part.isdigit() for part in split_pointer(pointer)):
        return None
    who = "the Trainer" if view.consumer == "hf" else "accelerate"
    name = dotted_key(pointer)
    return _finding(
        view,
        pointer,
        f'`{name}` is `"auto"`, but {who} does not fill it in: it stops with `ValueError`',
        Severity.ERROR,
        {"shows": "trainer"},
    )


def _for_deepspeed(view: ConfigView, pointer: str) -> Finding | None:
    if pointer in FILLED_BY_HF and pointer.startswith(("/optimizer/", "/scheduler/", "/gradient_clipping")):
        return _breaks(view, pointer)
    parent = pointer.rpartition("/")[0]
    # The size of tensor parallelism stops the run as text: `wrong-type`.
    if not is_strict(parent) or pointer in ("/fp16/enabled", "/bf16/enabled", "/bfloat16/enabled", TENSOR_SIZE):
        return None
    own = schema_at(pointer)
    if own is None:
        return None  # an unknown key: another rule
    default = view.or_default(pointer, view.fact(pointer))
    taken = f"its default, {str(default.get()).lower()}" if default.is_known else "its default"
    name = dotted_key(pointer)
    reader = "Lightning" if view.consumer == "lightning" else "plain DeepSpeed"
    return _finding(
        view, pointer, f'`{name}` is `"auto"`, which {reader} does not fill in: '
        f"it silently uses {taken}",
        Severity.WARNING,
    )  # fmt: skip


def _breaks(view: ConfigView, pointer: str) -> Finding | None:
    """Values that DeepSpeed computes with as they are."""
    if pointer == "/optimizer/params/lr" and _is_overwritten(view):
        return None
    severity = refused(view) if pointer.startswith("/optimizer/") else Severity.ERROR
    if severity is None or (pointer != "/gradient_clipping" and not view.has(f"/{pointer.split('/')[1]}/type")):
        return None
    name = dotted_key(pointer)
    when = "in its first step" if pointer == "/gradient_clipping" else "at start-up or in its first step"
    return _finding(
        view, pointer, f'`{name}` is `"auto"`, which DeepSpeed itself does not fill in: it stops {when}'
        f"{caveat(severity)}",
        severity, {"shows": "engine", "with": "" if pointer == "/gradient_clipping" else f"/{pointer.split('/')[1]}"},
    )  # fmt: skip


def _is_overwritten(view: ConfigView) -> bool:
    """A schedule may write its own rate over `lr` before anything computes with it, so the run may go on.

    Not where the class looks at the rate when it is made (torch's, the optimizers of the CPU), nor where the wrapper of
    16 bits without ZeRO takes a step at once.
    """
    schedule, optimizer = class_name(view, "scheduler"), class_name(view, "optimizer")
    torch_adam = view.fact("/optimizer/params/torch_adam")
    if any(fact.is_unknown for fact in (schedule, optimizer, torch_adam, view.stage, model_format(view))):
        return True
    if view.runs(_WRITTEN_SINCE) == "no" or schedule.get_or("") not in _WRITE_THE_RATE:
        return False
    if optimizer.get_or("") not in _FUSED or torch_adam.get_or(False):
        return False
    wrapped = view.stage.get_or(1) == 0 and model_format(view).get_or("fp32") != "fp32"
    return not wrapped and not is_offloaded(offload_device(view, OFFLOADED))


def _finding(
    view: ConfigView, pointer: str, message: str, severity: Severity, facts: dict[str, str] | None = None
) -> Finding:
    edits = delete_member(view.doc, pointer)
    return META.finding(
        view.value(pointer),
        message,
        hint="Write a value, or delete the key for DeepSpeed's default",
        fix=Fix("Delete the key", edits, Safety.UNSAFE) if edits else None,
        severity=severity,
        pointer=pointer,
        facts=facts,
    )
