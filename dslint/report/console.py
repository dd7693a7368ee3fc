"""The console of the reports for people: it writes into a text, with colour only where that is wanted."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from dslint.report.options import ReportOptions


def text_console(options: ReportOptions) -> tuple[Console, StringIO]:
    """A console that knows nothing of the terminal and the environment but what the options say, and what it fills."""
    out = StringIO()
    console = Console(
        file=out,
        width=options.width,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        no_color=not options.color,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    return console, out
