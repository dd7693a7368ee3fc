"""Which expressions certainly hold what the launcher has put into a variable of the environment."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.constants import Constants
from dslint.model.script.dotted import dotted
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.tree import Tree

LOCAL_RANK = frozenset({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"})
WORLD_SIZE = frozenset({"WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE"})
_READS = frozenset({"os.environ.get", "os.getenv"})
_CASTS = frozenset({"int", "str"})
_OPTIONS = frozenset({"--local_rank", "--local-rank"})
_MAX_STEPS = 6


class LauncherValues:
    """Follows the variables of one module to ``os.environ``."""

    def __init__(self, tree: Tree, names: Names, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants

    def source(self, node: cst.BaseExpression, variables: frozenset[str]) -> cst.BaseExpression | None:
        """Where one of the variables is read, when the expression is its value on every path; else ``None``.

        A number that stands for it without a launcher (``-1``, a default) is no other value. ``args.local_rank`` is
        the local rank when the parser of the file has the option that launchers fill in.
        """
        found = list(self._sources(node, variables, 0))
        reads = [f for f in found if f is not None]
        return reads[0] if reads and len(reads) == len(found) else None

    def _sources(
        self, node: cst.BaseExpression, variables: frozenset[str], steps: int
    ) -> Iterator[cst.BaseExpression | None]:
        """Each value that the expression may have: the read of a variable, or ``None`` for anything else."""
        if steps > _MAX_STEPS:
            yield None
        elif isinstance(node, cst.Call):
            yield from self._of_call(node, variables, steps)
        elif isinstance(node, cst.Subscript):
            index = node.slice[0].slice if len(node.slice) == 1 else None
            key = self._constants.value(index.value).get_or(None) if isinstance(index, cst.Index) else None
            is_read = self._names.qualified(node.value) == "os.environ" and key in variables
            yield node if is_read else None
        elif isinstance(node, cst.IfExp):
            for arm in (node.body, node.orelse):
                if number_of(arm) is None:
                    yield from self._sources(arm, variables, steps + 1)
        elif isinstance(node, cst.Name | cst.Attribute):
            found = self._bindings(node)
            if not found:
                yield self._option(node) if variables is LOCAL_RANK else None
            for binding in found:
                yield from self._of_binding(binding, variables, steps)
        else:
            yield None

    def _of_call(self, node: cst.Call, variables: frozenset[str], steps: int) -> Iterator[cst.BaseExpression | None]:
        name = self._names.qualified(node.func) or ""
        if name in _CASTS and len(node.args) == 1:
            yield from self._sources(node.args[0].value, variables, steps + 1)
        elif name in _READS and node.args:
            key = self._constants.value(node.args[0].value).get_or(None)
            default = node.args[1].value if len(node.args) > 1 else None
            is_plain = default is None or _is_none(default) or self._constants.value(default).is_known
            yield node if key in variables and is_plain else None
        else:
            function = self._names.local_function(node) if not node.args else None
            returned = [n for n in self._tree.own_nodes(function.body) if isinstance(n, cst.Return)] if function else []
            if not returned:
                yield None
            for one in returned:
                if one.value is None:
                    yield None
                elif number_of(one.value) is None:
                    yield from self._sources(one.value, variables, steps + 1)

    def _of_binding(
        self, binding: Binding, variables: frozenset[str], steps: int
    ) -> Iterator[cst.BaseExpression | None]:
        if binding.kind == "assign" and binding.value is not None:
            if number_of(binding.value) is None and not _is_none(binding.value):
                yield from self._sources(binding.value, variables, steps + 1)
        elif isinstance(binding.node, cst.Param):
            given = self._names.callers.passed(binding.node)
            if not given:
                yield None
            for value in given:
                if value is None:
                    yield None
                else:
                    yield from self._sources(value, variables, steps + 1)
        else:
            yield None

    def _bindings(self, node: cst.Name | cst.Attribute) -> list[Binding]:
        if isinstance(node, cst.Name):
            return self._names.bindings(node.value, node)
        found = self._names.attribute_bindings(node)
        if found:
            return found
        # What the file assigns to ``args.local_rank``, under this spelling.
        wanted = dotted(node)
        targets = (t for t in self._tree.every(cst.AssignTarget) if wanted and dotted(t.target) == wanted)
        owners = ((t, self._tree.parent(t)) for t in targets)
        return [Binding("assign", t, owner.value) for t, owner in owners if isinstance(owner, cst.Assign)]

    def _option(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """``args.local_rank`` of a parser of the file: the launcher passes it."""
        if (
            not isinstance(node, cst.Attribute)
            or node.attr.value != "local_rank"
            or not isinstance(node.value, cst.Name)
        ):
            return None
        for call in self._tree.every(cst.Call):
            if self._names.called(call) == "add_argument":
                words = [self._constants.value(a.value).get_or(None) for a in call.args if a.keyword is None]
                if _OPTIONS.intersection(w for w in words if isinstance(w, str)):
                    return node
        return None


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"
