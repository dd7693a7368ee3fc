"""What a requirements file reads besides itself: ``-r other.txt`` and ``-c constraints.txt``.

A path is relative to the file that names it.
Source: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import re

from dslint.core.source import SourceFile

# pip takes `-rfile`, `-r file`, `--requirement file` and `--requirement=file`, with or without quotes, once a line.
_OPTION = re.compile(
    r"^[ \t]*(?:-[rc][ \t]*|--(?:requirement|constraint)(?:[ \t]+|[ \t]*=[ \t]*))"
    r"(?:\"(?P<double>[^\"\r\n]+)\"|'(?P<single>[^'\r\n]+)'|(?P<bare>[^\s\"'#=-]\S*))",
    re.M,
)


def included_paths(source: SourceFile) -> list[str]:
    """The paths that a requirements file names with ``-r`` or ``-c``, as written; an address on the web is none."""
    if "-" not in source.text:
        return []
    paths = [match["double"] or match["single"] or match["bare"] for match in _OPTION.finditer(source.text)]
    return [path for path in dict.fromkeys(paths) if "://" not in path and "\0" not in path]
