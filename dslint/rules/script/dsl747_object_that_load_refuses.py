"""A checkpoint holds an object that `torch.load` refuses since torch 2.6, and the project loads it all the same.

**What.** `torch.save({"model": ..., "args": args}, path)` with the `argparse.Namespace` of the run, a configuration
object, a dataclass, a path, or a whole model, and `torch.load(path)` of that file at a resume or for a test.

**Why it hurts.** Since torch 2.6 `torch.load` takes `weights_only=True` for granted, and refuses all classes but a few:
`UnpicklingError: Weights only load failed`. The run trains and saves as if all were well; what fails is the resume
after the time limit of the job, on every rank, or the evaluation of what was trained.

**Fix.** Say `torch.load(path, weights_only=False)` for files of your own, or save plain values: `vars(args)`,
`str(path)`, `model.state_dict()`.

**When it stays quiet.** A project whose files allow no torch from 2.6 on; `weights_only=False`, or what is unpacked
there; `add_safe_globals`, the variable `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`, a `torch.load` of the project's own; a load
that is tried; objects of which nobody knows the class; a file of which nothing says that the project has saved it:
another name, and fewer than two keys in common.

**Evidence.** torch 2.13: of a file with `argparse.Namespace`, `pathlib.PosixPath`, `collections.defaultdict`, a
dataclass, a numpy array or a `torch.nn.Linear`, `torch.load` raises `_pickle.UnpicklingError`; dictionaries, lists,
texts, numbers, tensors and `OrderedDict` pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.versions.ranges import contains
from dslint.python.events import Event
from dslint.python.places import ordered
from dslint.python.values import ClassAtom, Function, Instance, Unknown, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.checkpointkeys import is_tried, some_keys_written
from dslint.rules.ranks.otherscripts import other_runs
from dslint.rules.ranks.ownfiles import keys_read_of, own_saves
from dslint.rules.ranks.savedweights import Files
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL747",
    name="object-that-load-refuses",
    kind="script",
    severity=Severity.WARNING,
    summary="a checkpoint holds an object that `torch.load` refuses since torch 2.6: the resume fails",
    markers=(r"torch", r"\bsave\("),
    references=(
        "https://pytorch.org/docs/stable/notes/serialization.html#weights-only",
        "https://github.com/pytorch/pytorch/pull/137602",
    ),
    depends_on_run=True,
    no_experiment="one process shows what a load refuses",
)
_SINCE = ">=2.6"
_REFUSED = re.compile(
    r"argparse\.Namespace|types\.SimpleNamespace|pathlib\.|collections\.(?:defaultdict|deque)|datetime\.|omegaconf\."
    r"|yacs\.|easydict\.|numpy\.ndarray|transformers\.\w*(?:Arguments|Config)$"
    r"|torch\.(?:nn\.(?!Parameter|parameter|Buffer)|optim\.)"
)
_ALLOWED = re.compile(
    r"safe_globals|TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD|torch\.load\s*=|weights_only['\"]?\]?\s*=\s*False"
)
_LOADS = re.compile(r"\btorch\.load\(")
_PICKLES = ("__reduce__", "__reduce_ex__")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of a file in which the script has saved such an object."""
    allowed = run.context.allowed.of("torch")
    if not any(contains(_SINCE, release) for release in allowed.releases):
        return
    saves = [found.event for found in run.happenings("saves") if found.event.api == "torch.save"]
    refused = {save: what for save in saves for what in [_refused(save)] if what}
    if not refused or _is_allowed(run):
        return
    origins = tuple(b.origin.labelled("torch is stated here") for b in allowed.bounds[:1] if b.origin is not None)
    keys = {save: some_keys_written(run, save) for save in saves}
    found = [(run, load, save) for load, save in _loads(run, Files(run), keys, refused)]
    if not found:
        for other in other_runs(run, _LOADS):
            found += [] if _is_allowed(other) else [(other, *p) for p in _loads(other, Files(other), keys, refused)]
    for where, load, save in found:
        place = where.location(load.module, load.node, "loaded here")
        is_here = where is run
        yield run.finding(
            META,
            load.module if is_here else save.module,
            load.node if is_here else save.node,
            f"The checkpoint holds {refused[save]}, which `torch.load` refuses since torch 2.6: "
            + ("the resume fails" if is_here else "another script fails to load it"),
            hint="Load it with `weights_only=False`, or save plain values (`vars(args)`, `state_dict()`)",
            related=(run.location(save.module, save.node, "saved here") if is_here else place, *origins),
        )
        if not is_here:
            return


def _loads(
    run: RunQuery, files: Files, keys: dict[Event, frozenset[str]], refused: dict[Event, str]
) -> Iterator[tuple[Event, Event]]:
    """Yield each load that refuses what a save has written, with that save."""
    for load in (found.event for found in run.happenings("loads")):
        if load.api != "torch.load" or load.open or "pickle_module" in load.arguments or is_tried(load):
            continue
        given = load.arguments.get("weights_only")
        if given is not None and given.constants not in ((None,), (True,)):
            continue
        read = keys_read_of(run, load)
        own = own_saves(files, load, keys, read)
        most = max((len(keys[save] & read) for save in own), default=0)
        likely = [save for save in own if len(keys[save] & read) == most]
        if likely and all(save in refused for save in likely):
            yield load, likely[0]


