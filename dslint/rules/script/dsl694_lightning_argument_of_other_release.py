"""Lightning's Trainer is given an argument, or the name of a strategy, that the release in use refuses.

**What.** `Trainer(gpus=8, accelerator="ddp")`, `distributed_backend=`, `num_processes=`, `replace_sampler_ddp=`,
`amp_backend=` and the like under a release that has removed them, also by `**options` that the file writes out;
`Trainer.from_argparse_args(args)` from 2.0 on; `strategy=` under a release before 1.5, or the name of a strategy that
the release lacks (`"dp"`, `"ddp_sharded"`, `"fsdp_native"` since 2.0).

**Why it hurts.** `TypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'` on every rank, after the
queue, the imports and the data. With `accelerator="ddp"` it is `You selected an invalid accelerator name`, since 1.7.

**Fix.** `devices=8, accelerator="gpu", strategy="ddp"`; `use_distributed_sampler` for `replace_sampler_ddp`. Or pin
the release that takes the old names.

**When it stays quiet.** A file that asks for the version of Lightning or handles a `TypeError`; names that no release
knows; classes derived from the Trainer. A warning means that the stated release refuses the argument, or that the
stated range allows a newest release which does; where nobody states a release it is an information.

**Evidence.** `schemas/lightning_arguments.json`, generated from the released sources of pytorch-lightning 0.10 to 2.6;
`accelerator_connector.py` of 1.5 ("will be removed in v1.7") and of 1.7.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dslint.core.finding import Finding, Severity
from dslint.core.schemafiles import load_file
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.versions.resolve import covers, holds_between
from dslint.python.events import Event
from dslint.python.names import names_of
from dslint.python.passed import passed
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import trainers

META = RuleMeta(
    code="DSL694",
    name="lightning-argument-of-other-release",
    kind="script",
    severity=Severity.WARNING,
    summary="an argument of Lightning's Trainer that the release in use does not take",
    markers=(r"lightning", r"Trainer"),
    alone=(r"lightning", r"Trainer\.(?:add|from)_argparse_args"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/19499",
        "https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html",
    ),
    depends_on_run=True,
    no_experiment="the probe runs without Lightning; its released sources say which arguments exist",
)
_LIBRARY = "lightning"
_ASKS = re.compile(r"__version__|TypeError|_GREATER_EQUAL|RequirementCache|compare_version")
# Strategies by the name of an accelerator: deprecated in 1.5, refused from 1.7 on.
_AS_ACCELERATOR = re.compile(r"ddp|dp$|horovod$|deepspeed|fully_sharded")
_AS_ACCELERATOR_UNTIL = "1.7.0"
_TRAINER = re.compile(r"(?:pytorch_lightning|lightning)\b.*\.Trainer")
# Class methods for command lines, which 2.0 removed.
_ARGPARSE = frozenset({"add_argparse_args", "from_argparse_args", "parse_argparser", "match_env_arguments"})
_WITHOUT_ARGPARSE = "2.0.0"
_INSTEAD = {
    "gpus": "`devices`",
    "num_gpus": "`devices`",
    "num_processes": "`devices`",
    "tpu_cores": '`devices` with `accelerator="tpu"`',
    "ipus": '`devices` with `accelerator="ipu"`',
    "distributed_backend": "`strategy`",
    "replace_sampler_ddp": "`use_distributed_sampler`",
    "resume_from_checkpoint": "`trainer.fit(ckpt_path=...)`",
    "progress_bar_refresh_rate": "the callback `TQDMProgressBar`",
    "checkpoint_callback": "`enable_checkpointing`",
    "weights_summary": "`enable_model_summary`",
}


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_file("lightning_arguments.json")[_LIBRARY]
    return data


@lru_cache(maxsize=1)
def _strategies() -> dict[str, list[str]]:
    """The releases in which names of strategies come and go."""
    rows = load_file("library_changes.json")["values"]
    return {row["value"]: row["releases"] for row in rows if row["argument"] == "strategy"}


def _word(event: Event, argument: str) -> str:
    """The text that an argument is for certain."""
    value = event.arguments.get(argument)
    word = value.constants[0] if value is not None and value.constants and len(value.constants) == 1 else None
    return word if isinstance(word, str) else ""


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each argument of a Trainer that a release in use refuses."""
    version = run.context.libraries.get(_LIBRARY, VersionFact())
    names = _data()["classes"]["Trainer"]["names"]
    first = _data()["releases"][0]
    for event in trainers(run):
        if event.may or event.api != "lightning.Trainer" or event.module.search(_ASKS):
            continue
        written = _written(event)
        given = [(name, names[name], f"`{name}`") for name in written if name in names]
        word = _word(event, "accelerator")
        if _AS_ACCELERATOR.match(word):
            given.append(("accelerator", [first, _AS_ACCELERATOR_UNTIL], f'`accelerator="{word}"`'))
        word = _word(event, "strategy")
        if word in _strategies():
            given.append(("strategy", _strategies()[word], f'`strategy="{word}"`'))
        for name, span, shown in given:
            severity = _severity(span, version)
            if severity is not None:
                yield _finding(run, event, (name, shown), span, version, severity)
                break
    yield from _argparse(run, version)


