"""Launch rules beyond their examples: look-alikes, severities, fixes judged by the real bash."""

from __future__ import annotations

import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from dslint.core.finding import Finding
from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.launch.document import read_launch_docs
from dslint.rules.registry import BY_CODE

CODES = sorted(code for code, info in BY_CODE.items() if info.kind == "launch")


def findings(text: str, code: str = "", kind: str = "shell") -> list[Finding]:
    source = SourceFile("run.sh" if kind == "shell" else "README.md", text)
    out: list[Finding] = []
    for doc in read_launch_docs(source, kind):
        for each in [code] if code else CODES:
            out += import_module(BY_CODE[each].module).check(doc, Context())
    return out


def marks(text: str, code: str, kind: str = "shell") -> list[str]:
    return [f"{f.location.region.line} {f.severity.value}" for f in findings(text, code, kind)]


def fixed(text: str, kind: str = "shell") -> str:
    for finding in findings(text, kind=kind):
        if finding.fix:
            return fixed(apply_edits(text, finding.fix.edits), kind)
    return text


# -- Broken continuations ------------------------------------------------------------------------------------------

BROKEN = {
    "lost backslash": "show a \\\n  --x 1\n  --y 2 \\\n  --z 3\n",
    "two lost": "show a\n  --x 1\n  --y 2\n",
    "after a string": 'show --a "no"\n    --b c\n',
    "in a branch": 'if true; then\n  show --a "no"\n  --b c\nfi\n',
    "after a redirection": "show a 2>/dev/null\n  --x 1\n",
    "blank behind": "show a \\ \n  --x 1\n",
    "tab behind": "show a \\\t\n  --x 1 \\  \n  --y 2\n",
    "comment inside": "show a \\\n  # why\n  --x 1\n",
    "comments inside": "show a \\\n  # --old \\\n  # more\n  --x 1 \\\n  # again\n  --y 2\n",
    "comment cuts off the script": "show --n 8 \\\n  # the script\n  train.py --x\n",
    "comment inside a prefix": "A=1 \\\n# why\nshow a\n",
}
LAUNCH = "\n: torchrun\n"


