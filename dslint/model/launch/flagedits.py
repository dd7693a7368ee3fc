"""Text edits on the options of a launch command: delete one, write another in its place."""

from __future__ import annotations

from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.model.launch.command import Flag, LaunchCommand, Word


def without_flag(command: LaunchCommand, flag: Flag, safety: Safety = Safety.SAFE) -> Fix | None:
    """Delete an option with its value and the blanks in front; ``None`` where it does not stand in the command."""
    span = _span(flag)
    before = [w.location.span for w in command.words if w.location.span.end <= span.start]
    if not before or not _stands_in(command, span) or flag.location.path != command.location.path:
        return None
    start = max(other.end for other in before)
    if not command.location.span.start < start <= span.start or "$" in _raw(command, span):
        return None
    return Fix(f"Delete `{flag.name}`", (Edit(command.location.path, Span(start, span.end), ""),), safety)


def replaced(command: LaunchCommand, word: Word, text: str, title: str, safety: Safety = Safety.SAFE) -> Fix | None:
    """Write ``text`` for a word that stands in the command as it is."""
    span = word.location.span
    if not _stands_in(command, span) or word.text != word.raw or span.end - span.start != len(word.raw):
        return None
    return Fix(title, (Edit(command.location.path, span, text),), safety)


def _span(flag: Flag) -> Span:
    start, end = flag.location.span.start, flag.location.span.end
    return Span(start, max(end, flag.value.location.span.end) if flag.value is not None else end)


def _stands_in(command: LaunchCommand, span: Span) -> bool:
    whole = command.location.span
    return not command.location.path.endswith(".ipynb") and whole.start <= span.start < span.end <= whole.end


def _raw(command: LaunchCommand, span: Span) -> str:
    """The words of the range as written: an option from a variable is not deleted."""
    inside = [w.raw for w in command.words if span.start <= w.location.span.start < span.end]
    return " ".join(inside[:1])
