"""``dslint versions``: paths -> settings -> the window of the project."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dslint.core.commandline import say

SHOWN, NOTHING_FITS, USAGE = 0, 1, 2
# Flags of the view; the others are settings.
_VIEW = frozenset({"paths", "output_format", "output_file", "requirements", "config", "isolated"})


def main(options: Namespace, start: Callable[[Sequence[str], dict[str, Any]], Path]) -> int:
    """Run ``dslint versions`` with these options; returns the exit code.

    ``start`` says where the search for a settings file begins.
    """
    from dslint.settings import SettingsError, load_settings

    flags = vars(options)
    paths = list(options.paths) or ["."]
    if "-" in paths:
        say("versions reads files and folders, not standard input")
        return USAGE
    stated = {name.replace("_", "-"): value for name, value in flags.items() if name not in _VIEW}
    try:
        config = Path(options.config) if "config" in flags else None
        settings = load_settings(start(paths, {}), stated, config, flags.get("isolated", False))
    except SettingsError as error:
        say(str(error))
        return USAGE
    from dslint.versionsview.window import window_of

    window = window_of(paths, settings)
    if flags.get("requirements"):
        from dslint.versionsview.text import requirements as render
    elif flags["output_format"] == "json":
        from dslint.versionsview.jsonout import render
    else:
        from dslint.versionsview.text import render
    _write(render(window), flags.get("output_file"))
    for line in window.problems:
        say(line)
    if window.problems:
        return USAGE
    if not window.libraries:
        say("no library that is followed is imported or stated in these paths")
    return NOTHING_FITS if any(not found.together and not found.allowed.reason for found in window.libraries) else SHOWN


def _write(text: str, target: str | None) -> None:
    if target:
        Path(target).write_text(text, encoding="utf-8")
        return
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
