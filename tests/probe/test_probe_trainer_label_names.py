"""Which case of the experiment a finding of DSL203 is about, and what its oracle says."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_helpers import findings

from dslint.probe.experiment import Subject
from dslint.probe.experiments import trainer_extra_label_name as experiment
from dslint.probe.registry import of_finding
from dslint.rules.script import dsl203_trainer_extra_label_name as rule

INCIDENT = Path(__file__).parents[1] / "fixtures" / "projects" / "llava-eval-hang" / "train" / "train.py"
_SCRIPT = """\
import torch
from transformers import Trainer, TrainingArguments


def collate(features):
    batch = {'labels': torch.zeros(2)}
    %s
    return batch


args = TrainingArguments('out', label_names=['labels', 'image_id'])
trainer = Trainer(args=args, eval_dataset=[], data_collator=collate%s)
"""


def _chosen(text: str) -> tuple[str, dict[str, object]]:
    (finding,) = findings(rule, text)
    found = of_finding(Subject(finding, text))
    assert found is not None
    assert found[0].experiment is experiment.EXPERIMENT
    return found[1].name, dict(found[1].params)


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("batch['image_id'] = [str(f['id']) for f in features]", "list-of-text"),
        ("batch['image_id'] = [{'id': f['id']} for f in features]", "list-of-text"),
        ("batch['image_id'] = {'id': features[0]['id']}", "dicts-with-text"),
        ("batch['image_id'] = torch.tensor([f['id'] for f in features])", "same-shape"),
        ("if features[0]['id']:\n        batch['image_id'] = torch.tensor([1])", "on-one-rank-only"),
        ("batch['image_id'] = encode(features)", "list-of-text"),
        ("pass", "list-of-text"),
    ],
)
def test_the_kind_of_the_value_chooses_the_case(line: str, case: str) -> None:
    name, params = _chosen(_SCRIPT % (line, ", compute_metrics=print"))
    assert (name, params["key"], params["metrics"]) == (case, "image_id", True)


def test_without_metrics_the_arm_computes_none() -> None:
    assert _chosen(_SCRIPT % ("batch['image_id'] = ['a']", ""))[1]["metrics"] is False


def test_the_project_that_hangs_maps_to_a_case_that_fails() -> None:
    name, params = _chosen(INCIDENT.read_text())
    assert (name, params["key"], params["metrics"]) == ("dicts-with-text", "metadata", True)
    assert experiment.EXPERIMENT.case(name).verdict.name == "CONFIRMED"


def test_the_oracle_names_what_is_missing() -> None:
    reference = [{"eval_loss": 2.0, "eval_rows": 8.0}] * 2
    assert experiment.wrong(reference, reference) is None
    said = experiment.wrong([reference[0], {"eval_rows": 8.0}], reference)
    assert said == "rank 1 reports no eval_loss, and nobody says so"
