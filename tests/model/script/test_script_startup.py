"""How a file comes to run, and what it writes into the environment."""

from __future__ import annotations

import pytest

from tests.script_helpers import call, script


@pytest.mark.parametrize(
    ("code", "certain"),
    [
        ("mark()", True),
        ("if __name__ == '__main__':\n    mark()", True),
        ("def main():\n    mark()\n\nmain()", True),
        ("def inner():\n    mark()\n\ndef main():\n    inner()\n\nif __name__ == '__main__':\n    main()", True),
        ("with open('x'):\n    mark()", True),
        ("try:\n    mark()\nexcept OSError:\n    pass", True),
        ("try:\n    pass\nexcept OSError:\n    mark()", False),
        ("if test:\n    mark()", False),
        ("for x in y:\n    mark()", False),
        ("def main():\n    mark()", False),
        ("def main():\n    if test:\n        return\n    mark()\n\nmain()", False),
        ("def main():\n    main()\n    mark()", False),
        ("class A:\n    def run(self):\n        mark()\n\nA().run()", False),
        ("x = mark() if y else 1", False),
    ],
)
def test_what_every_process_runs(code: str, certain: bool) -> None:
    ctx = script(code)
    assert ctx.startup.runs_always(call(ctx, "mark")) is certain


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("if __name__ == '__main__':\n    pass", True),
        ("args = parser.parse_args()", True),
        ("def helper():\n    pass", False),
    ],
)
def test_a_program_or_a_module(code: str, entry: bool) -> None:
    assert script(code).startup.is_entry is entry


def test_writes_into_the_environment() -> None:
    ctx = script(
        """
        import os
        from os import environ
        PORT = "29501"
        os.environ["MASTER_PORT"] = PORT
        environ["RANK"] = str(0)
        os.environ.update({"WORLD_SIZE": "2"}, LOCAL_RANK=local())
        os.environ.setdefault("NODE_RANK", "0")
        other["RANK"] = "1"
        """
    )
    found = [(write.name, write.text) for write in ctx.startup.environment_writes]
    assert found == [("MASTER_PORT", "29501"), ("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", None)]


@pytest.mark.parametrize(
    "code",
    [
        "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)",
        "import subprocess",
        "import ray",
        "p = ctx.Process(target=main)",
    ],
)
def test_scripts_that_start_processes(code: str) -> None:
    assert script(code).startup.starts_processes


def test_scripts_that_start_none() -> None:
    assert not script("import torch\ntorch.distributed.init_process_group('nccl')").startup.starts_processes
