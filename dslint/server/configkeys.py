"""The keys of DeepSpeed configs for a person: what they mean, in which releases, who reads them here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dslint.core.source import SourceFile
from dslint.model.deepspeed.config import FILLED_BY_ACCELERATE, FILLED_BY_HF
from dslint.model.deepspeed.detect import is_deepspeed_config
from dslint.model.deepspeed.history import known_since, known_until, refused_key_since, release_in_use
from dslint.model.deepspeed.schema import NEWEST, describe, history, schema_at
from dslint.model.plan.effective import filled_values, triangle_of
from dslint.parse.data import DataDoc, dotted_key
from dslint.parse.jsondoc import parse_json

if TYPE_CHECKING:
    from dslint.engine.session import Look
    from dslint.model.plan.runplan import RunPlan

_READERS = {
    "hf": "the Trainer of transformers, which then hands it to DeepSpeed",
    "deepspeed": "`deepspeed.initialize`",
    "accelerate": "accelerate, which then hands it to DeepSpeed",
    "lightning": "Lightning, which then hands it to DeepSpeed",
}
_MOST_RUNS = 3


def config_at(path: str, text: str, offset: int, look: Look | None) -> DataDoc | None:
    """The DeepSpeed config around an offset: the file itself, or a part of it that the last look has found."""
    if look is not None:
        for doc in look.configs:
            whole = doc.values.get("")
            if doc.is_embedded and doc.path == path and whole is not None and whole.start <= offset <= whole.end:
                return doc
    name = path.rpartition("/")[2]
    if name.endswith((".json", ".jsonc", ".json5", ".hjson")):
        doc = parse_json(SourceFile(path, text))
        is_used = look is not None and any(known.path == path and not known.is_embedded for known in look.configs)
        if is_used or is_deepspeed_config(name, doc.data):
            return doc
    return None


def pointer_at(doc: DataDoc, offset: int) -> str | None:
    """The key at an offset, or the key whose plain value stands there."""
    for pointer, span in doc.keys.items():
        if span.start <= offset < span.end:
            return pointer
    for pointer, span in doc.values.items():
        if span.start <= offset < span.end and pointer and not isinstance(doc.get(pointer), dict | list):
            return pointer
    return None


def release_of(path: str, look: Look | None) -> tuple[str, str]:
    """The release of DeepSpeed that describes a config, and who says so, empty where nobody does."""
    version = look.planned.surroundings.context(path).deepspeed if look is not None and look.planned else None
    if version is None or not version.is_known:
        return NEWEST, ""
    by = str(version.origin) if version.origin is not None else version.stated_by
    return release_in_use(version), by


def plans_using(path: str, look: Look | None) -> list[RunPlan]:
    """The runs that use a config."""
    plans = look.planned.plans if look is not None and look.planned is not None else ()
    return [plan for plan in plans if plan.config is not None and plan.config.path == path]


def described(doc: DataDoc, pointer: str, look: Look | None) -> str | None:
    """What is to be said of a key, as Markdown; ``None`` where no release knows it."""
    release, by = release_of(doc.path, look)
    schema = schema_at(pointer, release)
    in_other = schema or schema_at(pointer, NEWEST) or _in_any(pointer)
    if in_other is None:
        return None
    lines = [f"**`{dotted_key(pointer)}`** · DeepSpeed {release}" + (f" ({by})" if by else "")]
    if schema is None:
        lines.append(f"DeepSpeed {release} does not know this key.")
    if in_other.get("description"):
        lines.append(in_other["description"])
    facts = [f"default: `{json.dumps(in_other['default'])}`"] if "default" in in_other else []
    if "properties" not in in_other and in_other.get("not") != {}:
        facts.append(f"takes {describe(in_other)}")
    lines += ["; ".join(facts)] if facts else []
    lines.append(_releases(pointer))
    lines += _reading(pointer, doc, look)
    return "\n\n".join(line for line in lines if line)


def _in_any(pointer: str) -> dict[str, Any] | None:
    """A key that only older releases know."""
    return next((found for point in reversed(history()["points"]) if (found := schema_at(pointer, point))), None)


def _releases(pointer: str) -> str:
    since, until, refused = known_since(pointer), known_until(pointer), refused_key_since(pointer)
    words = [f"since {since}" if since else f"since {history()['first']} or before"]
    words += [f"no longer read since {until}"] if until else []
    words += [f"refused since {refused}"] if refused else []
    return f"Releases: {', '.join(words)}."


def _reading(pointer: str, doc: DataDoc, look: Look | None) -> Iterator[str]:
    """Who reads it in this project, and what `"auto"` becomes."""
    plans = plans_using(doc.path, look)
    readers = dict.fromkeys(plan.consumer.get_or("") for plan in plans)
    words = [_READERS[reader] for reader in readers if reader in _READERS]
    if words:
        places = ", ".join(f"`{plan.command.location}`" for plan in plans[:_MOST_RUNS])
        yield f"Read by {' and by '.join(words)} ({places})."
    if pointer in FILLED_BY_HF or pointer in FILLED_BY_ACCELERATE:
        filling = [name for name, known in (("transformers", FILLED_BY_HF), ("accelerate", FILLED_BY_ACCELERATE))
                   if pointer in known]  # fmt: skip
        yield f'`"auto"` is filled by {" and ".join(filling)}.'
    if doc.get(pointer) == "auto":
        for value in fillings(plans).get(pointer, ()):
            yield f'Here `"auto"` becomes {value}.'


def fillings(plans: list[RunPlan]) -> dict[str, list[str]]:
    """What each `"auto"` of a config becomes in the runs that use it, where the plans know it, each value once."""
    found: dict[str, dict[str, None]] = {}
    for plan in plans:
        for filled in filled_values(plan, triangle_of(plan)):
            if filled.value.is_known:
                found.setdefault(filled.pointer, {})[json.dumps(filled.value.get())] = None
    return {pointer: list(values) for pointer, values in found.items()}
