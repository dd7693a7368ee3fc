"""The cache of results: never a wrong finding, never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import SCRIPT, dslint

from dslint.engine import cache, scripts
from dslint.engine.judge import Judge


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    assert dslint().codes == ["DSL221", "DSL201"]
    return list((tmp_path / "cache").iterdir())


def test_a_second_run_says_the_same_in_every_format(files: list[Path]) -> None:
    assert len(files) == 1
    for output_format in ("concise", "full", "json", "github", "sarif"):
        with_cache = dslint("--output-format", output_format)
        assert with_cache == dslint("--output-format", output_format, "--no-cache")
    assert dslint("--diff") == dslint("--diff", "--no-cache")


def test_results_of_other_settings_facts_and_texts_are_not_reused(project: Path, files: list[Path]) -> None:
    assert dslint("--select", "DSL201").codes == ["DSL201"]
    assert dslint("--per-file-ignores", "*.py:DSL201").codes == ["DSL221"]
    (project / "dslint.toml").write_text('[severity]\nDSL2 = "info"\n')
    assert dslint().code == 0
    (project / "dslint.toml").unlink()
    (project / "train.py").write_text("from datetime import timedelta\n" + SCRIPT.replace("7200", "timedelta(1)"))
    assert dslint().places == [("train.py:6:5", "DSL201")]
    (project / "train.py").rename(project / "other.py")
    assert dslint().places == [("other.py:6:5", "DSL201")]


def test_workers_that_look_for_markers_find_the_same_and_it_is_remembered(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(scripts.POOL_THRESHOLD + 5):
        (project / f"train{number}.py").write_text(SCRIPT + "# filled\n" * 900)
        (project / f"config{number}.py").write_text("model = dict(rank=4)\n" * 400)
    alone = dslint("--no-cache", "--jobs", "1")
    assert alone.codes.count("DSL201") == scripts.POOL_THRESHOLD + 6
    monkeypatch.setattr(scripts, "_LOOK_APART", 1000)
    assert dslint("--no-cache", "--jobs", "2") == alone
    assert dslint("--jobs", "2") == alone
    looked: list[scripts.Job] = []
    monkeypatch.setattr(scripts, "_look", lambda jobs, *_: looked.extend(jobs) or ())
    monkeypatch.setattr(Judge, "judged", lambda _, job: looked.append(job))
    assert dslint("--jobs", "2") == alone
    assert dslint("--jobs", "1") == alone
    assert not looked, "all of it is in the cache"


@pytest.mark.parametrize("content", [b"", b"[[", b"[]", b'{"a": [1]}', b"\xff\x00", b'"text"', b"[" * 100_000])
def test_a_broken_cache_counts_as_none(files: list[Path], content: bytes) -> None:
    for file in files:
        file.write_bytes(content)
    assert dslint().codes == ["DSL221", "DSL201"]
    assert dslint().codes == ["DSL221", "DSL201"]


def test_broken_rows_count_as_none(files: list[Path]) -> None:
    (file,) = files
    tables = json.loads(file.read_text())
    for broken in (1, None, "x", [1], [{}], [{"c": "DSL201"}], {"c": 1}):
        rows_of = {
            name: dict.fromkeys(rows, broken) if isinstance(rows, dict) else [broken] for name, rows in tables.items()
        }
        file.write_text(json.dumps(rows_of))
        assert dslint().codes == ["DSL221", "DSL201"], broken
        file.write_text(json.dumps(dict.fromkeys(tables, broken)))
        assert dslint().codes == ["DSL221", "DSL201"], broken


@pytest.mark.parametrize("place", ["/dev/null/x", "train.py", "train.py/x", "nul\0byte"])
def test_a_cache_that_cannot_be_written_is_no_error(project: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = dslint("--cache-dir", place)
    assert done.codes == ["DSL221", "DSL201"]
    assert done.err == "Found 2 errors in 1 of 1 file. [*] 2 fixable with `--fix`.\n"
    assert (project / "train.py").read_text() == SCRIPT


def test_no_cache_writes_nothing(project: Path, tmp_path: Path) -> None:
    assert dslint("--no-cache").code == 1
    assert not (tmp_path / "cache").exists()


def test_the_folder_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.default_directory() == Path("/somewhere/dslint")
    # The specification: relative paths are invalid and ignored.
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache.default_directory() == Path("/home/somebody/.cache/dslint")


def test_a_crash_is_not_remembered(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslint.rules.script import dsl201_collective_under_rank_guard as rule

    def crash(*_: object) -> None:
        raise RuntimeError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(rule, "lonely", crash)
        done = dslint("--select", "DSL201")
        assert (done.code, done.codes) == (2, ["DSL901"])
    assert dslint("--select", "DSL201").codes == ["DSL201"]


def test_results_of_another_dslint_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "dslint"
    (package / "engine").mkdir(parents=True)
    (package / "rules").mkdir()
    rule = package / "rules" / "rule.py"
    rule.write_text("old = 1\n")
    monkeypatch.setattr(cache, "__file__", str(package / "engine" / "cache.py"))
    before = cache.program_fingerprint()
    assert cache.program_fingerprint() == before
    rule.write_text("another = 2\n")
    assert cache.program_fingerprint() != before


STEPS = """\
def step(model, loss, last):
    if last:
        loss.backward()
        return
    with model.no_sync():
        loss.backward()
