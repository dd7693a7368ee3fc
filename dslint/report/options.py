"""How a report should look; decided once from the flags, the stream and the environment."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.core.suppressed import Suppressed
from dslint.core.terminal import terminal_width, use_color, use_links
from dslint.translate import Translator, english

__all__ = ["ReportOptions", "terminal_width", "use_color", "use_links"]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a format may know besides the findings.

    ``color``: terminal escapes are welcome. ``width``: columns to wrap prose and crop source lines to.
    ``hyperlinks``: the terminal understands OSC 8. ``files``: how many files were checked. ``suppressed``: findings
    that are not reported, for the formats that keep a record of them. ``translate``: into the language of the reader;
    the findings that a format gets are in it already.
    """

    color: bool = False
    width: int = 100
    hyperlinks: bool = False
    files: int = 0
    suppressed: tuple[Suppressed, ...] = ()
    translate: Translator = english
