"""Which DeepSpeed config a script hands over, and whether it changes it on the way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dslint.core.fact import Fact, known
from dslint.core.source import Location
from dslint.model.plan.questions import CONFIG_READERS
from dslint.model.plan.scriptrun import ScriptRun, option_of, place_of, written
from dslint.python import paths
from dslint.python.changes import DICT_CHANGES
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import Const, Instance, Value

SUFFIXES = (".json", ".hjson", ".jsonc")
# Where each of them takes it; DeepSpeed by two names.
_TAKES = ("config", "config_params", "deepspeed", "hf_ds_config", "config_file_or_dict")


@dataclass(frozen=True, slots=True)
class ConfigArgument:
    """One value that chooses the config: a path in the script, an argument of it, or something computed.

    ``api`` gets it at ``location``, ``reader`` fills it. ``path`` is absent and ``dest`` empty when nobody can tell
    what it is. ``is_changed``: the script reads the file itself and writes into what it has read. ``pattern`` is what
    is fixed in a computed path (``configs/zero*.json``).
    """

    api: str
    reader: str
    location: Location
    path: Fact[str] | None = None
    dest: str = ""
    is_changed: bool = False
    pattern: str = ""

    @property
    def is_known(self) -> bool:
        """It is the file as it stands."""
        return (self.path is not None or bool(self.dest)) and not self.is_changed


def reader_of(event: Event) -> str | None:
    """Who fills the config that a call gets; empty where it only looks at it, ``None`` where it takes none."""
    return "hf" if "training-arguments" in event.tags else CONFIG_READERS.get(event.api)


def config_arguments(run: ScriptRun, events: Sequence[Event]) -> Iterator[ConfigArgument]:
    """Every place among some events where the script hands a config over."""
    for event in events:
        reader = reader_of(event)
        for name in _TAKES if reader is not None else ():
            value = event.arguments.get(name)
            if value is None or value.constants == (None,) or reader is None:
                continue
            here = place_of(event, name)
            plain = ConfigArgument(event.api, reader, here)
            node = event.nodes.get(name)
            for found in _read(run, plain, (event, name), value, 0):
                changed = isinstance(node, ast.Name) and _is_loaded(run, value) and _is_changed(event.module, node.id)
                yield replace(found, is_changed=found.is_changed or changed)


def _read(
    run: ScriptRun, plain: ConfigArgument, at: tuple[Event, str], value: Value, depth: int
) -> list[ConfigArgument]:
    """Return what a value says of the config: one answer for each path that it may be."""
    texts = [atom.value for atom in value.atoms if isinstance(atom, Const) and isinstance(atom.value, str)]
    if texts and len(texts) == len([atom for atom in value.atoms if atom != Const(None)]):
        named = sorted(text for text in texts if text.endswith(SUFFIXES))
        return [replace(plain, path=known(text, written(*at, text))) for text in named] or [plain]
    option = option_of(value) or _field(value)
    if option:
        return [replace(plain, dest=option)]
    loaded = _loaded(run, value) if depth < _DEPTH else None
    if loaded is not None:
        load, opened, path = loaded
        inner = _read(run, plain, (opened, "file"), path, depth + 1)
        names = _names_of(load)
        return [replace(a, is_changed=any(_is_changed(load.module, name) for name in names)) for a in inner]
    parts = paths.components(value)
    text = _path(parts) if parts is not None else ""
    if text.endswith(SUFFIXES) and "*" not in text:
        return [replace(plain, path=known(text, written(*at, text.rpartition("/")[2])))]
    return [replace(plain, pattern=_pattern(text))]


_DEPTH = 3


def _field(value: Value) -> str:
    """Return the field of an object of which nobody knows more: ``args.deepspeed_config`` of a function's ``args``."""
    number = value.number
    if not (isinstance(number, tuple) and len(number) == 3 and number[0] == "field"):
        return ""
    owner = number[1]
    return str(number[2]) if isinstance(owner, Instance) and isinstance(owner.node, ast.FunctionDef) else ""


def _loaded(run: ScriptRun, value: Value) -> tuple[Event, Event, Value] | None:
    """Return the call that has read a value from a file, the one that has opened that, and the path."""
    load = _maker(run, value)
    stream = load.arguments.get("fp") if load is not None and "reads-file" in load.tags else None
    opened = _maker(run, stream) if stream is not None else None
    path = opened.arguments.get("file") if opened is not None else None
    return (load, opened, path) if load is not None and opened is not None and path is not None else None


def _is_loaded(run: ScriptRun, value: Value) -> bool:
    return _loaded(run, value) is not None


def _maker(run: ScriptRun, value: Value) -> Event | None:
    """Return the call that has made an object."""
    atom = value.single
    if not isinstance(atom, Instance):
        return None
    return next((event for event in run.all_events if event.node is atom.node), None)


def _names_of(load: Event) -> list[str]:
    """Return the names that get what a call has read."""
    return [
        target.id
        for node in load.module.nodes_of(ast.Assign)
        if node.value is load.node
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def _is_changed(module: Module, name: str) -> bool:
    """``config["x"] = ...``, ``config.update(...)``, ``change(config)`` anywhere in the file."""
    for node in module.nodes:
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _root(node) == name:
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in DICT_CHANGES and _root(node.func) == name:
                return True
            given = any(isinstance(a, ast.Name) and a.id == name for a in node.args)
            if given and ast.unparse(node.func) not in ("print", "len", "dict", "json.dumps"):
                return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _path(parts: Sequence[object]) -> str:
    """Return a path with ``*`` for what is unknown; below the folder of the script it is relative to that folder."""
    own = parts[1:] if _is_own_folder(parts[0]) else parts
    return "/".join(map(_component, own))


def _component(part: object) -> str:
    if isinstance(part, str):
        return part.replace("[", "*").replace("?", "*")
    mixed = part[1:] if isinstance(part, tuple) and part[:1] == ("mixed",) else ()
    return "".join(map(_component, mixed)) or "*"


def _is_own_folder(part: object) -> bool:
    """``os.path.dirname(os.path.abspath(__file__))``, ``Path(__file__).resolve().parent``."""
    inner = part[1] if isinstance(part, tuple) and len(part) == 2 and part[0] == "parent" else None
    only = inner[0] if isinstance(inner, tuple) and len(inner) == 1 else None
    return isinstance(only, tuple) and only[:1] == ("__file__",)


# So much of the name of a file must be fixed to speak of certain files.
_FIXED = re.compile(r"[A-Za-z0-9_]{3,}[^/]*\.\w+$|\w{2,}/[^/]*\.\w+$")


def _pattern(text: str) -> str:
    """What is fixed in a computed path: ``f"configs/zero{stage}.json"`` -> ``configs/zero*.json``; else empty."""
    text = re.sub(r"\*[*/]*\*|\*+", "*", text)
    return text if text.endswith(SUFFIXES) and _FIXED.search(text.replace("*", " ")) else ""
