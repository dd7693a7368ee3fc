"""Other scripts of the project, interpreted as they would be started: what one writes, another may read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.entries import Analysis
from dslint.python.stack import deep_calls
from dslint.rules.runs import RunQuery

# So many are interpreted for one question, and so large they may be.
_MOST = 6
_MAX_BYTES = 60_000
_NEVER = re.compile(r"(?:^|/)(?:tests?|third_party|thirdparty|vendor|external|site-packages|node_modules)/")


def texts_of_others(run: RunQuery) -> dict[str, str]:
    """Return the texts of the files around the script that its run has not read, by absolute path."""
    files, noted = run.machine.program.files, run.machine.program.noted
    found: dict[str, str] = {}
    for path in run.machine.program.other_scripts():
        inside = path.removeprefix(files.root(path))
        raw = files.read(path) if not _NEVER.search(inside) else None
        if raw is not None and len(raw) <= _MAX_BYTES:
            noted.asked.add(("file", path))
            found[path] = raw.decode("utf-8", "replace")
    return found


def other_runs(run: RunQuery, wanted: re.Pattern[str]) -> Iterator[RunQuery]:
    """Yield the runs of other scripts whose text matches, each as if it were started by itself."""
    program = run.machine.program
    paths = [path for path, text in texts_of_others(run).items() if wanted.search(text)]
    for path in paths[:_MOST]:
        analysis = Analysis(program.files, None, run.machine.libraries, program.shared)
        with deep_calls():
            entry = analysis.script(program.files.shown(path))
        program.noted.asked |= analysis.program.noted.asked
        if entry is not None:
            yield RunQuery(analysis, program.files.shown(path), run.context)
