"""An attribute of the parsed arguments that no parser defines.

**What.** `args.output_path` where the parser of the run has `--output_dir`: no `add_argument`, no `set_defaults`, no
parent or command of the parser and no later assignment makes the attribute.

**Why it hurts.** Python looks for it when the line is reached: `AttributeError`. At the end of training, at a save, at
an evaluation or under an option that is hours after the job has queued, and what it has computed is lost.

**Fix.** Read the option that the parser has, or add the one that is meant.

**When it stays quiet.** The parser is open (code that nobody can read adds options, a file fills it); code that nobody
can read gets hold of the arguments; some code of the run sets an attribute of that name; `hasattr`, `getattr`, or a
`try` that takes the `AttributeError`; code in another file that a text chooses (`if args.dataset == "coco"`), which may
be for a script with other options.

**Evidence.** `argparse.Namespace` has the attributes that were set on it, and no others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt
from dslint.python.missingfields import MISSING
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.markers import WAITS
from dslint.rules.names.latefailures import is_caught_on_way, near
from dslint.rules.names.reached import severity
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL720",
    name="option-of-no-parser",
    kind="script",
    severity=Severity.ERROR,
    summary="an attribute of the parsed arguments that no parser of the run defines",
    markers=(r"arg|opt|pars|Namespace|FLAGS",),
    alone=(r"__main__", r"parse_|ArgumentParser|get_\w*args", WAITS),
    references=("https://docs.python.org/3/library/argparse.html#argparse.Namespace",),
    depends_on_run=True,
)
# Whoever lacks more of them in one module reads a configuration of another kind.
_MOST = 4
# Code that gives arguments many attributes at once, or one by a name that it computes.
_HOLDER = r"(?:vars\(\s*[\w.]+\s*\)|__dict__)"
_FILLS = re.compile(
    rf"{_HOLDER}(?:\.(?:update|setdefault)\(|\s*\|?=[^=]|\[[^'\"\]]*\]\s*=[^=])|=\s*(?:[\w.]+\.)?{_HOLDER}\s*$"
    r"|(?i:setattr\(\s*[\w.]*(?:arg|opt|conf|cfg|flag|hparam|space)\w*\s*,\s*[^'\"\s])",
    re.MULTILINE,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first read of each attribute that the arguments certainly lack."""
    lacking: dict[tuple[Instance, Module], dict[str, Happening]] = {}
    for found in run.happenings(MISSING):
        atom = found.event.receiver.single if found.event.receiver is not None else None
        name = found.event.api.rpartition(".")[2]
        if isinstance(atom, Instance) and not is_caught_on_way(found, "AttributeError"):
            lacking.setdefault((atom, found.event.module), {}).setdefault(name, found)
    for (atom, _), names in lacking.items():
        if len(names) > _MOST:
            continue  # the arguments are taken for something else
        for name, found in names.items():
            asking = {found.event.module, *(node.module for node in found.around if isinstance(node, Alt))}
            if any(_asks(module, name) for module in asking) or _is_set(run, name):
                continue
            sure = severity(found)
            # What a text chooses in code that scripts share may be for another script, with a parser of its own.
            if sure is not Severity.INFO or found.event.module.path == run.path:
                yield _finding(run, found, atom, name, sure)


def _is_set(run: RunQuery, name: str) -> bool:
    """Return whether some code of the run may set an attribute of that name."""
    modules = run.machine.program.modules()
    return any(module.search(_FILLS) is not None or _sets(module, name) for module in modules)


def _sets(module: Module, name: str) -> bool:
    """Return whether code sets an attribute of that name on something other than its own object."""
    for node in module.nodes_of(ast.Attribute):
        if node.attr == name and isinstance(node.ctx, ast.Store) and not _is_own(node.value):
            return True
    found = False
    for item in module.nodes_of(ast.Subscript):
        if isinstance(item.ctx, ast.Store) and isinstance(item.slice, ast.Constant) and item.slice.value == name:
            return True
    for call in module.nodes_of(ast.Call):
        named = call.args[1] if len(call.args) > 2 else None  # setattr(x, name, value)
        if isinstance(call.func, ast.Name) and call.func.id == "setattr" and isinstance(named, ast.Constant):
            found = found or named.value == name
    return found


