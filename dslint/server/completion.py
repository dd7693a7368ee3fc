"""Completion of keys and values in DeepSpeed configs, from the schema of the release in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from dslint.core.source import SourceFile
from dslint.model.deepspeed.detect import is_deepspeed_config
from dslint.model.deepspeed.schema import describe, load_schema, properties, schema_at
from dslint.parse.data import DataDoc, join_pointer
from dslint.parse.jsondoc import parse_json
from dslint.server.configkeys import plans_using, release_of
from dslint.server.jsoncursor import Cursor, cursor_at

if TYPE_CHECKING:
    from dslint.engine.session import Look
    from dslint.server.positions import Text

TRIGGERS = ('"', ":")
_SUFFIXES = (".json", ".jsonc", ".json5", ".hjson")


def completion(path: str, text: Text, position: types.Position, look: Look | None) -> list[types.CompletionItem]:
    """The keys or values that may stand at a position; none outside of a DeepSpeed config."""
    if not path.endswith(_SUFFIXES):
        return []
    doc = parse_json(SourceFile(path, text.text))
    if not _is_config(path, doc, look):
        return []
    cursor = cursor_at(text.text, text.offset(position))
    if cursor is None:
        return []
    release, _ = release_of(path, look)
    found = _keys(cursor, release, doc) if cursor.is_key else _values(cursor, release)
    place = text.range(cursor.token)
    items = []
    for rank, item in enumerate(found):
        item.text_edit = types.TextEdit(place, item.insert_text or item.label)
        item.insert_text = None
        # Clients compare with what stands in the place, quotes included.
        item.filter_text = item.text_edit.new_text
        item.sort_text = f"{rank:03}"
        items.append(item)
    return items


def _is_config(path: str, doc: DataDoc, look: Look | None) -> bool:
    name = path.rpartition("/")[2]
    if look is not None and any(known.path == path and not known.is_embedded for known in look.configs):
        return True
    if plans_using(path, look) or is_deepspeed_config(name, doc.data):
        return True
    # One that is just being begun: only the name can tell.
    is_begun = not isinstance(doc.data, dict) or len(doc.data) < 2
    return is_begun and any(word in name.lower() for word in ("deepspeed", "ds_", "_ds", "zero"))


def _keys(cursor: Cursor, release: str, doc: DataDoc) -> Iterator[types.CompletionItem]:
    present = doc.get(cursor.section)
    taken = set(present) if isinstance(present, dict) else set()
    typed = doc.source.text[cursor.token.start : cursor.token.end].strip('"')
    known = properties(cursor.section, release)
    # What is written most comes first at the top, as the schema has it; old names last.
    for name, schema in sorted(known.items(), key=lambda item: (_is_old(item[1]), item[0])):
        if name in taken and name != typed:
            continue
        yield types.CompletionItem(
            label=name,
            kind=types.CompletionItemKind.Module if "properties" in schema else types.CompletionItemKind.Property,
            detail=_detail(schema),
            documentation=schema.get("description"),
            tags=[types.CompletionItemTag.Deprecated] if _is_old(schema) else None,
            insert_text=json.dumps(name) if cursor.is_followed else f"{json.dumps(name)}: ",
        )


def _is_old(schema: dict[str, Any]) -> bool:
    """Nothing reads it any more, or it is another name of a key."""
    return schema.get("not") == {} or "deprecated" in str(schema.get("description", "")).lower()


def _detail(schema: dict[str, Any]) -> str:
    words = "a section" if "properties" in schema else describe(schema)
    return f"{words} (default {json.dumps(schema['default'])})" if "default" in schema else words


def _values(cursor: Cursor, release: str) -> Iterator[types.CompletionItem]:
    pointer = join_pointer(cursor.section, cursor.key or "")
    schema = schema_at(pointer, release)
    if schema is None:
        return
    default = [schema["default"]] if "default" in schema and not isinstance(schema["default"], dict | list) else []
    texts = dict.fromkeys(json.dumps(value) for value in (*default, *_allowed(schema, release)))
    for text in texts:
        is_default = bool(default) and text == json.dumps(default[0])
        yield types.CompletionItem(
            label=text, kind=types.CompletionItemKind.Value, detail="default" if is_default else None
        )
    if "properties" in schema:
        yield types.CompletionItem(label="{}", kind=types.CompletionItemKind.Struct, detail="a section")


def _allowed(schema: dict[str, Any], release: str) -> Iterator[Any]:
    """The values that a schema names one by one."""
    definitions = load_schema(release).get("definitions", {})
    pending, seen = [schema], 0
    while pending and seen < 50:
        at, seen = pending.pop(0), seen + 1
        yield from at.get("examples", ())
        yield from at.get("enum", ())
        if "const" in at:
            yield at["const"]
        kinds = at.get("type", ())
        if "boolean" in ([kinds] if isinstance(kinds, str) else kinds):
            yield from (True, False)
        reference = str(at.get("$ref", "")).rpartition("/")[2]
        if reference == "boolean":
            # Pydantic takes many spellings of it; people mean these.
            yield from (True, False)
        elif reference and not reference.endswith("_text"):
            pending.append({k: v for k, v in definitions.get(reference, {}).items() if k == "const"})
        pending += [*at.get("anyOf", ()), *at.get("allOf", ())]
