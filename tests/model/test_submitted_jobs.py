"""Jobs that Python files hand to a cluster, and the machines that YAML files give a command."""

from __future__ import annotations

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.launchers.counts import MACHINE_GPUS, MACHINE_NODES, MACHINE_SLOTS

_EXECUTOR = """\
import submitit
executor = submitit.AutoExecutor(folder="logs")
executor.update_parameters(%s)
%s
"""
_ESTIMATOR = """\
from sagemaker.pytorch import PyTorch
job = PyTorch(entry_point="train.py", role="r", instance_count=%s, instance_type="%s"%s)
job.fit()
"""


def commands(text: str, path: str = "launch.py", kind: str = "script") -> list[LaunchCommand]:
    return [command for doc in read_launch_docs(SourceFile(path, text), kind) for command in doc.commands]


def one(text: str) -> tuple[str, str, int | str, str | None]:
    (command,) = commands(text)
    script = command.script.text if command.script is not None else None
    return command.launcher, command.outer, shown(command.world_size), script


@pytest.mark.parametrize(
    ("told", "sent", "expected"),
    [
        ("nodes=2, tasks_per_node=4, gpus_per_node=4", "executor.submit(main, 1)", ("srun", "", 8, "launch.py")),
        ("slurm_nodes=1, slurm_ntasks_per_node=8", "executor.map_array(main, [1])", ("srun", "", 8, "launch.py")),
        (
            "nodes=2, tasks_per_node=1, gpus_per_node=8",
            'executor.submit(submitit.helpers.CommandFunction(["torchrun", "--nproc_per_node=8", "train.py"]))',
            ("torchrun", "srun", 8, "train.py"),
        ),
    ],
)
def test_an_executor_is_a_step_of_slurm(told: str, sent: str, expected: tuple[object, ...]) -> None:
    assert one(_EXECUTOR % (told, sent)) == expected


def test_numbers_that_the_program_computes_are_not_known() -> None:
    (command,) = commands(_EXECUTOR % ("nodes=args.nodes, tasks_per_node=8", "executor.submit(main)"))
    assert command.world_size.is_unknown


@pytest.mark.parametrize("sent", ["", "executor.submit()", "executor.update_parameters(nodes=1)\nexecutor.submit(f)"])
def test_what_is_not_submitted_is_no_job(sent: str) -> None:
    assert commands(_EXECUTOR % ("nodes=2, tasks_per_node=4", sent)) == []


@pytest.mark.parametrize(
    ("count", "instance", "more", "expected"),
    [
        (2, "ml.p4d.24xlarge", ', distribution={"torch_distributed": {"enabled": True}}', ("torchrun", 16)),
        (1, "ml.g5.12xlarge", ', distribution={"torch_distributed": {"enabled": True}}', ("torchrun", 4)),
        (2, "ml.p3.16xlarge", ', distribution={"pytorchddp": {"enabled": True}}', ("mpirun", 16)),
        (2, "ml.p3.16xlarge", ', distribution={"mpi": {"enabled": True, "processes_per_host": 4}}', ("mpirun", 8)),
    ],
)
def test_an_estimator_starts_its_launcher(
    count: int, instance: str, more: str, expected: tuple[str, int | str]
) -> None:
    launcher, _, world, script = one(_ESTIMATOR % (count, instance, more))
    assert (launcher, world, script) == (*expected, "train.py")


def test_an_estimator_without_distribution_starts_python_on_all_gpus_of_its_machine() -> None:
    text = _ESTIMATOR % (1, "ml.p4d.24xlarge", ', source_dir="src", hyperparameters={"lr": 1e-4, "name": "a b"}')
    (command,) = commands(text)
    assert command.launcher == "python"
    assert command.script is not None
    assert command.script.text == "src/train.py"
    assert [word.text for word in command.script_args] == ["--lr", "0.0001", "--name", "a b"]
    assert command.env[MACHINE_GPUS].get() == "8"


_JOB = """\
apiVersion: %s
kind: %s
spec:
%s
"""
_POD = "template: {spec: {containers: [{name: a, image: b, command: [%s]}]}}"
_TORCHRUN, _MPIRUN = '"torchrun", "--nnodes=2", "train.py"', '"mpirun", "-np", "16", "python", "train.py"'


@pytest.mark.parametrize(
    ("text", "fact", "number"),
    [
        (
            _JOB
            % (
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                f"  replicatedJobs:\n  - replicas: 2\n    template: {{spec: {{parallelism: 3, {_POD % _TORCHRUN}}}}}",
            ),
            MACHINE_NODES,
            "6",
        ),
        (
            _JOB % ("batch/v1", "Job", f"  completionMode: Indexed\n  parallelism: 4\n  {_POD % _TORCHRUN}"),
            MACHINE_NODES,
            "4",
        ),
        (_JOB % ("batch/v1", "Job", f"  parallelism: 4\n  {_POD % _TORCHRUN}"), MACHINE_NODES, None),
        (
            _JOB
            % (
                "kubeflow.org/v2beta1",
                "MPIJob",
                "  slotsPerWorker: 8\n  mpiReplicaSpecs:\n"
                f"    Launcher: {{replicas: 1, {_POD % _MPIRUN}}}\n    Worker: {{replicas: 2, template: {{}}}}",
            ),
            MACHINE_SLOTS,
            "16",
        ),
    ],
)
def test_a_resource_says_on_how_many_machines_a_command_starts(text: str, fact: str, number: str | None) -> None:
    (command,) = commands(text, "job.yaml", "yaml")
    found = command.env.get(fact)
    assert (found.get() if found is not None else None) == number
