"""A method that overrides one of a Trainer does not take the arguments with which the library calls it.

**What.** `def compute_loss(self, model, inputs, return_outputs=False)` under transformers 4.46 or later, which passes
`num_items_in_batch`; `def training_step(self, model, inputs)`, `def log(self, logs)` since 4.47, a
`_save_checkpoint(self, model, trial, metrics)` that waits for an argument nobody passes any more; `optimizer_step` and
`on_before_optimizer_step` of Lightning 1.x under 2.x, a `dataloader_idx` that Lightning 1.7 gives no more.

**Why it hurts.** `TypeError` on every rank in the first step, at the first log or at the first save: after the model
was loaded and the data prepared, sometimes hours later.

**Fix.** Take the argument (`num_items_in_batch=None`), or `*args, **kwargs`, and hand it on to `super()`.

**When it stays quiet.** The method takes any arguments; a decorator is on it that nobody knows; the class replaces
the method that makes the call, too; the library has two forms of the call, one of which fits; a test of the release
is around the class. An error means that every release which the project allows calls it so; a warning, that a fresh
install takes such a release; an information, that the oldest one allowed does.

**Evidence.** `schemas/library_calls.json`: the calls in the classes of transformers 4.26 to 5.24, trl 0.7 to 1.16 and
Lightning 1.6 to 2.6, read from their wheels (`scripts/generate_library_calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.standing.standing import Standing
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import LibraryUses
from dslint.rules.names.gonenames import changed, who
from dslint.rules.names.overrides import Override, overrides

META = RuleMeta(
    code="DSL505",
    name="override-without-argument",
    kind="script",
    severity=Severity.WARNING,
    summary="an overridden method does not take what the release in use calls it with",
    markers=(r"transformers|trl|lightning|Trainer|Callback", r"class ", r"def "),
    references=(
        "https://github.com/huggingface/transformers/issues/34466",
        "https://github.com/huggingface/transformers/issues/36331",
        "https://github.com/huggingface/transformers/pull/34198",
    ),
    depends_on_run=True,
    no_experiment="Python refuses the call on each rank by itself; the probe runs with one release of the library",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each method that a release which the project allows calls with what it does not take."""
    for override in overrides(view):
        standing = view.standing(override.library, override.derived.guards, override.misfits)
        # Helpers of the project may call a method of a Trainer; a hook of Lightning is called by nobody else.
        if standing is not None and (standing.change or override.is_hook):
            yield _finding(view, override, standing)


def _finding(view: LibraryUses, override: Override, standing: Standing) -> Finding:
    problem = override.problems[standing.release]
    lacking = override.lacking(standing.release)
    take = f"`{lacking}=None`" if lacking and not problem.startswith("missing") else "`*args, **kwargs`"
    return view.finding(
        META,
        override.node,
        f"{who(standing)} calls `{override.node.name}` {_how(standing)}: {problem}",
        hint=f"Take {take}, and pass on to `super()` what you get",
        related=standing.allowance.origins,
        severity=standing.severity,
        facts={"class": override.title, "method": override.node.name, "problem": problem},
    )


def _how(standing: Standing) -> str:
    """Since when; nothing is known of the calls of older releases that ask a hook what it takes."""
    return f"differently ({changed(standing)})" if standing.change else "with other arguments"


_LOSS = """\
import torch
from transformers import Trainer


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        loss = torch.nn.functional.mse_loss(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss
"""
_STEP = """\
from transformers import Seq2SeqTrainer


class Base(Seq2SeqTrainer):
    pass


class MyTrainer(Base):
    def training_step(self, model, inputs):
        model.train()
        return super().training_step(model, inputs)
"""
_LIGHTNING = """\
import pytorch_lightning as pl


class Net(pl.LightningModule):
    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_idx, optimizer_closure, **kwargs):
        optimizer.step(closure=optimizer_closure)
"""
_HOOKS = """\
import pytorch_lightning as pl


class Net(pl.LightningModule):
    def on_train_batch_end(self, outputs, batch, batch_idx, dataloader_idx%s):
        self.ema.update(self)


class Count(pl.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx%s):
        self.seen += 1
"""
EXAMPLES = (
    bad(
        "Hooks of a batch wait for an index that old releases gave to those that name it",
        {"requirements.txt": "pytorch-lightning==1.9.5\n", "train.py": _HOOKS % ("", "")},
        ("train.py:5 error", "train.py:10 error"),
    ),
    good(
        "The index has a default",
        {"requirements.txt": "pytorch-lightning==1.9.5\n", "train.py": _HOOKS % ("=0", "=0")},
    ),
    bad(
        "The loss under a release that counts items",
        {"requirements.txt": "transformers==4.46.3\n", "train.py": _LOSS},
        "train.py:6 error",
    ),
    bad(
        "A range that reaches it", {"requirements.txt": "transformers>=4.40\n", "train.py": _LOSS}, "train.py:6 warning"
    ),
    bad("Nobody says which release is installed", {"train.py": _LOSS}, "train.py:6 warning"),
    bad(
        "The step, in a class between",
        {"requirements.txt": "transformers==4.47.1\n", "train.py": _STEP},
        "train.py:9 error",
    ),
    bad(
        "A Trainer of trl",
        {
            "requirements.txt": "trl==0.16.1\ntransformers==4.51.3\n",
            "train.py": _LOSS.replace("transformers import Trainer", "trl import SFTTrainer").replace(
                "(Trainer)", "(SFTTrainer)"
            ),
        },
        "train.py:6 error",
    ),
    bad(
        "An argument that nobody passes any more",
        {
            "requirements.txt": "transformers==4.49.0\n",
            "train.py": """\
import transformers


class MyTrainer(transformers.Trainer):
    def _save_checkpoint(self, model, trial, metrics):
        print("saving")
""",
        },
        "train.py:5 error",
    ),
    bad(
        "The steps of Lightning 1 under Lightning 2",
        {"requirements.txt": "pytorch-lightning==2.2.5\n", "train.py": _LIGHTNING},
        "train.py:5 error",
    ),
    good("The release that calls it so", {"requirements.txt": "transformers==4.45.2\n", "train.py": _LOSS}),
    good(
        "Any arguments are taken",
        {
            "requirements.txt": "transformers>=4.40\n",
            "train.py": _LOSS.replace("return_outputs=False)", "return_outputs=False, **kwargs)"),
        },
    ),
    good(
        "The argument has a default",
        {
            "requirements.txt": "transformers>=4.40\n",
            "train.py": _LOSS.replace("return_outputs=False)", "return_outputs=False, num_items_in_batch=None)"),
        },
    ),
    good(
        "The class has its own loop",
        {
            "requirements.txt": "transformers==4.49.0\n",
            "train.py": """\
from transformers import Trainer


class MyTrainer(Trainer):
    def _inner_training_loop(self, *args, **kwargs):
        for inputs in self.get_train_dataloader():
            self.training_step(self.model, inputs)

    def training_step(self, model, inputs):
        return model(**inputs).loss.backward()
""",
        },
    ),
    good(
        "One class for each release",
        {
            "requirements.txt": "transformers>=4.40\n",
            "train.py": """\
import transformers
from packaging import version
from transformers import Trainer

if version.parse(transformers.__version__) < version.parse("4.46"):

    class MyTrainer(Trainer):
        def training_step(self, model, inputs):
            return super().training_step(model, inputs)
else:

    class MyTrainer(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            return super().training_step(model, inputs, num_items_in_batch)
""",
        },
    ),
)
