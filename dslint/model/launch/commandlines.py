"""Command lines inside the words of a command: ``eval``, ``bash -c``, ``ssh``, ``sbatch --wrap``, called scripts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import Flag, Word
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import Parsed, flag_name, last, parse_options
from dslint.model.launch.launchers.programs import SBATCH
from dslint.model.launch.launchers.wrappers import Unwrapped
from dslint.model.shell.slurm import slurm_options

# Why nobody knows the folder in which a command of a container runs.
IMAGE_DECIDES = "the image decides"
# How the names of shell scripts end.
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_NO_ENDING = re.compile(r"(?!/)(?:[\w.-]+/)+[\w-]+")
_LAUNCHER = re.compile(r"torchrun|deepspeed|accelerate|python3?")
# What :func:`shell_of` reads.
SHELLS = frozenset({"eval", "bash", "sh", "zsh", "sbatch"})


@dataclass(frozen=True, slots=True)
class Outer:
    """The launcher around: ``srun``, ``mpirun``."""

    name: str = ""
    parsed: Parsed = field(default_factory=lambda: Parsed((), ()))


@dataclass(frozen=True, slots=True)
class Shell:
    """A command line inside a word; ``outer`` is what stands around it.

    ``kind``: ``eval``, ``-c`` (of bash), ``ssh`` (another machine or session), ``batch`` (``sbatch --wrap``, whose
    options are the ``directives``), ``script`` (a file with its arguments: no command line, but a name and words).
    ``around``: the programs that stand before it and what they do to its environment.
    """

    kind: str
    words: tuple[Word, ...]
    outer: Outer
    directives: Mapping[str, Fact[str]] = field(default_factory=dict)
    # A script that ``sbatch`` hands to Slurm: it runs later, with the variables of a job.
    is_job: bool = False
    # The options of ``sbatch``.
    flags: tuple[Flag, ...] = ()
    around: Around = field(default_factory=lambda: Around())


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around a command line inside a word: programs, and the environment that they make.

    ``env`` is what the line finds, ``None`` where that is all of the shell around; see :class:`Unwrapped` for the rest.
    """

    words: tuple[tuple[Word, ...], ...] = ()
    env: Mapping[str, Fact[str]] | None = None
    cwd: Fact[str] | None = None
    withheld: Mapping[str, Fact[str]] = field(default_factory=dict)
    fills: re.Pattern[str] | None = None


def folder(found: Unwrapped, cwd: Fact[str] | None) -> Fact[str] | None:
    """Where the command starts: programs around may change the directory."""
    if found.is_elsewhere:
        return unknown(IMAGE_DECIDES)
    if not found.folder:
        return cwd
    if "$" in found.folder or (cwd is not None and cwd.is_unknown and not found.folder.startswith("/")):
        return unknown("the directory is computed")
    origins = cwd.origins if cwd is not None else ()
    return known(posixpath.join(cwd.get_or("") if cwd is not None else "", found.folder), *origins)


def inside(shell: Shell, found: Unwrapped, cwd: Fact[str] | None, env: Mapping[str, Fact[str]] | None) -> Shell:
    """The command line with what stands around it."""
    inner = shell.around
    changed = cwd if found.is_elsewhere or found.folder else inner.cwd
    around = Around(
        (*found.around, *inner.words),
        env,
        changed,
        {**found.withheld, **inner.withheld},
        inner.fills or found.fills,
    )
    return replace(shell, around=around)


def line_of(found: Unwrapped, outer: Outer) -> Shell:
    """The command line that a program hands to a shell: here, or on another machine."""
    is_remote = found.line is not None and (found.line.is_elsewhere or not found.line.arrives)
    return Shell("ssh" if is_remote else "-c", found.rest, outer)


def shell_of(words: Sequence[Word], outer: Outer) -> Shell | None:
    """What ``eval``, a shell or ``sbatch`` runs; a script that is started by its name."""
    if not words or words[0].text is None:
        return None
    name = program_name(words[0])
    if name == "eval":
        return Shell("eval", tuple(words[1:]), outer)
    if name in ("bash", "sh", "zsh"):
        command = _after_c(words)
        if command:
            return Shell("-c", command, outer)
        script = tuple(words[_operand(words) :])
        return Shell("script", script, outer) if script and script[0].text else None
    if name == "sbatch":
        parsed = parse_options(words[1:], SBATCH)
        options = slurm_options(words[1 : len(words) - len(parsed.rest)])
        wrap = last(parsed.flags, "--wrap")
        if wrap is not None and wrap.value is not None:
            return Shell("batch", (wrap.value,), outer, slurm_options(words[1:]), flags=parsed.flags)
        if not parsed.rest or not parsed.rest[0].text:
            return None
        return Shell("script", parsed.rest, outer, options, True, parsed.flags)
    is_script = words[0].text.endswith(SCRIPTS) or hands_on(words)
    return Shell("script", tuple(words), outer) if is_script else None


def hands_on(words: Sequence[Word]) -> bool:
    """A file of the project gets a launch command among its words: ``docker/run DATA torchrun train.py``.

    Whether there is such a script, and what it does with them, its reader says.
    """
    path = words[0].text or ""
    return may_be_script(path) and any(names_launcher(word) for word in words[1:])


def names_launcher(word: Word) -> bool:
    """The word is the name of a launcher, or of Python."""
    return _LAUNCHER.fullmatch(word.text or "") is not None


def may_be_script(path: str) -> bool:
    """A path of a file without an ending, which is no program of the system."""
    return _NO_ENDING.fullmatch(path) is not None


def _after_c(words: Sequence[Word]) -> tuple[Word, ...]:
    at = _operand(words, ends=re.compile(r"-[a-z]*c"))
    return tuple(words[at : at + 1]) if at > 1 and re.fullmatch(r"-[a-z]*c", words[at - 1].text or "") else ()


def _operand(words: Sequence[Word], ends: re.Pattern[str] | None = None) -> int:
    """Where the first word of bash that is no option of its own stands, or the one behind an option that ``ends``."""
    at = 1
    while at < len(words):
        text = words[at].text
        if ends is not None and text is not None and ends.fullmatch(text):
            return at + 1
        if flag_name(words[at]) is None and text != "+o":
            break
        at += 2 if text in ("-o", "+o", "--rcfile", "--init-file") else 1
    return at
