"""A launch command: what a shell line starts, on how many nodes, with which script and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

from dslint.core.fact import Fact, absent
from dslint.core.source import Location


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command as the launcher receives it.

    ``text`` is the word after quote removal and expansion of what is known, ``None`` when part of it is not
    known (``$WORLD_SIZE`` of the platform). ``raw`` is the text in the file.
    ``origins`` are the assignments that its text comes from. ``spreads`` marks an unknown word that may stand
    for any number of words (``$EXTRA_ARGS``, ``"$@"``). ``tail`` is what is known behind the last colon of an
    unknown word: the port of ``$HOST:$PORT``. ``why`` says why it is not known (``$WORLD_SIZE is never set in this
    file``), empty when nobody can say. ``lost`` is the text of the words behind it that became nothing (``$EMPTY``).
    """

    text: str | None
    raw: str
    location: Location
    origins: tuple[Location, ...] = ()
    spreads: bool = False
    tail: str = ""
    why: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A test whose result nobody can read from the file, and the result under which a command looks as it does.

    ``text`` is the test as written (``[ "$1" = zero3 ]``; ``case $1 in zero3`` for an arm of ``case``), ``taken``
    whether it holds. ``phrase`` says the same in words: `` `$1` is zero3``.
    """

    location: Location
    text: str
    taken: bool = True
    phrase: str = ""

    def __str__(self) -> str:
        said = self.phrase or f"`{self.text}` {'holds' if self.taken else 'does not hold'}"
        return f"{said} ({self.location})"


@dataclass(frozen=True, slots=True)
class Flag:
    """An option with its value: ``--nnodes 2``, ``--nnodes=2``, ``-H file``, or bare ``--bf16`` (value ``None``)."""

    name: str
    value: Word | None
    location: Location


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """One command that starts training processes.

    ``launcher``: ``torchrun`` (also ``python -m torch.distributed.run|launch``: see ``program``), ``deepspeed``,
    ``accelerate``, ``srun``, ``mpirun``, ``xtuner``, ``swift``, ``llamafactory``, ``axolotl``, ``colossalai``,
    ``composer``, ``horovodrun``, ``lightning`` (a Lightning CLI with ``--trainer.devices``), ``python``. Where its
    processes meet and which devices they see: ``meeting.py``; what it reads and sets: ``launchers/environment.py``.
    ``outer`` is the launcher around it (``srun torchrun ...`` gives launcher torchrun, outer srun), else "".
    ``nodes`` x ``processes_per_node`` = ``world_size``; each absent when nobody says, unknown when not readable.
    ``script`` is the word naming the script or module (``None`` for CLIs without one, such as ``xtuner``);
    ``is_module`` when it is a dotted module. ``script_args`` are the words after it.
    ``env`` holds variables the command sees: prefix assignments, exports and ``#SBATCH`` facts of the file.
    ``cwd`` is the directory the file changed to before the command, relative to the project, when known.
    ``cwd_is_certain``: it is the same however the tests before the command went.
    ``conditions`` are the unknown tests that its words, environment or directory depend on: one command of the text
    gives several, one for each way that these tests may go. Empty: it always runs like this.
    ``in_docs`` marks commands from Markdown, where placeholders are normal and severity is lower.
    """

    launcher: str
    program: str
    location: Location
    words: tuple[Word, ...]
    launcher_flags: tuple[Flag, ...] = ()
    outer: str = ""
    outer_flags: tuple[Flag, ...] = ()
    script: Word | None = None
    is_module: bool = False
    script_args: tuple[Word, ...] = ()
    script_flags: tuple[Flag, ...] = ()
    env: Mapping[str, Fact[str]] = field(default_factory=dict)
    nodes: Fact[int] = field(default_factory=absent)
    processes_per_node: Fact[int] = field(default_factory=absent)
    world_size: Fact[int] = field(default_factory=absent)
    cwd: Fact[str] = field(default_factory=absent)
    cwd_is_certain: bool = True
    in_docs: bool = False
    # ``$@``, ``$EXTRA_ARGS``: flags may be missing from what dslint sees. ``$1`` is one operand, or one flag.
    hides_words: bool = False
    unknown_operands: int = 0
    conditions: tuple[Condition, ...] = ()
    # ``words`` in parts: those of each program around (``nohup``, ``srun -N 2``), outermost first, then the rest.
    wrappers: tuple[tuple[Word, ...], ...] = ()
    argv: tuple[Word, ...] = ()
    # It stands in a script with the line ends of Windows: this is what bash makes of it, and not what is meant.
    has_returns: bool = False
    # Words before the script that cannot be read: options of the launcher may be missing from ``launcher_flags``.
    hides_options: bool = False

    # Variables that the shell sets and a program around keeps from the command: a container, another machine.
    withheld: Mapping[str, Fact[str]] = field(default_factory=dict)

    # The calls of scripts that lead here, outermost first: the command stands in a script that another file calls.
    called_from: tuple[Location, ...] = ()

    # The tests as written on the one way that leads the shell here, in this text and in those that call it.
    guards: tuple[str, ...] = field(default=(), repr=False, compare=False)

    # The options by name, worked out when the first one is asked for.
    _by_name: dict[str, dict[str, tuple[int, Flag]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def may_hide_flags(self, operands: int = 0) -> bool:
        """Words that cannot be read may hold a flag, when the script takes so many ``operands`` itself."""
        return self.hides_words or self.unknown_operands > operands

    def may_hide_launcher_flags(self) -> bool:
        """A word before the script that cannot be read, or one in its place, may hold an option of the launcher."""
        if self.script is not None and self.script.text is None and not names_script(self.script):
            return True
        values = [flag.value for flag in self.launcher_flags]
        for word in self.argv or self.words:
            if word is self.script:
                break
            if word.text is None and (word.spreads or not (word.raw.startswith("-") or word in values)):
                return True
        return False

    def variable(self, name: str) -> Fact[str]:
        """An environment variable as the command sees it; absent when the file does not set it.

        The entry ``""`` of ``env`` stands for every name that is not listed: a sourced file may set any.
        """
        return self.env.get(name) or self.env.get("") or absent()

    def launcher_flag(self, *names: str) -> Flag | None:
        """The last launcher option with one of these names; ``-`` and ``_`` inside names are the same."""
        return _last(self._index("launcher", self.launcher_flags), names)

    def script_flag(self, *names: str) -> Flag | None:
        """The last script option with one of these names."""
        return _last(self._index("script", self.script_flags), names)

    def _index(self, kind: str, flags: tuple[Flag, ...]) -> dict[str, tuple[int, Flag]]:
        found = self._by_name.get(kind)
        if found is None:
            found = self._by_name[kind] = {canonical(flag.name): (at, flag) for at, flag in enumerate(flags)}
        return found


def names_script(word: Word) -> bool:
    """Whether a word that is not known as a whole names a script all the same: ``$HOME/src/train.py``."""
    return "/" in word.raw and word.raw.rstrip("\"'").endswith(".py")


@lru_cache(maxsize=10_000)
def canonical(flag: str) -> str:
    """``--nproc-per-node`` -> ``--nproc_per_node``: launchers accept both spellings."""
    dashes = len(flag) - len(flag.lstrip("-"))
    return flag[:dashes] + flag[dashes:].replace("-", "_")


def _last(index: Mapping[str, tuple[int, Flag]], names: tuple[str, ...]) -> Flag | None:
    """The option that stands last; the index has the last one of each name."""
    found = [entry for name in names if (entry := index.get(canonical(name))) is not None] if index else ()
    return max(found, key=itemgetter(0))[1] if found else None
