"""D2 to D5: extension builds, caches, tool chain and versions on fake machines, good and bad."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_machine import FakeMachine, library_for, lock_in, only, real_library, statuses

from dslint.doctor.checks import d02_foreign_extension_build as d02
from dslint.doctor.checks import d03_cache_on_network_file_system as d03
from dslint.doctor.checks import d04_tool_chain as d04
from dslint.doctor.checks import d05_known_bad_versions as d05
from dslint.doctor.elf import damage
from dslint.doctor.ninjafile import read_paths


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def ninja_file(torch: Path, extra: str = "") -> str:
    """As torch 2.13 writes it."""
    return (
        "ninja_required_version = 1.3\ncxx = c++\n\n"
        f"cflags = -DTORCH_EXTENSION_NAME=toy -isystem {torch}/include -isystem {torch}/include/torch/csrc/api/include"
        f" -isystem /usr/include {extra} -fPIC -std=c++20\npost_cflags = \n"
        f"ldflags = -shared -L{torch}/lib -lc10 -ltorch\n\n"
        "rule compile\n  command = $cxx -MMD $cflags -c $in -o $out\n\n"
        "build main.o: compile /gone/main.cpp\nbuild toy.so: link main.o\n"
    )


def api(torch: Path) -> Path:
    (torch / "include/torch/csrc/api/include").mkdir(parents=True, exist_ok=True)
    return torch


# ---- D2


def test_no_builds_and_whole_builds_are_fine(fake: FakeMachine) -> None:
    assert only(d02.check(fake.machine()), "ok").found.startswith("no builds in")
    torch = api(fake.torch())
    folder = fake.build()
    (folder / "fused_adam.so").write_bytes(real_library())
    (folder / "build.ninja").write_text(ninja_file(torch))
    fake.build(tag="py310_cu118")
    assert "1 whole build in" in only(d02.check(fake.machine()), "ok").found


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"version https://git-lfs", "no ELF file"),
        (b"\x7fELF\x02\x01\x01" + bytes(20), "cut off"),
        (b"\x7fELF\x07\x01\x01" + bytes(200), "cut off or broken"),
        (real_library()[:-1], "cut off"),
        (real_library()[: len(real_library()) // 2], "cut off"),
        (library_for(8), "another kind of processor"),
    ],
)
def test_a_broken_library_is_an_error(fake: FakeMachine, data: bytes, says: str) -> None:
    fake.torch()
    library = fake.build() / "fused_adam.so"
    library.write_bytes(data)
    outcome = only(d02.check(fake.machine()), "error")
    assert says in outcome.reason
    assert outcome.repair == f"rm {library}"
    assert outcome.lock is None


def test_every_shorter_library_is_seen_as_cut_off(tmp_path: Path) -> None:
    whole = real_library()
    library = tmp_path / "x.so"
    library.write_bytes(whole)
    assert damage(library, os.uname().machine) == ""
    for length in range(0, len(whole), max(len(whole) // 50, 1)):
        library.write_bytes(whole[:length])
        assert damage(library), length


def test_libraries_of_other_programs_in_a_stated_root_are_not_judged(fake: FakeMachine) -> None:
    fake.torch()
    root = fake.folder / "tmp"
    fake.environ["TORCH_EXTENSIONS_DIR"] = str(root)
    (fake.build("somebodys", tag=None, root=root) / "libc.so").write_text("GROUP ( /lib/libc.so.6 )")
    only(d02.check(fake.machine()), "ok")
    own = fake.build("toy", tag=None, root=root)
    (own / "build.ninja").touch()
    (own / "toy.so").touch()
    assert "toy.so" in only(d02.check(fake.machine()), "error").found


def test_a_build_in_progress_is_left_alone(fake: FakeMachine) -> None:
    fake.torch()
    folder = fake.build()
    (folder / "fused_adam.so").write_bytes(b"")
    fake.process(77, "python", files=(lock_in(folder),))
    assert statuses(d02.check(fake.machine())) == ["ok"]


def test_the_folder_of_another_environment_does_no_harm(fake: FakeMachine) -> None:
    fake.torch()
    (fake.build(tag="py310_cu118") / "fused_adam.so").write_bytes(b"")
    assert "1 of other environments" in only(d02.check(fake.machine()), "ok").found


def test_a_build_for_another_torch_is_foreign(fake: FakeMachine) -> None:
    fake.torch()
    other = api(fake.folder / "other/torch")
    (other / "lib").mkdir()
    folder = fake.build()
    (folder / "build.ninja").write_text(ninja_file(other))
    outcome = only(d02.check(fake.machine()), "warning")
    assert "another torch" in outcome.found
    assert outcome.repair == f"rm -r {folder}"


def test_a_build_with_paths_that_are_gone_is_foreign(fake: FakeMachine) -> None:
    torch = api(fake.torch())
    build = fake.build() / "build.ninja"
    build.write_text("nvcc = /gone/cuda-11.8/bin/nvcc\n" + ninja_file(torch))
    outcome = only(d02.check(fake.machine()), "warning")
    assert "paths that do not exist" in outcome.found
    assert "/gone/cuda-11.8/bin/nvcc" in outcome.reason
    build.write_text(ninja_file(Path("/gone/env/torch")))
    assert "/gone/env/torch/include" in only(d02.check(fake.machine()), "warning").reason


def test_folders_that_an_extension_names_in_vain_say_nothing(fake: FakeMachine) -> None:
    # DeepSpeed's wheel names deepspeed/ops/csrc/cpu/includes, which it does not hold.
    torch = api(fake.torch())
    (fake.build() / "build.ninja").write_text(ninja_file(torch, f"-I{fake.site}/deepspeed/ops/csrc/cpu/includes"))
    only(d02.check(fake.machine()), "ok")


def test_a_corrupt_build_file_says_nothing(fake: FakeMachine) -> None:
    fake.torch()
    (fake.build() / "build.ninja").write_bytes(b"cflags = '-I/gone \xff\x00\nldflags")
    assert statuses(d02.check(fake.machine())) == ["ok"]


def test_a_stated_folder_of_another_environment(fake: FakeMachine) -> None:
    fake.torch()
    root = fake.home / ".cache/torch_extensions/py310_cu118"
    root.mkdir(parents=True)
    fake.environ["TORCH_EXTENSIONS_DIR"] = str(root)
    outcome = only(d02.check(fake.machine()), "warning")
    assert "py310_cu118" in outcome.found
    assert "py311_cpu" in outcome.reason


def test_a_root_of_another_user(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.torch()
    folder = fake.build().parent
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    outcome = only(d02.check(fake.machine()), "error")
    assert outcome.found == f"{folder} is not writable"


def test_without_torch_builds_cannot_be_compared(fake: FakeMachine) -> None:
    fake.build()
    assert "no torch" in only(d02.check(fake.machine()), "unknown").reason


def test_paths_of_a_build_file_with_escapes_and_nvcc() -> None:
    text = "nvcc = /usr/local/cuda/bin/nvcc\ncflags = -I/a$ b $\n  -isystem '/x/torch/include'\nldflags = -L/l -L rel\n"
    paths = read_paths(text)
    # ninja turns `$ ` into a blank, at which the shell splits.
    assert paths.includes == ("/a", "/x/torch/include")
    assert (paths.libraries, paths.nvcc, paths.torch) == (("/l",), "/usr/local/cuda/bin/nvcc", "/x/torch")


# ---- D3


def test_caches_on_a_local_disk(fake: FakeMachine) -> None:
    assert "(ext4)" in only(d03.check(fake.machine()), "ok").found


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "fuse.sshfs", "9p"])
def test_caches_on_a_network_file_system(fake: FakeMachine, kind: str) -> None:
    fake.mount(kind, fake.home)
    outcomes = d03.check(fake.machine())
    assert statuses(outcomes) == ["warning", "warning"]
    assert outcomes[0].repair.startswith("export TORCH_EXTENSIONS_DIR=/tmp/")
    assert kind in outcomes[1].found
    fake.environ.update(TORCH_EXTENSIONS_DIR=str(fake.folder / "a"), TRITON_CACHE_DIR=str(fake.folder / "b"))
    assert statuses(d03.check(fake.machine())) == ["ok"]


def test_no_mount_table(fake: FakeMachine) -> None:
    fake.proc("mounts", "")
    only(d03.check(fake.machine()), "unknown")


# ---- D4

NVCC = "echo 'nvcc: NVIDIA (R) Cuda compiler driver'; echo 'Cuda compilation tools, release {}, V{}.88'"


def tools(fake: FakeMachine, nvcc: str = "") -> None:
    fake.program("ninja", "echo 1.11.1")
    fake.program("c++", "echo 'c++ (Debian 12.2.0) 12.2.0'")
    if nvcc:
        fake.program("nvcc", NVCC.format(nvcc, nvcc))


def test_all_tools_for_a_cpu_build(fake: FakeMachine) -> None:
    fake.torch()
    tools(fake)
    outcome = only(d04.check(fake.machine()), "ok")
    assert outcome.found == "ninja 1.11.1, c++ (Debian 12.2.0) 12.2.0, nvcc is not needed: torch was built without CUDA"


def test_missing_tools(fake: FakeMachine) -> None:
    fake.torch()
    outcomes = d04.check(fake.machine())
    assert statuses(outcomes) == ["warning", "warning"]
    assert "no ninja" in outcomes[0].found
    assert "no C++ compiler" in outcomes[1].found


def test_ninja_in_an_environment_that_is_not_active(fake: FakeMachine) -> None:
    fake.torch()
    tools(fake)
    (fake.bin / "ninja").unlink()
    beside = fake.folder / "env/bin"
    beside.mkdir()
    (beside / "ninja").touch()
    outcome = only(d04.check(fake.machine()), "warning")
    assert outcome.repair == f'export PATH="{beside}:$PATH"'


def test_cxx_that_does_not_exist(fake: FakeMachine) -> None:
    fake.torch()
    tools(fake)
    fake.environ["CXX"] = "g++-99"
    assert "CXX names it" in only(d04.check(fake.machine()), "warning").reason


@pytest.mark.parametrize(
    ("torch", "nvcc", "deepspeed", "status"),
    [
        ("12.1", "12.1", True, "ok"),
        ("12.1", "12.4", True, "ok"),
        ("12.1", "11.8", False, "error"),
        ("12.1", "13.0", True, "error"),
        ("13.0", "13.1", True, "error"),
        ("13.0", "13.1", False, "ok"),
    ],
)
def test_nvcc_against_torch(fake: FakeMachine, torch: str, nvcc: str, deepspeed: bool, status: str) -> None:
    fake.torch(f"2.9.0+cu{torch.replace('.', '')}", cuda=torch)
    if deepspeed:
        fake.package("deepspeed", "0.19.8")
    tools(fake, nvcc)
    assert statuses(d04.check(fake.machine())) == [status]


def test_cuda_home_wins_over_path(fake: FakeMachine) -> None:
    fake.torch("2.3.0+cu121", cuda="12.1")
    tools(fake, "12.1")
    (fake.folder / "cuda/bin").mkdir(parents=True)
    fake.environ["CUDA_HOME"] = str(fake.folder / "cuda")
    assert "does not work" in only(d04.check(fake.machine()), "warning").found
    (fake.bin / "nvcc").rename(fake.folder / "cuda/bin/nvcc")
    assert statuses(d04.check(fake.machine())) == ["ok"]


def test_no_nvcc_for_a_cuda_build(fake: FakeMachine) -> None:
    fake.torch("2.3.0+cu121", cuda="12.1")
    tools(fake)
    assert "no nvcc" in only(d04.check(fake.machine()), "warning").found


@pytest.mark.parametrize(
    ("listed", "status"),
    [("8.0;9.0", "ok"), ("8.0+PTX", "ok"), ("8.0", "error"), ("9.1", "error"), ("Hopper", "ok"), ("9.0a", "ok")],
)
def test_architectures_against_the_gpus(fake: FakeMachine, listed: str, status: str) -> None:
    fake.torch("2.3.0+cu121", cuda="12.1")
    tools(fake, "12.1")
    fake.program(
        "nvidia-smi",
        'case "$1" in *compute_cap*) echo "0, 9.0";; *) echo "0, H100, 81559 MiB, 550";; esac',
    )
    fake.environ["TORCH_CUDA_ARCH_LIST"] = listed
    assert statuses(d04.check(fake.machine())) == [status]


def test_nothing_installed_that_would_build(fake: FakeMachine) -> None:
    only(d04.check(fake.machine()), "unknown")
    fake.package("deepspeed", "0.19.8")
    tools(fake)
    assert "no torch" in only(d04.check(fake.machine()), "unknown").reason


# ---- D5


def test_good_versions_are_listed(fake: FakeMachine) -> None:
    fake.torch()
    fake.package("deepspeed", "0.19.8")
    outcome = only(d05.check(fake.machine()), "ok")
    assert (outcome.found, outcome.reason) == ("torch 2.13.0+cpu, deepspeed 0.19.8", "")


@pytest.mark.parametrize(
    ("torch", "deepspeed", "says"),
    [
        ("2.9.0", "0.17.6", ["gradient accumulation"]),
        ("2.9.0", "0.18.2", ["gradient accumulation"]),
        ("2.9.0", "0.18.3", []),
        ("2.9.0", "0.12.6", ["overlap_comm"]),
        ("2.9.0", "0.17.5", []),
        ("2.10.0+cu128", "0.18.7", ["NaN"]),
        ("2.10.0+cu128", "0.18.8", []),
        ("2.10.0+cu128", "0.17.4+git", ["overlap_comm", "NaN"]),
    ],
)
def test_known_bad_versions(fake: FakeMachine, torch: str, deepspeed: str, says: list[str]) -> None:
    fake.torch(torch)
    fake.package("deepspeed", deepspeed)
    outcomes = d05.check(fake.machine())
    assert statuses(outcomes) == (["warning"] * len(says) or ["ok"])
    for outcome, words in zip(outcomes, says, strict=False):
        assert words in outcome.found
        assert "pip install -U 'deepspeed>=" in outcome.repair


def test_traps_of_rare_features_are_only_mentioned(fake: FakeMachine) -> None:
    fake.torch("2.9.0")
    fake.package("deepspeed", "0.18.9")
    assert "Muon" in only(d05.check(fake.machine()), "ok").reason


def test_a_release_that_does_not_fit_another(fake: FakeMachine) -> None:
    fake.package("transformers", "5.23.0", "accelerate>=1.1.0; extra == 'accelerate'", "accelerate>=99; extra == 'dev'",
                 "torch>=2.6; extra == 'torch'", "numpy>=99")  # fmt: skip
    fake.package("accelerate", "0.30.0", "torch>=2.0.0", "not a requirement !!")
    outcome = only(d05.check(fake.machine()), "warning")
    assert outcome.found == "accelerate 0.30.0 does not fit transformers 5.23.0"
    assert outcome.reason == "transformers 5.23.0 asks for accelerate>=1.1.0"


def test_nothing_installed(fake: FakeMachine) -> None:
    assert "none of torch" in only(d05.check(fake.machine()), "unknown").reason


def test_a_version_that_is_none_is_not_compared(fake: FakeMachine) -> None:
    fake.package("deepspeed", "unknown")
    assert statuses(d05.check(fake.machine())) == ["ok"]
