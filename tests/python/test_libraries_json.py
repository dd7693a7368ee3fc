"""The merged file of library rows is what the hand-written ones say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_merged_rows_are_up_to_date(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate_libraries", ROOT / "scripts" / "generate_libraries.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    committed = json.loads((ROOT / "schemas" / "libraries.json").read_text())
    assert script.merged() == committed, "run python scripts/generate_libraries.py"
