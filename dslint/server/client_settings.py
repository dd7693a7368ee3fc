"""What the client wishes, apart from the settings files of the project, over which it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dslint.core.finding import Severity
from dslint.settings import Settings, SettingsError, load_settings, make_settings
from dslint.translate import LANGUAGES

# The wishes that are flags of `dslint check`; any spelling of the words does: `worldSize`, `world_size`, `world-size`.
_FLAGS = frozenset(
    {"select", "ignore", "extend-select", "extend-ignore", "exclude", "extend-exclude", "per-file-ignores", "consumer",
     "world-size", "nnodes", "nproc-per-node", "deepspeed-version", "transformers-version", "accelerate-version",
     "min-confidence", "cache", "cache-dir", "respect-gitignore"}
)  # fmt: skip
# The others.
_OWN = frozenset({"min-severity", "lang", "code-lens", "inlay-hints", "config", "isolated"})


@dataclass(frozen=True)
class Wishes:
    """``flags`` are settings of dslint; ``problems`` say in words what could not be used."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    least: Severity = Severity.INFO
    code_lens: bool = True
    inlay_hints: bool = True
    config: str | None = None
    isolated: bool = False
    problems: tuple[str, ...] = ()
    language: str | None = None

    @classmethod
    def of(cls, given: object) -> Wishes:
        """What a client sends at its start, or later, with or without a ``dslint`` around it."""
        if isinstance(given, dict) and isinstance(given.get("dslint"), dict):
            given = given["dslint"]
        if isinstance(given, dict) and isinstance(given.get("settings"), dict):
            given = given["settings"]
        if not isinstance(given, dict):
            return cls()
        flags: dict[str, Any] = {}
        own: dict[str, Any] = {}
        problems = []
        for name, value in given.items():
            key = _kebab(str(name))
            if value is None:
                continue
            if key in _FLAGS:
                flags[key] = value
            elif key in _OWN:
                own[key] = value
            else:
                problems.append(f"`{name}` is no setting of the server (docs/editor.md lists them)")
        least = own.get("min-severity", Severity.INFO.value)
        if least not in [severity.value for severity in Severity]:
            problems.append(f"`minSeverity` must be error, warning or info, found `{least}`")
            least = Severity.INFO.value
        language = own.get("lang")
        if language is not None and language not in LANGUAGES:
            problems.append(f"`lang` must be one of {', '.join(LANGUAGES)}, found `{language}`")
            language = None
        config = own.get("config")
        return cls(
            flags,
            Severity(least),
            own.get("code-lens") is not False,
            own.get("inlay-hints") is not False,
            config if isinstance(config, str) else None,
            own.get("isolated") is True,
            tuple(problems),
            language,
        )

    def settings(self, root: str) -> tuple[Settings, str]:
        """The settings of a folder under these wishes, and what is wrong with them, empty when nothing is."""
        try:
            config = Path(self.config) if self.config else None
            return load_settings(Path(root), self.flags, config, self.isolated), ""
        except SettingsError as error:
            return make_settings({}, Path(root).absolute()), str(error)


def _kebab(name: str) -> str:
    """``worldSize`` -> ``world-size``."""
    spaced = "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
    return spaced.replace("_", "-").lstrip("-")