"""
TRAIN = """\
import torch
import torch.distributed as dist
from steps import step
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 1).cuda())
    for at, (x, y) in enumerate(loader):
        step(model, torch.nn.functional.mse_loss(model(x), y), (at + 1) % 4 == 0)
    dist.destroy_process_group()
"""


def test_a_finding_in_an_imported_file_stays_there(project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    (project / "steps.py").write_text(STEPS)
    first = dslint("--ignore", "DSL223", ".")
    assert first.out.startswith("steps.py:5:")
    assert dslint("--ignore", "DSL223", ".") == first
    # Named alone, the script is still the one whose run shows the mistake, and a comment in the other file counts.
    assert dslint("--ignore", "DSL223", "train.py").codes == ["DSL275"]
    (project / "steps.py").write_text(STEPS.replace("no_sync():", "no_sync():  # dslint: ignore[DSL275]"))
    for paths in (["."], ["train.py"]):
        assert dslint("--ignore", "DSL223", *paths).codes == []


STREAM = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        from parts import mine

        yield from mine(range(9))


def main():
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 1).cuda())
    for batch in DataLoader(Lines()):
        model(batch).mean().backward()


if __name__ == "__main__":
    main()
"""


def test_a_file_that_only_a_rule_has_read_counts(project: Path) -> None:
    (project / "train.py").write_text(STREAM)
    (project / "parts.py").write_text("def mine(items):\n    return items\n")
    assert dslint("--select", "DSL281").codes == ["DSL281"]
    (project / "parts.py").write_text(
        "import torch.distributed as dist\n\n\ndef mine(items):\n"
        "    return items[dist.get_rank() :: dist.get_world_size()]\n"
    )
    assert dslint("--select", "DSL281").codes == []


def test_what_another_script_loads_is_looked_at_again(project: Path) -> None:
    (project / "train.py").write_text(_SAVES)
    load = project / "evaluate.py"
    load.write_text(_LOADS)
    assert dslint("--select", "DSL647").places == [("train.py:8:12", "DSL647")]
    load.write_text(_LOADS.replace("state)", 'state["other"])'))
    assert dslint("--select", "DSL647").codes == []
    load.unlink()
    assert dslint("--select", "DSL647").codes == []
    (project / "tools").mkdir()
    (project / "tools" / "test.py").write_text(_LOADS)
    assert dslint("--select", "DSL647").places == [("train.py:8:12", "DSL647")], "a new file is found"


_SAVES = """\
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
model(torch.ones(4)).sum().backward()
torch.save(model.state_dict(), "net.pt")
"""
_LOADS = """\
import torch
from torch import nn

model = nn.Linear(4, 4)
state = torch.load("net.pt")
model.load_state_dict(state)
"""