def _asks(module: Module, name: str) -> bool:
    """Return whether code asks by its name whether there is such an attribute: `hasattr(x, "a")`, `"a" in args`."""
    texts = [arg for call in module.nodes_of(ast.Call) for arg in call.args]
    texts += [node.left for node in module.nodes_of(ast.Compare)]
    return any(isinstance(node, ast.Constant) and node.value == name for node in texts)


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _finding(run: RunQuery, found: Happening, atom: Instance, name: str, sure: Severity) -> Finding:
    names = [n for n in run.machine.store.names.get(atom, ()) if isinstance(n, str) and n.isidentifier()]
    home = run.machine.program.home_of(atom.node)
    related: tuple[Location, ...] = ()
    if home is not None:
        related = (run.location(home, atom.node, "the arguments are parsed here"),)
    return run.finding(
        META,
        found.event.module,
        found.event.node,
        f"no parser defines `{name}`: `AttributeError` when a run reaches this line{near(name, names)}",
        hint=f"Add `--{name}` to the parser, or read the option that is meant",
        related=related,
        severity=sure,
        facts={"option": name},
    )


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--evaluate", action="store_true")
%s    return parser.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for x in torch.load(args.output_dir if args.evaluate else "data.pt"):
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
%s

main()
"""
_SAVES = "    print(args.output_path)\n"
_KEPT = """\
import torch


def keep(model, options):
    torch.save(model.state_dict(), options.output_path)
"""
_CALLS = (_TRAIN % ("", "    keep(model, args)\n")).replace(
    "import torch\n", "import torch\nfrom keeping import keep\n", 1
)
_BEHIND = "    if args.evaluate:\n        print(args.eval_batch)\n"
_ASKED = "    if hasattr(args, 'output_path'):\n        print(args.output_path)\n"
_TRIED = """\
    try:
        print(args.output_path)
    except AttributeError:
        print("none")
"""

_CHOSEN = """\
def build(args):
    if args.output_dir == "coco":
        return args.coco_path
    return args.output_dir
"""
_BUILDS = _TRAIN % ("", "    print(build(args))\n")
_IMPORTS = _BUILDS.replace("import torch\n", "import torch\nfrom data import build\n", 1)
_OPTIONS = """\
import argparse


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_shards", type=int, default=1)
    parser.add_argument("--output_dir", default=".")
    return parser.parse_args()
"""
_WORK = """\
import torch
import torch.distributed as dist


def work(args):
    dist.init_process_group("nccl", world_size=args.num_shards)
    dist.all_reduce(torch.ones(1).cuda())
"""
_SHARDS = """\
from options import parse_args
from work import work


def main():
    args = parse_args()
    if args.num_shards > 1:
        args.output_dir = str(args.job_dir)
    work(args)


if __name__ == "__main__":
    main()
"""

EXAMPLES = (
    bad("the option has another name", {"train.py": _TRAIN % ("", _SAVES)}, "train.py:25 error"),
    bad("in another file", {"keeping.py": _KEPT, "train.py": _CALLS}, "keeping.py:5 error"),
    bad("under an option", {"train.py": _TRAIN % ("", _BEHIND)}, "train.py:26 warning"),
    bad("other arguments are set later", {
        "train.py": _TRAIN % ("", "    args.path = 'x'\n    vars(args)['more'] = 1\n" + _SAVES)}, "train.py:27"),
    bad("a text chooses it", {
        "train.py": _BUILDS.replace("\n\ndef main", f"\n\n{_CHOSEN}\n\ndef main")}, "train.py:18 info"),
    good("a text chooses it in code that scripts share", {"data.py": _CHOSEN, "train.py": _IMPORTS}),
    bad("a job on several machines comes to it, and no command starts one", {
        "options.py": _OPTIONS, "work.py": _WORK, "train.py": _SHARDS,
        "README.md": "```bash\npython train.py --output_dir out\n```\n"}, "train.py:8 warning"),
    good("the parser has it", {"train.py": _TRAIN % ("    parser.add_argument('--output_path')\n", _SAVES)}),
    good("a default has it", {"train.py": _TRAIN % ("    parser.set_defaults(output_path='x')\n", _SAVES)}),
    good("it is set later", {"train.py": _TRAIN % ("", "    args.output_path = 'x'\n" + _SAVES)}),
    good("set by a name", {"train.py": _TRAIN % ("", "    setattr(args, 'output_path', 'x')\n" + _SAVES)}),
    good("the arguments are updated", {"train.py": _TRAIN % (
        "", "    vars(args).update(torch.load('settings.pt'))\n" + _SAVES)}),
    good("code that nobody can read adds options", {"train.py": (_TRAIN % (
        "    add_options(parser)\n", _SAVES)).replace("import torch\n", "import torch\nfrom kit import *\n", 1)}),
    good("code that nobody can read has the arguments", {"train.py": (_TRAIN % (
        "", "    prepare(args)\n" + _SAVES)).replace("import torch\n", "import torch\nfrom kit import prepare\n", 1)}),
    good("it is asked for first", {"train.py": _TRAIN % ("", _ASKED)}),
    good("the exception is taken", {"train.py": _TRAIN % ("", _TRIED)}),
)  # fmt: skip
