"""State that `prepare_data` keeps on the object exists in one process of each machine only.

**What.** A data module or model of Lightning sets an attribute in `prepare_data` (or in a method that only
`prepare_data` calls), and `setup`, a loader or another object reads it.

**Why it hurts.** Lightning calls `prepare_data` in the process with local rank 0 of each machine. In all others the
attribute is missing: they stop with `AttributeError`, or continue with what the constructor has left there, and the
first process waits for them. With one process everything works.

**Fix.** Let `prepare_data` download and write files only, and read them in `setup`, which runs in every process.

**When it stays quiet.** `setup` or the constructor sets the attribute as well (other than to `None`); only
`prepare_data` reads it; classes that do not derive from one of Lightning; something else calls `prepare_data` by
itself, so that it runs in every process; a trainer of one device.

**Evidence.** lightning/pytorch/trainer/connectors/data_connector.py (2.5): `prepare_data` calls the hook only where
`local_rank == 0` (`prepare_data_per_node`) or `node_rank == 0 and local_rank == 0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event
from dslint.python.events import walk as nodes_of
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL291",
    name="state-kept-in-prepare-data",
    kind="script",
    severity=Severity.WARNING,
    summary="an attribute that `prepare_data` sets is missing in all processes but the first of each machine",
    markers=(r"lightning",),
    references=(
        "https://lightning.ai/docs/pytorch/stable/data/datamodule.html#prepare-data",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/11220",
    ),
    no_experiment="needs Lightning, which the experiments do not install",
    depends_on_run=True,
)
_HOOK = "prepare_data"
# They run before the hook.
_CONSTRUCTORS = frozenset({"__init__", "__post_init__"})
_LIGHTNING = ("lightning.LightningDataModule", "lightning.LightningModule")
_Methods = dict[str, ast.FunctionDef]


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each class of Lightning that keeps state in `prepare_data`."""
    if run.context.is_one_process:
        return
    trainers = [found.event for found in run.happenings("trainer") if found.event.api.startswith("lightning.")]
    if trainers and all(_is_alone(event) for event in trainers):
        return
    calls = [(n.function, n.node) for _, tree in run.trees() for n in nodes_of(tree) if isinstance(n, Call)]
    for cls in run.machine.program.noted.classes:
        methods: _Methods = {n.name: n for n in cls.node.body if isinstance(n, ast.FunctionDef)}
        hook = methods.get(_HOOK)
        if hook is None or not attributes.is_instance_of(run.machine, cls, *_LIGHTNING):
            continue
        by_hand = any(isinstance(f, Function) and f.node is hook and _is_by_hand(node) for f, node in calls)
        if not by_hand and not _calls_itself(cls.module):
            yield from _of_class(run, cls, methods)


def _is_alone(trainer: Event) -> bool:
    """A trainer of one device on one machine has one process, which calls every hook."""
    devices, machines = trainer.arguments.get("devices"), trainer.arguments.get("num_nodes")
    alone = devices is not None and devices.constants in ((1,), ("1",))
    return alone and (machines is None or machines.constants == (1,))


def _is_by_hand(node: ast.AST) -> bool:
    """The script calls the hook by its name; a trainer calls it for one process only."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _HOOK


def _calls_itself(module: Module) -> bool:
    """Return whether a method of the class, or code next to it, runs the hook in every process."""
    return any(_is_by_hand(n) and not _is_super(n) for n in module.nodes)


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "super" in ast.dump(node.func.value)


def _of_class(run: RunQuery, cls: ClassAtom, methods: _Methods) -> Iterator[Finding]:
    inside = _reached(methods, {_HOOK})
    others = _reached(methods, set(methods) - inside)
    inside -= others
    written = {name: node for m in inside for name, node in _written(methods[m])}
    elsewhere = {name for m in set(methods) - inside for name, _ in _written(methods[m], with_none=False)}
    elsewhere |= {
        t.id for n in cls.node.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    }
    elsewhere |= set(methods)
    for name, target in written.items():
        reader = _reader(run, cls, methods, inside, name)
        if name not in elsewhere and reader is not None:
            module, node = reader
            yield run.finding(
                META,
                cls.module,
                target,
                f"`self.{name}` is set in one process of each machine only: Lightning calls `prepare_data` in no other",
                hint="Write files in `prepare_data`, and set it in `setup`, which runs in every process",
                related=(run.location(module, node, "read here, in every process"),),
                facts={"attribute": name},
            )


def _reached(methods: _Methods, start: set[str]) -> set[str]:
    """Return the methods that these call on the same object, themselves included."""
    found, pending = set(start), list(start)
    while pending:
        for node in ast.walk(methods[pending.pop()]):
            name = _own(node)
            if name in methods and name not in found:
                found.add(name)
                pending.append(name)
    return found


def _own(node: ast.AST) -> str:
    """Return the name of an attribute of `self`; empty for anything else."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else ""


