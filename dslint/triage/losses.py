"""Losses of 0 and NaN: not single lines, but what the loss does from one line on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dslint.triage.blocks import Block
from dslint.triage.hit import Hit
from dslint.triage.line import Line
from dslint.triage.symptoms.loss import NAN, ZERO

# The training loss itself: not aux_loss or kl_loss, which may well be 0.
_LOSS = re.compile(
    r"(?:^|[\s,;|{('\"\[])(?:train[_/ ]|training |lm |eval_)?loss['\"]?\s?[:=]\s?['\"]?"
    r"(?P<value>0(?:\.0+)?(?:[eE][+-]?0+)?|[nN][aA][nN])(?![\w.+-])"
)
# Losses of reinforcement learning begin at 0 and may stay there.
_OTHER = re.compile(r"reward|advantage|\bkl\b|entropy|completion", re.IGNORECASE)
_SPOILT_GRADIENT = re.compile(r"grad_norm['\"]?\s?[:=]\s?['\"]?(?:nan|inf|0(?:\.0+)?[,'}\s])")
_ANY = re.compile(rb"loss['\"]?\s?[:=]\s?['\"]?(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[nN][aA][nN])")
_NAME = b"_-/." + bytes(range(ord("a"), ord("z") + 1)) + bytes(range(ord("A"), ord("Z") + 1))
_BACK = 16384
# A loss that shrinks is printed as 0.0 in the end; one that was this large a line before does not.
_SUDDEN = 0.05
_ENOUGH = 3
# Real losses between zeros, of another rank's line for example, that do not end a run of zeros.
_STRAY = 2


class LossTracker:
    """The losses of one log: the newest run of zeros, and the first NaN."""

    def __init__(self) -> None:
        self._zero: Hit | None = None
        self._nan: Hit | None = None
        self._before: float | None = None
        self._spoilt = False
        self._at = 0
        self._others = self._zeros = self._nans = 0

    def line(self, line: Line) -> None:
        """A line whose loss may be 0 or NaN."""
        match = _LOSS.search(line.label.text)
        if not match or _OTHER.search(line.label.text):
            return
        if match["value"].lower() == "nan":
            self._nans += 1
            self._nan = self._nan or line.hit(NAN)
            return
        if "eval_loss" in match[0]:
            return
        if self._zero is not None:
            self._others += _real_losses(line.block.data, self._at, line.start)
        if self._zero is None or self._others > _STRAY:
            self._begin(line)
        self._zeros += 1
        self._spoilt = self._spoilt or bool(_SPOILT_GRADIENT.search(line.label.text))
        self._at = line.end

    def _begin(self, line: Line) -> None:
        self._zero = line.hit(ZERO)
        self._before = _last_loss(line.block.data, line.start)
        self._spoilt, self._zeros, self._others = False, 0, 0

    def block(self, block: Block) -> None:
        """The end of a block: count the real losses since the last 0."""
        if self._zero is not None:
            self._others += _real_losses(block.data, self._at, block.limit)
            self._at = max(0, self._at - block.limit)

    def finish(self) -> Iterator[Hit]:
        """What the losses show."""
        sudden = self._before >= _SUDDEN if self._before is not None else self._spoilt
        if self._zero and sudden and self._zeros >= _ENOUGH and self._others <= _STRAY:
            before = {} if self._before is None else {"before": f"{self._before:g}"}
            yield replace(self._zero, groups={"zeros": str(self._zeros), **before})
        if self._nan:
            yield replace(self._nan, groups={"nans": str(self._nans)})


def _real_losses(data: bytes, start: int, end: int) -> int:
    return sum(1 for found in _ANY.finditer(data, start, end) if _own(data, found.start()) and _number(found[1]))


def _own(data: bytes, at: int) -> bool:
    """Whether ``loss`` is the whole name there: not the end of ``aux_loss``."""
    return at == 0 or data[at - 1] not in _NAME


def _number(text: bytes) -> float:
    """The value of a loss; NaN counts as nothing."""
    return 0.0 if text.lower() == b"nan" else float(text[:40])


def _last_loss(data: bytes, at: int) -> float | None:
    """The last loss before a byte that is a number; None where none is near."""
    last = None
    for match in _ANY.finditer(data, max(0, at - _BACK), at):
        if _own(data, match.start()):
            last = match
    return _number(last[1]) if last else None
