"""LibCST, loaded when somebody first asks for a name of it.

To load it costs more than to judge a small script, and nearly all scripts are done before any rule visits a tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libcst import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Give a name of LibCST, and keep it."""
        import libcst

        found = globals()[name] = getattr(libcst, name)
        return found