def _argparse(run: RunQuery, version: VersionFact) -> Iterator[Finding]:
    """Fire on the first function of the Trainer for `argparse` in each file, where the release has none any more."""
    severity = _severity([_data()["releases"][0], _WITHOUT_ARGPARSE], version)
    for module in run.machine.program.modules() if severity is not None else ():
        calls = (n for n in module.nodes_of(ast.Attribute) if n.attr in _ARGPARSE)
        call = next((n for n in calls if _TRAINER.fullmatch(module.path_of(n.value))), None)
        if call is None or module.search(_ASKS):
            continue
        who = f" ({version_named(version, _LIBRARY)} is in use)" if version.is_known else ""
        yield run.finding(
            META,
            module,
            call,
            f"lightning {_WITHOUT_ARGPARSE} removed `Trainer.{call.attr}`{who}: `AttributeError` on every rank",
            hint="Pass the options to `Trainer(...)`, or use `LightningCLI`",
            related=version_origin(version, _LIBRARY),
            severity=severity,
            facts={"argument": call.attr},
        )


def _written(event: Event) -> dict[str, ast.expr]:
    """Return the arguments that a call names, also by a dictionary that the module writes out."""
    if not isinstance(event.node, ast.Call):
        return {}
    named = {keyword.arg: keyword.value for keyword in event.node.keywords if keyword.arg is not None}
    is_open = any(keyword.arg is None for keyword in event.node.keywords)
    return {**passed(names_of(event.module.tree), event.node).named, **named} if is_open else named


def _severity(span: list[str], version: VersionFact) -> Severity | None:
    """Return how bad an argument is that some releases take; `None` where those in use do."""
    first, newest = _data()["releases"][0], _data()["releases"][-1]
    status = holds_between(span, first, version, _LIBRARY)
    is_removed = len(span) % 2 == 0
    if not version.is_known:
        return Severity.INFO if is_removed else None
    if status == "no":
        return Severity.WARNING
    allows = covers(VersionFact(f"=={newest}"), version.specifier, _LIBRARY) == "yes"
    return Severity.WARNING if status == "maybe" and is_removed and allows else None


def _finding(
    run: RunQuery, event: Event, given: tuple[str, str], span: list[str], version: VersionFact, severity: Severity
) -> Finding:
    name, shown = given
    is_removed = len(span) % 2 == 0
    change = f"lightning {span[-1]} removed" if is_removed else f"is new in lightning {span[0]}"
    said = f"{change} {shown}" if is_removed else f"{shown} {change}"
    who = f" ({version_named(version, _LIBRARY)} is in use)" if version.is_known else ""
    instead = (
        "a strategy that it has" if name == "strategy" else "`strategy`" if "=" in shown else _INSTEAD.get(name, "")
    )
    return run.finding(
        META,
        event.module,
        _written(event).get(name, event.node),
        f"{said}{who}: the Trainer raises on every rank",
        hint=f"Use {instead}" if instead and is_removed else f"Leave {shown} out, or pin a release that takes it",
        related=version_origin(version, _LIBRARY),
        severity=severity,
        facts={"argument": name},
    )


_TRAIN = """\
import pytorch_lightning as pl

from mine import Data, Model

trainer = pl.Trainer(max_epochs=3, %s)
trainer.fit(Model(), Data())
"""


def _project(arguments: str, pin: str = "", before: str = "") -> dict[str, str]:
    files = {"train.py": before + _TRAIN % arguments}
    return {**files, "requirements.txt": f"pytorch-lightning{pin}\n"} if pin else files


_OLD = 'gpus=8, accelerator="ddp"'

EXAMPLES = (
    bad("old names under a new release", _project(_OLD, "==2.2.0"), "train.py:5 warning"),
    bad("a range that reaches it", _project("gpus=8", ">=1.6"), "train.py:5 warning"),
    bad("a strategy as accelerator", _project('devices=8, accelerator="ddp"', "==1.8.0"), "train.py:5 warning"),
    bad("nobody says which", _project("gpus=8"), "train.py:5 info"),
    bad("a new name under an old release", _project('gpus=8, strategy="ddp"', "==1.4.2"), "train.py:5 warning"),
    bad(
        "by a dictionary",
        _project("**options", "==2.2.0", "options = dict(gpus=8, precision=16)\n\n"),
        "train.py:1 warning",
    ),
    bad(
        "functions for argparse",
        {
            "train.py": _TRAIN.replace("pl.Trainer(max_epochs=3, %s)", "pl.Trainer.from_argparse_args(args())")
            + "\n\ndef args():\n    return None\n",
            "requirements.txt": "lightning==2.1.0\n",
        },
        "train.py:5 warning",
    ),
    bad("a strategy that is gone", _project('devices=8, strategy="dp"', "==2.2.0"), "train.py:5 warning"),
    bad("a strategy that came later", _project('devices=8, strategy="fsdp_native"', "==1.6.5"), "train.py:5 warning"),
    good("a strategy of the release", _project('devices=8, strategy="ddp_sharded"', "==1.9.5")),
    good("the release that takes them", _project(_OLD, "==1.6.5")),
    good("new names", _project('devices=8, accelerator="gpu", strategy="ddp"', "==2.2.0")),
    good("a range that ends before", _project("gpus=8", ">=1.5,<2.0")),
    good(
        "the version is requested",
        _project("**({'devices': 8} if pl.__version__ >= '2' else {'gpus': 8})", "==2.2.0"),
    ),
)
