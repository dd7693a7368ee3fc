"""What to say about a key whose feature DeepSpeed has removed, by the release that the project uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.judged import Judged
from dslint.model.versions.resolve import covers
from dslint.parse.data import split_pointer


@dataclass(frozen=True, slots=True)
class Removal:
    """The parts of a finding about a removed key."""

    severity: Severity
    message: str
    hint: str
    related: tuple[Location, ...] = ()


def removal(judged: Judged, context: Context) -> Removal:
    """Error from the removing release on, information below it, warning when the release is not known."""
    violation, version = judged.violation, context.deepspeed
    key, since = split_pointer(violation.pointer)[-1], judged.since or judged.release
    # DeepSpeed's own text says what happened and, for some keys, what to use instead.
    sentences = re.sub(r"'([\w.]+)'", r"`\1`", violation.text).rstrip(". ").split(". ")
    reason = sentences[0].partition(";")[0]
    instead = next((s for s in sentences if s.startswith(("Use ", "Set "))), "")
    reached = covers(version, f">={since}")
    hint = f"Delete `{key}`" + (f" and {instead[0].lower()}{instead[1:]}" if instead else "")
    if reached == "yes":
        message = f"`{key}` stops {version_named(version)}, even when switched off: {reason}"
        return Removal(Severity.ERROR, message, hint, version_origin(version))
    if reached == "no":
        message = f"`{key}` works in {version_named(version)} and stops DeepSpeed {since} and later: {reason}"
        return Removal(Severity.INFO, message, f"{hint}, before you upgrade", version_origin(version))
    message = f"`{key}` stops DeepSpeed {since} and later, even when switched off: {reason}"
    return Removal(Severity.WARNING, message, f"{hint}; or pin `deepspeed<{since}`", version_origin(version))
