"""A `deepspeed_multinode_launcher` that accelerate or DeepSpeed does not know.

**What.** `pdsh`, `standard`, `openmpi`, `mvapich`, `mpich`, `slurm` and `nossh` are known; `nossh` since accelerate
1.6.0 and DeepSpeed 0.14.5.

**Why it hurts.** Every other word goes to the `deepspeed` command, which stops with `NotImplementedError: Unknown
launcher`. `nossh` with an older DeepSpeed stops with `ValueError: nossh launcher requires DeepSpeed >= 0.14.5`.

**Fix.** `standard` runs torchrun on each machine and needs no ssh.

**When it stays quiet.** One machine, where the launcher is not used; a flag that replaces it; without a hostfile
`accelerate-hostfile-missing` speaks, since DeepSpeed then starts on one machine before it looks at the word.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`); `deepspeed/launcher/runner.py` (`main`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.names import names
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.suggest import closest
from dslint.model.versions.resolve import covers
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL191",
    name="accelerate-launcher-value",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="A `deepspeed_multinode_launcher` that does not exist, or not in the release in use",
    depends_on_run=True,
    no_experiment="DeepSpeed looks at the launcher only after it has reached another host over ssh",
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 2
num_processes: 16
deepspeed_config:
  deepspeed_hostfile: hosts
  deepspeed_multinode_launcher: torchrun
  zero_stage: 2
"""
_NOSSH = _FILE.replace("torchrun", "nossh")

EXAMPLES = (
    bad("no such launcher", {"two.yaml": _FILE}, "two.yaml:7"),
    bad("too new for the DeepSpeed in use", {"two.yaml": _NOSSH}, "two.yaml:7", deepspeed_version="0.14.2"),
    good("known", {"two.yaml": _FILE.replace("torchrun", "openmpi")}),
    good("a release that knows it", {"two.yaml": _NOSSH}, deepspeed_version="0.16.9"),
    good("one machine", {"one.yaml": _FILE.replace("num_machines: 2", "num_machines: 1")}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The word, and the DeepSpeed that must know it."""
    view = view_of(doc, context)
    stated = view.stated("deepspeed_multinode_launcher")
    if not stated.is_known or not view.is_deepspeed or view.count("num_machines", 1).get_or(1) < 2:
        return
    word, known = str(stated.get()), names("launchers")
    if word not in known and not view.fact("deepspeed_hostfile").is_absent:
        near = closest(word, known)
        yield META.finding(
            doc.value(view.pointer("deepspeed_multinode_launcher")),
            f"`{word}` is not a launcher of DeepSpeed: the `deepspeed` command stops with `Unknown launcher`",
            hint=f"Write `{near}`" if near else f"Write one of {', '.join(known)}",
            severity=view.severity(Severity.ERROR),
            pointer=view.pointer("deepspeed_multinode_launcher"),
        )
    elif word == "nossh" and covers(context.deepspeed, "<0.14.5") == "yes":
        yield META.finding(
            doc.value(view.pointer("deepspeed_multinode_launcher")),
            f"`nossh` needs DeepSpeed 0.14.5, but the project has {version_named(context.deepspeed)}: accelerate stops",
            hint="Write `standard`, or upgrade DeepSpeed",
            related=version_origin(context.deepspeed),
            severity=view.severity(Severity.ERROR),
            pointer=view.pointer("deepspeed_multinode_launcher"),
        )
