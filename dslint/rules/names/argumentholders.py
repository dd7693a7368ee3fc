"""By which names the code of a run knows the arguments of its command line: followed by names, without an order."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

from dslint.python.program import Program
from dslint.python.source import Module
from dslint.rules.names.targets import parameter_of, targets_of
from dslint.rules.names.wholearguments import HOLDERS, LOGS, is_dict, is_variadic
from dslint.rules.training.training import last_name

_MOST_ROUNDS = 12
# Functions that look at an object and give nothing back that holds it.
_LOOKS = re.compile(r"(?:getattr|hasattr|isinstance|vars|setattr|delattr|len|type|id|dir|sorted|list|dict|bool|set)")
# Calls and variables that may make settings of the arguments: `cfg = AttrDict(args)`.
_CONFIGS = re.compile(r"(?i)cfg|conf|arg|opt(?:s|ion|\b)|param|setting|dict|munch|namespace")
# What begins a log; other functions that begin something read options.
_BEGINS = ("init", "init_trackers")
# Packages that read few options of a program by themselves.
_LIBRARIES = re.compile(
    r"torch\w*|deepspeed|transformers|accelerate|timm|wandb|mm\w+|lightning\w*|pytorch_lightning|fairscale|apex|trl"
    r"|detectron2|submitit|horovod|datasets|peft|numpy|yaml|omegaconf|hydra|ray|tensorboardX|fvcore|tqdm|easydict"
)
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class ArgumentHolders:
    """The names of variables, parameters and fields that may hold the arguments; too many to tell in some programs."""

    def __init__(self, program: Program, names: Iterable[str], parsed: Iterable[ast.AST] = ()) -> None:
        """Follow variables of some names, and what some calls give."""
        self._program = program
        self._modules = program.modules()
        self._parsed = frozenset(map(id, parsed))
        self.names = {name for name in names if name}
        self._giving: set[str] = set()
        self.is_open = False
        self.strangers = False  # code of a package that nobody knows gets them
        self._functions: dict[str, list[tuple[_FunctionNode, bool]]] = {}
        for module in self._modules:
            for function in module.functions:
                around = module.parents.get(function)
                is_method = isinstance(around, ast.ClassDef)
                name = around.name if isinstance(around, ast.ClassDef) and function.name == "__init__" else ""
                self._functions.setdefault(name or function.name, []).append((function, is_method))
        for _ in range(_MOST_ROUNDS):
            before = (len(self.names), len(self._giving))
            for module in self._modules:
                self._follow(module)
            if self.is_open or before == (len(self.names), len(self._giving)):
                return
        self.is_open = True

    def may_hold(self, node: ast.AST) -> bool:
        """Return whether an expression may be the arguments."""
        if self.is_open or not isinstance(node, ast.Name | ast.Attribute):
            return True
        name = last_name(node)
        return name in self.names or HOLDERS.fullmatch(name) is not None

    @property
    def settings(self) -> set[str]:
        """The names among them that say so."""
        return {name for name in self.names if _CONFIGS.search(name)}

    def _follow(self, module: Module) -> None:
        for node in self._uses(module):
            parent = module.parents.get(node)
            while isinstance(parent, ast.IfExp | ast.BoolOp | ast.Await):
                node, parent = parent, module.parents.get(parent)
            if isinstance(parent, ast.keyword):
                self.names |= {parent.arg} if parent.arg else set()
            elif isinstance(parent, ast.Call) and node is not parent.func:
                self._passed(module, parent, node)
            elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                self._bind(parent)
            elif isinstance(parent, ast.Return):
                self._give(module, parent)
            elif isinstance(parent, ast.Tuple):
                self._packed(module, parent)
            elif isinstance(parent, ast.Dict):
                keys = [k for k, value in zip(parent.keys, parent.values, strict=True) if value is node]
                self.names |= {str(k.value) for k in keys if isinstance(k, ast.Constant)}
            elif isinstance(parent, ast.List | ast.Set | ast.Starred | ast.Lambda | ast.Yield):
                self.is_open = self.is_open or not _is_logged(module, node)

    def _give(self, module: Module, statement: ast.Return) -> None:
        function = module.function(statement)
        self._giving |= {function.name} if isinstance(function, _FunctionNode) else set()

    def _packed(self, module: Module, parts: ast.Tuple) -> None:
        """Follow a tuple that is returned, or that a call hands on to a function: `spawn(main, args=(args,))`."""
        around = module.parents.get(parts)
        around = module.parents.get(around) if isinstance(around, ast.keyword) else around
        if isinstance(around, ast.Return):
            self._give(module, around)
        elif isinstance(around, ast.Call) and not _is_logged(module, parts):
            named = [last_name(value) for value in (*around.args, *(k.value for k in around.keywords))]
            functions = [f for name in named for f, _ in self._functions.get(name, ())]
            self.names |= {a.arg for f in functions for a in f.args.args}
            self.is_open = self.is_open or not functions
        elif not isinstance(around, ast.Call | ast.Compare):
            self.is_open = True

    def _uses(self, module: Module) -> Iterator[ast.AST]:
        """Yield the places where the arguments are meant as a whole."""
        for node in module.nodes_of(ast.Name, ast.Attribute):
            is_bare = not isinstance(module.parents.get(node), ast.Attribute)
            if not is_bare or last_name(node) not in self.names or not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if not (isinstance(node, ast.Name) and (is_variadic(module, node) or is_dict(module, node))):
                yield node
        for call in module.nodes_of(ast.Call):
            copied = call.args[0] if last_name(call.func) in ("copy", "deepcopy") and call.args else None
            is_copy = copied is not None and last_name(copied) in self.names
            if is_copy or last_name(call.func) in self._giving or id(call) in self._parsed:
                yield call

    def _bind(self, statement: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> None:
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            self.names |= {last_name(part) for part in parts} - {""}

    def _is_strange(self, module: Module, func: ast.expr) -> bool:
        """Return whether a function comes from a package that is neither of the project nor a library known here."""
        path = module.path_of(func)
        home = path.partition(".")[0]
        if not home or home in sys.stdlib_module_names or _LIBRARIES.fullmatch(home):
            return False
        folders = path.rpartition(".")[0]
        return not any(self._program.resolve(module, name) for name in (path, folders, home) if name)

    def _passed(self, module: Module, call: ast.Call, node: ast.AST) -> None:
        """Take in the parameters that an argument by position may be for."""
        name = last_name(call.func)
        targets = targets_of(self._program, module, call)
        for target in targets or ():
            taken = parameter_of(target, call, node)
            self.names |= {taken[0]} if taken is not None else set()
            self.is_open = self.is_open or taken is None or taken[1]
        if targets is not None:
            return
        at = next((i for i, value in enumerate(call.args) if value is node), 0)
        for function, is_method in self._functions.get(name, ()) if isinstance(call.func, ast.Attribute) else ():
            given = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
            self.names |= set(given[at + is_method : at + is_method + 1])
            self.is_open = self.is_open or (at >= len(given) and function.args.vararg is not None)
        is_log = LOGS.search(name) is not None and (not name.startswith("init") or name in _BEGINS)
        if name in self._functions or _LOOKS.fullmatch(name) or is_log:
            return
        self.strangers = self.strangers or self._is_strange(module, call.func)
        base = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if _CONFIGS.search(base):  # `config.merge(args)`
            self.names.add(base)
        statement = module.statement(call)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            bound: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(_CONFIGS.search(word) for word in (name, *map(last_name, bound))):
                self._bind(statement)
        elif isinstance(statement, ast.Return) and _CONFIGS.search(name):
            self._give(module, statement)


def _is_logged(module: Module, node: ast.AST) -> bool:
    """Return whether a container around a use is only written down: `torch.save({"args": args}, path)`."""
    at = module.parents.get(node)
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Call):
            return LOGS.search(ast.unparse(at.func)) is not None
        at = module.parents.get(at)
    return False
