"""No text that the doctor can meet makes a check fail: files, variables and the output of programs are noise here."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from fake_machine import FakeMachine, real_library
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dslint.doctor import command
from dslint.doctor.elf import damage
from dslint.doctor.machine import Ran
from dslint.doctor.registry import all_checks

# Words of the files that the checks read, right and not quite, so that noise gets past the first look.
_SHORT = """\
0: 00000000:733C zz:zz 0100007F:xx 0A 06 -1 999999999999999999999999999999 \u0663 \u00b2 \u00e9 / // ext4 nfs4 \\040
GPU0 GPU1 X SYS 0, 1,Enabled 13.x slots=8 slots= host Name: Uid: PPid: cflags = -I -isystem ' " $ num_processes: { [ #
unlimited btime lo: : , ^ 9.0+PTX +PTX python 1700000000.5 Requires-Dist: torch>= Version: x \0 \udcff"""
_LONG = """\
0, x, 1 MiB, 5|release 13.0|CUDA Version: 13.x|nvcc = /x|cuda = '1'|__version__ = '2.x'|hip: str|num_machines: 4|\
Max open files|Max open files 12"""
WORDS = st.sampled_from([*_SHORT.split(), *_LONG.split("|")])
NOISE = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=6).map("\n".join) | st.text(max_size=100)
# What the checks read: files of the system, of the home folder, of a build, and the output of programs.
INPUTS = (
    "system/proc/mounts", "system/proc/net/tcp", "system/proc/net/tcp6", "system/proc/net/dev",
    "system/proc/self/limits", "system/proc/stat", "system/proc/1/status", "system/proc/1/cmdline",
    "system/proc/sys/kernel/hostname",
    "system/var/lib/nfs/etab", "system/job/hostfile", "home/.deepspeed_env", "env/lib/site-packages/torch/version.py",
    "env/lib/site-packages/deepspeed-1.dist-info/METADATA", "home/.cache/huggingface/accelerate/default_config.yaml",
    "home/.cache/huggingface/accelerate/default_config.json", "home/.cache/torch_extensions/py311_cpu/toy/build.ninja",
    "home/.cache/torch_extensions/py311_cpu/toy/toy.so", "home/.cache/torch_extensions/py311_cpu/toy/lock",
)  # fmt: skip
VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK", "CXX",
             "CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NTASKS_PER_NODE",
             "SLURM_GPUS_ON_NODE", "CUDA_HOME", "DS_ENV_FILE", "TORCH_EXTENSIONS_DIR", "HF_HOME")  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    files=st.dictionaries(st.sampled_from(INPUTS), NOISE, min_size=3),
    variables=st.dictionaries(st.sampled_from(VARIABLES), NOISE),
    said=NOISE,
)
def test_no_check_fails_on_noise(files: dict[str, str], variables: dict[str, str], said: str) -> None:
    with TemporaryDirectory() as folder:
        fake = FakeMachine(Path(folder))
        for name in ("nvidia-smi", "nvcc", "ninja", "c++", "ssh"):
            fake.program(name, "")
        for name, text in files.items():
            path = fake.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        fake.environ.update({name: text.replace("\0", "") for name, text in variables.items()})
        machine = fake.machine(hosts=["node2"], hostfile=fake.system / "job/hostfile")
        machine.run = lambda *command, seconds=0.0: Ran(0, said, said)  # type: ignore[method-assign]
        for checked in command.run(machine, all_checks()):
            for outcome in checked.outcomes:
                assert outcome.found != "the check itself failed", (checked.meta.id, outcome.reason)


def test_paths_that_cannot_exist_fail_no_check(tmp_path: Path) -> None:
    # pathlib raises for them where os.path says no; the same holds for folders that this user may not enter.
    fake = FakeMachine(tmp_path)
    names = (
        "TORCH_EXTENSIONS_DIR",
        "HF_HOME",
        "CUDA_HOME",
        "TRITON_CACHE_DIR",
        "TMPDIR",
        "DS_ENV_FILE",
        "XDG_CACHE_HOME",
    )
    fake.environ.update(dict.fromkeys(names, "x" * 5000))
    for checked in command.run(fake.machine(), all_checks()):
        for outcome in checked.outcomes:
            assert outcome.found != "the check itself failed", (checked.meta.id, outcome.reason)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_library_with_a_damaged_header_is_judged_without_an_error(
    tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(real_library())
    for place, value in changes:
        data[place] = value
    (tmp_path / "x.so").write_bytes(data)
    assert isinstance(damage(tmp_path / "x.so", os.uname().machine), str)
