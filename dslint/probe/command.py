"""``dslint probe``: arguments -> cases -> runs -> report."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dslint.core.commandline import say
from dslint.core.terminal import use_color
from dslint.probe.arguments import probe_parser
from dslint.probe.arms import ProbeError
from dslint.probe.experiment import Subject
from dslint.probe.gpus import visible
from dslint.probe.needs import Place, can_make_namespaces
from dslint.probe.outcome import Verdict
from dslint.probe.report import Run, Summary, renderer
from dslint.probe.runner import Plan, Report, run_all
from dslint.probe.selection import Selection, UnknownName, everything, from_names, from_rules, from_subjects
from dslint.probe.supervisor import Supervisor
from dslint.rules.registry import UnknownSelector, find

OK, CONFIRMED, TROUBLE = 0, 1, 2

_REPORTS = {".md": "markdown", ".html": "html"}

# Lints paths with what the user states, for the cli, which alone knows the engine.
Lint = Callable[[Sequence[str], Namespace], "list[Subject]"]
Execute = Callable[[Selection, Namespace], int]


def main(arguments: Sequence[str], lint: Lint, execute: Execute | None = None) -> int:
    """Run ``dslint probe``; returns the exit code. ``execute`` runs what is chosen; default: on this machine."""
    args = probe_parser().parse_args(arguments)
    try:
        for name in args.report:
            if Path(name).suffix.lower() not in _REPORTS:
                raise ProbeError(f"--report writes .md or .html, found `{name}`")
        selection = _select(args, lint)
        if args.list:
            return _list()
        if args.emit_repro:
            return _emit(selection, Path(args.emit_repro))
        return (execute or _run)(selection, args)
    except (UnknownSelector, UnknownName, ProbeError) as error:
        say(str(error))
        return TROUBLE


def _select(args: Namespace, lint: Lint) -> Selection:
    codes = [info.code for selector in args.rule for info in find(selector)]
    if args.list:
        return Selection()
    if args.all:
        return everything()
    if args.case:
        return from_names(args.case)
    if codes and not args.paths and not args.finding:
        return from_rules(codes)
    path, _, line = (args.finding or "").rpartition(":")
    if args.finding and (not path or not line.isdecimal()):
        raise UnknownName(f"--finding must be PATH:LINE, found `{args.finding}`")
    subjects = lint(args.paths or ([path] if path else ["."]), args)
    if codes:
        subjects = [s for s in subjects if s.finding.code in codes]
    if args.finding:
        same = os.path.abspath(path)
        subjects = [
            s
            for s in subjects
            if s.finding.location.region.line == int(line) and os.path.abspath(s.finding.location.path) == same
        ]
        if not subjects:
            raise UnknownName(f"dslint finds nothing at {args.finding}")
    return from_subjects(subjects)


def _list() -> int:
    for entry, case, _ in everything().work:
        rules = ",".join(entry.rules(case)) or "-"
        name = f"{entry.experiment.name}/{case.name}"
        sys.stdout.write(f"{name:<60} {rules:<8} {case.verdict.value:<15} {entry.experiment.summary}\n")
    return OK


def _emit(selection: Selection, folder: Path) -> int:
    from dslint.probe.reproduce import write

    for entry, case, _ in selection.work:
        path = write(entry, case, folder)
        sys.stdout.write(f"{path}\n")
    if not selection.work:
        say("no experiment to write")
    return OK if selection.work else TROUBLE


def _backend(args: Namespace) -> tuple[str, int]:
    """(backend, number of GPUs that ranks may use).

    Raises:
        ProbeError: nccl was asked for and there is no GPU.
    """
    gpus = 0 if args.backend == "gloo" else len(visible())
    if args.backend == "nccl" and not gpus:
        raise ProbeError("--backend nccl needs a GPU: nvidia-smi lists none")
    return ("nccl" if gpus else "gloo"), gpus


def plan_of(args: Namespace) -> Plan:
    """What the flags ask for."""
    return Plan("" if args.backend == "auto" else args.backend, args.ranks or 0, args.timeout or 0.0, args.explain)


def _run(selection: Selection, args: Namespace) -> int:
    backend, gpus = _backend(args)
    plan = plan_of(args)
    reports: list[Report] = []
    with Supervisor(gpus, args.python) as supervisor:

        def place() -> Place:
            return Place(gpus, can_make_namespaces(), supervisor.versions)

        with progress(len(selection.work), args.quiet) as step:
            for report in run_all(selection.work, supervisor, place, plan, args.jobs):
                reports.append(report)
                step(f"{report.experiment}/{report.case}")
        summary = Summary.of(supervisor.versions, backend, gpus, supervisor.warm_seconds)
    is_stuck = bool(supervisor.missing) and all(r.verdict is Verdict.NEEDS for r in reports)
    if not is_stuck or _format(args) not in ("full", "concise"):
        write(Run(reports, selection.without, summary), args)
    if supervisor.missing:
        say(supervisor.missing)
    if is_stuck:
        # Nothing can run, for one reason: a person is told it once, not with each experiment.
        return TROUBLE
    return CONFIRMED if any(r.verdict is Verdict.CONFIRMED for r in reports) else OK


def _format(args: Namespace) -> str:
    return args.output_format or ("full" if sys.stdout.isatty() else "concise")


def write(run: Run, args: Namespace) -> None:
    """Print the report, and write the files that ``args`` name."""
    chosen = _format(args)
    sys.stdout.write(renderer(chosen)(replace(run, color=use_color(args.color, sys.stdout, os.environ))))
    for name in args.report:
        Path(name).write_text(renderer(_REPORTS[Path(name).suffix.lower()])(run), encoding="utf-8")
    if not args.quiet:
        sys.stderr.write(run.line() + "\n")


@contextmanager
def progress(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if quiet or total == 0 or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("probing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, last="warming up")
        yield lambda name: progress.update(task, advance=1, last=name)
