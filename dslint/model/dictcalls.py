"""The methods by which a dict changes, for every reader that follows one."""

from __future__ import annotations

DICT_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "__setitem__"})
