"""``dslint triage``: every symptom on a log that shows it, silence on those that do not, ranks, order, streams."""

from __future__ import annotations

import gzip
import io
import json
import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.arguments import COMMANDS
from dslint.doctor.registry import all_checks
from dslint.rules.registry import BY_CODE
from dslint.triage import gates
from dslint.triage import scan as scanning
from dslint.triage.blocks import blocks
from dslint.triage.command import main
from dslint.triage.hit import FileResult
from dslint.triage.ranks import Labels, rank_of_file, spoken
from dslint.triage.scan import Scan
from dslint.triage.symptom import Symptom
from dslint.triage.symptoms import SYMPTOMS
from dslint.triage.verdict import Diagnosis, diagnose
from tests.triage_logs import (
    CASES,
    COLLAPSED,
    GLOO,
    HEALTHY,
    OTHER_WORDS,
    RUN,
    START,
    STEPS,
    USING,
    elastic,
    raised,
    watchdog,
)


def scan(log: str | bytes, path: str = "train.log") -> FileResult:
    data = log.encode() if isinstance(log, str) else log
    return Scan(path).run(io.BytesIO(data).read)


def triage(**logs: str) -> Diagnosis:
    return diagnose([scan(log, f"{name}.log") for name, log in logs.items()])


def names(diagnosis: Diagnosis) -> tuple[str, ...]:
    return tuple(verdict.symptom.name for verdict in diagnosis.verdicts)


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda s: s.name)
def test_a_symptom_is_found_in_a_log_that_shows_it(symptom: Symptom) -> None:
    case = CASES[symptom.name]
    assert symptom.name in case.shows
    assert 18 <= case.log.count("\n") <= 80
    found = triage(run=case.log)
    assert names(found) == case.shows
    assert case.story in found.story


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda s: s.name)
def test_the_quoted_line_stands_where_the_report_says(symptom: Symptom) -> None:
    log = CASES[symptom.name].log
    for verdict in triage(run=log).verdicts:
        for hit in verdict.hits:
            line = log.split("\n")[hit.line - 1]
            start = hit.text.split(" rank: ")[0][:60]
            assert start in re.sub(r"\s+$", "", line).replace("\r", " "), hit


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_shows_nothing(name: str) -> None:
    assert names(triage(run=HEALTHY[name])) == ()


def test_every_case_belongs_to_a_symptom() -> None:
    assert set(CASES) == {symptom.name for symptom in SYMPTOMS}


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda s: s.name)
def test_a_symptom_names_rules_and_commands_that_exist(symptom: Symptom) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+|aborted", symptom.name)
    assert symptom.causes
    assert symptom.meaning.endswith(".")
    for cause in symptom.causes:
        assert not cause.text.endswith(".")
        for code in cause.rules:
            assert code in BY_CODE
        for command in cause.commands:
            words = command.split()
            assert words[0] == "dslint"
            assert words[1] in COMMANDS or words[1] == "--select"
            assert set(re.findall(r"DSL\d+", command)) <= set(BY_CODE)
            assert set(re.findall(r"--check (\S+)", command)) <= {check.meta.name for check in all_checks()}
    assert not re.findall(r"DSL\d+", symptom.meaning + symptom.title + "".join(c.text for c in symptom.causes))


def test_symptoms_have_different_names() -> None:
    assert len({symptom.name for symptom in SYMPTOMS}) == len(SYMPTOMS)


@pytest.mark.parametrize("symptom", [s for s in SYMPTOMS if s.patterns], ids=lambda s: s.name)
def test_a_gate_is_a_literal_that_its_lines_hold(symptom: Symptom) -> None:
    for pattern in symptom.patterns:
        assert len(pattern.gate) >= 6
        assert pattern.gate.strip()
        assert pattern.gate.isascii()


def test_few_gates() -> None:
    assert len(gates.served(SYMPTOMS)) <= 24, "each gate is one more search over every byte"


