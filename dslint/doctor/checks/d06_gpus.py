"""The GPUs of this machine: do they answer, are they alike, does the driver fit torch.

**What.** Errors of `nvidia-smi`, uncorrected memory errors, GPUs of different kinds, MIG, a driver older than the CUDA
of torch, `CUDA_VISIBLE_DEVICES` that hides all GPUs or names one that is not there; how the GPUs are joined.

**Why it hurts.** A GPU that does not answer stops the rank that gets it, and all others wait for it. NCCL refuses two
MIG instances of one GPU. With an empty `CUDA_VISIBLE_DEVICES` a job sees no GPU at all.

**How it is known.** `nvidia-smi --query-gpu`, `nvidia-smi topo -m`, the environment. Nothing is set, no CUDA context is
made.

**Repair.** What is printed; a GPU with memory errors must be reset or replaced by the operator of the machine.

**Evidence.** https://docs.nvidia.com/deploy/cuda-compatibility/ (driver against CUDA release), NCCL documentation
(MIG is not supported).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.words import counted
from dslint.doctor.gpus import Gpu, driver_cuda, gpus, topology
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.words import listed

META = CheckMeta("D6", "gpus", "GPUs: do they answer, are they alike, does the driver fit torch")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each fault, one in all when there is none."""
    found = gpus(machine)
    torch = machine.python.torch
    if not found.present:
        if torch and torch.cuda:
            reason = f"torch {torch.version} is built for CUDA; a login node often has no GPU"
            return [unknown(f"no GPU: {found.trouble}", reason)]
        if torch and torch.hip:
            return [unknown("GPUs not looked at", f"torch {torch.version} is built for ROCm; only nvidia-smi is asked")]
        return [ok("no GPU driver, and none is needed: " + ("torch is built without CUDA" if torch else "no torch"))]
    if found.trouble:
        reason = "jobs that need a GPU fail or wait for this machine"
        return [error(f"the GPUs do not answer: {found.trouble}", reason, "nvidia-smi -L")]
    outcomes = [*_health(found.gpus), *_visible(machine, len(found.gpus)), *_driver(machine, found.gpus)]
    return outcomes or [ok(_described(found.gpus), _joined(machine, found.gpus))]


def _health(found: tuple[Gpu, ...]) -> Iterator[Outcome]:
    for gpu in found:
        if gpu.ecc_errors:
            reason = (
                f"{gpu.ecc_errors} uncorrected memory errors since the driver was loaded: jobs on it fail or go wrong"
            )
            yield error(
                f"GPU {gpu.number} ({gpu.name}) has memory errors", reason, f"nvidia-smi -q -d ECC -i {gpu.number}"
            )
    with_mig = [str(gpu.number) for gpu in found if gpu.mig]
    if with_mig:
        reason = "a process sees one MIG instance, and NCCL does not join two instances of the same GPU"
        yield warning(f"MIG is enabled on GPU {listed(with_mig)}", reason, "nvidia-smi -L")
    kinds = sorted({(gpu.name, gpu.memory) for gpu in found})
    if len(kinds) > 1:
        reason = "every step waits for the slowest, and the smallest memory bounds the batch of all"
        yield warning("different GPUs: " + listed([f"{name} ({memory})" for name, memory in kinds]), reason)


def _visible(machine: Machine, count: int) -> Iterator[Outcome]:
    if "CUDA_VISIBLE_DEVICES" not in machine.environ:
        return
    stated = machine.environ["CUDA_VISIBLE_DEVICES"].strip()
    if stated in ("", "-1", "NoDevFiles"):
        reason = "jobs started from this shell see no GPU"
        yield warning(
            f"CUDA_VISIBLE_DEVICES={stated or '(empty)'} hides all GPUs", reason, "unset CUDA_VISIBLE_DEVICES"
        )
        return
    beyond = [part.strip() for part in stated.split(",") if part.strip().isdecimal() and int(part) >= count]
    if beyond:
        reason = f"the machine has {counted(count, 'GPU')}; CUDA ignores a missing one and all that are named after it"
        found = f"CUDA_VISIBLE_DEVICES={stated} names GPU {listed(beyond)}"
        yield error(found, reason, "unset CUDA_VISIBLE_DEVICES")


def _driver(machine: Machine, found: tuple[Gpu, ...]) -> Iterator[Outcome]:
    torch = machine.python.torch
    if not torch or not torch.cuda:
        return
    newest = driver_cuda(machine)
    if newest is None:
        return
    major = torch.cuda.partition(".")[0]
    # Within a major release any driver of it runs newer minor releases.
    if major.isdecimal() and int(major) > newest[0]:
        reason = f"torch {torch.version} needs a driver for CUDA {major}: `torch.cuda.is_available()` is False"
        yield error(f"driver {found[0].driver} runs CUDA {newest[0]}.{newest[1]}", reason)


def _described(found: tuple[Gpu, ...]) -> str:
    first = found[0]
    return f"{len(found)} x {first.name} ({first.memory}), driver {first.driver}"


def _joined(machine: Machine, found: tuple[Gpu, ...]) -> str:
    if len(found) < 2:
        return ""
    links = topology(machine)
    return (
        "joined by " + ", ".join(f"{kind} ({counted(count, 'pair')})" for kind, count in sorted(links.items()))
        if links
        else ""
    )
