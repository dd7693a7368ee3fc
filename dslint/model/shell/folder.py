"""The directory that a script is in after ``cd``."""

from __future__ import annotations

import posixpath
import re

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.shell.flow.choices import ForkNeededError, World, resolve
from dslint.model.shell.pieces import Lookup, UnknownWordError
from dslint.model.shell.scope import Scope
from dslint.model.shell.words import expand_assignment

# Where a queue says from which directory its command was called.
_SUBMITTED = re.compile(
    r"^(?P<quote>\"?)\$(?:\{(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR|LS_SUBCWD|SGE_O_WORKDIR)(?::?-[^}]*)?\}"
    r"|(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR|LS_SUBCWD|SGE_O_WORKDIR)\b)"
)


def changed_directory(arguments: list[str], script: str, scope: Scope, world: World) -> Fact[str]:
    """The directory after ``cd ARGUMENTS`` in the file ``script``: relative to the project, or absolute.

    Raises:
        ForkNeededError: it depends on a fork that the world says nothing about.
    """
    arguments = [a for a in arguments if a not in ("-P", "-L", "--")]
    if len(arguments) != 1 or arguments[0].startswith(("-", "+")):
        return unknown("`cd` without a readable directory")
    raw = arguments[0]
    lookup = scope.lookup(world)
    lookup.script = script
    try:
        target = expand_assignment(raw, lookup)
    except ForkNeededError:
        raise
    except UnknownWordError:
        return _from_the_start(raw, lookup) or unknown(f"`cd {raw}`")
    if target.startswith("/"):
        return known(posixpath.normpath("/" + target.lstrip("/")))
    if _is_from_the_top(raw, target, script):
        return known(posixpath.normpath(target))
    cwd: Fact[str] = resolve(scope.directory, world)
    if cwd.is_unknown and scope.remote and raw != target:
        cwd = absent()  # `ssh host "cd $HERE && ..."`: the path is that of the machine which has expanded it
    if cwd.is_unknown:
        return cwd
    path = posixpath.normpath(posixpath.join(cwd.get_or(""), target))
    # Back where it began: as if it had never left, also where only one of two branches did.
    return absent() if path == "." else known(path)


def _from_the_start(raw: str, lookup: Lookup) -> Fact[str] | None:
    """The directory below the one from which a job was handed to the queue, where it begins; else nothing."""
    inner, count = _SUBMITTED.subn(r"\g<quote>.", raw, count=1)
    if not count:
        return None
    try:
        path = posixpath.normpath(expand_assignment(inner, lookup))
    except UnknownWordError:
        return None
    return None if path.startswith("/") else absent() if path == "." else known(path)


def _is_from_the_top(raw: str, target: str, script: str) -> bool:
    """The path begins with the folder of the script, which is counted from the top of the project."""
    if re.search(r"\$\{?(?:0|BASH_SOURCE)", raw):
        return True
    folder = posixpath.dirname(script)
    return bool(folder) and raw != target and (target + "/").startswith(folder + "/")
