"""The rooms and who may import whom (ARCHITECTURE.md), and how large a room may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dslint"

# What each room may import of dslint, besides itself and the package's __init__. Order: inner rooms first.
ALLOWED = {
    "core": set(),
    "translate": {"core"},
    "parse": {"core"},
    "python": {"core", "parse"},
    "model": {"core", "parse", "python"},
    # The page of a rule is printed in the language of its reader.
    "rules": {"core", "parse", "python", "model", "translate"},
    "report": {"core", "rules", "translate"},
    "engine": {"core", "parse", "python", "model", "rules"},
    # Of the rules, the probe sees the metadata only (PROBE_MAY_SEE).
    "probe": {"core", "rules"},
    "doctor": {"core", "rules"},
    "integrations": {"core", "parse", "model", "rules", "engine", "report", "runner"},
    "triage": {"core", "rules"},
    "planview": {"core", "parse", "model", "engine", "report"},
    "factsview": {"core", "python", "engine"},
    "versionsview": {"core", "parse", "python", "model", "rules", "engine"},
    "runner": {"core", "model", "engine", "report", "planview", "translate"},
    "server": {"core", "parse", "model", "rules", "engine", "report", "planview", "translate"},
    "cli": {"core", "model", "rules", "engine", "report", "integrations", "probe", "triage", "doctor", "planview"}
    | {"factsview", "versionsview", "runner", "server", "translate"},
}
# Modules at the top of the package belong to a room.
TOP = {
    "__main__": "cli",
    "cli": "cli",
    "arguments": "cli",
    "schema_command": "cli",
    "check_command": "cli",
    "rules_command": "cli",
    "init_command": "cli",
    "noqa_command": "cli",
    "watch_command": "cli",
    "commands": "cli",
    "completion": "cli",
    "progressbar": "cli",
    "extend": "integrations",
    "api": "integrations",
    "testing": "integrations",
    "settings": "engine",
    "suppress": "engine",
}
# Of the rules, `report` and `doctor` see the index and the metadata only.
REPORT_MAY_SEE = {"dslint.rules.base", "dslint.rules.index", "dslint.rules.info", "dslint.rules.registry"}
PROBE_MAY_SEE = {"dslint.rules.index", "dslint.rules.info", "dslint.rules.registry"}
# What reads files or the environment, or starts programs.
IMPURE = ("os", "pathlib", "subprocess", "socket", "io")
HEAVY = (
    "libcst",
    "jsonschema",
    "pydantic",
    "rich",
    "tree_sitter",
    "torch",
    "deepspeed",
    "packaging",
    "pygls",
    "lsprotocol",
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")[1:]
    if not parts:
        return ""
    if parts[0] in ALLOWED and parts[0] != "cli":
        return parts[0]
    return TOP.get(parts[0], parts[0])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Imported dslint modules, and whether the import is at module level outside TYPE_CHECKING."""
    tree = tree_of(path)
    typing_only: set[int] = set()
    nested: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only |= {id(n) for n in ast.walk(node)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nested |= {id(n) for n in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        found += [(n, id(node) not in typing_only | nested) for n in names]
    return found


def wrong_imports(path: Path) -> Iterator[str]:
    module = ".".join(["dslint", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
    room = room_of(module)
    if room and room not in ALLOWED:
        yield f"{module} belongs to no room: name it in TOP and in ARCHITECTURE.md"
        return
    for name, _ in imports_of(path):
        other = room_of(name) if name.startswith("dslint.") else ""
        if not room or other in (room, ""):
            continue
        if other not in ALLOWED[room]:
            yield f"{module} ({room}) imports {name} ({other})"
        if room == "probe" and other != "core" and name not in PROBE_MAY_SEE:
            yield f"{module} imports {name}"
        if room in ("report", "triage", "doctor") and other == "rules" and name not in REPORT_MAY_SEE:
            yield f"{module} imports {name}"


def test_imports_point_inwards() -> None:
    assert [wrong for path in modules() for wrong in wrong_imports(path)] == []


def test_rules_are_pure_and_do_not_import_each_other() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in sorted((PACKAGE / "rules").rglob("dsl*.py"))
        for name, _ in imports_of(path)
        if name.rsplit(".", 1)[-1].startswith("dsl") or name.split(".")[0] in IMPURE
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["core", "rules/base.py", "rules/index.py", "rules/info.py", "cli.py", "arguments.py"])
def test_light_modules_import_nothing_heavy(name: str) -> None:
    place = PACKAGE / name
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        for imported, eager in imports_of(path):
            assert not (eager and imported.split(".")[0] in HEAVY), f"{path} imports {imported}"


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text()
    if text.count("\n") > 400:
        yield f"{path}: move the walls, this file holds more than one thing"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno > 60:
                yield f"{path}:{node.lineno}: {node.name} is too long"


def test_files_and_functions_stay_readable() -> None:
    assert [wrong for path in modules() if path.name != "index.py" for wrong in too_long(path)] == []
