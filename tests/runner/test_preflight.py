"""What is unknown to a reader of files is known to a command that is about to start: environment, folder, versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import dslint
from dslint.engine.installed import installed_versions, interpreter_of
from dslint.engine.preflight import Checked, Preflight
from dslint.model.plan.runplan import RunPlan
from dslint.settings import make_settings

TRAIN = "import torch\nprint(torch.cuda.is_available())\n"
PATH = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/home/me"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(folder)
    return folder


def checked(*argv: str, env: Mapping[str, str] | None = None, **facts: object) -> Checked:
    settings = make_settings({"cache": False, **facts})
    return Preflight(argv, {**PATH, **(env or {})}, settings, ()).check(scripts=True)


def plan_of(*argv: str, env: Mapping[str, str] | None = None, **facts: object) -> RunPlan:
    (plan,) = checked(*argv, env=env, **facts).planned.plans
    return plan


def codes(found: Checked) -> list[str]:
    return [f"{finding.location.path} {finding.code}" for finding in found.result.findings]


def script(text: str, name: str = "run.sh") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


# The environment


@pytest.mark.parametrize(
    ("text", "env", "world", "places"),
    [
        ("torchrun --nproc_per_node $NPROC train.py", {"NPROC": "4"}, 4, "4 (run.sh:1, $NPROC)"),
        ("torchrun --nproc_per_node ${NPROC:-8} train.py", {}, 8, "8 (run.sh:1)"),
        ("torchrun --nproc_per_node ${NPROC:-8} train.py", {"NPROC": "2"}, 2, "2 (run.sh:1, $NPROC)"),
        ("N=${NPROC:=2}\ntorchrun --nproc_per_node $N train.py", {}, 2, "2 (run.sh:2, run.sh:1)"),
        ("torchrun --nproc_per_node 2$EMPTY train.py", {}, 2, "2 (run.sh:1)"),
        ("torchrun --nproc_per_node 2 $EXTRA train.py", {}, 2, "2 (run.sh:1)"),
        ("torchrun --nproc_per_node ${BIG:+8}${BIG-2} train.py", {}, 2, "2 (run.sh:1)"),
        ("torchrun --nproc_per_node ${BIG:+8} train.py", {"BIG": "1"}, 8, "8 (run.sh:1, $BIG)"),
        ("if [ -n \"$BIG\" ]; then N=8; else N=2; fi\ntorchrun --nproc_per_node $N train.py", {}, 2, None),
        ("if [ -n \"$BIG\" ]; then N=8; else N=2; fi\ntorchrun --nproc_per_node $N train.py", {"BIG": "1"}, 8, None),
        ("[ -z $BIG ] && N=2 || N=8\ntorchrun --nproc_per_node $N train.py", {}, 2, None),
        ("if [[ -v BIG ]]; then N=8; else N=2; fi\ntorchrun --nproc_per_node $N train.py", {}, 2, None),
        ("if [[ $BIG == y ]]; then N=8; else N=2; fi\ntorchrun --nproc_per_node $N train.py", {"BIG": "y"}, 8, None),
        ("PET_NPROC_PER_NODE=$N torchrun train.py", {"N": "3"}, 3, None),
        ("torchrun train.py", {"PET_NPROC_PER_NODE": "3"}, 3, None),
        ("deepspeed train.py", {"CUDA_VISIBLE_DEVICES": "0,3"}, 2, "2 ($CUDA_VISIBLE_DEVICES)"),
    ],
)  # fmt: skip
def test_variables_are_those_of_the_environment(text: str, env: dict[str, str], world: int, places: str | None) -> None:
    plan = plan_of("bash", script(text), env=env)
    assert plan.world_size.get() == world
    assert not plan.command.conditions
    assert places is None or plan.processes_per_node.at() == places


def test_a_variable_that_nobody_sets_is_unknown_where_more_may_be_set() -> None:
    plan = plan_of("bash", script("source /nowhere/env.sh\ntorchrun --nproc_per_node ${N:-8} train.py"))
    assert plan.processes_per_node.is_unknown


def test_a_file_that_a_script_sources_is_read_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export N=6\n")
    text = f"source {tmp_path}/env.sh\ntorchrun --nproc_per_node $N train.py"
    assert plan_of("bash", script(text)).world_size.get() == 6
    text = "source ~/env.sh\ntorchrun --nproc_per_node $N train.py"
    assert plan_of("bash", script(text), env={"HOME": str(tmp_path)}).world_size.get() == 6


def test_arguments_of_a_script_are_those_of_the_command() -> None:
    text = 'N=$1\nshift\ntorchrun --nproc_per_node $N train.py "$@"'
    plan = plan_of("bash", script(text), "4", "--lr", "a b")
    assert plan.world_size.get() == 4
    assert [word.text for word in plan.command.script_args] == ["--lr", "a b"]
    assert not plan.command.hides_words


def test_scripts_of_scripts_are_followed_with_what_they_get() -> None:
    script("torchrun --nproc_per_node $N train.py --seed $1", "inner/launch.sh")
    for call in ("N=3 bash inner/launch.sh 5", "export N=3\nbash inner/launch.sh 5", "N=3 ./inner/launch.sh 5"):
        Path("inner/launch.sh").write_text("#!/bin/bash\n" + "torchrun --nproc_per_node $N train.py --seed $1\n")
        found = checked("bash", script(call))
        (plan,) = found.planned.plans
        assert (plan.world_size.get(), plan.command.location.path) == (3, "inner/launch.sh"), call
        assert plan.command.script_args[-1].text == "5"


def test_a_script_without_suffix_is_known_by_its_first_line() -> None:
    script("#!/usr/bin/env bash\ntorchrun --nproc_per_node 2 train.py\n", "go")
    assert plan_of("./go").world_size.get() == 2


def test_only_the_branch_that_runs_is_judged() -> None:
    text = "case $1 in\n  bad) torchrun --master_port 70000 train.py ;;\n  *) torchrun train.py ;;\nesac\n"
    name = script(text)
    assert codes(checked("bash", name, "good")) == []
    assert codes(checked("bash", name, "bad")) == ["run.sh DSL309"]


def test_what_the_shell_did_with_its_words_is_not_done_again() -> None:
    plan = plan_of("torchrun", "--nproc_per_node", "2", "train.py", "$HOME", "*", "a b", "it's", "`x`", "~")
    assert [word.text for word in plan.command.script_args] == ["$HOME", "*", "a b", "it's", "`x`", "~"]


@pytest.mark.parametrize("first", ["time", "for", "cd", "export", "N=2"])
def test_a_program_that_is_called_like_a_word_of_the_shell_is_a_program(first: str) -> None:
    assert not Preflight((first, "torchrun", "train.py"), PATH, make_settings({}), ()).is_launch or first == "time"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("NCCL_SOCKET_IFNAM", "eth0", "DSL335"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "DSL336"),
        ("CUDA_LAUNCH_BLOCKING", "1", "DSL338"),
        ("NCCL_SOCKET_IFNAME", "eth0", ""),
    ],
)
def test_a_variable_of_the_environment_is_judged_as_one_of_a_script(name: str, value: str, code: str) -> None:
    env = {name: value, "PATH": "/usr/bin:/bin"}
    Path("requirements.txt").write_text("torch==2.6.0\n")
    words = ("torchrun", "--nproc_per_node", "2", "train.py")
    assert codes(checked(*words, env=env)) == ([f"<${name}> {code}"] if code else [])
    # What the command does not find in its environment concerns nobody.
    for front in (("env", "-u", name), ("env", f"--unset={name}"), ("env", "-i", "PATH=/usr/bin:/bin")):
        assert codes(checked(*front, *words, env=env)) == []
    assert codes(checked("docker", "run", "image", *words, env=env)) == []


# Folders and files


def test_paths_lead_from_the_working_directory_only() -> None:
    script("torchrun train.py --deepspeed ds.json", "jobs/run.sh")
    Path("jobs/train.py").write_text(TRAIN)
    Path("train.py").unlink()
    assert plan_of("bash", "jobs/run.sh").script is None
    script("cd $(dirname $0)\ntorchrun train.py", "jobs/run.sh")
    assert plan_of("bash", "jobs/run.sh").script == "jobs/train.py"


def test_a_config_that_is_not_there_is_not_there(tmp_path: Path) -> None:
    Path("train.py").write_text(
        "import deepspeed\nimport argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--local_rank', type=int)\ndeepspeed.add_config_arguments(p)\n"
    )
    for path in ("ds.json", f"{tmp_path}/none/ds.json"):
        found = checked("torchrun", "train.py", "--deepspeed", "--deepspeed_config", path)
        assert codes(found) == ["<command line> DSL443"], path
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {}}')
    found = checked("torchrun", "train.py", "--deepspeed", "--deepspeed_config", f"{tmp_path}/ds.json")
    assert f"{tmp_path}/ds.json DSL101" in codes(found)


@pytest.mark.parametrize(
    ("hosts", "world"), [("a slots=2\nb slots=2\n", 4), ("a slots=8\n", 8), ("a slots=2\nb slots=6\n", 8)]
)
def test_the_hostfile_counts(hosts: str, world: int, tmp_path: Path) -> None:
    for path in (Path("hosts"), tmp_path / "hosts"):
        path.write_text(hosts)
        assert plan_of("deepspeed", "--hostfile", str(path), "train.py").world_size.get() == world


def test_of_the_folder_only_what_the_command_uses_is_judged() -> None:
    script("torchrun --master_port 70000 other.py", "other.sh")
    Path("ds_other.json").write_text('{"train_batch_size": 1, "zero_optimisation": {}}')
    assert codes(checked("torchrun", "train.py")) == []


def test_a_test_of_a_file_that_is_there_is_decided() -> None:
    Path("local.sh").write_text("N=4\n")
    text = "N=1\nif [ -f local.sh ]; then source local.sh; fi\n[[ -d .git ]] && M=2\n"
    plan = plan_of("bash", script(text + "torchrun --nnodes $M --nproc_per_node $N train.py"))
    assert (plan.world_size.get(), plan.command.conditions) == (8, ())
    text = "N=1\n[ -e nowhere ] && N=2\ntorchrun --nproc_per_node $N train.py"
    assert len(checked("bash", script(text)).planned.plans) == 2


def test_words_that_become_nothing_are_no_commands() -> None:
    assert plan_of("bash", script("$EMPTY\n$EMPTY $NONE\n$EMPTY torchrun train.py")).world_size.get() == 1


def test_an_option_whose_value_is_empty_takes_no_other_option_for_it() -> None:
    text = "torchrun --nnodes 2 --nproc_per_node 8 --node_rank $1 --master_addr 10.0.0.1 --master_port 29511 train.py"
    command = plan_of("bash", script(text)).command
    assert command.launcher_flag("--master_addr") is not None


def test_a_script_of_python_is_started_by_its_first_line() -> None:
    Path("train.py").write_text(f"#!/usr/bin/env python3\n{TRAIN}")
    plan = plan_of("./train.py", "--lr", "1")
    assert (plan.script, plan.command.launcher, plan.command.words[0].text) == ("train.py", "python", "python3")


@pytest.mark.parametrize("front", ["", "--check-only --fail-on error", "-q --time-limit 3 --world-size 8"])
def test_a_launch_behind_dslint_run_is_a_launch(front: str) -> None:
    text = f"dslint run {front} -- srun -n 2 python train.py\n"
    assert plan_of("bash", script(text)).world_size.get() == 2
    found = dslint.check(script(f"dslint run {front} -- torchrun --master_port 70000 train.py\n"))
    assert [finding.code for finding in found.findings] == ["DSL309"]


def test_the_hostfile_that_deepspeed_looks_for_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert plan_of("deepspeed", "--num_gpus", "2", "train.py").world_size.get() == 2
    (tmp_path / "hostfile").write_text("a slots=8\nb slots=8\n")
    monkeypatch.setattr("dslint.model.plan.hostfile._DEFAULT", f"{tmp_path}/hostfile")
    assert plan_of("deepspeed", "train.py").world_size.get() == 16
    assert plan_of("deepspeed", "--num_gpus", "2", "train.py").world_size.get() == 4


def test_the_gpus_of_this_machine_are_those_of_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    monkeypatch.setattr("dslint.model.launch.started._DRIVER", f"{tmp_path}/gpus")
    assert plan_of("deepspeed", "train.py").world_size.at() == "3 (this machine)"
    assert plan_of("torchrun", "--nproc_per_node", "gpu", "train.py").world_size.get() == 3
    assert plan_of("deepspeed", "train.py", env={"CUDA_VISIBLE_DEVICES": "1"}).world_size.get() == 1
    assert plan_of("sbatch", script("#!/bin/bash\n#SBATCH -N 1\ndeepspeed train.py\n")).world_size.is_unknown
    assert plan_of("docker", "run", "image", "deepspeed", "train.py").world_size.is_unknown


# Slurm


def test_a_job_of_slurm_says_how_many_nodes_and_tasks_there_are() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    text = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --node_rank $SLURM_NODEID train.py"
    plan = plan_of("bash", "-c", text.replace("$SLURM_NODEID", "0"), env=job)
    assert plan.world_size.get() == 32
    plan = plan_of("srun", "python", "train.py", env={**job, "SLURM_NTASKS": "32"})
    assert (plan.world_size.at(), plan.nodes.at()) == ("32 ($SLURM_NTASKS)", "4 ($SLURM_NNODES)")


def test_what_srun_sets_for_each_task_is_not_what_the_batch_script_sees() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
    inner = "torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --node_rank $SLURM_NODEID train.py"
    plan = plan_of("srun", "bash", "-c", inner, env=job)
    flag = plan.command.launcher_flag("--node_rank")
    assert flag is not None
    assert flag.value is not None
    assert (flag.value.text, plan.nodes.get()) == (None, 2)


def test_a_script_for_sbatch_has_the_job_that_it_asks_for() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" + (
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $N --rdzv_id $SLURM_JOB_ID train.py\n"
    )
    plan = plan_of("sbatch", script(text, "job.sbatch"), env={"N": "4"})
    assert plan.world_size.get() == 8
    assert [flag.value.text for flag in plan.command.launcher_flags if flag.value][-1] is None  # the number of the job
    # bash reads no directives.
    assert plan_of("bash", "job.sbatch", env={"N": "4", "SLURM_NNODES": "1"}).world_size.get() == 4


# Versions


def environment(folder: Path, packages: Mapping[str, str], first_line: str = "") -> Path:
    site = folder / "lib" / "python3.11" / "site-packages"
    for name, version in packages.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3.11").write_text("")
    (folder / "bin" / "python").symlink_to("python3.11")
    (folder / "bin" / "torchrun").write_text(f"{first_line or f'#!{folder}/bin/python'}\nprint()\n")
    for path in (folder / "bin").iterdir():
        path.chmod(0o755)
    return folder


def specifiers(program: str, path: Path) -> dict[str, str]:
    found = installed_versions(program, {"PATH": str(path)})
    return {name: fact.specifier for name, fact in (found or {}).items()}


def test_versions_are_those_that_the_program_of_the_command_finds(tmp_path: Path) -> None:
    packages = {"deepspeed": "0.16.9+abc", "torch": "2.6.0+cu124", "transformers": "4.50.0", "numpy": "2.0"}
    other = environment(tmp_path / "other", packages)
    expected = {"deepspeed": "==0.16.9", "torch": "==2.6.0", "transformers": "==4.50.0"}
    assert specifiers("torchrun", other / "bin") == expected
    assert specifiers("python", other / "bin") == expected
    assert specifiers(f"{other}/bin/torchrun", Path("/")) == expected
    long = environment(tmp_path / "long", {"torch": "2.1.0"}, f"#!/bin/sh\n'''exec' {other}/bin/python \"$0\" \"$@\"")
    assert specifiers("torchrun", long / "bin") == expected
    env = environment(tmp_path / "env", {"torch": "2.1.0"}, "#!/usr/bin/env python")
    assert specifiers("torchrun", env / "bin") == {"torch": "==2.1.0"}
    assert specifiers("no-such", env / "bin") == {}


def test_the_versions_of_this_environment_are_those_that_python_states() -> None:
    from importlib.metadata import version

    found = installed_versions("python", {"PATH": str(Path(sys.executable).parent)})
    assert found is not None
    for name in ("torch", "deepspeed", "transformers", "accelerate"):
        if name in found:
            assert found[name].specifier == f"=={version(name).partition('+')[0]}"
            assert str(found[name].origin) == "installed"
    assert interpreter_of("python", PATH) == os.path.join(os.path.dirname(sys.executable), "python")


def test_what_is_installed_counts_and_not_what_a_file_wants(tmp_path: Path) -> None:
    environment(tmp_path / "other", {"deepspeed": "0.12.6"})
    Path("requirements.txt").write_text("deepspeed==0.18.0\n")
    Path("ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},\n'
        ' "zero_optimization": {"stage": 2, "overlap_comm": true}}\n'
    )
    words = ("torchrun", "--nproc_per_node", "2", "train.py", "--deepspeed_config", "ds.json")
    found = checked(*words, env={"PATH": f"{tmp_path}/other/bin"})
    assert "ds.json DSL160" in codes(found)
    race = next(finding for finding in found.result.findings if finding.code == "DSL160")
    assert "DeepSpeed 0.12.6" in race.message
    assert [str(place) for place in race.related] == ["installed"]
    newer = environment(tmp_path / "newer", {"deepspeed": "0.18.0"})
    severities = [
        finding.severity.value
        for place in ("other", newer)
        for finding in checked(*words, env={"PATH": f"{tmp_path / place}/bin"}).result.findings
        if finding.code == "DSL160"
    ]
    assert severities == ["warning", "info"]


@pytest.mark.parametrize(
    "words",
    [
        ("conda", "run", "-n", "x", "torchrun", "train.py"),
        ("docker", "run", "image", "torchrun", "train.py"),
        ("bash", "run.sh"),
    ],
)
def test_of_another_environment_nothing_is_installed(words: tuple[str, ...]) -> None:
    script("conda activate other\ntorchrun train.py\n")
    Path("requirements.txt").write_text("deepspeed==0.18.0\n")
    found = checked(*words)
    context = found.planned.surroundings.context("train.py")
    assert (context.deepspeed.specifier, str(context.deepspeed.origin)) == ("==0.18.0", "requirements.txt:1")


def test_what_the_user_states_comes_first(tmp_path: Path) -> None:
    other = environment(tmp_path / "other", {"deepspeed": "0.12.6", "torch": "2.6.0"})
    settings = make_settings({"deepspeed-version": "0.16.9"})
    env = {"PATH": f"{other}/bin"}
    found = Preflight(("torchrun", "train.py"), env, settings, ("deepspeed",)).check(scripts=False)
    context = found.planned.surroundings.context("train.py")
    assert (context.deepspeed.specifier, context.libraries["torch"].specifier) == ("==0.16.9", "==2.6.0")


# Without the code of scripts


def test_the_quick_look_knows_what_needs_no_interpretation() -> None:
    Path("train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group()\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    words = ("torchrun", "--nproc_per_node", "2", "--master_port", "70000", "train.py")
    preflight = Preflight(words, PATH, make_settings({"cache": False}), ())
    assert codes(preflight.check(scripts=False)) == ["<command line> DSL309"]
    assert codes(preflight.check(scripts=True)) == ["<command line> DSL309", "train.py DSL223", "train.py DSL201"]
