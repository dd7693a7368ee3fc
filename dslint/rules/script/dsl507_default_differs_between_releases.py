"""A call leaves an argument to its default, and the releases that the project allows have different ones.

**What.** `GRPOConfig(...)` without `beta` under `trl>=0.16` (0.04, and 0.0 since 0.19), `DPOConfig(...)` without
`learning_rate` or `max_length`, `AutoModelForCausalLM.from_pretrained(path)` without a dtype under a range that reaches
transformers 5, `torch.load(path)` under one that reaches torch 2.6.

**Why it hurts.** Nothing in the project changes, and the training does: another learning rate, samples that are cut, no
KL term, weights in bfloat16. Two machines that were set up on different days train different models.

**Fix.** Write the value that you mean, or pin the release.

**When it stays quiet.** The argument is given, or something is unpacked that nobody knows; all allowed releases
have the same default; nobody says which releases are allowed; a test of the release is around the call.

**Evidence.** `schemas/library_changes.json`: each default with the files of the two releases between which it changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.standing.defaults import DefaultChange, default_changes
from dslint.model.versions.ranges import contains
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import LibraryUses
from dslint.rules.names.librarycalls import LibraryCall

META = RuleMeta(
    code="DSL507",
    name="default-differs-between-releases",
    kind="script",
    severity=Severity.WARNING,
    summary="an argument is left to a default that the releases which the project allows do not share",
    markers=(
        r"torch|transformers|trl|peft",
        r"Config\(|Arguments\(|from_pretrained\(|load\(|init_process_group\(|get_peft_model\(",
    ),
    references=(
        "https://github.com/huggingface/trl/pull/3516",
        "https://github.com/pytorch/pytorch/pull/137602",
        "https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",
    ),
    depends_on_run=True,
    no_experiment="one release is installed at a time; the sources of both say what the default is",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire once for each default, at the first call that leaves the argument out."""
    found: dict[DefaultChange, list[LibraryCall]] = {}
    for call in view.calls:
        for change in () if call.is_open else default_changes(call.dotted):
            if _differs(view, call, change):
                found.setdefault(change, []).append(call)
    by_call: dict[LibraryCall, list[DefaultChange]] = {}
    for change, calls in found.items():
        by_call.setdefault(calls[0], []).append(change)
    for call, changes in by_call.items():
        worst = max(changes, key=lambda change: change.severity.rank)
        yield _finding(view, call, worst, changes, found[worst][1:])


def _differs(view: LibraryUses, call: LibraryCall, change: DefaultChange) -> bool:
    """The call leaves the argument out, and releases on both sides of the change are allowed and reached."""
    allowed = view.allowance(call.library)
    if not allowed.is_stated or any(name in call.names for name in change.names):
        return False
    if change.where and not view.module.search(re.compile(change.where)):
        return False
    sides = {contains(f">={change.since}", release) for release in allowed.releases}
    if len(sides) < 2:
        return False
    reached = [r for r in allowed.releases if view.runs(call.guards, call.library, r)]
    return len({contains(f">={change.since}", release) for release in reached}) == 2


def _finding(
    view: LibraryUses, call: LibraryCall, change: DefaultChange, changes: list[DefaultChange], again: list[LibraryCall]
) -> Finding:
    others = [f"`{other.names[0]}`" for other in changes if other is not change]
    places = [view.module.location(other.node, "left out here, too") for other in again[:3]]
    more = f"; so do {', '.join(others)}" if others else ""
    return view.finding(
        META,
        call.node,
        f"`{change.names[0]}` defaults to {change.after} since {call.library} {change.since} ({change.before} before): "
        f"{change.effect}",
        hint=f"Write `{change.names[0]}=` with the value that you intend, or pin the release{more}",
        related=(*view.allowance(call.library).origins, *places),
        severity=change.severity,
        facts={"function": call.dotted, "argument": change.names[0], "since": change.since},
    )


_GRPO = """\
from trl import GRPOConfig

args = GRPOConfig("out", loss_type="bnpo", temperature=0.9, bf16=True, gradient_checkpointing=False%s)
"""
_LOAD = """\
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("m"%s)
Trainer(model=model).train()
"""
EXAMPLES = (
    bad(
        "Trackers that a later release leaves out",
        {
            "requirements.txt": "transformers>=4.44\n",
            "train.py": "import wandb\nfrom transformers import TrainingArguments\n\n"
            "wandb.init(project='x')\nargs = TrainingArguments('out', learning_rate=1e-5, save_safetensors=True)\n",
        },
        "train.py:5 warning",
    ),
    bad("The KL term", {"requirements.txt": "trl>=0.16,<1.0\n", "train.py": _GRPO % ""}, "train.py:3 warning"),
    bad(
        "The type of the weights",
        {"requirements.txt": "transformers>=4.50\n", "train.py": _LOAD % ""},
        "train.py:3 warning",
    ),
    bad(
        "A checkpoint with other objects",
        {
            "requirements.txt": "torch>=2.4\n",
            "train.py": "import torch\n\nstate = torch.load('last.pt', map_location='cpu')\n",
        },
        "train.py:3 info",
    ),
    good("The argument is given", {"requirements.txt": "trl>=0.16,<1.0\n", "train.py": _GRPO % ", beta=0.04"}),
    good("One release is pinned", {"requirements.txt": "trl==0.17.0\n", "train.py": _GRPO % ""}),
    good("A range on one side of the change", {"requirements.txt": "transformers>=4.50,<5\n", "train.py": _LOAD % ""}),
    good(
        "The old name of the argument",
        {"requirements.txt": "transformers>=4.50\n", "train.py": _LOAD % ', torch_dtype="auto"'},
    ),
    good("Nobody says which releases are allowed", {"train.py": _LOAD % ""}),
)
