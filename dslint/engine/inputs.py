"""The given files, sorted by what their bytes say and read as data; what cannot be read becomes a finding."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location, Region, SourceFile, Span
from dslint.engine.discovery import Candidate, Discovery, is_version_file, kind_by_content
from dslint.engine.standard_input import NAMELESS, kind_of_text
from dslint.model.firstlook import (
    may_be_recipe,
    may_be_vscode,
    may_call,
    may_hold_commands,
    may_hold_config,
    may_hold_section,
    may_launch,
    may_run_shell,
    may_start_containers,
    may_start_processes,
    may_train,
    may_write_config,
)
from dslint.parse.reading import Unreadable, decode, read_bytes
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from dslint.engine.launchstage import LaunchRead
    from dslint.model.plan.recipe import Recipe
    from dslint.parse.data import DataDoc


# A file of arguments is written by a person.
_MOST_BYTES = 100_000
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file whose bytes may hold launch commands; ``kind`` is what :func:`read_launch_docs` takes."""

    path: str
    kind: str
    raw: bytes


@dataclass(slots=True)
class Inputs:
    """All documents of a run. ``scripts`` holds raw bytes: most scripts are never parsed; ``named`` are those that the
    user names and that may train; ``manifests`` say which releases are installed (and whether the
    user names the file). ``sections`` are DeepSpeed configs inside data files.

    ``launch`` is what the ``launch_files`` hold, in their order; it may still be on its way from other processes.
    """

    scripts: dict[str, bytes] = field(default_factory=dict)
    notebooks: dict[str, bytes] = field(default_factory=dict)
    launch_files: dict[str, LaunchFile] = field(default_factory=dict)
    launch: Iterable[LaunchRead] = ()
    configs: list[DataDoc] = field(default_factory=list)
    sections: list[DataDoc] = field(default_factory=list)
    accelerate: list[DataDoc] = field(default_factory=list)
    recipes: list[Recipe] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    manifests: dict[str, bool] = field(default_factory=dict)
    files: int = 0
    named: set[str] = field(default_factory=set)


def top_of(path: str) -> Location:
    """The first character of a file that could not be read."""
    return Location(path, Span(0, 0), Region(1, 1, 1, 1))


