"""The cheap first looks: what they must let through, and what they spare the full parse."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.model.script.precheck import has_guarded_collective, skipping_tests
from dslint.model.script.quick import Flat, derived
from dslint.model.script.strided import has_strided_work
from dslint.model.script.zero.statedstage import may_know_stage

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


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("for item in items[rank::world_size]:\n    save(item)", True),
        ("for i in range(rank, len(items), world_size):\n    model(i).backward()", True),
        ("r, n = dist.get_rank(), world()\nfor i in items:\n    if i % n != r:\n        continue\n    save(i)", True),
        ("i, step = rank, dist.get_world_size()\nwhile i < 9:\n    save(i)\n    i += step", True),
        ("i = rank\nwhile i < 9:\n    save(i)\n    i += step", False),
        ("share = n // world_size\nlow = rank * share\nfor i in items[low : low + share]:\n    save(i)", True),
        ("low = rank * share\nfor i in items[low : low + share]:\n    save(i)", False),  # who knows the share
        ("for part in items.chunk(n, dim=axis):\n    save(part)", False),
        ("parts = np.array_split(items, world_size)\nfor item in parts[rank]:\n    save(item)", True),
        ("for i in items[tp_rank::tp_size]:\n    save(i)", False),  # within a subgroup
        ("save(items[rank::world_size])", False),  # no loop waits
        ("for item in items:\n    save(item[0::2])", False),  # every other element, on every rank
        ("for i in range(0, len(items), size):\n    save(i)", False),
    ],
)
def test_a_loop_over_one_part_a_rank_may_wait(body: str, found: bool) -> None:
    assert has_strided_work(_inside(body)) is found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if bad:\n    save(model)", True),
        ("for x in xs:\n    if bad:\n        continue\n    save(x)", True),
        ("for x in xs:\n    if bad:\n        stop()\n    save(x)\n\ndef stop():\n    sys.exit()", True),
        ("if bad:\n    print(model)\nsave(model)", False),
        ("for x in xs:\n    if bad:\n        continue\n    loss.backward()", False),  # nothing exchanges gradients
        ("model = DDP(model)\nfor x in xs:\n    if bad:\n        continue\n    loss.backward()", True),
    ],
)
def test_a_test_may_decide_over_a_collective(body: str, found: bool) -> None:
    tree = _inside(body)
    if "DDP" in body:
        tree.body.insert(0, ast.parse("from torch.nn.parallel import DistributedDataParallel as DDP").body[0])
    assert bool(skipping_tests(tree)) is found


def test_the_stage_of_a_script_may_be_known() -> None:
    stated = (b'{"zero_optimization": {"stage": 3}}', b"DeepSpeedPlugin(", b"deepspeed.zero.Init()", b"if is_zero3:")
    assert all(may_know_stage(Context(), raw) for raw in (*stated, b"args.zero_stage", b"hasattr(p, 'ds_id')"))
    assert not may_know_stage(Context(), b"hidden = torch.zeros(3)\nstage = 2\n")
    assert may_know_stage(Context(zero_stage=known(3)), b"")


def test_classes_below_known_ones_are_found_through_others_and_other_names() -> None:
    tree = ast.parse("Base = hf.Trainer\nclass A(Base[int]): ...\nclass B(A): ...\nclass C(Other): ...\n")
    assert derived(Flat(tree), {"Trainer"}) == {"Base", "A", "B"}
