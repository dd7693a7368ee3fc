"""**What.** A job of Kubernetes or SkyPilot starts another number of machines than its command is told of: a JobSet
with `parallelism: 2` and `torchrun --nnodes=4`, a PyTorchJob of four pods and `--nnodes=8`, an MPIJob with two workers
of eight slots and `mpirun -np 32`, or of one slot (`slotsPerWorker: 1`) and two GPUs, a task with `num_nodes: 2` and
`torchrun` without `--nnodes`. Or the pods get `WORLD_SIZE`, and the script that they run looks for `${NNODES:-1}`.

**Why it hurts.** With too few machines every agent waits in the rendezvous until it times out; `mpirun` says that
there are not enough slots; a worker with fewer slots than GPUs leaves the others idle. With too many the rest is left
over, or each machine trains alone on all of the data.

**Fix.** Take the number from the job: `--nnodes=$PET_NNODES`, `$SKYPILOT_NUM_NODES`, or write both alike.

**When it stays quiet.** When one of the numbers is not known, for elastic jobs, when the command is under a condition,
and for jobs of Kubernetes whose command names no number, unless the manifest tells its pods of each other
(`MASTER_ADDR`, `WORLD_SIZE`): they may be separate runs.

**Evidence.** The documentation of JobSet, of Indexed Jobs, of the training operator and of SkyPilot. torch 2.13, run:
an agent whose partner is missing waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.launchers.base import env_count
from dslint.model.launch.launchers.counts import MACHINE_NODES, MACHINE_SLOTS, WORKER_GPUS, WORKER_SLOTS
from dslint.model.launch.severalpods import fallbacks, speaks_of_others
from dslint.model.launch.slurmjob import PER_NODE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by

META = RuleMeta(
    code="DSL373",
    name="pods-vs-command",
    kind="launch",
    severity=Severity.WARNING,
    summary="A job starts another number of machines than its command is told of",
    depends_on_run=True,
    references=(
        "https://kubernetes.io/docs/concepts/workloads/controllers/job/",
        "https://docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html",
        "https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/mpi/",
    ),
    no_experiment="it takes a cluster; what a missing node does is DSL311's experiment",
    needs=("MACHINE_NODES", "MACHINE_SLOTS", "MACHINE_WORKER_SLOTS"),
)

_SCRIPT = {"train.py": "print()\n"}
_TEXT = "torchrun --nnodes=%s --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=train-0.train:29500 train.py"
_CONTAINER = """\
containers:
  - name: main
    image: team/train:1
    command: [%s]
"""


def _pod(words: str, by: int) -> str:
    quoted = ", ".join(f'"{word}"' for word in words.split())
    return "".join(" " * by + line + "\n" for line in (_CONTAINER % quoted).splitlines())


def _jobset(nodes: int, pods: int) -> dict[str, str]:
    head = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: train\nspec:\n  replicatedJobs:\n"
        f"    - name: workers\n      replicas: 1\n      template:\n        spec:\n          parallelism: {pods}\n"
        "          template:\n            spec:\n"
    )
    return {"job.yaml": head + _pod(_TEXT % nodes, 14), **_SCRIPT}


def _indexed(nodes: int, pods: int) -> dict[str, str]:
    head = (
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\nspec:\n  completionMode: Indexed\n"
        f"  parallelism: {pods}\n  template:\n    spec:\n"
    )
    return {"job.yaml": head + _pod(_TEXT % nodes, 6), **_SCRIPT}


_FILLED_IN = " --node_rank=$(RANK) --master_addr=$(MASTER_ADDR) --master_port=$(MASTER_PORT)"


def _pytorch(nodes: int, workers: int, more: str = "") -> dict[str, str]:
    replica = "    %s:\n      replicas: %s\n      template:\n        spec:\n"
    head = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: train\nspec:\n  pytorchReplicaSpecs:\n"
    text = f"torchrun --nnodes={nodes} --nproc_per_node=8{more} train.py"
    pods = [replica % (name, count) + _pod(text, 10) for name, count in (("Master", 1), ("Worker", workers))]
    return {"job.yaml": head + "".join(pods), **_SCRIPT}


def _mpi(processes: int) -> dict[str, str]:
    replica = "    %s:\n      replicas: %s\n      template:\n        spec:\n"
    head = (
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: train\nspec:\n  slotsPerWorker: 8\n"
        "  mpiReplicaSpecs:\n"
    )
    pods = replica % ("Launcher", 1) + _pod(f"mpirun -np {processes} python train.py", 10)
    return {"job.yaml": head + pods + replica % ("Worker", 2) + _pod("sleep 1", 10), **_SCRIPT}


def _slots(words: str, slots: int, gpus: int) -> dict[str, str]:
    replica = "    %s:\n      replicas: %s\n      template:\n        spec:\n"
    head = (
        f"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: train\nspec:\n  slotsPerWorker: {slots}\n"
        "  mpiReplicaSpecs:\n"
    )
    limits = "              resources:\n                limits:\n                  nvidia.com/gpu: "
    worker = f"{_pod('sleep 1', 10)}{limits}{gpus}\n"
    return {
        "job.yaml": head + replica % ("Launcher", 1) + _pod(words, 10) + replica % ("Worker", 2) + worker,
        **_SCRIPT,
    }


def _sky(run: str, nodes: int = 2) -> dict[str, str]:
    return {"task.yaml": f"resources:\n  accelerators: A100:8\nnum_nodes: {nodes}\nrun: |\n  {run}\n", **_SCRIPT}


def _named(script: str, env: str = "MASTER_ADDR, value: train-0.train", mode: str = "Indexed") -> dict[str, str]:
    text = (
        f"apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\nspec:\n  completionMode: {mode}\n"
        "  completions: 4\n  parallelism: 4\n  template:\n    spec:\n      subdomain: train\n      containers:\n"
        '        - name: main\n          image: team/train:1\n          command: ["bash", "start.sh"]\n'
        f"          env:\n            - {{name: {env}}}\n            - {{name: PODS, value: '4'}}\n"
    )
    return {"job.yaml": text, "start.sh": script, **_SCRIPT}


def _volcano(script: str) -> dict[str, str]:
    head = (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  name: train\nspec:\n"
        "  plugins: {svc: [], env: []}\n  tasks:\n    - name: worker\n      replicas: 2\n"
        "      template:\n        spec:\n"
    )
    limits = "              resources: {limits: {nvidia.com/gpu: 8}}\n"
    return {"job.yaml": head + _pod("bash start.sh", 10) + limits, "start.sh": script, **_SCRIPT}


_CHOOSES = """\
NNODES=${NNODES:-1}
ARGS=(--standalone)
if [ "$NNODES" -gt 1 ]; then
  ARGS=(--nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port 29500)
