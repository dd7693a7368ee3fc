"""Arguments of a Trainer that stand in a YAML or JSON file or in Python, with a launch command and without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dslint.core.fact import known
from dslint.core.finding import Finding
from dslint.engine.run import check_paths
from dslint.model.context import Context
from dslint.model.plan.recipe import recipe_of
from dslint.model.plan.runplan import build_plans
from dslint.model.workspace import Workspace
from dslint.rules.plan import dsl408_batch_triangle, dsl409_hf_value_mismatch
from dslint.settings import make_settings

DS = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 4,
  "zero_optimization": {"stage": 2}
}
"""
BF16 = DS.replace("4,\n", '"auto",\n  "bf16": {"enabled": true},\n')
LLAMA = """\
model_name_or_path: meta/llama
stage: sft
template: llama3
deepspeed: conf/ds.json
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
"""
AXOLOTL = """\
base_model: meta/llama
datasets:
  - path: a.jsonl
micro_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 0.0002
deepspeed: conf/ds.json
"""
SWIFT = "model: Qwen/Qwen2.5\ntuner_type: lora\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
SWIFT += "deepspeed: conf/ds.json\n"
PARSED = """\
import sys
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
if len(sys.argv) == 2:
    (args,) = parser.parse_json_file(sys.argv[1])
else:
    (args,) = parser.parse_args_into_dataclasses()
"""
TRL = "from trl import SFTConfig, SFTTrainer, TrlParser\nparser = TrlParser(SFTConfig)\n"
TRL += "(args,) = parser.parse_args_and_config()\n"
PYTHON = """\
from transformers import Trainer, TrainingArguments

STEPS = 8
args = TrainingArguments(
    "out",
    deepspeed="conf/ds.json",
    gradient_accumulation_steps=STEPS,
)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def findings(root: Path, files: dict[str, str], *given: str, **stated: object) -> list[Finding]:
    for name, text in {"conf/ds.json": DS, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    settings = make_settings({"cache": False, "select": ["DSL408", "DSL409", "DSL443"], **stated}, root)
    return check_paths(given or ["."], settings).findings


def said(root: Path, files: dict[str, str], *given: str, **stated: object) -> list[str]:
    """Code, severity and what is compared: ``DSL409 error gradient_accumulation_steps is 8 (args.yaml:6)``."""
    out = []
    for f in findings(root, files, *given, **stated):
        text = f.message.partition("but ")[2].partition(":")[0]
        label = text.replace("`", "").replace(" is ", " ")
        place = next((f" ({place})" for place in f.related if place.label == label), "")
        out.append(f"{f.code} {f.severity.value} {text}{place}")
    return out


GAS = "DSL409 error `gradient_accumulation_steps` is 8 "


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"recipes/sft.yaml": LLAMA}, "recipes/sft.yaml:6"),
        ({"sft.yml": AXOLOTL}, "sft.yml:5"),
        ({"sft.yaml": SWIFT}, "sft.yaml:4"),
        ({"args.json": '{"output_dir": "x", "deepspeed": "conf/ds.json",\n "per_device_train_batch_size": 1,\n'
          ' "gradient_accumulation_steps": 8}'}, "args.json:3"),
        ({"train.py": PYTHON}, "train.py:3"),
        ({"train.py": PYTHON.replace("TrainingArguments", "Seq2SeqTrainingArguments")}, "train.py:3"),
        ({"train.py": PYTHON.replace("transformers import Trainer, TrainingArguments", "trl import DPOConfig")
          .replace("TrainingArguments", "DPOConfig")}, "train.py:3"),
    ],
)  # fmt: skip
def test_a_file_of_arguments_is_a_run_by_itself(project: Path, files: dict[str, str], place: str) -> None:
    (only,) = said(project, files)
    assert only.startswith(GAS)
    assert place in only


@pytest.mark.parametrize(
    ("run", "files", "text"),
    [
        ("llamafactory-cli train sft.yaml", {"sft.yaml": LLAMA}, GAS + "(sft.yaml:6)"),
        ("llamafactory-cli train sft.json", {"sft.json": '{"deepspeed": "conf/ds.json",\n'
         '"gradient_accumulation_steps": 8}'}, GAS + "(sft.json:2)"),
        ("llamafactory-cli train sft.yaml gradient_accumulation_steps=16", {"sft.yaml": LLAMA},
         "DSL409 error `gradient_accumulation_steps` is 16 (run.sh:1)"),
        ("axolotl train sft.yaml", {"sft.yaml": AXOLOTL}, GAS + "(sft.yaml:5)"),
        ("accelerate launch -m axolotl.cli.train sft.yaml", {"sft.yaml": AXOLOTL}, GAS + "(sft.yaml:5)"),
        ("axolotl train sft.yaml --gradient-accumulation-steps 2", {"sft.yaml": AXOLOTL},
         "DSL409 error `gradient_accumulation_steps` is 2 (run.sh:1)"),
        ("NPROC_PER_NODE=2 swift sft sft.yaml", {"sft.yaml": SWIFT}, GAS + "(sft.yaml:4)"),
        ("torchrun --nproc_per_node 2 train.py args.json", {"train.py": PARSED, "args.json": '{"output_dir": "x",\n'
         '"deepspeed": "conf/ds.json", "gradient_accumulation_steps": 8}'}, GAS + "(args.json:2)"),
        ("accelerate launch train.py --config sft.yaml", {"train.py": TRL, "sft.yaml": "output_dir: out\n"
         "deepspeed: conf/ds.json\ngradient_accumulation_steps: 8\n"}, GAS + "(sft.yaml:3)"),
        ("accelerate launch train.py --config sft.yaml --gradient_accumulation_steps 2", {"train.py": TRL, "sft.yaml":
         "deepspeed: conf/ds.json\ngradient_accumulation_steps: 8\n"},
         "DSL409 error `gradient_accumulation_steps` is 2 (run.sh:1)"),
    ],
)  # fmt: skip
def test_a_command_reads_its_arguments_from_a_file(project: Path, run: str, files: dict[str, str], text: str) -> None:
    (only,) = said(project, {**files, "run.sh": run + "\n"})
    assert only.startswith(text)


def test_defaults_are_certain_where_the_class_is_the_one_of_transformers(project: Path) -> None:
    bf16 = {"conf/ds.json": BF16}
    assert said(project, {**bf16, "sft.yaml": LLAMA}) == ["DSL409 error `bf16` is False by default"]
    args = {"train.py": PARSED, "args.json": '{"output_dir": "x", "deepspeed": "conf/ds.json"}'}
    run = {"sft.yaml": "", "run.sh": "torchrun --nproc_per_node 2 train.py args.json\n"}
    assert said(project, {**bf16, **args, **run}) == ["DSL409 error `bf16` is False by default"]
    own = {"sft.yaml": "", "train.py": PYTHON.replace("8", "4")}
    assert said(project, {**bf16, **own}) == ["DSL409 error `bf16` is False by default"]


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": AXOLOTL.replace("8", "4")},
        {"sft.yaml": SWIFT.replace("8", "4")},
        {"sft.yaml": AXOLOTL.replace("8", "4"), "conf/ds.json": BF16},
        {"sft.yaml": AXOLOTL.replace("8", "4") + "bf16: auto\n", "conf/ds.json": BF16},
        {"sft.yaml": AXOLOTL.replace("8", "4") + "bf16: full\n", "conf/ds.json": BF16},
        {"sft.yaml": SWIFT.replace("8", "4"), "conf/ds.json": BF16},
        {"train.py": PYTHON.replace("STEPS,", "args.steps,")},
        {"train.py": PYTHON.replace("    gradient_accumulation_steps=STEPS,\n", "    **more,\n")},
        # Batch size instead of accumulation steps, and no file of arguments at all.
        {"sft.yaml": AXOLOTL + "batch_size: 64\n"},
        {"sft.yaml": "deepspeed: conf/ds.json\ngradient_accumulation_steps: 8\n"},
        {"sft.yaml": "train:\n  deepspeed: conf/ds.json\n  per_device_train_batch_size: 2\n"},
        # What the file names is not here: it may be meant for another folder.
        {"sft.yaml": LLAMA.replace("conf", "elsewhere")},
        {"train.py": PYTHON.replace("conf", "elsewhere")},
        # A run that finds its batch size itself.
        {"sft.yaml": LLAMA.replace("8", "4") + "auto_find_batch_size: true\n",
         "conf/ds.json": DS.replace('"train_micro_batch_size_per_gpu": "auto"', '"train_micro_batch_size_per_gpu": 2')},
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_said(project: Path, files: dict[str, str]) -> None:
    assert said(project, files) == []


def test_the_batch_triangle_of_a_recipe_needs_a_world_size(project: Path) -> None:
    files = {"sft.yaml": LLAMA.replace("8", "4"), "conf/ds.json": DS.replace('"auto"', "30", 1)}
    (found,) = findings(project, files)
    assert (found.code, found.location.path) == ("DSL408", "conf/ds.json")
    files["conf/ds.json"] = DS.replace('"auto"', "32", 1)
    assert findings(project, files) == []
    (found,) = findings(project, files, world_size=4)
    assert "micro batch 1 x accumulation steps 4 x" in found.message
    assert "sft.yaml:5" in {str(place) for place in found.related}


def test_one_file_alone_meets_the_recipe_that_names_it(project: Path) -> None:
    (only,) = said(project, {"recipes/sft.yaml": LLAMA}, "conf/ds.json")
    assert "recipes/sft.yaml:6" in only
    (only,) = said(project, {"recipes/sft.yaml": "", "train.py": PYTHON}, "conf/ds.json")
    assert "train.py:3" in only


def test_a_config_that_axolotl_fetches_is_not_missing(project: Path) -> None:
    files = {
        "sft.yaml": AXOLOTL.replace("conf/ds.json", "deepspeed_configs/zero2.json"),
        "deepspeed_configs/zero3.json": DS,
    }
    train = "axolotl train sft.yaml\n"
    assert [text[:6] for text in said(project, {**files, "run.sh": train})] == ["DSL443"]
    assert said(project, {**files, "run.sh": "axolotl fetch deepspeed_configs\n" + train}) == []


def test_a_notebook_is_a_run_too(project: Path) -> None:
    cells = [{"cell_type": "code", "source": "!pip list"}, {"cell_type": "code", "source": PYTHON}]
    (only,) = said(project, {"train.ipynb": json.dumps({"cells": cells})})
    assert only.startswith(GAS)
    assert "train.ipynb" in only


def test_the_place_of_a_run_without_a_command_is_its_arguments(project: Path) -> None:
    (found,) = findings(project, {"sft.yaml": LLAMA.replace("8", "4"), "conf/ds.json": BF16})
    (place,) = (r for r in found.related if r.path == "sft.yaml")
    assert (place.region.line, place.label) == (4, "the arguments of this run")


def test_a_recipe_shows_who_reads_the_config(project: Path) -> None:
    config = '{"train_batch_size": 8, "steps_per_prnt": 1}'
    (found,) = findings(project, {"sft.yaml": AXOLOTL, "conf/ds.json": config}, select=["DSL101"])
    assert found.fact("consumer") == "hf"


@pytest.mark.parametrize(
    "text", [LLAMA[:-1] + "[\n", "deepspeed: x.json\n- a\n", "deepspeed: x.json\n\tb: 1", "\ufeff"]
)
def test_a_broken_file_of_arguments_is_no_recipe(project: Path, text: str) -> None:
    assert said(project, {"sft.yaml": text, "args.json": '{"deepspeed": "conf/ds.json", "per_device_train_batch'}) == []


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["auto", "1e-4", "full", "x"]),
)
keys = st.sampled_from(
    ["micro_batch_size", "batch_size", "bf16", "fp16", "bfloat16", "warmup_steps", "max_steps", "learning_rate",
     "gradient_accumulation_steps", "per_device_train_batch_size", "auto_find_batch_size", "stage", "template"]
)  # fmt: skip


@example({"warmup_steps": float("inf")}, LLAMA)
@given(
    st.dictionaries(keys, st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=8),
    st.sampled_from([LLAMA, AXOLOTL]),
)
def test_no_values_break_the_plan(values: dict[str, object], head: str) -> None:
    text = json.dumps({"deepspeed": "ds.json", "base_model": "x", "model_name_or_path": "x", **values})
    files = {"sft.yaml": head + "".join(f"{k}: {json.dumps(v)}\n" for k, v in values.items()), "args.json": text}
    workspace = Workspace(Path("/nonexistent"), {"ds.json": DS.replace("4", "-1"), "conf/ds.json": BF16, **files})
    found = [recipe_of(doc) for doc in (workspace.yaml("sft.yaml"), workspace.json("args.json")) if doc is not None]
    plans = build_plans([], workspace, recipes=[recipe for recipe in found if recipe is not None])
    for plan in plans:
        assert plan.consumer.get() == "hf"
        list(dsl409_hf_value_mismatch.check(plan, Context()))
        list(dsl408_batch_triangle.check(plan, Context(world_size=known(8))))
