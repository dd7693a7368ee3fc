"""Files that a command hands to its script and that are nowhere, while the project has the one that is meant."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from dslint.core.source import SourceFile
from dslint.model.launch.command import Flag, LaunchCommand, Word
from dslint.model.launch.launchers.base import flag_name
from dslint.model.plan.appearing import may_appear
from dslint.model.plan.config import Named
from dslint.model.plan.files import Files
from dslint.model.plan.leftbehind import left_behind
from dslint.model.plan.tree import files_by_name, files_like, parts_of
from dslint.parse.python import parse_ast
from dslint.python.names import names_of
from dslint.python.passed import passed

_CONFIG = re.compile(r"[\w./@+-]*[\w]\.(\w{2,5})")
# What files of settings end with; other endings count where they are one of these misspelt.
_ENDINGS = ("json", "yaml", "yml", "hjson", "toml", "py", "cfg", "ini")
_OTHER_ENDINGS = frozenset({"jsonl", "pyc", "pyx", "csv"})
# Options that name what the script writes, or something inside of a library or another machine.
_WRITES = re.compile(r"out|save|log|dump|result|export|write|dest|cache|model_name|repo|module|package", re.IGNORECASE)
# A name that a file of any project may have says nothing.
_OWN_NAME = re.compile(r"[A-Za-z]+[-_.]?\w*[-_\d]\w*\.\w+")
_HYDRA_NAME = ("--config_name", "-cn")
_HYDRA_PATH = ("--config_path", "-cp", "--config_dir", "-cd")


def missing_files(command: LaunchCommand, files: Files, known: frozenset[str]) -> tuple[Named, ...]:
    """The names of such files; ``known`` are those that are told of already."""
    found: dict[str, Named] = {}
    for option, word in _values(command):
        text = word.text or ""
        if text in known or text in found or _WRITES.search(option) or not _is_config(text):
            continue
        named = _missing(text, word, files)
        if named is not None:
            found[text] = named
    return (*found.values(), *_of_hydra(command, files))


def _is_config(text: str) -> bool:
    """A path of a file of settings, also where its ending is misspelt (``.jsn``)."""
    found = _CONFIG.fullmatch(text)
    ending = found[1] if found is not None else ""
    if ending in _ENDINGS or not ending:
        return bool(ending)
    return ending not in _OTHER_ENDINGS and bool(get_close_matches(ending, _ENDINGS[:5], 1, 0.7))


def _values(command: LaunchCommand) -> Iterator[tuple[str, Word]]:
    """The values of options, with their names, and the operands of the script."""
    for flag in (*command.launcher_flags, *command.script_flags):
        if flag.value is not None:
            yield flag.name, flag.value
    values = [flag.value for flag in command.script_flags]
    behind = False
    for word in command.script_args:
        if not behind and flag_name(word) is None and word not in values:
            yield "", word
        behind = flag_name(word) is not None and "=" not in (word.text or word.raw)


def _missing(text: str, word: Word, files: Files) -> Named | None:
    folder = posixpath.dirname(text)
    if text.startswith("/") or not folder.strip("./"):
        return None
    is_there = files.find(text) is not None
    left = left_behind(files, text) if is_there else None
    meant = "" if is_there else _meant(text, files)
    if not (left or meant) or may_appear(files, text, word.raw, is_ours=True):
        return None
    return Named(text, word.location, word.raw, left, meant=meant)


def _meant(text: str, files: Files) -> str:
    """The one file of the project that shares the end of the path, or a name that is its own."""
    name = posixpath.basename(text)
    like = _in_other_letters(text, files) or files_like(text, files.launch_path, files.workspace)
    if not like and _OWN_NAME.fullmatch(name):
        like = list(files_by_name(files.launch_path, files.workspace).get(name, ()))
    if not like and posixpath.dirname(text).strip("./"):
        stem = text.rpartition(".")[0]
        like = [path for ending in _ENDINGS[:5] if (path := files.find(f"{stem}.{ending}")) is not None]
    return like[0] if len(like) == 1 else ""


def _in_other_letters(text: str, files: Files) -> list[str]:
    """The files whose paths end like this one but for small and capital letters."""
    tail = "/" + "/".join(parts_of(text)).lower()
    by_name = files_by_name(files.launch_path, files.workspace)
    named = (path for name, paths in by_name.items() if tail.endswith(f"/{name.lower()}") for path in paths)
    return [path for path in named if f"/{path}".lower().endswith(tail)]


def similar(named: Named, files: Files) -> Named:
    """The name with the file of the project that it is most like."""
    return replace(named, meant=_meant(named.text, files)) if named.left is None else named


def _of_hydra(command: LaunchCommand, files: Files) -> Iterator[Named]:
    """``--config-name`` of a script with ``hydra.main(config_path=...)`` whose folder has no such file."""
    flag = command.script_flag(*_HYDRA_NAME)
    source = files.workspace.read(files.script_path) if flag is not None and files.script_path else None
    if flag is None or flag.value is None or not flag.value.text or source is None:
        return
    folder = _hydra_folder(source, command, files)
    if folder is None or not files.workspace.exists(folder):
        return
    text = flag.value.text
    name = text if text.endswith((".yaml", ".yml")) else f"{text}.yaml"
    if not files.workspace.is_file(posixpath.join(folder, name)) and not may_appear(files, name, flag.value.raw):
        yield Named(posixpath.join(folder, name), flag.value.location, flag.value.raw)


def _hydra_folder(source: SourceFile, command: LaunchCommand, files: Files) -> str | None:
    """The one folder in which Hydra looks, relative to the script; ``None`` where several or unknown ones count."""
    tree = parse_ast(source)
    if not isinstance(tree, ast.Module) or "hydra.searchpath" in source.text:
        return None
    names = names_of(tree)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and names.qualified(n.func) == "hydra.main"]
    if len(calls) != 1:
        return None
    given: Flag | None = command.script_flag(*_HYDRA_PATH)
    written = passed(names, calls[0]).argument("config_path", 0)
    path = names.behind(written) if written is not None else None
    text = path.value if isinstance(path, ast.Constant) and isinstance(path.value, str) else None
    if given is not None:
        is_path = given.name in ("--config-path", "--config_path", "-cp")
        text = given.value.text if is_path and given.value is not None else None
    if not text or text.startswith(("/", "pkg:", "file:")):
        return None
    return files.workspace.normal(posixpath.join(posixpath.dirname(files.script_path), text))
