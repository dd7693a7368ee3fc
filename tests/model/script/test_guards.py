"""Rank guards: what counts as one, what only looks like one, and which guarded collectives are paired."""

from __future__ import annotations

import pytest
from script_helpers import call, calls, script

from dslint.model.script.ranks.guards import Guard
from dslint.model.script.ranks.rankset import Ranks


def guard_of(code: str, name: str = "op") -> Guard | None:
    ctx = script(code)
    return ctx.guard(call(ctx, name))


def ranks_of(test: str, before: str = "") -> str:
    found = guard_of(f"{before}\nif {test}:\n    op()\n")
    return found.ranks.value if found else "all"


MAIN = [
    "rank == 0",
    "0 == rank",
    "not rank",
    "rank in (-1, 0)",
    "rank in [0]",
    "rank < 1",
    "rank <= 0",
    "1 > rank",
    "local_rank == 0",
    "args.local_rank == 0",
    "self.rank == 0",
    "accelerator.process_index == 0",
    "dist.get_rank() == 0",
    "torch.distributed.get_rank() == 0",
    "int(os.environ['RANK']) == 0",
    "os.environ['LOCAL_RANK'] == '0'",
    "int(os.environ.get('SLURM_PROCID', 0)) == 0",
    "os.getenv('RANK') == '0'",
    "rank % gpus_per_node == 0",
    "accelerator.is_main_process",
    "accelerator.is_local_main_process",
    "trainer.is_world_process_zero()",
    "self.is_local_process_zero()",
    "trainer.is_global_zero",
    "is_rank_0()",
    "is_master()",
    "args.should_save",
    "training_args.should_save",
    "self.args.should_save",
    "rank == 0 and args.verbose",
    "args.verbose and rank == 0",
    "dist.is_initialized() and dist.get_rank() == 0",
    "not dist.is_initialized() or dist.get_rank() == 0",
    "world_size == 1 or rank == 0",
    "is_main is True",
    "not (rank != 0)",
    "(is_lead := rank == 0)",
    "(me := dist.get_rank()) == 0",
    "not dist.get_rank()",
    "bool(rank == 0)",
    "str(rank) == '0'",
    "getattr(args, 'local_rank', 0) == 0",
    "config['local_rank'] == 0",
    "rank is None or rank == 0",
    "is_master(args)",
    "master_process",
    "rank % torch.cuda.device_count() == 0",
    "not args.multiprocessing_distributed or (args.multiprocessing_distributed and rank % ngpus_per_node == 0)",
]
SOME = [
    "rank == 3",
    "2 == rank",
    "rank > 3",
    "rank >= 2",
    "rank in (1, 2)",
    "rank == world_size - 1",
    "dist.get_rank() == dist.get_world_size() - 1",
    "rank != 0 and rank == 1",
    "not rank < 2",
]
OTHERS = [
    "rank > 0",
    "rank != 0",
    "rank",
    "rank >= 1",
    "not is_main_process",
    "rank not in (-1, 0)",
    "is_main_process == False",
    "not accelerator.is_main_process and x",
]
NOT_GUARDS = [
    "rank == -1",
    "local_rank == -1",
    "args.local_rank != -1",
    "local_rank >= 0",
    "rank < 0",
    "state.should_save",
    "control.should_save",
    "world_size > 1",
    "dist.is_initialized()",
    "step % 10 == 0",
    "rank == 0 or True",
    "rank == 0 or args.all_ranks",
    "mpu.get_tensor_model_parallel_rank() == 0",
    "dist.get_rank(group) == 0",
    "tp_rank == 0",
    "lora_rank == 0",
    "self.lora_rank > 0",
    "rank == dst",
    "is_pipeline_last_stage()",
    "rank is None",
    "ranking == 0",
    "rank < 4",
    "rank != 3",
    "rank % tp == 0",
    "is_master(group)",
    "rank in (0, 1)",
    "rank in members",
    "lora_config['rank_dropout'] == 0",
]


@pytest.mark.parametrize("test", MAIN)
def test_only_the_main_rank_passes(test: str) -> None:
    assert ranks_of(test) == "main"


@pytest.mark.parametrize("test", OTHERS)
def test_all_but_the_main_rank_pass(test: str) -> None:
    assert ranks_of(test) == "others"


@pytest.mark.parametrize("test", SOME)
def test_a_few_ranks_pass(test: str) -> None:
    assert ranks_of(test) == "some"


@pytest.mark.parametrize("test", NOT_GUARDS)
def test_every_rank_may_pass(test: str) -> None:
    assert ranks_of(test) == "all"


