"""**What.** A file is started as a module, or a module as a file: `torchrun -m train.py`, `python -m tools/train`,
`torchrun pkg.train` without `-m`, `deepspeed pkg.train` without `--module`.

**Why it hurts.** Every process stops: `No module named tools/train`, `__path__ attribute not found on 'train' while
trying to find 'train.py'` (after `train` has been imported and has run up to its guard), or `can't open file
'pkg.train'`.

**Fix.** With `-m` the name is dotted and has no suffix; without it, it is the path of the file.

**When it stays quiet.** When nothing in the project is meant: the file that the word would be in the other spelling
must exist.

**Evidence.** Python itself, which all launchers start with the word as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL414",
    name="module-as-path",
    kind="plan",
    severity=Severity.ERROR,
    summary="A file is started as a module, or a module as a file",
    fix="unsafe",
    references=("https://docs.python.org/3/using/cmdline.html#cmdoption-m",),
    depends_on_run=True,
    needs=("meant",),
)

_FILES = {"pkg/__init__.py": "", "pkg/train.py": "print()\n", "train.py": "print()\n"}
_MODULE = "torchrun --nproc_per_node 2 -m pkg.train --lr 1\n"

EXAMPLES = (
    bad("a path after -m", {"run.sh": _MODULE.replace("pkg.train", "pkg/train.py"), **_FILES}, "run.sh:1 error",
        fixed={"run.sh": _MODULE}),
    bad("a suffix after -m", {"run.sh": "python -m train.py\n", **_FILES}, "run.sh:1 error",
        fixed={"run.sh": "python -m train\n"}),
    bad("a path without a suffix", {"run.sh": _MODULE.replace("pkg.train", "pkg/train"), **_FILES}, "run.sh:1 error"),
    bad("a module without -m", {"run.sh": _MODULE.replace("-m ", ""), **_FILES}, "run.sh:1 error",
        fixed={"run.sh": _MODULE.replace("-m pkg.train", "pkg/train.py")}),
    bad("the deepspeed launcher", {"run.sh": "deepspeed pkg.train --lr 1\n", **_FILES}, "run.sh:1 error"),
    good("a module", {"run.sh": _MODULE + "deepspeed --module pkg.train\npython -m train\n", **_FILES}),
    good("a file", {"run.sh": "torchrun --nproc_per_node 2 pkg/train.py\npython ./train.py\n", **_FILES}),
    good("nothing of this project", {"run.sh": "torchrun --nproc_per_node 2 other.train\n", **_FILES}),
    good("a file without a suffix", {"run.sh": "torchrun --nproc_per_node 2 bin.train\n", "bin.train": "print()\n"}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report the word when only its other spelling exists."""
    word, command = plan.command.script, plan.command
    if word is None or word.text is None or plan.meant is None:
        return
    dotted = plan.meant.removesuffix(".py").replace("/", ".")
    if command.is_module:
        inside = word.text.removesuffix(".py").replace("/", ".").strip(".")
        write, message = inside, f"`-m` takes a dotted name: Python finds no module `{word.text}`"
        hint = f"Write `{inside}`, or start the file without `-m`"
    else:
        path = word.text.replace(".", "/") + ".py"
        option = "--module" if command.launcher == "deepspeed" else "-m"
        write, message = path, f"Python opens a file `{word.text}`, which does not exist"
        hint = f"Write `{option} {word.text}`, or the path `{path}`"
    yield META.finding(
        word.location,
        f"{message}, and every process stops",
        hint=hint,
        fix=_fix(plan, write),
        severity=Severity.WARNING if command.in_docs else None,
        facts={"by": command.launcher, "module": command.is_module, "name": dotted},
    )


def _fix(plan: RunPlan, text: str) -> Fix | None:
    word = plan.command.script
    if word is None or word.raw != word.text or word.location.path.endswith(".ipynb"):
        return None
    return Fix(f"Write `{text}`", (Edit(word.location.path, word.location.span, text),), Safety.UNSAFE)
