"""Which variables of torchrun ``srun`` and ``mpirun`` leave unset, and whether a script takes its GPU from one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import device_question
from dslint.model.plan.readfields import scope_of
from dslint.model.plan.scriptrun import near_sources, script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event
from dslint.python.source import Module

_LOCAL = "LOCAL_RANK"
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", _LOCAL)
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
_OF_PMIX = ("PMIX_RANK",)
# Plugins of `srun --mpi` that are not PMIx.
_WITHOUT_PMIX = ("pmi2", "none", "openmpi", "cray_shasta")
_CONTAINER = re.compile(r"--container|\b(?:singularity|apptainer|podman|docker|enroot|shifter)\b")
_TAKES = re.compile(r"set_device\(|\bdevice\(|\bcuda:")
# The variables of Slurm and of the kinds of MPI for the same number, and what finds it in another way.
_OTHERS = re.compile(
    r"SLURM_LOCALID|device_count\(\)|\bmpi4py\b|horovod|deepspeed|accelerate|lightning|submitit|transformers|mmengine"
    r"|idr_torch|Get_rank\(|node_local_rank|gethostname"
)
# ``os.environ["LOCAL_RANK"] = VALUE``, ``os.environ.setdefault("LOCAL_RANK", VALUE)``, ``putenv``.
_SETS = re.compile(
    r"(?:environ\[\s*[\"']LOCAL_RANK[\"']\s*\]\s*=(?!=)|(?:setdefault|putenv)\(\s*[\"']LOCAL_RANK[\"']\s*,)\s*(?P<value>[^\n]*)"
)
_OPTION = re.compile(r"(?:str\()?\s*\w*(?:args|opts?|cfg|config|opt|flags)\w*\.local_rank\b")
_ZERO = re.compile(r"(?:str\()?[\"']?0[\"']?\)?\s*\)?\s*(?:#.*)?")
_DEFAULT = re.compile(r"add_argument\([^()]*[\"']--local[-_]rank[\"'][^()]*\bdefault\s*=\s*(?P<value>-?\d+)")


@dataclass(frozen=True, slots=True)
class UnsetRank:
    """Where the number is asked for, and where it chooses the device; ``set_at``: where the script itself puts a 0.

    ``stops``: without the variable the script ends with a KeyError.
    """

    asked: Location
    used: Location
    set_at: Location | None
    stops: bool


def _runs_tasks(command: LaunchCommand) -> bool:
    """Slurm or MPI starts Python itself, with options that can be read."""
    return command.launcher in ("srun", "mpirun") and not command.hides_options


def unset_variables(command: LaunchCommand, told: UnsetRank | None) -> Fact[tuple[str, ...]]:
    """The variables of other launchers that the processes do not have: nothing in the launch file sets them.

    Those of torchrun for the tasks of Slurm or MPI, those of Open MPI for the others, and those of PMIx where `srun` is
    told of another interface. A container may set them: the hook for PyTorch of enroot does so. ``told``: what is known
    of the local rank, which then needs no other finding.
    """
    others = _of_others(command)
    if not others:
        return absent()
    if any(_CONTAINER.search(word.raw) for word in command.words):
        return unknown("a container may set them")
    names = [name for name in others if command.variable(name).is_absent and not (told and name == _LOCAL)]
    raw = [word.raw for word in command.words]
    return known(tuple(name for name in names if not any(re.search(rf"\b{name}\b", word) for word in raw)))


def _of_others(command: LaunchCommand) -> tuple[str, ...]:
    """The variables that this launcher never sets for the processes of Python, and another one does."""
    if command.hides_options:
        return ()
    if command.launcher == "mpirun":
        return _OF_TORCHRUN
    if command.launcher == "srun":
        flag = command.launcher_flag("--mpi")
        kind = flag.value.text if flag is not None and flag.value is not None else None
        return (*_OF_TORCHRUN, *_OF_MPI, *(_OF_PMIX if kind in _WITHOUT_PMIX else ()))
    return (*_OF_MPI, *_OF_PMIX) if command.launcher == "torchrun" and not command.outer else ()


def _may_miss_rank(command: LaunchCommand) -> bool:
    """Several tasks of Slurm or MPI run Python itself, and no text tells them a local rank."""
    if not _runs_tasks(command) or command.in_docs:
        return False
    return command.variable(_LOCAL).is_absent and not any(_LOCAL in word.raw for word in command.words)


def unset_rank(command: LaunchCommand, script: str | None, workspace: Workspace) -> UnsetRank | None:
    """What a script that such a command starts does with the variable."""
    if script is None or not script.endswith(".py") or not _may_miss_rank(command):
        return None
    return workspace.memo("unset rank", script, lambda source: _unset(source, workspace))


def _unset(source: SourceFile, workspace: Workspace) -> UnsetRank | None:
    texts = near_sources(source, workspace)
    asks = [found for found in texts if _LOCAL in found.text.replace("WORLD_LOCAL_RANK", "")]
    if not asks or not any(_TAKES.search(found.text) for found in texts):
        return None
    if any(_OTHERS.search(found.text) for found in texts):
        return None
    settings = [(found, match) for found in texts for match in _SETS.finditer(found.text)]
    default = next((match["value"] for found in texts if (match := _DEFAULT.search(found.text))), "")
    if any(not _is_zero(match["value"], default) for _, match in settings):
        return None
    run = script_run(source.path, workspace, device_question())
    for event in certain_events(run) if run is not None else ():
        found = _by_variable(event)
        if found is not None:
            at = _place(settings[0]) if settings else None
            stops = at is None and isinstance(found, ast.Subscript)
            return UnsetRank(event.module.location(found), event.module.location(event.node), at, stops)
    return None


def _is_zero(value: str, default: str) -> bool:
    """The script puts a 0, or its option of which the default is 0, and no launcher gives the option."""
    return _ZERO.fullmatch(value.strip()) is not None or (default == "0" and _OPTION.match(value.strip()) is not None)


def _place(setting: tuple[SourceFile, re.Match[str]]) -> Location:
    source, match = setting
    return source.location(Span(match.start(), match.start("value")), "set here, to 0")


def _by_variable(event: Event) -> ast.expr | None:
    """The expression that asks for the variable, where the device of a certain call is made of it."""
    if event.api not in ("torch.cuda.set_device", "torch.device") or not isinstance(event.node, ast.Call):
        return None
    given = [*event.node.args, *(keyword.value for keyword in event.node.keywords)]
    return next((found for value in given for found in _leading(event.module, event.node, value)), None)


def _leading(module: Module, call: ast.Call, value: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """The expressions about the variable that an argument is made of: itself, a name, a function of the module."""
    if _LOCAL in ast.unparse(value):
        yield from (node for node in ast.walk(value) if isinstance(node, ast.expr) and _asks(node))
    elif depth < 2:
        for node in ast.walk(value):
            if isinstance(node, ast.Name):
                for other in _given(module, call, node.id):
                    yield from _leading(module, call, other, depth + 1)


def _given(module: Module, call: ast.Call, name: str) -> Sequence[ast.expr]:
    """The one value of a name in the function of a call, or in the module; what a function of that name returns."""
    functions = [n for n in module.nodes_of(ast.FunctionDef) if n.name == name]
    if len(functions) == 1:
        return [n.value for n in ast.walk(functions[0]) if isinstance(n, ast.Return) and n.value is not None]
    found = [n for n in ast.walk(scope_of(module, call)) if isinstance(n, ast.Assign) and _names(n) == name]
    return [found[0].value] if len(found) == 1 else []


def _names(statement: ast.Assign) -> str:
    target = statement.targets[0]
    return target.id if len(statement.targets) == 1 and isinstance(target, ast.Name) else ""


def _asks(node: ast.expr) -> bool:
    """``os.environ["LOCAL_RANK"]``, ``os.environ.get("LOCAL_RANK", 0)``, ``os.getenv("LOCAL_RANK", "0")``."""
    if isinstance(node, ast.Subscript):
        return _is_text(node.slice) and ast.unparse(node.value).endswith("environ")
    if not isinstance(node, ast.Call) or not node.args or not _is_text(node.args[0]):
        return False
    default = node.args[1] if len(node.args) > 1 else None
    is_zero = isinstance(default, ast.Constant) and str(default.value) == "0"
    return ast.unparse(node.func).endswith(("environ.get", "getenv")) and (default is None or is_zero)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == _LOCAL