def _written(method: ast.FunctionDef, *, with_none: bool = True) -> Iterator[tuple[str, ast.Attribute]]:
    """Yield the attributes that a method sets, not those that it converts (`self.path = Path(self.path)`).

    Those that it sets to `None` are left out where that is no value.
    """
    left = {
        id(target)
        for node in ast.walk(method)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if _own(target) and any(_own(n) == _own(target) for n in ast.walk(node.value))
    }
    empty = {
        id(target)
        for node in ast.walk(method)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant | None)
        and (node.value is None or node.value.value is None)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    for node in ast.walk(method):
        is_written = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        is_left = id(node) in left or (not with_none and id(node) in empty)
        if is_written and isinstance(node, ast.Attribute) and _own(node) and not is_left:
            yield node.attr, node


def _reader(
    run: RunQuery, cls: ClassAtom, methods: _Methods, inside: set[str], name: str
) -> tuple[Module, ast.Attribute] | None:
    """Return where the attribute is read in every process: in another method, or of the data module elsewhere."""
    for method in sorted(set(methods) - inside - _CONSTRUCTORS, key=lambda m: methods[m].lineno):
        for node in ast.walk(methods[method]):
            if _own(node) == name and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                return cls.module, node
    modules = dict.fromkeys([cls.module, *(entry.module for entry in run.entries)])
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
                text = module.text(node.value).lower()
                if "datamodule" in text or text in ("dm", "data_module", "data"):
                    return module, node
    return None


_DATA = """\
import json

import lightning as L
from torch.utils.data import DataLoader


class Texts(L.LightningDataModule):
    def __init__(self, path):
        super().__init__()
        self.path = path
%s
    def _read(self):
        with open(self.path) as file:
            return json.load(file)

    def _count(self):
        self.words = sorted(self._read())

    def prepare_data(self):
        self._count()
%s
    def setup(self, stage=None):
%s        self.train = [r for r in self._read() if r]

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8)
"""
_TRAIN = """\
import lightning as L
from torch import nn

from data import Texts


class Model(L.LightningModule):
    def configure_model(self):
        self.embed = nn.Embedding(len(self.trainer.datamodule.words), 8)

    def training_step(self, batch, _):
        return self.embed(batch).mean()


data = Texts("texts.json")
trainer = L.Trainer(accelerator="gpu", devices=%s, strategy="ddp")
trainer.fit(Model(), datamodule=data)
"""
_SETUP = "        self.words = sorted(self._read())\n"
_MODULE = """\
import pytorch_lightning as pl
from datasets import load_dataset
from torch.utils.data import DataLoader


class Model(pl.LightningModule):
    def prepare_data(self):
        %sload_dataset("imdb")%s

    def train_dataloader(self):
        return DataLoader(%s["train"])


pl.Trainer(gpus=4).fit(Model())
"""

EXAMPLES = (
    bad("a helper of the hook counts the words, and the model asks for them",
        {"data.py": _DATA % ("", "", ""), "train.py": _TRAIN % 4}, "data.py:17"),
    bad("what the constructor leaves empty",
        {"data.py": (_DATA % ("        self.words = None\n", "", "        print(len(self.words))\n")),
         "train.py": _TRAIN % 4}, "data.py:18"),
    bad("a module with its own data", {"train.py": _MODULE % ("self.data = ", "", "self.data")}, "train.py:8"),
    good("`setup` sets it in every process", {"data.py": _DATA % ("", "", _SETUP), "train.py": _TRAIN % 4}),
    good("the hook downloads only", {"train.py": _MODULE % ("", "", 'load_dataset("imdb")')}),
    good("only the hook itself reads it", {
        "data.py": _DATA % ("", "        print(len(self.words))\n", ""),
        "train.py": (_TRAIN % 4).replace("len(self.trainer.datamodule.words)", "100")}),
    good("every process calls the hook", {
        "data.py": _DATA % ("", "", "        self.prepare_data()\n"), "train.py": _TRAIN % 4}),
    good("the hook only converts it", {
        "data.py": (_DATA % ("        self.words = 3\n", "", "        print(self.words)\n")).replace(
            "sorted(self._read())", "str(self.words)"), "train.py": _TRAIN % 4}),
    good("only the constructor reads it, which runs before", {
        "data.py": _DATA % ("        print(self.words)\n", "", ""),
        "train.py": (_TRAIN % 4).replace("len(self.trainer.datamodule.words)", "100")}),
    good("one device", {"data.py": _DATA % ("", "", ""), "train.py": _TRAIN % 1}),
)  # fmt: skip
