"""What has certainly run before an event: the order that rules ask of the tree."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl242_process_group_made_twice as dsl242

HEAD = "import deepspeed\nimport torch.distributed as dist\nfrom datetime import timedelta\nLONG = timedelta(hours=2)\n"
LATE = "deepspeed.init_distributed(timeout=LONG)\n"

BEFORE = {
    "a loop that always runs": "for _ in (0, 1):\n    dist.barrier()\n    dist.init_process_group('nccl')\n    break\n",
    "a block that is left by an error only": """
try:
    dist.init_process_group('nccl')
except RuntimeError:
    raise
""",
    "an error on the other way": """
if dist.is_available():
    dist.init_process_group('nccl')
else:
    raise SystemExit
""",
    "a function that returns early on another way": """
def start(args):
    if args:
        deepspeed.init_distributed()
        return
    dist.init_process_group('nccl')
start(open('x'))
""",
    "what was destroyed is made again": """
dist.init_process_group('nccl')
dist.destroy_process_group()
dist.init_process_group('nccl')
""",
    "the end of a with statement": "with open('x'):\n    dist.init_process_group('nccl')\n",
}
NOT_BEFORE = {
    "a loop over something": "for _ in open('x'):\n    dist.init_process_group('nccl')\n",
    "an error that is caught": """
try:
    dist.init_process_group('nccl')
except RuntimeError:
    pass
""",
    "a function that may leave": """
def start(args):
    if args:
        return
    dist.init_process_group('nccl')
start(open('x'))
""",
    "a loop that may go on": """
for _ in (0, 1):
    if open('x'):
        continue
    dist.init_process_group('nccl')
""",
    "it may be destroyed": """
dist.init_process_group('nccl')
for _ in open('x'):
    dist.destroy_process_group()
""",
    "on one way it is destroyed": """
dist.init_process_group('nccl')
if open('x'):
    dist.destroy_process_group()
""",
    "by rank 0 only": "if dist.get_rank() == 0:\n    dist.init_process_group('nccl')\n",
}


@pytest.mark.parametrize("name", BEFORE)
def test_before(name: str) -> None:
    assert queried(dsl242, HEAD + BEFORE[name] + LATE)


@pytest.mark.parametrize("name", NOT_BEFORE)
def test_not_before(name: str) -> None:
    assert not queried(dsl242, HEAD + NOT_BEFORE[name] + LATE)


def test_a_function_that_is_called_twice() -> None:
    """The second way to a call is its own, though both share what the call does."""
    start = "def start():\n    deepspeed.init_distributed(timeout=LONG)\n"
    assert not queried(dsl242, HEAD + start + "start()\n")
    assert not queried(dsl242, HEAD + start + "start()\nstart()\n"), "the same timeout"
    found = queried(dsl242, HEAD + "def start():\n    dist.init_process_group('nccl')\nstart()\nstart()\n")
    assert [f.severity.value for f in found] == ["error"]
