"""The parser of the script that a command starts."""

from __future__ import annotations

from dslint.core.source import SourceFile
from dslint.model.plan.parser.modules import load
from dslint.model.plan.parser.options import ScriptParser
from dslint.model.plan.parser.scope import Scope
from dslint.model.plan.parser.walk import MARKERS, OTHER_LIBRARIES, Walk
from dslint.model.workspace import Workspace

# Names without which no parser of another library is recognized.
_OTHERS = tuple({name.rpartition(".")[0].partition(".")[0] or name for name in OTHER_LIBRARIES})


def script_parser(path: str, workspace: Workspace) -> ScriptParser | None:
    """What the command line of a script may hold; ``None`` when nothing in view parses it.

    Functions of other files of the project are followed by import. Each script is read once.
    """
    if not path.endswith(".py"):
        return None
    return workspace.memo("parser", path, lambda source: _read(source, path, workspace))


def _read(source: SourceFile, path: str, workspace: Workspace) -> ScriptParser | None:
    if not MARKERS.search(source.text) and not any(name in source.text for name in (*_OTHERS, "import")):
        return None
    module = load(path, workspace)
    if module is None:
        return None
    walk = Walk(workspace)
    walk.imported.add(path)
    body = module.script.tree.body if module.script.tree is not None else []
    Scope(walk, module, walk.shared.setdefault(path, {})).body(body)
    if walk.others and not walk.made:
        return ScriptParser(walk.others[0], open_because=f"{walk.others[0]} makes the options from functions and files")
    if not walk.made:
        return None
    if len(walk.made) > 1:
        for made in walk.made:
            made.open("several parsers read the command line")
    elif walk.strange or walk.others:
        walk.made[0].open(walk.strange or f"{walk.others[0]} reads the command line as well")
    return walk.made[0].result()
