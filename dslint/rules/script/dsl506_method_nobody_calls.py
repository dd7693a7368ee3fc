"""A method that overrides one of a library is called by nobody in a release in use, or refused there.

**What.** `training_epoch_end`, `validation_epoch_end` and `test_epoch_end` under Lightning 2, which stops at them;
`training_step_end`, `on_epoch_end` of a `LightningModule` or a `Callback` (1.8 and 1.9 stop at it),
`_rotate_checkpoints`, `_nested_gather` of a `Trainer`, which later releases call no more.

**Why it hurts.** Lightning raises on every rank at the start of `fit`. Where nobody calls the method, what it does is
silently left out: metrics are not written, checkpoints not rotated, a loss not weighted.

**Fix.** Write what the release calls in its place (`on_train_epoch_end`).

**When it stays quiet.** The module calls the method itself; a test of the release is around the class; the library
still names the method anywhere. For the severity see DSL505.

**Evidence.** `schemas/library_calls.json` and `schemas/library_changes.json`, read from the wheels of transformers, trl
and Lightning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.standing.calls import instead_of
from dslint.model.standing.standing import Standing
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import LibraryUses
from dslint.rules.names.gonenames import changed, who
from dslint.rules.names.overrides import Override, overrides

META = RuleMeta(
    code="DSL506",
    name="method-nobody-calls",
    kind="script",
    severity=Severity.WARNING,
    summary="an overridden method that the release in use does not call any more",
    markers=(r"transformers|trl|lightning|Trainer|Callback", r"class ", r"def "),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/pull/16520",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/17182",
    ),
    depends_on_run=True,
    no_experiment="the probe runs with one release of the library; the wheels say what calls the method",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each method that a release which the project allows does not call, although others do."""
    for override in overrides(view):
        method = override.node.name

        def fails(release: str, override: Override = override) -> bool | None:
            calls = override.calls(release)
            return True if override.refusal(release) else None if calls is None else not calls

        standing = view.standing(override.library, override.derived.guards, fails)
        if standing is None or _is_called(view, method):
            continue
        # The distribution `lightning` has no release that still called them; the table has those of its other name.
        if standing.came if standing.change else not override.is_hook:
            continue
        yield _finding(view, override, standing)


def _is_called(view: LibraryUses, method: str) -> bool:
    """The module names the method itself: `self.method()`, `super().method()` elsewhere."""
    return any(
        node.attr == method and not isinstance(node.value, ast.Call) for node in view.module.nodes_of(ast.Attribute)
    )


def _finding(view: LibraryUses, override: Override, standing: Standing) -> Finding:
    name = override.node.name
    error = override.refusal(standing.release)
    instead = instead_of("lightning" if "lightning" in override.library else override.library, override.title, name)
    since = f" {changed(standing)}" if standing.change else ""
    does = (
        f"refuses `{name}`{since}: `{error.partition(':')[0]}` on every rank"
        if error
        else f"no longer calls `{name}`{since}: its code never runs"
    )
    return view.finding(
        META,
        override.node,
        f"{who(standing)} {does}",
        hint=f"Write `{instead}`" if instead else "Move the code into a method that the release calls",
        related=standing.allowance.origins,
        severity=standing.severity if error else min(standing.severity, Severity.WARNING, key=lambda s: s.rank),
        facts={"class": override.title, "method": name},
    )


_EPOCH = """\
import pytorch_lightning as pl
import torch


class Net(pl.LightningModule):
    def validation_epoch_end(self, outputs):
        self.log("val", torch.stack([x["loss"] for x in outputs]).mean(), sync_dist=True)
"""
_STEP = """\
import lightning as L


class Net(L.LightningModule):
    def training_step_end(self, outputs):
        return outputs["loss"].mean()
"""
EXAMPLES = (
    bad(
        "The package of the other name, which never called it",
        {
            "requirements.txt": "lightning==2.2.5\n",
            "count.py": "import lightning as L\n\n\nclass Count(L.Callback):\n"
            "    def on_batch_end(self, trainer, pl_module):\n        self.seen = True\n",
        },
        "count.py:5 warning",
    ),
    bad(
        "A hook of a callback that 2.0 calls no more",
        {
            "requirements.txt": "pytorch-lightning>=2.0\n",
            "report.py": "import pytorch_lightning as pl\n\n\nclass Report(pl.Callback):\n"
            "    def on_epoch_end(self, trainer, pl_module):\n        self.rows.append(trainer.current_epoch)\n",
        },
        "report.py:5 warning",
    ),
    bad(
        "Lightning 2 refuses it",
        {"requirements.txt": "pytorch-lightning==2.2.5\n", "train.py": _EPOCH},
        "train.py:6 error",
    ),
    bad(
        "A range that reaches Lightning 2",
        {"requirements.txt": "pytorch-lightning>=1.8\n", "train.py": _EPOCH},
        "train.py:6 warning",
    ),
    bad(
        "Nobody calls it any more", {"requirements.txt": "lightning==2.2.5\n", "train.py": _STEP}, "train.py:5 warning"
    ),
    bad(
        "A Trainer that rotates its checkpoints",
        {
            "requirements.txt": "transformers==5.24.0\n",
            "train.py": """\
from transformers import Trainer


class MyTrainer(Trainer):
    def _rotate_checkpoints(self, use_mtime=False, output_dir=None):
        print("keeps all of them")
""",
        },
        "train.py:5 warning",
    ),
    good("Lightning 1 calls it", {"requirements.txt": "pytorch-lightning==1.9.5\n", "train.py": _EPOCH}),
    good(
        "The new name",
        {
            "requirements.txt": "pytorch-lightning==2.2.5\n",
            "train.py": _EPOCH.replace("def validation", "def on_validation")
            .replace(", outputs", "")
            .replace("outputs", "self.outputs"),
        },
    ),
    good(
        "The module calls it itself",
        {
            "requirements.txt": "lightning==2.2.5\n",
            "train.py": _STEP
            + "\n    def training_step(self, batch, index):\n        return self.training_step_end(self(batch))\n",
        },
    ),
)
