"""``dslint doctor``: arguments -> machine -> checks -> repairs -> report."""

from __future__ import annotations

import os
import sys
import threading
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from dslint.core.commandline import say
from dslint.doctor import ssh
from dslint.doctor.arguments import doctor_parser
from dslint.doctor.environment import NoPython, Python
from dslint.doctor.locks import remove
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import Outcome, ok, unknown
from dslint.doctor.registry import Check, UnknownCheck, select
from dslint.doctor.results import Checked

# Every single question is bounded more tightly; this is for calls that have no limit of their own.
CHECK_SECONDS = 120.0
NOTHING_WRONG, SOMETHING_WRONG, USAGE = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Run ``dslint doctor`` with these arguments; returns the exit code."""
    options = doctor_parser().parse_args(arguments)
    try:
        checks = select(options.check)
        if options.list:
            sys.stdout.writelines(f"{c.meta.id:<4} {c.meta.name:<30} {c.meta.summary}\n" for c in checks)
            return NOTHING_WRONG
        _check_usage(options)
        machine = _machine(options)
    except (UnknownCheck, NoPython, _UsageError) as problem:
        say(str(problem))
        return USAGE
    results = run(machine, checks)
    if options.fix:
        results = repair(machine, results, ask=not options.yes)
    _report(machine, results, options)
    return SOMETHING_WRONG if any(o.status.fails for r in results for o in r.outcomes) else NOTHING_WRONG


class _UsageError(Exception):
    """Flags that do not go together, as one line."""


def _check_usage(options: Namespace) -> None:
    if options.yes and not options.fix:
        raise _UsageError("--yes answers the questions of --fix: write --fix --yes")
    if options.fix and not options.yes and not (sys.stdin and sys.stdin.isatty()):
        raise _UsageError("--fix asks before it removes a lock, and there is no terminal: write --fix --yes")


def _machine(options: Namespace) -> Machine:
    python = Python.ask(Path(options.python).expanduser()) if options.python else Python.current()
    return Machine(python, hosts=options.host, hostfile=Path(options.hostfile) if options.hostfile else None)


def run(machine: Machine, checks: tuple[Check, ...]) -> list[Checked]:
    """Run the checks. One that fails says so as `unknown`: the others must not be lost."""
    return [Checked(check.meta, tuple(_run_one(machine, check))) for check in checks]


def _run_one(machine: Machine, check: Check) -> list[Outcome]:
    """Run a check in a thread: a network file system or a driver that is gone can keep a call for ever."""
    answer: list[list[Outcome]] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            answer.append(check.run(machine))
        except Exception as problem:
            problems.append(problem)

    # Hosts are asked some at a time, each with a limit of its own.
    limit = CHECK_SECONDS + ssh.SECONDS * len(ssh.named_hosts(machine)) / ssh.AT_ONCE
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    if answer:
        return answer[0]
    if not problems:
        reason = "a file system or a driver that it asked does not answer"
        return [unknown(f"the check did not end in {limit:.0f} s", reason)]
    if os.environ.get("DSLINT_DEBUG"):
        raise problems[0]
    return [unknown("the check itself failed", f"{type(problems[0]).__name__}: {problems[0]} (please report it)")]


def repair(machine: Machine, results: list[Checked], *, ask: bool) -> list[Checked]:
    """Remove the locks that were proven stale, each after a question, and say what became of them."""
    return [replace(r, outcomes=tuple(_repair_one(machine, o, ask=ask) for o in r.outcomes)) for r in results]


def _repair_one(machine: Machine, outcome: Outcome, *, ask: bool) -> Outcome:
    if outcome.lock is None or (ask and not _agreed(outcome)):
        return outcome
    refusal = remove(machine, outcome.lock)
    if refusal:
        return replace(outcome, found=f"{outcome.found} but was not removed", reason=refusal, repair="")
    return ok(
        f"{outcome.found}: removed", "restart jobs that waited for it: they look for a library they did not build"
    )


def _agreed(outcome: Outcome) -> bool:
    sys.stderr.write(f"{outcome.found}: {outcome.reason}\nRemove it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _report(machine: Machine, results: list[Checked], options: Namespace) -> None:
    if options.format == "json":
        from dslint.doctor.report.jsonout import render

        sys.stdout.write(render(machine, results))
        return
    from dslint.core.terminal import use_color
    from dslint.doctor.report.text import write

    write(machine, results, sys.stdout, color=use_color(options.color, sys.stdout, os.environ))