def crash(what: str, path: str, error: Exception) -> Finding:
    """A part of dslint failed on a file: a defect of dslint, reported where it happened."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    message = f"{what} crashed with {type(error).__name__}: {error} ({where})".replace("\n", " ")
    return RULE_CRASHED.finding(top_of(path), message, hint="Please report this with the file that causes it")


def died(path: str, what: str) -> Finding:
    """A worker died twice of a file: with others and alone. ``what`` it did: ``read``, ``judged``."""
    message = f"not checked: the process that {what} it died, in the pool and alone"
    return RULE_CRASHED.finding(top_of(path), message, hint="Please report this with the file that causes it")


def sort_files(found: Discovery, overrides: Mapping[str, str]) -> tuple[Inputs, Callable[[], None]]:
    """Read and classify every candidate; what is returned beside reads the data files among them.

    ``overrides`` (path -> text) win over the disk: stdin and --fix.
    """
    loader = Loader(overrides)
    for path, reason in found.unreadable:
        loader.unreadable(path, f"the folder cannot be read: {reason}")
    for candidate in found.candidates:
        loader.add(candidate)
    return loader.out, loader.read_data


def read_one(candidate: Candidate, overrides: Mapping[str, str]) -> Inputs:
    """What one candidate is, with the documents in it."""
    loader = Loader(overrides)
    loader.add(candidate)
    loader.read_data()
    return loader.out


class Loader:
    """Reads candidates, and sorts them by what they are."""

    def __init__(self, overrides: Mapping[str, str]) -> None:
        self.overrides = overrides
        self.out = Inputs()
        self._data_files: list[tuple[str, str, bytes]] = []

    def unreadable(self, path: str, reason: str) -> None:
        """Say that a file or folder cannot be read."""
        self.out.findings.append(unreadable(path, reason))

    def add(self, candidate: Candidate) -> None:
        """Read a candidate; of data files the bytes only."""
        # Files of settings count where they hold commands.
        self.out.files += candidate.kind not in ("tasks", "manifest") or candidate.explicit
        path = candidate.path
        if is_version_file(path):
            self.out.manifests[path] = candidate.explicit
        if candidate.kind == "manifest":
            return
        text = self.overrides.get(path)
        raw = read_bytes(path) if text is None else text.encode("utf-8", "surrogateescape")
        if isinstance(raw, Unreadable):
            # Data files are large and none of our business, unless the user names one.
            if candidate.is_wanted or candidate.kind in ("script", "shell"):
                self.unreadable(path, raw.reason)
            return
        self._sort(candidate, candidate.kind or (kind_of_text(raw) if path == NAMELESS else kind_by_content(raw)), raw)

    def _sort(self, candidate: Candidate, kind: str, raw: bytes) -> None:
        path = candidate.path
        # No search word is found in UTF-16, so nothing further on would notice.
        doubtful = candidate.is_wanted or (kind in ("script", "shell") and raw.startswith(_UTF_16))
        if doubtful and kind != "-" and self._text(path, raw) is None:
            return
        if candidate.explicit and kind in ("script", "notebook") and may_train(raw):
            self.out.named.add(path)
        if kind == "script":
            self.out.scripts[path] = raw
            if may_start_processes(raw):
                self.out.launch_files[path] = LaunchFile(path, kind, raw)
        elif kind == "notebook":
            self.out.notebooks[path] = raw
            if may_run_shell(raw):
                self._launch(path, kind, raw)
        elif kind in ("shell", "markdown", "makefile", "dockerfile", "justfile", "tasks"):
            self._launch(path, kind, raw)
        elif kind in ("json", "yaml"):
            self._commands_in_data(path, kind, raw)
            self._data_files.append((path, kind, raw))

    def _commands_in_data(self, path: str, kind: str, raw: bytes) -> None:
        if kind == "yaml" and (may_hold_commands(raw) or may_start_containers(raw)):
            self._launch(path, kind, raw)
        elif _name(path, kind) in ("launch.json", "tasks.json") and may_be_vscode(raw):
            self._launch(path, "vscode", raw)
        elif _name(path, kind) == "package.json" and b'"scripts"' in raw:
            self._launch(path, "tasks", raw)

    def read_data(self) -> None:
        """Recipes, DeepSpeed and accelerate configs."""
        for path, kind, raw in self._data_files:
            self.out.findings += readable(path, partial(self._data, path, kind, raw))
        self._data_files.clear()

    def _text(self, path: str, raw: bytes) -> str | None:
        text = decode(raw)
        if isinstance(text, Unreadable):
            self.unreadable(path, text.reason)
            return None
        return text

    def _launch(self, path: str, kind: str, raw: bytes) -> None:
        may_be = may_launch(raw) or may_write_config(raw) or may_call(raw)
        if may_be or (kind in ("shell", "yaml") and may_start_containers(raw)):
            self.out.launch_files[path] = LaunchFile(path, kind, raw)

    def _data(self, path: str, kind: str, raw: bytes) -> None:
        from dslint.model.deepspeed import detect

        name = _name(path, kind)
        deepspeed = kind == "json" and detect.may_be_deepspeed_config(name, raw)
        accelerate = kind == "yaml" and detect.may_be_accelerate_config(name, raw)
        if b"deepspeed" in raw:
            self._recipe(path, kind, raw)
        section = may_hold_section(raw)
        if not (deepspeed or accelerate or section):
            return
        text = self._text(path, raw) if deepspeed or accelerate else decode(raw)
        if not isinstance(text, str):
            return
        doc = _parsed(SourceFile(path, text), kind)
        if deepspeed and detect.is_deepspeed_config(name, doc.data):
            add_config(self.out, doc)
        elif accelerate and detect.is_accelerate_config(name, doc.data):
            self.out.accelerate.append(doc)
            self.out.findings += syntax_findings(doc)
        elif accelerate and doc.problems and detect.looks_like_accelerate_config(name, text):
            self.out.findings += syntax_findings(doc)
        elif section:
            self._sections(doc, kind)

    def _sections(self, host: DataDoc, kind: str) -> None:
        """The DeepSpeed configs in a file of another program; a YAML file may be one as a whole."""
        from dslint.model.embedded.sections import configs_in, is_json_text

        is_yaml = kind == "yaml" and not is_json_text(host.source)
        if kind == "yaml" and not is_yaml:
            # JSON under another name: whoever reads it as JSON gets other numbers than YAML has.
            host = _parsed(host.source, "json")
        for doc in configs_in(host, is_yaml=is_yaml, may_be_whole=kind == "yaml"):
            if doc.is_embedded:
                self.out.sections.append(doc)
            else:
                add_config(self.out, doc)

    def _recipe(self, path: str, kind: str, raw: bytes) -> None:
        """A file with the arguments of a Trainer that names or holds a DeepSpeed config."""
        if len(raw) > _MOST_BYTES or not (may_be_recipe(raw) or may_hold_section(raw)):
            return
        from dslint.model.plan.recipe import recipe_of

        text = decode(raw)
        doc = _parsed(SourceFile(path, text), kind) if isinstance(text, str) else None
        found = recipe_of(doc) if doc is not None else None
        if found is not None:
            self.out.recipes.append(found)


def readable(path: str, read: Callable[[], None]) -> list[Finding]:
    """Read a file; a reader that fails on one file must not take the others with it."""
    try:
        read()
    except RecursionError:
        return [SYNTAX_ERROR.finding(top_of(path), "nested too deeply to be read")]
    except Exception as error:
        return [crash("the reader of this file", path, error)]
    return []


def unreadable(path: str, reason: str) -> Finding:
    """A file that nobody could judge."""
    return UNREADABLE_FILE.finding(top_of(path), f"not checked: {reason}")


def _name(path: str, kind: str) -> str:
    """The name of a file; standard input without one has that of its format."""
    return f"stdin.{kind}" if path == NAMELESS else path.rsplit("/", 1)[-1]


def _parsed(source: SourceFile, kind: str) -> DataDoc:
    if kind == "yaml":
        from dslint.parse.yamldoc import parse_yaml

        return parse_yaml(source)
    from dslint.parse.jsondoc import parse_json

    return parse_json(source)


def embedded_configs(
    inputs: Inputs, reads: Iterable[LaunchRead], known: dict[str, tuple[bytes, list[DataDoc]]] | None = None
) -> Sequence[DataDoc]:
    """The DeepSpeed configs inside data files, shell scripts, Python files and notebooks.

    ``known`` are those of earlier runs by path, with the bytes in which they were found; it takes the others.
    """
    docs = [*inputs.sections, *(written.doc for read in reads for written in read.written)]
    known = {} if known is None else known
    for kind, group in (("script", inputs.scripts), ("notebook", inputs.notebooks)):
        for path, raw in group.items():
            before = known.get(path)
            if before is None or before[0] is not raw:
                found = _python_configs(path, raw, kind, inputs.findings) if may_hold_config(raw) else []
                before = known[path] = raw, found
            docs += before[1]
    return docs


def _python_configs(path: str, raw: bytes, kind: str, findings: list[Finding]) -> list[DataDoc]:
    from dslint.model.embedded.python import python_configs
    from dslint.parse.notebook import read_notebook

    text = decode(raw)
    source = SourceFile(path, text) if isinstance(text, str) else None
    try:
        if source is not None and kind == "notebook":
            notebook = read_notebook(path, source.text)
            source = notebook if isinstance(notebook, SourceFile) else None
        docs = list(python_configs(source)) if source is not None else []
    except Exception as error:
        findings.append(crash("the reader of configs in this file", path, error))
        return []
    for doc in docs if kind == "notebook" else ():
        doc.dialect = "none"  # edits of the joined cells cannot be written back into the JSON of a notebook
    return docs


def add_config(inputs: Inputs, doc: DataDoc) -> None:
    """Judge a document as a DeepSpeed config."""
    inputs.configs.append(doc)
    inputs.findings += syntax_findings(doc)


def syntax_findings(doc: DataDoc) -> Sequence[Finding]:
    """The places of a config that its format does not allow."""
    return [SYNTAX_ERROR.finding(doc.source.location(p.span), p.message, severity=Severity.ERROR) for p in doc.problems]


def not_followed(calls: Sequence[Location]) -> Finding:
    """Scripts that a launch file calls, and that are not read with the arguments of these calls."""
    message = (
        "not all checked: the scripts that this file calls start more commands than are followed; what is called from"
        " here on is judged without its arguments"
    )
    others = tuple(call.labelled("nor this one") for call in calls[1:4])
    return UNREADABLE_FILE.finding(calls[0], message, related=others, severity=Severity.INFO)
