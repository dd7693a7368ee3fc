"""`config.get("name", default)` of an object that nobody knows: the field of that name, and no more."""

from __future__ import annotations

from pathlib import Path

from dslint.engine.run import check_paths
from dslint.settings import make_settings

TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from project.config import load


def main(cfg):
    cfg.rank = int(os.environ["RANK"])
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, cfg.get(KEY, 0.999)))
    optimizer.step()


main(load())
"""


def found(tmp_path: Path, key: str) -> list[str]:
    (tmp_path / "train.py").write_text(TRAIN.replace("KEY", repr(key)))
    settings = make_settings({"cache": False, "jobs": 1, "select": ["DSL654"]}, tmp_path)
    return [finding.code for finding in check_paths([str(tmp_path)], settings).findings]


def test_another_field_that_holds_the_rank_says_nothing_of_it(tmp_path: Path) -> None:
    assert found(tmp_path, "beta2") == []


def test_the_field_that_holds_the_rank_is_each_ranks_own(tmp_path: Path) -> None:
    assert found(tmp_path, "rank") == ["DSL654"]
