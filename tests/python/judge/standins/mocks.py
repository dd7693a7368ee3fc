"""What stands in for any library that we know nothing of: every attribute, call and item is another of its kind."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from typing import Any

from ..api import record
from ..ranks import current


class MockBase:
    """What a class of the program gets for a base that is a mock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Mock(f"{type(self).__name__}.{name}")

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class Mock:
    """An unknown object. It is true, empty, counts as 1, and prints its path."""

    def __init__(self, path: str) -> None:
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.__dict__[name] = Mock(f"{self._path}.{name}")
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        record(self._path)
        # A decorator of an unknown library leaves the function or class as it is.
        recorder = current().recorder
        decorates = recorder is None or recorder.event_place() is None
        if decorates and len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type):
            return args[0]
        return _by_row(self._path, args) or Mock(f"{self._path}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return () if any(isinstance(b, type) and issubclass(b, MockBase) for b in bases) else (MockBase,)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        """Nothing; but as many as are wanted where it is unpacked."""
        frame = sys._getframe(1)
        code, at = frame.f_code.co_code, frame.f_lasti
        count = code[at + 1] if at >= 0 and dis.opname[code[at]] == "UNPACK_SEQUENCE" else 0
        return iter([Mock(f"{self._path}[{nth}]") for nth in range(count)])

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return Mock(f"{self._path}[]")

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __contains__(self, key: Any) -> bool:
        return False

    def __int__(self) -> int:
        return 1

    __index__ = __int__

    def __float__(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"<{self._path}>"

    __repr__ = __str__

    def __fspath__(self) -> str:
        return "unknown"

    def __format__(self, spec: str) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mock) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


def _combined(self: Mock, *_: object) -> Mock:
    return Mock(self._path)


for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "radd",
    "rsub",
    "rmul",
    "rtruediv",
    "and",
    "or",
    "xor",
    "neg",
    "abs",
    "invert",
]:
    setattr(Mock, f"__{_name}__", _combined)


def _by_row(path: str, args: tuple[Any, ...]) -> Any:
    """A module where a row says that the call makes one."""
    from . import nn

    rank = current()
    made = nn.of_library(path) if "()" not in path else None
    if made is None:
        return None
    rank.inside += 1
    try:
        return made(*(a for a in args if isinstance(a, int)))
    finally:
        rank.inside -= 1


class MockModule(types.ModuleType):
    """An unknown module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = current().own["modules"].get(f"{self.__name__}.{name}") or Mock(f"{self.__name__}.{name}")
        self.__dict__[name] = found
        return found


def mock_module(name: str) -> MockModule:
    made = MockModule(name)
    made.__path__ = []
    return made
