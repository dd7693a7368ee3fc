"""The tools that build PyTorch extensions, against the torch of the environment.

**What.** `ninja`, the C++ compiler (`$CXX` or `c++`) and, when torch was built for CUDA, `nvcc` with the same CUDA
release; `TORCH_CUDA_ARCH_LIST` against the GPUs.

**Why it hurts.** DeepSpeed builds `fused_adam`, `cpu_adam` and others at the first use. Without ninja or a compiler the
build raises on every rank; with another CUDA major release torch raises "The detected CUDA version mismatches the
version that was used to compile PyTorch", DeepSpeed a `CUDAMismatchException`; a library without the code of the GPU
fails with "no kernel image is available".

**How it is known.** `torch/version.py` read as text, `nvcc --version`, `ninja --version` and the compiler's version,
found in the order in which torch looks for them.

**Repair.** Install what is missing; point `CUDA_HOME` to the toolkit of the same release as `torch.version.cuda`.

**Evidence.** `torch/utils/cpp_extension.py` (`_find_cuda_home`, `_check_cuda_version`, `verify_ninja_availability`),
`deepspeed/ops/op_builder/builder.py` (`assert_no_cuda_mismatch`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from dslint.doctor.environment import Torch
from dslint.doctor.gpus import gpus
from dslint.doctor.machine import Machine, Ran
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning

META = CheckMeta("D4", "tool-chain", "ninja, C++ compiler and nvcc against the torch of the environment")

# builder.py: within these major releases DeepSpeed accepts any minor ones.
_MINOR_MAY_DIFFER = (10, 11, 12)
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each tool that is missing or does not fit, one in all when they do."""
    if not _needed(machine):
        reason = "neither torch nor deepspeed is installed here: nothing would be built"
        return [unknown("tool chain not compared", reason)]
    good: list[str] = []
    outcomes = [*_ninja(machine, good), *_compiler(machine, good)]
    torch = machine.python.torch
    if torch is None:
        outcomes.append(unknown("CUDA release not compared", "there is no torch in this environment"))
    elif torch.cuda:
        outcomes += [*_nvcc(machine, torch, good), *_architectures(machine)]
    else:
        good.append("nvcc is not needed: torch was built " + ("for ROCm" if torch.hip else "without CUDA"))
    return outcomes or [ok(", ".join(good))]


def _needed(machine: Machine) -> bool:
    return machine.python.torch is not None or machine.python.release("deepspeed") is not None


def _ninja(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    ran = machine.run("ninja", "--version")
    if ran.good:
        good.append(f"ninja {ran.out.strip()}")
        return
    beside = machine.python.executable.parent / "ninja"
    why = "torch starts `ninja` by its name and raises `Ninja is required to load C++ extensions`"
    if os.path.exists(beside):
        repair = f'export PATH="{beside.parent}:$PATH"'
        yield warning(f"ninja is in {beside.parent}, which is not on PATH", f"{why}; activate the environment", repair)
    else:
        yield warning(f"no ninja: {_trouble(ran)}", why, f"{machine.python.executable} -m pip install ninja")


def _compiler(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    name = machine.variable("CXX") or "c++"
    ran = machine.run(name.split()[0], "--version")
    if ran.good:
        good.append(ran.out.partition("\n")[0].strip())
        return
    stated = "CXX names it" if machine.variable("CXX") else "torch starts it by this name"
    yield warning(f"no C++ compiler: {_trouble(ran)}", f"{stated}: extensions cannot be built", "apt-get install g++")


def _nvcc(machine: Machine, torch: Torch, good: list[str]) -> Iterator[Outcome]:
    assert torch.cuda is not None
    home = _cuda_home(machine)
    want = f"torch {torch.version} was built with CUDA {torch.cuda}"
    if home is None:
        reason = f"{want}; without nvcc its CUDA extensions cannot be built (installed wheels are not affected)"
        yield warning("no nvcc: CUDA_HOME is not set, nvcc not on PATH, no /usr/local/cuda", reason)
        return
    program = home / "bin" / "nvcc"
    ran = machine.run(str(program), "--version")
    match = _RELEASE.search(ran.out)
    if match is None:
        yield warning(f"{program} does not work: {_trouble(ran)}", f"{want}; CUDA extensions cannot be built")
        return
    have, built = (int(match[1]), int(match[2])), _numbers(torch.cuda)
    if have == built:
        good.append(f"nvcc {match[1]}.{match[2]} as torch's CUDA")
    elif have[0] != built[0]:
        reason = f"{want}: torch and DeepSpeed refuse to build with another major release"
        repair = f"export CUDA_HOME=/usr/local/cuda-{torch.cuda}"
        yield error(f"{program} is CUDA {match[1]}.{match[2]}", reason, repair)
    elif have[0] in _MINOR_MAY_DIFFER or machine.variable("DS_SKIP_CUDA_CHECK") == "1":
        good.append(f"nvcc {match[1]}.{match[2]} with torch's CUDA {torch.cuda}, which is accepted")
    elif machine.python.release("deepspeed"):
        reason = f"{want}: DeepSpeed refuses to build with another release of CUDA {have[0]}"
        yield error(f"{program} is CUDA {match[1]}.{match[2]}", reason, "export DS_SKIP_CUDA_CHECK=1")


def _architectures(machine: Machine) -> Iterator[Outcome]:
    stated = machine.variable("TORCH_CUDA_ARCH_LIST")
    words = re.split(r"[\s;]+", stated) if stated else []
    if not words or not all(re.fullmatch(r"\d+\.\d+[af]?(\+PTX)?", word) for word in words):
        return  # not set, or by names such as Hopper
    for capability in sorted({gpu.capability for gpu in gpus(machine).gpus if gpu.capability}):
        if not any(_runs(word, capability) for word in words):
            reason = f"extensions built so hold no code for this GPU ({capability}): `no kernel image is available`"
            repair = f'export TORCH_CUDA_ARCH_LIST="{stated};{capability}"'
            yield error(f"TORCH_CUDA_ARCH_LIST={stated}", reason, repair)


def _runs(word: str, capability: str) -> bool:
    """Code for x.y runs on x.z with z >= y; PTX of x.y on everything newer."""
    code, device = _numbers(word.removesuffix("+PTX").rstrip("af")), _numbers(capability)
    same = code[0] == device[0] and code[1] <= device[1]
    return same or (word.endswith("+PTX") and code <= device)


def _cuda_home(machine: Machine) -> Path | None:
    stated = machine.variable("CUDA_HOME") or machine.variable("CUDA_PATH")
    if stated:
        return Path(stated)
    program = machine.which("nvcc")
    if program:
        return Path(program).parent.parent
    usual = machine.system / "usr/local/cuda"
    return usual if os.path.exists(usual) else None


def _numbers(release: str) -> tuple[int, int]:
    parts = [int(part) for part in re.findall(r"\d+", release)[:2]]
    return parts[0] if parts else 0, parts[1] if len(parts) > 1 else 0


def _trouble(ran: Ran) -> str:
    return ran.trouble or (ran.err or ran.out).strip().partition("\n")[0] or f"exit status {ran.code}"
