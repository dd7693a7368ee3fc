"""The text on standard input: its name, what it is when it has none, and its bytes after a fix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import BinaryIO

from dslint.engine.discovery import kind_by_content

# The name of a text without one, as the user sees it.
NAMELESS = "<stdin>"
_BOM = b"\xef\xbb\xbf"
_ACCELERATE = re.compile(rb"^(?:compute_environment|distributed_type)[ \t]*:", re.MULTILINE)
_PYTHON = re.compile(
    rb"^(?:import \w|from [\w.]+ import\b|def \w+\(|class \w+[(:]|if __name__|@\w)|^[ \t]*\w[\w.]* = .*\($",
    re.MULTILINE,
)
_FENCE = re.compile(rb"^[ \t]*(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StandardInput:
    """Text that is judged under the path ``name`` and need not exist on disk."""

    name: str
    raw: bytes

    @classmethod
    def read(cls, stream: BinaryIO | None, filename: str | None) -> StandardInput:
        """Everything on the stream; ``filename`` is what the user calls it."""
        if filename is None:
            name = NAMELESS
        else:
            name = os.path.normpath(filename)
            if os.path.isabs(name):
                # Below the working directory it is shown as the same file on disk would be.
                relative = os.path.relpath(name)
                name = name if relative.startswith(os.pardir + os.sep) else relative
        return cls(name.replace(os.sep, "/"), stream.read() if stream else b"")

    @property
    def text(self) -> str:
        """The text to judge; bytes that are no UTF-8 stay recognizable."""
        return self.raw.decode("utf-8-sig", "surrogateescape")

    def changed_to(self, text: str) -> bytes:
        """The bytes of a new text, in the shape of the old ones."""
        bom = _BOM if self.raw.startswith(_BOM) else b""
        return bom + text.encode("utf-8", "surrogateescape")


def kind_of_text(raw: bytes) -> str:
    """The kind of a text that has no name at all, by its content alone."""
    kind = kind_by_content(raw)
    if kind == "json":
        return "notebook" if b'"nbformat"' in raw and b'"cells"' in raw else kind
    head = raw.lstrip(_BOM + b" \t\r\n")
    if kind != "-" or head.startswith(b"#!"):
        return kind
    if head.startswith((b"//", b"/*")):
        return "json"
    if _ACCELERATE.search(raw):
        return "yaml"
    if _PYTHON.search(raw):
        return "script"
    if _FENCE.search(raw):
        return "markdown"
    from dslint.model.firstlook import may_launch

    return "shell" if may_launch(raw) else "script"
