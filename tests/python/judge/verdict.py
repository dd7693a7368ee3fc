"""Compares what ranks did with what an engine believes: violations with their source, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .engine import Belief, Believe
from .membership import is_word
from .programs import Program
from .record import Instance
from .standins.mocks import Mock
from .standins.tensors import Tensor
from .worlds import Job, RankRun, Run, run

VALUE, DEAD, EVENTS, SAME, CRASH = "value", "dead", "events", "same", "crash"
# Launches that the engine simulates, too: ranks and machines.
LAUNCHES = ((2, 1), (4, 2), (4, 1))


@dataclass(frozen=True)
class Violation:
    """One claim that does not hold."""

    kind: str
    rank: int
    path: str
    line: int
    col: int
    message: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.col} [{self.kind}, rank {self.rank}] {self.message}\n{self.excerpt}"


@dataclass
class Verdict:
    """What was found about one program or many."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Verdict) -> None:
        self.violations += other.violations
        self.counts += other.counts
        self.outcomes += other.outcomes

    def report(self) -> str:
        """The counts in plain words."""
        c = self.counts

        def share(part: str, whole: str) -> str:
            return f"{c[part]} of {c[whole]}" + (f" ({100 * c[part] / c[whole]:.1f} %)" if c[whole] else "")

        lines = [
            f"programs: {c['programs']}, ran to a declared end on all ranks: {share('normal', 'programs')}",
            "ends of ranks: " + ", ".join(f"{n} {what}" for what, n in self.outcomes.most_common()),
            f"lines executed: {share('lines', 'all lines')}",
            f"expressions executed: {c['sites']}, with a claim that says something: {share('known', 'sites')}",
            f"expressions whose possible values are named or typed: {share('narrow', 'sites')}",
            f"values checked: {c['values']}",
            f"expressions claimed equal on all ranks: {share('same', 'sites')}, pairs compared: {c['pairs']}",
            f"events: {c['events']}, in traces explained without a lost node: {share('explained', 'events')}",
            "violations: " + (", ".join(f"{n} {k}" for k, n in self._kinds().most_common()) or "none"),
        ]
        return "\n".join(lines)

    def _kinds(self) -> Counter[str]:
        return Counter(v.kind for v in self.violations)


def judge(files: Mapping[str, str], job: Job, believe: Believe, *, late: bool = True) -> Verdict:
    """Run a program and compare. `late` off: values after an undeclared exception are passed over."""
    done = run(files, job)
    verdict = Verdict()
    _outcomes(done, verdict)
    try:
        belief = believe(files, job)
    except NotImplementedError:
        raise
    except Exception as error:
        verdict.violations.append(Violation(CRASH, 0, job.entry, 0, 0, f"the engine crashes: {error!r}", ""))
        return verdict
    check_values(done, belief, verdict, late=late)
    check_events(done, belief, verdict)
    check_same(done, belief, verdict, late=late)
    return verdict


def judge_program(drawn: Program, believe: Believe, **options: bool) -> Verdict:
    """Judge a generated program under one of the launches, drawn by its seed."""
    size, nodes = LAUNCHES[drawn.seed % len(LAUNCHES)]
    argv = drawn.argv
    if any("'--local-rank'" in text for text in drawn.files.values()):
        argv = (*argv, "--local-rank={local_rank}")  # as a launcher passes it to whoever asks for it
    job = Job(size=size, nodes=nodes, argv=argv, env=dict(drawn.env), seed=drawn.seed)
    return judge(drawn.files, job, believe, **options)


def _outcomes(done: Run, verdict: Verdict) -> None:
    verdict.counts["programs"] += 1
    verdict.counts["normal"] += done.normal
    for rank in done.ranks:
        word = rank.outcome.split(":")[0]
        word += " after " + rank.cut_by.split(":")[0] if rank.cut_at is not None and rank.finished else ""
        verdict.outcomes[word] += 1
    executed = set().union(*(r.recorder.lines for r in done.ranks if r.recorder is not None))
    verdict.counts["lines"] += len(executed)
    verdict.counts["all lines"] += sum(len(lines) for lines in done.sites.statements.values())


def _excerpt(done: Run, path: str, line: int, around: int = 2) -> str:
    lines = done.files.get(path, "").splitlines()
    first = max(0, line - 1 - around)
    shown = [(n + 1, text) for n, text in enumerate(lines)][first : line + around]
    return "\n".join(f"{'>' if n == line else ' '} {n:4} {text}" for n, text in shown)


def _violation(done: Run, kind: str, rank: int, site: int, message: str) -> Violation:
    p = done.sites.places[site]
    text = f"{p.kind} to {p.end_line}:{p.end_col}: {message}"
    return Violation(kind, rank, p.path, p.line, p.col, text, _excerpt(done, p.path, p.line))


def _recorded(rank: RankRun, late: bool) -> Iterable[tuple[int, list[Instance]]]:
    values = rank.recorder.values if rank.recorder is not None else {}
    for site, instances in list(values.items()):  # messages may run code of the program, which takes notes, too
        kept = [i for i in instances if late or not i.late]
        if kept:
            yield site, kept


