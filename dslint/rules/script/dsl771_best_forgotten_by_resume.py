"""A resumed run begins with no best metric, and its first evaluation overwrites the best checkpoint.

**What.** A script saves its best checkpoint where a new value is better than the best one so far, which begins at a
number (`0.0`, `-inf`, `None`) or in a new object (`BestMetricHolder()`). A resume restores the optimizer, and nothing
gives the best value back that the run had reached. What counts is what the code does with it: a variable, a field, an
item or an object that is compared with each new value and takes it where it is better, whatever it is called.

**Why it hurts.** Any metric is better than the first value. The first evaluation after a restart overwrites the best
checkpoint of all the hours before, even where the model is worse. A job that is preempted each night keeps
the best of its last night only, and nothing says so.

**Fix.** Save the number in the checkpoint (`"best": max_accuracy`), and read it where the optimizer is restored.

**When it stays quiet.** The value gets one that is no constant anywhere outside of the loop: from the checkpoint, from
a file, from an evaluation before the loop, in another method or file, or by names that nobody spells (`setattr`,
`__dict__`); the object that holds it is used before the loop; a class whose base is not of the project; each best
checkpoint has a file of its own (a number or the time in its name, a folder of this start); the test decides over no
save; no code that the script leads to restores an optimizer, or the state of an engine.

**Evidence.** A run that reaches 0.9, is stopped and restored, and reaches 0.5 then: the file of the best checkpoint
holds the weights of 0.5; with the number in the checkpoint those of 0.9.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.bound import is_inside, outermost_loop
from dslint.python.queries.reach import Piece
from dslint.python.queries.records import Record, records
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.bestscripts import (
    BASE,
    COMPARED,
    ENGINE,
    FLAG,
    HANDED,
    ITEM,
    LATER,
    NOT_RESUMED,
    OBJECT,
    PAIR,
    PRINTS,
    TEST,
    TRACKED,
    TRACKER,
    TRAIN,
    WRAPPER,
)
from dslint.rules.runs import RunQuery
from dslint.rules.training.beginnings import beginning
from dslint.rules.training.bestsaves import decided_save
from dslint.rules.training.resumes import may_restore, optimizer_restores

META = RuleMeta(
    code="DSL771",
    name="best-forgotten-by-resume",
    kind="script",
    severity=Severity.WARNING,
    summary="a resume begins with no best metric: the first evaluation after it overwrites the best checkpoint",
    markers=(r"torch|deepspeed|accelerat", r"save|copy", r"load_(?:state|checkpoint)"),
    references=("https://github.com/pytorch/examples/blob/main/imagenet/main.py",),
    depends_on_run=True,
    no_experiment="which number a restart begins with needs no run of several ranks",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each record that decides over a save and that a resumed run begins without."""
    if not run.has("wraps-model", "makes-engine", "prepares", "starts-group") or not may_restore(run):
        return
    told: set[ast.AST] = set()
    for module in run.machine.program.modules():
        for record in records(run.machine.program, module):
            save = decided_save(run, record)
            first = beginning(run, record) if save is not None else None
            if save is None or first is None or first[1] in told:
                continue
            load = _resume(run, record)
            if load is not None:
                told.add(first[1])
                yield _finding(run, record, save, first, load)


def _finding(run: RunQuery, record: Record, save: ast.Call, first: Piece, load: Piece) -> Finding:
    module = record.module
    return run.finding(
        META,
        *first,
        f"A resumed run begins with no `{record.name}`: its first evaluation overwrites the best checkpoint",
        hint="Save the number in the checkpoint, and read it where the optimizer is restored",
        related=(
            run.location(*load, "restores the optimizer, and not the number"),
            run.location(module, record.asks, "asks what is the best"),
            run.location(module, save, "overwrites it"),
        ),
    )


def _resume(run: RunQuery, record: Record) -> Piece | None:
    """Return what restores the optimizer, outside of the loop of the comparison."""
    module = record.module
    function = module.function(record.asks)
    around = function
    while around is not None and not isinstance(around, ast.ClassDef):
        around = module.parents.get(around)
    loop = outermost_loop(module, record.asks)
    for home, call in optimizer_restores(run, module, around or function or module.tree):
        if home is not module or not is_inside(module, call, loop):
            return home, call
    return None


