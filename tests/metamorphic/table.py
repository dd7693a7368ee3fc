"""Which rules say nothing after which rewrites, and why (``abstentions.toml``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib


@dataclass(frozen=True)
class Abstention:
    """After ``rewrite`` the ``rules`` miss at least one of their bad examples each."""

    rewrite: str
    why: str
    rules: tuple[str, ...]


_READ = tomllib.loads((Path(__file__).parent / "abstentions.toml").read_text())
TABLE = {e["name"]: Abstention(e["name"], e["why"], tuple(e["rules"])) for e in _READ.get("rewrite", ())}
# After which rewrites the good examples of which rules are loud today: false alarms that wait for their repair.
LOUD = {e["name"]: Abstention(e["name"], e["why"], tuple(e["rules"])) for e in _READ.get("loud", ())}
# Rewrites that are followed alone, and hide something together.
TOGETHER = [(frozenset(e["names"]), frozenset(e["rules"])) for e in _READ.get("together", ())]
# After which rewrites the good examples of which rules were once loud.
MENDED: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "mended.toml").read_text())


def allowed(code: str, rewrites: Sequence[str]) -> bool:
    """The table says that the rule may miss an example after one of these, or after some of them together."""
    if any(name in TABLE and code in TABLE[name].rules for name in rewrites):
        return True
    return any(code in rules and names <= set(rewrites) for names, rules in TOGETHER)


def is_loud(code: str, rewrites: Sequence[str]) -> bool:
    """The table says that a good example of the rule may be loud after one of these."""
    return any(name in LOUD and code in LOUD[name].rules for name in rewrites)
