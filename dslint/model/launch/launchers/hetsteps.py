"""Steps of several programs: ``srun -n 1 a : -n 8 b`` of Slurm, ``mpirun -np 1 a : -np 8 b``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import Flag, LaunchCommand, Word
from dslint.model.launch.launchers.adapters import BY_HEAD, program_name

# The programs of a step stand between such words.
_NEXT = ":"
# What Slurm calls the part of a job on which a step runs.
HET_GROUP = "--het_group"


def parts_of_step(words: Sequence[Word]) -> tuple[tuple[Word, ...], ...]:
    """The words as one command for each program: all of them begin with what stands before the first one's options."""
    ends = [at for at, word in enumerate(words) if word.text == _NEXT and word.raw == _NEXT]
    head = next((at for at, word in enumerate(words[: ends[0]]) if _starts_several(word)), None) if ends else None
    if head is None:
        return (tuple(words),)
    around = tuple(words[: head + 1])
    begins, ends = [head + 1, *(at + 1 for at in ends)], [*ends, len(words)]
    found = [tuple(words[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return tuple((*around, *part) for part in found if part)


def _starts_several(word: Word) -> bool:
    adapter = BY_HEAD.get(program_name(word))
    return adapter is not None and adapter.name in ("srun", "mpirun")


def joined_parts(parts: Sequence[Sequence[LaunchCommand]]) -> list[LaunchCommand]:
    """The commands of all parts, whose processes are one job: as many in all as the parts have together.

    How they spread over the nodes is up to the launcher. A launcher that each part starts counts for itself.
    """
    total = _sum(command.world_size for commands in parts for command in commands)
    is_all = all(len(commands) == 1 for commands in parts)
    total = total if is_all else unknown("other programs of the step")
    return [_one_of(command, total) for commands in parts for command in commands]


def _one_of(command: LaunchCommand, total: Fact[int]) -> LaunchCommand:
    place = command.words[0].location
    part = Flag(HET_GROUP, None, place)
    why: Fact[int] = unknown("the programs of a step share its nodes", place)
    if command.outer:
        return replace(command, outer_flags=(*command.outer_flags, part))
    flags = (*command.launcher_flags, part)
    return replace(command, launcher_flags=flags, nodes=why, processes_per_node=why, world_size=total)


def _sum(counts: Iterable[Fact[int]]) -> Fact[int]:
    given = list(counts)
    lost = next((fact for fact in given if not fact.is_known), None)
    if lost is not None:
        return unknown(lost.reason or "other programs of the step", *lost.origins)
    return known(sum(fact.get() for fact in given), *(place for fact in given for place in fact.origins))
