"""Tensors that lie in the memory of the host because nothing has named another device."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from dslint.python import memory
from dslint.python.source import Module
from dslint.python.values import Instance, Value
from dslint.rules.runs import RunQuery

# Some code says where new tensors lie.
_DEFAULTS = re.compile(r"set_default_device|set_default_tensor_type|with torch\.device|with .*init_empty_weights")

_DICTS = (ast.Dict, ast.DictComp)


@dataclass
class HostTensors:
    """Answers for the modules of one run."""

    run: RunQuery

    @cached_property
    def _is_open(self) -> bool:
        return any(module.search(_DEFAULTS) for module in self.run.machine.program.modules())

    def places(self, value: Value) -> list[tuple[Module, ast.AST]]:
        """Return the call that has made a tensor, where each that may certainly leaves it in the memory of the host."""
        found = None if self._is_open else memory.on_host(self.run.machine, value)
        return [found] if found is not None else []

    def items(self, value: Value) -> list[tuple[Module, ast.AST]]:
        """Return the calls that have made the tensors on the host which a dictionary gets where it is written."""
        made = [atom.node for atom in value.atoms if isinstance(atom, Instance)]
        written = [
            node.values if isinstance(node, ast.Dict) else [node.value] for node in made if isinstance(node, _DICTS)
        ]
        found = [] if self._is_open else [memory.left_by(self.run.machine, node) for nodes in written for node in nodes]
        return [place for place in found if place is not None]
