"""The oracle and dslint side by side: agreement, false alarms, misses, and what is out of scope by design."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from oracle.judge import findings
from oracle.machine import LARGER_WORLDS, BrokenProgramError, Machine
from oracle.program import Program
from oracle.shrink import shrink


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
        if not findings(_without_dead_code(source, machine.cover())):
            return Result("excused: dead code", first.code)
        return Result("false alarm", f"{first.code}: {first.message}")
    return Result("excused: subgroup" if machine.subgroups else "agree quiet")


def _excuse(source: str) -> str:
    """Out of scope by design (DSL201, "When it stays quiet"): the ranks agree when these are set aside."""
    set_aside = Machine(source, by_design=True)
    if set_aside.difference() is not None:
        return ""
    return "excused: set of ranks" if "a set of ranks" in set_aside.flags else "excused: exception ends the job"


def _without_dead_code(source: str, reached: set[int]) -> str:
    """The program without the statements that no rank comes to, whatever the unknowns are.

    A helper whose arguments choose its branch stays whole: which one a call takes is what an analysis has to tell.
    """
    tree = ast.parse(source)
    helpers = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _asks_argument(n)]
    kept_whole = [{id(inner) for inner in ast.walk(node)} for node in helpers]
    for node in ast.walk(tree):
        if any(id(node) in inner for inner in kept_whole):
            continue
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements:
                kept = [s for s in statements if s.lineno in reached or isinstance(s, ast.FunctionDef)]
                setattr(node, name, kept or ([ast.Pass()] if name == "body" else []))
    return ast.unparse(ast.fix_missing_locations(tree))


def _asks_argument(function: ast.FunctionDef) -> bool:
    names = {argument.arg for argument in function.args.args} - {"args", "self", "rank", "local_rank"}
    tests = (n.test for n in ast.walk(function) if isinstance(n, ast.If))
    return any(isinstance(n, ast.Name) and n.id in names for test in tests for n in ast.walk(test))


def smallest(source: str, verdict: str) -> str:
    """The program cut down to what still gets this verdict."""

    def still(text: str) -> bool:
        try:
            return judged(text).verdict == verdict
        except (BrokenProgramError, SyntaxError):
            return False

    return shrink(source, still)
