"""The plans for programs: ``schemas/plan.schema.json`` describes it, ``docs/plan.md`` explains it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dslint import __version__
from dslint.core.fact import Fact
from dslint.core.source import Location, SourceFile
from dslint.model.context import VersionFact
from dslint.model.launch.command import Word
from dslint.planview.describe import View

FORMAT_VERSION = 1


def render(views: Sequence[View], read: Callable[[str], SourceFile | None]) -> str:
    """One JSON object. ``read`` gives the files that origins point to, by path."""
    writer = _Writer(read)
    report = {"version": FORMAT_VERSION, "dslint": __version__, "commands": [writer.command(view) for view in views]}
    return json.dumps(report, indent=2, ensure_ascii=True) + "\n"


class _Writer:
    def __init__(self, read: Callable[[str], SourceFile | None]) -> None:
        self.read = read

    def command(self, view: View) -> dict[str, Any]:
        plan, command = view.plan, view.command
        return {
            "file": command.location.path,
            "line": command.location.region.line,
            "in_docs": command.in_docs,
            "conditions": [{**self.origin(c.location), "test": c.text, "taken": c.taken} for c in command.conditions],
            "env": {name: fact.get_or(None) for name, fact in view.env.items()},
            "wrappers": [[word.text for word in words] for words in command.wrappers],
            "argv": [word.text for word in command.argv],
            "spreads": [index for index, word in enumerate(command.argv) if word.text is None and word.spreads],
            "cwd": command.cwd.get_or(None),
            "launcher": view.launcher,
            "nodes": plan.nodes.get_or(None),
            "processes_per_node": plan.processes_per_node.get_or(None),
            "world_size": plan.world_size.get_or(None),
            "devices": list(view.devices.get()) if view.devices.is_known else None,
            "rendezvous": {
                "backend": view.meeting.backend.get_or(None),
                "address": view.meeting.address.get_or(None),
                "port": view.meeting.port.get_or(None),
                "node_rank": view.meeting.node_rank.get_or(None),
                "standalone": view.meeting.is_standalone,
            },
            "script": plan.script,
            "module": view.module,
            "parser": self.parser(view),
            "script_args": [word.text for word in command.script_args],
            "arguments": {name: self.fact(fact) for name, fact in view.arguments.items()},
            "configs": dict(view.configs),
            "consumer": self.fact(plan.consumer),
            "zero_stage": plan.zero_stage.get_or(None),
            "precision": plan.precision.get_or(None),
            "batch": self.batch(view),
            "effective_config": {filled.pointer: self.fact(filled.value) for filled in view.filled},
            "versions": {name: self.version(fact) for name, fact in view.versions.items()},
            "directives": {name: fact.get_or(None) for name, fact in view.directives.items()},
            "origins": self.origins(view),
            "unknown": [
                {"what": u.what, "why": u.why, **({} if u.at is None else self.origin(u.at))} for u in view.unknown
            ],
            "remarks": [*view.remarks, *view.ignored],
        }

    def parser(self, view: View) -> dict[str, Any] | None:
        found = view.parser
        if found is None:
            return None
        return {
            "kind": found.kind,
            "library": found.library or None,
            "open": found.is_open,
            "why": found.why or None,
            "file": found.path,
        }

    def batch(self, view: View) -> dict[str, Any]:
        triangle, doc = view.triangle, view.plan.config
        parts = {"train": triangle.train, "micro": triangle.micro, "accumulation": triangle.steps}
        keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        out: dict[str, Any] = {}
        for (name, fact), key in zip(parts.items(), keys, strict=True):
            out[name] = self.fact(fact)
            if not fact.is_known and doc is not None and doc.get(f"/{key}") == "auto":
                out[name]["value"] = "auto"
        return {**out, "world": self.fact(triangle.world)}

    def origins(self, view: View) -> dict[str, list[dict[str, Any]]]:
        """Where the plain values come from."""
        plan, command = view.plan, view.command
        facts: dict[str, Fact[Any]] = {
            "nodes": plan.nodes,
            "processes_per_node": plan.processes_per_node,
            "world_size": plan.world_size,
            "configs.deepspeed": plan.config_path,
            "zero_stage": plan.zero_stage,
            "precision": plan.precision,
            "devices": view.devices,
            "cwd": command.cwd,
            **{f"env.{name}": fact for name, fact in view.env.items()},
        }
        found = {name: self.places(fact.origins) for name, fact in facts.items() if fact.is_known and fact.origins}
        if command.script is not None:
            found["script"] = self.places(_places(command.script))
        return found

    def fact(self, fact: Fact[Any]) -> dict[str, Any]:
        """``why`` says who decides a value without a place, or why there is none."""
        return {
            "value": fact.get_or(None),
            "origins": self.places(fact.origins),
            "why": fact.reason or ("nobody states it" if fact.is_absent else None),
        }

    def version(self, fact: VersionFact) -> dict[str, Any]:
        return {
            "specifier": fact.specifier,
            "origins": self.places([fact.origin] if fact.origin is not None else ()),
            "why": fact.stated_by or None,
        }

    def places(self, locations: Iterable[Location]) -> list[dict[str, Any]]:
        seen = dict.fromkeys((place.path, place.region.line, place.region.cell) for place in locations)
        return [self.place(*key) for key in seen]

    def origin(self, location: Location) -> dict[str, Any]:
        return self.place(location.path, location.region.line, location.region.cell)

    def place(self, path: str, line: int, cell: int | None) -> dict[str, Any]:
        source = self.read(path) if cell is None else None
        text = source.line_text(line) if source is not None and line <= len(source.line_starts) else ""
        return {"file": path, **({} if cell is None else {"cell": cell}), "line": line, "text": text.strip()[:200]}


def _places(word: Word) -> list[Location]:
    return [word.location, *word.origins]
