"""Measure how far the plans of real launch commands reach: what is resolved, and why the rest is not.

    python scripts/measure_plans.py DIR... [--json FILE] [--most 40]

Each folder is read as a project of its own, as `dslint plan` does. A command counts once, however many looks it has,
and is resolved where all of them are. Plain `python` commands without a config count for the script and parser only.

Beside what dslint says stands what a simple judge sees that shares no code with it: `read` compares the lines that
begin with the name of a launcher, or with a console script of the project, with the commands that were read; `in
project` looks for files whose path ends like the name of the script.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dslint.engine.planning import Planned, plan_paths
from dslint.model.plan.runplan import RunPlan
from dslint.planview.describe import View, views_of
from dslint.settings import load_settings

_SKIPPED = frozenset({".git", "node_modules", "__pycache__"})
_QUOTED = re.compile(r"`[^`]*`")
_FILE = re.compile(r"[\w./-]*\w\.(?:json|ya?ml|toml|hjson)")
_LAUNCHERS = (
    r"torchrun|deepspeed|accelerate\s+launch|accelerate-launch|srun|mpirun|mpiexec|xtuner\s+train|swift\s+(?:sft|pt|rlhf)"
    r"|llamafactory-cli\s+train|axolotl\s+train|colossalai\s+run|horovodrun|trl\s+\w+|accelerate\s+test"
)
_PYTHON = r"python[\d.]*\s+(?:-u\s+)?(?:-m\s+[\w.]+|[\w./-]+\.py)"
# Parsers whose options stand in YAML files, or are the parameters of any function.
_BY_FILES = frozenset({"hydra", "fire", "tyro"})
_PARSES = re.compile(
    r"ArgumentParser|parse_args|import (?:click|typer|cyclopts)|from (?:click|typer|cyclopts|absl)|TrlParser"
)
# What is asked of a plan, in the order of the table.
ASKED = ("read", "script", "in project", "parser", "config", "named files", "world", "versions")


@dataclass
class Measured:
    """The figures of one project: for each question how many commands were asked, and how many are resolved."""

    name: str
    commands: int = 0
    launches: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    resolved: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def tell(self, what: str, is_resolved: bool, why: str, place: str) -> None:
        """Count one answer."""
        self.asked[what] += 1
        self.resolved[what] += is_resolved
        if not is_resolved:
            reason = f"{what}: {_QUOTED.sub('`…`', why)}"
            self.reasons[reason] += 1
            self.places.setdefault(reason, []).append(f"{self.name}/{place}")


class Project:
    """The files of a project by their names, and the names of its console scripts."""

    def __init__(self) -> None:
        self.paths: dict[str, list[str]] = {}
        self.texts: list[str] = []
        for root, folders, names in os.walk("."):
            folders[:] = sorted(set(folders) - _SKIPPED)
            for name in names:
                self.paths.setdefault(name, []).append("/" + os.path.join(root, name)[2:])
        self.console = sorted(self._console())

    def ends_like(self, path: str) -> bool:
        """Return whether some file ends like this path, its leading dots and the clone's own name aside."""
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        tail = "/" + "/".join(parts)
        return any(p.endswith(tail) for p in self.paths.get(parts[-1], ())) if parts else False

    def parses(self, path: str) -> bool:
        """Return whether the words of a script speak of a parser."""
        return _PARSES.search(Path(path).read_text(encoding="utf-8", errors="replace")) is not None

    def _console(self) -> Iterator[str]:
        for name in ("pyproject.toml", "setup.py", "setup.cfg"):
            for path in self.paths.get(name, ()):
                text = Path(path[1:]).read_text(encoding="utf-8", errors="replace")
                yield from re.findall(r"""^\s*["']?([\w.-]+)\s*=\s*["']?[\w.]+:\w+["']?\s*,?\s*\]?,?$""", text, re.M)


def measure(folder: str) -> Measured:
    """Return the figures of one project."""
    found = Measured(Path(folder).resolve().name)
    start = time.monotonic()
    before = Path.cwd()
    os.chdir(folder)
    try:
        project = Project()
        planned = plan_paths(["."], load_settings(Path.cwd(), {}, None, True))
        views = views_of(planned)
        _count_lines(found, project, planned)
        by_place: dict[Any, list[View]] = {}
        for view in views:
            if view.launcher is not None:
                by_place.setdefault(view.command.location, []).append(view)
        for looks in by_place.values():
            _count(found, project, looks)
    finally:
        os.chdir(before)
    found.seconds = time.monotonic() - start
    return found


