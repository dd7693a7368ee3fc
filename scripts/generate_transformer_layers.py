"""Write ``schemas/transformer_layers.json``: the layer classes of each model of the installed transformers.

``python scripts/generate_transformer_layers.py``; nothing is imported, the sources are read. ``names`` is kept: how the
names of checkpoints begin, by hand; and ``remote``, the layers of models whose code comes with the checkpoint.
"""

from __future__ import annotations

import ast
import json
import re
from importlib.metadata import distribution
from pathlib import Path

TARGET = Path(__file__).parents[1] / "schemas" / "transformer_layers.json"
_LAYER = re.compile(r".*(?:Layer|Block)$")


def layers() -> dict[str, list[str]]:
    """The classes of layers by the name of the model's folder."""
    root = Path(str(distribution("transformers").locate_file("transformers"))) / "models"
    found: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/modeling_*.py")):
        names = [
            node.name
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.ClassDef) and _LAYER.match(node.name)
        ]
        if names:
            found.setdefault(path.parent.name, []).extend(n for n in names if n not in found.get(path.parent.name, []))
    return found


def main() -> None:
    """Rewrite the file."""
    old = json.loads(TARGET.read_text("utf-8")) if TARGET.is_file() else {}
    data = {
        "about": old.get("about", ""),
        "release": distribution("transformers").version,
        "names": old.get("names", {}),
        "other": old.get("other", ""),
        "layers": layers(),
        "remote": old.get("remote", {}),
    }
    TARGET.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
