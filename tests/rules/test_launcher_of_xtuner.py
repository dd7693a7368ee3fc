"""The incident that started dslint: eight nodes of ``xtuner train`` without ``--launcher``, as people write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dslint

_TAIL = "xtuner train configs/qwen_7b.py --deepspeed deepspeed_zero3"
_SET = "NPROC_PER_NODE=8 NNODES=8 NODE_RANK=$RANK PORT=29600 ADDR=$MASTER_ADDR"
_BATCH = "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n\n"

SPELLINGS = {
    "in front of the command": ("run.sh", f"{_SET} {_TAIL}\n"),
    "exported": ("run.sh", "export NPROC_PER_NODE=8\nexport NNODES=8\nexport NODE_RANK=$1\n" + _TAIL + "\n"),
    "exported later": ("run.sh", "NNODES=8\nNPROC_PER_NODE=8\nexport NNODES NPROC_PER_NODE\n" + _TAIL + "\n"),
    "over several lines": ("run.sh", _SET.replace(" ", " \\\n") + " \\\n" + _TAIL.replace(" --", " \\\n  --") + "\n"),
    "by env": ("run.sh", f"env {_SET} {_TAIL}\n"),
    "with nohup and a log": ("run.sh", f"{_SET} nohup {_TAIL} > log.txt 2>&1 &\n"),
    "through tee": ("run.sh", f"{_SET} {_TAIL} 2>&1 | tee log.txt\n"),
    "by a variable of the platform": ("run.sh", f"{_SET.replace('NNODES=8', 'NNODES=$WORLD_SIZE')} {_TAIL}\n"),
    "with braces": ("run.sh", f"{_SET.replace('NNODES=8', 'NNODES=${PET_NNODES}')} {_TAIL}\n"),
    "the config is an argument": ("run.sh", f"CONFIG=$1\n{_SET} {_TAIL.replace('configs/qwen_7b.py', '$CONFIG')}\n"),
    "in a function": ("run.sh", f"train() {{\n  {_SET} {_TAIL}\n}}\ntrain\n"),
    "in a loop over the nodes": ("run.sh", f"for i in 0 1 2 3 4 5 6 7; do\n  ssh node$i \"{_SET} {_TAIL}\" &\ndone\n"),
    "by eval": ("run.sh", f'CMD="{_TAIL}"\nexport NNODES=8 NPROC_PER_NODE=8\neval "$CMD"\n'),
    "none": ("run.sh", f"{_SET} {_TAIL} --launcher none\n"),
    "a batch job without srun": ("job.sbatch", f"{_BATCH}{_SET} {_TAIL}\n"),
    "a batch job with srun": ("job.sbatch", f"{_BATCH}export NPROC_PER_NODE=8 NNODES=8\nsrun {_TAIL}\n"),
    "a batch job, counts of Slurm": (
        "job.slurm",
        f"{_BATCH}export NPROC_PER_NODE=8 NNODES=$SLURM_NNODES\nsrun bash -c 'NODE_RANK=$SLURM_NODEID {_TAIL}'\n",
    ),
    "a batch job, eight tasks a node": ("job.sh", f"{_BATCH.replace('node=1', 'node=8')}srun {_TAIL}\n"),
    "Markdown": ("README.md", f"# Train\n\n```bash\n{_SET} {_TAIL}\n```\n"),
    "Markdown without a language": ("README.md", f"# Train\n\n```\n{_SET} {_TAIL}\n```\n"),
    "Markdown with a prompt": ("README.md", f"# Train\n\n```console\n$ {_SET} {_TAIL}\n```\n"),
    "Markdown in a list": ("README.md", f"1. Train:\n\n    ```shell\n    {_SET} {_TAIL}\n    ```\n"),
    "Markdown, exported": ("docs/train.md", f"```sh\nexport NNODES=8\nexport NPROC_PER_NODE=8\n{_TAIL}\n```\n"),
    "a directive of MyST": ("docs/train.md", f"```{{code-block}} shell\n:caption: train\n\n{_SET} {_TAIL}\n```\n"),
    "torchrun and the script of the library": (
        "run.sh",
        "torchrun --nnodes 8 --nproc_per_node 8 --node_rank $RANK --master_addr $ADDR xtuner/tools/train.py"
        " configs/qwen_7b.py --deepspeed deepspeed_zero3\n",
    ),
    "torchrun and the module of the library": (
        "run.sh",
        "torchrun --nnodes 8 --nproc_per_node 8 --node_rank $RANK --master_addr $ADDR -m xtuner.tools.train"
        " configs/qwen_7b.py --deepspeed deepspeed_zero3\n",
    ),
    "srun and the script of mmengine": (
        "job.sbatch", f"{_BATCH.replace('node=1', 'node=8')}srun python tools/train.py configs/qwen_7b.py\n"
    ),
    "mpirun and the script of mmengine": ("run.sh", "mpirun -np 64 python tools/train.py configs/qwen_7b.py\n"),
    "deepspeed and the script of mmengine": ("run.sh", "deepspeed tools/train.py configs/qwen_7b.py\n"),
    "a wrapper of OpenMMLab": (
        "tools/dist_train.sh",
        "CONFIG=$1\nGPUS=$2\ntorchrun --nnodes=$NNODES --nproc_per_node=$GPUS --master_addr=$A --node_rank=$R"
        " $(dirname $0)/train.py $CONFIG\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_it_is_a_warning_however_it_is_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = SPELLINGS[name]
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/qwen_7b.py").write_text("model = {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    report = json.loads(
        dslint("--isolated", "--no-cache", "--output-format", "json", "--select", "DSL352,DSL404", ".").out
    )
    assert [finding["severity"] in ("warning", "error") for finding in report["findings"]] == [True], report["findings"]
