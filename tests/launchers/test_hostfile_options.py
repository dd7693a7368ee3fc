"""What options make of a hostfile: DeepSpeed's own functions judge the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.engine.planning import plan_paths
from dslint.settings import load_settings

_HOSTS = "worker-0 slots=4\nworker-1 slots=4\n"
_OPTIONS = ["", "--num_nodes 4", "--num_nodes 1", "--num_gpus 8", "--num_gpus 2", "--num_nodes 1 --num_gpus 8"]


@pytest.mark.parametrize("options", _OPTIONS)
def test_counts_are_those_of_deepspeed(options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = pytest.importorskip("deepspeed.launcher.runner")
    if not hasattr(runner, "apply_num_nodes_and_gpus"):
        pytest.skip("this release has no function of its own for it")
    (tmp_path / ".git").mkdir()
    (tmp_path / "hosts").write_text(_HOSTS)
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "run.sh").write_text(f"deepspeed --hostfile hosts {options} train.py\n")
    monkeypatch.chdir(tmp_path)
    args = runner.parse_args(["--hostfile", "hosts", *options.split(), "train.py"])
    pool = runner.parse_inclusion_exclusion(runner.fetch_hostfile(args.hostfile), args.include, args.exclude)
    hosts = runner.apply_num_nodes_and_gpus(pool, args.num_nodes, args.num_gpus)
    (plan,) = plan_paths(["run.sh"], load_settings(Path(), {})).plans
    assert plan.nodes.get() == len(hosts)
    assert plan.world_size.get() == sum(map(len, hosts.values()))
    asks_more = args.num_nodes > 2 or args.num_gpus > 4
    assert (plan.hostfile is not None) == asks_more


@pytest.mark.parametrize(
    "option",
    ["--include=worker-0:2,4", "--include=worker-0:2,3@worker-1", "--include=worker-2", "--exclude=worker-1:4",
     "--exclude=worker-1", "--exclude=worker-0:0@worker-1:3", "--include=worker-0:0@worker-7:1"],
)  # fmt: skip
def test_hosts_and_slots_that_are_not_there_are_those_that_deepspeed_refuses(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = pytest.importorskip("deepspeed.launcher.runner")
    (tmp_path / ".git").mkdir()
    (tmp_path / "hosts").write_text(_HOSTS)
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "run.sh").write_text(f"deepspeed --hostfile hosts {option} train.py\n")
    monkeypatch.chdir(tmp_path)
    args = runner.parse_args(["--hostfile", "hosts", option, "train.py"])
    try:
        runner.parse_inclusion_exclusion(runner.fetch_hostfile(args.hostfile), args.include, args.exclude)
        is_refused = False
    except ValueError:
        is_refused = True
    (plan,) = plan_paths(["run.sh"], load_settings(Path(), {})).plans
    assert (plan.hostfile is not None and plan.hostfile.kind in ("host", "slot")) is is_refused
