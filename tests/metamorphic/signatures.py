"""Writes ``signatures.json``: the parameters of the real functions that the examples call.

python tests/metamorphic/signatures.py        (needs torch, deepspeed, transformers, accelerate)
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)


def named() -> set[str]:
    """Whole names of the functions and classes that examples of script rules call."""
    from metamorphic.calls import imported, whole_name
    from metamorphic.examples import CASES

    found: set[str] = set()
    for case in CASES:
        for path, text in case.files.items():
            if path.endswith(".py"):
                tree = ast.parse(text)
                bound_to = imported(tree)
                found |= {whole_name(n.func, bound_to) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return found - {""}


def parameters(name: str) -> list[str] | None:
    """Those that can be given by position and by name; ``None`` where nothing is to be asked."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            target: object = importlib.import_module(".".join(parts[:count]))
        except Exception:
            continue
        try:
            for part in parts[count:]:
                target = getattr(target, part)
            signature = inspect.signature(target)  # type: ignore[arg-type]
        except (AttributeError, TypeError, ValueError):
            return None
        names = []
        for parameter in signature.parameters.values():
            if parameter.kind not in PLAIN:
                break
            names.append(parameter.name)
        return names or None
    return None


def current() -> dict[str, list[str]]:
    known = {name: parameters(name) for name in sorted(named())}
    return {name: names for name, names in known.items() if names}


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    lines = [f"  {json.dumps(name)}: {json.dumps(names)}" for name, names in current().items()]
    (HERE / "signatures.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
