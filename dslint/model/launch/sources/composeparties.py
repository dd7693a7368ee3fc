"""The services of a compose file as the containers of one job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import Word
from dslint.model.launch.launchers.counts import MACHINE_GPUS
from dslint.model.launch.parties import HOST, NAMED, SHARED, TELLS, Party, flat
from dslint.model.launch.sources.machinegpus import of_service
from dslint.parse.data import DataDoc
from dslint.parse.yamldoc import parse_yaml


def compose_parties(source: SourceFile) -> tuple[Party, ...]:
    """The services of a file; none where it is no compose file, or where others add to it."""
    if not (re.search(r"^services:", source.text, re.MULTILINE) and TELLS.search(source.text)):
        return ()
    doc = parse_yaml(source)
    services = doc.get("/services")
    if doc.problems or not isinstance(services, dict) or doc.has("/include"):
        return ()
    return tuple(
        _party(source, doc, name, at) for name, at, value in doc.children("/services") if isinstance(value, dict)
    )


def _party(source: SourceFile, doc: DataDoc, name: str, at: str) -> Party:
    given: dict[str, Any] = doc.get(at)
    names = {name, *_aliases(given)}
    for key in ("container_name", "hostname"):
        if isinstance(given.get(key), str):
            names.add(given[key])
    mode = str(given.get("network_mode", ""))
    network = HOST if mode == "host" else SHARED if mode.startswith(("service:", "container:")) else NAMED
    copies = given.get("scale", doc.get(f"{at}/deploy/replicas", 1))
    is_open = copies != 1 or any(
        key in given for key in ("extends", "env_file", "links", "external_links", "extra_hosts")
    )
    place = doc.key(at) if doc.has(at) else source.location(doc.values[""])
    gpus = of_service(source, doc, at).get(MACHINE_GPUS)
    image = given.get("image") or given.get("build")
    return Party(
        name,
        frozenset(names),
        network,
        str(image),
        place,
        dict(_environment(doc, f"{at}/environment")),
        flat((*_words(doc, f"{at}/entrypoint"), *_words(doc, f"{at}/command"))),
        is_open,
        int(gpus.get()) if gpus is not None and gpus.is_known else 0,
    )


def _aliases(given: dict[str, Any]) -> Iterator[str]:
    networks = given.get("networks")
    for item in networks.values() if isinstance(networks, dict) else ():
        listed = item.get("aliases") if isinstance(item, dict) else None
        yield from (alias for alias in (listed if isinstance(listed, list) else ()) if isinstance(alias, str))


def _environment(doc: DataDoc, at: str) -> Iterator[tuple[str, Fact[str]]]:
    data = doc.get(at)
    for number, item in enumerate(data if isinstance(data, list) else ()):
        name, equals, text = str(item).partition("=")
        yield name, _fact(text if equals else None, doc.value(f"{at}/{number}"))
    for name, here, value in doc.children(at) if isinstance(data, dict) else ():
        yield name, _fact(value, doc.value(here))


def _fact(value: object, place: Location) -> Fact[str]:
    if isinstance(value, bool) or not isinstance(value, str | int) or "$" in str(value):
        return unknown("the file does not say it", place)
    return known(str(value), place)


def _words(doc: DataDoc, at: str) -> Iterator[Word]:
    given = doc.get(at)
    if isinstance(given, list):
        for number, item in enumerate(given):
            yield _word(str(item), doc.value(f"{at}/{number}"))
    elif isinstance(given, str):
        try:
            parts = shlex.split(given)
        except ValueError:
            return
        yield from (_word(part, doc.value(at)) for part in parts)


def _word(text: str, place: Location) -> Word:
    return Word(None if "$" in text else text, text, place, spreads="$" in text and " " not in text)