def _count(found: Measured, project: Project, looks: Sequence[View]) -> None:
    view = looks[0]
    place = f"{view.command.location.path}:{view.command.location.region.line}"
    found.commands += 1
    is_launch = not all(look.is_plain for look in looks)
    found.launches += is_launch
    for what, answer in _QUESTIONS.items():
        if what in ("script", "in project", "parser") or is_launch:
            answers = [answer(look, project) for look in looks]
            told = [a for a in answers if a is not None]
            if told:
                bad = next((a for a in told if a), "")
                found.tell(what, not bad, bad, place)


def _script(view: View, _project: Project) -> str | None:
    """Say why the script of a command is not known; nothing where a tool runs its own."""
    command, plan = view.command, view.plan
    if command.script is None or (command.launcher == "python" and not _may_be_here(view)):
        return None
    if plan.script is not None:
        return ""
    if plan.missing_script is not None or plan.meant is not None:
        return "reported: it does not exist"
    word = command.script
    if word.text is None:
        return f"the name is not known: {word.why or 'nobody can say'}"
    if "<" in word.text or "{" in word.text or word.text.startswith(("[", "...", "$")):
        return "a placeholder"
    if not command.is_module and not word.text.endswith((".py", ".ipynb")):
        return "no Python file"
    return "not found: a module" if command.is_module else "not found: a path"


def _may_be_here(view: View) -> bool:
    """Return whether plain Python starts something other than tools (`python -m pip`)."""
    word = view.command.script
    return word is not None and not (view.command.is_module and "." not in (word.text or "."))


def _in_project(view: View, project: Project) -> str | None:
    """Say why a script is not found that the project has, by the end of its path."""
    word, plan = view.command.script, view.plan
    if word is None or not word.text:
        return None
    path = word.text.replace(".", "/") + ".py" if view.command.is_module else word.text
    if not path.endswith(".py") or path.startswith(("/", "~")):
        return None
    main = path.removesuffix(".py") + "/__main__.py"
    if plan.script is None and not (project.ends_like(path) or (view.command.is_module and project.ends_like(main))):
        return None
    if plan.script is not None or plan.missing_script is not None or plan.meant is not None:
        return ""
    return "a module" if view.command.is_module else "a path"


def _parser(view: View, project: Project) -> str | None:
    """Say why the options of a script are not all in view; nothing for scripts whose options stand in no code.

    Those of Hydra and of programs that read `sys.argv` themselves; options that a parser lets pass are no question.
    """
    plan = view.plan
    if plan.script is None or not plan.script.endswith(".py"):
        return None
    if plan.parser is None:
        return "nothing in view parses the command line" if project.parses(plan.script) else None
    if plan.parser.kind in _BY_FILES:
        return None
    return "" if plan.parser.is_closed or plan.parser.lets_pass else plan.parser.open_because or "open"


def _config(view: View, _project: Project) -> str | None:
    """Say why the config of a run is not known that has one."""
    plan = view.plan
    if plan.config is not None or plan.zero_stage.is_known or plan.accelerate is not None:
        return ""
    if plan.missing:
        return ""  # reported
    return plan.config_path.reason or "unknown" if plan.config_path.is_unknown else None


def _named_files(view: View, _project: Project) -> str | None:
    """Say of which files that a command hands over nobody knows whether they are there."""
    command = view.command
    values = [f.value for f in (*command.script_flags, *command.launcher_flags) if f.value is not None]
    texts = [w.text for w in values if w.text and _FILE.fullmatch(w.text) and not w.text.startswith(("/", "~"))]
    if not texts:
        return None
    folders = {os.path.dirname(command.location.path), os.path.dirname(view.plan.script or ""), command.cwd.get_or("")}
    told = {named.text for named in (*view.plan.missing, *getattr(view.plan, "missing_files", ()))}
    lost = [text for text in texts if text not in told and not _stands(text, folders)]
    return "neither there nor reported" if lost else ""