def run(script: str, tmp_path: Path) -> tuple[int, str, str]:
    prelude = 'set -e\nshow() { bash -c \'printf "<%s>" "${A-}" "$@"; echo\' x "$@"; }\n'
    done = subprocess.run(
        ["bash", "-c", prelude + script], capture_output=True, text=True, cwd=tmp_path, timeout=20, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", BROKEN)
def test_bash_runs_all_words_after_the_fix_and_not_before(name: str, tmp_path: Path) -> None:
    script = BROKEN[name]
    assert findings(script + LAUNCH), script
    wanted = [w for line in script.split("\n") if not line.lstrip().startswith("#") for w in line.split()]
    wanted = [w.strip('"') for w in wanted if w not in ("\\", "if", "true;", "then", "fi", "show", "2>/dev/null")]
    before = run(script, tmp_path)
    assert before[0] != 0 or "<>" in before[1], script
    mended = fixed(script + LAUNCH)
    assert findings(mended) == []
    code, out, err = run(mended, tmp_path)
    assert (code, err) == (0, ""), mended
    assert out == "".join(f"<{w}>" for w in (["1", *wanted[1:]] if wanted[0] == "A=1" else ["", *wanted])) + "\n"
    assert [line for line in mended.split("\n") if "#" in line] == [
        line.lstrip() if not line.startswith("#") else line for line in script.split("\n") if "#" in line
    ]


@pytest.mark.parametrize(
    "script",
    [
        "torchrun a.py\n\n--x 1\n",
        "torchrun a.py \\\n  --x 1 \\\n\n",
        "torchrun a.py\n# --x 1\n",
        "torchrun a.py;\n--x 1\n",
        "case $1 in\n  --x)\n    torchrun a.py ;;\n  --y) shift ;;\nesac\n",
        "torchrun a.py 'text\n--x 1\n'\n",
        "cat <<EOF\ntorchrun a.py\n--x 1\nEOF\n",
        "ARGS=(\n  --x 1\n  --y 2\n)\ntorchrun a.py\n",
        'ARGS="\n  --x 1\n"\ntorchrun a.py $ARGS\n',
        "torchrun a.py <(\n--x\n",
        "--x 1\ntorchrun a.py\n",
        "echo '--- a'\n--- a/file\ntorchrun a.py\n",
        "torchrun a.py # note \\ \n  true\n",
        "echo 'a \\ \n--x'\ntorchrun a.py\n",
        "torchrun a.py \\\\ \n",
        "torchrun a.py && \\\n  # then\n  python b.py\n",
        "torchrun a.py \\\n  --x 1 # the last\n",
        "echo a | \\\n  # filter\n  grep a\ntorchrun a.py\n",
    ],
)
def test_look_alikes_of_a_broken_continuation_are_silent(script: str) -> None:
    assert [f for f in findings(script) if f.code in ("DSL301", "DSL302", "DSL303")] == []


def test_a_script_with_dos_line_ends_is_not_full_of_blanks() -> None:
    assert findings("torchrun a.py \\\r\n  --x 1 \\\r\n  --y 2\r\n", "DSL302") == []


def test_the_first_cause_is_reported_once() -> None:
    script = "torchrun \\ # python -m torch.distributed.run\n  --nproc_per_node 2 \\\n  a.py\n"
    assert [f.code for f in findings(script)] == ["DSL303"]


def test_lines_of_a_session_are_mended_behind_their_prompt() -> None:
    text = "```console\n$ torchrun a.py\n    --x 1\n```\n"
    assert fixed(text, "markdown") == text  # output of the command, not a lost option
    text = "> ```sh\n> torchrun a.py \\\n> # why\n>   --x 1\n> ```\n"
    (finding,) = findings(text, "DSL303", "markdown")
    assert finding.fix is None


# -- Ports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun --master_port 65536 a.py", ["1 error"]),
        ("torchrun --master_port 65535 a.py", []),
        ("torchrun --master_port 1024 a.py", []),
        ("torchrun --master_port 1023 a.py", ["1 warning"]),
        ("torchrun --master_port 0 a.py", ["1 error"]),
        ("torchrun --master_port=-1 a.py", ["1 error"]),
        ("torchrun --standalone --master_port 70000 a.py", []),
        ("torchrun --rdzv-backend=c10d --master_port 70000 --rdzv-endpoint=h:29500 a.py", []),
        ("torchrun --rdzv_endpoint=h:70000 a.py", ["1 error"]),
        ("torchrun --rdzv_endpoint=h a.py", []),
        ("accelerate launch --main_process_port 70000 a.py", ["1 error"]),
        ("accelerate launch --main_process_port 0 a.py", []),
        ("P=70000\ntorchrun --master_port $P a.py", ["2 error"]),
        ("torchrun --master_port ${P:-70000} a.py", ["1 error"]),
        ("torchrun --master_port $P a.py", []),
        ("export MASTER_PORT=70000\nsrun python a.py", ["1 error"]),
        ("export MASTER_PORT=70000\ndeepspeed a.py", []),
        ("MASTER_PORT=70000\nsrun python a.py", []),
        ('CMD="deepspeed --master_port 66664 \\\n a.py --x $Y"\neval $CMD', ["1 error"]),
    ],
)
def test_ports_that_take_effect_are_judged(script: str, expected: list[str]) -> None:
    assert marks(script, "DSL309") == expected


def test_ports_in_documentation_weigh_less() -> None:
    text = "```bash\ntorchrun --master_port 70000 a.py\ntorchrun --master_port 80 a.py\n```\n"
    assert marks(text, "DSL309", "markdown") == ["2 warning", "3 info"]
    assert marks("```bash\ntorchrun --master_port <port> a.py --p {port}\n```\n", "DSL309", "markdown") == []


