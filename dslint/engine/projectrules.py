"""Rules of a project's own: loaded from the files that its settings name, and only when the user allows it.

This is the one place where dslint runs code of a project. Its settings name the files, none is found by a search, and
nothing runs unless ``--project-rules`` or the environment variable ``DSLINT_PROJECT_RULES`` says so: a checkout of
others must not run code because somebody lints it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dslint.rules.info import RuleInfo
from dslint.rules.registry import LoadedRule, use_project_rules

if TYPE_CHECKING:
    from dslint.rules.base import RuleMeta

# Letters of the project's own, then three digits.
_CODE = re.compile(r"(?!DSL)[A-Z]{2,8}\d{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


class ProjectRuleError(ValueError):
    """A rule that cannot be used, as one line without the file."""


def file_of(entry: str, folder: Path) -> Path:
    """The file that an entry of ``rules`` means: a path, or a module by its dotted name, below the settings file."""
    if entry.endswith(".py"):
        return folder / Path(entry).expanduser()
    return folder.joinpath(*entry.split(".")).with_suffix(".py")


def activate(files: Sequence[str]) -> str:
    """Make the rules of these files the only ones of a project that are known; returns a digest of their code.

    Raises:
        ProjectRuleError: a file cannot be read or run, or holds no rule that dslint can use.
    """
    loaded: list[LoadedRule] = []
    digests: list[str] = []
    for file in files:
        try:
            raw = Path(file).read_bytes()
        except OSError as error:
            raise ProjectRuleError(f"{file}: cannot be read: {error.strerror or error}") from None
        rule = _loaded(file, raw)
        if any(rule.meta.code == other.meta.code or rule.meta.name == other.meta.name for other in loaded):
            raise ProjectRuleError(f"{file}: the code or name of `{rule.meta.code}` is taken by another rule")
        loaded.append(rule)
        digests.append(_digest(raw))
    use_project_rules([(_info(rule), rule) for rule in loaded])
    return " ".join(digests)


def _digest(raw: bytes) -> str:
    from hashlib import blake2b

    return blake2b(raw, digest_size=16).hexdigest()


@lru_cache(maxsize=64)
def _loaded(file: str, raw: bytes) -> LoadedRule:
    """The rule in a file with this content; the code runs once in a process."""
    module = ModuleType(f"dslint_project_rules_{_digest(raw)}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(raw, file, "exec"), module.__dict__)  # noqa: S102 - what the user has asked for
    except (Exception, SystemExit) as error:  # one that ends the process would end the check without a word
        place = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise ProjectRuleError(f"{file}: {type(error).__name__}: {error}{place}".splitlines()[0]) from error
    problem = _problem(module)
    if problem:
        raise ProjectRuleError(f"{file}: {problem}")
    return LoadedRule(module.META, module, cleandoc(module.__doc__ or ""), tuple(module.EXAMPLES))


def _problem(module: ModuleType) -> str:
    """Why a module is no rule, or empty."""
    from dslint.rules.base import RuleMeta
    from dslint.rules.registry import BY_NAME, PROJECT

    meta = getattr(module, "META", None)
    if not isinstance(meta, RuleMeta):
        return "`META` must be a RuleMeta"
    wrong = _wrong_field(meta)
    if wrong:
        return wrong
    if not _CODE.fullmatch(meta.code):
        return f"the code `{meta.code}` must be 2 to 8 capital letters and 3 digits, and must not begin with DSL"
    if not _NAME.fullmatch(meta.name) or (meta.name in BY_NAME and BY_NAME[meta.name].code not in PROJECT):
        return f"the name `{meta.name}` must be words joined by `-` that no other rule has"
    if meta.kind != "script":
        return f"`kind` must be 'script', found {meta.kind!r}"
    try:
        for marker in meta.markers:
            re.compile(marker.encode())
    except re.error as error:
        return f"a marker is no regular expression: {error}"
    return _wrong_part(module)


def _wrong_part(module: ModuleType) -> str:
    """What is wrong with the check, the examples and the functions of a module beside its metadata, or empty."""
    from dslint.rules.base import Example
    from dslint.rules.walk import ScriptCheck

    check, examples = getattr(module, "Check", None), getattr(module, "EXAMPLES", None)
    if not (isinstance(check, type) and issubclass(check, ScriptCheck)):
        return "`Check` must be a subclass of ScriptCheck"
    if not isinstance(examples, tuple) or not all(isinstance(example, Example) for example in examples):
        return "`EXAMPLES` must be a tuple of `bad(...)` and `good(...)`"
    for name in ("precheck", "applies"):
        if not callable(getattr(module, name, _problem)):
            return f"`{name}` must be a function"
    return ""


def _wrong_field(meta: RuleMeta) -> str:
    """The first field of the metadata whose value is of another type than it must be, or empty."""
    from dslint.core.finding import Severity

    for name in ("code", "name", "kind", "summary", "since", "fix"):
        if not isinstance(getattr(meta, name), str):
            return f"`{name}` must be a string, found {getattr(meta, name)!r}"
    for name in ("markers", "versions", "references"):
        value = getattr(meta, name)
        if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
            return f"`{name}` must be a tuple of strings, found {value!r}"
    for name in ("depends_on_run", "optional"):
        if not isinstance(getattr(meta, name), bool):
            return f"`{name}` must be True or False, found {getattr(meta, name)!r}"
    if not isinstance(meta.severity, Severity):
        return f"`severity` must be one of `Severity`, found {meta.severity!r}"
    if meta.fix not in ("safe", "unsafe", "none"):
        return f"`fix` must be 'safe', 'unsafe' or 'none', found {meta.fix!r}"
    return ""


def _info(rule: LoadedRule) -> RuleInfo:
    meta = rule.meta
    return RuleInfo(
        meta.code,
        meta.name,
        meta.kind,
        meta.severity.value,
        meta.summary,
        rule.module.__name__,
        markers=meta.markers,
        fix=meta.fix,
        since=meta.since,
        depends_on_run=meta.depends_on_run,
        has_precheck=hasattr(rule.module, "precheck"),
        optional=meta.optional,
        asks_runs=hasattr(rule.module, "query"),
    )
