"""Of which class of a library an object is whose attributes a module reads."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from command import dslint

from dslint.model.standing.presence import held
from dslint.python.names import Names
from dslint.python.uses.collect import collect

LIBRARIES = frozenset({"transformers", "pytorch_lightning", "accelerate", "lightning"})


def read(code: str) -> list[str]:
    """The attributes of objects that a module reads, by the classes of the objects."""
    tree = ast.parse(textwrap.dedent(code))
    found = collect(tree, Names(tree), LIBRARIES, held())
    return [name for use in found.uses if use.is_bound for name in use.dotted]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class A(Trainer):\n def f(self): return self.tokenizer.pad", ["transformers.Trainer.tokenizer"]),
        ("class A(Trainer): ...\nclass B(A):\n def f(self): self.log({})", ["transformers.Trainer.log"]),
        ("class A(Trainer):\n def log(self): ...\nclass B(A):\n def f(self): self.log({})", []),
        ("class A(Trainer):\n def log(self): ...\nclass B(A):\n def log(self): super().log({})", []),
        ("class A: ...\nclass B(A, Trainer):\n def log(self): super().log({})", ["transformers.Trainer.log"]),
        ("class A(Unknown, Trainer):\n def f(self): self.log({})", []),
        ("class A(Trainer):\n tokenizer = None\n def f(self): self.tokenizer.pad", []),
        ("class A(Trainer):\n def __getattr__(self, name): ...\n def f(self): self.tokenizer", []),
        ("class A(Trainer):\n def f(self): return self.args.fp16", ["transformers.TrainingArguments.fp16"]),
        ("class A(Trainer):\n def f(self): return self.accelerator.sync", ["accelerate.Accelerator.sync"]),
        ("class A(Trainer):\n def f(self): self.args = other(); return self.args.fp16", []),
        ("class A(pl.LightningModule):\n def f(self): self.trainer.root_gpu", ["pytorch_lightning.Trainer.root_gpu"]),
        ("class A(pl.Callback):\n def on_a(self, trainer, m): trainer.b", ["pytorch_lightning.Trainer.b"]),
        ("class A(L.Callback):\n def on_a(self, trainer, m): trainer.b", ["lightning.pytorch.Trainer.b"]),
        ("class A(pl.Callback):\n def on_a(self, trainer: Mine, m): trainer.b", []),
        ("def f(trainer: pl.Trainer): trainer.b", ["pytorch_lightning.Trainer.b"]),
        ("t = Trainer()\nt.tokenizer", ["transformers.Trainer.tokenizer"]),
        ("t = Trainer()\nt.tokenizer = 1\nt.tokenizer", []),
        ("t = Trainer()\nt = other()\nt.tokenizer", []),
        ("class A(Trainer): ...\nt = A()\nt.tokenizer", ["transformers.Trainer.tokenizer"]),
        ("class A(Trainer):\n def tokenizer(self): ...\nt = A()\nt.tokenizer", []),
    ],
)
def test_the_class_of_an_object(code: str, expected: list[str]) -> None:
    imports = "from transformers import Trainer\nimport pytorch_lightning as pl\nimport lightning as L\n"
    assert read(imports + code) == expected


def test_a_class_of_another_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through an `__init__.py` and a class between; what one of these defines is not the library's."""
    files = {
        "requirements.txt": "transformers==5.2.0\n",
        "own/__init__.py": "from .base import BaseTrainer\n",
        "own/base.py": "from transformers import Trainer\n\n\nclass BaseTrainer(Trainer):\n    use_apex = False\n",
        "own/other.py": "from . import BaseTrainer\n\n\nclass OtherTrainer(BaseTrainer):\n    pass\n",
        "train.py": "from own.other import OtherTrainer\n\n\nclass Mine(OtherTrainer):\n    def run(self):\n"
        "        return self.tokenizer, self.use_apex\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    shown = dslint("--select", "DSL502", "--output-format", "concise", "--no-cache", ".").out
    assert "train.py:6:" in shown
    assert "Trainer.tokenizer" in shown
    assert "use_apex" not in shown
