"""Which DeepSpeed config a script hands over, and whether it changes it on the way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.fact import Fact, known
from dslint.model.plan.pyscript import PyScript
from dslint.model.plan.trainerclass import trainer_class

SUFFIXES = (".json", ".hjson", ".jsonc")
_LOADERS = ("json.load", "hjson.load", "json5.load")
# Functions around a path that leave it the same file.
_SAME_FILE = ("str", "pathlib.Path", "os.path.abspath", "os.path.realpath", "os.path.expanduser")
_CHANGES = frozenset({"update", "pop", "setdefault", "clear", "popitem", "__setitem__"})


@dataclass(frozen=True, slots=True)
class ConfigArgument:
    """One expression that chooses the config: a path in the script, an argument of it, or something computed.

    ``path`` is absent and ``dest`` empty when the expression cannot be read. ``is_changed``: the
    script reads the file itself and writes into what it has read.
    """

    path: Fact[str] | None = None
    dest: str = ""
    is_changed: bool = False

    @property
    def is_known(self) -> bool:
        """It is the file as it stands."""
        return (self.path is not None or bool(self.dest)) and not self.is_changed


def config_arguments(script: PyScript) -> Iterator[tuple[str, ConfigArgument]]:
    """Every place where the script hands a config over, with the dotted name of what receives it."""
    for name, call in script.called:
        for node in _nodes(name, call, script):
            if not (isinstance(node, ast.Constant) and node.value is None):
                yield name, _read(script, node, depth=0)


def _nodes(name: str, call: ast.Call, script: PyScript) -> list[ast.expr]:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    wanted: tuple[str, ...]
    if name == "deepspeed.initialize":
        wanted = ("config", "config_params")
    elif trainer_class(script, name):
        wanted = ("deepspeed",)
    elif name.endswith(("DeepSpeedPlugin", "HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig")):
        return [*call.args[:1], *(keywords[k] for k in ("hf_ds_config", "config_file_or_dict") if k in keywords)]
    else:
        return []
    return [keywords[key] for key in wanted if key in keywords]


def _read(script: PyScript, node: ast.expr, depth: int) -> ConfigArgument:
    if depth > 4:
        return ConfigArgument()
    text = path_text(script, node)
    if text is not None:
        resolved = script.resolved(node)
        return ConfigArgument(known(text, script.location(resolved))) if text.endswith(SUFFIXES) else ConfigArgument()
    value = script.resolved(node)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return ConfigArgument(dest=value.attr)
    if isinstance(value, ast.Call) and script.qualified(value.func) in _LOADERS and value.args:
        opened = _opened(script, value.args[0])
        inner = _read(script, opened, depth + 1) if opened is not None else ConfigArgument()
        changed = isinstance(node, ast.Name) and _is_changed(script, node.id)
        return ConfigArgument(inner.path, inner.dest, is_changed=changed)
    return ConfigArgument()


def _opened(script: PyScript, node: ast.expr) -> ast.expr | None:
    """``open(PATH)`` or the ``f`` of ``with open(PATH) as f``: the path."""
    if isinstance(node, ast.Name) and script.tree is not None:
        found = [
            item.context_expr
            for with_ in ast.walk(script.tree)
            if isinstance(with_, ast.With)
            for item in with_.items
            if isinstance(item.optional_vars, ast.Name)
            and item.optional_vars.id == node.id
            and any(child is node for child in ast.walk(with_))
        ]
        node = found[0] if len(found) == 1 else node
    is_open = isinstance(node, ast.Call) and script.qualified(node.func) in ("open", "io.open")
    return node.args[0] if isinstance(node, ast.Call) and is_open and node.args else None


def _is_changed(script: PyScript, name: str) -> bool:
    """``config["x"] = ...``, ``config.update(...)``, ``change(config)`` anywhere in the file."""
    if script.tree is None:
        return True
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _root(node) == name:
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES and _root(node.func) == name:
                return True
            given = any(isinstance(a, ast.Name) and a.id == name for a in node.args)
            if given and script.qualified(node.func) not in ("print", "len", "dict", "json.dumps"):
                return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def path_text(script: PyScript, node: ast.expr) -> str | None:
    """A path that stands in the script; below the folder of the script it is relative to that folder."""
    node = script.resolved(node)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and script.qualified(node.func) == "os.path.join" and not node.keywords:
        parts = list(node.args)
    elif isinstance(node, ast.Call) and script.qualified(node.func) in _SAME_FILE and len(node.args) == 1:
        return path_text(script, node.args[0])
    else:
        return None
    texts = [None if _is_own_folder(script, part) else path_text(script, part) or "" for part in parts]
    if "" in texts or None in texts[1:]:
        return None
    return "/".join(text for text in texts if text)


def _is_own_folder(script: PyScript, node: ast.expr) -> bool:
    """``os.path.dirname(os.path.abspath(__file__))``, ``Path(__file__).resolve().parent``."""
    node = script.resolved(node)
    try:
        text = ast.unparse(node).replace(" ", "")
    except (RecursionError, ValueError):
        return False
    for wrapper in ("os.path.abspath", "os.path.realpath", "pathlib.Path", "Path", "abspath", "realpath"):
        text = text.replace(f"{wrapper}(__file__)", "__file__")
    text = text.replace(".resolve()", "").replace(".absolute()", "")
    return text in ("os.path.dirname(__file__)", "dirname(__file__)", "osp.dirname(__file__)", "__file__.parent")
