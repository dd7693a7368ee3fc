"""Numbers that the command of a run states: by an option, or under a key of a file of settings that it names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.parse.data import DataDoc
from dslint.parse.jsondoc import parse_json
from dslint.parse.reading import Unreadable, decode
from dslint.parse.yamldoc import parse_yaml
from dslint.rules.runs import RunQuery

_YAML, _JSON = (".yaml", ".yml"), (".json",)
_MAX_BYTES, _MOST_FOLDERS = 40_000, 8


@dataclass(frozen=True, slots=True)
class Stated:
    """A number, and where it stands; nowhere where it is the default of an option."""

    number: int
    places: tuple[Location, ...]


def stated_number(run: RunQuery, name: str) -> Stated | None:
    """Return the number that the command of this run gives to an option or key; `None` where nobody can say.

    The command may pass what a file says anew (`--train.batch 4`): then the words of the command name the key.
    """
    launch = run.machine.launch
    if launch is None or not name:
        return None
    given = launch.given.get(name)
    if type(given) is int:
        return Stated(given, run.given_at(name))
    if name in launch.given or any(name in _last_part(word) for word in launch.words or ()):
        return None
    left = launch.left[name].get_or(None) if name in launch.left else None
    if type(left) is int:
        return Stated(left, ())
    found = [(doc, pointer) for doc in _files(run) for pointer in doc.values if pointer.rpartition("/")[2] == name]
    numbers = [(doc, pointer, doc.get(pointer)) for doc, pointer in found]
    if name in launch.left or len(numbers) != 1 or type(numbers[0][2]) is not int:
        return None
    doc, pointer, number = numbers[0]
    return Stated(number, (doc.value(pointer),)) if isinstance(number, int) else None


def _last_part(word: str) -> str:
    return word.partition("=")[0] if "=" in word or word.startswith("-") else ""


def _files(run: RunQuery) -> Iterator[DataDoc]:
    """Yield the files of settings that the words of the command name."""
    launch = run.machine.launch
    words = [*(launch.words or ()), *launch.given.values()] if launch is not None else []
    for word in dict.fromkeys(str(word).rpartition("=")[2] for word in words):
        if word.endswith((*_YAML, *_JSON)) and not word.startswith("/"):
            doc = _read(run, word)
            if doc is not None and not doc.problems and isinstance(doc.data, dict):
                yield doc


def _read(run: RunQuery, path: str) -> DataDoc | None:
    """Read a file relative to the folder of the script or of the command, or to one above, from which people run it."""
    program = run.machine.program
    program.depends_on_launch()
    for folder in dict.fromkeys(_folders(run)):
        place = posixpath.normpath(posixpath.join(folder, path))
        program.noted.asked.add(("file", place))
        raw = program.files.read(place)
        if raw is not None:
            text = decode(raw) if len(raw) <= _MAX_BYTES else None
            if text is None or isinstance(text, Unreadable):
                return None
            source = SourceFile(program.files.shown(place), text)
            return parse_yaml(source) if path.endswith(_YAML) else parse_json(source)
    return None


def _folders(run: RunQuery) -> Iterator[str]:
    main, files, launch = run.machine.program.main, run.machine.program.files, run.machine.launch
    top, shown = files.root(main), files.shown(main)
    folder = posixpath.dirname(main)
    for _ in range(_MOST_FOLDERS):
        yield folder
        if folder == top or len(folder) <= len(top):
            break
        folder = posixpath.dirname(folder)
    if launch is not None and main.endswith(shown) and not posixpath.isabs(launch.place.path):
        yield posixpath.join(main.removesuffix(shown), posixpath.dirname(launch.place.path))
