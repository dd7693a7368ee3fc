"""How a script learns its local rank: from an argument, from the environment, or from a library.

``deepspeed`` appends ``--local_rank=N`` to the arguments of the script (``deepspeed/launcher/launch.py``),
``torch.distributed.launch`` appends ``--local-rank=N`` (``--local_rank=N`` before torch 2.0), ``torchrun`` and
``accelerate launch`` set ``LOCAL_RANK`` only.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent
from dslint.core.fix import Edit
from dslint.core.source import Location, SourceFile, Span
from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.python.source import Module, read

_ENVIRONMENT = re.compile(r"LOCAL_RANK|SLURM_LOCALID|OMPI_COMM_WORLD_LOCAL_RANK")
# Libraries that find the local rank in the environment and choose the device themselves.
_FINDING = ("deepspeed", "accelerate", "transformers", "lightning", "pytorch_lightning", "mmengine", "mmcv", "horovod")
_ADDS = re.compile(r"(\w+)\.add_argument\(")
_FLAGS = ("--local_rank", "--local-rank")


@dataclass(frozen=True, slots=True)
class LocalRank:
    """What the parser of a script does with the local rank.

    ``accepts``: which of ``--local_rank`` and ``--local-rank`` it takes. ``declared`` is where it does, ``parser`` the
    first argument that it declares. ``use`` is a place that relies on the value while nothing but the argument sets
    it, ``default`` the value without the argument. ``insertion`` would declare both spellings.
    """

    accepts: tuple[str, ...]
    parser: Location
    declared: Location | None = None
    use: Location | None = None
    default: Fact[object] = field(default_factory=absent)
    insertion: Edit | None = None


def local_rank_of(parser: ScriptParser, source: SourceFile) -> LocalRank | None:
    """What the parser of a script does; ``None`` where it is no plain one, or may take arguments unseen.

    A script that parses no words itself is the only one of which a launcher's argument is sure to reach this parser.
    """
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
