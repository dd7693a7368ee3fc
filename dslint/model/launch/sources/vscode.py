"""``.vscode/launch.json`` and ``tasks.json``: what the debugger and tasks start, with arguments and variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.firstlook import text_may_launch
from dslint.model.launch.sources.snippet import UNKNOWN_WORDS, Snippet, command_line, value_at
from dslint.model.shell.pieces import Value
from dslint.parse.data import DataDoc
from dslint.parse.jsondoc import parse_json

_WORKSPACE = re.compile(r"\$\{workspace(?:Folder|Root)\}/?")
_TYPES = frozenset({"python", "debugpy"})


def vscode_snippets(source: SourceFile) -> Iterator[Snippet]:
    """One command for each configuration that starts a Python program or module."""
    doc = parse_json(source)
    yield from _tasks(source, doc)
    for _, at, entry in ((i, f"/configurations/{i}", e) for i, e in enumerate(doc.get("/configurations") or ())):
        if not isinstance(entry, dict) or entry.get("type") not in _TYPES or entry.get("request") != "launch":
            continue
        key = "module" if isinstance(entry.get("module"), str) else "program"
        if not isinstance(entry.get(key), str):
            continue
        target = _known(entry[key])
        words: list[object] = ["python", "-m", target] if key == "module" else ["python", target]
        given = entry.get("args", [])
        tail = ""
        if isinstance(given, list):
            words += [_known(word) for word in given]
        else:
            tail = f" {given}" if isinstance(given, str) and "${" not in given else f" {UNKNOWN_WORDS}"
        line = command_line(words) + tail
        if not text_may_launch(line):
            continue
        variables: dict[str, Value | None] = {}
        for name, here, value in doc.children(f"{at}/env"):
            text = _known(value)
            variables[name] = value_at(source, text, doc.values[here]) if isinstance(text, str) else None
        yield Snippet(line, 0, doc.values[f"{at}/{key}"], variables, frozenset(variables), True, _cwd(entry))


def _tasks(source: SourceFile, doc: DataDoc) -> Iterator[Snippet]:
    """``tasks.json``: a command line for the shell, or a program with its words."""
    for at, task in ((f"/tasks/{i}", t) for i, t in enumerate(doc.get("/tasks") or ())):
        command = task.get("command") if isinstance(task, dict) else None
        if not isinstance(command, str) or task.get("type", "shell") not in ("shell", "process"):
            continue
        given = [word.get("value") if isinstance(word, dict) else word for word in task.get("args") or ()]
        first = _WORKSPACE.sub("", command)
        line = first if task.get("type", "shell") == "shell" else command_line([first])
        line = " ".join(
            [re.sub(r"\$\{\w+:[^}]*\}", UNKNOWN_WORDS, line), command_line(list(map(_known, given)))]
        ).strip()
        if not text_may_launch(line):
            continue
        variables: dict[str, Value | None] = {}
        for name, here, value in doc.children(f"{at}/options/env"):
            text = _known(value)
            variables[name] = value_at(source, text, doc.values[here]) if isinstance(text, str) else None
        settings = task.get("options")
        cwd = _cwd(settings) if isinstance(settings, dict) else absent()
        yield Snippet(line, 0, doc.values[f"{at}/command"], variables, frozenset(variables), True, cwd)


def _known(value: object) -> object:
    """A text in which only the folder of the workspace is filled in; ``None`` for anything else."""
    if not isinstance(value, str):
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    text = _WORKSPACE.sub("", value)
    return None if "${" in text else text


def _cwd(entry: dict[str, object]) -> Fact[str]:
    if "cwd" not in entry:
        return absent()
    folder = _known(entry["cwd"])
    return known(folder) if isinstance(folder, str) and not folder.startswith("/") else unknown("computed")
