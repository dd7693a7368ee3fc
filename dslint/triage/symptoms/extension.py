"""C++/CUDA extensions that torch builds when a run starts."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom, doctor

STALL = "extension-stall"

SYMPTOMS = (
    Symptom(
        name=STALL,
        title="A rank's last words are about building or loading a PyTorch extension",
        meaning="torch builds an extension under a lock file and waits for that file without a time limit. A "
        "build that "
        "was killed leaves the lock behind, and every later run waits forever. A first build takes one to five "
        "minutes: wait that long before you believe in a stall.",
        role="state",
        causes=(
            Cause("a lock that a killed build left in the extensions folder", checks=doctor("stale-extension-lock")),
            Cause(
                "a build folder of another torch, CUDA or machine, or a truncated .so",
                checks=doctor("foreign-extension-build"),
            ),
            Cause(
                "the folder is on a network file system, where ranks wait for each other's files",
                checks=doctor("cache-on-network-file-system"),
            ),
            Cause(
                "no compiler, ninja or fitting CUDA tool chain: the build is slow or fails", checks=doctor("tool-chain")
            ),
        ),
    ),
    Symptom(
        name="extension-broken",
        title="A built PyTorch extension cannot be loaded",
        meaning="The shared object in the extensions folder is empty, cut short, or was built for other libraries.",
        role="cause",
        causes=(
            Cause("a build that was killed while it wrote the file", checks=doctor("foreign-extension-build")),
            Cause(
                "a folder copied from, or shared with, another environment", checks=doctor("foreign-extension-build")
            ),
        ),
        patterns=(
            Pattern(r"ImportError: .*\.so: (?:file too short|invalid ELF header|undefined symbol)"),
            Pattern(r"ImportError: .*torch_extensions/.*\.so: cannot open shared object file"),
            Pattern(r"RuntimeError: Error building extension '"),
        ),
    ),
)