def _script(first: str, test: str, saved: str = "", parameter: str = "", read: str = "0.0") -> dict[str, str]:
    return {"train.py": TRAIN % (parameter, saved, read, first, test)}


def _with(script: dict[str, str], *changes: tuple[str, str]) -> str:
    text = script["train.py"]
    for old, new in changes:
        text = text.replace(old, new, 1)
    return text


def _derived(restored: str) -> dict[str, str]:
    own = OBJECT[: OBJECT.index("    def restore")] + OBJECT[OBJECT.index("    def keep") :]
    named = (
        ("class Trainer:", "class Trainer(Resumable):"),
        ("import torch\n", "import torch\n\nfrom base import Resumable\n"),
    )
    return {"train.py": _with({"train.py": own}, *named), "base.py": BASE % restored}


_TRACKS = {"tops.py": TRACKER}
_IMPORT = ("import torch\n", "import torch\n\nfrom tops import Tops\n")
_USES = _with(_script("0.0\n    tops = Tops(several=True)", TRACKED), _IMPORT)
_PAIRS = _with(_script("Score(0.0)", COMPARED), ("def main(", PAIR + "def main("))
_STEP = "        best_acc = step(model, optimizer, epoch, acc, best_acc)"
_STEPS = _with(_script("-1.0", _STEP), ("def main(", HANDED + "def main("))
_NUMBERED = (TEST % "").replace('"best.pt"', 'f"{epoch:03d}.pt"')
_DATED = _with(
    _script("0.0", (TEST % "").replace('"best.pt"', 'folder + "/best.pt"')),
    ("    model = DDP(net)", '    folder = time.strftime("%m%d%H")\n    model = DDP(net)'),
    ("import argparse", "import argparse\nimport time"),
)

EXAMPLES = (
    bad("it begins at zero", _script("0.0", TEST % ""), at="train.py:28 warning"),
    bad("a flag says what is best", _script("-float('inf')", FLAG), at="train.py:28"),
    bad("a field of a trainer", {"train.py": OBJECT % "self.began = True"}, at="train.py:10"),
    bad("an engine", {"train.py": ENGINE}, at="train.py:8"),
    good("the checkpoint has it", _script(
        "reached", TEST % ", best_acc", ', "best": best', ", best=0.0", 'state["best"]')),
    good("a field that is restored", {"train.py": OBJECT % 'self.lowest_loss = state["loss"]'}),
    good("evaluated before the loop", _script("evaluate(model) if start else 0.0", TEST % "")),
    good("it is only printed", _script("0.0", PRINTS)),
    good("a checkpoint of each epoch, no best one", _script("0.0", PRINTS.replace("acc >= best_acc and ", ""))),
    good("nothing is resumed", {"train.py": NOT_RESUMED}),
    good("a wrapper of an optimizer", {"train.py": NOT_RESUMED.replace("dist.init_p", WRAPPER + "dist.init_p")}),
    bad("an object that compares, of another file", {"train.py": _USES, **_TRACKS}, at="train.py:31"),
    bad("two objects that are compared", {"train.py": _PAIRS}, at="train.py:36"),
    bad("handed over and taken back", {"train.py": _STEPS}, at="train.py:35"),
    bad("the other ones go on", _script('float("-inf")', LATER), at="train.py:28"),
    bad("an item", _script('{"top": 0.0}', ITEM), at="train.py:28"),
    bad("a base that restores all but that", _derived("self.began = True"), at="train.py:12"),
    good("a base in another file that restores", _derived('self.lowest_loss = state["loss"]')),
    good("an object that gets what was reached", {"train.py": _USES.replace(
        "Tops(several=True)", "Tops(several=True)\n    tops.first.value = reached"), **_TRACKS}),
    good("each best one has a file of its own", _script("0.0", _NUMBERED)),
    good("each start has a folder of its own", {"train.py": _DATED}),
)  # fmt: skip
