"""**What.** `PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`) holds what the allocator cannot read:
`max_split_size_mb=512` with `=` for `:`, `expandable_segments:true`, a `;` between two settings, a split size below
20, a threshold in per cent.

**Why it hurts.** Every process stops when it first asks for memory on a GPU, with an assertion about tokens that does
not name the variable. An option that nobody knows is an error too in releases up to 2.8, and ignored later.

**Fix.** `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512`.

**When it stays quiet.** For values that are not known, and for options that are only unknown.

**Evidence.** torch 2.13, run: `torch._C._accelerator_setAllocatorSettings`, the parser itself, refuses each of the
bad values and takes each of the good ones (`tests/launchers/test_allocator.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import Context
from dslint.model.launch.allocator import complaint, mended
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import settings, value_span
from dslint.model.launch.traits import PYTORCH
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL380",
    name="allocator-setting-unreadable",
    kind="launch",
    severity=Severity.WARNING,
    summary="PyTorch's allocator cannot read its settings, and every process stops",
    fix="unsafe",
    references=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf",
    ),
    no_experiment="the parser runs where GPUs are first used; it was called by itself",
    needs=(PYTORCH,),
)

_RUN = "torchrun --standalone --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}


def _set(value: str) -> dict[str, str]:
    return {"run.sh": f"export PYTORCH_CUDA_ALLOC_CONF={value}\n{_RUN}", **_SCRIPT}


EXAMPLES = (
    bad("a wrong sign", _set("max_split_size_mb=512"), "run.sh:1", _set("max_split_size_mb:512")),
    bad("a small letter", _set("expandable_segments:true"), "run.sh:1", _set("expandable_segments:True")),
    bad("a number for a switch", _set("expandable_segments:1"), "run.sh:1"),
    bad("another separator", _set("'max_split_size_mb:512;expandable_segments:True'"), "run.sh:1"),
    bad("too small", _set("max_split_size_mb:8"), "run.sh:1"),
    bad("per cent", _set("garbage_collection_threshold:80"), "run.sh:1"),
    bad("in front of the command", {
        "run.sh": "PYTORCH_ALLOC_CONF=expandable_segments=True " + _RUN, **_SCRIPT,
    }, "run.sh:1", {"run.sh": "PYTORCH_ALLOC_CONF=expandable_segments:True " + _RUN}),
    good("two settings", _set("expandable_segments:True,max_split_size_mb:512")),
    good("a list", _set("'roundup_power2_divisions:[256:1,512:2,>:4]'")),
    good("not known", _set("max_split_size_mb:$SIZE")),
)  # fmt: skip

_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Settings of the allocator that its parser refuses."""
    del context
    for setting in settings(doc):
        why = complaint(setting.value) if setting.name in _NAMES else ""
        if not why:
            continue
        other, span = mended(setting.value), value_span(doc, setting)
        edits = (Edit(doc.source.path, span, other),) if span is not None and other else ()
        yield META.finding(
            setting.location,
            f"PyTorch cannot read `{setting.text}`: {why}, and every process stops at its first tensor on a GPU",
            hint=f"Write `{other}`" if other else "Write `name:value`, and `,` between two of them",
            fix=Fix(f"Write `{other}`", edits, Safety.UNSAFE) if edits else None,
            severity=Severity.INFO if doc.in_docs else None,
        )
