"""What a rule is: metadata, examples, and how it makes a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.core.source import Location, labelled


@dataclass(frozen=True, slots=True)
class RuleMeta:
    """The facts about a rule that docs, reports and settings need.

    Attributes:
        code: ``DSL`` + three digits, never reused.
        name: kebab-case, states the bad pattern; reads well after "allow".
        kind: ``config`` | ``accelerate`` | ``script`` | ``launch`` | ``plan`` | ``dslint``.
        severity: of the finding unless the check gives another; what was observed at run time.
        summary: one line, no final full stop.
        since: dslint version that introduced the rule.
        fix: ``safe`` | ``unsafe`` | ``none``: the best fix the rule can offer.
        markers: script rules only. Each is a regular expression over the bytes of a file; the file is
            parsed for this rule only when *every* marker is found.
        alone: script rules that ask about runs only. Regular expressions over the bytes of a module in which no run
            begins: where every one is found (``WAITS`` of ``rules/markers.py`` also in what the module imports), the
            module is interpreted for the rule. Empty: only where a run begins.
        needs: of which the document must hold one for the rule to fire; for any other the rule is not even loaded.
            Empty: it may fire everywhere. Config rules: JSON pointers. Launch rules: traits of the commands
            (``model/launch/traits.py``: ``torchrun``, ``--nnodes``, ``NCCL_DEBUG``, ``nodes``), or ``/pattern/``, a
            regular expression over the shell text. Plan rules: fields of ``RunPlan`` that must hold something
            (``config``, ``parser``), or options of the command.
        versions: library versions the rule speaks about, as requirement strings.
        references: public evidence: issues, source functions, documentation.
        depends_on_run: whether the rule can fire or stay quiet on the same text for facts that stand elsewhere: world
            size, library versions, ZeRO stage, who reads a config, the launch command. Such a rule cannot say that a
            suppression is of no use: another run may know more.
        supersedes: codes of rules that see less of the same mistake: their findings at the same JSON pointer of the
            same file are dropped.
        also_told_by: codes of rules that tell the same of the syntax of one file: where one of them has spoken about
            the place, this rule does not.
        consumers: config rules only: who must read the config for the rule to speak (``deepspeed`` | ``hf`` |
            ``accelerate`` | ``lightning`` | ``unknown``); empty: the rule holds for every reader. The engine asks.
        optional: off unless the user asks for it (``--select ALL``, the whole code or the name; no prefix): for facts
            that are right and that most people do not want to hear about every config.
        no_experiment: why the probe has no experiment for the rule; empty when it has one.
    """

    code: str
    name: str
    kind: str
    severity: Severity
    summary: str
    since: str = "0.1.0"
    fix: str = "none"
    markers: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    depends_on_run: bool = False
    supersedes: tuple[str, ...] = ()
    also_told_by: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    optional: bool = False
    no_experiment: str = ""

    def finding(
        self,
        location: Location,
        message: str,
        *,
        hint: str = "",
        related: tuple[Location, ...] = (),
        fix: Fix | None = None,
        severity: Severity | None = None,
        assumptions: tuple[str, ...] = (),
        pointer: str | None = None,
        facts: Mapping[str, str | int | float | bool | None] | None = None,
    ) -> Finding:
        """A finding of this rule.

        ``message`` is one sentence (value found, value needed, why it hurts), identifiers in
        backticks, no line breaks, no final full stop; ``hint`` is an imperative. ``facts`` are what the experiment
        of the rule takes over from the code (the call, the stage, the batch size), under names of its own.
        ``assumptions`` (``core/assumptions.py``) make the finding a likely one. A related place without a label is
        one that says a value of the message.
        """
        return Finding(
            self.code,
            self.name,
            severity or self.severity,
            message,
            location,
            labelled(related, "stated here"),
            hint,
            fix,
            assumptions,
            pointer,
            tuple(sorted((facts or {}).items())),
        )


@dataclass(frozen=True, slots=True)
class Example:
    """A small project that a rule judges: the test, the documentation and the proof in one.

    Attributes:
        title: what the example shows, as a phrase.
        files: relative path -> text.
        at: where the rule must fire, as ``path:line`` or ``path:line severity``; empty for a good example.
        fixed: the files after ``--fix`` (with ``--unsafe-fixes`` when the rule's fix is unsafe); files not
            named stay as they are. ``None``: the example promises no fix.
        settings: command-line settings by their long name (``{"world-size": 8}``).
    """

    title: str
    files: Mapping[str, str]
    at: tuple[str, ...] = ()
    fixed: Mapping[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def bad(
    title: str,
    files: Mapping[str, str],
    at: tuple[str, ...] | str,
    fixed: Mapping[str, str] | None = None,
    **settings: object,
) -> Example:
    """An example on which the rule fires exactly at ``at`` (keyword ``world_size`` -> setting ``world-size``)."""
    places = (at,) if isinstance(at, str) else at
    return Example(title, files, places, fixed, {k.replace("_", "-"): v for k, v in settings.items()})


def good(title: str, files: Mapping[str, str], **settings: object) -> Example:
    """A look-alike on which *every* rule stays silent at warning and error level, and this rule at any level."""
    return Example(title, files, (), None, {k.replace("_", "-"): v for k, v in settings.items()})
