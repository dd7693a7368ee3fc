"""``dslint plan``: paths -> settings -> plans -> the view that was asked for."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslint.core.commandline import say
from dslint.core.finding import Severity

if TYPE_CHECKING:
    from dslint.engine.planning import Planned

SHOWN, USAGE = 0, 2
# Flags of the view; the others are settings.
_VIEW = frozenset({"paths", "format", "output_file", "all", "color", "config", "isolated"})


def main(options: Namespace, start: Callable[[Sequence[str], dict[str, Any]], Path]) -> int:
    """Run ``dslint plan`` with these options; returns the exit code.

    ``start`` says where the search for a settings file begins.
    """
    from dslint.settings import SettingsError, load_settings

    flags = vars(options)
    paths = list(options.paths) or ["."]
    if "-" in paths:
        say("plan reads files and folders, not standard input")
        return USAGE
    stated = {name.replace("_", "-"): value for name, value in flags.items() if name not in _VIEW}
    try:
        config = Path(options.config) if "config" in flags else None
        settings = load_settings(start(paths, {}), stated, config, flags.get("isolated", False))
    except SettingsError as error:
        say(str(error))
        return USAGE
    from dslint.engine.planning import plan_paths

    planned = plan_paths(paths, settings)
    _write(_rendered(planned, flags), flags.get("output_file"))
    for line in planned.problems:
        say(line)
    for finding in planned.unread:
        say(f"{finding.location.path}: {finding.message}")
    unread = [finding for finding in planned.unread if finding.severity is not Severity.INFO]
    trouble = bool(planned.problems) or any(finding.location.path in paths for finding in unread)
    if not planned.plans and not trouble:
        say("no launch command in these paths" if planned.files else "no files to look at")
    return USAGE if trouble else SHOWN


def _rendered(planned: Planned, flags: dict[str, Any]) -> str:
    from dslint.planview.describe import views_of

    views = views_of(planned)
    if flags["format"] == "json":
        from dslint.planview.jsonout import render as json_of

        return json_of(views, planned.workspace.read)
    if flags["format"] in ("mermaid", "svg"):
        from importlib import import_module

        from dslint.planview.graph import graph_of

        return str(import_module(f"dslint.planview.{flags['format']}").render(graph_of(views)))
    from dslint.planview.text import render
    from dslint.report.options import ReportOptions, terminal_width, use_color

    color = "output_file" not in flags and use_color(flags.get("color", "auto"), sys.stdout, os.environ)
    return render(views, ReportOptions(color, terminal_width(sys.stdout, os.environ)), bool(flags.get("all")))


def _write(text: str, target: str | None) -> None:
    if target:
        Path(target).write_text(text, encoding="utf-8")
        return
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
