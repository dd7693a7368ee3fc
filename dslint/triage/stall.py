"""Extension stall: the last thing a rank said is about a PyTorch extension.

torch says "Using ... as PyTorch extensions root...", then "Loading extension module X..."; DeepSpeed adds "Time to load
X op". A rank that waits for a stale lock says the first and nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dslint.triage.blocks import Block
from dslint.triage.hit import Hit
from dslint.triage.line import Line
from dslint.triage.symptoms.extension import STALL

_ROOT, _MODULE, _TIME = "PyTorch extensions root", "extension module", "Time to load "
# What may stand behind the last words of a stalled rank: the build itself, warnings, and the end from outside.
_NOISE = re.compile(
    rb"PyTorch extensions root|extension module|Time to load |Emitting ninja|Allowing ninja|ninja: |^\s*\[\d+/\d+\] "
    rb"|Detected CUDA files|Creating extension directory|[Ww]arn|file_baton|Traceback \(most|^\s*File \"|^\s{2,}\S"
    rb"|KeyboardInterrupt|Signal(?:Exception| Manager)|Sending process|Closing process|closing signal|SIGTERM|SIGINT"
    rb"|Killing subprocess|Terminated|Killed|CANCELLED|DUE TO TIME|slurmstepd|srun:|\^C|exits with return code|^\s*$"
)
_MAX_TAGS = 4096
_LOOK = 200
_STEP = re.compile(r"(?:Loading|Building) extension module |for re-loaded extension module")


class _Open:
    """An extension line after which its rank has said nothing else yet."""

    def __init__(self, line: Line) -> None:
        self.hit = line.hit(STALL)
        self.begun = self.loaded = 0
        self.at = line.end
        self.loading = False


class ExtensionTracker:
    """Keeps, for each tag of a rank, the extension line that nothing followed so far."""

    gates = (_ROOT, _MODULE, _TIME)

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def line(self, line: Line, gate: str) -> None:
        """A line about an extension."""
        text, tag = line.label.text, line.label.tag
        if gate == _MODULE and not _STEP.search(text):
            return
        if gate == _ROOT and "Using " not in text:
            return
        state = self._open.get(tag)
        if state is None:
            if gate == _TIME or len(self._open) >= _MAX_TAGS:
                return
            state = self._open[tag] = _Open(line)
        state.at = line.end
        if gate == _ROOT:
            state.begun += 1
        elif gate == _TIME:
            state.loaded += 1
        state.loading = gate != _TIME
        if gate != _TIME:
            # The time of the first such line will do: to look for it costs more than all else here.
            state.hit = replace(state.hit, line=line.number, text=text.strip())

    def block(self, block: Block) -> None:
        """The end of a block: drop the ranks that said something else after their last extension line."""
        for tag, state in list(self._open.items()):
            if _went_on(block, state.at, tag):
                del self._open[tag]
            else:
                state.at = max(0, state.at - block.limit)

    def finish(self) -> Iterator[Hit]:
        """The ranks that stalled."""
        for state in self._open.values():
            if state.loading or state.begun > state.loaded:
                yield state.hit


def _went_on(block: Block, at: int, tag: str) -> bool:
    if not tag:
        return any(not _NOISE.search(block.data[start:end]) for start, end in block.following(at, _LOOK))
    literal = tag.encode()
    for _ in range(_LOOK):
        at = block.data.find(literal, at)
        if at < 0:
            return False
        _, end = block.bounds(at)
        at += len(literal)
        if not _NOISE.search(block.data[at:end]):
            return True
    return False