# --- ranks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "rank"),
    [("rank_3.log", 3), ("logs/rank12.txt", 12), ("out/rank.0/stdout", 0), ("/tmp/t/none_x/attempt_0/5/stderr.log", 5),
     ("a/ds_rank3.log.gz", 3), ("train.log", None), ("franks1.log", None), ("logs/2024/train.log", None)],
)  # fmt: skip
def test_rank_of_a_file_name(path: str, rank: int | None) -> None:
    assert rank_of_file(path) == rank


@pytest.mark.parametrize(
    ("line", "rank", "host", "text"),
    [("[rank3]: ValueError: x", 3, "", "ValueError: x"), ("[rank3]:[E1120 x] y", 3, "", "[E1120 x] y"),
     ("[default0]:hello", 0, "", "hello"), ("[1,3]<stderr>:hello", 3, "", "hello"),
     ("[2]<stdout>:hello", 2, "", "hello"),
     ("[pod/job-worker-3/pytorch] [rank1]: x", 1, "job-worker-3", "x"),
     ("2026-11-20T12:00:00.123Z [rank7]: x", 7, "", "x"), ("[INFO] [Rank 4] step=1", 4, "", "[INFO] [Rank 4] step=1"),
     ("3: plain", None, "", "3: plain"), ("node1: plain", None, "", "node1: plain"), ("plain", None, "", "plain")],
)  # fmt: skip
def test_labels_of_lines(line: str, rank: int | None, host: str, text: str) -> None:
    label = Labels("train.log", b"").read(line.encode())
    assert (label.rank, label.host, label.text) == (rank, host, text)


def test_srun_labels_count_when_every_line_has_one() -> None:
    log = "".join(f"{number % 4}: {line}\n" for number, line in enumerate(RUN.replace("\r", "\n").splitlines()))
    log += "".join(f"2: {line}\n" for line in raised("RuntimeError: CUDA error: invalid device ordinal").splitlines())
    verdict = triage(run=log).verdicts[0]
    assert verdict.ranks == [2]
    assert verdict.details == ["rank 2 only; ranks 0-1 and 3 did not show it"]


def test_pdsh_labels_are_hosts() -> None:
    log = "".join(f"node{number % 2}: {line}\n" for number, line in enumerate(RUN.replace("\r", "\n").splitlines()))
    log += "node1: [rank5]: RuntimeError: CUDA error: invalid device ordinal\n"
    hit = triage(run=log).verdicts[0].first
    assert (hit.host, hit.rank) == ("node1", 5)


def test_ranks_for_people() -> None:
    assert spoken([3]) == "rank 3"
    assert spoken([2, 0, 1, 5]) == "ranks 0-2 and 5"
    assert spoken([1, 3, 5]) == "ranks 1, 3 and 5"


# --- what the watchdogs say together -----------------------------------------------------------------------------


def details(log: str) -> list[str]:
    return triage(run=log).verdicts[0].details


def test_a_rank_that_is_behind_is_named() -> None:
    said = details(RUN + watchdog(0, 810) + watchdog(1, 810) + watchdog(2, 805, "BROADCAST", 4))
    assert said[0] == "rank 2 waited in #805 BROADCAST (4 -> 4)"
    assert said[1] == "ranks 0-1 waited in #810 ALLREDUCE (9801523 -> 9801523)"
    assert said[2].startswith("rank 2 is behind: at collective #805 while others are at #810")


def test_another_operation_at_the_same_number_is_named() -> None:
    said = details(RUN + watchdog(0) + watchdog(1) + watchdog(2, op="ALLGATHER"))
    assert "rank 2 runs another operation than the rest at the same number" in said


def test_another_size_at_the_same_number_is_named() -> None:
    said = details(RUN + watchdog(0) + watchdog(1) + watchdog(2, numel=7))
    assert "rank 2 runs another operation than the rest at the same number" in said
    assert "rank 2 waited in #808 ALLREDUCE (7 -> 7)" in said


def test_a_rank_without_a_report_is_named() -> None:
    said = details(RUN + "[rank3]: step 12\n" * 3 + watchdog(0) + watchdog(1) + watchdog(2))
    assert said[-1] == "rank 3 reports no time-out: never came to this collective, or ended before"


def test_the_fewest_enqueued_collectives_are_named() -> None:
    said = details(RUN + watchdog(0, queued=811) + watchdog(1, queued=808))
    assert "rank 1 had enqueued the fewest collectives (#808, others up to #811)" in said


