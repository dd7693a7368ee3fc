"""The DeepSpeed configuration in a file that a script names by a path that is known."""

from __future__ import annotations

import posixpath
import re

from dslint.core.source import SourceFile
from dslint.parse.jsondoc import parse_json
from dslint.parse.reading import Unreadable, decode
from dslint.python.machine import Machine
from dslint.python.values import Value

_SUFFIXES = (".json", ".hjson", ".jsonc")
# The script may write the file itself before DeepSpeed reads it.
_WRITES = re.compile(r"open\([^)\n]*[\"'][wx]|\.write_text\(")
_MOST_FOLDERS = 8


def config_file(m: Machine, value: Value | None) -> dict[str, object] | None:
    """Return what stands in the file that a path names; `None` where nobody knows, or the script may write it."""
    known = value.constants if value is not None else None
    path = known[0] if known is not None and len(known) == 1 else None
    if not isinstance(path, str) or not path.endswith(_SUFFIXES) or path.startswith("/"):
        return None
    main = m.program.main or m.frame.module.absolute
    # Another script that imports this module may stand in another folder.
    m.program.depends_on_launch()
    texts = [module.source.text for module in {m.frame.module, *m.program.modules()}]
    if any(_WRITES.search(text) and "dump" in text for text in texts):
        return None
    return _read(m, path, main)


def _read(m: Machine, path: str, main: str) -> dict[str, object] | None:
    """Read a file relative to the folder of the script, or to one above it, from which people run it."""
    files = m.program.files
    folder, top = posixpath.dirname(main), files.root(main)
    for _ in range(_MOST_FOLDERS):
        place = posixpath.normpath(posixpath.join(folder, path))
        m.program.noted.asked.add(("file", place))
        raw = files.read(place)
        if raw is not None:
            text = decode(raw)
            doc = parse_json(SourceFile(files.shown(place), text)) if not isinstance(text, Unreadable) else None
            is_read = doc is not None and not doc.problems and isinstance(doc.data, dict)
            return dict(doc.data) if doc is not None and is_read else None
        if folder == top or len(folder) <= len(top):
            break
        folder = posixpath.dirname(folder)
    return None
