"""Script rules about values: label names, timeouts, memory fractions, batch sizes."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.core.finding import Severity
from dslint.model.context import Context
from dslint.rules.script import dsl203_trainer_extra_label_name as dsl203
from dslint.rules.script import dsl221_timeout_not_timedelta as dsl221
from dslint.rules.script import dsl223_process_group_timeout_missing as dsl223
from dslint.rules.script import dsl258_memory_fraction_literal as dsl258
from dslint.rules.script import dsl270_batch_size_not_divisible as dsl270

DIST = "import os\nimport numpy as np\nimport torch\nimport torch.distributed as dist\n"
EIGHT = Context(world_size=known(8))


TENSOR = pytest.mark.xfail(strict=True, reason="the interpreter does not keep the first dimension of a tensor")


@pytest.mark.parametrize(
    "code",
    [
        "mine = np.array_split(['a', 'b', 'c'], dist.get_world_size())[dist.get_rank()]\n",
        "for i in range(dist.get_rank(), 6, dist.get_world_size()):\n    print(i)\n",
        "prompts = ['a'] * 6\nper = len(prompts) // dist.get_world_size()\n",
        "n = dist.get_world_size()\nbatch_size = 6\nper = batch_size // n\n",
        "world_size = int(os.environ['WORLD_SIZE'])\nbatch_size = 6\nper = batch_size // world_size\n",
        pytest.param("x = torch.randn(6, 3, 8, 8)\nper = x.shape[0] // dist.get_world_size()\n", marks=TENSOR),
        pytest.param("x = torch.randn(6, 3, 8, 8)\nper = x.size(0) // dist.get_world_size()\n", marks=TENSOR),
        pytest.param("x = torch.randn(6, 3)\nmine = x.chunk(dist.get_world_size())[dist.get_rank()]\n", marks=TENSOR),
    ],
)
def test_dsl270_knows_the_size(code: str) -> None:
    (found,) = findings(dsl270, DIST + code, EIGHT)
    assert found.severity is Severity.INFO
    assert "not a multiple of the 8 ranks" in found.message
    assert findings(dsl270, DIST + code) == []


@pytest.mark.parametrize(
    "code",
    [
        "n_gpu = torch.cuda.device_count()\nbatch_size = 6\nper = batch_size // n_gpu\n",
        "x = torch.randn(6, 3)\nper = x.shape[1] // dist.get_world_size()\n",
        "for i in range(dist.get_rank(), 16, dist.get_world_size()):\n    print(i)\n",
        "steps = 6 // dist.get_world_size()\n",
        "batch_size = 6\nassert batch_size % dist.get_world_size() == 0\nper = batch_size // dist.get_world_size()\n",
    ],
)
def test_dsl270_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl270, DIST + code, EIGHT) == []


def test_dsl270_leaves_a_loop_that_waits_to_dsl207() -> None:
    code = "for i in range(dist.get_rank(), 6, dist.get_world_size()):\n    dist.barrier()\n"
    assert findings(dsl270, DIST + code, EIGHT) == []


@pytest.mark.parametrize(
    "code",
    [
        "class C:\n    limit = 1800\n    def f(self):\n        dist.init_process_group('nccl', timeout=self.limit)\n",
        "class C:\n    limit = 1800\ndist.init_process_group('nccl', timeout=C.limit)\n",
        "def f(timeout: int = 1800):\n    dist.init_process_group('nccl', timeout=timeout)\n",
        "dist.init_process_group('nccl', timeout=int(os.environ.get('T', 1800)))\n",
        "dist.new_group([0], 1800)\n",
        "import deepspeed\ndeepspeed.init_distributed('nccl', True, 29500, True, 3600)\n",
    ],
)
def test_dsl221_knows_a_number_by_its_type(code: str) -> None:
    (found,) = findings(dsl221, DIST + code)
    assert "is a number" in found.message
    assert found.fix is not None


def test_dsl221_reports_text_without_a_fix() -> None:
    (found,) = findings(dsl221, DIST + "dist.init_process_group('nccl', timeout='1800')\n")
    assert "is a text" in found.message
    assert found.fix is None


def test_dsl221_quiet_when_the_annotation_says_otherwise() -> None:
    code = "def f(timeout: timedelta = None):\n    dist.init_process_group('nccl', timeout=timeout)\n"
    assert findings(dsl221, DIST + code) == []


def test_dsl223_says_it_once_a_file() -> None:
    code = "if x:\n    dist.init_process_group('nccl')\nelse:\n    dist.init_process_group('gloo')\n"
    (found,) = findings(dsl223, DIST + code)
    assert found.severity is Severity.INFO


def test_dsl258_a_fixed_gpu_is_not_the_gpu_of_the_rank() -> None:
    call = "torch.cuda.set_per_process_memory_fraction(0.9, 0)\n"
    (found,) = findings(dsl258, DIST + "torch.cuda.set_device(local_rank)\n" + call)
    assert "only the first is limited" in found.message
    assert findings(dsl258, DIST + call) == []


HF = "from transformers import Trainer, TrainingArguments\n"
SAMPLES = "args = TrainingArguments('o', label_names=['samples'])\nbatch = {'samples': {'a': 1}}\n"


@pytest.mark.parametrize(
    ("trainer", "severity"),
    [
        ("Trainer(model=m, args=args, train_dataset=d)", Severity.INFO),
        ("Trainer(model=m, args=args, train_dataset=d, eval_dataset=None)", Severity.INFO),
        ("Trainer(model=m, args=args, train_dataset=d, eval_dataset=e)", Severity.WARNING),
        ("Trainer(model=m, args=args, eval_dataset=e, compute_metrics=f)", Severity.ERROR),
        ("Trainer(model=m, args=args, train_dataset=d).predict(e)", Severity.ERROR),
        ("Trainer(model=m, args=args, **anything)", Severity.ERROR),
        (
            "def data():\n    e = None\n    return dict(train_dataset=d, eval_dataset=e)\nTrainer(m, **data())",
            Severity.INFO,
        ),
    ],
)
def test_dsl203_is_as_sure_as_the_evaluation(trainer: str, severity: Severity) -> None:
    (found,) = findings(dsl203, f"{HF}{SAMPLES}{trainer}\n")
    assert found.severity is severity
    assert "in place of the labels" in found.message


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("args = TrainingArguments(**{'output_dir': 'o', 'label_names': ['labels', 'meta']})\n", 2),
        ("options = {}\noptions['label_names'] = ['labels', 'meta']\nargs = TrainingArguments(**options)\n", 3),
        ("def names():\n    return ['labels', 'meta']\nargs = TrainingArguments('o', label_names=names())\n", 4),
        ("def make(names):\n    return TrainingArguments('o', label_names=names)\nmake(['labels', 'meta'])\n", 3),
        ("args = TrainingArguments('o', label_names=['labels'])\nargs.label_names.append('meta')\n", 3),
        ("args = TrainingArguments('o', label_names=['labels'])\nargs.label_names.extend(['meta'])\n", 3),
        ("args = TrainingArguments('o', label_names=['labels'])\nargs.label_names += ['meta']\n", 3),
        ("def f(a: TrainingArguments):\n    a.label_names = a.label_names + ['labels', 'meta']\n", 3),
        ("def f(training_args):\n    training_args.label_names = ['labels', 'meta']\n", 3),
        ("t = Trainer(model=m)\nt.args.label_names = ['labels', 'meta']\n", 3),
        ("class T(Trainer):\n    def evaluate(self):\n        self.args.label_names.append('meta')\n", 4),
        (
            "from a import OwnTrainer\nclass T(OwnTrainer):\n    def f(self):\n        self.label_names += ['meta']\n",
            5,
        ),
        ("from own import OwnTrainingArguments as A\nargs = A('o', label_names=['labels', 'meta'])\n", 3),
        ("import dataclasses\ndef f(targs):\n    dataclasses.replace(targs, label_names=['labels', 'meta'])\n", 4),
    ],
)
def test_dsl203_knows_every_way_to_give_names(code: str, line: int) -> None:
    (found,) = findings(dsl203, HF + code)
    assert (found.location.region.line, found.severity) == (line, Severity.INFO)
    assert '"meta" besides the labels' in found.message


@pytest.mark.parametrize(
    "code",
    [
        "args = TrainingArguments('o')\nargs.label_names = args.label_names or ['labels', 'meta']\n",
        "def f(args):\n    args.label_names = ['labels', 'meta']\n",
        "args = TrainingArguments('o')\nprint(args.label_names)\nnames = args.label_names\n",
        "def f(args: TrainingArguments, key):\n    setattr(args, key, ['labels', 'meta'])\n",
        "class Plot:\n    def f(self):\n        self.label_names = ['epoch', 'loss']\n",
    ],
)
def test_dsl203_leaves_unknown_names_and_other_objects(code: str) -> None:
    assert findings(dsl203, HF + code) == []


@pytest.mark.parametrize(
    ("made", "kind", "conditional"),
    [
        ("batch = {'meta': str(f)}", "text", False),
        ("batch = dict(meta=f'{f}')", "text", False),
        ("batch['meta'] = [1]", "list", False),
        ("batch.update(meta={'a': 1})", "dict", False),
        ("batch.setdefault('meta', json.dumps(f))", "text", False),
        ("value = {'a': 1}\n    batch['meta'] = value", "dict", False),
        ("batch = {'meta': torch.tensor(f)}", "tensor", False),
        ("batch['meta'] = f.anything", None, False),
        ("if 'meta' in f:\n        batch['meta'] = torch.stack(f)", "tensor", True),
        ("if f:\n        batch['meta'] = torch.stack(f)\n    else:\n        pass", "tensor", False),
        ("batch = {**batch, **({'meta': torch.stack(f)} if f else {})}", "tensor", True),
        ("batch = {'meta': f[0].get('meta')}", None, True),
        ("other = {'key': 1}", None, False),
    ],
)
def test_dsl203_says_who_makes_the_key(made: str, kind: str | None, conditional: bool) -> None:
    args = "args = TrainingArguments('o', label_names=['labels', 'meta'])\n"
    collator = f"def collate(f, batch):\n    {made}\n    return batch\n"
    (found,) = findings(dsl203, f"import json\nimport torch\n{HF}{args}{collator}")
    facts = dict(found.facts)
    assert (facts["kind"], facts["conditional"]) == (kind, conditional)
    assert len(found.related) == ("'key'" not in made)
