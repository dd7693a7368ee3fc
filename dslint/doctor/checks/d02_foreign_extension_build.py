"""Builds of PyTorch extensions that are broken, or made for another environment.

**What.** In the extensions root that a job of this shell would use: libraries that are empty, cut off, no ELF file or
for another processor; `build.ninja` files that name another torch, or folders that do not exist; a
`TORCH_EXTENSIONS_DIR` that ends in the folder of another environment (`py310_cu118`); a root that this user cannot
write to.

**Why it hurts.** ninja takes a library that is there for up to date. An empty one raises `ImportError: file too short`
on every rank; a cut-off one ends the process with SIGBUS and no traceback. A build for another torch is compiled anew
by the next job, minutes in which nothing is logged; with `TORCH_EXTENSIONS_DIR` there is no folder per environment, so
two environments overwrite each other's builds.

**How it is known.** ELF header, program headers and section table against the size of the file; the `-isystem` paths of
`build.ninja` against the torch of the environment. Folders whose lock is in use are left alone.

**Repair.** Remove the library, or the one folder of the build: the next job makes it again.

**Evidence.** `torch/utils/cpp_extension.py` (`_get_build_directory`, `_write_ninja_file`). Measured: empty library
ImportError, cut-off library SIGBUS, corrupt `build.ninja` repaired by torch.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from dslint.core.words import counted
from dslint.doctor.elf import damage
from dslint.doctor.extensions import TAG, Build, Root, builds, root_in_use
from dslint.doctor.locks import Verdict, judge
from dslint.doctor.machine import Machine
from dslint.doctor.ninjafile import read_paths
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.words import listed

META = CheckMeta("D2", "foreign-extension-build", "Extension builds that are broken or made for another environment")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each bad build, one in all when there is none."""
    root = root_in_use(machine)
    tag = machine.python.build_tag
    outcomes = [*_not_writable(root, tag), *(_stated_tag(str(root.path), tag) if root.stated else ())]
    own: list[Build] = []
    others: list[Build] = []
    for build in filter(Build.is_torchs, builds(root)):
        # The default root keeps the environments apart: what lies in the folder of another one does no harm.
        (own if root.stated or build.tag in (None, tag) else others).append(build)
    for build in own:
        # What a live build has half written is not broken.
        if judge(machine, build.lock).verdict is not Verdict.IN_USE:
            outcomes += [*_libraries(build), *_paths(machine, build)]
    if outcomes:
        return outcomes
    if not own and not others:
        return [ok(f"no builds in {root.path}")]
    if tag is None and not root.stated:
        return [
            unknown(
                f"{counted(len(others), 'build')} in {root.path}",
                "there is no torch in this environment to compare with",
            )
        ]
    rest = f", {len(others)} of other environments" if others else ""
    return [ok(f"{counted(len(own), 'whole build')} in {root.path}{rest}")]


def _not_writable(root: Root, tag: str | None) -> Iterator[Outcome]:
    """A folder that another user made, often root by way of sudo or a container."""
    for path in (root.path, *([root.path / tag] if tag and not root.stated else ())):
        if os.path.isdir(path) and not os.access(path, os.W_OK):
            reason = (
                "a job of this user cannot make its lock there: PermissionError on every rank that loads an extension"
            )
            yield error(f"{path} is not writable", reason, f'sudo chown -R "$USER" {shlex.quote(str(path))}')


def _stated_tag(path: str, tag: str | None) -> Iterator[Outcome]:
    named = os.path.basename(path.rstrip("/"))
    if tag and TAG.match(named) and named != tag:
        reason = f"this environment builds {tag}: libraries of another Python, CUDA or torch would be loaded or rebuilt"
        yield warning(f"TORCH_EXTENSIONS_DIR={path} is the folder of {named}", reason, "unset TORCH_EXTENSIONS_DIR")


def _libraries(build: Build) -> Iterator[Outcome]:
    for library in sorted(build.folder.glob("*.so")):
        try:
            wrong = damage(library, os.uname().machine)
        except OSError as problem:
            yield unknown(f"{library} cannot be read", problem.strerror or str(problem))
            continue
        if wrong:
            reason = f"{wrong}; ninja takes it for up to date, and every rank that loads it fails"
            yield error(f"{library} is broken", reason, f"rm {shlex.quote(str(library))}")


def _paths(machine: Machine, build: Build) -> Iterator[Outcome]:
    text = machine.read(build.folder / "build.ninja")
    if text is None:
        return
    paths = read_paths(text)
    missing = [path for path in paths.of_environment if not os.path.exists(path)]
    rebuild = "the next job compiles it anew, minutes in which nothing is logged"
    repair = f"rm -r {shlex.quote(str(build.folder))}"
    if missing:
        yield warning(
            f"{build.folder} was built with paths that do not exist", f"{listed(missing, 2)}: {rebuild}", repair
        )
        return
    torch = machine.python.torch
    if torch and paths.torch and os.path.realpath(paths.torch) != os.path.realpath(torch.folder):
        reason = f"{paths.torch}, not {torch.folder}: {rebuild}, and the two environments overwrite each other"
        yield warning(f"{build.folder} was built for another torch", reason, repair)
