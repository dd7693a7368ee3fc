"""A container with GPUs runs several training processes with the shared memory that it has by default.

**What.** `docker run --gpus all IMAGE torchrun --nproc_per_node 8 train.py`, also through a script of the project, or a
service of a compose file with GPUs, and nobody says how much shared memory the container has: no `--shm-size`, no
`--ipc=host`, no volume at `/dev/shm`. So does a Trainer of Lightning that starts several processes itself, and a
document that opens a shell in such a container (`docker run --gpus all -it IMAGE bash`) before it shows the command. It
is a warning where the loaders of the script have workers, and from eight processes on.

**Why it hurts.** Docker gives a container 64 MB of `/dev/shm`. Batches of `DataLoader` workers go through it, and so
does what NCCL hands from rank to rank where GPUs cannot reach each other directly. The run stops in the middle:
`DataLoader worker is killed by signal: Bus error`, or `NCCL WARN Call to posix_fallocate failed: No space left on
device`.

**Fix.** `docker run --ipc=host` or `--shm-size=16g`; `shm_size: 16gb` or `ipc: host` in a compose file.

**When it stays quiet.** One process; one GPU (`--gpus device=0`); a container without GPUs; options in a variable; a
command that says anything of shared memory, and a document that does so anywhere. Fewer processes without workers are
an information: they may get along with 64 MB. Pods of Kubernetes are DSL433.

**Evidence.** https://github.com/fal-ai-community/video-diffusion-speedrun/issues/2 and
https://github.com/pytorch/torchtitan/issues/853 (eight H100: `Error while creating shared memory segment`, 7 MB each),
https://github.com/NVIDIA/nccl/issues/290 (four processes). Docker's manual (`--shm-size`: 64 MB unless stated);
"Troubleshooting" in the manual of NCCL, and the README of PyTorch, which ask for more.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.model.plan.sharedmemory import sharing
from dslint.rules.base import RuleMeta, bad, good

# NCCL takes 7 to 10 MB for each of the processes of a machine, so that these fill 64 MB alone.
_FILLS_IT = 8
META = RuleMeta(
    code="DSL369",
    name="container-without-shared-memory",
    kind="plan",
    severity=Severity.INFO,
    depends_on_run=True,
    summary="several processes in a container with GPUs and the 64 MB of shared memory that Docker gives by default",
    no_experiment="it takes a container, and the size of its shared memory is in the manual of Docker",
    references=(
        "https://docs.docker.com/reference/cli/docker/container/run/",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#docker",
        "https://github.com/NVIDIA/nccl/issues/290",
    ),
    needs=("container",),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Runs of several processes in a container of which nobody says how much memory they share."""
    box = plan.container
    if box is None or box.is_pod or sharing(plan) < 2:
        return
    inside = (plan.command.location.labelled("the processes, in the script that is called"),)
    if plan.command.called_from and box.place.path == plan.command.location.path:
        inside = (next(iter(plan.command.called_from), box.place).labelled("what it is told to run"),)
    workers = tuple(place.labelled("the workers of each process") for place in box.workers.origins[:1])
    hint = "Write `shm_size: 16gb` or `ipc: host`" if box.is_service else "Add `--ipc=host` or `--shm-size=16g`"
    yield META.finding(
        box.place,
        "Docker gives this container only 64 MB of shared memory: workers and ranks may stop with a bus error",
        hint=hint,
        related=(*(inside if plan.command.called_from else ()), *workers),
        severity=Severity.WARNING if box.workers.is_known or sharing(plan) >= _FILLS_IT else None,
    )


