"""Finding and reading the sources of settings: files, the environment, flags."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dslint.settings.errors import Origin, SettingsError, shown
from dslint.settings.flags import anchored, from_flags
from dslint.settings.merge import Source, merge
from dslint.settings.table import Settings
from dslint.settings.validate import validate

FILE_NAMES = (".dslint.toml", "dslint.toml", "pyproject.toml")
_ENVIRONMENT = {
    "DSLINT_OUTPUT_FORMAT": "output-format",
    "DSLINT_CACHE_DIR": "cache-dir",
    "DSLINT_MIN_CONFIDENCE": "min-confidence",
    "DSLINT_MIN_SEVERITY": "min-severity",
    "DSLINT_LANG": "lang",
}


def make_settings(overrides: Mapping[str, object], root: Path | None = None, *, run_rules: bool = False) -> Settings:
    """Settings from flag names and values alone; no file and no environment is read.

    ``run_rules``: the code of ``rules`` may run.

    Raises:
        SettingsError: an unknown name, a wrong value, an unknown rule.
    """
    return merge([from_flags(overrides)], None, root or Path.cwd(), run_rules=run_rules)


def load_settings(
    start: Path,
    overrides: Mapping[str, object],
    config: Path | None = None,
    isolated: bool = False,
    environ: Mapping[str, str] = os.environ,
    run_rules: bool = False,
) -> Settings:
    """The settings for files at ``start``: the nearest settings file, then the environment, then flags.

    ``run_rules``: the code of the rules that the settings name may run; the environment can say so too.

    Raises:
        SettingsError: any of them cannot be used.
    """
    folder = start.absolute() if start.is_dir() else start.absolute().parent
    chain: list[Source] = []
    root = folder
    if config is not None and not isolated:
        # As in ruff: patterns in a file named by hand are relative to where the user stands.
        chain, root = _read_chain(config, required=True), Path.cwd()
    elif not isolated:
        for candidate in _candidates(folder):
            chain = _read_chain(candidate)
            if chain:
                root = candidate.parent
                break
    source = shown(chain[-1].origin.file) if chain and chain[-1].origin.file else None
    run_rules = run_rules or environ.get("DSLINT_PROJECT_RULES", "") not in ("", "0")
    sources = [*chain, _from_environment(environ), from_flags(anchored(overrides, root))]
    return merge(sources, source, root, run_rules=run_rules)


def _candidates(folder: Path) -> Iterator[Path]:
    for place in (folder, *folder.parents):
        for name in FILE_NAMES:
            candidate = place / name
            if os.path.isfile(candidate):
                yield candidate


def _read_chain(file: Path, required: bool = False, seen: tuple[Path, ...] = ()) -> list[Source]:
    """The file and what it extends, the outermost base first; empty when it is not about dslint."""
    if file.resolve() in seen:
        raise SettingsError(f"{shown(file)}: `extend` leads back to this file")
    source = _read(file, required)
    if source is None:
        return []
    base = source.values.pop("extend", None)
    if base is None:
        return [source]
    target = file.parent / Path(base).expanduser()
    if not target.is_file():
        raise source.origin.error(f"`extend`: there is no file {shown(target)}", ("extend",))
    return [*_read_chain(target, True, (*seen, file.resolve())), source]


def _read(file: Path, required: bool) -> Source | None:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{shown(file)}: cannot be read: {error.strerror or error}") from None
    is_project = file.name == "pyproject.toml"
    if is_project and b"dslint" not in raw and not required:
        # A project file of others: its mistakes are none of our business, and parsing it costs time.
        return None
    try:
        text = raw.decode("utf-8-sig")
        table = parse_toml(text)
    except UnicodeDecodeError:
        raise SettingsError(f"{shown(file)}: is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        place = re.search(r" \(at line (\d+), column \d+\)$", reason)
        where = f"{shown(file)}:{place[1]}" if place else shown(file)
        raise SettingsError(f"{where}: not valid TOML: {reason[: place.start()] if place else reason}") from None
    path: tuple[str, ...] = ("tool", "dslint") if is_project else ()
    for part in path:
        table = table.get(part, {}) if isinstance(table, dict) else {}
        if table == {} and required and is_project:
            raise SettingsError(f"{shown(file)}: has no [tool.dslint] table")
    origin = Origin("settings file", file, text, path)
    if not isinstance(table, dict):
        raise origin.error("[tool.dslint] must be a table", ())
    if not is_project and isinstance(table.get("tool"), dict) and "dslint" in table["tool"]:
        raise origin.error(
            f"`[tool.dslint]` is for pyproject.toml: in {file.name} the keys are at the top, and tables are called "
            "`[launch]`, not `[tool.dslint.launch]`",
            ("tool", "dslint"),
        )
    if not table and is_project:
        return None
    return Source(origin, validate(table, origin))


def parse_toml(text: str) -> Any:
    """The tables of a TOML text.

    Raises:
        ValueError: it is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _from_environment(environ: Mapping[str, str]) -> Source:
    raw = {key: environ[name] for name, key in _ENVIRONMENT.items() if environ.get(name)}
    origin = Origin("environment (DSLINT_*)")
    return Source(origin, validate(raw, origin))
