"""How many machines a script asks its Trainer of Lightning for: a number, an option, or a key of a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.slurmjob import one_gpu_of_task
from dslint.model.plan.files import Files
from dslint.model.plan.tree import files_by_name
from dslint.parse.data import DataDoc
from dslint.python.source import Module, read

_WORDS = re.compile(r"lightning\b[\s\S]*\bTrainer\(")
# What finds the other machines: in the script, and in the texts around its command.
_OTHERS = r"NODE_RANK|MASTER_ADDR|SLURM|submitit|\bplugins\s*=|cluster_environment"
_SCRIPT = re.compile(_OTHERS)
_AROUND = re.compile(
    _OTHERS + r"|\bsrun\b|\bsbatch\b|mpirun|kubectl|multi-?node|(?<!_)\bnodes\b"
    r"|(?:each|every|all|other|several|multiple|both|\d) (?:node|machine|host)s?\b",
    re.IGNORECASE,
)
_FILE = re.compile(r"[\w./+-]+\.(?:ya?ml|json)")
# A project with jobs for a cluster has settings for those.
_JOBS = (".sbatch", ".slurm", ".sub", ".pbs")
_NAME = "num_nodes"


@dataclass(frozen=True, slots=True)
class TrainerNodes:
    """``num_nodes`` of the one Trainer: a number, or the names that lead to it (``cfg.trainer.num_nodes``).

    ``files`` are the files of settings that the script names itself.
    """

    number: int | None
    keys: tuple[str, ...]
    location: Location
    files: tuple[str, ...] = ()


def trainer_nodes(source: SourceFile) -> TrainerNodes | None:
    """What the script writes, where it makes one Trainer and says nothing of other machines itself."""
    return None if _SCRIPT.search(source.text) else _trainer_number(source, _NAME)


def shown_devices(command: LaunchCommand, script: str | None, files: Files) -> Fact[int]:
    """``devices`` of the one Trainer by the file of settings, where Slurm shows each task one; else nobody asks."""
    if script is None or one_gpu_of_task(command) is None or command.conditions:
        return absent()
    found = files.workspace.memo("trainer devices of a file", script, lambda source: _trainer_number(source, "devices"))
    return _in_files(found, command, files) if found is not None and found.number is None else absent()


def _trainer_number(source: SourceFile, name: str) -> TrainerNodes | None:
    """A number that the one Trainer of a script is given under this name, or where it comes from."""
    if not source.path.endswith(".py") or not _WORDS.search(source.text):
        return None
    module = read(source)
    if not isinstance(module, Module):
        return None
    made = [node for node in module.nodes_of(ast.Call) if ast.unparse(node.func).rpartition(".")[2] == "Trainer"]
    if len(made) != 1:
        return None
    given = {word.arg: word.value for word in made[0].keywords}
    value = _followed(given.get(name), module)
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return TrainerNodes(value.value, (), module.location(value))
    keys = _keys(value) if name in given else (*_keys(given.get(None)), name)
    if not keys or (name not in given and len(keys) == 1):
        return None
    texts = (n.value for n in module.nodes_of(ast.Constant) if isinstance(n.value, str) and _FILE.fullmatch(n.value))
    return TrainerNodes(None, keys, module.location(given.get(name) or made[0]), tuple(dict.fromkeys(texts)))


def _followed(value: ast.expr | None, module: Module) -> ast.expr | None:
    """What the one assignment to a name gives it."""
    if not isinstance(value, ast.Name):
        return value
    given = [n.value for n in module.nodes_of(ast.Assign) if any(ast.unparse(t) == value.id for t in n.targets)]
    return given[0] if len(given) == 1 else None


def _keys(node: ast.expr | None) -> tuple[str, ...]:
    """The names behind an object: ``cfg.trainer.num_nodes``, ``cfg["trainer"]["nodes"]``, ``cfg.get("nodes", 1)``."""
    if isinstance(node, ast.Attribute):
        return (*_keys(node.value), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return (*_keys(node.value), str(node.slice.value))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
        return (*_keys(node.func.value), str(key.value)) if isinstance(key, ast.Constant) else ()
    return ()


def nodes_asked(
    found: TrainerNodes | None, command: LaunchCommand, given: Mapping[str, Fact[Any]], files: Files
) -> Fact[int]:
    """The number for a command that starts the script on this machine alone; absent where nobody can say."""
    if found is None or command.launcher not in ("python", "torchrun") or command.outer or command.conditions:
        return absent()
    source = files.workspace.read(command.location.path)
    if command.launcher == "python" and (source is None or _AROUND.search(source.text) or "NODE_RANK" in command.env):
        return absent()
    if any(name.endswith(_JOBS) for name in files_by_name(command.location.path, files.workspace)):
        return absent()
    if found.number is not None:
        return known(found.number, found.location)
    option = given.get(found.keys[-1]) if len(found.keys) == 1 else None
    if option is not None:
        number = str(option.get_or(""))
        return known(int(number), *option.origins, found.location) if number.isdigit() else absent()
    if any(found.keys[-1] in (word.text or word.raw) for word in command.script_args):
        return absent()
    return _in_files(found, command, files)


def _in_files(found: TrainerNodes, command: LaunchCommand, files: Files) -> Fact[int]:
    named = [word.text for word in command.script_args if word.text is not None and _FILE.fullmatch(word.text)]
    texts = [(word.text or "").partition("=")[2] for word in command.script_args]
    named += [text for text in texts if _FILE.fullmatch(text)]
    places: list[Fact[int]] = []
    for name in named or found.files:
        path = files.find(name)
        doc = files.data(path) if path is not None else None
        places += _numbers(doc, found.keys) if doc is not None else ()
    return places[0] if len(places) == 1 else absent()


def _numbers(doc: DataDoc, keys: tuple[str, ...]) -> Iterator[Fact[int]]:
    """The numbers of a file whose place ends with these names."""
    for pointer in doc.values:
        number = doc.get(pointer) if pointer.endswith("/" + "/".join(keys)) else None
        if type(number) is int:
            yield known(number, doc.value(pointer))
