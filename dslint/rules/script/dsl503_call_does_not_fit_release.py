"""A call of a library function does not fit its signature in a release in use.

**What.** `prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs=...)`, `deepspeed.initialize(...)`,
`super().training_step(model, inputs, num_items_in_batch)`, `self.toggle_optimizer(optimizer)` in a `LightningModule`:
an argument that the function takes no more, or not yet, more arguments by position than it has, or a required one that
is not given. Also a value that it refuses: the script of a dataset in `load_dataset("data/pairs.py")` since datasets 4.

**Why it hurts.** `TypeError` on every rank when the call is reached: after the queue, the imports, and often after the
model was loaded.

**Fix.** Call it as the release in use wants it, or pin a release that takes the call.

**When it stays quiet.** The function takes any keyword (`**kwargs`), or a decorator of it still takes the old name; a
test of the release, of the signature, or a handler of the `TypeError` is around the call; the call unpacks
something that nobody knows; no known release takes the call. Arguments of the Trainers and their configs are told by
DSL264 and DSL694. For the severity see DSL501.

**Evidence.** The signatures of the libraries by release, read from their wheels (docs/versions.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dslint.core.finding import Finding, Severity
from dslint.model.standing.standing import Standing
from dslint.model.trainerargs import class_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.gonenames import changed, who
from dslint.rules.names.librarycalls import LibraryCall, is_steady, refused_in

META = RuleMeta(
    code="DSL503",
    name="call-does-not-fit-release",
    kind="script",
    severity=Severity.WARNING,
    summary="arguments of a library function that the release in use does not take",
    markers=MARKERS,
    references=(
        "https://github.com/huggingface/peft/releases/tag/v0.5.0",
        "https://github.com/huggingface/accelerate/issues/2564",
    ),
    depends_on_run=True,
    no_experiment="Python refuses the call on each rank by itself",
)
_CAUGHT = frozenset({"", "Exception", "BaseException", "TypeError"})


_LIGHTNING_TRAINER = ("pytorch_lightning.Trainer", "lightning.Trainer", "lightning.pytorch.Trainer")


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each call that a release which the project allows refuses."""
    old: set[str] = set()  # libraries whose oldest release was spoken of: that is said once a file
    for call in view.calls:
        if call.caught & _CAUGHT or is_steady(view, call):
            continue
        standing = view.standing(call.library, call.guards, partial(_refuses, view, call))
        if standing is None or not standing.change:
            continue  # where no release takes the call, something else is meant
        if standing.reach == "oldest":
            if call.library in old:
                continue
            old.add(call.library)
        yield _finding(view, call, standing)


def _refuses(view: LibraryUses, call: LibraryCall, release: str) -> bool | None:
    refused = refused_in(view, call, release)
    if refused and _is_told(call.dotted) and call.problems[release].startswith("unexpected keyword"):
        return None
    return refused


def _is_told(dotted: str) -> bool:
    """The arguments of these classes by name are another rule's."""
    return dotted in _LIGHTNING_TRAINER or class_of(dotted) is not None


def _finding(view: LibraryUses, call: LibraryCall, standing: Standing) -> Finding:
    problem = call.problems[standing.release]
    library = call.library
    sign = ">=" if standing.came else "<"
    return view.finding(
        META,
        call.node,
        f"{who(standing)} refuses this call of `{call.short}` ({changed(standing)}): {problem}",
        hint=f"Call it as that release wants it, or pin `{library}{sign}{standing.change}`",
        related=standing.allowance.origins,
        severity=standing.severity,
        facts={"function": call.dotted, "problem": problem, "release": standing.release},
    )


_KBIT = """\
from peft import prepare_model_for_kbit_training


def prepare(model):
    return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
"""
_PPO = """\
from trl import PPOConfig, PPOTrainer


def trainer(model, reference, tokenizer):
    return PPOTrainer(PPOConfig(), model, reference, tokenizer)
"""
_SAVE = """\
from transformers import Trainer


class Saving(Trainer):
    def _save_checkpoint(self, model, trial, metrics=None):
        super()._save_checkpoint(model, trial, metrics)
"""
_TOGGLE = """\
import pytorch_lightning as pl


class GAN(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        self.toggle_optimizer(first)
        self.untoggle_optimizer(first)
"""
EXAMPLES = (
    bad(
        "A method with an underscore takes less",
        {"requirements.txt": "transformers==4.47.1\n", "train.py": _SAVE},
        "train.py:6 error",
    ),
    bad(
        "A method of the object as a later release has it",
        {"requirements.txt": "pytorch-lightning==1.9.5\n", "train.py": _TOGGLE},
        "train.py:7 error",
    ),
    good("The release whose method it is", {"requirements.txt": "pytorch-lightning==2.0.9\n", "train.py": _TOGGLE}),
    good(
        "A method by its class, with the object first",
        {
            "requirements.txt": "transformers==4.44.2\n",
            "train.py": _SAVE.replace("super()._save_checkpoint(", "Trainer._save_checkpoint(self, "),
        },
    ),
    bad(
        "A script of a dataset, which datasets 4 runs no more",
        {
            "requirements.txt": "datasets>=2.14\n",
            "train.py": "from datasets import load_dataset\n\nrows = load_dataset('data/pairs.py', split='train')\n",
        },
        "train.py:3 warning",
    ),
    good(
        "A release that runs it",
        {
            "requirements.txt": "datasets<4\n",
            "train.py": "from datasets import load_dataset\n\nrows = load_dataset('data/pairs.py', split='train')\n",
        },
    ),
    bad(
        "A trainer by position",
        {"requirements.txt": "trl==0.14.0\n", "train.py": _PPO},
        "train.py:5 error",
    ),
    good("The release for which it was written", {"requirements.txt": "trl==0.11.4\n", "train.py": _PPO}),
    bad(
        "An argument that came later",
        {"requirements.txt": "peft==0.5.0\n", "train.py": _KBIT},
        "train.py:5 error",
    ),
    bad(
        "Arguments in a dictionary",
        {
            "requirements.txt": "peft==0.5.0\n",
            "train.py": """\
from peft import prepare_model_for_kbit_training


def prepare(model):
    options = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    return prepare_model_for_kbit_training(model, **options)
""",
        },
        "train.py:6 error",
    ),
    good(
        "The pinned release takes it",
        {"requirements.txt": "peft==0.17.1\ntransformers==4.56.2\n", "train.py": _KBIT},
    ),
    good(
        "The signature is asked first",
        {
            "requirements.txt": "peft==0.5.0\n",
            "train.py": """\
import inspect

from peft import prepare_model_for_kbit_training


def prepare(model):
    if "gradient_checkpointing_kwargs" in inspect.signature(prepare_model_for_kbit_training).parameters:
        return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    return prepare_model_for_kbit_training(model)
""",
        },
    ),
    good(
        "Any keyword is taken",
        {
            "requirements.txt": "peft==0.4.0\n",
            "train.py": """\
from peft import PeftModel


def load(model, path):
    return PeftModel.from_pretrained(model, path, autocast_adapter_dtype=False)
""",
        },
    ),
)
