"""Who reads a DeepSpeed config: what the user states, what the files of the project show, what the values say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.settings import make_settings

# A key that nobody knows: the finding says who reads the file.
PLAIN = '{"train_batch_size": 8, "steps_per_prnt": 10, "zero_optimization": {"stage": 1}}\n'
AUTO = PLAIN.replace("8", '"auto"')
INITIALIZE = "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=None, config={})\n"
TRAINER = "from transformers import TrainingArguments\n\nargs = TrainingArguments('out', deepspeed={})\n"
LIGHTNING = "from {}.strategies import DeepSpeedStrategy\n\nstrategy = DeepSpeedStrategy(config='ds.json')\n"
PLUGIN = "from accelerate import Accelerator, DeepSpeedPlugin\n\nplugin = DeepSpeedPlugin(hf_ds_config='ds.json')\n"
YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 2
num_machines: 1
deepspeed_config:
  deepspeed_config_file: ds.json
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def consumers(root: Path, files: dict[str, str], *given: str, **stated: object) -> dict[str, str]:
    """The reader of every config, by path."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    settings = make_settings({"cache": False, **stated}, root)
    found = check_paths(given or ["."], settings).findings
    return {f.location.path: str(f.fact("consumer")) for f in found if f.code == "DSL101"}


def consumer(root: Path, files: dict[str, str], **stated: object) -> str:
    return consumers(root, {"ds.json": PLAIN, **files}, **stated)["ds.json"]


# What files show


@pytest.mark.parametrize(
    ("script", "reader"),
    [
        (INITIALIZE.format("'ds.json'"), "deepspeed"),
        (INITIALIZE.format("str(Path(__file__).parent / 'ds.json')").replace("\n", "\nfrom pathlib import Path\n", 1),
         "deepspeed"),
        ("CONFIG = 'ds.json'\n" + INITIALIZE.format("CONFIG"), "deepspeed"),
        ("FILES = {'a': 'ds.json', 'b': 'other.json'}\n" + INITIALIZE.format("FILES['a']"), "deepspeed"),
        (TRAINER.format("'ds.json'"), "hf"),
        (TRAINER.format("'ds.json'").replace("TrainingArguments", "Seq2SeqTrainingArguments"), "hf"),
        ("from trl import SFTConfig\nargs = SFTConfig(deepspeed='ds.json')\n", "hf"),
        (LIGHTNING.format("lightning.pytorch"), "lightning"),
        (LIGHTNING.format("pytorch_lightning"), "lightning"),
        (LIGHTNING.format("lightning.fabric"), "lightning"),
        (LIGHTNING.format("mmengine._strategy"), "unknown"),
        (PLUGIN, "accelerate"),
        (PLUGIN + "\nfrom transformers import Trainer, TrainingArguments\nTrainingArguments('out')\n", "hf"),
        ("from transformers.integrations import HfDeepSpeedConfig\nHfDeepSpeedConfig('ds.json')\n", "unknown"),
        (INITIALIZE.format("'ds.json'") + "from transformers.integrations import HfDeepSpeedConfig\n"
         "HfDeepSpeedConfig('ds.json')\n", "deepspeed"),
        (INITIALIZE.format("'other.json'"), "unknown"),
        ("# deepspeed.initialize(config='ds.json')\n", "unknown"),
    ],
)  # fmt: skip
def test_a_script_that_names_the_file_shows_its_reader(project: Path, script: str, reader: str) -> None:
    assert consumer(project, {"train.py": script}) == reader


def test_a_computed_path_speaks_of_the_files_that_it_can_mean(project: Path) -> None:
    files = {
        "conf/zero1.json": PLAIN,
        "conf/other.json": PLAIN,
        "train.py": INITIALIZE.format("f'conf/zero{stage}.json'"),
        "b/conf/zero2.json": PLAIN,
    }
    found = consumers(project, files)
    assert found == {"conf/zero1.json": "deepspeed", "conf/other.json": "unknown", "b/conf/zero2.json": "unknown"}


def test_a_path_of_which_nothing_is_fixed_speaks_of_no_file(project: Path) -> None:
    assert consumer(project, {"train.py": INITIALIZE.format("f'{name}.json'")}) == "unknown"


def test_the_default_of_an_argument_names_the_file(project: Path) -> None:
    script = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--conf', default='ds.json')\n"
        "args = parser.parse_args()\n" + INITIALIZE.format("args.conf")
    )
    assert consumer(project, {"train.py": script}) == "deepspeed"


def test_an_accelerate_file_is_weaker_than_the_script_of_a_trainer(project: Path) -> None:
    assert consumer(project, {"acc.yaml": YAML}) == "accelerate"
    assert consumer(project, {"acc.yaml": YAML, "train.py": TRAINER.format("'ds.json'")}) == "hf"


def test_accelerate_launch_reads_what_it_is_given_unless_the_script_shows_another_reader(project: Path) -> None:
    run = {"run.sh": "accelerate launch --deepspeed_config_file ds.json train.py\n"}
    assert consumer(project, {**run, "train.py": "import lib\n"}) == "accelerate"
    assert consumer(project, {**run, "train.py": TRAINER.format("None")}) == "hf"
    assert (
        consumer(project, {"run.sh": "accelerate launch train.py --deepspeed ds.json\n", "train.py": ""}) == "unknown"
    )