def test_process_groups_are_compared_apart() -> None:
    def inner(rank: int, seq: int) -> str:
        return watchdog(rank, seq).replace(f"[Rank {rank}] Watchdog", f"[PG ID 2 PG GUID 9 Rank {rank}] Watchdog")

    said = details(RUN + watchdog(0, 50) + watchdog(1, 50) + inner(2, 7) + inner(3, 7))
    assert not any("behind" in line for line in said)
    assert "process group 9: ranks 2-3 waited in #7 ALLREDUCE (9801523 -> 9801523)" in said


def test_the_watchdog_of_old_releases() -> None:
    old = "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: "
    for work in (
        "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000)",
        "WorkNCCL(SeqNum=15, OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000)",
    ):
        found = triage(run=f"{RUN}{old}{work} ran for 1802710 milliseconds before timing out.\n")
        assert names(found) == ("nccl-watchdog",)
        assert found.verdicts[0].ranks == [1]


# --- who failed first --------------------------------------------------------------------------------------------


def test_a_rank_that_raised_before_the_time_outs_is_the_first() -> None:
    log = RUN + raised("KeyError: 'labels'", 3, "/home/me/data.py") + watchdog(0) + watchdog(1) + watchdog(2)
    line = log.split("\n").index("[rank3]: KeyError: 'labels'") + 1
    first = f"Rank 3 failed first (run.log:{line}: KeyError: 'labels' at /home/me/data.py:211)"
    assert triage(run=log).story == f"{first}; ranks 0-2 timed out waiting for it."


def test_an_error_after_the_time_outs_is_no_cause() -> None:
    log = RUN + watchdog(0) + watchdog(1) + raised("RuntimeError: CUDA out of memory.", 2)
    found = triage(run=log)
    assert names(found) == ("nccl-watchdog", "cuda-oom")
    assert found.verdicts[1].late
    assert "failed first" not in found.story


def test_logs_of_several_ranks_are_ordered_by_time() -> None:
    zero = "[2026-11-20 12:00:01,000] [INFO] start\n" + watchdog(0)
    early = "[2026-11-20 12:20:00,000] [INFO] step 9\n" + raised("torch.OutOfMemoryError: CUDA out of memory.")
    late = "[2026-11-20 12:40:00,000] [INFO] step 9\n" + raised("torch.OutOfMemoryError: CUDA out of memory.")
    found = triage(rank_0=zero, rank_1=early)
    assert names(found) == ("cuda-oom", "nccl-watchdog")
    assert found.story.startswith("Rank 1 failed first")
    assert names(triage(rank_0=zero, rank_1=late)) == ("nccl-watchdog", "cuda-oom")


def test_logs_without_times_are_not_ordered_by_guessing() -> None:
    peer = raised(f"RuntimeError: {GLOO}/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete")
    found = triage(rank_0=peer, rank_1=raised("torch.OutOfMemoryError: CUDA out of memory."))
    assert names(found) == ("cuda-oom", "gloo-timeout")
    assert "open whether before" in found.story


def test_the_launcher_names_the_rank_when_nothing_else_does() -> None:
    found = triage(run=RUN + elastic(2, 1))
    assert found.story == "The launcher names rank 2 (exit code 1) as the first to end."


def test_the_launchers_own_traceback_is_not_the_first_failure() -> None:
    found = triage(run=RUN + raised("ValueError: bad sample", 2) + elastic(2, 1))
    assert found.story.startswith("Rank 2 failed first")
    assert "bad sample" in found.story


def test_a_killed_rank_and_its_peers() -> None:
    peer = raised(f"RuntimeError: {GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:25008.", 1)
    found = triage(run=RUN + elastic(3, -9) + peer)
    assert names(found)[0] == "host-killed"
    assert "Rank 3 failed first" in found.story
    assert "rank 1 lost the connection to it" in found.story


# --- extension stalls and losses ---------------------------------------------------------------------------------


