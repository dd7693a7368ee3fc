"""Jobs that a Python file hands to a cluster: executors of submitit, estimators of SageMaker.

Each is shown as the command that the cluster runs in the end: ``srun`` with the numbers of the executor, ``torchrun``
or ``mpirun`` with those of the estimator. What the program computes is a word that nobody knows.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from dslint.core.fact import absent, known
from dslint.core.source import SourceFile, Span
from dslint.model.launch.launchers.counts import MACHINE_GPUS
from dslint.model.launch.sources.snippet import UNKNOWN_WORD, UNKNOWN_WORDS, Snippet

Words = Callable[[ast.expr], str]
Place = Callable[[ast.expr], Span]
# What the executor is told, and what ``srun`` calls it.
_OF_SLURM = {
    "nodes": "--nodes",
    "tasks_per_node": "--ntasks-per-node",
    "ntasks_per_node": "--ntasks-per-node",
    "gpus_per_node": "--gpus-per-node",
    "gres": "--gres",
    "gpus_per_task": "--gpus-per-task",
    "cpus_per_task": "--cpus-per-task",
}
_ESTIMATORS = frozenset({"PyTorch", "HuggingFace", "Estimator", "ModelTrainer"})
_FAMILY = re.compile(r"ml\.(?P<family>[a-z]+\d\w*)\.(?P<size>\d*x?large|metal)")
# Families of instances with GPUs: how many the sizes have; all others of the family have one.
_EIGHT = frozenset({"p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6"})
_SIZES = {
    "p2": {"8xlarge": 8, "16xlarge": 16},
    "p3": {"8xlarge": 4, "16xlarge": 8},
    "g4dn": {"12xlarge": 4, "metal": 8},
    "g5": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g6": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g6e": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
}
# What SageMaker gives every node beside the numbers.
_MEETING = f"--node_rank={UNKNOWN_WORD} --master_addr={UNKNOWN_WORD} --master_port={UNKNOWN_WORD}"


def submitted_snippets(source: SourceFile, tree: ast.AST, word: Words, place: Place) -> Iterator[Snippet]:
    """The jobs of a file, in its order."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if "submitit" in source.text:
        yield from _of_submitit(source, calls, word, place)
    if "sagemaker" in source.text:
        for call in calls:
            if _called(call) in _ESTIMATORS and {"entry_point", "instance_count"} <= _given(call).keys():
                yield from _of_estimator(source, call, place)


def _of_submitit(source: SourceFile, calls: list[ast.Call], word: Words, place: Place) -> Iterator[Snippet]:
    """``executor.update_parameters(nodes=2, tasks_per_node=8)`` with what is submitted behind it."""
    told = [call for call in calls if _called(call) == "update_parameters"]
    sent = [call for call in calls if _called(call) in ("submit", "map_array") and call.args]
    if len(told) != 1 or not sent or any(keyword.arg is None for keyword in told[0].keywords):
        return
    step = "srun"
    for name, value in _given(told[0]).items():
        option = _OF_SLURM.get(name.removeprefix("slurm_"))
        if option is not None:
            number = value.value if isinstance(value, ast.Constant) and isinstance(value.value, int | str) else None
            step += f" {option}={word(value) if number is None else shlex.quote(str(number))}"
    own = shlex.quote(source.path.rpartition("/")[2])
    commands = [call.args[0] for call in calls if _called(call) == "CommandFunction" and call.args]
    for command in commands:
        if isinstance(command, ast.List | ast.Tuple):
            yield _snippet(f"{step} {' '.join(map(word, command.elts))}", place(command))
    if not commands:
        yield _snippet(f"{step} python {own} {UNKNOWN_WORDS}", place(told[0]))


def _of_estimator(source: SourceFile, call: ast.Call, place: Place) -> Iterator[Snippet]:
    """The training job of an estimator: the launcher by ``distribution``, the options by ``hyperparameters``."""
    given = _given(call)
    entry, folder = _text(given["entry_point"]), _text(given.get("source_dir")) or "."
    count, gpus = _number(given["instance_count"]), _gpus(_text(given.get("instance_type")))
    if not entry or folder.startswith(("s3:", "http")):
        return
    script = shlex.quote(entry if folder in (".", "./") else f"{folder.rstrip('/')}/{entry}")
    options = "".join(_options(given.get("hyperparameters")))
    nodes = str(count) if count is not None else UNKNOWN_WORD
    each = str(gpus) if gpus is not None else UNKNOWN_WORD
    launcher = _launcher(given.get("distribution"), nodes, each, count, gpus)
    if launcher is None:
        return
    machine = {}
    if gpus is not None:
        label = f"instance_type {_text(given['instance_type'])}"
        machine[MACHINE_GPUS] = known(str(gpus), source.location(place(given["instance_type"]), label))
    yield Snippet(f"{launcher} {script}{options}", 0, place(call), {}, frozenset(), True, absent(), machine=machine)


def _launcher(told: ast.expr | None, nodes: str, each: str, count: int | None, gpus: int | None) -> str | None:
    """The program that SageMaker starts; ``None`` where it has one of its own."""
    if told is None:
        return "python"
    if not isinstance(told, ast.Dict):
        return None
    kinds = {
        key.value: value for key, value in zip(told.keys, told.values, strict=True) if isinstance(key, ast.Constant)
    }
    if "torch_distributed" in kinds:
        return f"torchrun --nnodes={nodes} --nproc_per_node={each} {_MEETING}"
    total = str(count * gpus) if count is not None and gpus is not None else UNKNOWN_WORD
    if "pytorchddp" in kinds:
        return f"mpirun -np {total} python"
    if "mpi" in kinds and isinstance(kinds["mpi"], ast.Dict):
        per_host = next((_number(v) for k, v in zip(kinds["mpi"].keys, kinds["mpi"].values, strict=True)
                         if isinstance(k, ast.Constant) and k.value == "processes_per_host"), None)  # fmt: skip
        total = str(count * per_host) if count is not None and per_host is not None else UNKNOWN_WORD
        return f"mpirun -np {total} python"
    return None


def _options(told: ast.expr | None) -> Iterator[str]:
    """``{"lr": 1e-4}`` as the words that the script gets."""
    if told is None:
        return
    if not isinstance(told, ast.Dict):
        yield f" {UNKNOWN_WORDS}"
        return
    for key, value in zip(told.keys, told.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            yield f" {UNKNOWN_WORDS}"
            continue
        text = shlex.quote(str(value.value)) if isinstance(value, ast.Constant) else UNKNOWN_WORD
        yield f" {shlex.quote('--' + key.value)} {text}"


def _gpus(instance: str) -> int | None:
    found = _FAMILY.fullmatch(instance)
    if found is None or found["family"] not in (*_EIGHT, *_SIZES):
        return None
    return 8 if found["family"] in _EIGHT else _SIZES[found["family"]].get(found["size"], 1)


def _snippet(line: str, span: Span) -> Snippet:
    return Snippet(line, 0, span, {}, frozenset(), True, absent())


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _given(call: ast.Call) -> Mapping[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
