"""What a release says of itself: what it requires, on which Pythons, and which programs it installs."""

from __future__ import annotations

import ast
import configparser
import email.parser
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
        head = email.parser.HeaderParser().parsestr(wheel or text("/PKG-INFO"))
        requires = head.get_all("Requires-Dist") or []
        if not wheel and not requires:
            requires = _listed(text("requirements/requirements.txt")) or _listed(text("/requires.txt"))
        programs = _programs(text("/entry_points.txt"))
        if not wheel and not programs:
            programs = _scripts(text("/setup.py"))
        found = {"requires": requires, "programs": programs}
        if python := head.get("Requires-Python"):
            found["requires_python"] = python
        return found


def _listed(text: str) -> list[str]:
    """The requirements of an sdist as its own list has them."""
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "-", "["))]


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
