"""The device mesh that a script makes, with the sizes that its command and config give it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.files import Files
from dslint.model.plan.parser.options import Passed
from dslint.model.plan.scriptrun import imported_sources
from dslint.parse.astplaces import AstPlaces
from dslint.parse.data import DataDoc
from dslint.parse.python import parse_ast

_MAKES = "init_device_mesh"
_CONFIGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Mesh:
    """A call of ``init_device_mesh`` whose sizes are all known, with their places."""

    location: Location
    sizes: tuple[int, ...]
    places: tuple[Location, ...]

    @property
    def ranks(self) -> int:
        """The ranks that the mesh holds."""
        result = 1
        for size in self.sizes:
            result *= size
        return result


def mesh_of(command: LaunchCommand, script: str | None, given: Passed | None, files: Files) -> Mesh | None:
    """The one mesh of a script; ``None`` where there is none, or several, or a size is not known."""
    source = files.workspace.read(script) if script is not None and script.endswith(".py") else None
    if source is None or script is None:
        return None
    texts = [found for found in imported_sources(script, files.workspace, 2, 40) if _MAKES in found.text]
    # Once a file: the commands of a project start scripts that import the same modules.
    made = [(text, files.workspace.memo("device meshes", text.path, _made_in)) for text in texts]
    calls = [(text, *one) for text, of_text in made for one in of_text or ()]
    if len(calls) != 1:
        return None
    text, tree, call = calls[0]
    shape = next((word.value for word in call.keywords if word.arg == "mesh_shape"), None)
    shape = shape if shape is not None else call.args[1] if len(call.args) > 1 else None
    shape = _meaning(shape, tree) if shape is not None else None
    if not isinstance(shape, ast.Tuple | ast.List) or not shape.elts:
        return None
    docs = list(_configs(command, files))
    found = [_size(_meaning(element, tree), given, docs, text) for element in shape.elts]
    if any(item is None for item in found):
        return None
    known = [item for item in found if item is not None]
    places = tuple(place for _, place in known if place is not None)
    return Mesh(_location(text, call), tuple(size for size, _ in known), places)


def _made_in(source: SourceFile) -> list[tuple[ast.Module, ast.Call]]:
    """The calls that make a mesh in a module, with its tree."""
    tree = parse_ast(source)
    return [(tree, call) for call in _calls(tree)] if isinstance(tree, ast.Module) else []


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == _MAKES:
            yield node


def _meaning(node: ast.expr, tree: ast.Module) -> ast.expr:
    """The one expression that a name of the module stands for."""
    if not isinstance(node, ast.Name):
        return node
    given = [
        statement.value
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == node.id for target in statement.targets)
    ]
    others = [
        target
        for target in ast.walk(tree)
        if (isinstance(target, ast.Name) and target.id == node.id and isinstance(target.ctx, ast.Store))
        or (isinstance(target, ast.arg) and target.arg == node.id)
    ]
    return given[0] if len(given) == 1 and len(others) == 1 else node


def _size(
    node: ast.expr, given: Passed | None, docs: list[DataDoc], source: SourceFile
) -> tuple[int, Location | None] | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return (node.value, _location(source, node)) if node.value > 0 else None
    name = _last_name(node)
    if not name:
        return None
    fact = given.values.get(name) if given is not None and isinstance(node, ast.Attribute) else None
    value = fact.value if fact is not None and fact.is_known else None
    if type(value) is int and value > 0 and fact is not None:
        return value, next(iter(fact.origins), None)
    if fact is not None:
        return None
    places = [(doc, pointer) for doc in docs for pointer in doc.values if pointer.rpartition("/")[2] == name]
    number = places[0][0].get(places[0][1]) if len(places) == 1 else None
    if type(number) is not int or number < 1:
        return None
    doc, pointer = places[0]
    return number, doc.value(pointer, f"{name}: {number}")


def _last_name(node: ast.expr) -> str:
    """``dp`` of ``cfg.parallel.dp`` and of ``cfg["parallel"]["dp"]``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return ""


def _configs(command: LaunchCommand, files: Files) -> Iterator[DataDoc]:
    """The configs among the words of a command."""
    for word in command.script_args:
        text = (word.text or "").rpartition("=")[2]
        path = files.find(text) if text.endswith(_CONFIGS) else None
        doc = files.data(path) if path is not None else None
        if doc is not None and isinstance(doc.data, dict) and not doc.problems:
            yield doc


def _location(source: SourceFile, node: ast.expr) -> Location:
    return source.location(AstPlaces(source).span(node))
