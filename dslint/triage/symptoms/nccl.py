"""Errors that NCCL and CUDA report."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom, doctor

SYMPTOMS = (
    Symptom(
        name="duplicate-gpu",
        title="Two ranks use the same GPU",
        meaning="NCCL refuses two ranks of a group on one device.",
        role="cause",
        causes=(
            Cause("every rank uses the default device: call torch.cuda.set_device(LOCAL_RANK) first"),
            Cause("more processes than GPUs, or CUDA_VISIBLE_DEVICES set inside the script", checks=doctor("gpus")),
        ),
        patterns=(
            Pattern(
                r"Duplicate GPU detected ?: rank (?P<rank>\d+) and rank (?P<other>\d+) both on CUDA device",
                gate="Duplicate GPU",
            ),
        ),
    ),
    Symptom(
        name="device-ordinal",
        title="A rank asks for a GPU that does not exist",
        meaning="The number of the device is not below the number of GPUs that the process sees.",
        role="cause",
        causes=(
            Cause("more processes per node than GPUs", checks=doctor("gpus")),
            Cause("the global rank instead of the local rank chooses the device on the second node"),
        ),
        patterns=(Pattern(r"CUDA error: invalid device ordinal"),),
    ),
    Symptom(
        name="nccl-invalid-usage",
        title="NCCL refuses how it is used (ncclInvalidUsage)",
        meaning="Most often two ranks on one GPU; also tensors on the wrong device, or ranks with different "
        "NCCL versions.",
        role="cause",
        causes=(Cause("two ranks on one GPU: look for `Duplicate GPU` with NCCL_DEBUG=WARN", checks=doctor("gpus")),),
        patterns=(Pattern(r"(?:Error: |NCCL error).{0,300}(?:ncclInvalidUsage|invalid usage)"),),
    ),
    Symptom(
        name="nccl-system-error",
        title="A system call of NCCL failed (ncclSystemError)",
        meaning="Sockets, shared memory, or a peer that is gone. With NCCL_DEBUG=WARN the line before says which.",
        role="cause",
        causes=(
            Cause("another rank ended and its socket with it: look for an earlier error"),
            Cause("the interface, InfiniBand, or /dev/shm is too small", checks=doctor("network-interface", "limits")),
        ),
        patterns=(Pattern(r"(?:Error: |NCCL error).{0,300}(?:ncclSystemError|unhandled system error)"),),
    ),
    Symptom(
        name="nccl-cuda-error",
        title="NCCL met a CUDA error (unhandled cuda error)",
        meaning="The driver, the GPU or its memory failed below NCCL; NCCL_DEBUG=INFO names the call.",
        role="cause",
        causes=(
            Cause("driver and CUDA of torch do not fit, or a GPU is sick", checks=doctor("gpus", "known-bad-versions")),
            Cause("no memory left on the GPU for NCCL's buffers"),
        ),
        patterns=(Pattern(r"(?:Error: |NCCL error).{0,300}(?:ncclUnhandledCudaError|unhandled cuda error)"),),
    ),
    Symptom(
        name="cuda-oom",
        title="A GPU ran out of memory",
        meaning="The rank that raises ends; the others wait for it in their next collective until the timeout.",
        role="cause",
        causes=(
            Cause("a longer sample or larger batch on this rank than on the others; lower the micro batch size"),
            Cause("a memory fraction that leaves the process too little", ("DSL258",)),
            Cause("another process on this GPU, or several ranks on one", checks=doctor("gpus")),
        ),
        patterns=(
            Pattern(r"(?:CUDA|HIP|NPU|XPU) out of memory"),
            Pattern(r"CUDA error: out of memory"),
            Pattern(r"CUBLAS_STATUS_ALLOC_FAILED"),
        ),
    ),
)
