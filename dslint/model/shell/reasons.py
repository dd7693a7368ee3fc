"""Why a word of the shell is not known, as far as its text says it."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"\$\((?!\()\s*([^\s()|;&]+)|`\s*([^\s`|;&]+)")


def reason_of(raw: str) -> str:
    """The reason, empty when the text does not say one."""
    command = _COMMAND.search(raw)
    if command is not None:
        return f"output of `{command[1] or command[2]}`"
    if re.match(r"""["']?~""", raw):
        return "the home directory decides"
    if re.search(r"[*?\[]", raw) and "$" not in raw:
        return "the names of files decide"
    return ""
