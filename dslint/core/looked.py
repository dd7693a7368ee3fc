"""What cheap tests of bytes have said, for those who look at the same files again and again."""

from __future__ import annotations

from collections.abc import Callable


class Looked:
    """The last answer of each test about each path; it holds as long as the bytes are the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[Callable[[bytes], bool], str], tuple[bytes, bool]] = {}

    def says(self, test: Callable[[bytes], bool], path: str, raw: bytes) -> bool:
        """What the test says of the bytes of a file."""
        known = self._known.get((test, path))
        if known is None or known[0] != raw:
            known = self._known[test, path] = raw, test(raw)
        return known[1]

    def keep_only(self, paths: set[str]) -> None:
        """Forget the others."""
        self._known = {key: known for key, known in self._known.items() if key[1] in paths}
