"""Which ranks come to a call, by the tests, exits and decorators before it."""

from __future__ import annotations

import ast
import builtins
import symtable
import textwrap

import pytest

from dslint.core.source import SourceFile
from dslint.python.beliefs import Beliefs
from dslint.python.lanes import Worlds

_WORLD = Worlds(((1, 4),))
# Words of modules that speak of processes: elsewhere `rank` may be that of a matrix.
_KNOWN = {"os", "sys", "torch", "dist", "op"}
_HEAD = "import os, sys\nimport torch\nimport torch.distributed as dist\nfrom accelerate import Accelerator\n"


def ranks(code: str) -> str:
    """Return which of four ranks call `op()`: `main`, `others` than the main one, `some`, or `all`."""
    source = SourceFile("a.py", _HEAD + code)
    tree = ast.parse(source.text)
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "op"]
    comes = Beliefs(source, tree).ranks(call)
    names = {frozenset(): "nobody", frozenset((0,)): "main", frozenset((1, 2, 3)): "others", frozenset(range(4)): "all"}
    return names.get(comes, "some")


def ranks_of(test: str, before: str = "") -> str:
    """Return which ranks pass a test in a function whose parameters are all names that nothing binds."""
    body = textwrap.indent(f"{before}\nif {test}:\n    op()\n", "    ")
    table = symtable.symtable(f"def f():\n{body}", "a.py", "exec").get_children()[0]
    free = {name for name in table.get_globals() if not hasattr(builtins, name)} - _KNOWN
    return ranks(f"def f({', '.join(sorted(free, key=lambda n: (n != 'self', n)))}):\n{body}")


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
    "world_size == 1 or rank == 0",
    "is_main is True",
    "not (rank != 0)",
    "(is_lead := rank == 0)",
    "(me := dist.get_rank()) == 0",
    "not dist.get_rank()",
    "bool(rank == 0)",
    "str(rank) == '0'",
    "config['local_rank'] == 0",
    "rank is None or rank == 0",
    "is_master(args)",
    "master_process",
    "rank % torch.cuda.device_count() == 0",
]
NOBODY = ["rank > 3", "rank == -1", "local_rank == -1", "rank < 0", "rank is None"]
SOME = [
    "rank != 3",
    "rank in (0, 1)",
    "rank == 3",
    "2 == rank",
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
# Every rank may pass where the job is none, or the launcher another one: what follows is compared for both.
PERHAPS = [
    "not dist.is_initialized() or dist.get_rank() == 0",
    "int(os.environ.get('SLURM_PROCID', 0)) == 0",
    "getattr(args, 'local_rank', 0) == 0",
    "not args.multiprocessing_distributed or (args.multiprocessing_distributed and rank % ngpus_per_node == 0)",
]
NOT_GUARDS = [
    "args.local_rank != -1",
    "local_rank >= 0",
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
    "ranking == 0",
    "rank < 4",
    "rank % tp == 0",
    "is_master(group)",
    "rank in members",
    "lora_config['rank_dropout'] == 0",
]


@pytest.mark.parametrize("test", MAIN)
def test_only_the_main_rank_passes(test: str) -> None:
    assert ranks_of(test) == "main"


@pytest.mark.parametrize("test", NOBODY)
def test_no_rank_passes(test: str) -> None:
    assert ranks_of(test) == "nobody"


@pytest.mark.parametrize("test", OTHERS)
def test_all_but_the_main_rank_pass(test: str) -> None:
    assert ranks_of(test) == "others"


@pytest.mark.parametrize("test", SOME)
def test_a_few_ranks_pass(test: str) -> None:
    assert ranks_of(test) == "some"


@pytest.mark.parametrize("test", [*PERHAPS, *NOT_GUARDS])
def test_every_rank_may_pass(test: str) -> None:
    assert ranks_of(test) == "all"


@pytest.mark.parametrize(
    ("before", "test", "expected"),
    [
        ("is_lead = rank == 0", "is_lead", "main"),
        ("is_lead = dist.get_rank() == 0", "not is_lead", "others"),
        ("me = dist.get_rank()", "me == 0", "main"),
        ("me = int(os.environ['RANK'])", "me == 0", "main"),
        ("is_lead = rank == 0\nis_lead = True", "is_lead", "all"),
        ("is_lead = True\nis_lead = rank == 0", "is_lead", "main"),
        ("if ddp:\n    is_lead = rank == 0\nelse:\n    is_lead = True", "is_lead", "all"),
        ("me = 0\nif ddp:\n    me = dist.get_rank()", "me == 0", "main"),
        ("_rank = find()", "_rank == 0", "main"),
        ("me, n = dist.get_rank(), dist.get_world_size()", "me == 0", "main"),
        (
            "def lead():\n    if not is_initialized():\n        return True\n    return get_rank() == 0",
            "lead()",
            "all",
        ),
        ("def lead():\n    if x:\n        return True\n    return get_rank() == 0", "lead()", "all"),
        ("def lead():\n    return get_rank() == 0", "lead()", "main"),
        ("def lead():\n    'doc'\n    return not is_initialized() or get_rank() == 0", "lead()", "all"),
        ("def lead():\n    log()\n    return get_rank() == 0", "lead()", "main"),
    ],
)
def test_aliases_are_followed(before: str, test: str, expected: str) -> None:
    assert ranks_of(test, before) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f():\n    if rank != 0:\n        return\n    op()", "main"),
        (
            "def f():\n    if not is_main_process:\n        log()\n        return None\n    x = 1\n    op()",
            "main",
        ),
        ("for a in b:\n    if rank == 0:\n        continue\n    op()", "others"),
        ("def f():\n    if rank == 0:\n        x()\n    else:\n        return\n    op()", "main"),
        ("@rank_zero_only\ndef f():\n    op()", "main"),
        ("@master_only\ndef f():\n    if x:\n        op()", "main"),
        ("@accelerator.on_main_process\ndef f():\n    op()", "main"),
        ("if rank == 0:\n    x()\nelse:\n    op()", "others"),
        ("if x:\n    y()\nelif rank == 0:\n    op()", "main"),
        ("if rank == 0:\n    y()\nelif x:\n    op()", "others"),
        ("rank == 0 and op()", "main"),
        ("rank == 0 or op()", "others"),
        ("x = op() if rank == 0 else None", "main"),
        ("while rank == 0:\n    op()", "main"),
        ("if rank == 0:\n    with a:\n        try:\n            op()\n        finally: pass", "main"),
    ],
)
def test_branches_exits_and_decorators_guard(code: str, expected: str) -> None:
    assert ranks(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0:\n    x()\nop()",
        "if rank == op():\n    x()",
        "def f():\n    if rank != 0:\n        if x:\n            return\n    op()",
        "for a in b:\n    if rank == 0:\n        break\nop()",
        "if rank == 0:\n    def f():\n        op()",
        "def f():\n    op()\n    if rank != 0:\n        return",
        "def f():\n    if rank == -1:\n        return\n    op()",
        "@rank_zero_only\ndef f():\n    pass\nop()",
    ],
)
def test_these_places_are_reached_by_every_rank(code: str) -> None:
    assert ranks(code) == "all"


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        ("accelerator.on_last_process", "some"),
        ("accelerator.on_process(process_index=0)", "main"),
        ("accelerator.on_process(process_index=2)", "some"),
        ("accelerator.on_local_process(local_process_index=0)", "main"),
        ("accelerator.on_process(process_index=chosen)", "all"),
    ],
)
def test_decorators_say_which_rank_they_let_in(decorator: str, expected: str) -> None:
    assert ranks(f"accelerator = Accelerator()\n@{decorator}\ndef f():\n    op()\n") == expected
