"""The launch stage: workers find what one process finds, and a worker that dies costs no finding."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from dslint.core.profile import Profile
from dslint.engine import launchstage
from dslint.engine.inputs import LaunchFile
from dslint.engine.launchstage import LaunchRead, LaunchReader, LaunchStage
from dslint.engine.packing import pack, unpack
from dslint.engine.run import check_paths
from dslint.engine.workers import Pool
from dslint.model.launch.document import LaunchDoc
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import Settings, make_settings

# How many processes it starts is known only from its caller, which stands before it.
WRITES = """\
cat > ds{0}.json <<EOF
{{"train_batch_size": 7, "zero_optimization": {{"stage": 1}}}}
EOF
deepspeed --num_gpus $1 train.py --deepspeed ds{0}.json
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples of launch and plan rules, each in a folder of its own, and scripts that call each other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launchstage, "POOL_BYTES", 0)
    rules = [rule for rule in all_rules() if rule.kind in ("launch", "plan")]
    examples = [(rule.code, number, e) for rule in rules for number, e in enumerate(load_rule(rule.code).examples[:1])]
    for code, number, example in examples:
        for path, text in example.files.items():
            place = tmp_path / f"{code}-{number}" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    for number in range(30):
        (tmp_path / f"a{number:02}.sh").write_text(f"bash z{number:02}.sh 2\n")
        (tmp_path / f"z{number:02}.sh").write_text(WRITES.format(number))
    (tmp_path / "torn.sh").write_bytes(b"torchrun train.py \xff\xfe")
    return tmp_path


def settings(jobs: int) -> Settings:
    return make_settings({"jobs": jobs, "cache": False})


def test_workers_find_what_one_process_finds(project: Path) -> None:
    begun: list[int] = []
    pool = launchstage._pool

    def watched(files: Sequence[LaunchFile], *rest: object) -> object:
        made = pool(files, *rest)  # type: ignore[arg-type]
        begun.append(len(made._chunks) if made is not None else 0)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launchstage, "_CHUNK", 500)
        patch.setattr(launchstage, "_pool", watched)
        alone, together = check_paths(["."], settings(1)), check_paths(["."], settings(2))
    assert begun[0] == 0
    assert begun[1] > 20
    assert together == alone
    codes = {finding.code for finding in alone.findings}
    assert {"DSL301", "DSL311", "DSL403", "DSL902"} <= codes
    # A config that a script further down the list writes is known when its caller comes.
    called = [f for f in alone.findings if f.location.path == "z29.sh"]
    assert [f.code for f in called] == ["DSL408"]


def test_a_profile_counts_what_workers_spend(project: Path) -> None:
    alone, together = Profile(), Profile()
    check_paths(["."], settings(1), profile=alone)
    check_paths(["."], settings(2), profile=together)
    assert together.files == alone.files
    assert {name: times for name, (_, times) in together.stages.items()} == {
        name: times for name, (_, times) in alone.stages.items()
    }
    assert together.stages["launch files"][0] > 0
    assert together.rules["DSL301"]["handlers"] > 0


FILES = [LaunchFile(f"{n}.sh", "shell", b"torchrun train.py --x %d\n" % n + b"# filled\n" * 900) for n in range(40)]


def commands(stage: LaunchStage) -> list[str]:
    return [command.script_args[-1].text or "" for read in stage for command in read.commands]


def test_a_killed_worker_costs_no_command() -> None:
    with LaunchStage(FILES, LaunchReader({}), 2) as stage:
        assert stage._pool is not None
        processes = list(stage._pool._executor._processes.values())
        os.kill(processes[0].pid or 0, signal.SIGKILL)
        assert commands(stage) == [str(n) for n in range(40)]
    assert not any(process.is_alive() for process in processes)


def test_a_file_that_kills_its_worker_is_named_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = LaunchReader.read

    def deadly(self: LaunchReader, file: LaunchFile, profile: Profile | None = None) -> LaunchRead:
        if file.path == "7.sh":
            os._exit(139)
        return read(self, file, profile)

    beside: list[int] = []
    new = Pool._new

    def counted(self: Pool[LaunchFile, LaunchRead], workers: int) -> ProcessPoolExecutor:
        beside.append(threading.active_count())
        return new(self, workers)

    monkeypatch.setattr(LaunchReader, "read", deadly)
    monkeypatch.setattr(Pool, "_new", counted)
    with LaunchStage(FILES, LaunchReader({}), 2) as stage:
        assert commands(stage) == [str(n) for n in range(40) if n != 7]
        (finding,) = [finding for read in stage for finding in read.findings]
    assert (finding.code, finding.location.path) == ("DSL901", "7.sh")
    assert "died" in finding.message
    assert len(beside) == 3
    assert set(beside) == {beside[0]}  # processes are forked where no thread of another pool runs


def test_a_reader_that_fails_is_a_finding_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(source: object, kind: str, workspace: object) -> list[LaunchDoc]:
        raise ValueError("what nobody foresaw")

    monkeypatch.setattr("dslint.model.launch.document.read_launch_docs", read)
    (found,) = LaunchStage(FILES[:1], LaunchReader({}))
    assert [finding.code for finding in found.findings] == ["DSL901"]
    assert "what nobody foresaw" in found.findings[0].message


def test_workers_begin_only_when_there_is_enough_to_read() -> None:
    for files, workers in ((FILES, 1), (FILES[:10], 2), ([LaunchFile(f.path, "shell", b"") for f in FILES], 2)):
        with LaunchStage(files, LaunchReader({}), workers) as stage:
            assert stage._pool is None


def test_what_travels_is_the_same_behind_the_pipe() -> None:
    text = b"export A=1\nif [ $X ]; then B=2; fi\nsrun -N 2 torchrun --nnodes 2 train.py --b $B $C\n"
    read = LaunchReader({}).read(LaunchFile("run.sh", "shell", text))
    again = unpack(pack(read))
    assert again == read
    command = again.commands[0]
    # Rules ask whether a word is the script, not whether it looks like it.
    assert any(word is command.script for word in command.words)


def long_results(numbers: Sequence[int]) -> list[bytes]:
    return [bytes(5_000_000) for _ in numbers]


@pytest.mark.parametrize("is_interrupt", [False, True])
def test_a_worker_killed_in_the_middle_of_a_long_result_holds_up_nobody(is_interrupt: bool) -> None:
    # The pipe that it would half fill is read by a thread that cannot give up.
    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        pool = Pool(2, [[number] for number in range(10)], long_results, lambda _: b"", lambda: None)
        found = pool.results()
        assert len(next(found)) == 5_000_000
        thread = pool._executor._executor_manager_thread
        if not is_interrupt:
            os.kill(next(iter(pool._executor._processes)), signal.SIGKILL)
            assert [len(one) for one in found] == [5_000_000] * 9
        pool.close(kill=is_interrupt)
        assert thread is not None
        assert not thread.is_alive()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
