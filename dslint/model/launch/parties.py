"""The containers that one text starts for one job: what each is told of its rank, and where they meet.

The services of a compose file, and the ``docker run`` of a shell text. What image and command do with it is not asked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, Span
from dslint.model.launch.command import Flag, Word
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import Parsed, last, parse_options
from dslint.model.launch.launchers.programs import BY_NAME, Program
from dslint.model.shell.commands import Invocation
from dslint.model.shell.scope import Scope
from dslint.model.shell.values import read_statements
from dslint.parse.shell import ShellDoc

# What a text holds that tells a container of other ones.
TELLS = re.compile(
    r"MASTER_ADDR|WORLD_SIZE|RANK\b|--?(?:world[-_]size|nnodes|num[-_]machines|master[-_]addr|init[-_]method)"
)
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\s+(?:container\s+)?run\b")
_ENGINES = {"docker", "podman", "nerdctl", "nvidia-docker"}
_ADDRESS = ("--master_addr", "--main_process_ip")
_URL = ("--init_method", "--dist_url", "--rdzv_endpoint", "--dist_init_method")
_HOST = re.compile(r"(?:tcp://)?\[?(?P<host>[^\s/:\[\]]+)\]?(?::\d+)?")
HOST, BRIDGE, NAMED, SHARED = "host", "bridge", "named", "shared"


@dataclass(frozen=True, slots=True)
class Party:
    """One container. ``names``: those by which others of its network find it. ``network``: ``host`` | ``bridge`` (the
    default of ``docker run``, where no names are served) | ``named`` | ``shared`` (that of another container).

    ``image`` tells jobs apart. ``is_open``: options or the number of copies are not known.
    """

    label: str
    names: frozenset[str]
    network: str
    image: str
    place: Location
    env: Mapping[str, Fact[str]] = field(default_factory=dict)
    words: tuple[Word, ...] = ()
    is_open: bool = False
    gpus: int = 0

    def told(self, options: Sequence[str], *variables: str) -> Fact[str]:
        """An option of its command, else a variable of its environment."""
        for at, word in enumerate(self.words):
            name, equals, text = (word.text or "").partition("=")
            if name.replace("-", "_").replace("__", "--", 1) not in options:
                continue
            if equals:
                return known(text, word.location, *word.origins)
            value = self.words[at + 1] if at + 1 < len(self.words) else None
            if value is None or value.text is None:
                break
            return known(value.text, value.location, *value.origins)
        return next((self.env[name] for name in variables if name in self.env), absent())

    @property
    def address(self) -> Fact[str]:
        """The host at which the processes meet."""
        url = self.told(_URL)
        found = _HOST.fullmatch(url.get()) if url.is_known else None
        if found is not None:
            return known(found["host"], *url.origins)
        return self.told(_ADDRESS, "MASTER_ADDR", "PET_MASTER_ADDR")

    @property
    def rank(self) -> Fact[str]:
        """The number of this container among those of the job."""
        return self.told(("--node_rank", "--machine_rank", "--rank"), "NODE_RANK", "RANK", "PET_NODE_RANK")

    @property
    def nodes(self) -> Fact[str]:
        """How many containers the job has, in words that can mean nothing else."""
        return self.told(("--nnodes", "--num_machines"), "NNODES", "PET_NNODES", "NUM_NODES")

    @property
    def world(self) -> Fact[str]:
        """How many ranks the job has, or how many containers: that is up to the script."""
        return self.told(("--world_size",), "WORLD_SIZE")


def run_parties(shell: ShellDoc) -> tuple[Party, ...]:
    """The containers that a shell text runs under a name."""
    if not (_RUNS.search(shell.text) and TELLS.search(shell.text)):
        return ()
    found: list[Party] = []
    for item in read_statements(shell, _is_run, Scope(), None, _ENGINES.__contains__):
        party = _run(item, shell) if isinstance(item, Invocation) and not item.conditions else None
        if party is not None and all(party.place != other.place for other in found):
            found.append(party)
    return tuple(found)


def _is_run(raw: str) -> bool:
    return _RUNS.search(raw) is not None


def _run(item: Invocation, shell: ShellDoc) -> Party | None:
    words = item.words
    row = next((row for row in BY_NAME.get(program_name(words[0]), ()) if row.instead), None) if words else None
    if row is None:
        return None
    parsed = _behind_run(words[1:], row)
    if parsed is None or not parsed.rest:
        return None
    names = frozenset(text for text in (_text(parsed, "--name"), *_texts(parsed, "--network_alias")) if text)
    network = last(parsed.flags, "--network", "--net")
    image, *rest = parsed.rest
    entry = last(parsed.flags, "--entrypoint")
    told = {flag.name for flag in parsed.flags}
    place = words[0].location
    end = max(word.location.span.end for word in words if word.location.path == place.path)
    return Party(
        _text(parsed, "--name") or "",
        names,
        _network(network),
        image.text or image.raw,
        shell.source.location(Span(place.span.start, end)),
        _environment(parsed.flags),
        ((entry.value,) if entry is not None and entry.value is not None else ()) + flat(rest),
        parsed.open or bool(told & {"--link", "--add_host", "--env_file", "--dns", "--pod"}),
    )


def flat(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return words, and in place of each command line in one word (``bash -c '...'``) the words of that."""
    found: list[Word] = []
    for word in words:
        text = word.text if word.text is not None else word.raw
        try:
            parts = shlex.split(text) if re.search(r"\s", text.strip()) else []
        except ValueError:
            parts = []
        if len(parts) < 2:
            found.append(word)
        else:
            found += [Word(None if "$" in part else part, part, word.location) for part in parts]
    return tuple(found)


def _behind_run(words: tuple[Word, ...], row: Program) -> Parsed | None:
    before = parse_options(words, row.before, ("run",)).rest
    if before and before[0].text == "container":
        before = before[1:]
    return parse_options(before[1:], row.table) if before and before[0].text == "run" else None


def _text(parsed: Parsed, *names: str) -> str | None:
    flag = last(parsed.flags, *names)
    return flag.value.text if flag is not None and flag.value is not None else None


def _texts(parsed: Parsed, name: str) -> Iterator[str | None]:
    return (flag.value.text for flag in parsed.flags if flag.name == name and flag.value is not None)


def _network(flag: Flag | None) -> str:
    text = flag.value.text if flag is not None and flag.value is not None else "" if flag is None else None
    if text is None:
        return ""
    if text.startswith(("container:", "service:")):
        return SHARED
    return {"": BRIDGE, "bridge": BRIDGE, "default": BRIDGE, "host": HOST}.get(text, NAMED)


def _environment(flags: Sequence[Flag]) -> dict[str, Fact[str]]:
    env: dict[str, Fact[str]] = {}
    for flag in flags:
        if flag.name not in ("-e", "--env") or flag.value is None:
            continue
        raw = flag.value.raw.strip("\"'")
        name, equals, text = (flag.value.text if flag.value.text is not None else raw).partition("=")
        is_known = bool(equals) and flag.value.text is not None
        place = flag.value.location
        env[name] = known(text, place, *flag.value.origins) if is_known else unknown("its value is not known", place)
    return env
