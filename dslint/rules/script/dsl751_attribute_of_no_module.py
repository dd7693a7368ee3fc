"""A line takes a name out of a module of the project that has no such name.

**What.** `utils.load_checkpoint_for_ema(...)` under `if args.resume:`, after `import utils`, where the project's own
`utils.py` has lost that function, or never had it: the script was copied and the helper was not.

**Why it hurts.** Python looks for the name when a run comes to the line: `AttributeError: module 'utils' has no
attribute`, on every rank, at the first resume, save or evaluation, after hours of training.

**Fix.** Take the name that the module has, or bring the function back.

**When it stays quiet.** The module may have names that are not in its text (a star import of a library, `__getattr__`,
`globals()`, `exec`); some code sets an attribute of that name; another module of that name in the project has it;
parts of packages; a `try` takes the exception, or `hasattr` asks before; code that no run reaches. A note where a
text chooses among several.

**Evidence.** Python's rules of attributes: a module has what its body binds, and raises `AttributeError` for all else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.names import names_of
from dslint.python.queries.modulenames import ModuleNames
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught, near
from dslint.rules.names.projectmodules import ProjectModules
from dslint.rules.names.reached import is_asked
from dslint.rules.names.refusedlines import severity_at
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL751",
    name="attribute-of-no-module",
    kind="script",
    severity=Severity.WARNING,
    summary="a name is taken out of a module of the project that does not have it: `AttributeError`",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine|transformers", r"import"),
    references=("https://docs.python.org/3/reference/datamodel.html#modules",),
    depends_on_run=True,
    no_experiment="one process shows what Python raises",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first line of a module that takes such a name."""
    names = run.module_names
    modules = ProjectModules(run.machine.program, names)
    for module in run.machine.program.ran():
        told: set[str] = set()
        for text, target, node in module.once(_taken):
            if text in told:
                continue
            owner = _lacking(modules.owners(module, target), node.attr, names, modules)
            severity = severity_at(module, node, run.sure_ways) if owner is not None else None
            if owner is None or severity is None or _is_excused(module, node, names):
                continue
            told.add(text)
            yield run.finding(
                META,
                module,
                node,
                f"`{owner.path.rpartition('/')[2]}` has no `{node.attr}`: `AttributeError` when a run reaches this line"
                + near(node.attr, names.of(owner) or ()),
                hint="Take the name that the module has, or bring back the one that is meant",
                severity=severity if severity is Severity.INFO else None,
                related=(owner.location(owner.tree.body[0], "the module"),) if owner.tree.body else (),
            )


def _taken(module: Module) -> list[tuple[str, str, ast.Attribute]]:
    """Return what code takes out of what it imports: its text, the name of the import, and the place."""
    names = names_of(module.tree)
    found = []
    for node in module.nodes_of(ast.Attribute):
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            bindings = names.bindings(node.value)
            targets = {binding.target for binding in bindings if binding.kind == "import"}
            if len(targets) == 1 and all(binding.kind == "import" for binding in bindings):
                found.append((f"{node.value.id}.{node.attr}", targets.pop(), node))
    return found


def _lacking(owners: list[Module], name: str, names: ModuleNames, modules: ProjectModules) -> Module | None:
    """Return the first of the modules that a name may be, where none of them has the attribute."""
    found = [names.of(owner) for owner in owners]
    if not owners or any(known is None or name in known for known in found):
        return None
    return None if any(modules.is_part(owner, name) for owner in owners) else owners[0]


def _is_excused(module: Module, node: ast.Attribute, names: ModuleNames) -> bool:
    is_own = node.attr.startswith("__") or names.is_set(node.attr) or is_caught(module, node, "AttributeError")
    return is_own or is_asked(module, node)


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
%s


def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        %s
    for step in range(10):
        model(torch.rand(4, 4)).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    main(parser.parse_args())
"""
_UTILS = "import torch\n\n\ndef load_ema(model, state):\n    model.load_state_dict(state)\n"


def _files(imports: str, line: str, **others: str) -> dict[str, str]:
    return {"train.py": _TRAIN % (imports, line), "tools/__init__.py": "", "tools/misc.py": _UTILS} | {
        name.replace("__", "/") + ".py": text for name, text in others.items()
    }


EXAMPLES = (
    bad("a helper that is not there", _files("import helper", "helper.load_model(model, state)", helper=_UTILS),
        "train.py:13 warning"),
    bad("of a package", _files("from tools import misc", "misc.load_model(model, state)"), "train.py:13 warning"),
    bad("under another name", _files("import tools.misc as kit", "kit._load_ema(model, state)"), "train.py:13 warning"),
    bad("handed on", _files("from tools import misc", "model.register_forward_hook(misc.hook)"), "train.py:13 warning"),
    bad("a module beside the script that imports itself", _files(
        "import helper", "helper.load(model, state)",
        helper="import helper\n\n\ndef load(model, state):\n    helper.load_model(model, state)\n"),
        "helper.py:5 warning"),
    bad("a class of the module has its own way", _files(
        "import helper", "helper.load_model(model, state)",
        helper="class Box:\n    def __getattr__(self, name):\n        return name\n"), "train.py:13 warning"),
    bad("where the file has something for it", _files(
        "import helper", 'if "ema" in state:\n            helper.load_model(model, state["ema"])', helper=_UTILS),
        "train.py:14 warning"),
    good("a module that answers for all names", _files(
        "import helper", "helper.load_model(model, state)",
        helper="def __getattr__(name):\n    return print\n")),
    good("one that is there", _files("from tools import misc", "misc.load_ema(model, state)")),
    good("what the module imports", _files("from tools import misc", "misc.torch.manual_seed(0)")),
    good("a part of a package", _files("import tools.misc", "tools.misc.load_ema(model, state)")),
    good("that some code sets", _files(
        "from tools import misc\n\nmisc.depth = 3", "misc.load_ema(model, state)\n        print(misc.depth)")),
    good("from everywhere", _files("import helper", "helper.load_model(model, state)",
                                   helper="from somewhere import *\n")),
    good("asked before", _files(
        "from tools import misc", 'print(misc.size if hasattr(misc, "size") else 0)')),
    good("a library that the module is called after", _files(
        "from tools.helper import load", "load(model, state)",
        tools__helper="import helper\n\n\ndef load(model, state):\n    helper.load_model(model, state)\n")),
    good("a variable of that name", _files(
        "from tools import misc", "misc = torch.nn.Linear(4, 4)\n        print(misc.weight)")),
)  # fmt: skip
