"""Processes that ended by a signal, memory of the host, and the launchers' own reports."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom, doctor

REPORT, KILLED = "launcher-report", "host-killed"
# The signal behind the exit code that a launcher reports (negative, or 128 + signal from a shell).
SIGNALS = {9: KILLED, 11: "segmentation-fault", 7: "bus-error", 6: "aborted"}
# What srun says for them.
_SPOKEN = {9: "Killed|Out Of Memory", 11: "Segmentation fault", 7: "Bus error", 6: "Aborted"}


def _exits(signal: int) -> tuple[Pattern, ...]:
    codes = rf"(?:-{signal}|{128 + signal})"
    return (
        Pattern(rf"failed \(exitcode: {codes}\) local_rank: (?P<local_rank>\d+) \(pid: \d+\)", gate="(exitcode: "),
        Pattern(rf"exits with return code = {codes}\b", gate="exits with return code"),
        Pattern(rf"task (?P<rank>\d+): (?:Exited with exit code {128 + signal}\b|{_SPOKEN[signal]})"),
    )


SYMPTOMS = (
    Symptom(
        name=KILLED,
        title="A rank was killed from outside (SIGKILL)",
        meaning="Nobody but the kernel's memory guard, Slurm, a container limit or a person sends this signal; "
        "the rank "
        "cannot say why. The other ranks then wait for it.",
        role="cause",
        causes=(
            Cause(
                "the host ran out of memory: ZeRO offload, data loader workers, every rank loading the full model",
                checks=doctor("limits"),
            ),
            Cause("a memory limit of the container or the Slurm job", checks=doctor("limits")),
        ),
        patterns=(
            Pattern(r"^Killed\s*$|: line \d+: +\d+ Killed\b", gate="Killed"),
            Pattern(r"[Oo]ut of memory: Killed process \d+", gate="Killed"),
            *_exits(9),
        ),
    ),
    Symptom(
        name="slurm-memory-limit",
        title="Slurm ended a step for its memory",
        meaning="The step used more host memory than the job asked for.",
        role="cause",
        causes=(
            Cause(
                "--mem is too small for offloading, or for every rank loading the full model",
                checks=doctor("limits", "slurm-context"),
            ),
        ),
        patterns=(
            Pattern(r"Exceeded (?:job|step) memory limit"),
            Pattern(r"[Dd]etected \d+ oom[-_]kill event"),
        ),
    ),
    Symptom(
        name="shared-memory",
        title="Shared memory (/dev/shm) is full",
        meaning="Data loader workers and NCCL pass data through /dev/shm; containers give it 64 MB unless told "
        "otherwise.",
        role="cause",
        causes=(Cause("the container was started without --shm-size or --ipc=host", checks=doctor("limits")),),
        patterns=(
            Pattern(r"Unexpected bus error encountered in worker", gate="us error"),
            Pattern(r"DataLoader worker \(pid[\w ,()]*\) is killed by signal: Bus error"),
            Pattern(r"(?:unable to|Error while creating|failed to extend).{0,60}(?:shared memory|/dev/shm/nccl)"),
            Pattern(r"No space left on device.{0,40}/dev/shm"),
        ),
    ),
    Symptom(
        name="disk-full",
        title="A disk is full",
        meaning="A checkpoint that was being written is incomplete.",
        role="cause",
        causes=(Cause("the checkpoint folder, the cache or /tmp has no space left", checks=doctor("limits")),),
        patterns=(Pattern(r"OSError: \[Errno 28\] No space left on device(?!.{0,40}/dev/shm)"),),
    ),
    Symptom(
        name="bus-error",
        title="A rank died of a bus error (SIGBUS)",
        meaning="Memory behind a mapped file is missing: /dev/shm is full, or a file such as an extension's .so is cut "
        "short.",
        role="cause",
        causes=(
            Cause("/dev/shm is too small", checks=doctor("limits")),
            Cause(
                "a truncated extension .so, or a file on a disk that is full",
                checks=doctor("foreign-extension-build", "limits"),
            ),
        ),
        patterns=(Pattern(r"^(?:\S+: line \d+: +\d+ )?Bus error", gate="us error"), *_exits(7)),
    ),
    Symptom(
        name="segmentation-fault",
        title="A rank died of a segmentation fault (SIGSEGV)",
        meaning="Native code crashed: an extension or library built for another version, or a driver.",
        role="cause",
        causes=(
            Cause("an extension built for another torch or CUDA", checks=doctor("foreign-extension-build")),
            Cause("packages whose versions do not go together", checks=doctor("known-bad-versions")),
        ),
        patterns=(
            Pattern(r"Fatal Python error: Segmentation fault"),
            Pattern(r"^(?:\S+: line \d+: +\d+ )?Segmentation fault", gate="Segmentation fault"),
            *_exits(11),
        ),
    ),
    Symptom(
        name="aborted",
        title="A rank aborted itself (SIGABRT)",
        meaning="Native code gave up: NCCL's watchdog after a timeout, gloo after a size mismatch, or a failed "
        "assertion "
        "on the GPU. The lines before say which.",
        role="lost",
        causes=(Cause("see the symptoms above: an abort is how they end"),),
        patterns=_exits(6),
    ),
    Symptom(
        name=REPORT,
        title="The launcher says which rank failed first",
        meaning="torchrun stops all ranks when one ends. The rank it names is where to look; errors of the others come "
        "after it.",
        role="report",
        causes=(Cause("read this rank's own lines before the report"),),
    ),
)
