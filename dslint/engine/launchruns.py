"""The runs of one script: interpreted once for each of its launch commands that may decide differently."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding
from dslint.engine.runs import make_room, run_queries
from dslint.engine.toldonce import IN_LAUNCH
from dslint.python.launches import Launch, common, deciding, groups, names_in
from dslint.python.source import Module

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.engine.judge import Job
    from dslint.model.context import Context
    from dslint.python.project import Project
    from dslint.rules.runs import RunQuery

# A script that may run in more ways than this is interpreted once, with all open in which the ways differ.
MOST_RUNS = 4
# So many launch commands are named beside a finding.
_NAMED = 3
# Options that a job on several machines passes.
_MACHINES = re.compile(r"(?:^|_)(?:n|num|number)?_?(?:of_)?(?:nodes?|nnodes|machines|shards)$")


@dataclass
class Run:
    """One interpretation, and the launch commands that it stands for; none where nobody says how the script starts."""

    query: RunQuery
    launches: list[Launch]


_Dead = tuple[Module, list[ast.stmt], str]


@dataclass
class Supposed:
    """A run in which somebody passes options that no command passes; the lines behind them, with the option."""

    query: RunQuery
    lines: dict[tuple[str, int], str]

    def told(self, ask: Callable[[RunQuery], Iterable[Finding]]) -> Iterator[Finding]:
        """Yield the findings of a rule that stand plainly behind such an option."""
        for finding in ask(self.query):
            option = self.lines.get((finding.location.path, finding.location.region.line))
            if option is not None:
                words = assumed("option-is-passed", option)
                yield replace(finding, assumptions=(*finding.assumptions, words))


def runs_of(job: Job, source: SourceFile, tree: ast.Module, modules: Project | None) -> list[Run]:
    """Interpret a script as its launch commands start it."""
    make_room(modules)
    launches = job.context.launches

    def interpreted(group: Sequence[Launch]) -> Run:
        launch = common(group) if group else None
        context = _context(job.context, launch) if launch is not None else job.context
        return Run(run_queries(replace(job, context=context), source, tree, modules, launch), list(group))

    if len(launches) < 2:
        return [interpreted(launches)]
    script = Module(source, tree)
    names = deciding((script,))
    found = groups(launches, names)
    if len(found) > MOST_RUNS:
        return [interpreted(launches)]
    first = interpreted(found[0])
    finer = groups(launches, names | deciding(first.query.machine.program.modules()))
    if len(finer) > MOST_RUNS:
        return [first if len(found) == 1 else interpreted(launches)]
    runs = [first if group == first.launches else interpreted(group) for group in finer]
    return _alone_dropped(runs)


def _context(context: Context, launch: Launch) -> Context:
    """The context of the script for one launch; what the user states stays where the command says nothing."""
    told: dict[str, Any] = {
        name: fact
        for name, fact in launch.facts.items()
        # Unknown is on what the commands do not agree.
        if not fact.is_absent or getattr(context, name).is_unknown
    }
    return replace(context, launches=(), **told)


def _alone_dropped(runs: list[Run]) -> list[Run]:
    """Forget what was interpreted with open parameters in one run and is reached in another one."""
    for run in runs:
        ran = frozenset().union(*(other.query.analysis.ran for other in runs if other is not run))
        entries = run.query.analysis.entries
        entries[:] = [entry for entry in entries if entry.kind == "script" or not _functions(entry.node) & ran]
    return runs


def _functions(node: ast.AST) -> set[int]:
    inner = node.body if isinstance(node, ast.ClassDef) else []
    return {id(node), *(id(n) for n in inner if isinstance(n, ast.FunctionDef) and n.name == "__init__")}


# -- what the runs say together ---------------------------------------------------------------------------------


def together(runs: Sequence[Run], ask: Callable[[RunQuery], Iterable[Finding]]) -> list[Finding]:
    """The findings of a rule in any of the runs, each once; one that holds in some only names their commands."""
    found: dict[tuple[object, ...], tuple[Finding, list[Run]]] = {}
    for run in runs:
        for finding in ask(run.query):
            place = finding.location
            known = found.setdefault((finding.code, place.path, place.span, place.region), (finding, []))
            if run not in known[1]:
                known[1].append(run)
    return [finding if len(where) == len(runs) else _named(finding, where, runs) for finding, where in found.values()]


def _named(finding: Finding, where: Sequence[Run], runs: Sequence[Run]) -> Finding:
    # A command whose words depend on tests stands for several.
    launches = list({(at.path, at.span): one for run in where for one in run.launches if (at := one.place)}.values())
    more = len(launches) - _NAMED
    places = [launch.place.labelled(f"{IN_LAUNCH}{_words(launch, runs)}") for launch in launches[:_NAMED]]
    if more > 0:
        places[-1] = places[-1].labelled(f"{places[-1].label} and {more} more")
    return replace(finding, related=(*finding.related, *places))


def _words(launch: Launch, runs: Sequence[Run]) -> str:
    """What sets a launch apart from those of the other runs."""
    others = [other for run in runs if launch not in run.launches for other in run.launches]
    stage = launch.facts["zero_stage"].get_or(None) if "zero_stage" in launch.facts else None
    words = []
    if stage is not None and any(other.stage != launch.stage for other in others):
        words.append(f"ZeRO-{stage}")
    for name, value in launch.given.items():
        if len(str(value)) < 30 and any(other.state_of(name) != launch.state_of(name) for other in others):
            words.append(f"`{name}` is {value}")
    for name, text in launch.environment.items():
        if len(text) < 30 and all(other.environment.get(name) != text for other in others):
            words.append(f"`{name}={text}`")
    return f" ({words[0]})" if words else ""


# -- code that no launch runs -----------------------------------------------------------------------------------


def as_started(findings: Iterable[Finding], runs: Sequence[Run], codes: frozenset[str]) -> list[Finding]:
    """What the visitors of the rules with these codes say, without branches that no launch takes.

    Where all commands leave out the option that decides, the finding assumes that somebody passes it.
    """
    dead = _lines_of(_dead(runs))
    kept = []
    for finding in findings:
        place = (finding.location.path, finding.location.region.line)
        option = dead.get(place) if finding.code in codes else None
        if option:
            words = assumed("option-is-passed", option)
            kept.append(replace(finding, assumptions=tuple(dict.fromkeys((*finding.assumptions, words)))))
        elif option is None:
            kept.append(finding)
    return kept


def _lines_of(dead: Iterable[_Dead]) -> dict[tuple[str, int], str]:
    """The lines of dead branches, with the option that all commands leave out in their test, if any."""
    lines: dict[tuple[str, int], str] = {}
    for module, body, option in dead:
        for line in range(body[0].lineno, (body[-1].end_lineno or 0) + 1):
            lines.setdefault((module.path, line), option)
    return lines


def _dead(runs: Sequence[Run]) -> Iterator[_Dead]:
    """Yield the branches whose test no run passes."""
    trees = {entry.node for run in runs for entry in run.query.entries if entry.kind == "script"}
    if len(trees) != 1 or not all(run.launches for run in runs):
        return
    taken: dict[int, int] = {}
    for run in runs:
        for number, sides in run.query.machine.taken.items():
            taken[number] = taken.get(number, 0) | sides
    left = {name for run in runs for launch in run.launches for name in launch.left}
    for module in runs[0].query.machine.program.ran():
        for node in module.nodes_of(ast.If):
            sides = taken.get(id(node), 3)
            body = node.orelse if sides == 1 else node.body if sides == 2 else []
            if body:
                yield module, body, next((name for name in sorted(names_in(node.test)) if name in left), "")


def supposed(
    job: Job, source: SourceFile, tree: ast.Module, modules: Project | None, runs: Sequence[Run]
) -> Supposed | None:
    """What runs when somebody passes the options that all commands leave out, if it may concern other ranks.

    A job on several machines passes theirs, whatever is behind them.
    """
    query = runs[0].query
    relevance = query.machine.program.relevance(query.machine)
    dead = list(_dead(runs))
    options = {
        option
        for module, body, option in dead
        if option and (_MACHINES.search(option) or any(relevance.of(n, module) for n in body))
    }
    if not options:
        return None
    known = common([launch for run in runs for launch in run.launches])
    launch = replace(known, left={name: fact for name, fact in known.left.items() if name not in options})
    context = _context(job.context, launch)
    found = run_queries(replace(job, context=context), source, tree, modules, launch)
    return Supposed(found, {at: option for at, option in _lines_of(dead).items() if option})
