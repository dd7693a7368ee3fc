"""The words and variables that dslint reads in a script, and those that bash passed."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bashrun.records import Record
from bashrun.sandbox import Run, Sandbox
from dslint.core.source import SourceFile, Span
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.read import read_command
from dslint.model.workspace import Workspace

# Words of the shell itself in front of a program: no program sees them.
_SHELL_WORDS = frozenset({"time", "exec", "command", "builtin", "eval", "!", "-p"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A command on which dslint and bash do not agree: ``kind`` is ``words`` or ``variable``."""

    kind: str
    script: str
    line: int
    dslint: tuple[str | None, ...]
    bash: tuple[str, ...]

    def told(self) -> str:
        """Both sides in one text."""
        mine = " ".join("?" if w is None else repr(w) for w in self.dslint)
        return f"{self.script}:{self.line}: {self.kind}\n    dslint {mine}\n    bash   {' '.join(map(repr, self.bash))}"


@dataclass(slots=True)
class Figures:
    """Counts over scripts.

    ``commands`` are those that dslint reads and bash ran, ``complete`` those of them whose words are all known,
    ``identical`` those of the complete ones that bash ran with the same words.
    """

    scripts: int = 0
    runs: int = 0
    timed_out: int = 0
    commands: int = 0
    complete: int = 0
    identical: int = 0
    words: int = 0
    known: int = 0
    variables: int = 0
    not_run: list[str] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Sum up."""
        for name in (
            "scripts",
            "runs",
            "timed_out",
            "commands",
            "complete",
            "identical",
            "words",
            "known",
            "variables",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("not_run", "not_seen", "differences", "unknown"):
            getattr(self, name).extend(getattr(other, name))


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run of a script is given: positional arguments and variables of its environment."""

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def written_into(self, text: str) -> str:
        """The script with this input set on its first line, where nothing else stands but a comment."""
        if self == Inputs():
            return text
        exports = [f"export {name}={shlex.quote(value)};" for name, value in self.environment]
        line = " ".join([*exports, "set --", *map(shlex.quote, self.arguments)])
        return f"{line}\n{text.partition(chr(10))[2]}" if text.startswith("#") else f"{line}; {text}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that bash ran: ``line`` is where in the script, ``inner`` the line in a text that the script runs there.

    ``env`` is what the innermost program saw. ``is_certain``: of the run without input, whose words dslint must know.
    ``tops`` are the folders that dslint writes as ``.``: the project, and where the script was started.
    """

    words: tuple[str, ...]
    line: int
    inner: int
    env: Mapping[str, str]
    is_certain: bool
    tops: tuple[str, str]


def compare_script(
    sandbox: Sandbox, project: Path, script: str, inputs: Sequence[Inputs] = (Inputs(),), seconds: float = 10.0
) -> Figures:
    """Run one script under bash, read it with dslint, and compare command by command.

    dslint reads the text as it stands for the run without input, and with the input written into its first line for
    each other run. A script of a folder is run from the top of the project and, for what differs, from its folder.
    """
    text = (project / script).read_bytes().decode("utf-8", "replace")
    folder = posixpath.dirname(script)
    slurm = slurm_environment(text)

    def runs(where: str) -> list[Run]:
        return [
            sandbox.run(project, script, i.arguments, {**slurm, **dict(i.environment)}, where, seconds) for i in inputs
        ]

    def compared(done: Sequence[Run]) -> Figures:
        figures = Figures(scripts=1)
        # What no run reached.
        idle: list[str] = []
        for index, given in enumerate(inputs):
            source = SourceFile(script, given.written_into(text))
            commands = [c for doc in read_launch_docs(source, "shell", Workspace(project)) for c in doc.commands]
            others = [r for r in done if r is not done[index]] if given == Inputs() else []
            found = _compare(source, commands, done[index], others)
            idle = found.not_run if index == 0 else [x for x in idle if x in found.not_run]
            found.not_run = []
            figures.add(found)
        figures.not_run += idle
        return figures

    found = [compared(runs("."))]
    if folder and (found[0].differences or found[0].not_run):
        found.append(compared(runs(folder)))
    return min(found, key=lambda f: (len(f.differences), len(f.not_run)))


def guessed_inputs(text: str) -> list[Inputs]:
    """Arguments with which a script may reach its other branches: the words that it compares with, and numbers."""
    words = re.findall(r"==?\s*[\"']?([A-Za-z][\w.-]*)[\"']?\s*\]", text)
    words += re.findall(r"^\s*\(?[\"']?([A-Za-z][\w.-]*)[\"']?(?:\s*\|[^)\n]*)?\)\s*(?:$|\S)", text, re.MULTILINE)
    chosen = list(dict.fromkeys(words))[:12]
    return [Inputs(), Inputs(("1", "2", "3", "4", "5", "6", "7", "8", "9")), *(Inputs((word,) * 2) for word in chosen)]


def slurm_environment(text: str) -> dict[str, str]:
    """What Slurm sets for a batch script, by its ``#SBATCH`` lines."""
    names = {
        r"(?:--nodes|-N)": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        r"(?:--ntasks|-n)": ("SLURM_NTASKS", "SLURM_NPROCS"),
        r"--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
        r"--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    }
    env: dict[str, str] = {}
    for option, variables in names.items():
        found = re.findall(rf"^#SBATCH\s+{option}[=\s]+(\d+)\s*(?:#.*)?$", text, re.MULTILINE)
        env.update(dict.fromkeys(variables, found[-1]) if found else {})
    return env


def _compare(source: SourceFile, commands: Sequence[LaunchCommand], run: Run, others: Sequence[Run]) -> Figures:
    figures = Figures(runs=1, timed_out=int(run.timed_out))
    launches = [launch for r in (run, *others) for launch in _launches(r, source, r is run)]
    # Alternatives of one command begin at one place; where they end differs.
    groups: dict[int, list[LaunchCommand]] = {}
    for command in commands:
        groups.setdefault(command.location.span.start, []).append(command)
    readings = {Span(at, max(c.location.span.end for c in group)): group for at, group in groups.items()}
    pairs = _paired(source, readings, launches)
    for span, group in readings.items():
        _compare_group(source, group, pairs[span], figures)
    seen = {id(launch) for group in pairs.values() for launch in group}
    lost = [launch for launch in launches if id(launch) not in seen and launch.is_certain]
    figures.not_seen += sorted({f"{source.path}:{launch.line}: {' '.join(launch.words)}" for launch in lost})
    return figures


def _compare_group(source: SourceFile, group: list[LaunchCommand], launches: list[Launch], figures: Figures) -> None:
    """The readings of one command (its alternatives) and the times that bash ran it."""
    patterns = [_pattern(command) for command in group]
    line = source.line_column(group[0].location.span.start)[0]
    wrong = {
        launch.words
        for launch in launches
        if launch.is_certain and not any(_agrees(pattern, launch) for pattern in patterns)
    }
    mine = tuple(w.text for w in patterns[0])
    figures.differences += [Difference("words", source.path, line, mine, words) for words in sorted(wrong)]
    for command, pattern in zip(group, patterns, strict=True):
        agreeing = [launch for launch in launches if _agrees(pattern, launch)]
        told = f"{source.path}:{line}: " + " ".join("?" if w.text is None else w.text for w in pattern)
        if not agreeing and not (wrong and len(group) == 1):
            figures.not_run.append(told)
            continue
        unknown = [w for w in pattern if w.text is None]
        figures.commands += 1
        figures.words += len(pattern)
        figures.known += len(pattern) - len(unknown)
        figures.complete += not unknown
        figures.identical += bool(agreeing) and not unknown
        figures.unknown += [f"{source.path}:{line}: {w.raw}" for w in unknown]
        if agreeing:
            _compare_environment(source, command, agreeing, figures)


def _compare_environment(source: SourceFile, command: LaunchCommand, launches: list[Launch], figures: Figures) -> None:
    known = {n: f.get() for n, f in command.env.items() if f.is_known and not n.startswith(("SBATCH_", "MACHINE_GPUS"))}
    figures.variables += len(known)

    def wrong(launch: Launch) -> list[tuple[str, str, str | None]]:
        pairs = [(name, value, launch.env.get(name)) for name, value in sorted(known.items())]
        return [
            (n, mine, theirs) for n, mine, theirs in pairs if theirs is None or not _is_same(mine, theirs, launch.tops)
        ]

    least = min((wrong(launch) for launch in launches), key=len)
    line = source.line_column(command.location.span.start)[0]
    for name, mine, theirs in least:
        bash = (name,) if theirs is None else (name, theirs)
        figures.differences.append(Difference("variable", source.path, line, (name, mine), bash))


def _paired(
    source: SourceFile, readings: Mapping[Span, list[LaunchCommand]], launches: Sequence[Launch]
) -> dict[Span, list[Launch]]:
    """The launches of each command: by its lines, else by what it starts."""
    pairs: dict[Span, list[Launch]] = {}
    taken: set[int] = set()
    for span, group in readings.items():
        first, last = (source.line_column(at)[0] for at in (span.start, max(span.start, span.end - 1)))
        patterns = [_pattern(command) for command in group]
        here = [x for x in launches if not x.inner and first <= x.line <= last and any(_may_be(p, x) for p in patterns)]
        # Two commands of one line.
        agreeing = [x for x in here if any(_agrees(p, x) for p in patterns)]
        pairs[span] = agreeing if len(agreeing) < len(here) and _shares_line(source, span, readings) else here
        taken |= {id(x) for x in pairs[span]}
    for span, group in readings.items():
        if not pairs[span]:
            patterns = [_pattern(command) for command in group]
            rest = [x for x in launches if id(x) not in taken and any(_may_be(p, x) for p in patterns)]
            pairs[span] = _elsewhere(source.line_column(span.start)[0], patterns, rest)
    return pairs


def _elsewhere(line: int, patterns: Sequence[Sequence[Word]], launches: Sequence[Launch]) -> list[Launch]:
    """A command in a text that another one runs (``bash -c``, ``ssh``), or that a variable keeps for ``eval``."""
    agreeing = [x for x in launches if any(_agrees(p, x) for p in patterns)]
    inner = [x for x in launches if x.inner and x.line <= line]
    nearest = max((x.line for x in inner), default=0)
    here = [x for x in inner if x.line == nearest]
    exact = [x for x in here if x.line + x.inner - 1 == line]
    # What runs at one line only, where nothing else is known to stand, is that command.
    only = [x for x in launches if not x.inner] if len({x.line for x in launches}) == 1 else []
    return exact or [x for x in here if x in agreeing] or here or agreeing or only


def _shares_line(source: SourceFile, span: Span, readings: Iterable[Span]) -> bool:
    line = source.line_column(span.start)[0]
    return any(other != span and source.line_column(other.start)[0] == line for other in readings)


def _launches(run: Run, source: SourceFile, is_certain: bool) -> Iterator[Launch]:
    place = source.location(Span(0, 0))
    found: dict[str, LaunchCommand] = {}
    parents = {record.id: record.inside for record in run.records}
    for record in run.records:
        words = [Word(text, text, place) for text in record.argv]
        read = read_command(words, {}, source)
        if not isinstance(read, LaunchCommand) or any(a in found for a in _ancestors(record, parents)):
            continue
        found[record.id] = read
        if not record.at or (record.at[-1][0] and not _is_same_file(record.at[-1][0], source.path)):
            continue  # of another script, which is read with that file
        inner = [r for r in run.records if r is record or record.id in _ancestors(r, parents)]
        line = record.at[0][1] if _is_same_file(record.at[0][0], source.path) else 0
        deeper = record.at[-1][1] if len(record.at) > 1 else 0
        yield Launch(record.argv, line, deeper, inner[-1].env, is_certain, (run.project, run.start))


def _ancestors(record: Record, parents: Mapping[str, str]) -> Iterator[str]:
    at = record.inside
    while at:
        yield at
        at = parents.get(at, "")


def _is_same_file(path: str, script: str) -> bool:
    return posixpath.basename(path) == posixpath.basename(script)


def _is_same(mine: str, theirs: str, tops: Iterable[str]) -> bool:
    """The same word; a path of the project counts from its top, or from where the script was started."""
    if mine == theirs:
        return True
    plain = _plain(mine)
    return any(_plain(re.sub(re.escape(top) + r"(?=/|\b|$)", ".", theirs)) == plain for top in tops)


def _plain(text: str) -> str:
    return re.sub(r"(^|[=:,'\"\s])(?:\./+)+", r"\1", text.removesuffix("\r"))


def _pattern(command: LaunchCommand) -> list[Word]:
    words = list(command.words)
    while words and words[0].raw in _SHELL_WORDS:
        del words[0]
    return words


def _may_be(pattern: Sequence[Word], launch: Launch) -> bool:
    if not pattern or pattern[0].text is None:
        return True
    return posixpath.basename(pattern[0].text) == posixpath.basename(launch.words[0])


def _agrees(pattern: Sequence[Word], launch: Launch) -> bool:
    """Every known word is there; an unknown one stands for one word in quotes, else for any number of words."""
    words = launch.words
    at = {0}
    for word in pattern:
        if word.text is not None:
            at = {i + 1 for i in at if i < len(words) and _is_same(word.text, words[i], launch.tops)}
        elif word.raw[:1] == '"' and word.raw[-1:] == '"' and not re.search(r"[@`]|\$\(", word.raw):
            at = {i + 1 for i in at if i < len(words)}
        else:
            at = set(range(min(at), len(words) + 1)) if at else at
    return len(words) in at