def _stands(text: str, folders: set[str]) -> bool:
    for folder in folders:
        parts = folder.split("/") if folder else []
        if any(os.path.isfile(os.path.join(*parts[:n], text)) for n in range(len(parts) + 1)):
            return True
    return False


def _world(view: View, _project: Project) -> str | None:
    """Say why nobody knows how many processes there are; one where no count can be given."""
    fact = view.plan.world_size
    return fact.reason or "unknown" if fact.is_unknown else ""


def _versions(view: View, _project: Project) -> str | None:
    """Say why no release of a library is known."""
    return "" if view.versions else "no file of the project says a release"


_QUESTIONS = {
    "script": _script,
    "in project": _in_project,
    "parser": _parser,
    "config": _config,
    "named files": _named_files,
    "world": _world,
    "versions": _versions,
}


def _count_lines(found: Measured, project: Project, planned: Planned) -> None:
    """Compare lines that begin with a launcher or a console script of the project with the commands that were read."""
    console = "|".join(map(re.escape, project.console))
    names = f"{_LAUNCHERS}|{console}" if console else _LAUNCHERS
    begins = re.compile(rf"\s*(?:\$\s+|export\s+\w+=\S*\s*;\s*|\w+=\S*\s+)*(?:{names})\s+[^=\s]")
    covered = _covered(planned.plans)
    for paths in project.paths.values():
        for path in paths:
            if path.endswith((".sh", ".md", ".slurm", ".sbatch")):
                _count_file(found, path[1:], begins, covered)


def _covered(plans: Sequence[RunPlan]) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for plan in plans:
        where = plan.command.location
        spans.setdefault(where.path, []).append((where.span.start, where.span.end))
        for place in plan.command.called_from:
            spans.setdefault(place.path, []).append((place.span.start, place.span.end))
    return spans


def _count_file(found: Measured, path: str, begins: re.Pattern[str], covered: dict[str, list[tuple[int, int]]]) -> None:
    with open(path, encoding="utf-8", errors="replace", newline="") as stream:
        text = stream.read()
    is_document = path.endswith(".md")
    offset, fenced, previous = 0, False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if is_document and re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        goes_on = previous.rstrip().endswith("\\")
        if (fenced or not is_document) and not goes_on and begins.match(line):
            end = offset + len(line)
            is_read = any(a <= end and offset <= b for a, b in covered.get(path, ()))
            found.tell("read", is_read, f"not read: {line.split()[0] if line.split() else ''}", f"{path}:{number}")
        offset += len(line) + 1
        previous = line


def _share(found: Measured, what: str) -> str:
    whole = found.asked[what]
    return f"{100 * found.resolved[what] / whole:5.1f} % of {whole:4}" if whole else "-"


def table(rows: Sequence[Measured], most: int) -> str:
    """Return the figures as a text for people."""
    total = Measured("all")
    for row in rows:
        total.commands, total.launches = total.commands + row.commands, total.launches + row.launches
        total.seconds += row.seconds
        for name in ("asked", "resolved", "reasons"):
            getattr(total, name).update(getattr(row, name))
    head = f"{'project':24} {'commands':>8} {'launches':>8} " + " ".join(f"{what:>15}" for what in ASKED) + "      s"
    lines = [head]
    for row in (*rows, total):
        shares = " ".join(f"{_share(row, what):>15}" for what in ASKED)
        lines.append(f"{row.name:24} {row.commands:8} {row.launches:8} {shares} {row.seconds:6.1f}")
    lines += ["", "not resolved, by reason:"]
    lines += [f"  {count:5} {reason}" for reason, count in total.reasons.most_common(most)]
    return "\n".join(lines)


def main() -> None:
    """Measure the projects that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--json", help="file for the figures, with the places of what is not resolved")
    parser.add_argument("--most", type=int, default=40, help="how many reasons to print")
    options = parser.parse_args()
    rows = []
    for folder in options.folders:
        print(folder, file=sys.stderr)
        rows.append(measure(folder))
        gc.collect()
        if options.json:
            found = [{k: dict(v) if isinstance(v, Counter) else v for k, v in vars(row).items()} for row in rows]
            Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(rows, options.most))


if __name__ == "__main__":
    main()