def test_only_the_stalled_rank_is_named() -> None:
    lines = "".join(f"[default{rank}]:{USING}" for rank in range(4))
    lines += "".join(
        f"[default{rank}]:Loading extension module cpu_adam...\n[default{rank}]:Time to load cpu_adam op: 2.1 seconds\n"
        for rank in (0, 1, 3)
    )
    found = triage(run=START + lines + "[default0]:step 1\n[default1]:step 1\n[default3]:step 1\n")
    assert names(found) == ("extension-stall",)
    assert found.verdicts[0].ranks == [2]


def test_an_interrupted_stall_is_still_one() -> None:
    interrupted = raised("KeyboardInterrupt", frame="/opt/conda/lib/python3.11/site-packages/torch/utils/file_baton.py")
    assert names(triage(run=START + USING + interrupted)) == ("extension-stall",)


def test_an_error_after_the_extension_line_is_no_stall() -> None:
    assert names(triage(run=START + USING + raised("ValueError: no such optimizer"))) == ()


def test_a_stall_in_one_file_of_several() -> None:
    found = triage(rank_0=START + USING + STEPS, rank_1=START + USING)
    assert found.verdicts[0].ranks == [1]


@pytest.mark.parametrize("size", [1 << 12, 1 << 14])
def test_a_stall_is_found_across_blocks(size: int) -> None:
    log = (STEPS * 40 + USING + STEPS * 40 + USING).encode()
    result = Scan("x.log")
    stream = io.BytesIO(log)
    found = result.run(lambda _: stream.read(size))
    assert [hit.symptom for hit in found.hits] == ["extension-stall"]
    assert found.hits[0].line == log.count(b"\n")


def test_a_fall_to_zero_says_from_where() -> None:
    verdict = triage(run=RUN + COLLAPSED).verdicts[0]
    assert verdict.details == ["the loss was 1.652 just before; then 10 times 0"]
    assert verdict.first.line == RUN.count("\n") + 1


def test_a_loss_of_zero_as_the_fifth_trainer_prints_it() -> None:
    zeros = "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '1e-06', 'epoch': '0.01'}\n" * 5
    assert names(triage(run=RUN + zeros)) == ("loss-zero",)


def test_a_fall_after_single_zeros_is_found() -> None:
    early = "{'loss': 0.0, 'grad_norm': 0.5}\n" + "{'loss': 1.1, 'grad_norm': 0.5}\n" * 40
    stream = io.BytesIO((early * 50 + COLLAPSED).encode())
    result = Scan("x.log").run(lambda _: stream.read(1 << 14))
    assert [hit.symptom for hit in result.hits] == ["loss-zero"]


# --- streams -----------------------------------------------------------------------------------------------------


def test_colours_and_carriage_returns() -> None:
    error = "\x1b[31m[rank1]: \x1b[1mValueError\x1b[0m: port must have value from 0 to 65535 but was 70000."
    log = f"{RUN}{error}\x1b[0m\r 10%|█ |\r"
    found = triage(run=log)
    assert names(found) == ("port-out-of-range",)
    assert found.verdicts[0].ranks == [1]
    assert found.verdicts[0].first.line == RUN.count("\n") + 1


@pytest.mark.parametrize("size", [7, 64, 1000, 1 << 16])
@pytest.mark.parametrize(
    "name", ["nccl-watchdog", "host-killed", "zero3-empty-weights", "loss-zero", "extension-stall"]
)
def test_the_size_of_reads_changes_nothing(name: str, size: int) -> None:
    log = (STEPS * 50 + CASES[name].log).encode()
    stream = io.BytesIO(log)
    found = diagnose([Scan("x.log").run(lambda _: stream.read(size))])
    assert names(found) == names(diagnose([scan(log, "x.log")]))


def test_lines_without_end_stay_bounded() -> None:
    largest = 0
    stream = io.BytesIO(b"x" * 3_000_000 + b" RuntimeError: CUDA error: invalid device ordinal " + b"y" * 3_000_000)
    for block in blocks(stream.read, size=1 << 18):
        largest = max(largest, len(block.data))
    assert largest <= (1 << 18) + (1 << 16)
    stream.seek(0)
    result = Scan("x.log").run(lambda _: stream.read(1 << 18))
    assert [hit.symptom for hit in result.hits] == ["device-ordinal"]
    assert len(result.hits[0].text) <= 600


