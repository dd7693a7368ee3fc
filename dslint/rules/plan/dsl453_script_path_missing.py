"""**What.** A launch command names a script of this project that does not exist, or LLaMA-Factory, axolotl or XTuner
a file of arguments, or a module of a package of this project: not from the folder of the launch file, not from any
folder above it. Or it exists, but not in the folder to which the launch file has changed with `cd`. Where the project
has one file of that name in a folder of that name (`llava/train/train.py` in a copy whose package is called
`videollava`), the report says so.

**Why it hurts.** The job waits in the queue, starts on every node, and each process stops with `can't open file ...: No
such file or directory`.

**Fix.** Correct the path, or commit the file.

**When it stays quiet.** For absolute paths, `~`, unknown variables and placeholders; for names without a folder, or
in a folder that is not in this project either, unless one file of the project ends like them; when another command of
the launch file mentions the file, and so may write, fetch or copy it; after `cd` to a folder elsewhere; in the
working directory of a container; and in a workflow that checks the project out into a folder of its own.

**Evidence.** Python 3.11 opens the path as it is, relative to the working directory;
https://docs.python.org/3/using/cmdline.html
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.config import Named
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL453",
    name="script-path-missing",
    kind="plan",
    severity=Severity.WARNING,
    summary="A launch command names a script that does not exist",
    depends_on_run=True,
    no_experiment="a file that is not there needs no proof",
    needs=("missing_script",),
)

_RUN = "torchrun --nproc_per_node 8 tools/train.py --lr 1\n"
_HERE = {"tools/test.py": "print()\n"}
_THERE = {"tools/train.py": "print()\n"}

EXAMPLES = (
    bad("the script has another name", {"run.sh": _RUN, **_HERE}, "run.sh:1 warning"),
    bad("a file of arguments", {
        "run.sh": "llamafactory-cli train examples/lora.yaml\n", "examples/lora_sft.yaml": "stage: sft\n",
    }, "run.sh:1 warning"),
    bad("the package has another name", {
        "scripts/run.sh": _RUN.replace("tools", "llava/train"), "videollava/train/train.py": "print()\n",
    }, "scripts/run.sh:1 warning"),
    bad("a module of a package of the project", {
        "run.sh": "torchrun --nproc_per_node 8 -m pkg.eval.old --lr 1\n",
        "pkg/__init__.py": "", "pkg/eval/__init__.py": "", "pkg/eval/new.py": "print()\n",
    }, "run.sh:1 warning"),
    bad("documentation that names the old folder", {
        "README.md": "```bash\ntorchrun --nproc_per_node 8 old/tools/train.py --lr 1\n```\n", "old/a.py": "", **_THERE,
    }, "README.md:2 warning"),
    bad("documentation of another project in the repository", {
        "one/README.md": "```bash\ntorchrun --nproc_per_node 8 src/train.py --lr 1\n```\n", "one/src/a.py": "",
        "two/code/train.py": "print()\n",
    }, "one/README.md:2 info"),
    good("a module of another package", {
        "run.sh": "torchrun --nproc_per_node 8 -m lib.eval.old --lr 1\n",
        "pkg/__init__.py": "", "pkg/eval/__init__.py": "", "pkg/eval/new.py": "print()\n",
    }),
    good("a package that is installed from another folder", {
        "README.md": "```bash\npython -m pkg.tools.train --lr 1\n```\n", "pkg/__init__.py": "",
        "pkg/tools/__init__.py": "", "tools/train.py": "print()\n",
        "setup.py": "from setuptools import setup\n\n\ndef folders():\n    return {'pkg.tools': 'tools'}\n\n\n"
        "setup(name='pkg', package_dir=folders())\n",
    }),
    bad("not in that folder either", {
        "run.sh": "python -m pkg.tools.old --lr 1\n", "pkg/__init__.py": "", "pkg/tools/__init__.py": "",
        "tools/train.py": "print()\n", "setup.cfg": "[options]\npackage_dir =\n    pkg.tools = tools\n",
    }, "run.sh:1 warning"),
    good("a package of a section", {
        "run.sh": "torchrun --nproc_per_node 8 -m pkg.tools.train --lr 1\n", "pkg/__init__.py": "",
        "pkg/tools/__init__.py": "", "exps/train.py": "print()\n",
        "pyproject.toml": '[tool.setuptools.package-dir]\n"pkg.tools" = "exps"\n',
    }),
    good("the command is meant for a folder below", {"run.sh": _RUN, "part/tools/train.py": "print()\n"}),
    good("two files may be meant", {
        "run.sh": _RUN.replace("tools", "old/train"),
        "one/train/train.py": "print()\n", "two/train/train.py": "print()\n",
    }),
    bad("left behind by cd", {"run.sh": f"cd src\n{_RUN}", "src/model.py": "print()\n", **_THERE}, "run.sh:2 warning"),
    good("into the clone", {
        "README.md": f"```bash\ncd src\n{_RUN}```\n", "src/model.py": "print()\n", **_THERE,
    }),
    good("a folder for what is built", {"run.sh": f"cd src\nmake\ncd -\n{_RUN}", "src/model.py": "", **_THERE}),
    good("found after cd", {"run.sh": f"cd src\n{_RUN.replace('tools', '../tools')}", "src/model.py": "", **_THERE}),
    good("the script is there", {"run.sh": _RUN, "tools/train.py": "print()\n"}),
    good("the command runs from the folder above", {"scripts/run.sh": _RUN, "tools/train.py": "print()\n"}),
    good("the launch script writes it", {"run.sh": f"cat > tools/train.py <<EOF\nprint()\nEOF\n{_RUN}", **_HERE}),
    good("the launch script fetches it", {
        "run.sh": f"git clone https://example.org/tools\ncp -r tools/more/train.py tools\n{_RUN}", **_HERE,
    }),
    good("another project", {"run.sh": f"cd ../other\n{_RUN}", **_HERE}),
    good("a folder that is not here", {"run.sh": _RUN.replace("tools", "elsewhere"), **_HERE}),
    good("inside an image on another machine", {
        "scripts/run.sh": 'TOP="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n'
        f'ssh $HOST "cd $TOP && docker-compose run trainer {_RUN[:-1]}"\n',
        **_HERE,
    }),
    good("a submodule that is not checked out", {
        "run.sh": _RUN, ".gitmodules": '[submodule "tools"]\n\tpath = tools\n\turl = https://example.org/tools\n',
        **_HERE,
    }),
    bad("a submodule of another name", {
        "run.sh": _RUN, ".gitmodules": '[submodule "tool"]\n\tpath = tool\n\turl = https://example.org/tools\n',
        **_HERE,
    }, "run.sh:1 warning"),
    good("git ignores it in its own folder", {"run.sh": _RUN, "tools/.gitignore": "train.py\n", **_HERE}),
    good("a workflow that checks out into a folder with the name of one inside", {
        ".github/workflows/test.yml": "on: push\njobs:\n  test:\n    steps:\n      - uses: actions/checkout@v4\n"
        "        with:\n          path: src\n      - run: |\n          cd src\n          python tools/train.py\n",
        "src/model.py": "print()\n", **_THERE,
    }),
    good("a placeholder", {"README.md": "```bash\ntorchrun tools/your_train.py\n```\n", **_HERE}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The script that is named and nowhere."""
    named = plan.missing_script
    if named is None:
        return
    left = named.left
    where = "where the command starts" if named.is_start else "beside or above the launch file"
    if left is not None:
        where = f"in `{left.folder or '.'}`, the folder after `cd`"
    yield META.finding(
        named.location,
        f"`{named.text}` does not exist {where}: the run stops at start-up",
        hint=_hint(named),
        related=(left.place,) if left is not None and left.place is not None else (),
        severity=Severity.INFO if plan.command.in_docs and not named.is_moved(plan.command.location.path) else None,
        assumptions=() if named.is_start else (assumed("files-are-here", named.text),),
    )


def _hint(named: Named) -> str:
    if named.left is not None:
        return f"Write `{named.left.from_folder}`"
    return f"Did you mean `{named.meant}`?" if named.meant else "Correct the path or add the file"
