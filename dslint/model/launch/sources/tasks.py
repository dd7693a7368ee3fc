"""Tasks of task runners: tables of ``pyproject.toml``, ``pixi.toml``, ``hatch.toml``, ``tox.ini``, ``package.json``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_start
from dslint.model.launch.sources.snippet import Snippet, command_line, unset, value_at
from dslint.model.shell.pieces import Value

# Where tasks stand; ``*`` is any name. ``True``: a list of texts are several commands, else the words of one.
_TABLES = (
    ("tool.poe.tasks", False),
    ("tool.pdm.scripts", False),
    ("tool.rye.scripts", False),
    ("tool.taskipy.tasks", False),
    ("tool.pixi.tasks", False),
    ("tool.pixi.feature.*.tasks", False),
    ("tasks", False),
    ("feature.*.tasks", False),
    ("tool.hatch.envs.*.scripts", True),
    ("envs.*.scripts", True),
    ("scripts", True),
)
# What holds the command of a task that is a table.
_KEYS = ("cmd", "shell", "command", "cmds")
# ``{args}``, ``{posargs:x}``, ``{{ name }}``, ``{env:HOME}``: filled in by the runner.
_FILLED = re.compile(r"\{\{.*?\}\}|(?<!\$)\{[a-z_]*(?:args|env|tox\w+)[^{}]*\}")
_SECTION = re.compile(r"^\[(?P<name>testenv[^\]\n]*)\][ \t]*\n(?P<body>(?:(?!\[).*\n?)*)", re.M)
_COMMANDS = re.compile(r"^commands(?:_pre|_post)?[ \t]*=(?P<text>.*\n?(?:(?:[ \t]+.*)?\n)*(?:[ \t]+.*)?)", re.M)


def tasks_snippets(source: SourceFile) -> Iterator[Snippet]:
    """One command, or several, for each task."""
    if source.path.endswith(".ini"):
        yield from _tox(source)
        return
    data = _data(source)
    places = _Places(source)
    for path, has_lines in _TABLES if isinstance(data, dict) else ():
        for table in _tables(data, path.split(".")):
            for task in table.values():
                yield from _task(task, has_lines, places)


def _data(source: SourceFile) -> Any:
    """What the file holds; nothing where it cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return json.loads(source.text) if source.path.endswith(".json") else tomllib.loads(source.text)
    except (ValueError, RecursionError):
        return None


def _tables(data: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    if not isinstance(data, dict):
        return
    if not path:
        yield data
    elif path[0] == "*":
        for value in data.values():
            yield from _tables(value, path[1:])
    else:
        yield from _tables(data.get(path[0]), path[1:])


def _task(task: Any, has_lines: bool, places: _Places) -> Iterator[Snippet]:
    variables: dict[str, Value | None] = {}
    cwd: Fact[str] = absent()
    if isinstance(task, dict):
        given = task.get("env")
        for name, value in given.items() if isinstance(given, dict) else ():
            text = str(value)
            variables[name] = value_at(places.source, text, places.span(text)) if "$" not in text else None
        folder = task.get("cwd", task.get("working_dir"))
        if folder is not None:
            is_plain = isinstance(folder, str) and "$" not in folder and "{" not in folder
            cwd = known(folder) if is_plain else unknown("the task computes the directory")
        task = next((task[key] for key in _KEYS if key in task), None)
    lines = task if isinstance(task, list) and has_lines else [task]
    for line in lines:
        text = command_line(line) if isinstance(line, list) else line
        if isinstance(text, str) and text_may_start(text):
            yield _snippet(text, places, line if isinstance(line, list) else None, variables, cwd)


def _snippet(
    text: str, places: _Places, words: list[Any] | None, variables: Mapping[str, Value | None], cwd: Fact[str]
) -> Snippet:
    """The text where it stands in the file, or as a whole where it stands there in another form."""
    shown = _FILLED.sub(lambda found: unset(len(found[0])), text)
    exported = frozenset(variables)
    at = places.find(text) if words is None else -1
    if at >= 0:
        return Snippet(shown, at, None, variables, exported, False, cwd)
    first = str(words[0]) if words else text.split()[0]
    return Snippet(shown, 0, places.span(first), variables, exported, False, cwd)


class _Places:
    """Finds texts in a file, each behind the one before: parsers of TOML and JSON say no places."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.at = 0

    def find(self, text: str) -> int:
        """Where a text stands as it is; -1 for nowhere."""
        found = self._next(text)
        if found >= 0:
            self.at = found + len(text)
        return found

    def span(self, text: str) -> Span:
        """The place of a text, or the begin of the file."""
        found = self._next(text)
        return Span(found, found + len(text)) if found >= 0 else Span(0, 1)

    def _next(self, text: str) -> int:
        found = self.source.text.find(text, self.at)
        return found if found >= 0 else self.source.text.find(text)


def _tox(source: SourceFile) -> Iterator[Snippet]:
    """``commands`` of each environment, one a line; ``-`` in front lets it fail."""
    for section in _SECTION.finditer(source.text):
        for found in _COMMANDS.finditer(section["body"]):
            start = section.start("body") + found.start("text")
            for line in re.finditer(r"(?:[^\n\\]|\\\n|\\.)+", found["text"]):
                head = re.match(r"[ \t]*(?:-[ \t]*)?", line[0])
                text = line[0] if head is None else " " * head.end() + line[0][head.end() :]
                shown = _FILLED.sub(lambda filled: unset(len(filled[0])), text)
                if text_may_start(shown):
                    yield Snippet(shown, start + line.start())