def _is_allowed(run: RunQuery) -> bool:
    """Return whether some code lets `torch.load` take more classes, or all."""
    return any(module.search(_ALLOWED) is not None for module in run.machine.program.ran())


def _refused(save: Event) -> str:
    """Return in words what a file holds that is certainly refused; empty for nothing."""
    values = [save.arguments.get("obj"), *save.items.get("obj", ())]
    return next((text for value in values if value is not None for text in [_name(value)] if text), "")


def _name(value: Value) -> str:
    """Return the class of what is refused; what comes from a checkpoint on another way is no objection."""
    names = {_class_of(atom) for atom in ordered(value.atoms) if not _is_unread(atom)}
    return f"an object of `{names.pop()}`" if len(names) == 1 and "" not in names else ""


def _is_unread(atom: object) -> bool:
    if isinstance(atom, Instance):
        return atom.cls == ""
    return isinstance(atom, Unknown) and atom.type != "argparse.Namespace"


def _class_of(atom: object) -> str:
    """Return the class of an object that is refused; empty where it is allowed, or may be."""
    if isinstance(atom, Unknown):
        return atom.type if atom.type == "argparse.Namespace" else ""
    if isinstance(atom, Function):
        return "function" if atom.name != "<lambda>" else ""
    if not isinstance(atom, Instance):
        return ""
    if isinstance(atom.cls, ClassAtom):
        return atom.cls.node.name if _is_plain(atom.cls) else ""
    return atom.cls if _REFUSED.match(atom.cls) else ""


def _is_plain(cls: ClassAtom) -> bool:
    """Return whether a class of the project is pickled by its name, and is no kind of tensor."""
    text = cls.module.text(cls.node)
    bases = " ".join(cls.module.text(base) for base in cls.node.bases)
    return "Tensor" not in bases and not any(method in text for method in _PICKLES)


_TRAIN = """\
import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist


@dataclass
class Options:
    width: int = 8


def save(folder, model, optimizer, args, epoch):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "extra": %s}
    if dist.get_rank() == 0:
        torch.save(state, Path(folder) / "last.pt")


def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = 0
    if args.resume:
        state = torch.load(%s)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
    for epoch in range(start, args.epochs):
        save(args.output, model, optimizer, args, epoch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    parser.add_argument("--output", default="out")
    parser.add_argument("--epochs", type=int, default=10)
    main(parser.parse_args())
"""
_PLAIN = 'args.resume, map_location="cpu"'
_SAVES = """\
import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
args = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
for step in range(args.steps):
    checkpoint = dict(model=model.state_dict(), args=args)
    if dist.get_rank() == 0:
        torch.save(checkpoint, "model.pt")
"""
_FINDS = """\
import torch

from shapes import net


def find(path):
    found = torch.load(path, map_location="cpu"%s)
    return found


if __name__ == "__main__":
    model = net()
    model.load_state_dict(find("model.pt")["model"])
"""
_SHAPES = "import torch\n\n\ndef net():\n    return torch.nn.Linear(4, 4)\n"
_RESUMES = """
def restore(path):
    checkpoint = torch.load(path)
    return checkpoint


state = restore("model.pt")
print(state["model"])
"""

EXAMPLES = (
    bad("the options of the command line", {"train.py": _TRAIN % ("args", _PLAIN)}, "train.py:26 warning"),
    bad("a dataclass", {"train.py": _TRAIN % ("Options()", _PLAIN)}, "train.py:26 warning"),
    bad("a path", {"train.py": _TRAIN % ("Path(args.output)", _PLAIN)}, "train.py:26 warning"),
    bad("a whole model", {"train.py": _TRAIN % ("model", _PLAIN)}, "train.py:26 warning"),
    bad("said to hold weights only", {"train.py": _TRAIN % ("args", _PLAIN + ", weights_only=True")}, "train.py:26"),
    bad("torch from a release on", {
        "train.py": _TRAIN % ("args", _PLAIN), "requirements.txt": "torch>=2.6\n"}, "train.py:26 warning"),
    bad("a helper that returns it", {"train.py": _SAVES + _RESUMES}, "train.py:17 warning"),
    bad("another script loads it", {
        "train.py": _SAVES, "test.py": _FINDS % "", "shapes.py": _SHAPES}, "train.py:14 warning"),
    good("another script that says so", {
        "train.py": _SAVES, "test.py": _FINDS % ", weights_only=False", "shapes.py": _SHAPES}),
    good("an older torch", {"train.py": _TRAIN % ("args", _PLAIN), "requirements.txt": "torch==2.1.0\n"}),
    good("plain values", {"train.py": _TRAIN % ("vars(args)", _PLAIN)}),
    good("said at the load", {"train.py": _TRAIN % ("args", _PLAIN + ", weights_only=False")}),
    good("classes that are allowed", {"train.py": (_TRAIN % ("args", _PLAIN)).replace(
        '    dist.init_process_group("gloo")\n',
        '    dist.init_process_group("gloo")\n    torch.serialization.add_safe_globals([argparse.Namespace])\n')}),
    good("a file of somebody else", {"train.py": (_TRAIN % ("args", _PLAIN)).replace(
        'state["optimizer"]', "state").replace('state["epoch"] + 1', "0").replace('state["model"]', "state")}),
    good("what nobody knows", {"train.py": _TRAIN % ("args.output", _PLAIN)}),
)  # fmt: skip
