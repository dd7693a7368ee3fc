"""``#SBATCH`` directives: what a batch script asks of Slurm, as facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, Span
from dslint.model.launch.command import Word
from dslint.parse.shell import ShellDoc

_KEYS = {
    "-N": "SBATCH_NODES",
    "--nodes": "SBATCH_NODES",
    "-n": "SBATCH_NTASKS",
    "--ntasks": "SBATCH_NTASKS",
    "--ntasks-per-node": "SBATCH_NTASKS_PER_NODE",
    "--tasks-per-node": "SBATCH_NTASKS_PER_NODE",
    "--gpus-per-node": "SBATCH_GPUS_PER_NODE",
    "--gres": "SBATCH_GPUS_PER_NODE",
    "--gpus-per-task": "SBATCH_GPUS_PER_TASK",
    "-G": "SBATCH_GPUS",
    "--gpus": "SBATCH_GPUS",
}
# What `sbatch --export` hands over to the job, and by that to its steps.
EXPORT = "SBATCH_EXPORT"
# Said by a word, not by one number: which tasks an array has, what a job waits for, where it runs.
_TEXTS = {
    "-a": "SBATCH_ARRAY",
    "--array": "SBATCH_ARRAY",
    "-d": "SBATCH_DEPENDENCY",
    "--dependency": "SBATCH_DEPENDENCY",
    "-w": "SBATCH_NODELIST",
    "--nodelist": "SBATCH_NODELIST",
}
# A job that has its nodes for itself. `--exclusive=user` shares them among the jobs of one user.
ALONE = "SBATCH_ALONE"
_WHOLE_NODES = {"--exclusive": "", "--mem": "0"}
# Between the parts of a heterogeneous job.
_NEXT_PART = ("hetjob", "packjob")
_WORD = re.compile(r"[^\s\"']+(?:\"[^\"]*\"|'[^']*')?")


def sbatch_directives(shell: ShellDoc) -> dict[str, Fact[str]]:
    """The directives before the first command, by keys such as ``SBATCH_NODES``; Slurm ignores later ones.

    Of a heterogeneous job (``#SBATCH hetjob``) those of the first part, on which the script and its steps run.
    """
    if "#SBATCH" not in shell.text:
        return {}
    first = next((c for c in shell.root.named_children if c.type != "comment"), None)
    end = shell.span(first).start if first is not None else shell.span_in_source.end
    facts: dict[str, Fact[str]] = {}
    for comment in shell.comments:
        text = shell.text[comment.start - shell.base : comment.end - shell.base]
        if comment.start >= end or not text.startswith("#SBATCH"):
            continue
        body = text[len("#SBATCH") :].partition(" #")[0]
        if body.strip() in _NEXT_PART:
            break
        words = [(m[0], comment.start + len("#SBATCH") + m.start()) for m in _WORD.finditer(body)]
        for name, value, place in _options(words):
            key = _KEYS.get(name)
            if key is not None and value:
                facts[key] = _fact(shell, place, value)
            elif name in _TEXTS or name in _WHOLE_NODES:
                facts |= _said(name, value, body, shell.source.location(Span(place, place + len(name)), "#SBATCH"))
            elif name == "--export" and value:
                span = Span(place, place + len(f"{name}={value}"))
                facts[EXPORT] = known(value, shell.source.location(span, f"#SBATCH {name}={value}"))
    return facts


def slurm_options(words: Sequence[Word]) -> dict[str, Fact[str]]:
    """The same facts from the options of ``sbatch`` or ``salloc``."""
    facts: dict[str, Fact[str]] = {}
    given = [(given_text(word), word) for word in words]
    for name, value, word in _options(given):
        key = _KEYS.get(name)
        if key is not None and value:
            number = _number(value)
            place = word.location.labelled(f"{name} {value}")
            facts[key] = known(number, place) if number else unknown(f"`{value}` is not one number", place)
        elif name in _TEXTS or name in _WHOLE_NODES:
            facts |= _said(name, value, given_text(word), word.location.labelled(name))
    return facts


def given_text(word: Word) -> str:
    """A word as it is known, else as it stands there."""
    return word.text if word.text is not None else word.raw


def _said(name: str, value: str, text: str, place: Location) -> dict[str, Fact[str]]:
    """What a word says of a job; ``text`` is what it stands in, since `--exclusive` may have a value or none."""
    if name in _TEXTS:
        return {_TEXTS[name]: known(value.strip("\"'"), place)} if value else {}
    own = value if name != "--exclusive" else "user" if f"{name}=" in text else ""
    return {ALONE: known("1", place)} if own == _WHOLE_NODES[name] else {}


_Place = TypeVar("_Place")


def _options(words: Sequence[tuple[str, _Place]]) -> Iterator[tuple[str, str, _Place]]:
    """``--nodes=2``, ``--nodes 2``, ``-N 2``, ``-N2``: name, value and the place of each."""
    for at, (word, place) in enumerate(words):
        if not word.startswith("-"):
            continue
        following = words[at + 1][0] if at + 1 < len(words) else ""
        if word.startswith("--"):
            name, glue, value = word.partition("=")
        else:
            name, glue, value = word[:2], word[2:], word[2:].lstrip("=")
        yield name, (value if glue else "" if following.startswith("-") else following), place


def _fact(shell: ShellDoc, start: int, value: str) -> Fact[str]:
    # Bash may read other characters than stand there: the line ends of Windows are not part of it.
    at = shell.source.text.find(value, start)
    end = (at if at >= 0 else start) + len(value)
    text = shell.source.text[start:end]
    place = shell.source.location(Span(start, end), f"#SBATCH {text}")
    number = _number(value)
    return known(number, place) if number else unknown(f"`{value}` is not one number", place)


def _number(value: str) -> str:
    """``8``, ``gpu:8``, ``gpu:a100:8`` -> ``8``; empty when it is not one number."""
    match = re.fullmatch(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)", value.strip("\"'"))
    return match[1] if match else ""
