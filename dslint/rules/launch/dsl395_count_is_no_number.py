"""**What.** An option of a launcher that takes a whole number gets something else: `torchrun
--nproc_per_node=work_dirs/a/latest.pt`, `--nproc_per_node=0,1`, `deepspeed --num_gpus 0,1,2,3`. Often a script of the
project reads its arguments by position, and the call has one too many, one too few, or two in the wrong order: `bash
dist_train.sh CONFIG CHECKPOINT 8`, where `$2` is the number of GPUs.

**Why it hurts.** The launcher stops before it starts a process: `ValueError: Unsupported nproc_per_node value`, or
`invalid int value`. In a queue that is after the wait.

**Fix.** Give the number. `--nproc_per_node` is how many processes a node has; which GPUs they see is in
`CUDA_VISIBLE_DEVICES`.

**When it stays quiet.** For values that are not known, for placeholders (`GPUS`, `<n>`, `{n}`), for names of devices
(`gpu`, `auto`, `npu`), for ranges of nodes (`1:4`), in documentation when the value is a word, and for a script that
nobody calls.

**Evidence.** `determine_local_world_size` of torch 2.13, and the parsers of deepspeed 0.19.8 and accelerate 1.15, run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_text, started_by

META = RuleMeta(
    code="DSL395",
    name="count-is-no-number",
    kind="launch",
    severity=Severity.ERROR,
    summary="An option of a launcher that takes a number gets a path, a list or nothing",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    depends_on_run=True,
    needs=("torchrun", "deepspeed", "accelerate"),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}
_DIST = (
    "CONFIG=$1\nGPUS=$2\nPORT=${PORT:-28509}\n"
    'torchrun --nproc_per_node=%s --master_port=$PORT train.py "$CONFIG" "${@:3}"\n'
)
_RANGE = "torchrun --nnodes=1:4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py\n"


def _called(call: str, gpus: str = '"$GPUS"') -> dict[str, str]:
    return {"stage2.sh": f"CKPT=work/a/latest.pt\n{call}\n", "dist_train.sh": _DIST % gpus, **_SCRIPT}


def _run(words: str) -> dict[str, str]:
    return {"run.sh": words + " train.py\n", **_SCRIPT}


EXAMPLES = (
    bad("a checkpoint before the number of GPUs", _called("bash dist_train.sh conf/b.json $CKPT 8"), "stage2.sh:2"),
    bad("no number of GPUs", _called("bash dist_train.sh conf/b.json"), "stage2.sh:2"),
    bad("an option in its place", _called("./dist_train.sh conf/b.json --seed 0", "$GPUS"), "stage2.sh:2"),
    bad("a list of GPUs", _run("torchrun --standalone --nproc_per_node=0,1"), "run.sh:1"),
    bad("GPUs of a variable", _run("GPUS=0,1,2,3\ndeepspeed --num_gpus $GPUS"), "run.sh:2"),
    bad("in a function", _run('go() {\n  accelerate launch --num_processes "$2" train.py --out "$1"\n}\n'
                              "go 8 out/a.pt #"), "run.sh:2"),
    bad("a fraction", _run("accelerate launch --num_processes 2.5"), "run.sh:1"),
    bad("in documentation", {"README.md": "```bash\ntorchrun --nproc_per_node=0,1 train.py\n```\n", **_SCRIPT},
        "README.md:2 warning"),
    good("the number where it belongs", _called("bash dist_train.sh conf/b.json 8 --load-from $CKPT")),
    good("a default", _called("bash dist_train.sh conf/b.json", "${2:-8}")),
    good("what the machine has", _run("torchrun --standalone --nproc_per_node=gpu")),
    good("a device of another vendor", _run("torchrun --standalone --nproc_per_node=npu")),
    good("a range of nodes", {"run.sh": _RANGE, **_SCRIPT}),
    good("a placeholder", _run("torchrun --standalone --nproc_per_node=NUM_GPUS")),
    good("a placeholder in documentation", {
        "README.md": "```bash\ntorchrun --nproc_per_node=${GPUS} train.py\nbash dist_train.sh conf/b.json\n```\n",
        "dist_train.sh": _DIST % "$GPUS", **_SCRIPT,
    }),
    good("nobody says it", {"dist_train.sh": _DIST % "$GPUS", **_SCRIPT}),
)  # fmt: skip

_NUMBERS = {
    "torchrun": ("--nproc_per_node", "--nnodes", "--node_rank", "--max_restarts"),
    "deepspeed": ("--num_gpus", "--num_nodes", "--node_rank"),
    "accelerate": ("--num_processes", "--num_machines", "--machine_rank"),
}
# A path, a list of numbers, a fraction, an option, nothing. Words may be placeholders or names of devices.
_NONE = re.compile(
    r"(?P<path>[\w.~-]*/[\w./~-]*|[\w-]+\.(?:pth?|py|ya?ml|json|ckpt|sh|txt))|(?P<list>\d+(?:,\d+)+),?"
    r"|(?P<fraction>\d+\.\d+)|(?P<option>--?[A-Za-z][\w-]*(?:=\S*)?)|(?P<nothing>)"
)
_HINTS = {
    "path": "Give the number of processes here; look at the order of the arguments",
    "list": "Give the number here, and the list in `CUDA_VISIBLE_DEVICES`",
    "fraction": "Give a whole number",
    "option": "Give the number before the option",
    "nothing": "Give the number, or a default: `${2:-8}`",
}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Values of options that are numbers to the launcher."""
    del context
    told: set[Location] = set()
    for command in started_by(doc):
        for name in _NUMBERS.get(command.launcher, ()) if not command.hides_options else ():
            flag = command.launcher_flag(name)
            kind = _kind(flag)
            if flag is None or not kind or (doc.in_docs and kind in ("nothing", "option")):
                continue
            place = _place(doc, command, flag)
            if place not in told:
                told.add(place)
                yield _finding(doc, command, flag, kind, place)


def _kind(flag: Flag | None) -> str:
    """What stands where the number belongs; empty for a number and for what nobody knows."""
    text = flag.value.text if flag is not None and flag.value is not None else None
    found = _NONE.fullmatch(text.strip()) if text is not None else None
    return (found.lastgroup or "nothing") if found is not None else ""


def _place(doc: LaunchDoc, command: LaunchCommand, flag: Flag) -> Location:
    """The word that is handed over, where a call in this text hands it over."""
    if not command.called_from:
        return flag.location
    origins = flag.value.origins if flag.value is not None else ()
    line = command.called_from[0].region.line
    here = [place for place in origins if place.path == doc.source.path and place.region.line == line]
    return here[-1] if here else place_in_text(command)


def _finding(doc: LaunchDoc, command: LaunchCommand, flag: Flag, kind: str, place: Location) -> Finding:
    text = flag.value.text if flag.value is not None else ""
    shown = f"`{text}`" if text else "nothing"
    return META.finding(
        place,
        f"`{flag.name}` of {command.launcher} is a number and gets {shown}: it stops before a process starts",
        hint=_HINTS[kind],
        related=(flag.location.labelled("the option, in the script that is called"),) if command.called_from else (),
        severity=Severity.WARNING if doc.in_docs else None,
        facts={"launcher": command.launcher, "option": flag.name, "kind": kind},
    )