def test_a_notebook_shows_the_reader_too(project: Path) -> None:
    cell = {"cell_type": "code", "source": ["!nvidia-smi\n", *TRAINER.format("'ds.json'").splitlines(keepends=True)]}
    assert consumer(project, {"train.ipynb": json.dumps({"cells": [cell]})}) == "hf"
    assert consumer(project, {"train.ipynb": '{"cells": "DeepSpeed ds.json"}'}) == "unknown"


def test_a_script_that_writes_into_the_config_is_another_reader(project: Path) -> None:
    script = (
        "import json\nimport deepspeed\nconfig = json.load(open('ds.json'))\n{}\n"
        "engine, *_ = deepspeed.initialize(model=None, config=config)\n"
    )
    for harmless in ("", "print(config['train_batch_size'])", "args.train_batch_size = config.get('train_batch_size')"):
        assert consumer(project, {"train.py": script.format(harmless)}) == "deepspeed", harmless
    assert (
        consumer(project, {"train.py": script.format("config['train_batch_size'] = 8"), "ds.json": AUTO}) == "unknown"
    )
    assert consumer(project, {"train.py": script.format("config['fp16'] = {}"), "ds.json": AUTO}) == "unknown"


def test_users_that_contradict_each_other_leave_it_open(project: Path) -> None:
    files = {"a.py": INITIALIZE.format("'ds.json'"), "b.py": TRAINER.format("'ds.json'"), "ds.json": AUTO}
    assert consumer(project, files) == "unknown"


def test_a_program_with_rules_of_its_own_is_none_of_the_four(project: Path) -> None:
    files = {"run.sh": "NPROC_PER_NODE=8 xtuner train config.py --deepspeed ds.json\n", "ds.json": AUTO}
    assert consumer(project, files) == "unknown"


def test_without_any_user_the_values_tell(project: Path) -> None:
    assert consumer(project, {"ds.json": AUTO}) == "hf"
    assert consumer(project, {"ds.json": PLAIN}) == "unknown"


def test_one_file_alone_finds_its_users_in_the_project(project: Path) -> None:
    files = {"src/train.py": INITIALIZE.format("'../conf/ds.json'"), "conf/ds.json": PLAIN}
    assert consumers(project, files, "conf/ds.json") == {"conf/ds.json": "deepspeed"}
    files = {"src/train.py": "", "acc.yaml": YAML.replace("ds.json", "conf/ds.json")}
    assert consumers(project, files, "conf/ds.json") == {"conf/ds.json": "accelerate"}


@pytest.mark.parametrize(
    ("classes", "reader"),
    [
        ("(ModelArguments, MyTrainingArguments)", "hf"),
        ("SFTConfig", "hf"),
        ("(ModelArguments, InferencerArguments)", "unknown"),
    ],
)
def test_a_parser_of_unseen_classes_trains_only_if_one_is_called_so(project: Path, classes: str, reader: str) -> None:
    script = (
        f"from lib.args import *\nfrom transformers import HfArgumentParser\nparser = HfArgumentParser({classes})\n"
        "parser.parse_args_into_dataclasses()\n"
    )
    run = "torchrun --nproc_per_node 2 chat.py --deepspeed ds.json\n"
    assert consumer(project, {"chat.py": script, "run.sh": run}) == reader


# What the user states


def test_the_user_knows_best(project: Path) -> None:
    files = {"train.py": INITIALIZE.format("'ds.json'"), "ds.json": AUTO}
    assert consumer(project, files, consumer="hf") == "hf"
    assert consumer(project, files, consumers={"*.json": "lightning"}) == "lightning"
    assert consumer(project, files, consumers={"conf/**": "lightning"}) == "deepspeed"
    assert consumer(project, files, consumer="accelerate", consumers={"conf/**": "hf"}) == "accelerate"
    assert consumer(project, files, consumers={"*": "hf", "ds.json": "accelerate"}) == "accelerate"


def test_the_reader_that_the_user_states_reads_the_runs_too(project: Path) -> None:
    files = {
        "ds.json": '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {}}',
        "train.py": "import other\n",
        "run.sh": "torchrun --nproc_per_node 3 train.py --deepspeed ds.json --per_device_train_batch_size 1\n",
    }
    for name, text in files.items():
        (project / name).write_text(text)
    settings = make_settings({"cache": False, "consumer": "hf"}, project)
    (finding,) = (f for f in check_paths(["."], settings).findings if f.code == "DSL408")
    assert finding.fact("consumer") == "hf"


def test_the_user_knows_better_than_the_program_around_a_config(project: Path) -> None:
    script = INITIALIZE.format("{'train_batch_size': 8, 'steps_per_prnt': 9}")
    assert consumers(project, {"train.py": script})["train.py"] == "deepspeed"
    assert consumers(project, {"train.py": script}, consumer="hf")["train.py"] == "hf"
