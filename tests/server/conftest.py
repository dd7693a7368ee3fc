from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="pip install 'deepspeed-lint[server]'")

from client import Client

CONFIG = """\
{
  "train_batch_size": 30,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_clipp1ng": 1.0,
  "zero_optimization": {"stage": 2, "cpu_offload": true}
}
"""
SCRIPT = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args)
"""
RUN = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"


def make_project(folder: Path) -> Path:
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "ds.json").write_text(CONFIG)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "run.sh").write_text(RUN)
    return folder


@pytest.fixture
def project(shared: Client) -> Path:
    return shared.folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A project that a test may change on disk, or start a server of its own on."""
    return make_project(tmp_path / "project")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    found = Client(make_project(tmp_path_factory.mktemp("module") / "project"))
    found.begin()
    yield found
    found.kill()


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    """A server on the project, greeted; one for all tests of a module, as it starts in a second."""
    shared.since = len(shared.messages)
    yield shared
    shared.close_all()


@pytest.fixture
def start() -> Iterator[Callable[..., Client]]:
    """Starts servers, and ends them."""
    started: list[Client] = []

    def begin(folder: Path, *arguments: str) -> Client:
        started.append(Client(folder, arguments))
        return started[-1]

    yield begin
    for client in started:
        client.kill()
