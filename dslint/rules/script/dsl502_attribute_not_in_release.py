"""Code reads an attribute of a library that a release in use does not have.

**What.** `torch._six.inf`, `torch.compile`, `transformers.deepspeed.HfDeepSpeedConfig`: a function, class or module by
its dotted name, after an import that succeeds. Also `self.tokenizer` in a class that derives from `Trainer`, directly
or by a class of another module, `self.trainer.lr_schedulers` in a `LightningModule`, and `accelerator.use_fp16` of an
object that the script makes.

**Why it hurts.** `AttributeError` on every rank that comes there: often not at the start, but at the first save, the
first evaluation or the end of the training.

**Fix.** Use the new name, or pin a release that has it.

**When it stays quiet.** A handler of the `AttributeError`, `hasattr`, `getattr` with a default, or a test of the
release keeps the code from releases that lack the name; the program itself puts it there; the project has a package
of that name. The module, or a class between, defines such an attribute itself; a base of the class is unknown. What
modules make while they are imported is not judged. For the severity see DSL501.

**Evidence.** The surface of the libraries by release, read from their wheels (docs/versions.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.gonenames import findings

META = RuleMeta(
    code="DSL502",
    name="attribute-not-in-release",
    kind="script",
    severity=Severity.WARNING,
    summary="an attribute of a library that the release in use does not have",
    markers=MARKERS,
    references=("https://github.com/pytorch/pytorch/issues/94078", "https://arxiv.org/abs/2512.20345"),
    depends_on_run=True,
    no_experiment="an attribute that is missing fails before any rank meets another",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each dotted name that a release which the project allows lacks."""
    told = {use.name for use in view.found.uses if use.kind != "attribute"}
    # What an import asks for is told there.
    read = [use for use in view.found.uses if use.kind == "attribute" and use.name not in told]
    yield from findings(META, view, read)


_READ = "import torch\n\n\ndef norm(values):\n    return torch._six.inf if not values else max(values)\n"
_OWN = """\
from transformers import Trainer


class PaddedTrainer(Trainer):
    def pad(self, values):
        return values + [self.tokenizer.pad_token_id]
"""
_SCHEDULERS = """\
import pytorch_lightning as pl


class Net(pl.LightningModule):
    def on_train_epoch_end(self):
        self.log("lr", self.trainer.lr_schedulers[0]["scheduler"].get_last_lr()[0])
"""
EXAMPLES = (
    bad(
        "An attribute of the object, in a class of another module and in one that derives from it",
        {
            "requirements.txt": "transformers==5.2.0\n",
            "base.py": _OWN,
            "train.py": "from base import PaddedTrainer\n\n\nclass Cut(PaddedTrainer):\n    def cut(self):\n"
            "        return self.tokenizer.model_max_length\n",
        },
        ("base.py:6 error", "train.py:6 error"),
    ),
    bad(
        "What an object holds",
        {"requirements.txt": "pytorch-lightning==1.9.5\n", "train.py": _SCHEDULERS},
        "train.py:6 error",
    ),
    good("The object has it there", {"requirements.txt": "pytorch-lightning==1.7.7\n", "train.py": _SCHEDULERS}),
    good(
        "The class gives itself what the library has no more",
        {
            "requirements.txt": "transformers==5.2.0\n",
            "train.py": _OWN + "\n    def use(self, tokenizer):\n        self.tokenizer = tokenizer\n",
        },
    ),
    good(
        "A base that nobody knows may have it",
        {
            "requirements.txt": "transformers==5.2.0\n",
            "train.py": "from toolbox import Tokenizing\n" + _OWN.replace("(Trainer)", "(Tokenizing, Trainer)"),
        },
    ),
    bad(
        "A module that torch 2.0 has removed",
        {"requirements.txt": "torch==2.1.2\n", "train.py": _READ},
        "train.py:5 error",
    ),
    bad("A range that reaches it", {"requirements.txt": "torch>=1.12\n", "train.py": _READ}, "train.py:5 warning"),
    bad(
        "A function that came later",
        {"requirements.txt": "torch==1.13.1\n", "train.py": "import torch\n\nstep = torch.compile(abs)\n"},
        "train.py:3 error",
    ),
    good("The pinned release has it", {"requirements.txt": "torch==1.13.1\n", "train.py": _READ}),
    good(
        "hasattr asks first",
        {
            "requirements.txt": "torch>=1.12,<2.1\n",
            "train.py": """\
import torch

if hasattr(torch, "compile"):
    step = torch.compile(abs)
faster = torch.compile(abs) if hasattr(torch, "compile") else abs
again = hasattr(torch, "compile") and torch.compile(abs)
""",
        },
    ),
    good(
        "A device that another package adds",
        {
            "requirements.txt": "torch==2.1.2\n",
            "train.py": "import intel_extension_for_pytorch\nimport torch\n\ntorch.xpu.empty_cache()\n",
        },
    ),
    good(
        "The error is handled",
        {
            "requirements.txt": "torch==1.13.1\n",
            "train.py": "import torch\n\ntry:\n    step = torch.compile(abs)\nexcept AttributeError:\n    step = abs\n",
        },
    ),
    good(
        "A flag with the release",
        {
            "requirements.txt": "torch>=1.12,<2.1\n",
            "train.py": """\
import torch
from packaging import version

IS_NEW = version.parse(torch.__version__) >= version.parse("2.0")


def build(step):
    if not IS_NEW:
        return step
    return torch.compile(step)
""",
        },
    ),
    good(
        "The program puts it there",
        {
            "requirements.txt": "torch==2.1.2\n",
            "train.py": "import math\n\nimport torch\n\ntorch.inf_ = math.inf\nprint(torch.inf_)\n",
        },
    ),
)
