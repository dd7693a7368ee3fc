"""The cheap first looks: what they must let through, and what they spare the full parse."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from dslint.core.fact import known
from dslint.engine.imports import lead_to_waits
from dslint.model.context import Context
from dslint.model.script.precheck import has_guarded_collective
from dslint.model.script.quick import Flat, derived
from dslint.model.script.zero.statedstage import may_know_stage
from dslint.python.program import Texts
from dslint.python.project import Project
from dslint.rules.markers import RANKS, WAITS, begins_run, holds_alone

SAVE = "def save(model):\n    dist.barrier()\n\n\ndef world():\n    return dist.get_world_size()\n\n\n"


def _inside(body: str) -> ast.Module:
    return ast.parse(SAVE + "def main(rank, model):\n" + indent(dedent(body), "    "))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if rank == 0:\n    dist.barrier()", True),
        ("if rank == 0:\n    save(model)", True),
        ("r, n = dist.get_rank(), dist.get_world_size()\nif r == 0:\n    save(model)", True),
        ("leads: bool = dist.get_rank() == 0\nif leads:\n    save(model)", True),
        ("if (r := int(os.environ['RANK'])) < 8:\n    pass\nif r == 0:\n    save(model)", True),
        ("leads = rank == 0 and model is not None\nleads and save(model)", True),
        ("if rank != 0:\n    return\nsave(model)", True),
        ("while True:\n    if rank != 0:\n        continue\n    save(model)", True),
        ("if rank != 0:\n    sys.exit()", True),  # whoever calls it goes no further either
        ("if rank != 0:\n    raise SystemExit", True),
        ("if rank != 0:\n    return\nprint(model)", False),  # nothing in this function waits
        ("runner = Runner(rank)\nif runner:\n    save(model)", False),  # made with the rank, and no rank
        ("if model.lora_rank == 0:\n    save(model)", False),
        ("if rank == 0:\n    print(model)", False),
        ("if __name__ == '__main__':\n    save(model)", False),
    ],
)
def test_a_collective_may_stand_behind_a_test_of_the_rank(body: str, found: bool) -> None:
    assert has_guarded_collective(_inside(body)) is found


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


def test_the_stage_of_a_script_may_be_known() -> None:
    stated = (b'{"zero_optimization": {"stage": 3}}', b"DeepSpeedPlugin(", b"deepspeed.zero.Init()", b"if is_zero3:")
    assert all(may_know_stage(Context(), raw) for raw in (*stated, b"args.zero_stage", b"hasattr(p, 'ds_id')"))
    assert not may_know_stage(Context(), b"hidden = torch.zeros(3)\nstage = 2\n")
    assert may_know_stage(Context(zero_stage=known(3)), b"")


def test_classes_below_known_ones_are_found_through_others_and_other_names() -> None:
    tree = ast.parse("Base = hf.Trainer\nclass A(Base[int]): ...\nclass B(A): ...\nclass C(Other): ...\n")
    assert derived(Flat(tree), {"Trainer"}) == {"Base", "A", "B"}
