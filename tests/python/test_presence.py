"""Whether an argument is given is decided by the caller, and not by what the batch of a rank holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.finding import Severity
from dslint.engine.run import check_paths
from dslint.settings import make_settings

TRAIN = """\
from typing import Dict, List, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Encoder(nn.Module):
    def forward(self, query: ANNOTATION = None, passage: ANNOTATION = None):
        if not query or not passage:
            return None
        q = self.model(query)
        gathered = [torch.empty_like(q) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, q)
        return torch.cat(gathered)


def main(dataset):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Encoder().cuda())
    for query, passage in DataLoader(dataset, sampler=DistributedSampler(dataset)):
        model(query=query, passage=passage)


main(torch.load("data.pt"))
"""


@pytest.mark.parametrize(
    ("annotation", "codes"),
    [("Dict[str, Tensor]", []), ("Optional[Tensor]", []), ("List[str]", ["DSL204"]), ("bool", ["DSL204"])],
)
def test_a_batch_is_given_or_not_on_all_ranks(tmp_path: Path, annotation: str, codes: list[str]) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("ANNOTATION", annotation))
    settings = make_settings({"cache": False, "jobs": 1, "select": ["DSL204"]}, tmp_path)
    found = check_paths([str(tmp_path)], settings).findings
    assert [finding.code for finding in found if finding.severity is not Severity.INFO] == codes
