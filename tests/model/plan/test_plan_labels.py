"""DSL412: label names that stand on the command line, joined with what the script makes of them."""

from __future__ import annotations

import pytest
from plan_helpers import findings

from dslint.core.finding import Severity

SCRIPT = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments


def collate(features):
    return {"labels": 1, "metadata": [f["id"] for f in features]}


(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
trainer = Trainer(None, args, data_collator=collate, eval_dataset=[], compute_metrics=print)
trainer.train()
"""
RUN = "torchrun --nproc_per_node 8 train.py --output_dir o --eval_strategy steps"


def severities(run: str, script: str = SCRIPT, **files: str) -> list[Severity]:
    return [f.severity for f in findings("DSL412", {"run.sh": run + "\n", "train.py": script, **files})]


@pytest.mark.parametrize(
    "run",
    [
        f"{RUN} --label_names labels metadata",
        f"{RUN} --label_names metadata labels --bf16",
        f"{RUN} --label-names labels metadata",
        f"{RUN} --label_names=metadata",
        f"{RUN} --label_names labels --label_names labels metadata",
        f'CMD="{RUN} --label_names labels metadata"\n$CMD',
        f'O=(--label_names labels metadata)\n{RUN} "${{O[@]}}"',
        f"NAMES='labels metadata'\n{RUN} --label_names $NAMES",
        f"{RUN} --label_names labels $MORE metadata",
        f"{RUN.replace('torchrun --nproc_per_node 8', 'deepspeed')} --label_names labels metadata",
    ],
)
def test_names_are_read_as_argparse_reads_them(run: str) -> None:
    assert severities(run) == [Severity.ERROR]


@pytest.mark.parametrize(
    "run",
    [
        f"{RUN} --label_names labels",
        f"{RUN} --label_names labels metadata --label_names labels",
        f"{RUN} --label_names=labels metadata",
        f"{RUN} --label_names",
        f"{RUN} --label_names $NAMES",
        f"{RUN} --note --label_names_file metadata",
        RUN.replace("train.py", "$DIR/train.py") + " --label_names labels metadata",
        "swift sft --model m --label_names labels metadata",
    ],
)
def test_what_is_harmless_or_not_known_is_left_alone(run: str) -> None:
    assert severities(run) == []


def test_the_finding_points_at_the_name_and_at_the_place_that_makes_it() -> None:
    files = {"run.sh": f"{RUN} \\\n  --label_names labels \\\n  metadata\n", "train.py": SCRIPT}
    (finding,) = findings("DSL412", files)
    assert (finding.location.region.line, [str(p) for p in finding.related]) == (3, ["train.py:5"])
    assert files["run.sh"][finding.location.span.start : finding.location.span.end] == "metadata"
    assert "gathers this list" in finding.message


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (RUN.replace(" --eval_strategy steps", ""), Severity.INFO),
        (RUN.replace("steps", "no"), Severity.INFO),
        (RUN.replace("steps", "$WHEN"), Severity.ERROR),
        (RUN.replace("--eval_strategy steps", "$MORE"), Severity.ERROR),
        (RUN.replace("--eval_strategy steps", "--eval_on_start True"), Severity.ERROR),
    ],
)
def test_a_run_that_never_evaluates_is_only_worth_a_note(run: str, expected: Severity) -> None:
    assert severities(f"{run} --label_names labels metadata") == [expected]


def test_a_script_that_evaluates_by_hand_needs_no_strategy() -> None:
    run = RUN.replace(" --eval_strategy steps", "") + " --label_names labels metadata"
    assert severities(run, SCRIPT + "trainer.evaluate()\n") == [Severity.ERROR]


@pytest.mark.parametrize(
    "script",
    [
        SCRIPT.replace("trainer =", "args.label_names = None\ntrainer ="),
        SCRIPT.replace("HfArgumentParser", "ArgumentParser"),
        SCRIPT + "def broken(:\n",
    ],
)
def test_another_reader_of_the_arguments_makes_it_silent(script: str) -> None:
    assert severities(f"{RUN} --label_names labels metadata", script) == []


def test_a_script_that_only_calls_another_module_is_judged_by_that_module() -> None:
    files = {"train.py": "from lib.main import run\n\nrun()\n", "lib/main.py": SCRIPT, "run.sh": ""}
    files["run.sh"] = f"{RUN} --label_names labels metadata\n"
    (finding,) = findings("DSL412", files)
    assert [place.path for place in finding.related] == ["lib/main.py"]
