"""Where code may read the options of a command line, and which code that the run does not show may do so, too."""

from __future__ import annotations

import ast
import re

from dslint.python.names import names_of
from dslint.python.plainoptions import Option
from dslint.python.source import Module
from dslint.python.values import Tuple
from dslint.rules.names.argumentholders import ArgumentHolders
from dslint.rules.names.consumers import Consumers, Piece
from dslint.rules.names.wholearguments import getters_by_name, hands_on
from dslint.rules.ranks.otherscripts import texts_of_others
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.training import last_name

# What timm reads of the arguments as a whole, and its functions that do so.
_TIMM = ("create_optimizer", "create_optimizer_v2", "create_scheduler", "create_scheduler_v2", "optimizer_kwargs",
         "scheduler_kwargs", "resolve_data_config")  # fmt: skip
OF_TIMM = re.compile(
    r"(?:opt|sched)(?:_\w+)?|momentum|weight_decay|lr\w*|layer_decay|(?:warmup|min|decay|cooldown|patience)_\w+|epochs"
)
# Code that imports what a text names.
_IMPORTS = re.compile(r"import_module|__import__|runpy|spec_from|locate\(|get_class|instantiate|_target_")


def names_of_arguments(found: Happening) -> set[str]:
    """Return the variables that take the arguments."""
    taken = found.event.module.parents.get(found.event.node)
    targets = taken.targets if isinstance(taken, ast.Assign) else []
    return {last_name(name) for target in targets for name in ast.walk(target)} - {""}


def stays_here(found: Happening, modules: list[Module], holders: ArgumentHolders) -> bool:
    """Return whether the arguments certainly go nowhere as a whole."""
    event = found.event
    atoms = list(event.result.atoms) if event.result is not None else []
    atoms += [inner for atom in atoms if isinstance(atom, Tuple) for value in atom.items for inner in value.atoms]
    taken = event.module.parents.get(event.node)
    # Who imports a module and calls its function gets the arguments, in code that is not read here.
    if not atoms or (found.entry.kind != "script" and isinstance(taken, ast.Return)):
        return False
    # `Config(**vars(parser.parse_args()))`: whoever gets the dictionary has all of them under names of its own.
    if holders.strangers or (isinstance(taken, ast.Call) and last_name(taken.func) in ("vars", "dict", "asdict")):
        return False
    return not hands_on(modules, names_of_arguments(found) | holders.settings, is_all=not holders.is_open)


def reads_of_option(uses: Consumers, holders: ArgumentHolders, option: Option) -> list[Piece]:
    """Return where code may read an option."""
    found = []
    for module, node in (*uses.reads_of_field(option.dest), *uses.reads_of_item(option.dest)):
        bases: list[ast.AST] = [node.value] if isinstance(node, ast.Attribute | ast.Subscript) else []
        if isinstance(node, ast.Call):
            bases = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            bases = [base for base in bases if not isinstance(base, ast.Constant)]
        if not bases or any(holders.may_hold(base) or _is_own(module, base, option.dest) for base in bases):
            found.append((module, node))
    return found


def _is_own(module: Module, base: ast.AST, dest: str) -> bool:
    """Return whether a method reads a field that its class declares as an option: `self.data_root` in a dataclass."""
    if not isinstance(base, ast.Name) or base.id != "self":
        return False
    around = names_of(module.tree).class_around(base)
    fields = around.body if around is not None else []
    return any(isinstance(node, ast.AnnAssign) and last_name(node.target) == dest for node in fields)


def taken_by_name(modules: list[Module]) -> set[str]:
    """Return the names that functions of the project get as texts, perhaps in a list, and by which they take fields."""
    found = {name for names in getters_by_name(modules).values() for name in names}
    calls = [call for module in modules for call in module.nodes_of(ast.Call)]
    getters = [call for call in calls if last_name(call.func) in ("getattr", "hasattr")]
    if any(len(call.args) > 1 and not isinstance(call.args[1], ast.Constant) for call in getters):
        listed = [node for module in modules for node in module.nodes_of(ast.List, ast.Tuple, ast.Set)]
        listed += [call for call in calls if last_name(call.func) != "add_argument"]
        texts = (item.value for node in listed for item in ast.iter_child_nodes(node) if isinstance(item, ast.Constant))
        found |= {text for text in texts if isinstance(text, str)}
    return found


def asks_timm(module: Module) -> bool:
    """Return whether timm makes an optimizer or a schedule of the arguments."""
    homes = [home for name in _TIMM for home, _ in module.imported.get(name, ())]
    return any(home.split(".")[0] == "timm" for home in homes) or "timm.optim.create_" in module.source.text


def is_elsewhere(run: RunQuery, option: Option, others: list[str]) -> bool:
    """Return whether a file that the run has not read may read an option."""
    word = re.compile(rf"\b{re.escape(option.dest)}\b")
    return any(map(word.search, others)) or _is_shared(run, option)


def _is_shared(run: RunQuery, option: Option) -> bool:
    """Return whether another file declares the option, for other scripts that read it, too, or for its own run."""
    if option.location.path != run.path:
        declaring = [m for m in run.machine.program.modules() if m.path == option.location.path]
        if any("__main__" in module.source.text for module in declaring):
            return True
    read = re.compile(rf"\.{re.escape(option.dest)}\b")
    return option.location.path != run.path and any(read.search(text) for text in texts_of_others(run).values())


def imported_texts(run: RunQuery, modules: list[Module]) -> list[str]:
    """Return the texts of files that the run has not read, and that some import may still mean."""
    found = []
    for path, text in texts_of_others(run).items():
        stem = re.escape(path.rpartition("/")[2].removesuffix(".py"))
        imports = re.compile(rf"import[^\n]*\b{stem}\b|from[^\n]*\b{stem}\b|[\"'][\w./]*\b{stem}\.py\b")
        names = re.compile(rf"[\"'][\w./]*\b{stem}[\"'.]")
        if any(m.search(imports) or (m.search(_IMPORTS) and m.search(names)) for m in modules):
            found.append(text)
    return found
