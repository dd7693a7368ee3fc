"""What a release says of itself: which programs it installs."""

from __future__ import annotations

import ast
import configparser
import re
import zipfile
from typing import Any


def metadata(path: str) -> dict[str, Any]:
    """The rows of the metadata among the texts of a release."""
    with zipfile.ZipFile(path) as texts:
        names = sorted(texts.namelist(), key=len)

        def text(end: str) -> str:
            found = next((name for name in names if ("/" + name).endswith(end)), None)
            return texts.read(found).decode("utf-8", "replace") if found else ""

        wheel = text(".dist-info/METADATA")
        programs = _programs(text("/entry_points.txt"))
        if not wheel and not programs:
            programs = _scripts(text("/setup.py"))
        return {"programs": programs}


def _programs(text: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}


def _scripts(text: str) -> dict[str, str]:
    """The ``scripts`` of a setup.py, as their files: ``bin/deepspeed``."""
    match = re.search(r"scripts\s*=\s*(\[[^\]]*\])", text)
    try:
        listed = ast.literal_eval(match[1]) if match else []
    except (ValueError, SyntaxError):
        return {}
    return {each.rsplit("/", 1)[-1]: each for each in listed if isinstance(each, str)}
