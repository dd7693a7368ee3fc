"""Runs the imports of public training scripts under releases of the libraries, and writes down what Python says.

    python tests/names/record_imports.py OVERLAYS SCRIPTS...

``OVERLAYS`` holds a folder for each set of releases, made with ``pip install --no-deps --target``; a folder ``X`` holds
what the libraries need besides. Each statement that imports one of the libraries at the top of a script runs in a
process of its own; the outcome is ``ok``, ``missing`` with the name that is not there, or ``other`` with the error of
something else (a release of another package, a machine without a GPU).
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = ("transformers", "peft", "trl", "accelerate", "datasets")
OUTPUT = Path(__file__).with_name("imports.json")
CHILD = """
import json, sys
for line in sys.stdin:
    text = json.loads(line)
    try:
        exec(compile(text, "block", "exec"), {"__name__": "block"})
        print("\\0" + json.dumps(["ok", ""]), flush=True)
    except BaseException as error:
        print("\\0" + json.dumps([type(error).__name__, str(error)]), flush=True)
"""
GONE = re.compile(r"cannot import name '([\w.]+)' from '([\w.]+)'|No module named '([\w.]+)'")


def statements(text: str) -> list[str]:
    """The statements at the top of a module that import one of the libraries, each with what stands around it."""
    found = []
    for node in ast.parse(text).body:
        names = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
        if not names or isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        tops = {t.partition(".")[0] for n in names for t in _modules(n)}
        if tops & set(LIBRARIES) and tops <= {*LIBRARIES, "torch", "packaging", "importlib", "typing", "sys", "os"}:
            found.append(ast.unparse(node))
    return found


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return ["." if node.level else node.module or ""]
    return [alias.name for alias in node.names]


def outcome(told: list[object], text: str) -> list[str]:
    """What an answer of the child means for the statement."""
    kind = str(told[0])
    if kind == "ok":
        return ["ok", ""]
    message = str(told[1])
    match = GONE.search(message)
    if match is None or kind not in ("ImportError", "ModuleNotFoundError", "AttributeError"):
        return ["other", f"{kind}: {message[:120]}"]
    name = match[1] or match[3]
    asked = name.rpartition(".")[2] in re.findall(r"\w+", text) and (match[2] or name).partition(".")[0] in LIBRARIES
    return ["missing" if asked else "other", name if asked else f"{kind}: {message[:120]}"]


def main() -> int:
    """Command line."""
    overlays, scripts = Path(sys.argv[1]), sys.argv[2:]
    rows: dict[str, dict[str, object]] = {}
    for script in scripts:
        if any(
            (Path(script).parent / f"{name}{end}").exists() for name in LIBRARIES for end in (".py", "/__init__.py")
        ):
            continue  # beside a package of its own of that name
        for text in statements(Path(script).read_text(encoding="utf-8")):
            row = rows.setdefault(text, {"text": text, "from": [], "outcomes": {}})
            row["from"].append("/".join(Path(script).parts[3:]))  # type: ignore[attr-defined]
    for folder in sorted(p for p in overlays.iterdir() if p.is_dir() and p.name != "X"):
        releases = {n: _release(folder, n) for n in LIBRARIES}
        key = " ".join(f"{n}=={v}" for n, v in releases.items() if v)
        for text, told in _run(folder, overlays / "X", list(rows)).items():
            rows[text]["outcomes"][key] = outcome(told, text)  # type: ignore[index]
    OUTPUT.write_text(json.dumps(list(rows.values()), indent=1) + "\n", encoding="utf-8")
    return 0


def _release(folder: Path, name: str) -> str:
    from importlib.metadata import version

    found = sorted(folder.glob(f"{name}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").split("-")[1] if found else version(name)


def _run(folder: Path, more: Path, texts: list[str]) -> dict[str, list[object]]:
    """One process for all: an import that fails leaves others as they are."""
    path = f"{folder}:{more}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD],
        input="".join(json.dumps(text) + "\n" for text in texts),
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HOME": "/tmp"},
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("\0")]
    return dict(zip(texts, answers, strict=False))


if __name__ == "__main__":
    raise SystemExit(main())