def test_a_port_from_a_variable_names_both_places() -> None:
    (finding,) = findings("P=70000\ntorchrun --master_port $P a.py", "DSL309")
    assert [str(r) for r in finding.related] == ["run.sh:1"]


# -- DeepSpeed backends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("deepspeed -H h --launcher pytorch a.py", ["1 error"]),
        ("deepspeed --force_multi --launcher pytorch a.py", ["1 error"]),
        ("deepspeed --num_nodes 2 --launcher SLURM a.py", []),
        ("deepspeed --num_gpus 8 --launcher standard a.py", ["1 warning"]),
        ("deepspeed --launch=pytorch -H h a.py", []),
        ("accelerate launch --deepspeed_multinode_launcher standard a.py", []),
        ("torchrun a.py --launcher pytorch", []),
        ("deepspeed -H h --launcher '<launcher>' a.py", []),
    ],
)
def test_backends_of_deepspeed(script: str, expected: list[str]) -> None:
    assert marks(script, "DSL328") == expected


# -- XTuner --------------------------------------------------------------------------------------------------------

MULTI = "NPROC_PER_NODE=8 NNODES=2 NODE_RANK=$1 "


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (MULTI + "xtuner train c.py", ["DSL349", "DSL352", "DSL353"]),
        (MULTI + "PORT=29600 ADDR=h xtuner train c.py --launcher pytorch", ["DSL353"]),
        ("export XTUNER_DATASET_TIMEOUT=99\n" + MULTI + "PORT=29600 ADDR=h xtuner train c.py", ["DSL352"]),
        ("export PORT ADDR\n" + MULTI + "xtuner train c.py --launcher pytorch", ["DSL353"]),
        ("PORT=$2\nADDR=$3\n" + MULTI + "xtuner train c.py --launcher pytorch", ["DSL353"]),
        ("set -a\nPORT=29600\nADDR=h\n" + MULTI + "xtuner train c.py --launcher pytorch", ["DSL353"]),
        ("NPROC_PER_NODE=8 xtuner train c.py", []),
        ("NPROC_PER_NODE=8 NNODES=1 xtuner train c.py", []),
        ("xtuner train c.py", []),
        ("NNODES=2 xtuner train -h", []),
        ("NNODES=2 xtuner chat m", []),
        ("srun -n 16 xtuner train c.py", ["DSL352"]),
        ("srun -N 2 -n 16 xtuner train c.py --launcher slurm", ["DSL353"]),
        ("srun -N 2 --ntasks-per-node=1 bash -c 'NPROC_PER_NODE=8 xtuner train c.py'", []),
        ("srun xtuner train c.py $ARGS", []),
    ],
)
def test_xtuner_on_several_nodes(script: str, expected: list[str]) -> None:
    assert sorted(f.code for f in findings(script)) == expected


def test_the_node_count_is_shown_with_its_place() -> None:
    finding = next(f for f in findings("export NNODES=4\nNPROC_PER_NODE=8 xtuner train c.py") if f.code == "DSL352")
    assert [(str(r), r.label) for r in finding.related] == [("run.sh:1", "NNODES=4")]
    assert "4 nodes" in finding.message


@pytest.mark.parametrize("before", ["", "A=1 ", "A=1 \\\n"])
def test_a_variable_below_another_line_is_exported_where_its_statement_begins(before: str) -> None:
    head, statement = "#!/bin/bash\nset -e\n", f"{before}CUDA_VISIBLE_DEVICES=0,1\necho go\n"
    (finding,) = findings(f"{head}{statement}deepspeed train.py\n", "DSL334")
    assert finding.fix is not None
    after = apply_edits(f"{head}{statement}deepspeed train.py\n", finding.fix.edits)
    assert after == f"{head}export {statement}deepspeed train.py\n"
