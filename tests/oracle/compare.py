"""The oracle and dslint side by side: agreement, false alarms, misses, and what is out of scope by design."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from oracle.judge import findings
from oracle.machine import LARGER_WORLDS, BrokenProgramError, Machine, run
from oracle.program import Program
from oracle.shrink import shrink
from oracle.stubs import Rank


@dataclass(frozen=True)
class Result:
    """``verdict``: ``agree`` (both say it) | ``agree quiet`` | ``false alarm`` | ``miss`` | ``excused: ...``."""

    verdict: str
    detail: str = ""


def compare(program: Program) -> Result:
    """What both say about one program."""
    return judged(program.source)


def judged(source: str) -> Result:
    machine = Machine(source)
    difference = machine.difference()
    found = findings(source)
    if difference is not None:
        if found:
            return Result("agree")
        return Result(_excuse(source) or "miss", f"{difference.traces}")
    if found:
        first = found[0]
        if Machine(source, worlds=LARGER_WORLDS).difference() is not None:
            return Result("agree")
        if not any(f.location.region.line in _reached(source, machine) for f in found):
            return Result("excused: unreachable", first.code)
        return Result("false alarm", f"{first.code}: {first.message}")
    return Result("excused: subgroup" if machine.subgroups else "agree quiet")


def _excuse(source: str) -> str:
    """Out of scope by design (DSL201, "When it stays quiet"): the ranks agree when these are set aside."""
    set_aside = Machine(source, by_design=True)
    if set_aside.difference() is not None:
        return ""
    return "excused: set of ranks" if "a set of ranks" in set_aside.flags else "excused: exception ends the job"


def _reached(source: str, machine: Machine) -> set[int]:
    """The lines that some rank comes to under some assignment."""
    lines: set[int] = set()
    code = compile(source, "program", "exec")

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == "program":
            lines.add(frame.f_lineno)
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for rank, flags, data in machine.every_run():
            _run_quietly(code, Rank(rank, 2, flags, data, ()))
    finally:
        sys.settrace(before)
    return lines


def _run_quietly(code: CodeType, me: Rank) -> None:
    try:
        run(code, me)
    except BrokenProgramError:
        return


def smallest(source: str, verdict: str) -> str:
    """The program cut down to what still gets this verdict."""

    def still(text: str) -> bool:
        try:
            return judged(text).verdict == verdict
        except (BrokenProgramError, SyntaxError):
            return False

    return shrink(source, still)