@pytest.mark.parametrize(
    ("before", "test", "ranks"),
    [
        ("is_lead = rank == 0", "is_lead", "main"),
        ("is_lead = dist.get_rank() == 0", "not is_lead", "others"),
        ("me = dist.get_rank()", "me == 0", "main"),
        ("me = int(os.environ['RANK'])", "me == 0", "main"),
        ("is_lead = rank == 0\nis_lead = True", "is_lead", "all"),
        ("is_lead = True\nis_lead = rank == 0", "is_lead", "main"),
        ("if ddp:\n    is_lead = rank == 0\nelse:\n    is_lead = True", "is_lead", "main"),
        ("me = 0\nif ddp:\n    me = dist.get_rank()", "me == 0", "main"),
        ("_rank = find()", "_rank == 0", "main"),
        ("me, n = dist.get_rank(), dist.get_world_size()", "me == 0", "main"),
        (
            "def lead():\n    if not is_initialized():\n        return True\n    return get_rank() == 0",
            "lead()",
            "main",
        ),
        ("def lead():\n    if x:\n        return True\n    return get_rank() == 0", "lead()", "all"),
        ("def lead():\n    return get_rank() == 0", "lead()", "main"),
        ("def lead():\n    'doc'\n    return not is_initialized() or get_rank() == 0", "lead()", "main"),
        ("def lead():\n    log()\n    return get_rank() == 0", "lead()", "all"),
    ],
)
def test_aliases_are_followed(before: str, test: str, ranks: str) -> None:
    assert ranks_of(test, before) == ranks


@pytest.mark.parametrize(
    ("code", "ranks", "kind"),
    [
        ("def f():\n    if rank != 0:\n        return\n    op()", Ranks.MAIN, "exit"),
        (
            "def f():\n    if not is_main_process:\n        log()\n        return None\n    x = 1\n    op()",
            Ranks.MAIN,
            "exit",
        ),
        ("for a in b:\n    if rank == 0:\n        continue\n    op()", Ranks.OTHERS, "exit"),
        ("if rank != 0:\n    sys.exit()\nop()", Ranks.MAIN, "exit"),
        ("def f():\n    if rank == 0:\n        x()\n    else:\n        return\n    op()", Ranks.MAIN, "exit"),
        ("@rank_zero_only\ndef f():\n    op()", Ranks.MAIN, "decorator"),
        ("@master_only\ndef f():\n    if x:\n        op()", Ranks.MAIN, "decorator"),
        ("@accelerator.on_main_process\ndef f():\n    op()", Ranks.MAIN, "decorator"),
        ("if rank == 0:\n    x()\nelse:\n    op()", Ranks.OTHERS, "test"),
        ("if x:\n    y()\nelif rank == 0:\n    op()", Ranks.MAIN, "test"),
        ("if rank == 0:\n    y()\nelif x:\n    op()", Ranks.OTHERS, "test"),
        ("rank == 0 and op()", Ranks.MAIN, "test"),
        ("rank == 0 or op()", Ranks.OTHERS, "test"),
        ("x = op() if rank == 0 else None", Ranks.MAIN, "test"),
        ("while rank == 0:\n    op()", Ranks.MAIN, "test"),
        ("if rank == 0:\n    with a:\n        try:\n            op()\n        finally: pass", Ranks.MAIN, "test"),
    ],
)
def test_branches_exits_and_decorators_guard(code: str, ranks: Ranks, kind: str) -> None:
    found = guard_of(code)
    assert found is not None
    assert (found.ranks, found.kind) == (ranks, kind)


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0:\n    x()\nop()",
        "if rank == op():\n    x()",
        "def f():\n    if rank != 0:\n        if x:\n            return\n    op()",
        "for a in b:\n    if rank == 0:\n        break\nop()",
        "if rank == 0:\n    def f():\n        op()",
        "if rank == 0:\n    f = lambda: op()",
        "def f():\n    op()\n    if rank != 0:\n        return",
        "def f():\n    if rank == -1:\n        return\n    op()",
        "def f():\n    if rank == 0:\n        if rank != 0:\n            op()",
        "@rank_zero_only\ndef f():\n    pass\nop()",
    ],
)
def test_these_places_are_reached_by_every_rank(code: str) -> None:
    assert guard_of(code) is None


# -- pairing ------------------------------------------------------------------------------------------------------

DIST = "import torch.distributed as dist\n"


