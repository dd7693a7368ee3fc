"""The environment of launch commands, what stands around them, and edits on their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.launch.around import in_background, piped_into
from dslint.model.launch.document import LaunchDoc, read_launch_docs
from dslint.model.launch.environment import kept, settings
from dslint.model.launch.flagedits import without_flag
from dslint.model.launch.ncclnames import OBSOLETE, RENAMED, is_known, is_nccl, is_timeout, meant
from dslint.model.plan.groupmade import joins_group
from dslint.model.workspace import Workspace


def doc(text: str) -> LaunchDoc:
    return read_launch_docs(SourceFile("run.sh", text), "shell")[0]


# -- Names of NCCL -------------------------------------------------------------------------------------------------

READ = (
    "NCCL_DEBUG NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_IB_TIMEOUT NCCL_P2P_LEVEL NCCL_NET_GDR_LEVEL NCCL_CUMEM_ENABLE"
    " NCCL_OFI_PROTOCOL NCCL_UCX_TLS NCCL_TUNER_CONFIG_PATH NCCL_HOME NCCL_ROOT_DIR NCCL_VERSION NCCL_BLOCKING_WAIT"
    " NCCL_TESTS_PATH TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_NCCL_AVOID_RECORD_STREAMS"
)
MEANT = {
    "NCCL_SOCKET_IFNAM": "NCCL_SOCKET_IFNAME",
    "NCCL_IFNAME_SOCKET": "NCCL_SOCKET_IFNAME",
    "NCLL_DEBUG": "NCCL_DEBUG",
    "NCCCL_IB_HCA": "NCCL_IB_HCA",
    "TORCH_NCCL_DEBUG": "NCCL_DEBUG",
    "NCCL_HEARTBEAT_TIMEOUT_SEC": "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_ASYNC_ERROR_HANDELING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_LAB_CLUSTER": "",
    "NCCL_NUM_CHANNELS": "",
}


@pytest.mark.parametrize("name", [*READ.split(), *sorted(RENAMED), *sorted(OBSOLETE)])
def test_a_name_that_some_release_plugin_or_build_reads_is_known(name: str) -> None:
    assert (is_nccl(name), is_known(name), is_timeout(name)) == (True, True, False)


@pytest.mark.parametrize("name", MEANT)
def test_a_misspelt_name_leads_to_the_one_that_is_meant(name: str) -> None:
    assert (is_nccl(name), is_known(name)) == (True, False)
    assert meant(name) == MEANT[name]
    assert not MEANT[name] or is_known(MEANT[name])


@pytest.mark.parametrize("name", ["NCCL_TIMEOUT", "NCCL_COMM_TIMEOUT", "TORCH_NCCL_TIMEOUT", "NCCL_TIMEOUT_MS"])
def test_nccl_has_no_time_out(name: str) -> None:
    assert (is_timeout(name), is_known(name)) == (True, False)


# -- Variables -----------------------------------------------------------------------------------------------------


def test_a_setting_is_told_once_and_at_its_place() -> None:
    found = list(settings(doc("export A=1\nB=2 torchrun a.py\nB=3 env C=4 torchrun b.py\nD=5\ntorchrun c.py\n")))
    assert [(s.text, s.location.region.line) for s in found] == [("A=1", 1), ("B=2", 2), ("B=3", 3), ("C=4", 3)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=1\ntorchrun a.py\n", ["A"]),
        ("A=1 B=2\ntorchrun a.py\n", ["A", "B"]),
        ("A=1\nexport A\ntorchrun a.py\n", []),
        ("set -a\nA=1\ntorchrun a.py\n", []),
        ("declare -x A=1\ntorchrun a.py\n", []),
        ("A=1 torchrun a.py\n", []),
        ("torchrun a.py\nA=1\n", []),
        ("if $X; then A=1; fi\ntorchrun a.py\n", []),
    ],
)
def test_what_the_shell_keeps_for_itself(script: str, expected: list[str]) -> None:
    assert [name for name, _ in kept(doc(script).commands[0])] == expected


# -- Around a command ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun a.py | tee log\n", "tee"),
        ("torchrun a.py 2>&1 | tee log\n", "tee"),
        ("cd x && torchrun a.py | grep -v b | tee log\n", "tee"),
        ("if true; then\n  A=1 torchrun a.py | tee log\nfi\n", "tee"),
        ("yes | torchrun a.py\n", ""),
        ("torchrun a.py > log\n", ""),
        ("torchrun a.py\nls | tee log\n", ""),
    ],
)
def test_the_end_of_the_pipe(script: str, expected: str) -> None:
    found = doc(script)
    assert piped_into(found, found.commands[0]) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun a.py &\n", True),
        ("torchrun a.py > log 2>&1 &\n", True),
        ("torchrun a.py | tee log &\n", True),
        ("(torchrun a.py) &\n", True),
        ("torchrun a.py && ls &\n", True),
        ("torchrun a.py\nls &\n", False),
        ("for i in 1 2; do torchrun a.py; done &\n", True),
        ("for i in 1 2; do torchrun a.py & done\n", True),
        ("train() {\n  torchrun a.py\n}\ntrain &\n", False),
    ],
)
def test_what_runs_in_the_background(script: str, expected: bool) -> None:
    found = doc(script)
    assert in_background(found, found.commands[0]) is expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("deepspeed --x 1 --no_python a.py\n", "deepspeed --x 1 a.py\n"),
        ("deepspeed \\\n  --no_python \\\n  a.py\n", "deepspeed \\\n  a.py\n"),
        ("deepspeed --x 1 $FLAGS a.py\n", None),
        ("FLAGS=--no_python\ndeepspeed $FLAGS a.py\n", None),
    ],
)
def test_an_option_is_deleted_where_it_stands_in_the_command(script: str, expected: str | None) -> None:
    command = doc(script).commands[0]
    flag = command.launcher_flag("--no_python")
    fix = without_flag(command, flag) if flag is not None else None
    assert (apply_edits(script, fix.edits) if fix is not None else None) == expected


# -- Scripts that join a group -------------------------------------------------------------------------------------

HEAD = "import torch.distributed as dist\n"
JOINS = 'dist.init_process_group("nccl")\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (JOINS, True),
        ("def main():\n    " + JOINS + "\n\nmain()\n", True),
        ("def main():\n    with a():\n        " + JOINS + '\n\nif __name__ == "__main__":\n    main()\n', True),
        ('dist.init_process_group("nccl", init_method="env://")\n', True),
        ("def main():\n    " + JOINS, False),
        ("def main():\n    if a:\n        return\n    " + JOINS + "\n\nmain()\n", False),
        ("if a:\n    " + JOINS, False),
        ("try:\n    " + JOINS + "except ValueError:\n    pass\n", False),
        ('dist.init_process_group("nccl", rank=0, world_size=1)\n', False),
        ('dist.init_process_group("nccl", init_method="file:///x")\n', False),
        ("import os\nos.environ['RANK'] = '0'\n" + JOINS, False),
        ("import deepspeed\n" + JOINS, False),
        ("import sys\nif len(sys.argv) < 2:\n    sys.exit(1)\n" + JOINS, False),
        ("this is no python\n" + JOINS, False),
    ],
)
def test_a_script_joins_a_group_on_its_main_path(body: str, expected: bool) -> None:
    source = SourceFile("train.py", HEAD + body)
    workspace = Workspace(Path("/nonexistent"), {source.path: source.text})
    assert (joins_group(source, workspace) is not None) is expected