fi
torchrun "${ARGS[@]}" --nproc_per_node 8 train.py
"""
_TOLD = "torchrun --nnodes ${%s:-1} --node_rank ${%s:-0} --master_addr $MASTER_ADDR --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("a script that looks for another name", _named(_TOLD % ("NNODES", "NODE_RANK")), "job.yaml:15"),
    bad("a script that chooses by another name", _named(_CHOOSES), "job.yaml:15"),
    bad("the number of ranks as the name", _named(_CHOOSES, "WORLD_SIZE, value: '4'"), "job.yaml:15"),
    bad("a default that is assigned", _named(
        ': "${NODES:=1}"\n' + _TOLD.replace("${%s:-1}", "$NODES") % "JOB_COMPLETION_INDEX"
    ), "job.yaml:15"),
    bad("a script of torchrun alone", _named("torchrun --nproc_per_node 8 train.py\n"), "job.yaml:15"),
    bad("a job of Volcano", _volcano(_TOLD % ("NNODES", "VC_TASK_INDEX")), "job.yaml:15"),
    good("the name that the job sets", _named(_TOLD % ("PODS", "JOB_COMPLETION_INDEX"))),
    good("separate runs", _named("torchrun --nproc_per_node 8 train.py\n", "DATA, value: /data")),
    good("separate runs at their loopback", _named(_CHOOSES, "MASTER_ADDR, value: localhost")),
    good("pods without numbers", _named(_CHOOSES, mode="NonIndexed")),
    good("variables from elsewhere", {
        **(files := _named(_CHOOSES)),
        "job.yaml": files["job.yaml"] + "          envFrom: [{configMapRef: {name: nodes}}]\n",
    }),
    good("the tasks of Volcano", _volcano(_TOLD.replace("${%s:-1}", "2") % "VC_TASK_INDEX"), select="DSL373"),
    bad("a JobSet", _jobset(4, 2), "job.yaml:17"),
    bad("an Indexed Job", _indexed(2, 1), "job.yaml:13"),
    bad("a PyTorchJob", _pytorch(8, 3), ("job.yaml:14", "job.yaml:22")),
    bad("words that Kubernetes fills in", _pytorch(8, 3, _FILLED_IN), ("job.yaml:14", "job.yaml:22")),
    bad("an MPIJob", _mpi(32), "job.yaml:15"),
    bad("a slot for two GPUs", _slots("mpirun python train.py", 1, 2), "job.yaml:15"),
    bad("as many as there are slots", _slots("mpirun -np 4 -bind-to none python train.py", 2, 4), "job.yaml:15"),
    bad("more slots than GPUs", _slots("mpirun --allow-run-as-root python train.py", 4, 2), "job.yaml:15"),
    good("a slot for each GPU", _slots("mpirun python train.py", 2, 2)),
    good("one torchrun on each worker", _slots("mpirun -np 2 torchrun --nproc_per_node=2 train.py", 1, 2)),
    good("so many on each node", _slots("mpirun -npernode 2 python train.py", 1, 2)),
    bad("SkyPilot", _sky((_TEXT % 4).replace("train-0.train", "$HEAD")), "task.yaml:5"),
    bad("each machine alone", _sky("torchrun --nproc_per_node=8 train.py"), "task.yaml:5"),
    good("as many", _jobset(2, 2)),
    good("pods of a PyTorchJob", _pytorch(4, 3)),
    good("as many, and words that are filled in", _pytorch(4, 3, _FILLED_IN)),
    good("room for all", _mpi(16)),
    good("the variable of SkyPilot", _sky((_TEXT % "$SKYPILOT_NUM_NODES").replace("train-0.train", "$HEAD"))),
    good("one machine", _sky("torchrun --nproc_per_node=8 train.py", 1)),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Numbers of machines beside each other."""
    del context
    for command in started_by(doc):
        if command.conditions or command.hides_options:
            continue
        if command.launcher == "mpirun" and MACHINE_SLOTS in command.env:
            slots, told = env_count(command.env, MACHINE_SLOTS), command.world_size
            if slots.is_known and told.is_known and told.get() > slots.get():
                message = f"`mpirun` starts {told.get()} processes, and the workers have {slots.get()} slots"
                yield _finding(doc, command, message, slots)
            else:
                yield from _workers(doc, command, slots)
        elif command.launcher in PER_NODE and MACHINE_NODES in command.env and not command.outer:
            yield from _nodes(doc, command, env_count(command.env, MACHINE_NODES))


