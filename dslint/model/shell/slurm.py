"""``#SBATCH`` directives: what a batch script asks of Slurm, as facts."""

from __future__ import annotations

import re

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Span
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
}
_OPTION = re.compile(r"(?P<name>--[a-z-]+|-[A-Za-z])(?:(?P<glue>=|[ \t]*)(?P<value>[^\s=]\S*))?")


def sbatch_directives(shell: ShellDoc) -> dict[str, Fact[str]]:
    """The directives before the first command, by keys such as ``SBATCH_NODES``; Slurm ignores later ones."""
    if "#SBATCH" not in shell.text:
        return {}
    first = next((c for c in shell.tree.root_node.named_children if c.type != "comment"), None)
    end = shell.span(first).start if first is not None else shell.span_in_source.end
    facts: dict[str, Fact[str]] = {}
    for comment in shell.comments:
        text = shell.source.text[comment.start : comment.end]
        if comment.start >= end or not text.startswith("#SBATCH"):
            continue
        body = text[len("#SBATCH") :].partition(" #")[0]
        for match in _OPTION.finditer(body):
            key = _KEYS.get(match["name"])
            if key is None or match["value"] is None or body[: match.start()].strip() not in ("", body):
                continue
            facts[key] = _fact(shell, comment.start + len("#SBATCH") + match.start(), match[0], match["value"])
    return facts


def _fact(shell: ShellDoc, start: int, text: str, value: str) -> Fact[str]:
    place = shell.source.location(Span(start, start + len(text)), f"#SBATCH {text}")
    gres = re.fullmatch(r"gpu(?::[\w.-]+)?:(\d+)", value)
    number = gres[1] if gres else value
    if re.fullmatch(r"(?:[\w.-]+:)?(\d+)", number):
        return known(number.rpartition(":")[2], place)
    return unknown(f"`{value}` is not one number", place)
