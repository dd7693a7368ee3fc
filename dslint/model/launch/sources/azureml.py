"""What a command job of Azure ML starts for each process: its `distribution`, as the launcher that does the same."""

from __future__ import annotations

import re
from typing import Any

from dslint.model.launch.sources.snippet import UNKNOWN_WORD

# Azure ML tells every process where they meet.
_MEETING = f"--node_rank={UNKNOWN_WORD} --master_addr={UNKNOWN_WORD} --master_port={UNKNOWN_WORD}"
# The program of a command, where it is the interpreter itself.
_PYTHON = re.compile(r"(?P<before>^\s*|&&\s*|;\s*|\n\s*)(?P<python>python[\d.]*)(?=\s+(?:-u\s+)?[\w./-]+\.py\b)")


def started(data: dict[str, Any], command: str) -> str:
    """Return a command with the launcher before each Python program in it; as it is, where a job has one process."""
    launcher = _launcher(data)
    if not launcher:
        return command
    return _PYTHON.sub(lambda m: f"{m['before']}{launcher}{m['python'] if launcher[0] == 'm' else ''}", command)


def _launcher(data: dict[str, Any]) -> str:
    told, resources = data.get("distribution"), data.get("resources")
    if not isinstance(told, dict) or told.get("type") not in ("mpi", "pytorch"):
        return ""
    each, nodes = told.get("process_count_per_instance", 1), 1
    if isinstance(resources, dict):
        nodes = resources.get("instance_count", 1)
    if type(each) is not int or type(nodes) is not int or each * nodes == 1:
        return ""
    if told["type"] == "mpi":
        return f"mpirun -np {nodes * each} -N {each} "
    return f"torchrun --nnodes={nodes} --nproc_per_node={each} {_MEETING}"
