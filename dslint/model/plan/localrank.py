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
from dslint.model.plan.parser.options import ScriptParser
from dslint.model.plan.pyscript import PyScript, read_script
from dslint.model.plan.scriptargs import ScriptArgs, read_script_args

_WORTH_PARSING = re.compile(r"ArgumentParser\(")
_ENVIRONMENT = re.compile(r"LOCAL_RANK|SLURM_LOCALID|OMPI_COMM_WORLD_LOCAL_RANK")
# Libraries that find the local rank in the environment and choose the device themselves.
_FINDING = ("deepspeed", "accelerate", "transformers", "lightning", "pytorch_lightning", "mmengine", "mmcv", "horovod")
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


def read_local_rank(source: SourceFile) -> LocalRank | None:
    """The answer for one script; ``None`` when it has no plain argparse parser, or may take arguments unseen."""
    if not _WORTH_PARSING.search(source.text) or source.path.endswith(".ipynb"):
        return None
    script = read_script(source)
    args = read_script_args(script)
    parses = [c for c in script.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "parse_args"]
    if args.parser != "argparse" or args.is_open or not args.declared or not parses:
        return None
    if any(call.args or call.keywords for call in parses):  # not the command line
        return None
    flags = [flag for argument in args.declared.values() for flag in argument.flags]
    # argparse takes an unambiguous beginning for the whole flag.
    accepts = tuple(name for name in _FLAGS if any(flag.startswith(name) for flag in flags))
    declared = args.declared.get("local_rank")
    first = next(iter(args.declared.values()))
    return LocalRank(
        accepts,
        first.location,
        declared.location if declared is not None else None,
        _use(script, args) if declared is not None else None,
        declared.default if declared is not None else absent(),
        _insertion(script) if not accepts else None,
    )


def local_rank_of(parser: ScriptParser, source: SourceFile) -> LocalRank | None:
    """The same of a parser that other modules build, where all its options are known.

    A script that parses no words itself is the only one of which a launcher's argument is sure to reach this parser.
    """
    if parser.kind not in ("argparse", "hf") or not parser.is_closed or parser.libraries or parser.location is None:
        return None
    if source.path == parser.location.path and parser.kind == "argparse":
        return read_local_rank(source)
    flags = [flag for option in parser.options for flag in option.flags]
    accepts = tuple(name for name in _FLAGS if any(flag.startswith(name) for flag in flags))
    declared = parser.option("--local_rank") or parser.option("--local-rank")
    place = declared.location if declared is not None else None
    return LocalRank(accepts, parser.location, place)


def _use(script: PyScript, args: ScriptArgs) -> Location | None:
    """The first ``args.local_rank`` that decides something, where nothing but the argument can set it."""
    declared = args.declared["local_rank"]
    if script.tree is None or declared.default.get_or(None) not in (-1, 0):
        return None
    if _ENVIRONMENT.search(script.source.text) or "local_rank" in script.assigned_attributes:
        return None
    if any(origin.split(".")[0] in _FINDING for origin in script.imports.values()):
        return None
    for node in ast.walk(script.tree):
        found = _decides(script, node)
        if found is not None:
            return script.location(found, "relied on here")
    return None


def _decides(script: PyScript, node: ast.AST) -> ast.expr | None:
    """``args.local_rank`` in a comparison with a number, or as the index of a device."""
    candidates: list[ast.expr] = []
    if isinstance(node, ast.Compare) and all(
        isinstance(c, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple) for c in node.comparators
    ):
        candidates = [node.left]
    elif isinstance(node, ast.Call) and script.qualified(node.func).rpartition(".")[2] in ("set_device", "device"):
        candidates = list(node.args)
    return next((c for c in candidates if isinstance(c, ast.Attribute) and c.attr == "local_rank"), None)


def _insertion(script: PyScript) -> Edit | None:
    """A line in front of the first ``parser.add_argument`` that stands alone on its lines."""
    for node in ast.walk(script.tree) if script.tree is not None else ():
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        function = node.value.func
        if not (isinstance(function, ast.Attribute) and function.attr == "add_argument"):
            continue
        if not isinstance(function.value, ast.Name):
            return None
        start = script.location(node).span.start
        text = script.source.text
        indent = text[text.rfind("\n", 0, start) + 1 : start]
        if indent.strip():
            return None
        line = f'{function.value.id}.add_argument("--local_rank", "--local-rank", type=int, default=-1)\n{indent}'
        return Edit(script.source.path, Span(start, start), line)
    return None
