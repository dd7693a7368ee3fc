"""Command lines inside command lines: ``eval``, ``bash -c``, ``ssh``, ``sbatch --wrap``, heredocs, called scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dslint.core.fact import Fact
from dslint.core.source import Location, SourceFile, Span
from dslint.model.firstlook import makes_config, makes_files, may_be_config, may_call, may_change, may_launch
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.commandlines import Outer, Shell, names_launcher
from dslint.model.launch.evaluated import (
    filled_text,
    handed_on,
    holds_parts,
    holds_plain_words,
    reads_as_written,
    with_exports,
)
from dslint.model.launch.images import with_entrypoint
from dslint.model.launch.innerstate import cut, exported, inherited, inside, machine_facts, remote, under, within
from dslint.model.launch.launchers.environment import READ
from dslint.model.launch.launchers.hetsteps import joined_parts, parts_of_step
from dslint.model.launch.read import may_begin, read_command
from dslint.model.launch.texts import may_start
from dslint.model.launch.unseen import Quoted
from dslint.model.shell.batchjob import job_directives, job_variables
from dslint.model.shell.commands import Heredoc, Invocation, kept_template
from dslint.model.shell.functions import bind_words
from dslint.model.shell.overwriting import marked, sets_again
from dslint.model.shell.scope import NOT_EXPORTED, Scope
from dslint.model.shell.values import read_statements
from dslint.parse.shell import ShellDoc, parse_shell

if TYPE_CHECKING:
    from dslint.model.embedded.heredoc import WrittenConfig
    from dslint.model.embedded.writing import WrittenFiles

# Command lines inside words inside words: nobody writes more.
DEPTH = 3
# Commands that the calls of one text start, and characters of a script that is read again for a call.
MOST_CALLED = 64
_ARGUMENT = re.compile(r"\$\{?[#!]?[1-9@*#]|\bshift\b|\bgetopts\b")
# ``"$@"``, ``$*``, ``"${@:-bash}"``: the words of the call are a command, or go into one.
_ALL_ARGUMENTS = re.compile(r"\$(?:\{[@*]|[@*])")
_NAME = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
# A script that starts more than so many commands chooses among them: which ones a call starts is not clear.
_MOST_OF_A_CALL = 16
_MOST_IN_VAIN = 2
LONGEST = 200_000
# Finds the file that a path means in a script, given the state that the script is in.
Locate = Callable[[str, Scope, str], "SourceFile | None"]
# Commands among which the same one is looked for: more than a command has alternatives.
_NEIGHBOURS = 32
# Commands that run what a heredoc holds, or hand it to a batch system.
_RUNS = re.compile(r"(?:^|[\s;&|(/])(?P<name>sbatch|srun|salloc|qsub|bsub|bash|zsh|sh|ssh|docker|kubectl)\b")
_WRITES = re.compile(r">>?\s*\S+|\btee\b")
_SCRIPT = re.compile(r"\s*#!.*\b(?:ba|z)?sh\b|^#SBATCH", re.MULTILINE)


@dataclass(slots=True)
class TextReader:
    """Reads the launch commands of one shell text and of the texts inside it.

    ``locate`` finds the file that a path means in a script. ``chain`` are the paths of the scripts that are being read,
    outermost first: a script is read once more for each call of it.
    ``inner`` collects the texts inside that stand in the file as they are run, ``written`` the DeepSpeed configs that
    a script writes, ``called`` what other scripts start when they are called as this text calls them.
    """

    in_docs: bool
    locate: Locate
    chain: tuple[str, ...]
    inner: list[ShellDoc] = field(default_factory=list)
    written: list[WrittenConfig] = field(default_factory=list)
    called: list[LaunchCommand] = field(default_factory=list)
    # Calls that are not followed, because what is called starts too many commands.
    left_out: list[Location] = field(default_factory=list)
    # Names of programs that the project installs.
    programs: Collection[str] = ()
    # The names of the scripts that the text itself calls, with the state of the shell.
    calls: list[tuple[Word, Scope]] = field(default_factory=list)
    # Command lines in single quotes that start a run.
    quoted: list[Quoted] = field(default_factory=list)
    # How many calls of a script said nothing.
    in_vain: dict[str, int] = field(default_factory=dict)
    # The files that the script makes of others, where a config may be among them.
    files: WrittenFiles | None = None

    def find_file(self, path: str, scope: Scope) -> SourceFile | None:
        """The file of the project that a script sources."""
        return self.locate(path, scope, self.chain[-1])

    def script(
        self,
        shell: ShellDoc,
        scope: Scope,
        outer: Outer,
        around: Mapping[str, Fact[str]],
        depth: int,
        over: Mapping[str, Fact[str]] | None = None,
    ) -> list[LaunchCommand]:
        """A text that may have directives for a queue (``#SBATCH``, ``#PBS``, ``#BSUB``) of its own.

        ``around`` are those of what starts it, ``over`` the options of ``sbatch``, which win.
        """
        directives = {**around, **job_directives(shell), **(over or {})}
        for name, value in job_variables(directives).items():
            scope.assign(name, value, export=True)
        return self.commands(shell, scope, directives, outer, depth)

    def commands(
        self, shell: ShellDoc, scope: Scope, directives: Mapping[str, Fact[str]], outer: Outer, depth: int
    ) -> list[LaunchCommand]:
        """The launch commands of a text, in its order."""
        out: list[LaunchCommand] = []
        self._follow_files(shell, depth)
        for item in read_statements(shell, self.wanted, scope, self.find_file, self.may_begin):
            if depth >= DEPTH and isinstance(item, Heredoc):
                continue
            if self.files is not None and self.files.shell is shell:
                self._note_files(item, out)
            found = (
                self._heredoc(item, shell, directives, depth)
                if isinstance(item, Heredoc)
                else self._invocation(item, shell, directives, outer, depth)
            )
            for command in found:
                _add(command, out)
        return out

    def _follow_files(self, shell: ShellDoc, depth: int) -> None:
        """Begin to follow the files that a script writes, where it may make a config of others."""
        if depth or self.in_docs or shell.anchor is not None or not makes_config(shell.text):
            return
        from dslint.model.embedded.writing import WrittenFiles

        self.files = WrittenFiles(shell, self.find_file)

    def _note_files(self, item: Invocation | Heredoc, before: list[LaunchCommand]) -> None:
        """Follow a command that may write files; what it replaces counts where a launch stands between the two."""
        if self.files is None:
            return
        if isinstance(item, Heredoc):
            self.written += self.files.heredoc(item)
        elif item.words and makes_files(item.words[0].text or ""):
            last = before[-1].location.span.start if before else -1
            for new in self.files.run(item):
                self.written = [w for w in self.written if w.target != new.target or w.at < last] + [new]

    def _invocation(
        self, invocation: Invocation, shell: ShellDoc, directives: Mapping[str, Fact[str]], outer: Outer, depth: int
    ) -> list[LaunchCommand]:
        raws = [w.raw for w in invocation.words]
        kept = kept_template(raws[1:] if raws[:1] == ["eval"] else raws, invocation.scope)
        if kept is not None and depth < DEPTH and reads_as_written(shell, kept, raws):
            text = kept.text if raws[-1].startswith('"') else _one_line(kept.text)
            inner = parse_shell(shell.source, text, kept.start)
            scope = with_exports(kept, invocation.scope)
            return under(self.commands(inner, scope, directives, outer, depth + 1), invocation)
        if kept is not None and raws[0] == "eval" and depth < DEPTH and shell.anchor is None:
            scope = with_exports(kept, invocation.scope)
            filled = filled_text(shell, kept, scope)
            if filled is not None:
                place = Span(invocation.words[0].location.span.start, invocation.words[-1].location.span.end)
                inner = parse_shell(shell.source, filled, 0, place)
                return under(self.commands(inner, scope, directives, outer, depth + 1), invocation)
        parts = parts_of_step(invocation.words)
        if len(parts) > 1:
            return self._parts(parts, invocation, shell, directives, outer, depth)
        env = {**invocation.env, **directives}
        cwd = invocation.scope.cwd
        read = read_command(invocation.words, env, shell.source, outer, cwd, self.in_docs, self.programs)
        words = None if read is not None else with_entrypoint(invocation, shell, self.find_file)
        if words is not None:
            read = read_command(words, env, shell.source, outer, cwd, self.in_docs, self.programs)
        if isinstance(read, LaunchCommand):
            return under([read], invocation)
        read = read or self.program(invocation, outer)
        if read is None or depth >= DEPTH:
            return []
        return self._inside(read, invocation, shell, directives, depth)

    def _inside(
        self, read: Shell, invocation: Invocation, shell: ShellDoc, directives: Mapping[str, Fact[str]], depth: int
    ) -> list[LaunchCommand]:
        """What a command line inside the words of a command starts, or a script that they name."""
        seen = inside(read, invocation)
        directives = {**directives, **machine_facts(read)}
        if read.kind == "script":
            self.call(read, seen, directives, depth)
            return []
        nested = self._nested(read, shell, seen)
        if nested is None:
            return []
        if read.kind in ("ssh", "batch"):
            found = self.script(*nested, read.outer, read.directives, depth + 1)
        else:
            found = self.commands(*nested, {**directives, **read.directives}, read.outer, depth + 1)
        if found and not depth:
            self._keep_quoted(Quoted(nested[0], read, invocation, seen))
        return under(within(found, read.around), invocation)

    def _parts(
        self,
        parts: Sequence[tuple[Word, ...]],
        invocation: Invocation,
        shell: ShellDoc,
        directives: Mapping[str, Fact[str]],
        outer: Outer,
        depth: int,
    ) -> list[LaunchCommand]:
        """The parts of a step with several programs."""
        before = len(self.called)
        each = [self._invocation(replace(invocation, words=p), shell, directives, outer, depth) for p in parts]
        self.called[before:] = joined_parts([*each, self.called[before:]])[sum(map(len, each)) :]
        return joined_parts(each)

    def _keep_quoted(self, found: Quoted) -> None:
        if len(self.chain) == 1 and found.text.anchor is None and found.call.words[0].raw.startswith("'"):
            self.quoted.append(found)

    def wanted(self, raw: str) -> bool:
        """Whether a command may be a launch, or a heredoc a config."""
        is_passed_on = len(self.chain) > 1 and _ALL_ARGUMENTS.search(raw) is not None
        return may_start(raw) or is_passed_on or may_be_config(raw) or (self.files is not None and may_change(raw))

    def may_begin(self, first: str) -> bool:
        """Whether a command that begins with this word may be worth reading."""
        if self.files is not None and makes_files(first):
            return True
        return may_begin(first) or first in self.programs

    def program(self, invocation: Invocation, outer: Outer) -> Shell | None:  # noqa: ARG002
        """What a program that is no launcher runs."""
        return None

    def started(self, call: Shell, invocation: Invocation) -> Scope:  # noqa: ARG002
        """The state of a shell of its own that a command starts."""
        return exported(invocation)

    def call(self, call: Shell, invocation: Invocation, directives: Mapping[str, Fact[str]], depth: int) -> None:
        """Read the script with its arguments and the variables that it inherits; what it starts is ``called``.

        By itself the script is read with its own file: a call that hands nothing over adds nothing to that. What Slurm
        gives a job and ``srun`` a step is handed over, too.
        """
        name, *arguments = call.words
        if len(self.chain) == 1 and not invocation.conditions:
            self.calls.append((name, invocation.scope))
        names = {variable for variable, fact in invocation.env.items() if fact.is_known}
        is_handed = call.is_job and any(not f.reason.endswith(NOT_EXPORTED) for f in invocation.env.values())
        is_in_job = bool(directives or call.directives or call.outer.name) or is_handed
        if not (is_in_job or names or any(w.text is not None for w in arguments)) or len(self.chain) > DEPTH:
            return
        source = self.locate(name.text or "", invocation.scope, self.chain[-1]) or self._in_image(call)
        if source is None or source.path in self.chain or len(source.text) > LONGEST or source.text.count("\0"):
            return
        if self.in_vain.get(source.path, 0) >= _MOST_IN_VAIN:
            return
        raw = source.text.encode("utf-8", "surrogatepass")
        if not (may_launch(raw) or may_call(raw) or _passes_on(source.text, arguments)) or not (
            is_in_job or _takes(source.text, arguments, names)
        ):
            return
        if len(self.called) >= MOST_CALLED:
            self.left_out.append(name.location)
            return
        scope = inherited(call, invocation)
        scope.script = source.path
        bind_words(arguments, scope)
        reader = TextReader(self.in_docs, self.locate, (*self.chain, source.path), programs=self.programs)
        found = reader.script(parse_shell(source), scope, call.outer, directives, depth + 1, call.directives)
        if len(found) > _MOST_OF_A_CALL or not (found or reader.called):
            self.in_vain[source.path] = self.in_vain.get(source.path, 0) + 1
            return
        self.left_out += [name.location] if reader.left_out else []
        for command in (*found, *reader.called):
            env = marked(command.env, invocation.env, source.path)
            inner = replace(under([command], invocation)[0], called_from=(name.location, *command.called_from), env=env)
            if inner not in self.called:
                self.called.append(inner)

    def _in_image(self, call: Shell) -> SourceFile | None:
        """The script of the project that a container runs by its path in the image."""
        folder = call.around.cwd
        if folder is None or not folder.is_unknown:
            return None
        return self.locate(call.words[0].text or "", Scope(directory=folder), self.chain[-1])

    def _nested(self, inner: Shell, shell: ShellDoc, invocation: Invocation) -> tuple[ShellDoc, Scope] | None:
        """The command line inside a word, with the variables that it sees."""
        if not inner.words:
            return None
        word = inner.words[0]
        raw, start = word.raw, word.location.span.start
        literal = len(inner.words) == 1 and len(raw) > 1 and raw[0] == raw[-1] and shell.anchor is None
        body = raw[1:-1]
        if inner.around.fills is not None:
            body = inner.around.fills.sub(lambda found: "$" + "_" * (len(found[0]) - 1), body)
        if literal and raw[0] == "'" and "'" not in body:
            scope = invocation.scope.copy() if inner.kind == "eval" else self.started(inner, invocation)
            doc = parse_shell(shell.source, body, start + 1)
            if "\n" in body:
                self.inner.append(doc)
            return doc, cut(scope, inner, invocation, {})
        # Between double quotes the outer shell expands first; without escapes the text reads the same.
        scope = cut(invocation.scope.copy(), inner, invocation, invocation.scope.values)
        is_quoted = literal and raw[0] == '"'
        is_plain = is_quoted and not re.search(r'\\(?!\n)|["`]', body) and holds_plain_words(body, scope)
        if is_plain and not holds_parts(body, scope):
            return parse_shell(shell.source, body, start + 1), scope
        place = Span(word.location.span.start, inner.words[-1].location.span.end)
        if any(w.text is None for w in inner.words):
            handed = handed_on(body, scope) if is_quoted else None
            if handed is None:
                return None
            text, left = handed
            # The inner shell sees only what is exported; what both know is put in already.
            seen = {name for name, fact in invocation.env.items() if fact.is_known}
            scope.forget(left - seen if inner.kind != "eval" else set())
            return parse_shell(shell.source, text, 0, place), scope
        text = " ".join(w.text or "" for w in inner.words)
        if inner.around.fills is not None:
            text = inner.around.fills.sub(lambda found: "$" + "_" * (len(found[0]) - 1), text)
        return parse_shell(shell.source, text, 0, place), scope

    def _heredoc(
        self, heredoc: Heredoc, shell: ShellDoc, directives: Mapping[str, Fact[str]], depth: int
    ) -> list[LaunchCommand]:
        if may_be_config(heredoc.body) and not self.in_docs:
            from dslint.model.embedded.heredoc import written_config

            found = written_config(shell, heredoc)
            if found is not None and all(found.at != other.at for other in self.written):
                self.written.append(found)
        runs = _RUNS.search(heredoc.head.partition("<<")[0])
        writes = _WRITES.search(heredoc.head) is not None and _SCRIPT.search(heredoc.body) is not None
        if shell.anchor is not None or not (runs or writes):
            return []
        name = runs["name"] if runs is not None else "sbatch"
        here = name in ("bash", "zsh", "sh") and runs is not None
        scope = heredoc.scope.copy() if here or not heredoc.is_literal else Scope(directory=heredoc.scope.cwd)
        if name in ("ssh", "docker", "kubectl"):
            scope = remote(scope)
        body = heredoc.body if heredoc.is_literal else _without_escapes(heredoc.body)
        doc = parse_shell(shell.source, body, heredoc.start + shell.base)
        if body == heredoc.body:
            self.inner.append(doc)
        return self.script(doc, scope, Outer(), directives if here else {}, depth + 1)


def _add(command: LaunchCommand, out: list[LaunchCommand]) -> None:
    """Add a command unless it is there: a function called twice with the same arguments starts the same run twice.

    What looks the same under several conditions depends on those that all of them have. ``ssh`` to several hosts
    with the same command line is one command, too.
    """
    for at in range(len(out) - 1, max(len(out) - _NEIGHBOURS, 0) - 1, -1):
        if replace(out[at], conditions=command.conditions, wrappers=command.wrappers) == command:
            shared = tuple(c for c in out[at].conditions if c in command.conditions)
            out[at] = replace(out[at], conditions=shared)
            return
    out.append(command)


def _takes(text: str, arguments: Sequence[Word], names: set[str]) -> bool:
    """A script reads its arguments, or one of these variables, itself or through a launcher."""
    if any(w.text is not None for w in arguments) and _ARGUMENT.search(text):
        return True
    return bool(names) and (not names.isdisjoint({*_NAME.findall(text), *READ}) or sets_again(text, names))


def _passes_on(text: str, arguments: Sequence[Word]) -> bool:
    """A script gets a launch command as its words, and runs what it gets."""
    return any(names_launcher(word) for word in arguments) and _ALL_ARGUMENTS.search(text) is not None


def _without_escapes(body: str) -> str:
    """The text that an unquoted heredoc hands on, of the same length.

    ``\\$X`` becomes ``$X`` and a blank at the begin of the line: what stands behind it keeps its offset.
    """
    body = re.sub(r"\\\\(?=\r?\n)", " \\\\", body)
    lines = body.split("\n")
    for at, line in enumerate(lines):
        plain = line.replace("\\$", "$")
        lines[at] = " " * (len(line) - len(plain)) + plain
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """What an unquoted variable hands on: bash splits it at line ends too, so that they end no command."""
    return text if "#" in text else re.sub(r"(?<!\\)\n", " ", text)
