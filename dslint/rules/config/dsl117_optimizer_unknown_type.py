"""An optimizer that neither DeepSpeed nor torch has.

**What.** `optimizer.type` is neither one of DeepSpeed's own optimizers (`Adam`, `AdamW`, `Adagrad`, `Lamb`, `Lion`,
`Muon` and those of mup, in any case) nor the exact name of a class in `torch.optim`.

**Why it hurts.** Every rank stops with `AssertionError: sgd is not a supported DeepSpeed Optimizer` when the engine is
made, after the model was loaded. Names of classes are no names here: `FusedAdam` and `DeepSpeedCPUAdam` are what
DeepSpeed makes of `Adam` by itself.

**Fix.** `--fix` writes the name of a torch class in its own case, and `AdamW` for DeepSpeed's own Adam classes, which
are what it makes of `AdamW`.

**When it stays quiet.** A placeholder, `"auto"`, a name that some release in question knows, a class of the project by
its module (`mine.optim.EmaAdam`), which a script resolves. The 1-bit optimizers, which `optimizer-onebit-removed`
judges. A script that hands its own optimizer to `deepspeed.initialize` runs anyway: DeepSpeed then does not look
at the section. So it is a warning where nobody knows who reads the config.

**Evidence.** `DeepSpeedEngine._do_sanity_check` and `_is_supported_optimizer` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.hyper import ONE_BIT, OPTIMIZER, caveat, class_name, is_known, refused
from dslint.model.deepspeed.signatures import OPTIMIZERS, own_names, since, torch_names
from dslint.model.deepspeed.suggest import closest
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL117",
    name="optimizer-unknown-type",
    kind="config",
    severity=Severity.ERROR,
    summary="The optimizer of the config is none that DeepSpeed or torch has",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#optimizer-parameters",),
    depends_on_run=True,
    needs=("/optimizer/type",),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "optimizer": {"type": "%s", "params": {"lr": 0.001}}\n}\n'

EXAMPLES = (
    bad(
        "torch writes it in capitals",
        {"ds.json": _TEXT % "sgd"},
        "ds.json:3 warning",
        fixed={"ds.json": _TEXT % "SGD"},
    ),
    bad(
        "the name of a class of DeepSpeed",
        {"ds.json": _TEXT % "DeepSpeedCPUAdam"},
        "ds.json:3 warning",
        fixed={"ds.json": _TEXT % "AdamW"},
    ),
    bad("no optimizer has this name", {"ds.json": _TEXT % "AdamX"}, "ds.json:3 error", consumer="deepspeed"),
    bad("the release is too old for it", {"ds.json": _TEXT % "Lion"}, "ds.json:3 warning", deepspeed_version="0.10.3"),
    good("DeepSpeed's own names in any case", {"ds.json": _TEXT % "adamW"}),
    good("a class of torch", {"ds.json": _TEXT % "RMSprop"}),
    good("a class of the project, by its module", {"ds.json": _TEXT % "mine.optim.EmaAdam"}),
    good("a placeholder", {"ds.json": _TEXT % "${OPTIMIZER}"}),
    good("a release from before the first that is known", {"ds.json": _TEXT % "AdamW"}, deepspeed_version="0.8.3"),
)

# Classes of DeepSpeed, and what it makes them of.
_CLASSES = {
    "fusedadam": "AdamW", "deepspeedcpuadam": "AdamW", "cpuadam": "AdamW", "fusedlamb": "Lamb", "fusedlion": "Lion",
    "deepspeedcpulion": "Lion", "deepspeedcpuadagrad": "Adagrad", "muonwithauxadam": "Muon",
}  # fmt: skip
_SHOWN = "`Adam`, `AdamW`, `Adagrad`, `Lamb`, `Lion`, `Muon`"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The name in the section."""
    view = view_of(doc, context)
    fact = class_name(view, "optimizer")
    severity = refused(view)
    if severity is None or not fact.is_known:
        return
    if fact.get() in ONE_BIT or is_known(view, "optimizer", fact.get()):
        return
    name, written = fact.get(), view.raw(OPTIMIZER)
    if "." in written and not written.startswith(("torch.", "deepspeed.")):
        return  # a class of the project, which its script takes out of the config before DeepSpeed reads it
    if name in own_names(OPTIMIZERS):
        message = (
            f"`optimizer.type` `{written}` is new in DeepSpeed {since(OPTIMIZERS, name)}: "
            f"{version_named(view.version)} stops{caveat(severity)}"
        )
        yield META.finding(
            doc.value(OPTIMIZER), message, hint="Name another optimizer, or upgrade", pointer=OPTIMIZER,
            severity=severity, related=version_origin(view.version), facts={"since": since(OPTIMIZERS, name)},
        )  # fmt: skip
        return
    message = (
        f"`optimizer.type` `{written}` is unknown to DeepSpeed and `torch.optim`: every rank stops{caveat(severity)}"
    )
    hint, fix = _meant(doc, name)
    yield META.finding(doc.value(OPTIMIZER), message, hint=hint, fix=fix, severity=severity, pointer=OPTIMIZER)


def _meant(doc: DataDoc, name: str) -> tuple[str, Fix | None]:
    same = [other for other in torch_names(OPTIMIZERS) if other.casefold() == name.casefold()]
    near = closest(name, torch_names(OPTIMIZERS)) or closest(name, ("Lamb", "Lion", "Muon"))
    right = same[0] if same else _CLASSES.get(name.casefold()) or near
    if right is None:
        return f"Name an optimizer of DeepSpeed ({_SHOWN}), or a class of `torch.optim` as torch writes it", None
    edits = replace_value(doc, OPTIMIZER, f'"{right}"')
    sure = bool(same) or name.casefold() in _CLASSES
    fix = Fix(f"Write `{right}`", edits) if edits and sure else None
    return f"Write `{right}`" if sure else f"Did you mean `{right}`?", fix