def pairing(code: str, name: str = "barrier") -> list[bool]:
    ctx = script(DIST + code)
    lonely = {id(found.op.call) for found in ctx.divergences.certain()}
    events = [ctx.summaries.event(c) for c in calls(ctx, name)]
    return [id(e.call) not in lonely for e in events if e is not None and e.guard is not None]


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    if rank != 0:\n        dist.barrier()\n    x()\n    if rank == 0:\n        dist.barrier()",
        "if rank == 0:\n    x()\n    dist.barrier()\nelse:\n    dist.barrier()",
        "def f():\n    if rank != 0:\n        dist.barrier()\n        return\n    x()\n    dist.barrier()",
        "@contextmanager\ndef first():\n    if rank != 0:\n        dist.barrier()\n"
        "    yield\n    if rank == 0:\n        dist.barrier()",
        "class C:\n    def __enter__(self):\n        if rank != 0:\n            dist.barrier()\n"
        "    def __exit__(self):\n        if rank == 0:\n            dist.barrier()",
        "def begin():\n    if not is_main_process:\n        dist.barrier()\n"
        "def end():\n    if is_main_process:\n        dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    wait_for_main()",
        "if rank == 0:\n    dist.barrier()\nelif rank == 1:\n    dist.barrier()\nelse:\n    dist.barrier()",
        "match rank:\n    case 0:\n        dist.barrier()\n    case 1:\n        dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    self.sync_with(rank)",
        "def wait():\n    dist.barrier()\nif rank == 0:\n    dist.barrier()\nelse:\n    wait()",
        "def f():\n    if rank == 0:\n        for x in y:\n            dist.barrier()\n    else:\n        for x in y:\n"
        "            dist.barrier()",
    ],
)
def test_the_other_ranks_run_the_same_operation(code: str) -> None:
    found = pairing(code)
    assert found
    assert all(found)


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0:\n    dist.barrier()",
        "def f():\n    if rank != 0:\n        return\n    dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    x()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.all_reduce(t)",
        "if rank == 0:\n    dist.barrier()\n    dist.barrier()\nelse:\n    dist.barrier()",
        "if rank == 1:\n    dist.barrier()",
        "if rank == 0:\n    x()\nelif rank == 1:\n    dist.barrier()",
        "match rank:\n    case 0:\n        dist.barrier()",
        "def f():\n    if rank == 0:\n        dist.barrier()\ndef g():\n    if rank == 0:\n        dist.barrier()",
    ],
)
def test_nobody_answers(code: str) -> None:
    assert not all(pairing(code))


# -- summaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("dist.barrier()", ["barrier"]),
        ("if dist.is_initialized():\n        dist.barrier()", ["barrier"]),
        ("if not is_dist_avail_and_initialized():\n        return\n    dist.barrier()", ["barrier"]),
        ("for x in y:\n        dist.all_reduce(x)", ["all_reduce"]),
        ("inner()", ["all_reduce"]),
        ("if rank == 0:\n        dist.barrier()", []),
        ("if sync:\n        dist.barrier()", []),
        ("if x is None:\n        return\n    dist.barrier()", []),
        ("dist.barrier(group=g)", []),
        ("x()", []),
        ("def later():\n        dist.barrier()", []),
        ("helper()", []),
    ],
)
def test_a_helper_runs_the_collectives_that_it_does_not_guard_itself(body: str, runs: list[str]) -> None:
    code = f"{DIST}def inner():\n    dist.all_reduce(t)\ndef helper(sync=True):\n    {body}\nhelper()\n"
    ctx = script(code)
    event = ctx.summaries.event(list(calls(ctx, "helper"))[-1])
    assert [c.key for c in event.collectives] == runs if event else runs == []


def test_only_the_call_too_many_has_no_partner() -> None:
    assert pairing("if rank == 0:\n    dist.barrier()\n    dist.barrier()\nelse:\n    dist.barrier()") == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("decorator", "ranks"),
    [
        ("accelerator.on_last_process", "some"),
        ("accelerator.on_process(process_index=0)", "main"),
        ("accelerator.on_process(process_index=2)", "some"),
        ("accelerator.on_local_process(local_process_index=0)", "main"),
        ("accelerator.on_process(process_index=chosen)", "all"),
    ],
)
def test_decorators_say_which_rank_they_let_in(decorator: str, ranks: str) -> None:
    found = guard_of(f"@{decorator}\ndef f():\n    op()\n")
    assert (found.ranks.value if found else "all") == ranks


def test_ranks_that_leave_before_the_group_exists_are_no_part_of_it() -> None:
    leave = "def f():\n    if rank % gpus_per_node != 0:\n        exit(0)\n"
    assert guard_of(leave + "    op()\n") is not None
    assert guard_of(leave + "    dist.init_process_group('nccl')\n    op()\n") is None
    assert guard_of("dist.init_process_group('nccl')\n" + leave + "    op()\n") is not None


def test_system_exit_leaves_and_an_error_ends_the_job() -> None:
    assert guard_of("def f():\n    if rank:\n        raise SystemExit\n    op()\n") is not None
    assert guard_of("def f():\n    if rank:\n        raise ValueError\n    op()\n") is None
