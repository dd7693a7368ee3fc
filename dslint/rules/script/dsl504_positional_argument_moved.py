"""An argument by position is another parameter in other releases that the project allows.

**What.** A call gives a value by position, and the parameter that is there changed its place between two releases
that the project may install: the value lands in another parameter, and both calls succeed.

**Why it hurts.** Nothing fails. The run trains with a value that nobody chose: which one depends on the day of the
install.

**Fix.** Pass the value by its name.

**When it stays quiet.** The parameter was only renamed, the call fails in one of the releases (DSL503), one release is
pinned, or nobody says which releases are allowed: the name of a library alone is no word for its old releases.

**Evidence.** The signatures of the libraries by release, read from their wheels (docs/versions.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.standing.binding import misfit, positional
from dslint.model.standing.presence import signature_in
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.libraryuses import MARKERS, LibraryUses
from dslint.rules.names.librarycalls import LibraryCall, is_steady

META = RuleMeta(
    code="DSL504",
    name="positional-argument-moved",
    kind="script",
    severity=Severity.WARNING,
    summary="an argument by position is another parameter in another release that the project allows",
    markers=MARKERS,
    references=(
        "https://github.com/huggingface/accelerate/pull/3394",
        "https://peps.python.org/pep-3102/",
    ),
    depends_on_run=True,
    no_experiment="one release is installed at a time; the signatures of both say where the value lands",
)


def of_libraries(view: LibraryUses) -> Iterator[Finding]:
    """Fire on each argument whose place has another parameter in another release that is allowed."""
    for call in view.calls:
        allowed = view.allowance(call.library)
        is_open = not call.given or call.is_open or not allowed.is_bounded or len(allowed.releases) < 2
        if not is_open and not is_steady(view, call):
            yield from _moved(view, call)


def _moved(view: LibraryUses, call: LibraryCall) -> Iterator[Finding]:
    surface = view.surface(call.library)
    allowed = view.allowance(call.library)
    reached = [r for r in allowed.releases if view.runs(call.guards, call.library, r)]
    if surface is None or allowed.fresh not in reached:
        return
    newest = signature_in(surface, call.dotted, allowed.fresh)
    if newest is None or misfit(newest, call.given, call.names):
        return
    new = [p.name for p in positional(newest)]
    for release in reversed(reached):
        older = signature_in(surface, call.dotted, release)
        if older is None or older is newest or misfit(older, call.given, call.names):
            continue
        old = [p.name for p in positional(older)]
        for at, (before, after) in enumerate(zip(old[: call.given], new, strict=False)):
            # A name that is nowhere any more was renamed.
            if before != after and newest.parameter(before) is not None and older.parameter(after) is None:
                yield view.finding(
                    META,
                    call.node.args[at],
                    f"argument {at + 1} of `{call.short}` is `{before}` in {call.library} {release} but `{after}` in "
                    f"{allowed.fresh}, and both are allowed",
                    hint=f"Pass it by name: `{before}=`",
                    related=allowed.origins,
                    facts={"function": call.dotted, "before": before, "after": after},
                )
                return


_PLUGIN = """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import ShardingStrategy

plugin = FullyShardedDataParallelPlugin(%sShardingStrategy.SHARD_GRAD_OP)
accelerator = Accelerator(fsdp_plugin=plugin)
"""
_ENGINE = """\
import deepspeed

from mine import build, group


def start(args):
    model, optimizer = build(args)
    return deepspeed.initialize(args, model, optimizer, model.parameters(), None, None, %sgroup)
"""
EXAMPLES = (
    bad(
        "The sharding strategy becomes the version of FSDP",
        {"requirements.txt": "accelerate>=0.21\n", "train.py": _PLUGIN % ""},
        "train.py:4 warning",
    ),
    good("By name", {"requirements.txt": "accelerate>=0.21\n", "train.py": _PLUGIN % "sharding_strategy="}),
    good("By name, to an engine", {"requirements.txt": "deepspeed>=0.9\n", "train.py": _ENGINE % "mpu="}),
    good("No range of releases", {"requirements.txt": "accelerate\n", "train.py": _PLUGIN % ""}),
    good("One release is pinned", {"requirements.txt": "deepspeed==0.19.8\n", "train.py": _ENGINE % ""}),
)
