"""Compile the catalogues ``dslint/translate/*.po`` to what dslint reads, ``dslint/translate/zh.json``.

Usage: ``python scripts/generate_translations.py [--check]``. With ``--check`` nothing is written and the exit status
is 1 when a compiled catalogue is out of date, or a translation lacks a placeholder of its text.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "dslint" / "translate"
CATALOGUES = {"zh": "zh_CN.po"}
COMMAND = "python scripts/generate_translations.py"
_PLACEHOLDER = re.compile(r"\{\d+\}")


def compiled(po: Path) -> tuple[str, list[str]]:
    """The compiled text of a catalogue, and one line for each entry that cannot be right."""
    with po.open("rb") as file:
        catalogue = read_po(file, abort_invalid=True)
    rows: dict[str, dict[str, str]] = {"whole": {}, "parts": {}, "templates": {}, "phrases": {}}
    wrong = []
    for message in catalogue:
        english, other = str(message.id), str(message.string)
        if not english or not other or message.fuzzy:
            continue
        is_template = "python-brace-format" in message.flags
        if is_template and set(_PLACEHOLDER.findall(english)) != set(_PLACEHOLDER.findall(other)):
            wrong.append(f"{po.name}: other placeholders in the translation of {english!r}")
        if message.context == "phrase":
            rows["phrases" if is_template else "parts"][english] = other
        else:
            rows["templates" if is_template else "whole"][english] = other
    data = {
        name: sorted(map(list, texts.items())) if name in ("templates", "phrases") else dict(sorted(texts.items()))
        for name, texts in rows.items()
    }
    return json.dumps(data, ensure_ascii=False, indent=0) + "\n", wrong


def main() -> int:
    """Write or check the compiled catalogues."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    found = []
    for language, name in CATALOGUES.items():
        text, wrong = compiled(FOLDER / name)
        found += wrong
        target = FOLDER / f"{language}.json"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            if is_check:
                found.append(f"{target.relative_to(ROOT)} is out of date: {COMMAND}")
            else:
                target.write_text(text, encoding="utf-8")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