def _workers(doc: LaunchDoc, command: LaunchCommand, total: Fact[int]) -> Iterator[Finding]:
    """The slots of a worker beside its GPUs, where the slots alone say how many processes it gets."""
    slots, gpus = env_count(command.env, WORKER_SLOTS), env_count(command.env, WORKER_GPUS)
    if not slots.is_known or not gpus.is_known or slots.get() == gpus.get() or command.script is None:
        return
    told = command.launcher_flag("-np", "-n", "-c", "--n", "--np")
    is_mapped = command.launcher_flag(*_PER_NODE) is not None or _maps_nodes(command)
    if is_mapped or (told is not None and command.world_size.get_or(-1) != total.get_or(0)):
        return
    idle, each = gpus.get() - slots.get(), counted(gpus.get(), "GPU")
    effect = f"{idle} of them stay{'s' if idle == 1 else ''} idle" if idle > 0 else "the last ones have no device"
    message = f"`mpirun` starts {counted(slots.get(), 'process')} on each worker with {each}: {effect}"
    yield META.finding(
        place_in_text(command),
        message,
        hint="Set `slotsPerWorker` to the GPUs of a worker",
        related=(*slots.origins, *gpus.origins),
        severity=Severity.INFO if doc.in_docs else None,
    )


_PER_NODE = ("-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost", "--perhost", "--hostfile", "-hostfile", "-H")


def _maps_nodes(command: LaunchCommand) -> bool:
    """Processes are mapped by another thing than slots."""
    flag = command.launcher_flag("--map_by", "-map_by")
    word = flag.value.text if flag is not None and flag.value is not None else "slot" if flag is None else None
    return word is None or not word.startswith("slot")


def _nodes(doc: LaunchDoc, command: LaunchCommand, pods: Fact[int]) -> Iterator[Finding]:
    flag = command.launcher_flag("--nnodes", "--num_machines", "--num_nodes")
    if not pods.is_known or not command.nodes.is_known or command.nodes.get() == pods.get():
        return
    told = command.nodes.get()
    if flag is not None:
        noun = counted(pods.get(), "machine")
        waits = ": they wait for the rest" if told > pods.get() else ""
        yield _finding(doc, command, f"`{flag.name} {told}` in a job of {noun}{waits}", pods, *fallbacks(command))
    elif doc.source.path.endswith((".yaml", ".yml")) and command.launcher == "torchrun" and _is_skypilot(pods):
        message = f"each of the {pods.get()} machines of the task trains alone: the command names no number of nodes"
        yield _finding(doc, command, message, pods)
    elif told == 1 and (speaks := speaks_of_others(doc, command)) is not None:
        message = f"each of the {pods.get()} pods trains alone: `{command.launcher}` starts one node, whatever"
        message += f" `{speaks[0]}` says"
        yield _finding(doc, command, message, pods, speaks[1], *fallbacks(command))


def _is_skypilot(pods: Fact[int]) -> bool:
    return any(place.label.startswith("num_nodes") for place in pods.origins)


def _finding(doc: LaunchDoc, command: LaunchCommand, message: str, other: Fact[int], *more: Location) -> Finding:
    return META.finding(
        place_in_text(command),
        message,
        hint="Take the number from the job: from the variables that it sets, or write it in both places",
        related=(*more, *other.origins, *place_in_script(command)),
        severity=Severity.INFO if doc.in_docs else None,
    )
