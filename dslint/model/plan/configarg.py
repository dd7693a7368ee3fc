"""Which DeepSpeed config a script hands over, and whether it changes it on the way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dslint.core.fact import Fact, known
from dslint.model.plan.pyscript import PyScript
from dslint.model.plan.trainerclass import trainer_class
from dslint.python.changes import DICT_CHANGES

SUFFIXES = (".json", ".hjson", ".jsonc")
_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
_LOADERS = ("json.load", "hjson.load", "json5.load")
# Functions around a path that leave it the same file.
_SAME_FILE = ("str", "pathlib.Path", "os.path.abspath", "os.path.realpath", "os.path.expanduser")


@dataclass(frozen=True, slots=True)
class ConfigArgument:
    """One expression that chooses the config: a path in the script, an argument of it, or something computed.

    ``path`` is absent and ``dest`` empty when the expression cannot be read. ``is_changed``: the
    script reads the file itself and writes into what it has read. ``pattern`` is what is fixed in a computed path
    (``configs/zero*.json``), ``node`` the expression.
    """

    path: Fact[str] | None = None
    dest: str = ""
    is_changed: bool = False
    pattern: str = ""
    node: ast.expr | None = None

    @property
    def is_known(self) -> bool:
        """It is the file as it stands."""
        return (self.path is not None or bool(self.dest)) and not self.is_changed


def config_arguments(script: PyScript) -> Iterator[tuple[str, ConfigArgument]]:
    """Every place where the script hands a config over, with the dotted name of what receives it."""
    for name, call in script.called:
        for node in _nodes(name, call, script):
            if not (isinstance(node, ast.Constant) and node.value is None):
                found = _read(script, node, depth=0)
                yield (
                    name,
                    replace(found, node=node, pattern="" if found.path or found.dest else _pattern(script, node)),
                )


def _nodes(name: str, call: ast.Call, script: PyScript) -> list[ast.expr]:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    wanted: tuple[str, ...]
    if name == "deepspeed.initialize":
        wanted = ("config", "config_params")
    elif trainer_class(script, name):
        wanted = ("deepspeed",)
    elif is_lightning_strategy(name):
        wanted = ("config",)
    elif name.endswith(("DeepSpeedPlugin", "HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig")):
        return [*call.args[:1], *(keywords[k] for k in ("hf_ds_config", "config_file_or_dict") if k in keywords)]
    else:
        return []
    return [keywords[key] for key in wanted if key in keywords]


def reader_of(script: PyScript, name: str) -> str:
    """Which library fills a config that is handed to this function or class; empty where it only looks at it."""
    if name == "deepspeed.initialize":
        return "deepspeed"
    if trainer_class(script, name) or name.endswith("HfTrainerDeepSpeedConfig"):
        return "hf"
    if name.endswith("DeepSpeedPlugin"):
        return "accelerate"
    return "lightning" if is_lightning_strategy(name) else ""


def is_lightning_strategy(name: str) -> bool:
    """The strategy of Lightning or Fabric; the one of mmengine has the same name and fills other values."""
    return name.endswith("DeepSpeedStrategy") and name.split(".")[0] in _LIGHTNING


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
            if isinstance(node.func, ast.Attribute) and node.func.attr in DICT_CHANGES and _root(node.func) == name:
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
    if isinstance(node, ast.Subscript):
        node = _entry(script, node)
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


def _entry(script: PyScript, node: ast.Subscript) -> ast.expr:
    """``FILES["zero2"]`` of a table that stands in the script."""
    table = script.resolved(node.value)
    if isinstance(table, ast.Dict) and isinstance(node.slice, ast.Constant):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == node.slice.value:
                return script.resolved(value)
    return node


# So much of the name of a file must be fixed to speak of certain files.
_FIXED = re.compile(r"[A-Za-z0-9_]{3,}[^/]*\.\w+$|\w{2,}/[^/]*\.\w+$")


def _pattern(script: PyScript, node: ast.expr) -> str:
    """What is fixed in a computed path: ``f"configs/zero{stage}.json"`` -> ``configs/zero*.json``; else empty."""
    text = re.sub(r"\*[*/]*\*|\*+", "*", _glob(script, node, 0))
    return text if text.endswith(SUFFIXES) and _FIXED.search(text.replace("*", " ")) else ""


def _glob(script: PyScript, node: ast.expr, depth: int) -> str:
    node = script.resolved(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("[", "*").replace("?", "*")
    if depth > 6:
        return "*"
    if isinstance(node, ast.JoinedStr):
        return "".join(_glob(script, part, depth + 1) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _glob(script, node.left, depth + 1) + _glob(script, node.right, depth + 1)
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and script.qualified(node.func) == "os.path.join":
        parts = list(node.args)
    elif isinstance(node, ast.Call) and script.qualified(node.func) in _SAME_FILE and len(node.args) == 1:
        return _glob(script, node.args[0], depth + 1)
    texts = [_glob(script, part, depth + 1) for part in parts if not _is_own_folder(script, part)]
    return "/".join(texts) if texts else "*"


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
