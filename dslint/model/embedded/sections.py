"""DeepSpeed configs in YAML and JSON files of other programs: a whole YAML file, or one section of it.

Hydra and OmegaConf (``ds_config:``), SAT (``deepspeed:`` beside ``args:``), Composer (``deepspeed_config:``), Lightning
(``class_path: ...DeepSpeedStrategy``) and files of arguments hold the dict that a program hands to DeepSpeed. A mapping
is one when its keys say so, wherever it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dslint.core.source import SourceFile, Span
from dslint.model.deepspeed.detect import is_accelerate_config, is_deepspeed_config, may_be_section
from dslint.model.embedded.flat import configured, flat_classes, is_flat
from dslint.model.embedded.interpolation import is_open, number_at, resolve, why_open
from dslint.parse.data import DataDoc, join_pointer

# Below this nothing in a project is a config any more.
_DEEPEST = 8
_MOST_MAPPINGS = 2_000
_MOST_VALUES = 5_000
_TWO_READINGS = "PyYAML reads a text, since YAML 1.1 wants `1.0e-5` with a dot and a sign, and OmegaConf a number"
# What only files for OmegaConf and jsonargparse hold, which read such numbers.
_OMEGA = re.compile(r"\$\{|^[ \t-]*(?:_target_|class_path)[ \t]*:|^defaults[ \t]*:", re.M)
_SECTION_KEYS = ("deepspeed", "deepspeed_config", "ds_config")
_BY_SAT = "SAT makes its own optimizer and takes the section away"
_UNKNOWN = object()


def is_json_text(source: SourceFile) -> bool:
    """Whether a text is plain JSON, whatever its file is called."""
    if not source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    try:
        json.loads(source.text)
    except (ValueError, RecursionError):
        return False
    return True


def configs_in(host: DataDoc, *, is_yaml: bool, may_be_whole: bool) -> Iterator[DataDoc]:
    """The configs in a file, in the order of its lines; ``may_be_whole``: the file may be one itself."""
    if host.problems or not isinstance(host.data, dict) or is_accelerate_config("x.yaml", host.data):
        return
    if "exp_id" in host.data:  # what the autotuner of DeepSpeed has written for one of its experiments
        return
    pending: list[tuple[str, Any]] = [("", host.data)]
    count = 0
    while pending and count < _MOST_MAPPINGS:
        pointer, data = pending.pop()
        count += 1
        is_asked = isinstance(data, dict) and (pointer or (may_be_whole and not _has_section(data)))
        found = _config_at(host, pointer, data, is_yaml) if is_asked else None
        if found is not None:
            yield found
        elif pointer.count("/") < _DEEPEST:
            members = data.items() if isinstance(data, dict) else enumerate(data)
            inner = [(join_pointer(pointer, key), value) for key, value in members if isinstance(value, (dict, list))]
            pending += [(at, value) for at, value in reversed(inner) if at in host.values]


def section_at(host: DataDoc, pointer: str, *, is_yaml: bool) -> DataDoc | None:
    """The config that stands at a pointer of a file, ``None`` where no such thing does."""
    data = host.get(pointer)
    if host.problems or not isinstance(data, dict) or pointer not in host.values:
        return None
    return _config_at(host, pointer, data, is_yaml)


def _config_at(host: DataDoc, pointer: str, data: dict[str, Any], is_yaml: bool) -> DataDoc | None:
    reader = _reader(host, pointer)
    is_sure = reader == "lightning"
    if not (is_sure or may_be_section(pointer.rpartition("/")[2], data)):
        return None
    doc = _Maker(host, pointer, is_yaml).document()
    strategy = _strategy(host, pointer)
    if is_sure and is_flat(strategy, doc.data) and not any(isinstance(value, dict) for value in doc.data.values()):
        doc = configured(strategy, doc)
    hidden = {p[1:]: None for p in doc.opaque if p.count("/") == 1}
    if not (is_sure or is_deepspeed_config("config.json", {**hidden, **doc.data})):
        return None
    doc.consumer = reader
    if is_sure or _is_composer(host, pointer):
        doc.open_objects |= {""}  # their Trainers add what they know: batch sizes, precision, clipping
    return doc


def _has_section(data: dict[str, Any]) -> bool:
    """The file of a program that has a place of its own for the config."""
    return any(isinstance(data.get(key), (dict, str)) for key in _SECTION_KEYS)


def _reader(host: DataDoc, pointer: str) -> str:
    """Who the program around hands the section to, as far as the file says it."""
    if _strategy(host, pointer):
        return "lightning"
    return "deepspeed" if _is_sat(host, pointer) else ""


def _strategy(host: DataDoc, pointer: str) -> str:
    """The class whose parameter, or parameters (``init_args``), the section is; empty where it is none of DeepSpeed."""
    parent, _, key = pointer.rpartition("/")
    around = host.get(parent)
    named = around.get("_target_") if isinstance(around, dict) else None
    if key == "config" and named is None and parent.endswith("/init_args"):
        named = host.get(parent.removesuffix("init_args") + "class_path")
    elif key == "init_args" and isinstance(around, dict):
        data = around["init_args"]
        name = str(around.get("class_path")).rpartition(".")[2]
        named = name if isinstance(data, dict) and is_flat(name, data) else None
    elif key != "config":
        return ""
    name = str(named).rpartition(".")[2]
    return name if name in flat_classes() else ""


def _is_sat(host: DataDoc, pointer: str) -> bool:
    """SwissArmyTransformer and what is built on it (CogVideo): arguments, model and config side by side."""
    return pointer == "/deepspeed" and isinstance(host.get("/args"), dict)


def _is_composer(host: DataDoc, pointer: str) -> bool:
    """Composer and llm-foundry: the config beside the duration of the training, or in the section of the Trainer."""
    around = host.get(pointer.rpartition("/")[0])
    return pointer.endswith("/deepspeed_config") and isinstance(around, dict) and "max_duration" in around


class _Maker:
    """Makes the document of a section: its own pointers, the places of the file, interpolations put in."""

    def __init__(self, host: DataDoc, top: str, is_yaml: bool) -> None:
        self.host = host
        self.top = top
        self.is_yaml = is_yaml
        self.doc = DataDoc(host.source, {}, dialect="yaml" if is_yaml else "json", is_embedded=bool(top))
        self.opaque: dict[str, str] = {}
        self.computed: set[str] = set()
        self.reads_numbers = _is_sat(host, top) or _OMEGA.search(host.source.text) is not None
        spans = list(host.members.values())
        # An anchor and its aliases, or what stands for an interpolation: an edit would change both.
        self.is_shared = len(set(spans)) < len(spans)

    def document(self) -> DataDoc:
        """The section as a document."""
        host, doc, top = self.host, self.doc, self.top
        doc.data = self._filled(top, "", host.get(top), 0)
        whole = host.values[top]
        doc.values[""] = whole
        below = f"{top}/"
        doc.comments = tuple(c for c in host.comments if _within(c, whole))
        doc.trailing_commas = tuple(c for c in host.trailing_commas if _within(c, whole))
        doc.relaxed = tuple(r for r in host.relaxed if _within(r.span, whole))
        doc.duplicates = tuple(
            type(d)(d.pointer[len(top) :], d.first, d.second) for d in host.duplicates if d.pointer.startswith(below)
        )
        kind = doc.data.get("optimizer") if isinstance(doc.data, dict) else None
        if _is_sat(host, top) and isinstance(kind, dict) and str(kind.get("type")).startswith("sat."):
            del doc.data["optimizer"]
            for old in [p for p in doc.values if p.startswith("/optimizer/")]:
                doc.forget(old)
            self.opaque = {p: why for p, why in self.opaque.items() if not p.startswith("/optimizer/")}
            self.opaque["/optimizer"] = _BY_SAT
        doc.opaque, doc.computed = self.opaque, frozenset(self.computed)
        return doc

    def _filled(self, origin: str, pointer: str, value: Any, depth: int, is_copy: bool = False) -> Any:
        """The value at a pointer of the file, filed under one of the section."""
        host, doc = self.host, self.doc
        doc.values[pointer] = host.values[origin]
        if is_copy or self.is_shared:
            self.computed.add(pointer)
        if depth > _DEEPEST or len(doc.values) > _MOST_VALUES:
            return self._hidden(pointer, "nested too deeply")
        if isinstance(value, dict):
            return self._mapping(origin, pointer, value, depth, is_copy)
        if isinstance(value, list):
            items = [
                self._filled(join_pointer(origin, n), join_pointer(pointer, n), item, depth + 1, is_copy)
                for n, item in enumerate(value)
            ]
            if not any(item is _UNKNOWN for item in items):
                return items
            below = [p for p in self.opaque if p.startswith(f"{pointer}/")]
            return self._hidden(pointer, next(self.opaque.pop(p) for p in below))
        return self._scalar(origin, pointer, value, depth) if isinstance(value, str) and self.is_yaml else value

    def _mapping(self, origin: str, pointer: str, value: dict[str, Any], depth: int, is_copy: bool) -> dict[str, Any]:
        host, doc, data = self.host, self.doc, dict[str, Any]()
        for key, item in value.items():
            source, inner = join_pointer(origin, key), join_pointer(pointer, key)
            if source not in host.values:
                continue
            if source in host.keys:
                doc.keys[inner] = host.keys[source]
            if source in host.members and not (is_copy or self.is_shared):
                doc.members[inner] = host.members[source]
            filled = self._filled(source, inner, item, depth + 1, is_copy)
            if filled is not _UNKNOWN:
                data[key] = filled
        return data

    def _scalar(self, origin: str, pointer: str, text: str, depth: int) -> Any:
        if is_open(text):
            found = resolve(self.host, origin, text)
            if found is None:
                return self._hidden(pointer, why_open(text))
            self.computed.add(pointer)
            if not isinstance(found.value, (dict, list)):
                number = number_at(self.host, found.pointer) if found.pointer else None
                return found.value if number is None else number
            place = self.doc.values[pointer]
            filled = self._filled(found.pointer, pointer, found.value, depth + 1, is_copy=True)
            self.doc.values[pointer] = place
            return filled
        number = number_at(self.host, origin)
        if number is None:
            return text
        return number if self.reads_numbers else self._hidden(pointer, _TWO_READINGS)

    def _hidden(self, pointer: str, reason: str) -> Any:
        self.opaque[pointer] = reason
        return _UNKNOWN


def _within(span: Span, whole: Span) -> bool:
    return whole.start <= span.start and span.end <= whole.end
