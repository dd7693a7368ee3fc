"""The YAML files of the project around a script, as far as they hold settings: sections and the keys in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.parse.data import DataDoc, join_pointer
from dslint.parse.reading import Unreadable, decode
from dslint.parse.yamldoc import parse_yaml
from dslint.rules.runs import RunQuery

_ENDINGS = (".yaml", ".yml")
_NEVER = ("node_modules", "third_party", "site-packages", "tests")
# So deep, so many and so large ones are looked at.
_DEPTH, _MOST, _MAX_BYTES = 4, 60, 40_000


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of a file."""

    doc: DataDoc
    pointer: str
    data: Mapping[str, object]

    def place(self, key: str, label: str = "") -> Location:
        """Return where a key of it stands."""
        pointer = join_pointer(self.pointer, key)
        return self.doc.source.location(self.doc.keys.get(pointer, self.doc.values[pointer]), label)


def sections_with(run: RunQuery, word: str, *parts: str) -> Iterator[Section]:
    """Yield the mappings that hold some keys, in files that have a word."""
    program = run.machine.program
    root = program.files.root(program.main)
    for path in list(_files(run, root, 0))[:_MOST]:
        program.noted.asked.add(("file", path))
        raw = program.files.read(path)
        text = decode(raw) if raw is not None and len(raw) <= _MAX_BYTES else None
        if not isinstance(text, str) or isinstance(text, Unreadable) or word not in text:
            continue
        if all(part in text for part in parts):
            doc = parse_yaml(SourceFile(program.files.shown(path), text))
            yield from _inside(doc, "", doc.data, parts)


def _files(run: RunQuery, folder: str, depth: int) -> Iterator[str]:
    for name in run.machine.program.asked("entries", folder).splitlines():
        path = f"{folder}/{name}"
        if name.endswith(_ENDINGS):
            yield path
        elif "." not in name and depth < _DEPTH and name not in _NEVER:
            yield from _files(run, path, depth + 1)


def _inside(doc: DataDoc, pointer: str, data: object, parts: tuple[str, ...]) -> Iterator[Section]:
    if not isinstance(data, dict):
        return
    if all(part in data for part in parts):
        yield Section(doc, pointer, data)
    for key, value in data.items():
        yield from _inside(doc, join_pointer(pointer, str(key)), value, parts)
