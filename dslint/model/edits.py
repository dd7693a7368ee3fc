"""Text edits on configs: delete, insert, rename and replace members, keeping comments and layout.

Texts are given as JSON and written as the document has it: a dict of a Python file gets ``True`` and its own quotes,
a block of YAML its lines (``yamledits.py``).
Every function gives ``()`` where it cannot be sure of the result (a document with problems, a duplicated key, Hjson
forms in which a comma would become part of a value): then there is no fix.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.model import yamledits
from dslint.parse.data import DataDoc, join_pointer

Edits = tuple[Edit, ...]
_BLANK = " \t"
_SPACE = " \t\r\n"
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
_EXPONENT = re.compile(r"\d[eE][-+]?\d")


def replace_value(doc: DataDoc, pointer: str, text: str) -> Edits:
    """Write ``text`` in place of the value."""
    if doc.dialect == "yaml":
        written = _yaml(text) if pointer not in doc.computed else None
        return yamledits.replace_value(doc, pointer, written) if written is not None else ()
    worded = _worded(doc, text)
    if not _editable(doc, pointer) or pointer in doc.computed or worded is None:
        return ()
    return (Edit(doc.path, doc.values[pointer], worded),)


def rename_key(doc: DataDoc, pointer: str, key: str) -> Edits:
    """Give a member another key, unless its object already has one of that name."""
    if doc.dialect == "yaml":
        return yamledits.rename_key(doc, pointer, key) if _PLAIN_KEY.fullmatch(key) else ()
    parent = pointer.rpartition("/")[0]
    if not _editable(doc, pointer) or pointer not in doc.keys or doc.has(join_pointer(parent, key)):
        return ()
    worded = _worded(doc, json.dumps(key))
    if worded is None or (doc.dialect == "python" and not _is_quoted(doc, doc.keys[pointer])):
        return ()
    return (Edit(doc.path, doc.keys[pointer], worded),)


def delete_member(doc: DataDoc, pointer: str) -> Edits:
    """Remove a member with its comma, and its line when nothing else stands there."""
    if doc.dialect == "yaml":
        # A key without anything below it would be null.
        siblings = doc.get(pointer.rpartition("/")[0])
        return yamledits.delete_member(doc, pointer) if isinstance(siblings, dict) and len(siblings) > 1 else ()
    member = doc.members.get(pointer)
    if member is None or not _editable(doc, pointer):
        return ()
    text = doc.source.text
    after = _skip(doc, member.end)
    if doc.dialect != "json" and text[after : after + 1] not in (",", "}"):
        return ()  # parentheses around the value
    if text[after : after + 1] == ",":
        return _cut(doc, member, Span(after, after + 1))
    # The last member: the comma in front of it would become a trailing one.
    before = _skip_back(doc, member.start)
    if text[after : after + 1] in ("}", "") and text[before - 1 : before] == ",":
        return _cut(doc, member, Span(before - 1, before))
    return _cut(doc, member, None)


def delete_members(doc: DataDoc, pointers: Sequence[str]) -> Edits:
    """Remove several members of one object, each as :func:`delete_member` would."""
    each = [delete_member(doc, pointer) for pointer in pointers]
    if not all(each):
        return ()
    edits = [edit for found in each for edit in found]
    if doc.dialect == "yaml":
        parent = doc.get(pointers[0].rpartition("/")[0]) if pointers else None
        return tuple(sorted(edits, key=lambda edit: edit.span)) if parent and len(parent) > len(pointers) else ()
    section = pointers[0].rpartition("/")[0] if pointers else ""
    siblings = sorted((doc.members[p], p) for _, p, _ in doc.children(section) if p in doc.members)
    last_kept = max((member.end for member, pointer in siblings if pointer not in pointers), default=0)
    tail = [(member, pointer) for member, pointer in siblings if member.start >= last_kept]
    if len(tail) > 1 and not _has_comma_behind(doc, tail[-1][0]):
        # The comma in front of the last one goes with the member before it; the one to spare stands before them all.
        edits = [edit for edit in edits if edit not in each[pointers.index(tail[-1][1])]]
        edits += _cut(doc, tail[-1][0], None)
        before = _skip_back(doc, tail[0][0].start)
        if doc.source.text[before - 1 : before] == ",":
            edits.append(Edit(doc.path, Span(before - 1, before), ""))
    return tuple(sorted(edits, key=lambda edit: edit.span))


def _has_comma_behind(doc: DataDoc, member: Span) -> bool:
    after = _skip(doc, member.end)
    return doc.source.text[after : after + 1] == ","


def insert_member(doc: DataDoc, parent: str, key: str, text: str) -> Edits:
    """Add ``"key": text`` at the end of an object, in the style of its last member."""
    if doc.dialect == "yaml":
        written = _yaml(text) if _PLAIN_KEY.fullmatch(key) else None
        return yamledits.insert_member(doc, parent, key, written) if written is not None else ()
    pointer = join_pointer(parent, key)
    if doc.problems or doc.has(pointer) or not isinstance(doc.get(parent), dict):
        return ()
    whole, source = doc.values[parent], doc.source.text
    name, worded = _worded(doc, json.dumps(key)), _worded(doc, text)
    if name is None or worded is None:
        return ()
    pair = f"{name}: {worded}"
    if source[whole.start : whole.start + 1] != "{" or any(d.pointer.startswith(pointer) for d in doc.duplicates):
        return ()
    pointers = [p for _, p, _ in doc.children(parent)]
    if doc.dialect != "json":
        # What other statements put into the dict stands elsewhere.
        pointers = [p for p in pointers if p in doc.members and _is_inside(doc.members[p], whole)]
        if not pointers and source[whole.start + 1 : whole.end - 1].strip():
            return ()
    if not pointers:
        return _fill(doc, whole, pair)
    members = [doc.members[p] for p in pointers if p in doc.members]
    last = max(members, key=lambda span: span.end)
    if _is_bare_text(doc, pointers[members.index(last)]):
        return ()
    return _append(doc, last, pair)


def _append(doc: DataDoc, last: Span, pair: str) -> Edits:
    text = doc.source.text
    start, own_line = _line_start(text, last.start)
    comma = _skip(doc, last.end)
    trailing = text[comma : comma + 1] == ","
    if not own_line:
        if trailing:
            return (Edit(doc.path, Span(comma + 1, comma + 1), f" {pair},"),)
        return (Edit(doc.path, Span(last.end, last.end), f", {pair}"),)
    newline = "\r\n" if text[max(start - 2, 0) : start] == "\r\n" else "\n"
    line = newline + text[start : last.start] + pair
    at = _end_of_line_comment(doc, comma + 1 if trailing else last.end)
    if trailing:
        return (Edit(doc.path, Span(at, at), f"{line},"),)
    if at == last.end:
        return (Edit(doc.path, Span(at, at), f",{line}"),)
    return (Edit(doc.path, Span(last.end, last.end), ","), Edit(doc.path, Span(at, at), line))


def _fill(doc: DataDoc, whole: Span, pair: str) -> Edits:
    text = doc.source.text
    if any(whole.start < c.start < whole.end for c in doc.comments):
        return ()
    inside = text[whole.start + 1 : whole.end - 1]
    if "\n" not in inside:
        return (Edit(doc.path, whole, f"{{{pair}}}"),)
    newline = "\r\n" if "\r\n" in inside else "\n"
    start = text.rfind("\n", 0, whole.start) + 1
    line = text[start : whole.start]
    indent = line[: len(line) - len(line.lstrip(_BLANK))]
    return (Edit(doc.path, whole, f"{{{newline}{indent}  {pair}{newline}{indent}}}"),)


def _cut(doc: DataDoc, member: Span, comma: Span | None) -> Edits:
    """Delete a member and one comma beside it; what stands between the two (a comment) stays."""
    text = doc.source.text
    spans = [member]
    if comma is not None:
        follows = comma.start >= member.end
        between = text[member.end : comma.start] if follows else text[comma.end : member.start]
        if between.strip(_SPACE if follows else _BLANK):
            spans.append(comma)
        else:
            spans = [Span(min(member.start, comma.start), max(member.end, comma.end))]
    whole = spans[0]
    start, alone = _line_start(text, whole.start)
    end = whole.end
    while text[end : end + 1] and text[end] in _BLANK:
        end += 1
    newline = next((n for n in ("\r\n", "\n") if text.startswith(n, end)), None)
    if alone and newline:
        spans[0] = Span(start, end + len(newline))
    elif not newline and text[end : end + 1] not in ("", "}"):
        spans[0] = Span(whole.start, end)
    return tuple(Edit(doc.path, span, "") for span in sorted(spans))


def _worded(doc: DataDoc, text: str) -> str | None:
    """JSON text as the document words it; ``None`` where it cannot be written there."""
    if doc.dialect == "json":
        return text
    if doc.dialect != "python":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    first = next(iter(doc.keys.values()), None)
    single = first is not None and doc.source.text[first.start : first.start + 1] == "'"
    return _python(value, "'" if single else '"')


def _python(value: object, quote: str) -> str | None:
    """A value as Python source."""
    if isinstance(value, dict):
        pairs = [(_python(k, quote), _python(v, quote)) for k, v in value.items()]
        return None if any(None in pair for pair in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, list):
        items = [_python(item, quote) for item in value]
        return None if None in items else "[" + ", ".join(map(str, items)) + "]"
    if isinstance(value, str):
        plain = value.isprintable() and not set(value) & set("\\'\"")
        return f"{quote}{value}{quote}" if plain else None
    return repr(value)


def _yaml(text: str) -> str | None:
    """JSON text as YAML, which takes it as it is: but for numbers that it would read as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}" if e else repr(value)
    return None if _EXPONENT.search(text) else text


