"""A local rank that nobody sets is told once: by the rule about the GPU that is chosen by it, else by the other one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.settings import make_settings

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\nsrun python train.py\n"
SCRIPT = """\
import os

import torch
import torch.distributed as dist

rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("nccl", rank=rank, world_size=world)
%s
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', ["DSL424"]),
        ('print(os.environ["LOCAL_RANK"])', ["DSL746"]),
        ('torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))', []),
    ],
)
def test_it_is_told_once(line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "job.sh").write_text(JOB)
    (tmp_path / "train.py").write_text(SCRIPT % line)
    monkeypatch.chdir(tmp_path)
    found = check_paths(["."], make_settings({"cache": False, "jobs": 1}, Path(os.curdir))).findings
    assert [finding.code for finding in found if finding.code in ("DSL424", "DSL746")] == expected
