"""How a file comes to run: as a program of its own or as a module, what it runs for certain, which job it joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from dslint.model.script.constants import Constants
from dslint.model.script.dotted import is_main_test
from dslint.model.script.names import Names
from dslint.model.script.ranks.guards import leaves
from dslint.model.script.tree import Tree

_PARSE_CALLS = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config"})
GROUP_MAKERS = frozenset({"init_process_group", "init_distributed"})
# Calls that start more processes, each of which runs a part of the file with an environment of its own.
_STARTERS = frozenset(
    {
        *("spawn", "start_processes", "Process", "Pool", "ProcessPoolExecutor", "Popen", "check_call", "check_output"),
        *("notebook_launcher", "debug_launcher", "elastic_launch", "launch_agent", "run_command", "getoutput"),
    }
)
_STARTING_MODULES = ("ray", "subprocess", "torch.multiprocessing", "multiprocessing", "concurrent.futures")
_MAX_CALLERS = 3


@dataclass(frozen=True, slots=True)
class EnvironmentWrite:
    """``os.environ["NAME"] = value``: ``text`` is the value where the file states it, else ``None``.

    ``statement`` is the whole assignment when it is one (``os.environ.update`` writes several at once).
    """

    name: str
    text: str | None
    node: cst.CSTNode
    statement: cst.Assign | None = None


class Startup:
    """Answers how one module starts."""

    def __init__(self, tree: Tree, names: Names, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants
        self._always: dict[int, bool] = {}

    @cached_property
    def is_entry(self) -> bool:
        """The file is started as a program: it asks for ``__main__``, reads its command line, joins the job at once."""
        return any(
            (isinstance(node, cst.If) and is_main_test(node.test))
            or (isinstance(node, cst.Call) and self._names.called(node) in _PARSE_CALLS)
            for node in self._tree.some(cst.If, cst.Call)
        ) or any(map(self.runs_always, self.group_makers))

    @cached_property
    def group_makers(self) -> tuple[cst.Call, ...]:
        """The calls that join the processes of the job to a group."""
        return tuple(n for n in self._tree.every(cst.Call) if self._names.called(n) in GROUP_MAKERS)

    @cached_property
    def starts_processes(self) -> bool:
        """The file starts processes itself; their environment is not that of a launcher."""
        calls = self._tree.every(cst.Call)
        return any(self._names.called(call) in _STARTERS for call in calls) or self._names.imported(*_STARTING_MODULES)

    def runs_always(self, node: cst.CSTNode) -> bool:
        """Every process that runs the file reaches the node: no test, loop or early exit decides.

        A function counts when the file calls it by its name at such a place.
        """
        return self._runs_always(node, 0)

    def _runs_always(self, node: cst.CSTNode, callers: int) -> bool:
        inner = node
        for outer in self._tree.parents(node):
            kind = type(outer)
            if kind is cst.If:
                if not (isinstance(outer, cst.If) and inner is outer.body and is_main_test(outer.test)):
                    return False
            elif kind in (cst.Module, cst.IndentedBlock):
                if self._left_before(outer, inner):
                    return False
            elif kind is cst.Try:
                if isinstance(outer, cst.Try) and inner is not outer.body:
                    return False
            elif kind is cst.FunctionDef:
                return isinstance(outer, cst.FunctionDef) and self._is_called(outer, callers)
            elif kind not in _STRAIGHT:
                return False
            inner = outer
        return True

    def _left_before(self, block: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """Some test in front of the statement may have ended the function."""
        body = block.body if isinstance(block, cst.Module | cst.IndentedBlock) else ()
        for statement in body:
            if statement is inner:
                return False
            if isinstance(statement, cst.If) and leaves(statement.body) and not is_main_test(statement.test):
                return True
        return False

    def _is_called(self, function: cst.FunctionDef, callers: int) -> bool:
        known = self._always.get(id(function))
        if known is None:
            known = callers < _MAX_CALLERS and any(
                self._runs_always(call, callers + 1) for call in self._names.callers.by_name(function)
            )
            self._always[id(function)] = known
        return known

    @cached_property
    def environment_writes(self) -> tuple[EnvironmentWrite, ...]:
        """What the file puts into ``os.environ``, in source order; ``setdefault`` keeps what is there and is none."""
        found: list[EnvironmentWrite] = []
        for node in self._tree.some(cst.Assign, cst.Call):
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    key = self._environ_key(target.target)
                    if key is not None:
                        found.append(EnvironmentWrite(key, self._text(node.value), node, node))
            elif isinstance(node, cst.Call):
                found += self._update(node)
        return tuple(found)

    def _environ_key(self, target: cst.BaseExpression) -> str | None:
        if not isinstance(target, cst.Subscript) or self._names.qualified(target.value) != "os.environ":
            return None
        index = target.slice[0].slice if len(target.slice) == 1 else None
        return self._text(index.value) if isinstance(index, cst.Index) else None

    def _update(self, call: cst.Call) -> Iterator[EnvironmentWrite]:
        if self._names.qualified(call.func) != "os.environ.update":
            return
        for arg in call.args:
            if arg.keyword is not None:
                yield EnvironmentWrite(arg.keyword.value, self._text(arg.value), arg)
            elif isinstance(arg.value, cst.Dict):
                for element in arg.value.elements:
                    key = self._text(element.key) if isinstance(element, cst.DictElement) else None
                    if key is not None:
                        yield EnvironmentWrite(key, self._text(element.value), element)

    def _text(self, node: cst.BaseExpression) -> str | None:
        value = self._constants.value(node).get_or(None)
        return value if isinstance(value, str) else None


_STRAIGHT = frozenset(
    {
        *(cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.Expr, cst.Assign, cst.AnnAssign, cst.With),
        *(cst.Call, cst.Arg, cst.Await, cst.Return, cst.Attribute, cst.Tuple, cst.Element, cst.Dict, cst.DictElement),
        *(cst.Comparison, cst.Subscript, cst.AssignTarget),
    }
)
