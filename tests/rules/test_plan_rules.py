"""The rules over run plans: what they say, what they leave alone, and the Trainer as their judge."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from plan_helpers import PLAIN, STAGE_2, TRAINER, config, findings

from dslint.core.fact import known
from dslint.core.finding import Severity
from dslint.core.fix import Safety, apply_edits
from dslint.engine.run import check_paths
from dslint.model.context import Context, VersionFact
from dslint.model.plan.hfargs import HF_DEFAULTS, PAIRS
from dslint.settings import make_settings

RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir o"
FOREIGN = TRAINER.replace("from transformers", "from trl")
MMENGINE = """\
import argparse
from mmengine.runner import Runner

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
args = parser.parse_args()
Runner.from_cfg(args.config).train()
"""


# DSL404 openmmlab-launcher-missing


@pytest.mark.parametrize(
    ("before", "launcher", "after"),
    [
        ("torchrun --nproc_per_node 8 tools/train.py c.py", "pytorch", ""),
        ("python -m torch.distributed.launch --nproc_per_node=2 tools/train.py c.py", "pytorch", ""),
        ("srun -n 8 python -u tools/train.py c.py", "slurm", ""),
        ("torchrun --nproc_per_node 8 tools/train.py c.py", "pytorch", " 2>&1 | tee log"),
        ("torchrun --nproc_per_node 8 \\\n  tools/train.py \\\n  c.py", "pytorch", " > log"),
    ],
)
def test_the_launcher_flag_is_appended_after_the_arguments(before: str, launcher: str, after: str) -> None:
    files = {"run.sh": f"{before}{after}\n", "tools/train.py": MMENGINE}
    (finding,) = findings("DSL404", files)
    assert finding.severity is Severity.ERROR
    assert finding.fix is not None
    text = apply_edits(files["run.sh"], finding.fix.edits)
    assert text == f"{before} --launcher {launcher}{after}\n"
    assert findings("DSL404", {**files, "run.sh": text}) == []


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("srun -n 8 python tools/train.py c.py --launcher", " none", " slurm"),
        ("torchrun --nproc_per_node 8 tools/train.py c.py --launcher", "=slurm", "=pytorch"),
        ("srun -n 8 python tools/train.py c.py --launcher", " pytorch", " slurm"),
        ("srun -N 2 -n 2 torchrun --nnodes 2 --nproc_per_node 8 tools/train.py c.py --launcher", " slurm", " pytorch"),
    ],
)
def test_the_launcher_of_another_scheduler_is_replaced(command: str, wrong: str, right: str) -> None:
    files = {"run.sh": f"{command}{wrong}\n", "tools/train.py": MMENGINE}
    (finding,) = findings("DSL404", files)
    assert finding.fix is not None
    text = apply_edits(files["run.sh"], finding.fix.edits)
    assert text == f"{command}{right}\n"
    assert findings("DSL404", {**files, "run.sh": text}) == []


@pytest.mark.parametrize(
    "command",
    [
        "python tools/train.py c.py",
        "torchrun tools/train.py c.py",
        "GPUS=${GPUS:-1}\ntorchrun --nproc_per_node $GPUS tools/train.py c.py",
        "accelerate launch tools/train.py c.py",
        "srun --gres=gpu:1 python tools/train.py c.py",
        "torchrun --nproc_per_node 8 tools/train.py $1 $2",
        "torchrun --nproc_per_node 8 tools/train.py c.py ${@:3}",
        "torchrun --nproc_per_node 8 tools/train.py c.py --launcher $LAUNCHER",
        "torchrun --nproc_per_node 8 tools/train.py c.py --launcher mpi",
        "srun -n 1 python tools/train.py c.py",
        "export RANK=$SLURM_PROCID\nsrun -n 8 python tools/train.py c.py --launcher pytorch",
        "srun -N 2 -n 2 torchrun --nnodes 2 --nproc_per_node 8 tools/train.py c.py --launcher pytorch",
        "torchrun --nproc_per_node 8 tools/other.py c.py",
    ],
)
def test_dsl404_is_quiet_when_the_group_forms_or_nobody_can_tell(command: str) -> None:
    assert findings("DSL404", {"run.sh": command + "\n", "tools/train.py": MMENGINE}) == []


def test_dsl404_is_quiet_when_the_config_file_may_name_the_launcher() -> None:
    script = MMENGINE + 'launcher = cfg.get("launcher", args.launcher)\n'
    files = {"run.sh": "torchrun --nproc_per_node 8 tools/train.py c.py\n", "tools/train.py": script}
    assert findings("DSL404", files) == []


@pytest.mark.parametrize(
    ("command", "severity", "option"),
    [
        ("torchrun --nproc_per_node $GPUS tools/train.py c.py", Severity.WARNING, "pytorch"),
        ("torchrun --nproc_per_node=gpu tools/train.py c.py", Severity.WARNING, "pytorch"),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 tools/train.py $1", Severity.WARNING, "pytorch"),
        ("deepspeed tools/train.py c.py", Severity.WARNING, "pytorch"),
        ("torchrun --nproc_per_node 8 tools/train.py $CONFIG --work-dir $2", Severity.ERROR, "pytorch"),
        ("accelerate launch --num_processes 8 tools/train.py c.py", Severity.ERROR, "pytorch"),
        ("mpirun -np 8 python tools/train.py c.py", Severity.ERROR, "mpi"),
        ("L='torchrun --nproc_per_node 8'\nC='tools/train.py c.py'\nbash -c \"$L $C\"", Severity.ERROR, "pytorch"),
        ('run() { torchrun --nproc_per_node 8 tools/train.py "$@"; }\nrun c.py', Severity.ERROR, "pytorch"),
        ("sbatch <<'E'\n#!/bin/bash\n#SBATCH -N2 -n 16\nsrun python tools/train.py c.py\nE", Severity.ERROR, "slurm"),
        ("docker run --gpus all img torchrun --nproc_per_node 8 tools/train.py c.py", Severity.ERROR, "pytorch"),
    ],
)
def test_dsl404_sees_the_command_through_its_wrappers(command: str, severity: Severity, option: str) -> None:
    (finding,) = findings("DSL404", {"run.sh": command + "\n", "tools/train.py": MMENGINE})
    assert finding.severity is severity
    assert finding.hint == f"Append `--launcher {option}` to the arguments of the script"


def test_dsl404_says_that_none_is_no_launcher() -> None:
    files = {"run.sh": "torchrun --nproc_per_node 8 tools/train.py c.py --launcher none\n", "tools/train.py": MMENGINE}
    (finding,) = findings("DSL404", files)
    assert "the script's `--launcher` is `none`" in finding.message
    assert finding.fix is not None
    assert apply_edits(files["run.sh"], finding.fix.edits).endswith("--launcher pytorch\n")


def test_dsl404_is_a_warning_in_documentation() -> None:
    text = "# Start\n\n```bash\ntorchrun --nproc_per_node 8 tools/train.py c.py\n```\n"
    (finding,) = findings("DSL404", {"README.md": text, "tools/train.py": MMENGINE}, "README.md")
    assert (finding.severity, finding.location.region.line) == (Severity.WARNING, 4)


# DSL408 batch-triangle


def test_the_message_spells_the_arithmetic_with_all_places() -> None:
    files = {
        "run.sh": "deepspeed \\\n  --num_gpus 8 train.py --deepspeed_config ds.json\n",
        "train.py": PLAIN,
        "ds.json": config(train_batch_size=28, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=1),
    }
    (finding,) = findings("DSL408", files)
    assert "is 28, but micro batch 4 x accumulation steps 1 x world size 8 = 32" in finding.message
    assert str(finding.location) == "ds.json:5"
    assert {str(place) for place in finding.related} == {"ds.json:6", "ds.json:7", "run.sh:2"}
    assert finding.pointer == "/train_batch_size"


def test_arguments_of_the_trainer_take_part_in_the_triangle() -> None:
    files = {
        "run.sh": f"{RUN} --per_device_train_batch_size 4 --gradient_accumulation_steps 2\n",
        "train.py": TRAINER,
        "ds.json": config(train_batch_size=32, train_micro_batch_size_per_gpu="auto"),
    }
    (finding,) = findings("DSL408", files)
    assert "is 32, but micro batch 4 x accumulation steps 2 x world size 8 = 64" in finding.message
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    fixed = apply_edits(files["ds.json"], finding.fix.edits)
    assert json.loads(fixed)["train_batch_size"] == "auto"
    assert findings("DSL408", {**files, "ds.json": fixed}) == []


def test_runs_that_fail_alike_are_one_finding() -> None:
    text = config(train_batch_size=32)
    files = {"run.sh": f"{RUN}\n{RUN}\n{RUN.replace('8', '16')}\n", "train.py": TRAINER, "ds.json": text}
    found = findings("DSL408", files)
    assert [f.message.count("world size 8 =") for f in found] == [1, 0]
    assert "run.sh:2" in {str(place) for place in found[0].related}


def test_a_default_of_the_trainer_is_named_as_such() -> None:
    files = {"run.sh": RUN + "\n", "train.py": TRAINER, "ds.json": config(train_batch_size=32)}
    (finding,) = findings("DSL408", files)
    assert "8 (default)" in finding.message


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the world size is unknown", {"run.sh": RUN.replace("8", "$GPUS") + "\n"}),
        ("an unseen word may set the batch size", {"run.sh": RUN + " $ARGS\n"}),
        ("the search for a batch size is on", {"run.sh": RUN + " --auto_find_batch_size\n"}),
        ("the script changes the config", {"train.py": TRAINER + "config['train_batch_size'] = 64\n"}),
        ("an argument splits the ranks", {"run.sh": RUN + " --tensor_parallel_size 2\n"}),
        ("the launch script writes the config", {"run.sh": f"cp /etc/ds.json ds.json\n{RUN}\n"}),
        ("the product fits", {"ds.json": config(train_batch_size=64)}),
        ("the class comes from elsewhere", {"train.py": FOREIGN}),
    ],
)
def test_dsl408_is_quiet_when(what: str, change: dict[str, str]) -> None:
    files = {"run.sh": RUN + "\n", "train.py": TRAINER, "ds.json": config(train_batch_size=32)}
    assert findings("DSL408", files), "the look-alike must differ in one thing only"
    assert findings("DSL408", {**files, **change}) == [], what


def test_the_rule_that_knows_the_command_speaks_for_the_one_that_knows_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = config(train_batch_size=30, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=1)
    files = {"run.sh": "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n", "train.py": PLAIN}
    for name, content in {**files, "ds.json": text}.items():
        Path(name).write_text(content)
    (found,) = [f for f in check_paths(["."], make_settings({})).findings if f.code in ("DSL130", "DSL408")]
    assert found.code == "DSL408"
    assert "is 30, but micro batch 4 x accumulation steps 1 x world size 8 = 32" in found.message
    (alone,) = check_paths(["."], make_settings({"ignore": ["DSL408"], "select": ["DSL130", "DSL408"]})).findings
    assert alone.code == "DSL130"


def test_the_stated_world_size_helps_where_the_command_is_silent() -> None:
    files = {
        "run.sh": "deepspeed train.py --deepspeed ds.json --output_dir o\n",
        "train.py": TRAINER,
        "ds.json": config(train_batch_size=32),
    }
    assert findings("DSL408", files) == []
    stated = Context(world_size=known(8))
    assert len(findings("DSL408", files, context=stated)) == 1
    assert findings("DSL408", {**files, "ds.json": config(train_batch_size=64)}, context=stated) == []


def test_an_unseen_reader_of_the_config_makes_it_a_warning() -> None:
    files = {
        "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n",
        "train.py": "from engine import main\n\nmain()\n",
        "ds.json": config(train_batch_size=12, train_micro_batch_size_per_gpu=4),
    }
    (finding,) = findings("DSL408", files)
    assert finding.severity is Severity.WARNING
    assert finding.fix is None


# DSL409 hf-value-mismatch


@pytest.mark.parametrize(
    ("flags", "values", "pointer"),
    [
        ("--learning_rate 2e-5", {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}, "/optimizer/params/lr"),
        ("--learning_rate 2e-5", {"optimizer": {"type": "AdamW", "params": {"lr": "2e-5"}}}, "/optimizer/params/lr"),
        ("--adam_beta2 0.95", {"optimizer": {"params": {"betas": [0.9, 0.999]}}}, "/optimizer/params/betas"),
        ("--max_grad_norm 0.5", {"gradient_clipping": 1.0}, "/gradient_clipping"),
        ("", {"gradient_clipping": 0.5}, "/gradient_clipping"),
        ("", {"fp16": {"enabled": True}}, "/fp16/enabled"),
        ("--bf16 True", {"bf16": {"enabled": False}}, "/bf16/enabled"),
        ("--max_steps 100", {"scheduler": {"params": {"total_num_steps": 200}}}, "/scheduler/params/total_num_steps"),
        ("--learning_rate 1", {"scheduler": {"params": {"warmup_max_lr": 2}}}, "/scheduler/params/warmup_max_lr"),
        ("--warmup_steps 5", {"scheduler": {"params": {"warmup_num_steps": 9}}}, "/scheduler/params/warmup_num_steps"),
        ("--per_device_train_batch_size 2", {"train_micro_batch_size_per_gpu": 4}, "/train_micro_batch_size_per_gpu"),
    ],
)  # fmt: skip
def test_a_value_that_the_trainer_would_refuse_is_reported(flags: str, values: dict[str, object], pointer: str) -> None:
    files = {"run.sh": f"{RUN} {flags}\n", "train.py": TRAINER, "ds.json": config(**values)}
    (finding,) = findings("DSL409", files)
    assert finding.pointer == pointer
    assert any(place.path == "run.sh" for place in finding.related)
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    fixed = apply_edits(files["ds.json"], finding.fix.edits)
    assert findings("DSL409", {**files, "ds.json": fixed}) == []


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        ("--learning_rate 1e-4", {"optimizer": {"params": {"lr": 0.0001}}}),
        ("--learning_rate $LR", {"optimizer": {"params": {"lr": 1e-4}}}),
        ("", {"gradient_clipping": 1}),
        ("", {"gradient_clipping": None}),
        ("--bf16", {"bf16": {"enabled": True}}),
        ("--bf16_full_eval", {"bf16": {"enabled": True}}),
        ("", {"scheduler": {"params": {"total_num_steps": 200, "warmup_num_steps": "auto"}}}),
        ("--warmup_ratio 0.1", {"scheduler": {"params": {"warmup_num_steps": 20}}}),
        ("--warmup_steps 0.1", {"scheduler": {"params": {"warmup_num_steps": 20}}}),
        ("--warmup_steps 5 --warmup_ratio 0.1", {"scheduler": {"params": {"warmup_num_steps": 20}}}),
        ("--warmup_steps 20.0", {"scheduler": {"params": {"warmup_num_steps": 20}}}),
        ("", {"bf16": {"enabled": False}, "fp16": {"enabled": "auto", "loss_scale": 0}}),
        ("--auto_find_batch_size", {"train_micro_batch_size_per_gpu": 4}),
        ("$EXTRA", {"gradient_clipping": 0.5}),
    ],
)
def test_dsl409_is_quiet_when_values_agree_or_are_not_known(flags: str, values: dict[str, object]) -> None:
    files = {"run.sh": f"{RUN} {flags}\n", "train.py": TRAINER, "ds.json": config(**values)}
    assert findings("DSL409", files) == []


def test_runs_with_different_values_make_the_fix_unsafe() -> None:
    run = f"{RUN} --learning_rate 1e-5\n{RUN} --learning_rate 1e-4\n"
    text = config(optimizer={"params": {"lr": 1e-4}})
    (finding,) = findings("DSL409", {"run.sh": run, "train.py": TRAINER, "ds.json": text})
    assert finding.fix is not None
    assert finding.fix.safety is Safety.UNSAFE


def test_a_value_that_several_runs_share_is_said_once() -> None:
    run = f"{RUN} --learning_rate 1e-5\n" * 3
    text = config(optimizer={"params": {"lr": 1e-4}})
    (finding,) = findings("DSL409", {"run.sh": run, "train.py": TRAINER, "ds.json": text})
    assert sorted(place.region.line for place in finding.related) == [1, 2, 3]


@pytest.mark.parametrize(
    ("flags", "arguments", "values", "pointer"),
    [
        # `accelerate launch --mixed_precision bf16` reaches its plugin, not the argument that is compared.
        ("--mixed_precision bf16", "", {"bf16": {"enabled": True}}, "/bf16/enabled"),
        ("--gradient_accumulation_steps 4", "", {"gradient_accumulation_steps": 4}, "/gradient_accumulation_steps"),
        ("", "--gradient_accumulation_steps 2", {}, "/gradient_accumulation_steps"),
        ("", "--gradient_accumulation_steps 1", {}, None),
        ("", "--gradient_accumulation_steps $N", {}, None),
        ("", "--gradient_accumulation_steps 2 $MORE", {}, None),
        ("", "--gradient_accumulation_steps 2", {"gradient_accumulation_steps": "auto"}, None),
        ("", "--gradient_accumulation_steps 2", {"gradient_accumulation_steps": None}, None),
        ("", "--gradient_accumulation_steps 2 --deepspeed ds.json", {}, None),
    ],
)
def test_what_accelerate_launch_changes_about_the_comparison(
    flags: str, arguments: str, values: dict[str, object], pointer: str | None
) -> None:
    run = f"accelerate launch {flags} --use_deepspeed --deepspeed_config_file ds.json train.py {arguments}\n"
    files = {"run.sh": run, "train.py": TRAINER, "ds.json": config(**values)}
    assert [f.pointer for f in findings("DSL409", files)] == ([pointer] if pointer else [])


@pytest.mark.parametrize(
    ("release", "stated", "is_wrong"),
    [
        ("==4.57.1", 0, False), ("==4.57.1", 1, True), ("==5.17.0", 0, False), ("==5.18.0", 0, True),
        ("==5.18.0", 1, False), (">=4.40", 0, False), (">=4.40", 1, False), (">=4.40", 5, True), ("", 0, False),
        ("", 100, True),
    ],
)  # fmt: skip
def test_no_warm_up_counts_as_one_step_since_transformers_5_18(release: str, stated: int, is_wrong: bool) -> None:
    text = config(scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": stated}})
    context = Context(libraries={"transformers": VersionFact(release)} if release else {})
    files = {"run.sh": f"{RUN}\n", "train.py": TRAINER, "ds.json": text}
    assert bool(findings("DSL409", files, context=context)) is is_wrong


# DSL443 config-path-missing


def test_a_missing_config_is_a_warning_at_its_word() -> None:
    files = {"scripts/run.sh": RUN.replace("ds.json", "conf/ds.json") + "\n", "train.py": TRAINER}
    (finding,) = findings("DSL443", files, "scripts/run.sh")
    assert finding.severity is Severity.WARNING
    assert files["scripts/run.sh"][finding.location.span.start : finding.location.span.end] == "conf/ds.json"


@pytest.mark.parametrize(
    "run",
    [
        RUN.replace("ds.json", "~/ds.json"),
        RUN.replace("ds.json", "/opt/ds.json"),
        RUN.replace("ds.json", "../../ds.json"),
        RUN.replace("ds.json", "$CONF/ds.json"),
        f"echo {{}} > ds.json\n{RUN}",
        f"wget https://example.org/ds.json\n{RUN}",
        f"python make_config.py --out ds.json\n{RUN}",
        f"CONFIG=ds.json\nenvsubst < template > $CONFIG\n{RUN.replace('ds.json', '$CONFIG')}",
        f"N=ds\nOUT=${{N}}.json\nsed s/A/B/ template > ${{OUT}}\nCONFIG=$OUT\n{RUN.replace('ds.json', '$CONFIG')}",
        f"cd $WORK\n{RUN}",
        RUN.replace("train.py", "theirs/train.py"),
        RUN.replace("ds.json", "zero3"),
    ],
)
def test_dsl443_is_quiet_when_the_file_may_appear(run: str) -> None:
    assert findings("DSL443", {"run.sh": run + "\n", "train.py": TRAINER}) == []


def test_dsl443_is_quiet_when_the_script_writes_the_config() -> None:
    script = TRAINER + 'json.dump({}, open("ds.json", "w"))\n'
    assert findings("DSL443", {"run.sh": RUN + "\n", "train.py": script}) == []


def test_dsl443_is_only_worth_knowing_in_documentation() -> None:
    (finding,) = findings("DSL443", {"README.md": f"```bash\n{RUN}\n```\n", "train.py": TRAINER}, "README.md")
    assert finding.severity is Severity.INFO


# The judge


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if "num_steps" not in pair.pointer], ids=lambda pair: pair.pointer
)
def test_transformers_refuses_what_the_table_of_pairs_says(pair: object, tmp_path: Path) -> None:
    deepspeed = pytest.importorskip("transformers.integrations.deepspeed")
    pytest.importorskip("deepspeed")
    arguments = SimpleNamespace(**HF_DEFAULTS, world_size=8, save_on_each_node=False)
    value = pair.value({name: known(default) for name, default in HF_DEFAULTS.items()}).get()  # type: ignore[attr-defined]
    other = [0.1, 0.2] if isinstance(value, list) else (not value if isinstance(value, bool) else value + 1)
    for stated, mismatches in ((value, 0), ("auto", 0), (other, 1)):
        nested: dict[str, object] = {}
        at = nested
        *parents, last = pair.pointer[1:].split("/")  # type: ignore[attr-defined]
        for parent in parents:
            at = at.setdefault(parent, {})  # type: ignore[assignment]
        at[last] = stated
        nested.setdefault("zero_optimization", {"stage": 2})
        judge = deepspeed.HfTrainerDeepSpeedConfig(nested)
        judge.trainer_config_process(arguments)
        assert len(judge.mismatches) == mismatches, judge.mismatches


def test_the_defaults_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert {name: fields[name].default for name in HF_DEFAULTS} == HF_DEFAULTS


def test_a_stage_without_config_file_has_no_triangle() -> None:
    assert findings("DSL408", {"run.sh": "xtuner train c.py --deepspeed deepspeed_zero2\n", "ds.json": STAGE_2}) == []


@pytest.mark.parametrize("words", ["--bf16 \\ # why\n", "--mode \\ # why\n", "--mode train \\ # why not\n"])
def test_a_comment_behind_an_escaped_blank_is_told_once(words: str) -> None:
    script = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--bf16', action='store_true')\n"
        "parser.add_argument('--mode', choices=['train', 'eval'])\nargs = parser.parse_args()\n"
    )
    files = {"run.sh": f"torchrun --nproc_per_node 8 train.py {words}", "train.py": script}
    assert [f.code for code in ("DSL403", "DSL407", "DSL419", "DSL420") for f in findings(code, files)] == []
