"""Whether a file that a command names is made, fetched or mounted before the command runs.

Then what lies on the disk now, or does not, says nothing about the run.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from functools import cached_property
from itertools import accumulate

from dslint.core.source import SourceFile, Span
from dslint.model.plan.files import Files

# A comment or an assignment.
_HARMLESS = re.compile(r"\s*(?:#|(?:export\s+|local\s+)?\w+=)")
# A name that the reader of a documentation replaces by his own.
_PLACEHOLDER = re.compile(
    r"(?:^|/)(?:path[_/-]?to|your|my|some|foo|bar|x{2,})(?:[_./-]|$)|(?:^|[/_-])your(?:[/_.-]|$)|[<>{}%@\[\]…]|\.\.\.",
    re.I,
)
# ``DS_CONFIG.json``: files are not called that, variables are.
_SHOUTED = re.compile(r"(?:^|/)[A-Z]+_[A-Z_]*[A-Z](?:/|\.\w+$)")
# A script that writes files may write its config.
_SCRIPT_WRITES = re.compile(
    r"json\.dump\(|yaml\.\w*dump\(|\.write(?:_text)?\(|[\"']w[bt+]?[\"']|shutil\.copy|hf_hub_download"
)
_WRITES = r"(?:>>?|\b(?:tee|cp|mv|ln|install|wget|curl|sed -i|jq|envsubst|git clone|touch)\b)"
_WRITING = re.compile(_WRITES)
_WRITES_VARIABLE = re.compile(rf"{_WRITES}[^\n;|&]*?\$\{{?(\w+)")
# The `>` of these tags of a document writes nothing.
_PREFORMATTED = re.compile(r"</?pre\b[^<>\n]*>")
# Commands that bring files whose names they do not say, and what follows them.
_BRINGS = re.compile(
    r"(?:^|[;&|(]|\bsudo|\b(?:then|do))[ \t]*((?:cp|mv|ln|rsync|scp|unzip|tar|wget|curl|gsutil|azcopy|rclone|dvc)\b"
    r"|git (?:clone|submodule)\b|aws s3\b|gcloud storage\b|(?:huggingface-cli|hf) download\b|axolotl fetch\b)"
    r"([^\n;|&]*)",
    re.MULTILINE,
)
_UNPACKS = re.compile(r"unzip\b|tar\s+(?:-?\w*x|--extract|--get)")
_INTO = re.compile(r"\s(?:-d|-C|--directory)[ =]?\s*(\S+)")
_HERE = frozenset({".", "./", "$PWD", "${PWD}", "$(pwd)"})
_BETWEEN_WORDS = re.compile(r"[\s;|&()\"'=<>`]+")
# A longer line is data: it must not cost a quadratic search.
_MAX_LINE = 4000
# What stands before the script of a launch; before the name of a file that a launch hands over.
_STARTS = re.compile(r"\s*(?:(?:\w+=\S*\s+)*\S*(?:python[\d.]*|torchrun|deepspeed|launch|srun)\s[^;|&<>]*?)?")
_HANDED = re.compile(r"(?:--\w*(?:deepspeed|config|hostfile)\w*|-H)[ =]\S*\Z")
_WORD, _ENDS = re.compile(r"\S+"), re.compile(r"[;|&<>=]")
_VARIABLE = re.compile(r"\$\{?(\w+)")


class _Texts:
    """What the commands of a launch file write, worked out once for all of its commands."""

    def __init__(self, source: SourceFile) -> None:
        self.shell = _shell(source)
        # No match spans lines.
        self._lines = self.shell.split("\n")
        # Variables behind a command that writes.
        self.targets: Sequence[str] = _WRITES_VARIABLE.findall("\n".join(line for line in self._lines if "$" in line))
        self._direct: dict[frozenset[str], int] = {}
        self._values: dict[str, Sequence[Sequence[str]]] = {}
        self._source = source

    @cached_property
    def brings(self) -> Sequence[tuple[str, str]]:
        """Commands that bring files, and the words that follow them, without quotation marks."""
        found = _BRINGS.findall(self.shell)
        return [(tool, rest.replace('"', "").replace("'", "")) for tool, rest in found]

    @cached_property
    def _commands(self) -> Sequence[str]:
        """The lines of the file, empty where they are no command."""
        return [line if _is_command(line) else "" for line in self._source.text.splitlines()]

    @cached_property
    def _begins(self) -> Sequence[int]:
        """Where each of these lines begins."""
        return [0, *accumulate(map(len, self._source.text.splitlines(keepends=True)))][:-1]

    @cached_property
    def _tools(self) -> Sequence[tuple[int, Sequence[str]]]:
        """The number of each line that speaks of scripts, with their names."""
        return [(row, words) for row, line in enumerate(self._commands) if (words := _scripts_in(line))]

    def _rows(self, span: Span) -> tuple[int, int, str, str]:
        """The lines of the begin and the end of a command, and the commands before and behind it on them."""
        text, begins = self._source.text, self._begins
        first, last = (max(bisect_right(begins, at) - 1, 0) for at in (span.start, span.end))
        end = begins[last + 1] if last + 1 < len(begins) else len(text)
        head, tail = text[begins[first] : span.start] if begins else "", text[span.end : end].rstrip("\r\n")
        return first, last, head if _is_command(head) else "", tail if _is_command(tail) else ""

    def tools_before(self, span: Span) -> Iterator[str]:
        """Names of scripts in the commands before a command."""
        first, _, head, _ = self._rows(span)
        for row, words in self._tools:
            if row < first:
                yield from words
        yield from _scripts_in(head)

    def mentions(self, parts: Sequence[str], span: Span) -> Iterator[str]:
        """The lines of commands that hold one of these texts, besides the text of a command itself."""
        text = self._source.text
        # Most names stand in their command only.
        if any(text.find(part, 0, span.start) >= 0 or text.find(part, span.end) >= 0 for part in parts):
            first, last, head, tail = self._rows(span)
            for line in (*self._commands[:first], head, tail, *self._commands[last + 1 :]):
                if any(part in line for part in parts):
                    yield line

    def direct(self, names: set[str]) -> int:
        """How many commands may write a file with one of these names, or to one of these variables."""
        key = frozenset(names)
        if key not in self._direct:
            lines = [line for line in self._lines if not names or any(name in line for name in names)]
            written = "\n".join(filter(_WRITING.search, lines))
            pattern = "|".join(rf"\b{re.escape(name)}\b" for name in sorted(names))
            self._direct[key] = len(re.findall(rf"{_WRITES}[^\n;|&]*(?:{pattern})", written)) if written else 0
        return self._direct[key]

    def may_hold(self, variable: str, text: str) -> bool:
        """An assignment of the variable can have given it this text, other variables standing for anything."""
        if variable not in self._values:
            values = re.findall(rf"\b{variable}=[\"']?([^\s\"';]+)", self.shell)
            self._values[variable] = [re.split(r"\$\{?\w+[^}/]*\}?|\$\w+", value) for value in values]
        return any(
            any(parts) and text.startswith(parts[0]) and re.fullmatch(".*".join(map(re.escape, parts)), text)
            for parts in self._values[variable]
        )


def is_written(files: Files, text: str, raw: str = "") -> bool:
    """The launch file creates or changes this file, so what lies on the disk is not what runs."""
    return writes(files, text, raw) > 0


def writes(files: Files, text: str, raw: str = "") -> int:
    """How many commands of the launch file may write this file."""
    texts = _texts(files)
    if texts is None:
        return 0
    names = {posixpath.basename(text), *_VARIABLE.findall(raw)} - {""}
    return texts.direct(names) + sum(texts.may_hold(v, text) for v in texts.targets if v not in names)


def may_appear(files: Files, text: str, raw: str = "", named_by: str = "", is_ours: bool = False) -> bool:
    """A file that is nowhere may still be there when the command runs.

    True outside the project, where the working directory is unknown, and where another command or the script
    itself mentions the file or its folder. ``named_by`` is the path of the file that names it. ``is_ours``: the
    command certainly means a file of this project.
    """
    workspace = files.workspace
    if workspace.is_start:
        return files.command.cwd.is_unknown or _is_made(files, text, raw, named_by)
    if text.startswith(("/", "~")) or _PLACEHOLDER.search(text) or _SHOUTED.search(text) or _is_away(files):
        return True
    if all(workspace.normal(posixpath.join(f, text)).startswith("..") for f in files.folders):
        return True
    if not (is_ours or _is_at_home(files, text)) or _is_ignored(files, text) or _is_in_submodule(files, text):
        return True
    return _is_made(files, text, raw, named_by)


def _is_made(files: Files, text: str, raw: str, named_by: str) -> bool:
    """A command of the launch file, or the script itself, may make the file before it is read."""
    workspace = files.workspace
    if is_written(files, text, raw):
        return True
    name = posixpath.basename(text)
    script = workspace.read(files.script_path) if files.script_path else None
    if script is not None and name in script.text:
        is_own = named_by == files.script_path and script.text.count(name) == 1
        if not is_own or _SCRIPT_WRITES.search(script.text):
            return True
    return is_mentioned(files, text, raw) or _is_brought(files, text) or _a_tool_writes(files, name)


def is_mentioned(files: Files, text: str, raw: str = "") -> bool:
    """Another command of the launch file speaks of the file: it may make it."""
    texts = _texts(files)
    if texts is None:
        return False
    name, variables = posixpath.basename(text), _VARIABLE.findall(raw)
    patterns = [re.compile(rf"\$\{{?{variable}\b") for variable in variables]
    parts = [name, *(f"{begin}{variable}" for variable in variables for begin in ("$", "${"))]
    for line in texts.mentions(parts, files.command.location.span):
        if name in line and not _hands_over(line, name, _spots(line, name)):
            return True
        for pattern in patterns:
            spots = [match.start() for match in pattern.finditer(line)]
            if spots and not _hands_over(line, "", spots):
                return True
    return False


def _texts(files: Files) -> _Texts | None:
    return files.workspace.memo("written texts", files.launch_path, _Texts)


def _shell(source: SourceFile) -> str:
    text = _PREFORMATTED.sub(" ", source.text) if "<pre" in source.text else source.text
    return "\n".join(line for line in text.splitlines() if len(line) < _MAX_LINE)


def _is_command(line: str) -> bool:
    """The line is no comment, no assignment and no data."""
    return len(line) < _MAX_LINE and not _HARMLESS.match(line)


def _scripts_in(line: str) -> Sequence[str]:
    """The words of a line that name scripts."""
    if ".py" not in line and ".sh" not in line:
        return ()
    return [word for word in _BETWEEN_WORDS.split(line) if word.endswith((".py", ".sh"))]


def _is_away(files: Files) -> bool:
    """The command runs in a folder that is unknown or not in this project."""
    cwd = files.command.cwd
    return not any(map(files.workspace.exists, files.after_cd())) if cwd.is_known else cwd.is_unknown


def _is_at_home(files: Files, text: str) -> bool:
    """The command runs in this project: its script is here, or at least the folder of the file is."""
    folder = posixpath.normpath(posixpath.dirname(text) or ".")
    return bool(files.script_path) or (
        posixpath.basename(folder) not in (".", "..")
        and any(files.workspace.exists(posixpath.join(f, folder)) for f in files.folders)
    )


def _is_ignored(files: Files, text: str) -> bool:
    """git ignores the file, so that it stands only where it is used."""
    name = posixpath.basename(text)
    own = {posixpath.dirname(files.workspace.normal(posixpath.join(folder, text))) for folder in files.folders}
    for folder in dict.fromkeys((*files.workspace.bases(files.launch_path), *sorted(own))):
        ignores = files.workspace.memo("ignored names", posixpath.join(folder, ".gitignore"), _ignores)
        if ignores is not None and (ignores(name) or ignores(text)):
            return True
    return False


def _is_in_submodule(files: Files, text: str) -> bool:
    """The file is in a submodule of git, whose files come with `git submodule update`."""
    places = [files.workspace.normal(posixpath.join(folder, text)) for folder in files.folders]
    for base in files.workspace.bases(files.launch_path):
        paths = files.workspace.memo("submodules", posixpath.join(base, ".gitmodules"), _submodules) or ()
        if any(place.startswith(f"{posixpath.join(base, path)}/") for path in paths for place in places):
            return True
    return False


def _submodules(source: SourceFile) -> tuple[str, ...]:
    """The folders of the submodules that a ``.gitmodules`` names."""
    return tuple(
        match[1].strip().strip("/") for match in re.finditer(r"^\s*path\s*=\s*(.+)$", source.text, re.MULTILINE)
    )


def _ignores(source: SourceFile) -> Callable[[str], object]:
    """Whether a pattern of a ``.gitignore`` is a name, or matches it."""
    patterns = [line.strip().strip("/") for line in source.text.splitlines()]
    return re.compile("|".join(translate(p) for p in patterns if p and p[0] not in "#!") or r"(?!)").match


def _is_brought(files: Files, text: str) -> bool:
    """A command copies, fetches or unpacks something into the folder of the file, or into the working directory."""
    texts = _texts(files)
    folders = {part for part in posixpath.dirname(text).split("/") if part not in ("", ".", "..")}
    for tool, rest in texts.brings if texts is not None else ():
        words = rest.split()
        if any(folders & set(re.split(r"[/:.]", word)) for word in words) or words[-1:] in ([h] for h in _HERE):
            return True
        into = _INTO.search(rest)
        if _UNPACKS.match(tool + rest) and (into is None or into[1] in _HERE):
            return True
    return False


def _a_tool_writes(files: Files, name: str) -> bool:
    """A script of this project that runs before the command speaks of the file, or writes files of its kind."""
    texts, kind = _texts(files), posixpath.splitext(name)[1]
    for word in dict.fromkeys(texts.tools_before(files.command.location.span)) if texts is not None else ():
        path = files.find(word)
        tool = files.workspace.read(path) if path is not None and path != files.script_path else None
        if tool is None or tool.path == files.launch_path:
            continue
        if name in tool.text or (kind != ".py" and kind in tool.text and _SCRIPT_WRITES.search(tool.text)):
            return True
    return False


def _hands_over(line: str, name: str, spots: Iterable[int]) -> bool:
    """Another launch hands the same file to its script or launcher, or starts the same script.

    ``spots`` are the places where the file stands in the line, by this name or in a variable.
    """
    if name.endswith(".py"):
        for word in _WORD.finditer(line):
            before = word[0].removesuffix(name)
            if before != word[0] and not _ENDS.search(before) and _STARTS.fullmatch(line, 0, word.start()):
                return True
    return any(_HANDED.search(line, 0, spot) for spot in spots)


def _spots(line: str, name: str) -> Iterator[int]:
    at = line.find(name)
    while at >= 0:
        yield at
        at = line.find(name, at + 1)
