"""Write ``schemas/libraries.json`` from the hand-written rows in ``schemas/libraries/*.toml``."""

from __future__ import annotations

import json
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

SCHEMAS = Path(__file__).parent.parent / "schemas"


def merged() -> dict[str, dict[str, object]]:
    """Return the tables of all files by their names."""
    files = sorted((SCHEMAS / "libraries").glob("*.toml"))
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in files}


def main() -> None:
    """Merge all tables into one file, which loads ten times as fast."""
    text = json.dumps(merged(), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    (SCHEMAS / "libraries.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