_LAUNCH = "torchrun --nproc_per_node 8 train.py\n"
_RUN = "docker run %s -v $(pwd):/work image:1 " + _LAUNCH
_SCRIPT = {"train.py": "print()\n"}
_OPENS = """\
# Train

```bash
docker build -t image:1 .
docker run --gpus all %s -it image:1 /bin/bash
```

Inside of the container:

```bash
torchrun --nproc_per_node 8 train.py
```
"""
_LOADER = """\
from torch.utils.data import DataLoader

from data import made


def main():
    for batch in DataLoader(made(), batch_size=16, %s):
        print(batch)


main()
"""
_FIT = """\
import argparse

import lightning as L
from torch.utils.data import DataLoader

from model import Net, samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--workers", type=int, default=8)
    args = parser.parse_args()
    loader = DataLoader(samples(), batch_size=64, shuffle=True, num_workers=args.workers)
    trainer = L.Trainer(accelerator="gpu", devices=args.devices, strategy="ddp", max_epochs=3)
    trainer.fit(Net(), loader)


if __name__ == "__main__":
    main()
"""
_WRAPPER = """\
#!/usr/bin/env bash
GPUS=(--gpus all)
docker run --rm "${GPUS[@]}" %s\\
    --user "$(id -u):$(id -g)" -v "$PWD:/work" -w /work \\
    "${IMAGE:-team/train:1}" %s
"""
_FOLDERS = """\
#!/bin/bash
DATA=$(realpath "$1")
shift 2
docker run --rm --gpus all -v $DATA:/data team/train:1 "$@"
"""
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

_IMAGE = 'FROM pytorch/pytorch:2.7.1\nCOPY . /work\nWORKDIR /work\nENTRYPOINT ["torchrun", "--standalone"]\n'
_BUILT = {
    "run.sh": 'IMAGE=lm:latest\ndocker build -t "$IMAGE" .\n'
    'docker run --rm --gpus all%s "$IMAGE" --nproc_per_node=8 train.py\n',
    "Dockerfile": _IMAGE,
    **_SCRIPT,
}
_NAMED = {"run.sh": "podman build --file docker/gpu.Dockerfile --tag lm .\n"
                    "sudo podman run --gpus=all%s lm --nproc_per_node 8 train.py --lr 3e-4\n",
          "docker/gpu.Dockerfile": _IMAGE, **_SCRIPT}  # fmt: skip
_NOT_BUILT = {
    "run.sh": "docker run --gpus all%s team/lm:3 --nproc_per_node=8 train.py\n",
    "Dockerfile": _IMAGE,
    **_SCRIPT,
}


def _run(project: dict[str, str], words: str = "") -> dict[str, str]:
    return {**project, "run.sh": project["run.sh"] % words}


