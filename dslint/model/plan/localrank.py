"""How a script learns its local rank: from an argument, from the environment, or from a library.

``deepspeed`` appends ``--local_rank=N`` to the arguments of the script (``deepspeed/launcher/launch.py``),
``torch.distributed.launch`` appends ``--local-rank=N`` (``--local_rank=N`` before torch 2.0), ``torchrun`` and
``accelerate launch`` set ``LOCAL_RANK`` only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent
from dslint.core.fix import Edit
from dslint.core.source import Location, SourceFile, Span
from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.model.plan.scriptrun import imported_sources
from dslint.model.workspace import Workspace
from dslint.python.source import Module, read

_ENVIRONMENT = re.compile(r"LOCAL_RANK|SLURM_LOCALID|OMPI_COMM_WORLD_LOCAL_RANK")
# Libraries that find the local rank in the environment and choose the device themselves.
_FINDING = ("deepspeed", "accelerate", "transformers", "lightning", "pytorch_lightning", "mmengine", "mmcv", "horovod")
_ADDS = re.compile(r"(\w+)\.add_argument\(")
_FIRE = re.compile(r"(?:^|\.)Fire$")
_MOST_IMPORTED = 30
_FLAGS = ("--local_rank", "--local-rank")


@dataclass(frozen=True, slots=True)
class LocalRank:
    """What the parser of a script does with the local rank.

    ``accepts``: which of ``--local_rank`` and ``--local-rank`` it takes. ``declared`` is where it does, ``parser`` the
    first argument that it declares. ``use`` is a place that relies on the value while nothing but the argument sets
    it, ``default`` the value without the argument. ``insertion`` would declare both spellings. ``called`` is what
    ``fire.Fire`` calls with the arguments: it complains about the others when that has returned.
    """

    accepts: tuple[str, ...]
    parser: Location
    declared: Location | None = None
    use: Location | None = None
    default: Fact[object] = field(default_factory=absent)
    insertion: Edit | None = None
    called: str = ""


def local_rank_of(parser: ScriptParser, source: SourceFile, workspace: Workspace) -> LocalRank | None:
    """What the parser of a script does; ``None`` where it is no plain one, or may take arguments unseen.

    A script that parses no words itself is the only one of which a launcher's argument is sure to reach this parser.
    """
    if parser.kind == "fire":
        return _of_fire(source, workspace)
    if parser.kind not in ("argparse", "hf") or not parser.is_closed or parser.libraries or parser.location is None:
        return None
    flags = [flag for option in parser.options for flag in option.flags]
    # argparse takes an unambiguous beginning for the whole flag.
    accepts = tuple(name for name in _FLAGS if any(flag.startswith(name) for flag in flags))
    declared = parser.option("--local_rank") or parser.option("--local-rank")
    own = _own_places(parser, source)
    if source.path != parser.location.path or parser.kind != "argparse":
        return LocalRank(accepts, parser.location, declared.location if declared is not None else None)
    return LocalRank(
        accepts,
        own[0] if own else parser.location,
        declared.location if declared is not None else None,
        _use(source, declared) if declared is not None else None,
        declared.default if declared is not None else absent(),
        _insertion(source, own) if not accepts else None,
    )


def _of_fire(source: SourceFile, workspace: Workspace) -> LocalRank | None:
    """What the one function or class takes that the script hands to ``fire.Fire``."""
    module = read(source)
    if not isinstance(module, Module):
        return None
    calls = [node for node in module.nodes_of(ast.Call) if _FIRE.search(ast.unparse(node.func))]
    given = [*calls[0].args[:1], *(k.value for k in calls[0].keywords if k.arg == "component")] if calls else []
    if len(calls) != 1 or len(given) != 1 or len(calls[0].args) + len(calls[0].keywords) != 1:
        return None
    name = given[0].id if isinstance(given[0], ast.Name) else ""
    found = [node for tree in _trees(source, workspace) for node in tree.body if _is_called(node, name)]
    functions = _functions(found[0]) if len(found) == 1 else []
    if not functions or any(f.args.kwarg or any(map(_changes_signature, f.decorator_list)) for f in functions):
        return None
    names = {a.arg for f in functions for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)}
    return LocalRank(_FLAGS if "local_rank" in names else (), module.location(calls[0]), called=name)


def _trees(source: SourceFile, workspace: Workspace) -> Iterator[ast.Module]:
    for each in imported_sources(source.path, workspace, 1, _MOST_IMPORTED):
        module = read(each)
        if isinstance(module, Module):
            yield module.tree


def _is_called(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name


def _functions(found: ast.stmt) -> list[ast.FunctionDef]:
    """The function, or all those of a class that inherits from nothing."""
    if isinstance(found, ast.ClassDef):
        is_plain = not found.bases and not found.keywords and not found.decorator_list
        return [node for node in found.body if isinstance(node, ast.FunctionDef)] if is_plain else []
    return [found] if isinstance(found, ast.FunctionDef) else []


def _changes_signature(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] not in ("record", "staticmethod", "property", "no_grad()")


def _use(source: SourceFile, declared: Option) -> Location | None:
    """The first ``args.local_rank`` that decides something, where nothing but the argument can set it."""
    if declared.default.get_or(None) not in (-1, 0) or _ENVIRONMENT.search(source.text):
        return None
    module = read(source)
    if not isinstance(module, Module):
        return None
    if any(home.split(".")[0] in _FINDING for origins in module.imported.values() for home, _ in origins):
        return None
    nodes = module.nodes
    named = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "local_rank"]
    if any(isinstance(node.ctx, ast.Store) for node in named):
        return None
    found = next(filter(None, map(_decides, nodes)), None)
    return module.location(found, "relied on here") if found is not None else None


def _decides(node: ast.AST) -> ast.expr | None:
    """``args.local_rank`` in a comparison with a number, or as the index of a device."""
    candidates: list[ast.expr] = []
    if isinstance(node, ast.Compare) and all(
        isinstance(c, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple) for c in node.comparators
    ):
        candidates = [node.left]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("set_device", "device"):
        candidates = list(node.args)
    return next((c for c in candidates if isinstance(c, ast.Attribute) and c.attr == "local_rank"), None)


def _own_places(parser: ScriptParser, source: SourceFile) -> list[Location]:
    """Where the script itself adds options, in the order of its lines."""
    places = [option.location for option in parser.options if option.location.path == source.path]
    return sorted((place for place in places if place != parser.location), key=lambda place: place.span.start)


def _insertion(source: SourceFile, places: list[Location]) -> Edit | None:
    """A line in front of the first ``parser.add_argument`` that stands alone on its lines."""
    for place in places:
        start = place.span.start
        adds = _ADDS.match(source.text, start)
        indent = source.text[source.text.rfind("\n", 0, start) + 1 : start]
        if adds is None or indent.strip():
            continue
        line = f'{adds[1]}.add_argument("--local_rank", "--local-rank", type=int, default=-1)\n{indent}'
        return Edit(source.path, Span(start, start), line)
    return None