def check_values(done: Run, belief: Belief, verdict: Verdict, *, late: bool = True) -> None:
    """(a): each value is one that the engine thinks possible, and what ran is not thought dead."""
    sites: set[int] = set()
    for rank in done.ranks:
        for site, instances in _recorded(rank, late):
            claim = belief.value(done.sites.places[site].site)
            if claim is not None and claim.unasked:
                continue
            if site not in sites:
                verdict.counts["sites"] += 1
                verdict.counts["narrow"] += claim is not None and not claim.lost and not claim.vague
                verdict.counts["known"] += claim is not None and not claim.lost
                verdict.counts["same"] += claim is not None and claim.same and not claim.lost
                sites.add(site)
            if claim is None:
                found = _violation(done, DEAD, rank.number, site, f"was thought dead, is {told(instances[0].value)}")
                verdict.violations.append(found)
                continue
            verdict.counts["values"] += len(instances)
            wrong = None if claim.lost else _first_wrong(claim, instances, rank.number, done.job.size)
            if wrong is not None:
                found = _violation(done, VALUE, rank.number, site, f"{told(wrong.value)} is not in {claim}")
                verdict.violations.append(found)


def _first_wrong(claim: Any, instances: Sequence[Instance], rank: int, world: int) -> Instance | None:
    return next((i for i in instances if not claim.may_be(i.value, rank, world)), None)


def check_events(done: Run, belief: Belief, verdict: Verdict) -> None:
    """(b) and (d): what each rank called is a word of the tree."""
    for rank in done.ranks:
        trace, cut = rank.cut_trace
        cut = cut or rank.outcome == "exit 2"  # argparse ended it
        trace = [e for e in trace if belief.in_alphabet(e)]
        raised = rank.outcome.startswith(("exit", "raise "))
        lane = belief.lane(rank.number, done.job)
        answer = is_word(
            belief.tree, trace, belief.is_same_event, cut=cut, raised=raised, counts=belief.counts, lane=lane
        )
        verdict.counts["events"] += len(trace)
        if answer.accepted:
            verdict.counts["explained"] += 0 if answer.lost else len(trace)
            continue
        nth = min(answer.explained, len(trace))
        if nth < len(trace):
            event = trace[nth]
            message = f"event {nth + 1} of {len(trace)} ({event.api}) is not explained"
            path, line, col = event.path, event.line, event.col
        else:
            message = f"the rank ended ({rank.outcome}) after {len(trace)} events, the tree goes on"
            path, line, col = (trace[-1].path, trace[-1].line, trace[-1].col) if trace else (done.job.entry, 1, 0)
        verdict.violations.append(Violation(EVENTS, rank.number, path, line, col, message, _excerpt(done, path, line)))


def check_same(done: Run, belief: Belief, verdict: Verdict, *, late: bool = True) -> None:
    """(c): what is claimed equal on all ranks is equal, in evaluations that have the same context on two ranks."""
    by_rank = [dict(_recorded(rank, late)) for rank in done.ranks]
    for site in sorted({s for values in by_rank for s in values}):
        claim = belief.value(done.sites.places[site].site)
        if claim is None or claim.lost or not claim.same:
            continue
        known: dict[tuple[Any, ...], tuple[int, Any]] = {}
        for rank, values in enumerate(by_rank):
            for instance in _once(values.get(site, ())):
                print_of = fingerprint(instance.value)
                first = known.setdefault(instance.key, (rank, instance.value))
                verdict.counts["pairs"] += first[0] != rank
                if fingerprint(first[1]) != print_of:
                    text = (
                        f"claimed equal, but rank {first[0]} has {told(first[1])}, rank {rank} {told(instance.value)}"
                    )
                    verdict.violations.append(_violation(done, SAME, rank, site, text))
                    known.clear()
                    break
            else:
                continue
            break


def _once(instances: Iterable[Instance]) -> list[Instance]:
    """Evaluations whose context is their own (a callback of a library may come twice with one)."""
    listed = list(instances)
    often = Counter(i.key for i in listed)
    return [i for i in listed if often[i.key] == 1]


def fingerprint(value: object, depth: int = 4) -> object:
    """What makes a value equal to that of another rank: contents of plain data, else the class."""
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, Tensor):
        return ("tensor", value.dims, tuple(fingerprint(v) for v in value.flat))
    if isinstance(value, int | float | complex | str | bytes | bool | range | type(None)):
        return (type(value).__name__, value)
    if depth == 0 or isinstance(value, Mock):
        return type(value).__qualname__
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(fingerprint(v, depth - 1) for v in value))
    if isinstance(value, dict):
        return ("dict", *((fingerprint(k), fingerprint(v, depth - 1)) for k, v in value.items()))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(fingerprint(v, depth - 1) for v in value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def told(value: object) -> str:
    """A value in a message."""
    try:
        text = object.__repr__(value) if isinstance(value, Mock) else repr(value)
    except BaseException as error:
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= 100 else text[:97] + "..."


def judge_many(drawn: Iterable[Program], believe: Believe, **options: bool) -> Verdict:
    """Judge many programs; the report of the result counts them."""
    total = Verdict()
    for one in drawn:
        verdict = judge_program(one, believe, **options)
        verdict.violations = [
            Violation(v.kind, v.rank, v.path, v.line, v.col, f"(seed {one.seed}) {v.message}", v.excerpt)
            for v in verdict.violations
        ]
        total.add(verdict)
    return total
