"""Which optimizers and schedules a DeepSpeed release makes of a config, and which hyper-parameters they take.

``schemas/deepspeed/signatures.json`` is generated from the sources of all releases and of one torch release
(``scripts/generate_deepspeed_signatures.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dslint.model.context import VersionFact
from dslint.model.deepspeed.schema import load_data
from dslint.model.versions.resolve import covers

OPTIMIZERS, SCHEDULES = "optimizers", "schedules"
# torch took the word for schedules until 2.7.
_OLD_WORDS = {SCHEDULES: ("verbose",), OPTIMIZERS: ()}


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return load_data("signatures.json")


def torch_release() -> str:
    """The release of torch that :func:`torch_names` lists."""
    found: str = _data()["torch"]
    return found


def own_names(kind: str) -> tuple[str, ...]:
    """What some release of DeepSpeed knows itself: optimizers in small letters, schedules as they are written."""
    return tuple(_data()[kind])


def torch_names(kind: str) -> tuple[str, ...]:
    """The classes of `torch.optim`, or of its `lr_scheduler`."""
    return tuple(_data()[f"torch_{kind}"])


def presence(kind: str, name: str, version: VersionFact) -> str:
    """``yes`` | ``no`` | ``maybe``: does the DeepSpeed in use know a name itself?"""
    if covers(version, f"<{_data()['first']}") == "yes":
        return "maybe"  # older than the table
    states = {bool(span.keys() - {"since"}) for span in _spans(kind, name, version)}
    if len(states) != 1:
        return "maybe" if states else "no"
    # Before the first span of a name nothing knows it.
    first = _data()[kind][name][0]["since"]
    before = first != _data()["first"] and covers(version, f"<{first}") != "no"
    return "no" if states == {False} else "maybe" if before else "yes"


def since(kind: str, name: str) -> str:
    """The first release of DeepSpeed that knows a name."""
    found: str = _data()[kind][name][0]["since"]
    return found


def accepted(kind: str, name: str, version: VersionFact, torch_adam: bool | None = False) -> frozenset[str] | None:
    """Hyper-parameters that some class takes which the engine may make; ``None``: any, or nobody knows.

    Args:
        torch_adam: the switch beside them, ``None`` when it is not known.
    """
    found: set[str] = set()
    if name in _data()[kind]:
        for span in _spans(kind, name, version):
            if span.get("params", ()) is None:
                return None
            wanted = ("torch",) if torch_adam and "torch" in span else ("params",)
            for word in wanted if torch_adam is not None else ("params", "torch"):
                found.update(span.get(word, ()))
    elif name in _data()[f"torch_{kind}"]:
        params = _data()[f"torch_{kind}"][name]["params"]
        if params is None:
            return None
        found.update((*params, *_OLD_WORDS[kind]))
    return frozenset(found) or None


def required(kind: str, name: str) -> tuple[str, ...]:
    """Hyper-parameters without a default."""
    spans = _data()[kind].get(name)
    entry = spans[-1] if spans else _data()[f"torch_{kind}"].get(name, {})
    return tuple(entry.get("required", ()))


def _spans(kind: str, name: str, version: VersionFact) -> Iterator[dict[str, Any]]:
    """The spans in which the release in use may lie."""
    spans = _data()[kind].get(name, [])
    for span, after in pairwise([*spans, None]):
        assert span is not None
        range_ = f">={span['since']}" + (f",<{after['since']}" if after else "")
        if covers(version, range_) != "no":
            yield span
