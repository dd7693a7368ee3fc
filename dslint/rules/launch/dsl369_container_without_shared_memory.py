"""A container with GPUs runs several training processes with the shared memory that it has by default.

**What.** `docker run --gpus all IMAGE torchrun --nproc_per_node 8 train.py`, also through a script of the project, or a
service of a compose file with GPUs, and nobody says how much shared memory the container has: no `--shm-size`, no
`--ipc=host`, no volume at `/dev/shm`.

**Why it hurts.** Docker gives a container 64 MB of `/dev/shm`. Batches of `DataLoader` workers go through it, and so
does what NCCL hands from rank to rank where GPUs cannot reach each other directly. The run stops in the middle:
`DataLoader worker is killed by signal: Bus error`, or `NCCL WARN Call to posix_fallocate failed: No space left on
device`.

**Fix.** `docker run --ipc=host` or `--shm-size=16g`; `shm_size: 16gb` or `ipc: host` in a compose file.

**When it stays quiet.** One process; one GPU (`--gpus device=0`); a container without GPUs; options in a variable; a
file that speaks of shared memory anywhere. It is an information: data without workers on GPUs with NVLink may get along
with 64 MB, and the daemon may have another default.

**Evidence.** Docker's manual (`--shm-size`: 64 MB unless stated); "Troubleshooting" in the manual of NCCL, and the
README of PyTorch, which ask for more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import PER_NODE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_text

_LAUNCHERS = (*PER_NODE, "mpirun", "horovodrun")
META = RuleMeta(
    code="DSL369",
    name="container-without-shared-memory",
    kind="launch",
    severity=Severity.INFO,
    depends_on_run=True,
    summary="several processes in a container with GPUs and the 64 MB of shared memory that Docker gives by default",
    no_experiment="it takes a container, and the size of its shared memory is in the manual of Docker",
    references=(
        "https://docs.docker.com/reference/cli/docker/container/run/",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#docker",
        "https://github.com/NVIDIA/nccl/issues/290",
    ),
    needs=_LAUNCHERS,
)
_RUNS = re.compile(r"(?:^|[\s;&|(])(?:nvidia-docker|docker|podman)\s+(?:container\s+)?run\s(?P<words>.*)", re.S)
_GPUS = re.compile(r"--gpus[=\s]+[\"']*(?!\S*device=\w+[\"']*(?:\s|$))|--runtime[=\s]+[\"']?nvidia|nvidia-docker\s")
_SHARES = re.compile(r"shm|--ipc\b|\bipc:|hostIPC|medium:\s*Memory")
# `$ARGS`, `"${OPTIONS[@]}"` as a word of its own: any option may be in it.
_OPEN = re.compile(r"[\"']?\$(?:\{\w+[^}]*\}|\w+)[\"']?")
_IMAGE = re.compile(r"ima?ge?|tag|container|docker", re.I)
_SERVICE_GPUS = re.compile(r"^\s*runtime:\s*[\"']?nvidia|^\s*-?\s*capabilities:[^\n]*\bgpu\b|^\s*gpus:\s", re.M)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Launches of several processes in a container of which nobody says how much memory they share."""
    del context
    text = doc.source.text
    is_service = doc.source.path.endswith((".yml", ".yaml")) and re.search(r"^services:", text, re.M) is not None
    if is_service and (_SHARES.search(text) or not _SERVICE_GPUS.search(text)):
        return
    told: set[Location] = set()
    for command in (*doc.commands, *doc.called):
        place = place_in_text(command)
        if place in told or place.path != doc.source.path or not _is_many(command):
            continue
        if is_service or _is_without(_words_until(text, place.span.start, place.span.end)):
            told.add(place)
            yield _finding(command, place, is_service)


def _is_many(command: LaunchCommand) -> bool:
    """Return whether a command starts several processes on a machine."""
    if command.launcher not in _LAUNCHERS:
        return False
    return bool(command.processes_per_node.get_or(0) > 1 or command.world_size.get_or(0) > 1)


def _words_until(text: str, start: int, end: int) -> str:
    """Return a command from its first line: a script that is called stands behind the words of the container."""
    begin = text.rfind("\n", 0, start) + 1
    while begin > 1 and text[begin - 2] == "\\":
        begin = text.rfind("\n", 0, begin - 1) + 1
    return text[begin:end]


def _is_without(text: str) -> bool:
    """Return whether a command runs a container with GPUs, and certainly says nothing of shared memory."""
    found = _RUNS.search(text)
    if found is None or not _GPUS.search(text) or _SHARES.search(text):
        return False
    words = found["words"].replace("\\\n", " ").split()
    pairs = zip(["", *words], words, strict=False)
    return not any(
        _OPEN.fullmatch(word) and not _IMAGE.search(word) and not (before.startswith("-") and "=" not in before)
        for before, word in pairs
    )


def _finding(command: LaunchCommand, place: Location, is_service: bool) -> Finding:
    inside = (command.location.labelled("the processes, in the script that is called"),)
    hint = "Write `shm_size: 16gb` or `ipc: host`" if is_service else "Add `--ipc=host` or `--shm-size=16g`"
    return META.finding(
        place,
        "Docker gives this container only 64 MB of shared memory: workers and ranks may stop with a bus error",
        hint=hint,
        related=inside if command.called_from else (),
    )


_LAUNCH = "torchrun --nproc_per_node 8 train.py\n"
_RUN = "docker run %s -v $(pwd):/work image:1 " + _LAUNCH
_SCRIPT = {"train.py": "print()\n"}
_SERVICE = """\
services:
  train:
    image: image:1
    command: torchrun --nproc_per_node 8 train.py
%s    deploy:
      resources:
        reservations:
          devices:
            - capabilities: [gpu]
"""

EXAMPLES = (
    bad("all GPUs", {"run.sh": _RUN % "--rm --gpus all", **_SCRIPT}, "run.sh:1 info"),
    bad("the runtime", {"run.sh": "sudo " + _RUN % "--runtime=nvidia", **_SCRIPT}, "run.sh:1 info"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN % '--gpus all'}```\n", **_SCRIPT}, "README.md:2 info"),
    bad(
        "a script of the project",
        {
            "run.sh": "docker run --gpus=all -it $IMAGE bash start.sh /data\n",
            "start.sh": _LAUNCH.strip() + " $1\n",
            **_SCRIPT,
        },
        "run.sh:1 info",
    ),
    bad("a service", {"compose.yml": _SERVICE % "", **_SCRIPT}, "compose.yml:4 info"),
    good("shared with the machine", {"run.sh": _RUN % "--gpus all --ipc=host", **_SCRIPT}),
    good("enough", {"run.sh": _RUN % "--gpus all --shm-size 16g", **_SCRIPT}),
    good("a volume", {"run.sh": _RUN % "--gpus all -v /dev/shm:/dev/shm", **_SCRIPT}),
    good("options that are not known", {"run.sh": _RUN % "--gpus all $OPTIONS", **_SCRIPT}),
    good("one GPU", {"run.sh": (_RUN % "--gpus '\"device=0\"'").replace("8", "1"), **_SCRIPT}),
    good("no GPU", {"run.sh": _RUN % "--rm", **_SCRIPT}),
    good("one process", {"run.sh": "docker run --gpus all image python train.py\n", **_SCRIPT}),
    good("a service with enough", {"compose.yml": _SERVICE % "    shm_size: 16gb\n", **_SCRIPT}),
)
