"""Variables about the machine that a script sets, and that another script which it sources or calls sets again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import Scope

# What differs between machines and jobs: a script that is called cannot know better than its caller.
_NAMES = re.compile(
    r"NCCL_IB_(?:HCA|GID_INDEX|DISABLE|TC|SL)|(?:NCCL|GLOO|TP)_SOCKET_IFNAME|NCCL_(?:P2P|SHM)_DISABLE|NCCL_TOPO_FILE"
    r"|NCCL_NET(?:_PLUGIN|_GDR_LEVEL)?|NCCL_CROSS_NIC|UCX_NET_DEVICES|FI_PROVIDER|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES"
    r"|MASTER_ADDR|NNODES|NODE_RANK"
)
# Marks the place of the first setting among the origins of the second one.
OVERWRITTEN = "what is overwritten"


def sets_again(text: str, names: Collection[str]) -> bool:
    """Whether a script has an assignment to one of some variables that its caller has set."""
    return any(_NAMES.fullmatch(name) and f"{name}=" in text for name in names)


def before(scope: Scope) -> dict[str, Value]:
    """The values that another file may overwrite."""
    return {n: v for n, v in scope.values.items() if isinstance(v, Value) and v.origins and _NAMES.fullmatch(n)}


def mark_sourced(scope: Scope, old: Mapping[str, Value], outer: str, inner: str) -> None:
    """Mark what a file that was sourced has overwritten."""
    for name, first in old.items():
        new = scope.values.get(name)
        if not isinstance(new, Value) or new is first or new.text == first.text:
            continue
        if _is_overwritten(first.origins, new.origins, inner) and first.origins[0].path == outer:
            scope.values[name] = replace(new, origins=(*new.origins, first.origins[0].labelled(OVERWRITTEN)))


def marked(env: Mapping[str, Fact[str]], given: Mapping[str, Fact[str]], inner: str) -> Mapping[str, Fact[str]]:
    """The environment of a command, with marks at what a script that was called has overwritten."""
    found: dict[str, Fact[str]] = {}
    for name, old in given.items():
        new = env.get(name)
        if new is None or not (old.is_known and new.is_known and _NAMES.fullmatch(name)) or old.get() == new.get():
            continue
        if old.get() and _is_overwritten(old.origins, new.origins, inner):
            found[name] = replace(new, origins=(*new.origins, old.origins[0].labelled(OVERWRITTEN)))
    return {**env, **found} if found else env


def overwritten(env: Mapping[str, Fact[str]]) -> Iterator[tuple[str, Location, Location]]:
    """The variables with the place that sets each last, and the place that has set it before in a file that calls."""
    for name, fact in env.items():
        if fact.is_known and len(fact.origins) > 1 and fact.origins[-1].label == OVERWRITTEN:
            yield name, fact.origins[0], fact.origins[-1]


def _is_overwritten(old: tuple[Location, ...], new: tuple[Location, ...], inner: str) -> bool:
    return bool(old and new) and new[0].path == inner != old[0].path and old[0] not in new
