"""Several sources of settings -> one :class:`Settings`, every rule it names checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dslint.core.finding import Severity
from dslint.rules.registry import UnknownSelector, use_project_rules
from dslint.settings.errors import Origin
from dslint.settings.selection import Layer, prefix_of, split_pointer_selector
from dslint.settings.stated import StatedLaunch, by_pattern, stated_of
from dslint.settings.table import Launch, Names, Settings, kebab

_SELECTION = ("select", "ignore", "extend_select", "extend_ignore")
# A later source adds to these lists instead of replacing them.
_GROWING = ("ignore", "extend_select", "extend_ignore", "extend_exclude", "rules", "unfixable")
# What a version of each of these looks like.
_VERSIONS = {
    "deepspeed_version": "0.16.9 or >=0.14,<0.18",
    "transformers_version": "4.57.1 or >=4.45,<5",
    "accelerate_version": "1.10.1 or >=0.34,<2",
}


@dataclass(frozen=True, slots=True)
class Source:
    """One source of settings after validation: values by field name."""

    origin: Origin
    values: dict[str, Any]


def merge(sources: Sequence[Source], file: str | None, root: Path, *, run_rules: bool = False) -> Settings:
    """Later sources win; ``extend-*`` lists and tables add up, and a new ``select`` starts the selection anew.

    ``run_rules``: the code of the project's own rules may run.

    Raises:
        SettingsError: a rule or a version that does not exist, a rule of the project that cannot be used.
    """
    rule_files, rule_digest = _project_rules(sources, root, run_rules)
    merged: dict[str, Any] = {}
    layers: list[Layer] = []
    severities: dict[str, Severity] = {}
    unfixed: tuple[str, ...] = ()
    stated, by_file = StatedLaunch(), dict[str, StatedLaunch]()
    for source in sources:
        if "select" in source.values:
            for key in _SELECTION:
                merged.pop(key, None)
        if "launch" in source.values or "world_size" in source.values:
            # One number for all files, stated later, beats patterns stated before.
            by_file.clear()
            merged.pop("launches", None)
        own = stated_of(source.values.get("launch"), source.values.get("world_size"), source.origin, ("launch",))
        stated = stated.under(own)
        by_file = by_pattern(source.values.get("launches", {}), source.origin, by_file)
        if "consumer" in source.values:
            # One reader for all, stated later, beats patterns stated before.
            merged.pop("consumers", None)
        for key, value in source.values.items():
            merged[key] = _combined(key, merged.get(key), value, source.origin)
        layers.append(_layer(source))
        severities.update(_severities(source))
        unfixed += tuple(_prefix(selector, source, "unfixable") for selector in source.values.get("unfixable", ()))
        _check_file_ignores(source)
    # What later sources contradict is gone here too.
    merged["world_size"] = stated.total
    merged["launch"] = _numbers(stated, is_for_all=True)
    merged["launches"] = {pattern: _numbers(own) for pattern, own in by_file.items()}
    return Settings(
        **merged,
        rule_files=rule_files,
        rule_digest=rule_digest,
        source=file,
        root=root.absolute(),
        layers=tuple(layer for layer in layers if layer != Layer()),
        severities=severities,
        unfixed=unfixed,
        stated=stated,
        stated_in=by_file,
    )


def _numbers(stated: StatedLaunch, is_for_all: bool = False) -> Launch:
    """The table of these numbers; for all files ``world_size`` stands beside it."""
    found = (stated.nnodes, stated.nproc_per_node, None if is_for_all else stated.world_size)
    return Launch(**{f.name: s.value for f, s in zip(fields(Launch), found, strict=True) if s is not None})


def _project_rules(sources: Sequence[Source], root: Path, run_rules: bool) -> tuple[tuple[str, ...], str]:
    """The files of the project's own rules that are in use, and the digest of their code."""
    named = [(entry, source.origin) for source in sources for entry in source.values.get("rules", ())]
    if not named or not run_rules:
        use_project_rules((), are_missing=bool(named))
        return (), ""
    from dslint.engine.projectrules import ProjectRuleError, activate, file_of

    files: list[str] = []
    for entry, origin in named:
        files.append(str(file_of(entry, origin.file.absolute().parent if origin.file else root.absolute())))
        try:
            digest = activate(files)
        except ProjectRuleError as error:
            use_project_rules(())
            raise origin.error(f"`rules`: {error}", ("rules",)) from None
    return tuple(files), digest


def _combined(key: str, before: Any, value: Any, origin: Origin) -> Any:
    if key in ("cache_dir", "baseline"):
        return _anchored(value, origin)
    if key in _VERSIONS:
        return _as_range(value, kebab(key), origin)
    if before is None:
        return value
    if key in _GROWING:
        return (*before, *value)
    if key in ("per_file_ignores", "severity", "consumers"):
        return {**before, **value}
    if key == "names":
        return Names(**{f.name: (*getattr(before, f.name), *getattr(value, f.name)) for f in fields(Names)})
    return value


def _anchored(directory: Path | str, origin: Origin) -> Path:
    path = Path(directory).expanduser()
    return path if origin.file is None else origin.file.absolute().parent / path


def _prefix(selector: str, source: Source, *key: str) -> str:
    try:
        return prefix_of(selector)
    except UnknownSelector as error:
        raise source.origin.error(f"`{key[0]}`: {error}", key) from None


def _layer(source: Source) -> Layer:
    chosen = {
        key: tuple(_prefix(s, source, key.replace("_", "-")) for s in source.values[key])
        for key in _SELECTION
        if key in source.values
    }
    return Layer(**chosen)


def _severities(source: Source) -> dict[str, Severity]:
    given = source.values.get("severity", {})
    return {_prefix(selector, source, "severity", selector): Severity(name) for selector, name in given.items()}


def _check_file_ignores(source: Source) -> None:
    for glob, selectors in source.values.get("per_file_ignores", {}).items():
        for selector in selectors:
            rule, pointer = split_pointer_selector(selector)
            _prefix(rule, source, "per-file-ignores", glob)
            if pointer and not pointer.startswith("/"):
                raise source.origin.error(
                    f"`per-file-ignores`: `{pointer}` is no JSON pointer: it must begin with `/`",
                    ("per-file-ignores", glob),
                )


def _as_range(text: str, key: str, origin: Origin) -> str:
    """A release as a range: ``0.16.9`` is that release, ``0.16`` all of its patches; a range stays as it is."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        release = Version(text)
    except InvalidVersion:
        try:
            found = str(SpecifierSet(text)) if text.strip() else _bad_version(text, key, origin)
        except InvalidSpecifier:
            return _bad_version(text, key, origin)
    else:
        patches = len(release.release) < 3 and not (release.is_prerelease or release.is_postrelease or release.local)
        found = f"=={release}.*" if patches else f"=={release}"
    from dslint.settings.releases import no_release

    problem = no_release(key.removesuffix("-version"), found)
    if problem:
        raise origin.error(f"`{key}`: {problem}, found `{text}`", (key,))
    return found


def _bad_version(text: str, key: str, origin: Origin) -> str:
    usual = _VERSIONS[key.replace("-", "_")]
    raise origin.error(f"`{key}` must be a release or a range such as {usual}, found `{text}`", (key,))
