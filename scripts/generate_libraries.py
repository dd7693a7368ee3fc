"""Write ``schemas/libraries.json`` from the hand-written rows in ``schemas/libraries/*.toml``.

Usage: ``python scripts/generate_libraries.py [--check]``. With ``--check`` nothing is written and the exit status is 1
when the file is out of date.
"""

from __future__ import annotations

import json
import sys
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


def main() -> int:
    """Merge all tables into one file, which loads ten times as fast; or check that they are merged."""
    text = json.dumps(merged(), separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    place = SCHEMAS / "libraries.json"
    is_current = place.exists() and place.read_text(encoding="utf-8") == text
    if "--check" in sys.argv[1:]:
        if not is_current:
            print("schemas/libraries.json is out of date: run `python scripts/generate.py`", file=sys.stderr)
        return int(not is_current)
    place.write_text(text, encoding="utf-8")
    print(f"schemas/libraries.json: {'unchanged' if is_current else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
