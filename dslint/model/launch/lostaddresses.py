"""Addresses at which a job meets and that its containers or pods cannot find: names that nobody serves to them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.launch.parties import BRIDGE, HOST, NAMED, Party

_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
_NAME = re.compile(r"[A-Za-z][\w-]*")
_CLOSE = 0.75


@dataclass(frozen=True, slots=True)
class LostAddress:
    """An ``address`` at ``location`` and ``why`` nobody is found there, as the end of a sentence."""

    address: str
    why: str
    hint: str
    location: Location
    related: tuple[Location, ...] = ()


def lost_addresses(parties: Sequence[Party]) -> Iterator[LostAddress]:
    """The addresses of containers that one file starts: each place once."""
    told: set[Location] = set()
    for party in parties:
        address = party.address
        if not address.is_known or party.is_open or not address.origins:
            continue
        mates = [other for other in parties if other.image == party.image]
        found = _loopback(party, mates, address) or _name(party, parties, address)
        if found is not None and found.location not in told:
            told.add(found.location)
            yield found


def _loopback(party: Party, mates: Sequence[Party], address: Fact[str]) -> LostAddress | None:
    """Another container than the first one looks for it at itself."""
    if not _LOOPBACK.fullmatch(address.get()) or party.network not in (BRIDGE, NAMED):
        return None
    ranks = {mate.rank.get() for mate in mates if mate.rank.is_known}
    first = next((mate for mate in mates if mate.rank.get_or("") == "0"), None)
    if len(ranks) < 2 or first is None or party.rank.get_or("0") == "0":
        return None
    return LostAddress(
        address.get(),
        f"is rank {party.rank.get()}'s own container: rank 0 is in another one",
        "Use the name of the container of rank 0, in a network of their own",
        address.origins[0],
        (first.place.labelled("rank 0"), *party.rank.origins[:1]),
    )


def _name(party: Party, parties: Sequence[Party], address: Fact[str]) -> LostAddress | None:
    name = address.get()
    if not _NAME.fullmatch(name):
        return None
    owner = next((other for other in parties if name in other.names), None)
    if owner is None:
        return _misspelt(party, parties, address)
    place = (owner.place.labelled(f"the container `{name}`"),)
    if owner is party or (owner.is_open and owner.network != HOST):
        return None
    at = address.origins[0]
    if party.network == BRIDGE and owner.network == BRIDGE:
        why = "is a container's name, and Docker's default network serves no names to the others"
        return LostAddress(name, why, "Put them in a network of their own (`docker network create`)", at, place)
    if HOST in (party.network, owner.network) and party.network != "" != owner.network:
        why = "is a container's name, and in the network of the host nobody serves it"
        return LostAddress(name, why, "Use the name or address of the machine, or a network of their own", at, place)
    return None


def _misspelt(party: Party, parties: Sequence[Party], address: Fact[str]) -> LostAddress | None:
    """A service of nearly this name."""
    names = sorted(name for other in parties for name in other.names if other.network == NAMED)
    close = difflib.get_close_matches(address.get(), names, 1, _CLOSE) if party.network == NAMED else []
    # `node-1` beside `node-0` is another node, and `node_0` the same one.
    if (
        not close
        or re.sub(r"\D", "", close[0]) != re.sub(r"\D", "", address.get())
        or any(other.is_open for other in parties)
    ):
        return None
    return LostAddress(
        address.get(),
        f"is the name of no container here: one is called `{close[0]}`",
        f"Write `{close[0]}`",
        address.origins[0],
        tuple(other.place for other in parties if close[0] in other.names)[:1],
    )
