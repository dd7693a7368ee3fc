"""Script rules about process groups, checkpoints and the start of DeepSpeed, and the parts of the model they ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.core.finding import Severity
from dslint.engine.run import check_paths
from dslint.model.context import Context
from dslint.rules.script import dsl221_timeout_not_timedelta as dsl221
from dslint.rules.script import dsl225_ddp_timeout_without_effect as dsl225
from dslint.rules.script import dsl226_group_members_per_rank as dsl226
from dslint.rules.script import dsl228_gather_list_on_every_rank as dsl228
from dslint.rules.script import dsl229_collective_in_main_process_first as dsl229
from dslint.rules.script import dsl231_checkpoint_tag_per_rank as dsl231
from dslint.rules.script import dsl232_checkpoint_load_under_rank_guard as dsl232
from dslint.rules.script import dsl240_barrier_device_unknown as dsl240
from dslint.rules.script import dsl241_process_group_not_destroyed as dsl241
from dslint.rules.script import dsl242_process_group_made_twice as dsl242
from dslint.rules.script import dsl243_initialize_without_config as dsl243
from dslint.rules.script import dsl244_initialize_with_two_configs as dsl244
from dslint.rules.script import dsl245_initialize_without_optimizer as dsl245
from dslint.rules.script import dsl260_nccl_without_cuda_check as dsl260
from dslint.settings import make_settings

DIST = "import os\nimport torch\nimport torch.distributed as dist\n"
NAMES = "import datetime, os, platform, socket, tempfile, time, uuid\nimport torch.distributed as dist\n"
ENGINE = "import deepspeed\nengine, _, _, _ = deepspeed.initialize(model=m, config='ds.json')\n"


@pytest.mark.parametrize(
    ("expression", "kind", "certain"),
    [
        ("f'a-{time.time()}'", "clock", True),
        ("f'a-{time.time():.0f}'", "clock", False),
        ("'a-' + str(int(time.time()))", "clock", False),
        ("time.strftime('%H%M')", "clock", False),
        ("datetime.datetime.now().isoformat()", "clock", True),
        ("datetime.datetime.now().strftime('%H%M%S')", "clock", False),
        ("'%s-%d' % ('a', os.getpid())", "unique", True),
        ("os.path.join('out', uuid.uuid4().hex)", "unique", True),
        ("str(uuid.uuid4())[:8]", "unique", True),
        ("str(time.time())[:8]", "clock", False),
        ("'a-{}'.format(uuid.uuid1())", "unique", True),
        ("tempfile.mkdtemp()", "unique", True),
        ("f'{socket.gethostname()}'", "host", False),
        ("f'{platform.node()}-x'", "host", False),
        ("f'r{dist.get_rank()}'", "rank", True),
        ("f'r{os.environ[\"RANK\"]}'", "rank", True),
    ],
)
def test_dsl231_knows_values_of_the_process_itself(expression: str, kind: str, certain: bool) -> None:
    (found,) = findings(dsl231, NAMES + ENGINE + f"name = {expression}\nengine.save_checkpoint('out', name)\n")
    assert dict(found.facts)["kind"] == kind
    assert (found.severity is Severity.ERROR) == certain


@pytest.mark.parametrize(
    "code",
    [
        "engine.save_checkpoint('out', f'step-{step}')\n",
        "name = f'{time.time()}'\nname = share(name)\nuse(name)\n",
        "engine.save_checkpoint('out', f'{time.time() // 3600}')\n",
        "engine.save_checkpoint('out', f'{dist.get_rank() // 8}')\n",
        "for rank in range(4):\n    engine.save_checkpoint('out', f'r{rank}')\n",
        "engine.save_checkpoint('out', names[0])\n",
        "engine.save_checkpoint('out', dist.get_rank)\n",
    ],
)
def test_dsl231_leaves_values_alone_that_may_be_the_same_everywhere(code: str) -> None:
    assert findings(dsl231, NAMES + ENGINE + code) == []


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    rank = dist.get_rank()\n    dist.new_group([r for r in range(8) if r // 2 == rank // 2])\n",
        "rank = int(os.environ['RANK'])\nstart = rank // 4 * 4\ndist.new_group(list(range(start, start + 4)))\n",
        "import deepspeed.comm as comm\nme = comm.get_rank()\ncomm.new_group(ranks=[me, me + 1])\n",
    ],
)
def test_dsl226_sees_the_rank_behind_variables(code: str) -> None:
    (found,) = findings(dsl226, DIST + code)
    assert "these members depend on the rank" in found.message


@pytest.mark.parametrize(
    "code",
    [
        "tp_rank = dist.get_rank() % 4\nfor r in range(4):\n    dist.new_group([r * 2, r * 2 + 1])\n",
        "dist.new_group([dist.get_rank()])\n",
        "rank = dist.get_rank()\nmembers = make(rank)\ndist.new_group(members)\n",
        "rank = dist.get_rank()\nif rank < 2:\n    dist.new_group([0, 1], use_local_synchronization=True)\n",
        "for rank in range(dist.get_world_size()):\n    dist.new_group([rank, rank + 1])\n",
    ],
)
def test_dsl226_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl226, DIST + code) == []


@pytest.mark.parametrize(
    "code",
    [
        "parts = [torch.zeros(1) for _ in range(n if dist.get_rank() == 0 else 0)]\ndist.gather(x, parts)\n",
        "parts = make()\ndist.gather(x, parts)\n",
        "def f(parts):\n    dist.gather(x, parts)\n",
        "def f():\n    parts = [x] * 2\n    dist.gather(x, parts)\nif dist.get_rank() == 0:\n    f()\n",
        "parts = [x] * 2\nif is_src:\n    dist.gather(x, parts)\n",
        "parts = [x] * 2\ndist.gather(x, parts, dst=dist.get_rank())\n",
        "parts = [x] * 2\ndist.gather(**options)\n",
    ],
)
def test_dsl228_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl228, DIST + code) == []


def test_dsl229_knows_every_spelling_of_the_block() -> None:
    body = "    dist.all_reduce(x)\n"
    for block in (
        "args.main_process_first(desc='map')",
        "torch_distributed_zero_first(local_rank)",
        "zero_first(main)",
    ):
        (found,) = findings(dsl229, DIST + f"with {block}:\n{body}")
        assert dict(found.facts)["collective"] == "all_reduce"
    assert findings(dsl229, DIST + f"with torch.no_grad():\n{body}") == []


def test_dsl229_leaves_guarded_calls_to_dsl201() -> None:
    code = "with zero_first(main):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n"
    assert findings(dsl229, DIST + code) == []


def test_dsl231_is_an_error_only_where_the_ranks_never_agree() -> None:
    code = "import time\n" + ENGINE + "engine.save_checkpoint('out', tag={0})\n"
    (certain,) = findings(dsl231, code.format("str(time.time())"))
    (coarse,) = findings(dsl231, code.format("time.strftime('%H%M')"))
    assert (certain.severity, coarse.severity) == (Severity.ERROR, Severity.WARNING)


@pytest.mark.parametrize(
    "code",
    [
        "if rank == 0:\n    model.load_state_dict(torch.load('a'))\n",
        "if args.resume:\n    engine.load_checkpoint('out')\n",
        "if rank == 0:\n    other.load_checkpoint('out')\n",
        "if rank == 0:\n    engine.load_checkpoint('a')\nelse:\n    engine.load_checkpoint('b')\n",
    ],
)
def test_dsl232_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl232, DIST + ENGINE + "rank = dist.get_rank()\n" + code) == []


def test_dsl225_reads_the_timeout_of_the_first_call() -> None:
    code = "from transformers import TrainingArguments\n{0}\nargs = TrainingArguments('out', ddp_timeout=9000)\n"
    assert len(findings(dsl225, DIST + code.format("dist.init_process_group('nccl')"))) == 1
    for quiet in ("dist.init_process_group('nccl', timeout=t)", "dist.init_process_group('nccl', None, t)", "pass"):
        assert findings(dsl225, DIST + code.format(quiet)) == []


@pytest.mark.parametrize(
    "code",
    [
        "dist.init_process_group('nccl')\nif not dist.is_initialized():\n    dist.init_process_group('nccl')\n",
        "for port in ports:\n    dist.init_process_group('nccl')\n",
        "from datetime import timedelta as td\nimport deepspeed\ndist.init_process_group('nccl', timeout=td(hours=1))\n"
        "deepspeed.init_distributed('nccl', timeout=td(minutes=60))\n",
        "import deepspeed\ndist.init_process_group('cpu:gloo,cuda:nccl')\ndeepspeed.init_distributed('nccl')\n",
        "import deepspeed\ndist.init_process_group(backend)\ndeepspeed.init_distributed('nccl')\n",
    ],
)
def test_dsl242_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl242, DIST + code) == []


@pytest.mark.parametrize(
    ("code", "fires"),
    [
        ("parser = argparse.ArgumentParser()\nargs = parser.parse_args()\n", True),
        ("parser = argparse.ArgumentParser()\nextend(parser)\nargs = parser.parse_args()\n", False),
        ("parser = argparse.ArgumentParser()\nargs = parser.parse_args()\nfill(args)\n", False),
        ("parser = argparse.ArgumentParser(parents=[base])\nargs = parser.parse_args()\n", False),
        ("parser = argparse.ArgumentParser()\nargs, rest = parser.parse_known_args()\n", True),
        ("parser = make_parser()\nargs = parser.parse_args()\n", False),
        (
            "parser = argparse.ArgumentParser()\nargs = parser.parse_args()\nsetattr(args, 'deepspeed_config', 'a')\n",
            False,
        ),
    ],
)
def test_dsl243_knows_what_a_parser_lacks(code: str, fires: bool) -> None:
    code = "import argparse\nimport deepspeed\n" + code + "deepspeed.initialize(args=args, model=m)\n"
    assert bool(findings(dsl243, code)) == fires


def test_dsl244_needs_a_command_that_names_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import argparse\nimport deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
        "args = parser.parse_args()\ndeepspeed.initialize(args=args, model=m, config={'train_batch_size': 8})\n"
    )
    asked = code.replace("deepspeed.init", "if args.deepspeed_config is None:\n    deepspeed.init")
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text('{"train_batch_size": 8}')

    def told(text: str, command: str) -> int:
        Path("train.py").write_text(text)
        Path("run.sh").write_text(f"{command}\n")
        result = check_paths(["."], make_settings({"cache": False, "jobs": 1}, tmp_path))
        return len([f for f in result.findings if f.code == "DSL244"])

    named = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json"
    assert findings(dsl244, code) == []
    assert (told(code, named), told(asked, named)) == (1, 0)


def test_dsl245_follows_the_engine_that_trains() -> None:
    made = "import deepspeed\nC = {'train_batch_size': 8}\nref = deepspeed.initialize(model=m, config=C)[0]\n"
    train = "engine, _, _, _ = deepspeed.initialize(model=m, config=C, optimizer=o)\nengine.backward(engine(x))\n"
    assert findings(dsl245, made + train) == []
    (found,) = findings(dsl245, made + "ref.backward(ref(x))\n")
    assert dict(found.facts)["arguments"] == "no-optimizer"
    assert findings(dsl245, made.replace("'train_batch_size': 8", "") + "ref.backward(ref(x))\n") == []
    assert findings(dsl245, made.replace("\nref", "\nfill(C)\nref") + "ref.backward(ref(x))\n") == []


@pytest.mark.parametrize(
    "code",
    [
        "dist.init_process_group('nccl')\ndist.all_reduce(x)\ndist.barrier()\n",
        "dist.init_process_group('nccl')\ndist.barrier(device_ids=[0])\n",
        "dist.init_process_group(backend)\ndist.barrier()\n",
        "dist.init_process_group('nccl')\nchoose.set_device(0)\ndist.barrier()\n",
        "def a():\n    dist.init_process_group('nccl')\ndef b():\n    dist.barrier()\n",
    ],
)
def test_dsl240_quiet_on_look_alikes(code: str) -> None:
    assert findings(dsl240, DIST + code) == []


def test_dsl241_and_dsl260_ask_the_whole_file() -> None:
    main = "def main():\n    dist.init_process_group(backend='nccl')\nif __name__ == '__main__':\n    main()\n"
    assert len(findings(dsl241, DIST + main)) == len(findings(dsl260, DIST + main)) == 1
    assert findings(dsl241, DIST + main + "    dist.destroy_process_group()\n") == []
    assert findings(dsl260, DIST + "print(torch.cuda.is_available())\n" + main) == []


def test_dsl221_tells_a_timedelta_for_the_trainer() -> None:
    head = "from datetime import timedelta\nfrom transformers import TrainingArguments\n"
    (found,) = findings(dsl221, head + "t = timedelta(hours=1)\nTrainingArguments('out', ddp_timeout=t)\n")
    assert found.fix is not None
    assert found.fix.edits[0].text == "int(t.total_seconds())"
    assert findings(dsl221, head + "TrainingArguments('out', ddp_timeout=t)\n") == []
    assert findings(dsl221, head + "make('out', ddp_timeout=timedelta(hours=1))\n") == []


def test_dsl221_an_argument_that_may_be_missing_is_a_warning() -> None:
    code = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--t', type=int{0})\na = p.parse_args()\n"
        "dist.init_process_group('nccl', timeout=a.t)\n"
    )
    (maybe,) = findings(dsl221, DIST + code.format(""))
    (always,) = findings(dsl221, DIST + code.format(", default=60"))
    assert (maybe.severity, always.severity) == (Severity.WARNING, Severity.ERROR)
    assert findings(dsl221, DIST + code.replace("type=int", "type=parse").format("")) == []


def test_dsl225_reads_the_launch_command() -> None:
    code = (
        "import deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "deepspeed.init_distributed({0})\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    )
    run = Context(arguments={"ddp_timeout": known("36000")})
    assert len(findings(dsl225, code.format(""), run)) == 1
    assert findings(dsl225, code.format("timeout=t"), run) == []
    assert findings(dsl225, code.format("")) == []
    assert findings(dsl225, code.format(""), Context(arguments={"ddp_timeout": known("1800")})) == []


@pytest.mark.parametrize(
    ("arguments", "fires"),
    [
        ("output_dir=str(uuid.uuid4()), deepspeed='ds.json'", True),
        ("output_dir=str(uuid.uuid4()), fsdp='full_shard'", True),
        ("output_dir=str(uuid.uuid4()), deepspeed=None", False),
        ("output_dir=str(uuid.uuid4())", False),
        ("output_dir='out', deepspeed='ds.json'", False),
    ],
)
def test_dsl231_knows_when_the_trainer_saves_parts(arguments: str, fires: bool) -> None:
    code = f"import uuid\nfrom transformers import TrainingArguments\nargs = TrainingArguments({arguments})\n"
    assert bool(findings(dsl231, code)) == fires
