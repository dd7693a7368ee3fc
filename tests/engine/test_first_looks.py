"""The cheap first looks: what they must let through, and what they spare the full parse."""

from __future__ import annotations

from dslint.engine.imports import lead_to_waits
from dslint.python.files import Texts
from dslint.python.project import Project
from dslint.rules.markers import RANKS, WAITS, begins_run, holds_alone


def test_modules_in_which_no_run_begins_are_interpreted_where_ranks_may_part() -> None:
    guarded = b"def save(rank, model):\n    if rank == 0:\n        comm.barrier()\n"
    assert not begins_run(guarded)
    assert holds_alone((RANKS, WAITS), guarded, lambda: False)
    helper = guarded.replace(b"comm.barrier()", b"meet()")
    assert holds_alone((RANKS, WAITS), helper, lambda: True)  # what it imports waits
    assert not holds_alone((RANKS, WAITS), helper, lambda: False)
    assert not holds_alone((RANKS, WAITS), guarded.replace(b"rank", b"order"), lambda: True)
    assert not holds_alone((), guarded, lambda: True)


def test_what_waits_is_found_behind_imports() -> None:
    files = Texts(
        {
            "train.py": "from tools import meet\n",
            "tools/__init__.py": "from .share import *\n",
            "tools/share.py": "def meet():\n    dist.barrier()\n",
            "plain.py": "import tools.other\n",
            "tools/other.py": "x = 1\n",
        }
    )
    project = Project(files)
    for name, found in (("train.py", True), ("plain.py", False)):
        path = files.absolute(name)
        assert lead_to_waits(project, path, files.read(path) or b"") is found
