"""A dataset takes another sample for one that it cannot read, as often as it takes: with a wrong path it never ends.

**What.** `__getitem__` loads a sample in a loop without an end. Where that fails, it draws another index and goes on:
`while True: try: ... except Exception: index = random.randrange(len(self))`, or `while not loaded:`.

**Why it hurts.** One broken file is passed over, as was meant. A wrong path, a mount that one node lacks or a storage
that has gone away makes every sample unreadable: the workers of the loaders draw without end, the first `next(loader)`
does not return, no line is printed, and the other ranks wait in their first collective until its time is over.

**Fix.** Count the tries, and raise where there were too many: `for _ in range(10): ...`, then `raise`.

It is a note: only data that cannot be read at all comes to it.

**When it stays quiet.** A loop that raises, that counts its turns or that has another end; one that draws an index for
another reason (a negative example); a handler that raises or leaves the loop.

**Evidence.** torch 2.13, two ranks over gloo, loaders with one worker, a folder that is not there: with the loop no
rank got a batch within 40 seconds; with ten tries both raised at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.bound import stores
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL760",
    name="unreadable-sample-replaced-for-ever",
    kind="script",
    severity=Severity.INFO,
    summary="a dataset draws another sample as long as none can be read: with a wrong path the job hangs",
    markers=(r"torch|deepspeed|accelerat", r"Loader"),
    references=("https://pytorch.org/docs/stable/data.html#torch.utils.data.Dataset",),
    depends_on_run=True,
    no_experiment="one process shows that it never returns",
)
_DRAWS = re.compile(r"\b(?:rand\w*|choice|sample|integers)\(|% *(?:len\(|self\.)")
_COUNTED = re.compile(r"(?i)tr(?:y|ies)|attempt|retr|count|max_|fail|num_")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such loop in a method that a dataset reads a sample with."""
    if not run.has("makes-loader"):
        return
    for module in run.machine.program.modules():
        for cls in module.nodes_of(ast.ClassDef):
            methods = {n.name: n for n in cls.body if isinstance(n, ast.FunctionDef)}
            reader = methods.get("__getitem__")
            called = {n.attr for n in ast.walk(reader) if isinstance(n, ast.Attribute)} if reader is not None else set()
            read = [methods[name] for name in methods if name == "__getitem__" or name in called]
            loops = (n for method in read for n in ast.walk(method) if isinstance(n, ast.While))
            for loop in loops if reader is not None else ():
                draw = _draw(module, loop)
                if draw is not None and not _may_end(loop):
                    yield run.finding(
                        META,
                        module,
                        loop.test,
                        "Another sample is drawn as long as none can be read: with a wrong path the job hangs",
                        hint="Count the tries, and raise where there were too many",
                        related=(run.location(module, draw, "draws another one"),),
                    )


def _draw(module: Module, loop: ast.While) -> ast.AST | None:
    """Return where another index is drawn since a sample could not be read."""
    if isinstance(loop.test, ast.Constant) and loop.test.value:
        blocks = [n for statement in loop.body for n in ast.walk(statement) if isinstance(n, ast.Try)]
        places: list[ast.AST] = [
            handler for block in blocks for handler in block.handlers if not _leaves(module, handler)
        ]
        tried = [n for n, statement in enumerate(loop.body) if isinstance(statement, ast.Try) and places]
        places += [statement for at in tried[:1] for statement in loop.body[at + 1 :]]
    else:
        flags = {n.id for n in ast.walk(loop.test) if isinstance(n, ast.Name)}
        made = {ast.unparse(t) for n in ast.walk(loop) for t, v in stores(n) if isinstance(v, ast.Call | ast.Compare)}
        tests = [n for n in ast.walk(loop) if isinstance(n, ast.If)]
        places = [n for n in tests if flags & made & {p.id for p in ast.walk(n.test) if isinstance(p, ast.Name)}]
    drawn = (n for place in places for n in ast.walk(place) if isinstance(n, ast.Assign | ast.AnnAssign))
    return next((n for n in drawn if n.value is not None and _DRAWS.search(ast.unparse(n.value))), None)


def _leaves(module: Module, handler: ast.ExceptHandler) -> bool:
    """Return whether a handler leaves the loop, also by a function of the file that raises."""
    called = {ast.unparse(n.func) for n in ast.walk(handler) if isinstance(n, ast.Call)}
    raising = [f for f in module.functions if f.name in called]
    leaving = (ast.Raise, ast.Return, ast.Break)
    return any(isinstance(n, leaving) for n in ast.walk(handler)) or any(
        isinstance(n, ast.Raise) for f in raising for n in ast.walk(f)
    )


def _may_end(loop: ast.While) -> bool:
    """Return whether a loop raises, counts its turns, or asks for a number of them."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Raise | ast.Assert):
            return True
        if isinstance(node, ast.AugAssign) and _COUNTED.search(ast.unparse(node.target)):
            return True
        if isinstance(node, ast.Compare) and _COUNTED.search(ast.unparse(node)) and "len(" not in ast.unparse(node):
            return True
    return False


_SCRIPT = """\
import random

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
%s

    def read(self, index):
        return torch.load(self.paths[index])


dist.init_process_group("gloo")
clips = Clips(open("clips.txt").read().split())
for clip in DataLoader(clips, batch_size=2, sampler=DistributedSampler(clips), num_workers=2):
    dist.all_reduce(clip)
"""
_TRIES = """\
        %s
            try:
                return self.read(index)
            except %s:
                %s
                index = random.randrange(len(self))"""
_AFTER = """\
        while True:
            try:
                clip = self.read(index)
                break
            except Exception as error:
                print(error)
            index = random.randrange(len(self))
        return clip"""
_FLAG = """\
        clip = None
        while clip is None:
            clip = self.read(index)
            if clip is None:
                index = (index + 1) %% len(self.paths)
        return clip"""
_NEGATIVE = """\
        while True:
            other = random.randrange(len(self))
            if other != index:
                return self.read(index) - self.read(other)"""


def _script(loop: str = "while True:", caught: str = "Exception", then: str = "print(index)") -> dict[str, str]:
    return {"train.py": _SCRIPT % (_TRIES % (loop, caught, then))}


EXAMPLES = (
    bad("any error", _script(), at="train.py:16 info"),
    bad("a loop of one", _script("while 1:", "(OSError, RuntimeError)"), at="train.py:16"),
    bad("as long as there is none", {"train.py": _SCRIPT % _FLAG.replace("%%", "%")}, at="train.py:17"),
    bad("drawn after the handler", {"train.py": _SCRIPT % _AFTER}, at="train.py:16"),
    good("ten tries", _script("for _ in range(10):")),
    good("the handler raises at last", _script(then="if not self.paths:\n                    raise")),
    good("tries are counted", _script(then="self.tries += 1\n                if self.tries > 9:\n"
        "                    return None")),
    good("another item for another reason", {"train.py": _SCRIPT % _NEGATIVE}),
)  # fmt: skip
