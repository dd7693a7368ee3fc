"""What becomes of the batch keys that ``label_names`` lists: how a script makes them, and whether it evaluates.

The Trainer pads every listed key and gathers it from all ranks in each evaluation step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.evaluation import Evaluation
from dslint.model.script.data.labels import Produced, producers
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

# Columns that `DataCollatorWithPadding` and `default_data_collator` rename to "labels".
_RENAMED = ("label", "label_ids")
_BROKEN = ("text", "dict", "list")
# Keys that models of transformers declare as labels themselves.
_OF_LABELS = ("start_positions", "end_positions")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure the harm of a list of label names is, why, and where the script makes the keys.

    ``facts`` are what the experiment of the rule takes over.
    """

    severity: Severity
    why: str
    produced: tuple[Produced, ...]
    facts: Mapping[str, str | int | float | bool | None]
    lost: str = ""

    def message(self, names: Iterable[str]) -> str:
        """The sentence of a finding about these names."""
        names = list(names)
        if self.lost:
            return f'`label_names` holds "{self.lost}", {self.why}: evaluation reports no `eval_loss` and no metrics'
        extra = extra_names(names)
        place = "besides" if len(extra) < len(names) else "in place of"
        listed = ", ".join(f'"{name}"' for name in extra)
        harm = f"evaluation pads and gathers it from all ranks, {self.why}"
        return f"`label_names` holds {listed} {place} the labels: {harm}"


def extra_names(names: Iterable[str]) -> list[str]:
    """The names that are no labels."""
    return [name for name in names if "label" not in name and name not in _OF_LABELS]


def judge(names: Iterable[str], tree: Tree, scopes: Names, evaluation: Evaluation) -> Verdict | None:
    """The verdict on a list of names; ``None`` when nothing is wrong or the script evaluates in its own way."""
    names = list(names)
    extra = extra_names(names)
    if evaluation.is_replaced():
        return None
    lost = _never_there(names, tree, scopes, evaluation)
    if lost:
        return Verdict(*lost)
    if not extra:
        return None
    found = [p for name in extra for p in producers(tree, scopes, name)]
    severity, why = _verdict(found, evaluation)
    facts = {
        "key": extra[0],
        "kind": _kind(found),
        "conditional": any(p.conditional for p in found),
        "metrics": evaluation.computes_metrics(),
    }
    return Verdict(severity, why, tuple(found), facts)


def _never_there(
    names: list[str], tree: Tree, scopes: Names, evaluation: Evaluation
) -> tuple[Severity, str, tuple[Produced, ...], Mapping[str, str | int | float | bool | None], str] | None:
    """The verdict on a name that no batch holds: it is misspelt, or the collator gives the column another name."""
    for name in names:
        near = "label" not in name and bool(get_close_matches(name.lower(), ["labels", "label"], 1, 0.75))
        if near and "labels" not in names and not producers(tree, scopes, name):
            why = "which no code of this file makes (`labels`?)"
        elif name in _RENAMED and evaluation.renames_labels():
            why = "which the collators of transformers rename to `labels`"
        else:
            continue
        severity = Severity.INFO if evaluation.never_runs() else Severity.WARNING
        facts: dict[str, str | int | float | bool | None]
        facts = {"key": name, "kind": "absent", "conditional": False, "metrics": evaluation.computes_metrics()}
        return severity, why, (), facts, name
    return None


def place_label(produced: Produced) -> str:
    """What to say at a place that makes a key."""
    times = " in some batches only" if produced.conditional else ""
    kind = "value" if produced.kind == "unknown" else produced.kind
    return f"made here as a {kind}{times}"


def assigns_label_names(tree: Tree) -> bool:
    """``args.label_names = ...``: what a command says does not last."""
    return any(
        isinstance(t.target, cst.Attribute) and t.target.attr.value == "label_names"
        for node in tree.order
        if isinstance(node, cst.Assign)
        for t in node.targets
    )


def _verdict(found: list[Produced], evaluation: Evaluation) -> tuple[Severity, str]:
    severity: Severity | None = None
    kind = _kind(found)
    if any(p.conditional for p in found):
        why = "and only some batches have it, so the ranks wait for each other in different gathers"
    elif kind in _BROKEN:
        why = f"and it is a {kind}, which raises `TypeError` or differs between ranks and hangs"
    elif kind == "tensor":
        why, severity = "which works only while its shape is the same on every rank", Severity.INFO
    else:
        # Another file may make it as a tensor of fixed shape in every batch.
        why = "which hangs or raises unless it is a tensor of the same shape on every rank"
        severity = Severity.INFO
    if evaluation.never_runs():
        return Severity.INFO, f"{why} (this file passes no `eval_dataset`)"
    # Without metrics the Trainer keeps the loss only, and never gathers the labels in evaluate().
    return severity or (Severity.ERROR if evaluation.computes_metrics() else Severity.WARNING), why


def _kind(found: list[Produced]) -> str | None:
    """What the key holds: the first kind that cannot be gathered, "tensor" when nothing else, `None` when unknown."""
    for produced in found:
        if produced.kind in _BROKEN:
            return produced.kind
    return "tensor" if found and all(p.kind == "tensor" for p in found) else None