def _is_quoted(doc: DataDoc, span: Span) -> bool:
    return doc.source.text[span.start : span.start + 1] in ("'", '"')


def _is_inside(span: Span, whole: Span) -> bool:
    return whole.start <= span.start and span.end <= whole.end


def _editable(doc: DataDoc, pointer: str) -> bool:
    if doc.dialect not in ("json", "python"):
        return False
    return not doc.problems and pointer in doc.values and all(d.pointer != pointer for d in doc.duplicates)


def _is_bare_text(doc: DataDoc, pointer: str) -> bool:
    """A string without quotes (Hjson) runs to the end of the line: a comma would become part of it."""
    return isinstance(doc.get(pointer), str) and doc.source.text[doc.values[pointer].start] not in "\"'"


def _line_start(text: str, offset: int) -> tuple[int, bool]:
    """Where the line of an offset begins, and whether only blanks stand between."""
    start = text.rfind("\n", 0, offset) + 1
    return start, not text[start:offset].strip(_BLANK)


def _skip(doc: DataDoc, offset: int) -> int:
    """The first offset at or after ``offset`` that is neither white space nor comment."""
    text, ends = doc.source.text, {c.start: c.end for c in doc.comments}
    while offset < len(text):
        if offset in ends:
            offset = ends[offset]
        elif text[offset] in _SPACE:
            offset += 1
        else:
            break
    return offset


def _skip_back(doc: DataDoc, offset: int) -> int:
    """The end of the last text before ``offset`` that is neither white space nor comment."""
    text = doc.source.text
    comments = sorted(doc.comments)
    starts = [c.start for c in comments]
    while offset > 0:
        at = bisect_right(starts, offset - 1) - 1
        if at >= 0 and comments[at].end >= offset:
            offset = comments[at].start
        elif text[offset - 1] in _SPACE:
            offset -= 1
        else:
            break
    return offset


def _end_of_line_comment(doc: DataDoc, offset: int) -> int:
    """The end of a comment that follows on the same line, else ``offset``."""
    text, at = doc.source.text, offset
    while text[at : at + 1] and text[at] in _BLANK:
        at += 1
    for comment in doc.comments:
        if comment.start == at and "\n" not in text[comment.start : comment.end]:
            return comment.end
    return offset