def test_what_is_kept_does_not_grow_with_the_log() -> None:
    result = scan((RUN + watchdog(1)) * 300)
    assert len(result.hits) <= 40
    assert result.counts["nccl-watchdog", 1] == 300


_TEXT = st.sampled_from([c.log for c in CASES.values()])
_MARKS = st.sampled_from([b"\n", b"\r", b"\x1b[", b"[rank1]: ", b"0: "])
_PARTS = st.one_of(st.binary(max_size=60), _MARKS, _TEXT.map(lambda text: text.encode()[-700:]))


@settings(max_examples=60, deadline=None)
@given(st.lists(_PARTS, max_size=8), st.integers(1, 5000))
def test_no_bytes_raise(parts: list[bytes], size: int) -> None:
    stream = io.BytesIO(b"".join(parts))
    diagnose([Scan("x.log").run(lambda _: stream.read(size))])


@settings(max_examples=60, deadline=None)
@given(_TEXT, st.data())
def test_a_log_that_is_cut_anywhere_raises_nothing(log: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(start, len(log)))
    diagnose([scan(log[start:end])])


# --- the command -------------------------------------------------------------------------------------------------


def test_the_report_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(CASES["cuda-oom"].log)
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Rank 3 failed first")
    assert "1. A GPU ran out of memory [cuda-oom; cause]" in out
    assert "2. NCCL's watchdog ended a collective" in out
    assert "$ dslint --select DSL201 ." in out
    assert "$ dslint probe --rule DSL201" in out
    assert out.endswith("ranks 0-3.\n")


def test_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(CASES["cuda-oom"].log)
    assert main(["--format", "json", str(path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert [verdict["symptom"] for verdict in document["verdicts"]] == ["cuda-oom", "nccl-watchdog"]
    assert document["origin"]["rank"] == 3
    assert document["verdicts"][1]["causes"][0]["text"].startswith("a rank failed")


def test_packed_logs_folders_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(START)
    (tmp_path / "attempt_0" / "1" / "stderr.log.gz").write_bytes(gzip.compress(CASES["timeout-type"].log.encode()))
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "stderr.log.gz" in out
    assert "rank 1, 1 line" in out


def test_a_clean_log_and_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(RUN)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.startswith("No known symptom in")
    assert main([str(tmp_path / "none.log")]) == 2
    assert capsys.readouterr().err == f"dslint: {tmp_path}/none.log: no such file\n"
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
    (tmp_path / "cut.gz").write_bytes(gzip.compress(RUN.encode())[:-40])
    assert main([str(tmp_path / "cut.gz")]) == 2
    assert "cut.gz" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2


def test_an_empty_log_is_clean(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    assert main([str(tmp_path / "empty.log")]) == 0


def test_the_page_of_symptoms_is_up_to_date() -> None:
    root = Path(__file__).resolve().parents[2]
    script = runpy.run_path(str(root / "scripts" / "generate_triage_docs.py"))
    assert (root / "docs" / "triage.md").read_text("utf-8") == script["generate"](), f"run `{script['COMMAND']}`"


@pytest.mark.parametrize(("line", "name"), OTHER_WORDS)
def test_other_words_for_the_same(line: str, name: str) -> None:
    assert names(triage(run=f"{RUN}{line}\n")) == (name,)


def test_an_exception_of_another_kind_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(RUN + raised("KeyError: 'image'"))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.endswith(
        f"The first exception: {path}:{RUN.count(chr(10)) + 7}: KeyError: 'image'\n"
    )


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress(CASES["timeout-type"].log.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert main(["-", "--color", "always"]) == 1
    out = capsys.readouterr().out
    assert "<stdin>:" in out
    assert "\x1b[1;31m" in out


def test_wrong_flags_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--quotes", "0", "x.log"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_tracebacks_without_end_are_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    monkeypatch.setattr(scanning, "failure", lambda line: followed.append(line.number))
    scan("Traceback (most recent call last):\n" * 5_000)
    assert len(followed) == scanning.MAX_TRACEBACKS
