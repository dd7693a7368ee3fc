"""Which launch experiment a finding leads to, and with what of the user's file; nothing is run."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from launch_helpers import plan_of

from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.launch.document import read_launch_docs
from dslint.probe.experiment import Subject
from dslint.probe.experiments import (
    broken_continuation,
    deepspeed_arguments,
    launcher_not_told,
    nodes_never_meet,
    process_without_launcher,
    torchrun_flags,
)
from dslint.probe.registry import of_finding
from dslint.rules.registry import BY_CODE

INCIDENT = Path(__file__).parents[1] / "fixtures" / "projects" / "xtuner-8-nodes"


def _probed(code: str, text: str) -> tuple[str, dict[str, Any]]:
    (doc,) = read_launch_docs(SourceFile("run.sh", text), "shell")
    judged = plan_of(text, {"train.py": "print()\n"}) if BY_CODE[code].kind == "plan" else doc
    finding = next(iter(import_module(BY_CODE[code].module).check(judged, Context())))
    found = of_finding(Subject(finding, text))
    assert found is not None
    return f"{found[0].experiment.name}/{found[1].name}", dict(found[1].params)


# -- The shape of a broken command -----------------------------------------------------------------------------------

SHAPES = {
    "lost backslash": (
        "DSL301",
        'A=1 torchrun --nproc_per_node 8 $HERE/tools/train.py \\\n  --lr "$LR"\n  --out /data/run1 \\\n  --bf16\n',
        ["torchrun --nproc_per_node 8 train.py \\", "  --lr value", "  --out run1 \\", "  --bf16"],
    ),
    "a comment between": (
        "DSL301",
        "python train.py \\\n  --lr 1\n  # evaluation\n  --bf16\n",
        ["python train.py \\", "  --lr 1", "  # comment", "  --bf16"],
    ),
    "a comment above the command": (
        "DSL302",
        "# torchrun old.py \\\ntorchrun train.py \\ \n  --lr 1\necho done\n",
        ["torchrun train.py \\ ", "  --lr 1"],
    ),
    "the script is cut off": (
        "DSL303",
        "torchrun \\\n  # one node\n  tools/train.py --bf16\n",
        ["torchrun \\", "  # comment", "  value --bf16"],
    ),
    "behind the backslash": (
        "DSL303",
        "torchrun \\ # on one node\n  --nproc_per_node 8 train.py\n",
        ["torchrun \\ # comment", "  --nproc_per_node 8 train.py"],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_of_the_command_is_taken_over(name: str) -> None:
    code, text, lines = SHAPES[name]
    case, params = _probed(code, text)
    assert case.startswith("broken-continuation/")
    assert params["lines"] == lines


def test_a_blank_behind_the_last_backslash_has_a_case_of_its_own() -> None:
    case, params = _probed("DSL302", "torchrun train.py --lr 2e-5 \\ \necho done\n")
    assert (case, params["lines"]) == (
        "broken-continuation/blank-behind-last-backslash",
        ["torchrun train.py --lr 2e-5 \\ "],
    )


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf / \\\n  --x 1\n  --y 2\n",  # no launcher
        'torchrun train.py --note "a # b" \\\n  --x 1\n  --y 2\n',  # a quoted mark of a comment
        "torchrun train.py --note 'a\n  --b' \\\n  --x 1\n  --y 2\n",  # a string over lines
    ],
)
def test_what_is_no_plain_command_is_probed_with_the_built_in_one(text: str) -> None:
    case, params = _probed("DSL301", text)
    assert case == "broken-continuation/no-backslash"
    assert params == dict(broken_continuation.EXPERIMENT.cases[0].params)


@pytest.mark.parametrize(
    "words",
    [
        "$(touch x)", "`touch x`", "> x", ">x", "| sh", "; touch x", "&& touch x", "& touch x", "<(touch x)", "~/x",
        "{a,b}", "*", "../../bin/sh", "$HOME", "${X:-$(touch x)}", "\\; touch x", "!!", "'a' \"b\"", "(touch x)",
    ],
)  # fmt: skip
def test_nothing_that_bash_would_act_on_is_left(words: str) -> None:
    text = f"torchrun train.py {words} \\\n  --x {words}\n  --y {words}\n  exec {words}\n"
    lines = broken_continuation._shape(text, 2, 2)
    assert lines is not None
    for number, line in enumerate(lines):
        first, *rest = line.removesuffix("\\").split()
        assert first == "torchrun" if number == 0 else re.fullmatch(r"--?[a-z]", first)
        assert all(re.fullmatch(r"[A-Za-z0-9_.=:,+@-]+", word) for word in rest)


@pytest.mark.parametrize("line", ["kill -9 1", ". x", "exec sh", "cd x", "/bin/sh x", "A=1 sh"])
def test_a_line_that_is_cut_off_begins_with_no_command(line: str) -> None:
    assert broken_continuation._neutral(f"  {line} \\", first=False).split()[0] == "value"


def test_what_bash_loses_is_named() -> None:
    wanted = [{"argv": ["torchrun", "train.py", "--lr", "1"], "rc": 0, "said": []}]

    def say(argv: list[str], *said: str) -> str | None:
        return broken_continuation.wrong([{"argv": argv, "rc": 127, "said": list(said)}], wanted)

    assert say(["torchrun", "train.py", "--lr", "1"]) is None
    assert say(["torchrun", "train.py"], "--lr: command not found") == (
        "torchrun never gets `--lr 1`; bash says `--lr: command not found`"
    )
    assert "one argument more, a blank" in str(say(["torchrun", "train.py", "--lr", "1", " "]))


# -- Ports, launchers, nodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "case", "port"),
    [
        ("torchrun --nproc_per_node 8 --master_port 66664 train.py", "torchrun-above", 66664),
        ("deepspeed --num_gpus 8 --master_port 70000 train.py", "process-above", 70000),
        ("accelerate launch --num_processes 8 --main_process_port 70000 train.py", "accelerate-above", 70000),
        ("NPROC_PER_NODE=8 PORT=99999 xtuner train c.py", "torchrun-above", 99999),
        ("torchrun --nproc_per_node 8 --master_port 0 train.py", "torchrun-zero", 0),
        ("deepspeed --num_gpus 8 --master_port=23 train.py", "system-port", 23),
    ],
)
def test_the_port_of_the_finding_is_tried(command: str, case: str, port: int) -> None:
    name, params = _probed("DSL309", command + "\n")
    assert (name, params["port"]) == (f"port-out-of-range/{case}", port)


@pytest.mark.parametrize(
    ("options", "case"),
    [
        ("--hostfile hosts --num_nodes 2", "launcher-value"),
        ("--hostfile hosts --num_nodes 1", "launcher-value-on-one-node"),
        ("--force_multi", "launcher-value"),
    ],
)
def test_the_value_of_launcher_is_tried_on_as_many_nodes(options: str, case: str) -> None:
    name, params = _probed("DSL328", f"deepspeed {options} --launcher torch train.py\n")
    assert name == f"deepspeed-arguments/{case}"
    assert params["words"][-3:] == ["--launcher", "torch", "train.py"]


@pytest.mark.parametrize(
    ("variables", "case"),
    [
        ("ADDR=10.0.0.1", "different-ports"),
        ("PORT=29600", "master-is-localhost"),
        ("", "different-ports"),
    ],
)
def test_what_is_not_set_says_where_the_nodes_wait(variables: str, case: str) -> None:
    text = f"NPROC_PER_NODE=8 NNODES=2 NODE_RANK=$1 {variables} xtuner train c.py --launcher pytorch\n"
    assert _probed("DSL349", text)[0] == f"nodes-never-meet/{case}"


@pytest.mark.parametrize(
    ("text", "case", "world"),
    [
        ("srun -n 16 xtuner train c.py\n", "srun", 16),
        ("srun ${SRUN_ARGS} xtuner train c.py\n", "srun", 2),
        ("NPROC_PER_NODE=8 NNODES=8 NODE_RANK=$1 PORT=1 ADDR=$2 xtuner train c.py\n", "torchrun", 2),
        ("mpirun -n 4 xtuner train c.py\n", "mpirun", 4),
    ],
)
def test_processes_without_launcher_are_started_as_the_command_does(text: str, case: str, world: int) -> None:
    name, params = _probed("DSL352", text)
    assert (name, params["world"]) == (f"launcher-not-told/{case}", world)


def test_the_incident_is_probed_with_its_own_numbers() -> None:
    from dslint.engine.run import check_paths
    from dslint.settings import load_settings

    result = check_paths([str(INCIDENT)], load_settings(INCIDENT, {}))
    found = {f.code: of_finding(Subject(f)) for f in result.findings if f.severity.value == "error"}
    chosen = {code: f"{it[0].experiment.name}/{it[1].name}" for code, it in found.items() if it is not None}
    assert chosen == {
        "DSL349": "nodes-never-meet/different-ports",
        "DSL352": "launcher-not-told/srun",
        "DSL404": "launcher-not-told/torchrun",
    }
    assert found["DSL404"] is not None
    assert found["DSL404"][1].params["world"] == 64


# -- Oracles ---------------------------------------------------------------------------------------------------------


def _note(world: int | None, samples: int = 8, error: str | None = None) -> dict[str, Any]:
    return {"world": world, "samples": list(range(samples)) if world else None, "error": error}


def test_processes_that_are_alone_are_counted() -> None:
    right = [[_note(2, 4), _note(2, 4)]]
    assert launcher_not_told.wrong(right, right) is None
    assert "16 in all where 8" in str(launcher_not_told.wrong([[_note(1), _note(1)]], right))
    failed = [[_note(None, error="KeyError: 'RANK'")] * 2]
    assert launcher_not_told.wrong(failed, right) == "2 processes, each ends with KeyError: 'RANK'"


def test_processes_and_hosts_are_counted() -> None:
    both = [[["0", "a"], ["1", "a"], ["2", "b"], ["3", "b"]]]
    assert deepspeed_arguments.wrong(both, both) is None
    one = deepspeed_arguments.wrong([[["0", "localhost"], ["1", "localhost"]]], both)
    assert one == "deepspeed starts 2 processes on 1 host instead of 4 on 2"
    alone = torchrun_flags.wrong([[{"rank": "0", "argv": ["--nproc_per_node", "2"]}]], [[{}, {}]])
    assert alone == "torchrun starts 1 process instead of 2, and the script gets the arguments `--nproc_per_node 2`"


def test_a_node_that_is_alone_is_told() -> None:
    right = [{"worlds": [2]}, {"worlds": [2]}]
    assert nodes_never_meet.wrong(right, right) is None
    said = nodes_never_meet.wrong([{"worlds": [1]}, {"error": "DistStoreError: no"}], right)
    assert said == "node 0 trains alone, in a world of 1, and node 1 ends with DistStoreError: no"
    assert process_without_launcher.wrong([[1, 1]], [[2, 2]]) == "2 processes, each in a world of 1"
    assert process_without_launcher.wrong([[2, 2]], [[2, 2]]) is None


HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"


@pytest.mark.parametrize(
    ("code", "text", "case"),
    [
        ("DSL304", "torchrun --nproc_per_node 8 \\\n\n  train.py\n", "broken-continuation/blank-line-then-script"),
        ("DSL305", "torchrun --nproc_per_node = 8 train.py\n", "torchrun-flags/equals-alone"),
        ("DSL306", "torchrun \u2013nproc_per_node 8 train.py\n", "torchrun-flags/smart-dash"),
        ("DSL306", "torchrun train.py --name \u201ca\u201d\n", "torchrun-flags/smart-quotes"),
        ("DSL308", "torchrun --num_gpus 8 train.py\n", "torchrun-flags/flag-of-deepspeed"),
        ("DSL308", "deepspeed --num-gpus 8 train.py\n", "launcher-options-refused/hyphens"),
        ("DSL308", "accelerate launch --nproc_per_node 8 train.py\n", "launcher-options-refused/option-of-torchrun"),
        ("DSL311", "torchrun --nnodes 2 --nproc_per_node 8 train.py\n", "nodes-never-meet/nnodes-alone"),
        ("DSL311", "torchrun --nnodes 2 --rdzv_backend c10d train.py\n", "nodes-never-meet/c10d-without-endpoint"),
        ("DSL312", "torchrun --nnodes 2 --node_rank 1 --master_addr localhost a.py\n",
         "nodes-never-meet/master-is-localhost"),
        ("DSL313", "torchrun --standalone --nnodes 2 train.py\n", "nodes-never-meet/standalone"),
        ("DSL316", HEAD + "srun torchrun --nnodes 2 --node_rank $SLURM_PROCID --master_addr $A train.py\n",
         "rank-expanded-early/double-quotes"),
        ("DSL319", HEAD + "srun torchrun --nnodes 2 --nproc_per_node 8 train.py\n",
         "nodes-never-meet/two-agents-on-a-node"),
        ("DSL322", "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py\n",
         "deepspeed-arguments/visible-devices-and-num_gpus"),
        ("DSL323", "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_nodes 1 train.py\n",
         "deepspeed-arguments/visible-devices-and-num_nodes"),
        ("DSL324", "deepspeed --include a:0 --num_gpus 2 train.py\n", "deepspeed-arguments/include-and-num_gpus"),
        ("DSL324", "deepspeed --include a --exclude b train.py\n", "deepspeed-arguments/include-and-exclude"),
        ("DSL325", "deepspeed --num_nodes 2 train.py\n", "deepspeed-arguments/num_nodes-without-hostfile"),
    ],
)  # fmt: skip
def test_a_finding_about_a_launcher_leads_to_its_own_case(code: str, text: str, case: str) -> None:
    name, _ = _probed(code, text)
    assert name == case
