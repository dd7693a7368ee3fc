"""The shape of a small program: the same text for programs that differ in style only."""

from __future__ import annotations

import ast
import re

from oracle.machine import FLAGS

_RANK = (
    r"int\(os\.environ(?:\.get\('\w+', 0\)|\['\w+'\])\)|int\(os\.getenv\('\w+'\)\)|get_rank\(\)|self\.rank\b"
    r"|args\.(?:local_)?rank\b|\blocal_rank\b|accelerator\.process_index|\(me := rank\)"
)
_TESTS = (
    (r"not is_initialized\(\) or rank == 0", "rank == 0"),
    (r"not accelerator\.is_main_process|not rank == 0|rank not in \(-1, 0\)|rank > 0|rank >= 1", "rank != 0"),
    (
        r"accelerator\.is_main_process|not rank\b(?! ==| !=| in)|rank < 1|rank in \(0,\)|rank in \[-1, 0\]|0 == rank"
        r"|rank <= 0",
        "rank == 0",
    ),
    (r"1 == rank|rank == get_world_size\(\) - 1", "rank == 1"),
    (r"rank in \(0, 1\)|rank % 2 == 0|rank < 2", "rank in a set"),
    (r"\bif rank:", "if rank != 0:"),
)
_PREPARED = frozenset(
    (
        *("grads", "stats", "items", "history", "objects", "parts", "found", "args", "model", "loader", "rank"),
        *("accelerator", "log", "group", "start"),
    )
)
_KINDS = "barrier|all_reduce|broadcast|broadcast_object_list|all_gather|all_gather_object|reduce|gather"
_CALL = re.compile(rf"(?:work = )?\b({_KINDS})\((?:[^()]|\([^()]*\))*\)")


def shape(source: str) -> str:
    """The program without imports and preparation, in one way of writing."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    text = "\n".join(ast.unparse(s) for s in _statements(tree))
    text = re.sub(r"accelerator\.wait_for_everyone\(\)", "barrier()", text)
    text = re.sub(
        r"accelerator\.(gather|reduce)\(", lambda m: f"all_{m[1]}(".replace("gather(", "gather(parts, "), text
    )
    text = re.sub(r"\b(?:dist|td|torch\.distributed)\.", "", text)
    text = re.sub(_RANK, "rank", text)
    for alias in aliases:
        text = re.sub(rf"\b{alias}\b", "rank == 0", text)
    for pattern, plain in _TESTS:
        text = re.sub(pattern, plain, text)
    text = re.sub(r"sys\.exit\(0\)|exit\(\)|raise SystemExit", "exit()", text)
    text = _flags(text)
    kinds = {m[1] for m in _CALL.finditer(text)}
    if len(kinds) == 1 and ("(grads)" not in text or "(stats" not in text):
        text = _CALL.sub(lambda m: m[0] if "src=rank" in m[0] or "src=source" in m[0] else "collective()", text)
    return text


def _flags(text: str) -> str:
    """The flags by their order."""
    seen: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return seen.setdefault(match[0], f"flag{len(seen) + 1 if seen else ''}")

    return re.sub(rf"args\.(?:{'|'.join(FLAGS)})\b", name, text)


def _aliases(tree: ast.Module) -> list[str]:
    """Names that stand for ``rank == 0``."""
    names = (n.targets[0] for n in ast.walk(tree) if isinstance(n, ast.Assign))
    return [n.id for n in names if isinstance(n, ast.Name) and n.id in ("is_main", "main_process", "is_lead", "master")]


def _statements(tree: ast.Module) -> list[ast.stmt]:
    aliases = _aliases(tree)
    kept: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            run = [m for m in statement.body if isinstance(m, ast.FunctionDef) and m.name == "run"]
            kept += [s for m in run for s in m.body if not _is_preparation(s, aliases)]
        elif isinstance(statement, ast.FunctionDef) and statement.name == "main":
            if "Runner(" not in ast.unparse(statement):
                kept += [s for s in statement.body if not _is_preparation(s, aliases)]
        elif not _is_preparation(statement, aliases):
            kept.append(statement)
    return kept


def _is_preparation(statement: ast.stmt, aliases: list[str]) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        name = statement.targets[0].id
        return name in _PREPARED or name in aliases or name == "local_rank"
    return False
