"""One log, streamed once: gates, patterns, and the trackers that need more than one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dslint.triage import gates
from dslint.triage.blocks import Block, blocks
from dslint.triage.clock import stamp
from dslint.triage.failures import ROOT, TRACEBACK, failure, report
from dslint.triage.hit import FileResult, Hit
from dslint.triage.line import Line
from dslint.triage.losses import LossTracker
from dslint.triage.ranks import Labels
from dslint.triage.stall import ExtensionTracker
from dslint.triage.symptom import Pattern, Symptom
from dslint.triage.symptoms import SYMPTOMS
from dslint.triage.symptoms.collectives import ENQUEUED, XTUNER
from dslint.triage.symptoms.process import REPORT, SIGNALS

# Lines kept for each symptom and rank; the others are counted.
KEEP = 8
MAX_KEYS = MAX_HITS = 20_000
MAX_FAILURES = 256
# A traceback without end costs hundreds of lines: a log of nothing else must not take for ever.
MAX_TRACEBACKS = 500
_STATUS = "last enqueued"
_XTUNER = "xtuner_dataset_timeout"
_STATUS_PATTERN = Pattern(
    r"(?:at work|at NCCL work|work sequence id): (?P<seq>\d+).{0,60}?last enqueued (?:NCCL )?work: (?P<enqueued>\d+)"
    r".{0,40}?last completed (?:NCCL )?work: (?P<completed>\d+)"
)
_FOLLOW = 40
_LEAD = 3000


class Scan:
    """Feeds the blocks of one log to the table and the trackers."""

    def __init__(self, path: str) -> None:
        self.result = FileResult(path)
        self._served = gates.served(SYMPTOMS)
        self._extension = ExtensionTracker()
        self._loss = LossTracker()
        self._gates = (*self._served, *self._extension.gates, gates.LOSS, TRACEBACK, ROOT, _STATUS, _XTUNER)
        self._labels: Labels | None = None
        self._tracebacks = 0

    def run(self, read: Callable[[int], bytes]) -> FileResult:
        """Read to the end; errors of ``read`` are the caller's."""

        def counted(size: int) -> bytes:
            data = read(size)
            self.result.bytes += len(data)
            return data

        for block in blocks(counted):
            self._block(block)
            self.result.lines = block.line + block.data.count(b"\n") - block.data.endswith(b"\n")
        for hit in (*self._extension.finish(), *self._loss.finish()):
            self._keep(hit)
        self.result.ranks |= {hit.rank for hit in self.result.hits if hit.rank is not None}
        return self.result

    def _block(self, block: Block) -> None:
        if self._labels is None:
            self._labels = Labels(self.result.path, block.data[:65536])
            self.result.rank = self._labels.rank
            self.result.ranks |= self._labels.seen(block.data[:65536])
        found = gates.hits(block.data, block.limit, self._gates)
        if found:
            self.result.ranks |= self._labels.seen(block.data)
        known = (0, block.line)
        done: dict[str, int] = {}
        for at, gate in found:
            if at < done.get(gate, 0):
                continue
            start, end = block.bounds(at)
            done[gate] = end
            known = (start, block.number(start, known))
            self._line(block, (start, end), known[1], gate)
        self._extension.block(block)
        self._loss.block(block)

    def _line(self, block: Block, bounds: tuple[int, int], number: int, gate: str) -> None:
        assert self._labels is not None
        start, end = bounds
        label = self._labels.read(block.data[start:end])
        line = Line(self.result.path, block, start, end, number, label)
        if gate in self._extension.gates:
            self._extension.line(line, gate)
        elif gate == gates.LOSS:
            self._loss.line(line)
        elif gate == TRACEBACK:
            self._tracebacks += 1
            tried = self._tracebacks > MAX_TRACEBACKS or len(self.result.failures) >= MAX_FAILURES
            if not tried and (found := failure(line)):
                self.result.failures.append(found)
        elif gate == ROOT:
            self._report(line)
        elif gate == _XTUNER:
            self.result.flags.add(XTUNER)
        elif gate == _STATUS and (match := _STATUS_PATTERN.compiled.search(label.text)):
            self._keep(line.hit(ENQUEUED, match.groupdict()))
        for symptom, pattern in self._served.get(gate, ()):
            self._match(line, symptom, pattern)

    def _match(self, line: Line, symptom: Symptom, pattern: Pattern) -> None:
        match = pattern.compiled.search(line.label.text)
        if not match or not _fits(line, pattern):
            return
        key = (symptom.name, line.label.rank)
        if self.result.counts.get(key, 0) >= KEEP:
            self.result.counts[key] += 1
            return
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        self._keep(line.hit(symptom.name, groups))

    def _report(self, line: Line) -> None:
        groups = report(line)
        if not groups:
            return
        said = ", ".join(f"{name}: {groups[name]}" for name in ("rank", "exitcode", "time", "host") if name in groups)
        shown = line._replace(label=line.label._replace(text=f"{line.label.text.strip()} {said}"))
        time = groups.get("time", "").encode()
        hit = replace(shown.hit(REPORT, groups), stamp=stamp(time, 0, len(time)))
        self._keep(hit)
        code = int(groups["exitcode"])
        if name := SIGNALS.get(-code if code < 0 else code - 128):
            self._keep(replace(hit, symptom=name))

    def _keep(self, hit: Hit) -> None:
        key = (hit.symptom, hit.rank)
        count = self.result.counts.get(key, 0)
        if count == 0 and len(self.result.counts) >= MAX_KEYS:
            return
        self.result.counts[key] = count + 1
        if count < KEEP and len(self.result.hits) < MAX_HITS:
            self.result.hits.append(hit)


def _fits(line: Line, pattern: Pattern) -> bool:
    """Whether the text around a line is what the pattern asks for."""
    if lead := pattern.compiled_lead:
        above = line.block.data[max(0, line.start - _LEAD) : line.start].decode("utf-8", "replace")
        if not lead.search(above):
            return False
    follow = pattern.compiled_follow
    return not follow or any(follow.search(text) for _, _, text in line.following(_FOLLOW))
