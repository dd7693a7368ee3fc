"""DeepSpeed configs that a script makes of other files and texts: ``sed``, ``jq``, ``envsubst``, ``echo``, ``cp``.

The commands are followed one after the other, file by file. What a text comes from keeps its place: of a template that
is in the template, of a filter in the script. A file that something else has written is not known any more.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from dslint.core.fact import Fact
from dslint.core.source import SourceFile, Span
from dslint.model.embedded.heredoc import WrittenConfig, config_in, target_of, written_text
from dslint.model.embedded.pythontext import written_by_python
from dslint.model.embedded.shelltext import MARK, Change, Written
from dslint.model.embedded.tools import jq, sed
from dslint.model.embedded.words import Command, operands, pipe_at
from dslint.model.launch.launchers.interpreter import is_python
from dslint.model.shell.commands import Heredoc, Invocation
from dslint.model.shell.scope import Scope
from dslint.parse.data import DataDoc
from dslint.parse.shell import ShellDoc

_WITH_VALUE = frozenset({"-e", "--expression", "-f"})
_PLAIN_OPTIONS = frozenset({"-r", "-c", "-M", "-S", "-e", "--tab", "--compact-output", "--sort-keys", "--raw-output"})
_NAMES = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_RUNS_PYTHON = re.compile(r"\s*(?:\w+=\S*\s+)*(?:\S*/)?python[\d.]*(?:\s+-u)?(?:\s+-(?=\s|$)[^|;&]*)?\s*$")
_REDIRECTED = re.compile(r">\s*([^\s;|&<>]+)")
Content = Written | DataDoc


@dataclass(frozen=True, slots=True)
class State:
    """What a file holds, ``None`` where nobody knows, and how many commands have made it so."""

    content: Content | None
    steps: int


@dataclass(slots=True)
class WrittenFiles:
    """The files that one script writes, as far as its commands have been read.

    ``find`` finds the files of the project that a command reads.
    """

    shell: ShellDoc
    find: Callable[[str, Scope], SourceFile | None]
    states: dict[str, State] = field(default_factory=dict)

    def heredoc(self, heredoc: Heredoc) -> list[WrittenConfig]:
        """Note what a heredoc writes as it is; return the configs that it writes as a program."""
        if _RUNS_PYTHON.match(heredoc.head.partition("<<")[0]):
            return written_by_python(written_text(self.shell, heredoc), self.shell.base + heredoc.start)
        target = target_of(heredoc)
        if target is not None:
            self.states[posixpath.normpath(target)] = State(written_text(self.shell, heredoc), 1)
        return []

    def run(self, invocation: Invocation) -> list[WrittenConfig]:
        """Follow the command, and the pipe that ends with it; return the configs that it writes."""
        pipe = pipe_at(invocation.node, self.shell, invocation.scope)
        if pipe == []:
            return []
        if pipe is None or invocation.conditions:  # a test decides what it writes
            self._lose(invocation)
            return []
        scope, env = invocation.scope, invocation.env
        at = invocation.words[0].location.span.start
        if len(pipe) == 1 and is_python(pipe[0].name):
            words = pipe[0].words
            code = next((b for a, b in pairwise(words) if a.text == "-c"), None)
            return written_by_python(code, at) if code is not None else []
        made = self._moved(pipe, scope) if pipe[-1].name in ("cp", "mv", "install") else self._piped(pipe, scope, env)
        found = []
        for target, state in made.items():
            self.states[posixpath.normpath(target)] = state
            config = config_in(state.content, target, at, state.steps) if state.content is not None else None
            if config is not None:
                found.append(config)
        return found

    def _lose(self, invocation: Invocation) -> None:
        """Know nothing more of the files that a command names."""
        around = invocation.node.parent or invocation.node
        redirected = _REDIRECTED.findall(self.shell.raw(around)) if around.type == "redirected_statement" else []
        for name in (*(word.text for word in invocation.words[1:]), *(text.strip("\"'") for text in redirected)):
            if name:
                self.states[posixpath.normpath(name)] = State(None, 0)

    def _moved(self, pipe: list[Command], scope: Scope) -> dict[str, State]:
        files = [word for option, word in operands(pipe[-1]) if not option]
        if len(files) != 2 or MARK in files[0].text + files[1].text:
            return {}
        state = self._state(files[0].text, scope)
        target = files[1].text
        if target.endswith("/"):
            target += files[0].text.rpartition("/")[2]
        return {target: State(state.content, state.steps + 1)}

    def _piped(self, pipe: list[Command], scope: Scope, env: dict[str, Fact[str]]) -> dict[str, State]:
        state = State(None, 0)
        made: dict[str, State] = {}
        for number, command in enumerate(pipe):
            state = self._output(command, state if number else None, scope, env)
            targets = [command.output] if command.output is not None and not command.appends else []
            if command.name in ("tee", "sponge"):
                targets += [word for option, word in operands(command) if not option]
            if command.name == "sed" and _in_place(command):
                targets += _files(command)[1]
            for target in targets:
                if MARK not in target.text:
                    made[target.text] = state
        return made

    def _output(self, command: Command, piped: State | None, scope: Scope, env: dict[str, Fact[str]]) -> State:
        """Return what a command writes to its output."""
        if command.name in ("echo", "printf"):
            return State(_spoken(command), 1)
        before = piped
        if command.text is not None:
            before = State(command.text, 0)
        elif command.input is not None:
            before = self._state(command.input.text, scope)
        script, files = _files(command)
        if files and command.name in ("cat", "sed", "jq"):
            before = self._state(files[0].text, scope) if len(files) == 1 else None
        if before is None or before.content is None:
            return State(None, 0)
        return State(_after(command, before.content, script, env), before.steps + 1)

    def _state(self, name: str, scope: Scope) -> State:
        """Return what a file holds: what the script has written there, or the file of the project."""
        key = posixpath.normpath(name)
        if key in self.states:
            return self.states[key]
        source = self.find(name, scope) if MARK not in name else None
        return State(Written.of_file(source), 0) if source is not None else State(None, 0)


def _after(command: Command, content: Content, script: list[Written], env: dict[str, Fact[str]]) -> Content | None:
    """Return what a command makes of its input."""
    if command.name == "sed":
        return _edited(content, command, script)
    if command.name == "envsubst":
        return _filled(content, command, env)
    if command.name == "jq":
        return _filtered(content, command, script, env)
    return content if command.name in ("cat", "tee", "sponge") else None


def _in_place(command: Command) -> bool:
    return any(re.fullmatch(r"-[nErsz]*i(?:\.\w+)?|--in-place(?:=.*)?", word.text) for word in command.words[1:])


def _files(command: Command) -> tuple[list[Written], list[Written]]:
    """Return the expressions of a command, and the files that it reads."""
    if command.name == "jq":
        words = _jq_words(command)[0]
        return words[:1], words[1:]
    given = list(operands(command, with_value=_WITH_VALUE))
    words = [word for option, word in given if not option]
    if command.name == "sed":
        scripts = [word for option, word in given if option in ("-e", "--expression")]
        return (scripts, words) if scripts else (words[:1], words[1:])
    return [], words


def _spoken(command: Command) -> Written | None:
    """Return the text that ``echo`` or ``printf`` writes."""
    words = list(command.words[1:])
    if command.name == "echo" and words and re.fullmatch(r"-[neE]+", words[0].text):
        if "e" in words[0].text and any("\\" in word.text for word in words[1:]):
            return None
        words = words[1:]
    if command.name == "printf" and len(words) == 2 and words[0].text in ("%s", "%s\\n", "%b", "%b\\n"):
        words = words[1:]
    elif command.name == "printf" and (len(words) != 1 or "%" in words[0].text or "\\" in words[0].text[:-2]):
        return None
    return words[0] if len(words) == 1 else None


def _edited(content: Content, command: Command, script: list[Written]) -> Written | None:
    if not isinstance(content, Written):
        return None
    options = {option for option, _ in operands(command, with_value=_WITH_VALUE) if option}
    if any(
        not re.fullmatch(r"-[Eri]+(?:\.\w+)?|-e|--expression|--in-place(?:=.*)?|--regexp-extended", o) for o in options
    ):
        return None
    extended = any(re.fullmatch(r"-[i]*[Er][Eri]*|--regexp-extended", option) for option in options)
    for expression in script:
        steps = sed.substitutions(expression.text, extended=extended)
        if steps is None:
            return None
        place = expression.source.location(expression.span(Span(0, len(expression.text))), "changed here")
        content = sed.substituted(content, steps, place)
    return content


def _filled(content: Content, command: Command, env: dict[str, Fact[str]]) -> Written | None:
    """Return the text after ``envsubst``, which sees what is exported."""
    if not isinstance(content, Written):
        return None
    words = [word for option, word in operands(command) if not option]
    only = {a or b for word in words for a, b in _NAMES.findall(word.text)} if words else None
    changes = []
    for match in _NAMES.finditer(content.text):
        name = match[1] or match[2]
        if only is None or name in only:
            fact = env.get(name)
            text = fact.get() if fact is not None and fact.is_known else MARK
            place = fact.origins[-1] if fact is not None and fact.is_known and fact.origins else None
            changes.append(Change(match.start(), match.end(), text, place))
    return content.changed(changes)


def _filtered(content: Content, command: Command, script: list[Written], env: dict[str, Fact[str]]) -> DataDoc | None:
    """Return the document after ``jq``."""
    _, variables, is_plain = _jq_words(command)
    doc = content.document() if isinstance(content, Written) else content
    if not script or not is_plain or doc.problems or not isinstance(doc.data, dict):
        return None
    known = {name: fact.get() for name, fact in env.items() if fact.is_known}
    steps = jq.Filter(script[0].text, variables, known).assignments()
    return jq.filtered(doc, steps, jq.places_of(script[0], steps)) if steps is not None else None


def _jq_words(command: Command) -> tuple[list[Written], dict[str, object], bool]:
    """Return the filter and files of ``jq``, its variables, and whether its options change nothing of the data."""
    pending = iter(command.words[1:])
    words: list[Written] = []
    variables: dict[str, object] = {}
    is_plain = True
    for word in pending:
        if word.text in ("--arg", "--argjson"):
            name, value = next(pending, None), next(pending, None)
            if name is not None and value is not None:
                text = value.text
                variables[name.text] = jq.UNKNOWN if MARK in text else text if word.text == "--arg" else jq.parsed(text)
        elif word.text == "--indent":
            next(pending, None)
        elif not word.text.startswith("-"):
            words.append(word)
        else:
            is_plain = is_plain and word.text in _PLAIN_OPTIONS
    return words, variables, is_plain
