"""The keys of ``[tool.dslint]``: one definition for validation, the JSON Schema, and the program.

Field metadata is what pydantic's ``Field`` takes; pydantic itself is imported only to say what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dslint.core.finding import Confidence, Severity
from dslint.rules.registry import use_project_rules
from dslint.settings.selection import Layer, is_enabled, longest_match
from dslint.settings.stated import StatedLaunch

if TYPE_CHECKING:
    from dslint.core.finding import Finding

SeverityName = Literal["error", "warning", "info"]
ConfidenceName = Literal["certain", "likely"]
FormatName = Literal[
    "concise", "full", "json", "json-lines", "github", "sarif", "gitlab", "junit", "checkstyle", "rdjson", "azure"
]
LanguageName = Literal["en", "zh"]
ConsumerName = Literal["deepspeed", "hf", "accelerate", "lightning"]


def _about(description: str, **constraints: Any) -> dict[str, Any]:
    return {"description": description, **constraints}


# Strict: ``fix = 1`` or ``world-size = "8"`` is a mistake worth a line, not a value to guess from.
_SWITCH = {"strict": True}
_COUNT = {"strict": True, "ge": 1}
_SELECTORS = "rules by code (DSL201), prefix (DSL2), name, or ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the job is started, where no launch file says it."""

    nnodes: int | None = field(default=None, metadata=_about("Number of machines.", **_COUNT))
    nproc_per_node: int | None = field(
        default=None, metadata=_about("Processes (ranks) on each machine, usually its GPUs.", **_COUNT)
    )
    world_size: int | None = field(default=None, metadata=_about("Processes (ranks) on all machines.", **_COUNT))


class Pattern:
    """What an expression must match, told to pydantic without importing it here."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The hook of pydantic for annotations."""
        from pydantic_core import core_schema

        return core_schema.str_schema(pattern=self.expression)


NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
PythonName = Annotated[str, Pattern(NAME)]
_EITHER = "dotted (`mylib.dist.NAME`: the imported object) or bare (`NAME`: any of that name)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of the project's own that script rules are to know."""

    guards: tuple[PythonName, ...] = field(
        default=(),
        metadata=_about(f"Tests that only the main process passes, and decorators that let only it in: {_EITHER}."),
    )
    collectives: tuple[PythonName, ...] = field(
        default=(), metadata=_about(f"Functions and methods that every rank must call: {_EITHER}.")
    )
    trainers: tuple[PythonName, ...] = field(
        default=(), metadata=_about(f"Classes that work like the Trainer of transformers: {_EITHER}.")
    )
    engines: tuple[PythonName, ...] = field(
        default=(),
        metadata=_about(f"Callables that return a DeepSpeed engine, or a tuple that begins with one: {_EITHER}."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Settings of dslint, a static analyzer for distributed training."""

    extend: str | None = field(
        default=None, metadata=_about("Another settings file to start from; its keys hold unless this file sets them.")
    )
    select: tuple[str, ...] | None = field(
        default=None,
        metadata=_about(f"Only these {_SELECTORS}. Default: all but a few, which need their code, their name or ALL."),
    )
    ignore: tuple[str, ...] = field(
        default=(), metadata=_about(f"Not these {_SELECTORS}. The most specific selector wins.")
    )
    extend_select: tuple[str, ...] = field(default=(), metadata=_about("These rules too, beside what `select` says."))
    extend_ignore: tuple[str, ...] = field(default=(), metadata=_about("Nor these rules, beside what `ignore` says."))
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata=_about(
            "File pattern (gitignore style, relative to this file) to the rules ignored there. A selector may name a "
            "place in a config by JSON pointer: `DSL160:/zero_optimization/overlap_comm`. A pattern that begins with "
            "`!` means all other files."
        ),
    )
    severity: Mapping[str, SeverityName] = field(
        default_factory=dict, metadata=_about("Severity by rule code, prefix or name.")
    )
    fail_on: SeverityName = field(default="warning", metadata=_about("The lowest severity that makes the exit code 1."))
    min_severity: SeverityName | None = field(
        default=None,
        metadata=_about(
            "The lowest severity that is reported, in all formats; the exit code does not change. "
            "Default: warning on a terminal and in text, info (everything) in formats for programs."
        ),
    )
    min_confidence: ConfidenceName = field(
        default="likely",
        metadata=_about("`certain`: without findings that rest on an assumption (docs/assumptions.md)."),
    )
    lower_asides: bool = field(
        default=True,
        metadata=_about(
            "Errors and warnings in tests, archived folders, copies of public packages and notebooks beside scripts "
            "are notes.",
            **_SWITCH,
        ),
    )
    exit_zero: bool = field(default=False, metadata=_about("Exit with 0 even when there are findings.", **_SWITCH))
    baseline: Path | None = field(
        default=None,
        metadata=_about(
            "File of findings that are known and not reported, relative to this file. `--write-baseline FILE` makes it."
        ),
    )
    exclude: tuple[str, ...] | None = field(
        default=None, metadata=_about("Patterns (gitignore style) left out instead of the built-in ones.")
    )
    extend_exclude: tuple[str, ...] = field(default=(), metadata=_about("Patterns left out beside the built-in ones."))
    force_exclude: bool = field(
        default=False, metadata=_about("Excludes hold for files named on the command line too.", **_SWITCH)
    )
    respect_gitignore: bool = field(default=True, metadata=_about("Leave out what git ignores.", **_SWITCH))
    output_format: FormatName | None = field(
        default=None, metadata=_about("Default: full on a terminal, concise elsewhere.")
    )
    lang: LanguageName | None = field(
        default=None,
        metadata=_about(
            "The language of messages, hints and pages, in all formats. Default: that of the environment (`LANG`) in "
            "text for people, English in formats for programs."
        ),
    )
    fix: bool = field(default=False, metadata=_about("Apply safe fixes.", **_SWITCH))
    unsafe_fixes: bool = field(
        default=False, metadata=_about("With `fix`: apply those that need a person's eye as well.", **_SWITCH)
    )
    unfixable: tuple[str, ...] = field(default=(), metadata=_about(f"Report, and never fix, these {_SELECTORS}."))
    world_size: int | None = field(default=None, metadata=_about("Number of processes (ranks) in the job.", **_COUNT))
    deepspeed_version: str | None = field(
        default=None, metadata=_about("DeepSpeed release or range: 0.16.9, 0.16, >=0.14,<0.18.")
    )
    transformers_version: str | None = field(
        default=None, metadata=_about("transformers release or range: 4.57.1, >=4.45,<5.")
    )
    accelerate_version: str | None = field(default=None, metadata=_about("accelerate release or range: 1.10, >=0.34."))
    consumer: ConsumerName | None = field(
        default=None,
        metadata=_about(
            "Who reads the DeepSpeed configs: plain `deepspeed.initialize`, the Trainer of transformers (`hf`), "
            "accelerate with a training loop of its own, or Lightning. Default: what the project shows."
        ),
    )
    consumers: Mapping[str, ConsumerName] = field(
        default_factory=dict,
        metadata=_about(
            "File pattern (gitignore style, relative to this file) to the reader of the configs there; the last "
            "pattern that matches wins, also over `consumer`."
        ),
    )
    launch: Launch = field(
        default_factory=Launch, metadata=_about("How the job is started, where no command or file says it.")
    )
    launches: Mapping[str, Launch] = field(
        default_factory=dict,
        metadata=_about(
            "File pattern (gitignore style, relative to this file) to how the commands and configs there are started; "
            "the last pattern that matches wins, also over `launch`."
        ),
    )
    names: Names = field(
        default_factory=Names, metadata={"description": "Names of the project's own that script rules are to know."}
    )
    rules: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "Files with rules of the project's own: a path or the dotted name of a module, relative to this file. "
            "Their code runs only with `--project-rules`."
        ),
    )
    cache: bool = field(default=True, metadata=_about("Keep results between runs.", **_SWITCH))
    cache_dir: Path | None = field(
        default=None, metadata=_about("Folder of the cache. Default: the user's cache folder.")
    )
    jobs: int | None = field(default=None, metadata=_about("Worker processes. Default: all cores.", **_COUNT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Table):
    """The settings of one run.

    ``rule_files`` are those of ``rules``, by absolute path, when the user allows their code to run, and ``rule_digest``
    is that of their code. ``source`` is the settings file in use; patterns are relative to ``root``. ``layers`` are the
    selections of all sources, outermost last; ``severities`` and ``unfixed`` hold prefixes instead of names.
    ``stated`` is what ``launch`` and ``world_size`` say together, ``stated_in`` the same by file pattern.
    """

    rule_files: tuple[str, ...] = ()
    rule_digest: str = ""
    source: str | None = None
    root: Path = field(default_factory=Path.cwd)
    layers: tuple[Layer, ...] = ()
    severities: Mapping[str, Severity] = field(default_factory=dict)
    unfixed: tuple[str, ...] = ()
    stated: StatedLaunch = field(default_factory=StatedLaunch)
    stated_in: Mapping[str, StatedLaunch] = field(default_factory=dict)

    def use_project_rules(self) -> None:
        """Make the rules of the project known, and those of any other project unknown."""
        if self.rule_files:
            from dslint.engine.projectrules import activate

            activate(self.rule_files)
        else:
            use_project_rules((), are_missing=bool(self.rules))

    def enabled(self, code: str) -> bool:
        """The rule with this code is on."""
        return is_enabled(code, self.layers)

    def shows(self, finding: Finding) -> bool:
        """The finding is as certain as the user asks for."""
        return finding.confidence.rank >= Confidence(self.min_confidence).rank

    def adjusted(self, finding: Finding) -> Finding:
        """The finding with the severity that the user gives its rule, and without a fix that the user does not want."""
        if finding.fix is not None and finding.code.startswith(self.unfixed):
            finding = replace(finding, fix=None)
        prefix = longest_match(finding.code, self.severities)
        return finding if prefix is None else replace(finding, severity=self.severities[prefix])

    def fingerprint(self) -> str:
        """A hash of everything here that changes findings: part of the key of cached results."""
        from hashlib import blake2b  # loads OpenSSL

        ignores = sorted((glob, list(codes)) for glob, codes in self.per_file_ignores.items())
        parts = [
            repr(self.layers),
            repr(sorted((p, s.value) for p, s in self.severities.items())),
            repr(ignores),
            str(self.root) if ignores else "",
            repr((self.world_size, self.deepspeed_version, self.transformers_version, self.accelerate_version)),
            repr((self.stated.total, self.stated.numbers, [(p, s.numbers) for p, s in self.stated_in.items()])),
            repr((self.consumer, sorted(self.consumers.items()), self.names)),
            self.rule_digest,
        ]
        return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def describe(self) -> str:
        """The settings in force as TOML, for ``--show-settings``."""
        lines = [f"# from {self.source or 'built-in values'}", f"# patterns are relative to {self.root}"]
        for f in fields(Table):
            value = getattr(self, f.name)
            if f.name != "extend" and value not in (None, {}, Launch(), Names()):
                lines.append(f"{kebab(f.name)} = {_toml(value)}")
        return "\n".join(lines) + "\n"


def kebab(name: str) -> str:
    """``world_size`` -> ``world-size``."""
    return name.replace("_", "-")


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Launch | Names):
        return _toml({kebab(f.name): v for f in fields(value) if (v := getattr(value, f.name)) not in (None, ())})
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
