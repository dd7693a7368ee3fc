"""**What.** The host at which the ranks meet is cut out of `SLURM_NODELIST` or `SLURM_JOB_NODELIST` by positions:
`${SLURM_NODELIST:0:9}${SLURM_NODELIST:10:4}`, `cut -c`, `head -c`, `expr substr`, `.{9}` of `sed`.

**Why it hurts.** The list has many forms: `node001`, `node[001-004]`, `node[01,07]`, `a1,b2`. The positions fit one of
them, and the names of one cluster. Elsewhere they give a host that does not exist, and all ranks wait in
`init_process_group` until the timeout.

**Fix.** `scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1`.

**When it stays quiet.** When the list is cut at a comma or bracket, and when nobody uses the part as an address.

**Evidence.** By Slurm's manual of `sbatch` (`SLURM_JOB_NODELIST`) and `scontrol` (`show hostnames`); what bash cuts out
of these forms was run. Read in the scripts of SwAV.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.parse.shell import in_order
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL394",
    name="node-cut-by-positions",
    kind="launch",
    severity=Severity.WARNING,
    summary="The host of the rendezvous is cut out of Slurm's list of nodes by positions",
    references=("https://slurm.schedmd.com/sbatch.html", "https://slurm.schedmd.com/scontrol.html"),
    no_experiment="it takes Slurm, whose manual says how the list looks",
    needs=(r"/SLURM_(?:JOB_|STEP_)?NODELIST/",),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n"
_EXPORT = "export MASTER_ADDR=%s MASTER_PORT=29500\nsrun python train.py\n"
_URL = "srun python -u train.py --dist_url %s --arch resnet50\n"
_TWO = "${SLURM_NODELIST:0:9}${SLURM_NODELIST:10:4}"
_TORCHRUN = "srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint %s:29500 train.py\n"


def _job(text: str, head: str = _HEAD) -> dict[str, str]:
    return {"job.sbatch": head + text, **_SCRIPT}


EXAMPLES = (
    bad("an address put together", _job(
        f'node={_TWO}\nurl="tcp://"\nurl+=$node\nurl+=:40000\n' + _URL % "$url"), "job.sbatch:4"),
    bad("cut -c", _job(_EXPORT % "$(echo $SLURM_JOB_NODELIST | cut -c1-9)"), "job.sbatch:4"),
    bad("a copy of the list", _job("nodes=$SLURM_JOB_NODELIST\n" + _EXPORT % '"${nodes:0:7}"'), "job.sbatch:5"),
    bad("head -c", _job("HEAD=`head -c 7 <<< $SLURM_NODELIST`\n" + _TORCHRUN % "$HEAD"), "job.sbatch:4"),
    bad("sed", _job(_EXPORT % "$(echo $SLURM_NODELIST | sed -E 's/^(.{4})\\[(..).*/\\1\\2/')"), "job.sbatch:4"),
    bad("expr", _job("HEAD=$(expr substr $SLURM_NODELIST 1 7)\n" + _TORCHRUN % "$HEAD"), "job.sbatch:4"),
    bad("one node, whose name is cut", _job(_EXPORT % "${SLURM_NODELIST:0:7}", _HEAD.replace("4", "1")),
        "job.sbatch:4"),
    bad("in the word itself", _job(_TORCHRUN % "${SLURM_JOB_NODELIST:0:7}"), "job.sbatch:4"),
    good("scontrol", _job(_EXPORT % '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')),
    good("scontrol, and a part of the name", _job(
        'HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n' + _EXPORT % "${HOST:0:7}")),
    good("cut at a comma", _job(_EXPORT % "$(echo $SLURM_JOB_NODELIST | cut -d, -f1)")),
    good("a name for logs", _job("log=logs/${SLURM_NODELIST:0:7}\n" + _EXPORT % "$HEAD" + "echo $log\n")),
    good("a comment", _job(f"# export MASTER_ADDR={_TWO}\n" + _EXPORT % "$HEAD")),
)  # fmt: skip

_LIST = r"SLURM_(?:JOB_|STEP_)?NODELIST"
_BY_POSITION = re.compile(
    r"\bcut\s+(?:-[cb]|--characters|--bytes)|\bhead\s+-c|\bexpr\s+substr|\bsubstr\s*\("
    r"|\bsed\b[^|]*(?:\.\\?\{\d|\^[\"'(\\]*\.{2})"
)
_VARIABLE = re.compile(r"\$\{?(\w+)")
_ADDRESS = re.compile(r"--?[\w.-]*(?:addr|url|endpoint|init.?method|_ip|-ip|host)\w*", re.IGNORECASE)
_OF_TORCH = frozenset({"MASTER_ADDR", "MASTER_ADDRESS"})


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Parts of the list of nodes, and what becomes of them."""
    del context
    if doc.is_inner or doc.is_rewritten or not doc.commands:
        return
    lists, parts = {"SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"}, dict[str, Location]()
    told: set[Location] = set()
    for name, raw, place in _assignments(doc):
        used = set(_VARIABLE.findall(raw))
        if _cuts(raw, lists):
            parts[name] = place
        elif used & set(parts):
            parts[name] = next(parts[inner] for inner in parts if inner in used)
        elif used & lists and re.fullmatch(r"[\"']?\$\{?\w+\}?[\"']?", raw):
            lists.add(name)
    for name in sorted(_OF_TORCH & set(parts)):
        told.add(parts[name])
    for command in doc.commands:
        told.update(_handed_over(doc, command, lists, parts))
    for place in sorted(told, key=lambda place: place.span.start):
        yield META.finding(
            place,
            "the first host is cut out of Slurm's list by positions, which fit one cluster and one form of it",
            hint='Write `$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`',
            severity=Severity.INFO if doc.in_docs else None,
        )


def _assignments(doc: LaunchDoc) -> Iterator[tuple[str, str, Location]]:
    """Yield the names that the text sets in its order, what each is given, and where."""
    for node in in_order(doc.shell.root):
        if node.type == "variable_assignment":
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name is not None and value is not None:
                yield doc.shell.raw(name), doc.shell.raw(value), doc.source.location(doc.shell.span(value))


def _cuts(raw: str, lists: set[str]) -> bool:
    """A piece of the list between two positions, or what a program leaves of it."""
    used = [name for name in _VARIABLE.findall(raw) if name in lists]
    if not used or "scontrol" in raw:
        return False
    return bool(re.search(rf"\$\{{(?:{'|'.join(used)}):\s*\d+", raw) or _BY_POSITION.search(raw))


def _handed_over(
    doc: LaunchDoc, command: LaunchCommand, lists: set[str], parts: dict[str, Location]
) -> Iterator[Location]:
    """Yield the parts that a command gets as an address."""
    before = ""
    for word in command.words:
        option = word.raw.partition("=")[0] if "=" in word.raw and word.raw.startswith("-") else before
        before = word.raw
        if word.location.path == doc.source.path and _ADDRESS.fullmatch(option):
            yield from (parts[name] for name in _VARIABLE.findall(word.raw) if name in parts)
            if _cuts(word.raw, lists):
                yield word.location
