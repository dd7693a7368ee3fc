"""What the files of a project import and mention, as far as their text says: no file is parsed for it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dslint.python.libraries import Libraries
from dslint.python.search import is_library

if TYPE_CHECKING:
    from dslint.python.files import Files
    from dslint.python.questions import Question

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([^\n#;]+))", re.MULTILINE
)
# More than there are files between two.
MOST_STEPS = 1_000
NAME = re.compile(r"[^\W\d]\w*")
_BARE = re.compile(r"(?<![.\w])[^\W\d]\w*")
_ALL = re.compile(r"\bimport[ \t]+\*")
_MEMBER = re.compile(r"\.\s*([^\W\d]\w*)")
_BLOCK = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_NEXT = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_TEXT = re.compile(r"(\"\"\"|''')(?:\\.|[^\\])*?\1|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.DOTALL)
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_CHANGES = re.compile(r"^sys\.argv\b[^\n]*=|^sys\.argv\.\w+\(|^(?:if|for|while|try|with)\b[^\n]*\bargv\b", re.MULTILINE)


class Names(frozenset[str]):
    """The names in a text of code: those that stand there without a dot in front (`bare`), and with one (`members`)."""

    bare: frozenset[str]
    members: frozenset[str]

    @staticmethod
    def of(text: str) -> Names:
        """Return all words of a text."""
        found = Names(NAME.findall(text))
        found.bare = frozenset(_BARE.findall(text))
        found.members = frozenset(_MEMBER.findall(text))
        return found


def bare(words: frozenset[str]) -> frozenset[str]:
    """Return those of some names that a module itself may mean: `run`, but not `other.run`."""
    return words.bare if isinstance(words, Names) else words


def names_in(text: str) -> Names:
    """Return the names in the text of code; those in its strings and comments are none."""
    return Names.of(_TEXT.sub(" ", text))


@dataclass
class File:
    """What the text of a file says: the files that it imports, and which of them each name that it binds is from."""

    text: str
    # What runs where the file is imported.
    body: str
    changes_words: bool
    imports: list[str] = field(default_factory=list)
    names: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    asked: dict[Question, tuple[bool, bool]] = field(default_factory=dict)

    def mentions(self, question: Question) -> bool:
        """Return whether importing a file runs code, or defines it, with words of a question."""
        return self._words(question)[0]

    def does(self, question: Question) -> bool:
        """Return whether importing a file does what is asked about."""
        return self._words(question)[1]

    def _words(self, question: Question) -> tuple[bool, bool]:
        found = self.asked.get(question)
        if found is None:
            anywhere = question.anywhere.search(self.body) is not None
            at_once = anywhere and question.at_import.search(self.body) is not None
            found = self.asked[question] = anywhere, at_once
        return found

    @cached_property
    def imports_all(self) -> bool:
        """Return whether a file takes over all names of a module."""
        return _ALL.search(self.text) is not None

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for match in _BLOCK.finditer(self.text):
            end = _NEXT.search(self.text, match.end())
            found[match[1]] = match.end(), end.start() if end else len(self.text)
        return found

    @cached_property
    def blocks(self) -> dict[str, frozenset[str]]:
        """Return the words that stand in each function and class of its top level."""
        return {name: Names.of(self.text[start:end]) for name, (start, end) in self._spans.items()}

    def code(self, name: str) -> frozenset[str]:
        """Return those of a function or class that do not stand in its strings and comments only."""
        start, end = self._spans[name]
        return names_in(self.text[start:end])


class ImportGraph:
    """The files of a project by what they import, as far as their text says; kept for the scripts of a process."""

    def __init__(self, rows: Libraries) -> None:
        self.rows = rows
        self._files: dict[str, File | None] = {}
        # Names of files of which it is known that nothing there has one of some words, for so many steps.
        self._clean: dict[tuple[str, str, frozenset[str]], int] = {}

    def file(self, files: Files, path: str) -> File | None:
        """Return what a file says; `None` when it cannot be read."""
        if path not in self._files:
            raw = files.read(path)
            text = raw.decode("utf-8", "replace") if raw is not None else None
            self._files[path] = None if text is None else self._read(files, path, text)
        return self._files[path]

    def forget(self, paths: Iterable[str]) -> None:
        """Read these files again when somebody asks."""
        for path in paths:
            self._files.pop(path, None)
        self._clean.clear()

    def reach(self, files: Files, path: str) -> set[str]:
        """Return a file and all files that it imports, and these in turn."""
        found, pending = {path}, [path]
        while pending:
            file = self.file(files, pending.pop())
            fresh = set(file.imports) - found if file is not None else set()
            found |= fresh
            pending += fresh
        return found

    def _read(self, files: Files, path: str, text: str) -> File:
        main = _MAIN.search(text)
        body = text[: main.start()] if main is not None else text
        found = File(text, body, "argv" in body and _CHANGES.search(body) is not None)
        for match in _IMPORT.finditer(text):
            self._add(files, path, match, found)
        return found

    def _add(self, files: Files, path: str, match: re.Match[str], found: File) -> None:
        if match[3]:
            for part in match[3].split(","):
                words = part.split()
                homes = self._modules(files, path, words[0]) if words else []
                found.imports += homes
                for home in homes[-1:]:
                    found.names.setdefault(words[2] if len(words) == 3 else words[0].partition(".")[0], []).append(
                        (home, "")
                    )
            return
        homes = self._modules(files, path, match[1])
        found.imports += homes
        for name, bound in _names(match[2]):
            part = self._part(files, path, match[1], name)
            if part:
                found.imports.append(part)
                found.names.setdefault(bound, []).append((part, ""))
            elif homes:
                found.names.setdefault(bound, []).append((homes[-1], name))

    def _modules(self, files: Files, path: str, name: str) -> list[str]:
        """Return the file of a module, after those of the packages around it."""
        if not name or (not name.startswith(".") and is_library(path, name)):
            return []
        folder, root = posixpath.dirname(path), files.root(path)
        dots = len(name) - len(name.lstrip("."))
        ends = [at for at, letter in enumerate(name) if letter == "." and at > dots]
        found = (files.answer(("module", folder, root, name[:end])) for end in (*ends, len(name)))
        return [home for home in found if home]

    def _part(self, files: Files, path: str, home: str, name: str) -> str:
        """Return the file of a module that is imported from its package."""
        if not home.startswith(".") and is_library(path, home):
            return ""
        full = f"{home}{'' if home.endswith('.') else '.'}{name}"
        return files.answer(("module", posixpath.dirname(path), files.root(path), full))

    def leads(self, files: Files, path: str, name: str, words: frozenset[str], steps: int = MOST_STEPS) -> bool:
        """Return whether what a file has under a name, or what that mentions, has one of some words in its code.

        What it mentions is looked for so many `steps` from file to file; where a file hands on a name is no step.
        """
        return self._lead(files, {(path, name)}, words, steps)

    def any_leads(self, files: Files, path: str, words: frozenset[str], steps: int = MOST_STEPS) -> bool:
        """Return whether the code of a file, or what it mentions of others, has one of some words."""
        file = self.file(files, path)
        if file is None:
            return False
        named = frozenset(NAME.findall(file.text))
        if not named.isdisjoint(words) and not names_in(file.text).isdisjoint(words):
            return True
        return self._lead(files, self.mentioned(files, path, named), words, steps - 1) if steps else False

    def concerns(self, files: Files, path: str, question: Question) -> bool:
        """Return whether a script may do what is asked about: by its code, what that mentions, or what it imports."""
        file = self.file(files, path)
        if file is None:
            return False
        if path.endswith(".ipynb"):  # its code stands in texts
            return question.anywhere.search(file.text) is not None
        if self.any_leads(files, path, question.words, question.steps):
            return True
        imported = (self.file(files, home) for home in file.imports)
        return any(inner is not None and inner.does(question) for inner in imported)

    def _lead(self, files: Files, tops: set[tuple[str, str]], words: frozenset[str], steps: int) -> bool:
        left = dict.fromkeys(tops, steps)  # how many steps may follow
        pending = list(tops)
        while pending:
            home, top = pending.pop()
            most = left[home, top]
            if self._clean.get((home, top, words), -1) >= most:
                continue
            file = self.file(files, home)
            block = file.blocks.get(top, frozenset()) if file is not None else frozenset()
            if not block.isdisjoint(words) and file is not None and not file.code(top).isdisjoint(words):
                return True
            handed = set(file.names.get(top, ())) if file is not None else set()
            for one in handed | self.mentioned(files, home, block):
                after = most if one[0] == home or one in handed else most - 1
                if after > left.get(one, -1):
                    left[one] = after
                    pending.append(one)
        for one, most in left.items():
            key = (one[0], one[1], words)
            self._clean[key] = max(most, self._clean.get(key, -1))
        return False

    def mentioned(self, files: Files, path: str, words: frozenset[str]) -> set[tuple[str, str]]:
        """Return what names in a file may mean: each with its file; of modules, what has one of the names there."""
        file = self.file(files, path)
        if file is None:
            return set()
        own = bare(words)
        found = {(path, word) for word in own & file.blocks.keys()}
        for word in own & file.names.keys():
            for home, inner in file.names[word]:
                whole = self.file(files, home) if not inner else None
                members = words & (whole.blocks.keys() | whole.names.keys()) if whole is not None else {inner}
                found |= {(home, member) for member in members}
        return found


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names of an import, and what each is called in the file."""
    for part in _COMMENT.sub("", text).strip("() \\\t\n").split(","):
        words = part.split()
        if words and NAME.fullmatch(words[0]):
            yield words[0], words[2] if len(words) == 3 else words[0]
