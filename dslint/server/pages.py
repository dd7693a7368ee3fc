"""The page of a rule as a file that an editor can open: written to the cache folder, so it is there offline."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from dslint import __version__
from dslint.engine.cache import default_directory
from dslint.rules.explain import markdown
from dslint.rules.registry import UnknownSelector, load_rule
from dslint.server.documents import uri_of


@lru_cache(maxsize=1024)
def page_of(code: str) -> str | None:
    """The URI of the page of a rule; ``None`` where there is no rule or no place to write."""
    try:
        text = markdown(load_rule(code))
    except UnknownSelector:
        return None
    file = default_directory() / "pages" / __version__ / f"{code}.md"
    if not _holds(file, text):
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)
            return None
    return uri_of(str(file))


def _holds(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False