EXAMPLES = (
    bad("the entry point of an image that the text builds", _run(_BUILT), "run.sh:3 warning"),
    bad("the entry point of a file by its name", _run(_NAMED), "run.sh:2 warning"),
    bad("the entry point of the one image of the project", _run(_NOT_BUILT), "run.sh:1 warning"),
    good("an entry point with enough", _run(_BUILT, " --shm-size=16g")),
    good("another entry point", _run(_BUILT, " --entrypoint bash")),
    bad("all GPUs", {"run.sh": _RUN % "--rm --gpus all", **_SCRIPT}, "run.sh:1 warning"),
    bad("the runtime", {"run.sh": "sudo " + _RUN % "--runtime=nvidia", **_SCRIPT}, "run.sh:1 warning"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN % '--gpus all'}```\n", **_SCRIPT}, "README.md:2 warning"),
    bad(
        "a script of the project",
        {
            "run.sh": "docker run --gpus=all -it $IMAGE bash start.sh /data\n",
            "start.sh": _LAUNCH.strip() + " $1\n",
            **_SCRIPT,
        },
        "run.sh:1 warning",
    ),
    bad("a script around any command", {
        "docker/run": _WRAPPER % ("", '"${@:-/bin/bash}"'), "Makefile": "train:\n\tdocker/run " + _LAUNCH, **_SCRIPT,
    }, "docker/run:3 warning"),
    bad("such a script by its ending", {
        "in_docker.sh": _WRAPPER % ("", '"$@"'), "train.sh": "./in_docker.sh " + _LAUNCH, **_SCRIPT,
    }, "in_docker.sh:3 warning"),
    bad("such a script that runs a shell", {
        "in_docker.sh": _WRAPPER % ("", 'bash -c "$*"'), "train.sh": "bash in_docker.sh " + _LAUNCH, **_SCRIPT,
    }, "in_docker.sh:3 warning"),
    bad("such a script that takes folders first", {
        "docker/run": _FOLDERS, "train.sh": "docker/run /mnt/data out " + _LAUNCH, **_SCRIPT,
    }, "docker/run:4 warning"),
    good("such a script with enough", {
        "docker/run": _WRAPPER % ("--ipc=host ", '"$@"'), "Makefile": "train:\n\tdocker/run " + _LAUNCH, **_SCRIPT,
    }),
    good("such a script with options of its own", {
        "docker/run": _WRAPPER % ("$OPTIONS ", '"$@"'), "Makefile": "train:\n\tdocker/run " + _LAUNCH, **_SCRIPT,
    }),
    bad("a service", {"compose.yml": _SERVICE % "", **_SCRIPT}, "compose.yml:4 warning"),
    bad("four processes", {"run.sh": _RUN.replace("8", "4") % "--gpus all", **_SCRIPT}, "run.sh:1 info"),
    bad("a shell that a document opens", {"README.md": _OPENS % "--rm", **_SCRIPT}, "README.md:5 warning"),
    good("a shell with enough", {"README.md": _OPENS % "--rm --ipc=host", **_SCRIPT}),
    good("the document speaks of it", {"README.md": _OPENS % "--rm" + "\nRaise `--shm-size` if needed.\n", **_SCRIPT}),
    good("another container", {
        "README.md": (_OPENS % "--rm").replace("/bin/bash", "python eval.py"), **_SCRIPT,
    }),
    bad("loaders with workers", {
        "run.sh": _RUN % "--gpus all", "train.py": _LOADER % "num_workers=8",
    }, "run.sh:1 warning"),
    bad("workers by an option of the documented command", {
        "README.md": "```bash\ndocker run --rm --gpus all \\\n  -v $PWD/out:/out \\\n  image:1 \\\n"
        "  python fit.py --devices 8 --workers 4\n```\n",
        "fit.py": _FIT,
    }, "README.md:2 warning"),
    bad("workers of the Trainer", {
        "run.sh": "docker run --gpus all image:1 torchrun --nproc_per_node 8 train.py --dataloader_num_workers 4\n",
        **_SCRIPT,
    }, "run.sh:1 warning"),
    good("a documented command with enough", {
        "README.md": "```bash\ndocker run --gpus all --ipc=host image:1 python fit.py --devices 8 --workers 4\n```\n",
        "fit.py": _FIT,
    }),
    good("one device", {
        "README.md": "```bash\ndocker run --rm --gpus all image:1 python fit.py --devices 1 --workers 4\n```\n",
        "fit.py": _FIT,
    }),
    good("shared with the machine", {"run.sh": _RUN % "--gpus all --ipc=host", **_SCRIPT}),
    good("enough", {"run.sh": _RUN % "--gpus all --shm-size 16g", **_SCRIPT}),
    good("a volume", {"run.sh": _RUN % "--gpus all -v /dev/shm:/dev/shm", **_SCRIPT}),
    good("options that are not known", {"run.sh": _RUN % "--gpus all $OPTIONS", **_SCRIPT}),
    good("one GPU", {"run.sh": (_RUN % "--gpus '\"device=0\"'").replace("8", "1"), **_SCRIPT}),
    good("no GPU", {"run.sh": _RUN % "--rm", **_SCRIPT}),
    good("one process", {"run.sh": "docker run --gpus all image python train.py\n", **_SCRIPT}),
    good("a service with enough", {"compose.yml": _SERVICE % "    shm_size: 16gb\n", **_SCRIPT}),
)  # fmt: skip
