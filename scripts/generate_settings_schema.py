"""Write ``schemas/dslint.schema.json`` from the settings table; ``--check`` only compares.

The schema describes the ``[tool.dslint]`` table of pyproject.toml and the whole of dslint.toml.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint.settings.validate import model  # noqa: E402 - needs the path above

TARGET = ROOT / "schemas" / "dslint.schema.json"


def build() -> str:
    """The text of the schema."""
    schema = model().model_json_schema(by_alias=True)
    body = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "urn:dslint:settings",
        "title": "dslint",
        "description": "Settings of dslint: [tool.dslint] in pyproject.toml, or dslint.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": {key: _plain(value, schema.get("$defs", {})) for key, value in schema["properties"].items()},
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _plain(node: Any, definitions: dict[str, Any]) -> Any:
    """Without generated titles, null alternatives (TOML has no null) and references: one level to read."""
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if reference:
        return {**_plain(definitions[reference.rsplit("/", 1)[-1]], definitions), **_described(node)}
    kept = {k: v for k, v in node.items() if k != "title" and not (k == "default" and v is None)}
    if isinstance(kept.get("properties"), dict):
        kept["properties"] = {k: _plain(v, definitions) for k, v in kept["properties"].items()}
    alternatives = [a for a in kept.pop("anyOf", kept.pop("allOf", [])) if a != {"type": "null"}]
    if len(alternatives) == 1:
        kept = {**_plain(alternatives[0], definitions), **kept}
    elif alternatives:
        kept["anyOf"] = _plain(alternatives, definitions)
    # In a fixed order: releases of pydantic differ.
    return {k: v if k in ("properties", "default") else _plain(v, definitions) for k, v in sorted(kept.items())}


def _described(node: dict[str, Any]) -> dict[str, Any]:
    return {"description": node["description"]} if "description" in node else {}


def main(arguments: list[str]) -> int:
    """Entry point; 1 when ``--check`` finds a difference."""
    text = build()
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is out of date: run python scripts/generate_settings_schema.py")
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
