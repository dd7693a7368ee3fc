"""Which rank wrote a line: launchers put it before the line, libraries into it, or it is in the file's name."""

from __future__ import annotations

import re
from typing import NamedTuple

# torch prints [rank3]:, torchrun --tee [default3]:, mpirun --tag-output [1,3]<stderr>:, horovod [3]<stderr>:.
_TAGS = re.compile(
    r"\[(?:rank|default|trainer|worker|role)_?(\d{1,6})\]:? ?|\[\d+,(\d{1,6})\]<std(?:err|out)>: ?"
    r"|\[(\d{1,6})\]<std(?:err|out)>: ?"
)
_TAG_BYTES = re.compile(rb"\[(?:rank|default|1,)(\d{1,6})\]")
_SRUN = re.compile(r" {0,6}(\d{1,6}): ?")
_POD = re.compile(r"\[pod/([\w.-]+)/[\w.-]+\] ")
_HOST = re.compile(r"([A-Za-z][\w.-]{0,80}): ")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? (?=\[|\d+: )")
_INSIDE = re.compile(r"\[(?:PG [^\]]{0,80}?)?(?:Rank|RANK) (\d{1,6})\]")
_FILE = re.compile(r"(?:^|[^A-Za-z])rank[._-]?(\d{1,6})(?=\D|$)", re.IGNORECASE)
# torchelastic keeps <attempt>/<local rank>/stderr.log.
_ELASTIC = re.compile(r"(?:^|/)(\d{1,6})/(?:stderr|stdout)(?:\.log)?(?:\.gz)?$")
_NOT_HOSTS = frozenset(("info", "warning", "warn", "error", "debug", "critical", "fatal", "trace"))


class Label(NamedTuple):
    """A line taken apart: ``tag`` is the literal that marks every line of this rank (or host), empty if none does."""

    rank: int | None
    host: str
    tag: str
    text: str


def rank_of_file(path: str) -> int | None:
    """The rank in a file name: ``rank_3.log``, ``rank.3/stdout``, torchelastic's ``3/stderr.log``."""
    normal = path.replace("\\", "/")
    found = _ELASTIC.search(normal) or _FILE.search(normal[-200:])
    return int(found[1]) if found else None


class Labels:
    """Reads the labels of one file. ``sample`` is its beginning: only there shows who labels *every* line."""

    def __init__(self, path: str, sample: bytes) -> None:
        self.rank = rank_of_file(path)
        lines = [line for line in sample[:65536].decode("utf-8", "replace").splitlines() if line.strip()][:400]
        self._srun = _most(_SRUN, lines)
        self._hosts = not self._srun and _most(_HOST, lines) and len(_names(lines)) <= max(1, len(lines) // 3)

    def read(self, raw: bytes) -> Label:
        """Take a line apart."""
        text = raw.decode("utf-8", "replace")
        rest, host, tag, rank = text, "", "", self.rank
        for _ in range(3):
            start = len(rest)
            if pod := _POD.match(rest):
                host, tag, rest = pod[1], pod[0], rest[pod.end() :]
            if time := _TIME.match(rest):
                rest = rest[time.end() :]
            if mark := _TAGS.match(rest):
                rank, tag, rest = int(next(filter(None, mark.groups()))), mark[0], rest[mark.end() :]
            elif self._srun and (task := _SRUN.match(rest)):
                rank, tag, rest = int(task[1]), task[0], rest[task.end() :]
            elif self._hosts and not host and (name := _HOST.match(rest)) and _is_host(name[1]):
                host, tag, rest = name[1], name[0], rest[name.end() :]
            if len(rest) == start:
                break
        if rest is text and (inside := _INSIDE.search(rest[:400])):
            rank = int(inside[1])
        return Label(rank, host, tag, rest)

    def seen(self, data: bytes) -> set[int]:
        """The ranks whose tags stand in some lines; where every line has a tag, those of the sample only."""
        found = {int(rank) for rank in _TAG_BYTES.findall(data)}
        if self._srun:
            lines = data[:65536].decode("utf-8", "replace").splitlines()
            found |= {int(task[1]) for line in lines if (task := _SRUN.match(line))}
        return found | ({self.rank} if self.rank is not None else set())


def _is_host(name: str) -> bool:
    return name.lower() not in _NOT_HOSTS and not name.endswith(("Error", "Exception"))


def _most(pattern: re.Pattern[str], lines: list[str]) -> bool:
    return len(lines) >= 5 and sum(1 for line in lines if pattern.match(line)) >= 0.8 * len(lines)


def _names(lines: list[str]) -> set[str]:
    return {found[1] for line in lines if (found := _HOST.match(line)) and _is_host(found[1])}


def spoken(ranks: list[int]) -> str:
    """Ranks for people: ``rank 3``, ``ranks 0-2 and 5``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [f"{low}" if low == high else f"{low}-{high}" for low, high in runs]
    several = len(parts) > 1 or (runs and runs[0][0] != runs[0][1])
    shown = parts if len(parts) <= 8 else [*parts[:7], f"{len(parts) - 7} more groups"]
    joined = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else ""
    return f"{'ranks' if several else 'rank'} {joined}"
