"""The run plan: files, script arguments, configs and facts joined from a launch command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_helpers import PLAIN, STAGE_2, TRAINER, plans_of

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.model.plan.arguments import default_arguments
from dslint.model.plan.contexts import contexts_for as contexts_of
from dslint.model.plan.hfargs import EXACT_DEFAULTS
from dslint.model.plan.runplan import RunPlan
from dslint.model.plan.scriptprofile import ScriptProfile, profile_of
from dslint.model.workspace import Workspace

INTEGERS_AND_WORDS = ("max_steps", "fsdp", "lr_scheduler_type", "optim")
STAGE_3 = STAGE_2.replace("2}", "3}")


def contexts_for(plans: list[RunPlan], base: Context) -> dict[str, Context]:
    return contexts_of(plans, lambda path: base)


def plan_of(files: dict[str, str], launch: str = "run.sh") -> RunPlan:
    (plan,) = plans_of(files, launch)
    return plan


def profile(text: str) -> ScriptProfile:
    found = profile_of("train.py", Workspace(Path("/nonexistent"), {"train.py": text}))
    assert found is not None
    return found


# Workspace


def test_a_fifo_a_folder_and_a_binary_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00{")
    workspace = Workspace(tmp_path)
    for name in ("pipe.json", "folder.json", "binary.json", "missing.json", "a\0b"):
        assert workspace.read(name) is None, name
        assert workspace.json(name) is None, name
    assert workspace.exists("pipe.json")
    assert not workspace.is_file("pipe.json")


def test_a_symlink_loop_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert Workspace(tmp_path).read("a.json") is None


def test_paths_have_one_spelling(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ds.json").write_text(STAGE_2)
    workspace = Workspace(tmp_path)
    spellings = ["conf/ds.json", "./conf/ds.json", "conf/../conf/ds.json", str(tmp_path / "conf" / "ds.json")]
    found = [workspace.read(path) for path in spellings]
    assert {source.path for source in found if source} == {"conf/ds.json"}
    assert all(source is found[0] for source in found)


def test_bases_go_up_to_the_root_and_outside_it_to_the_repository(tmp_path: Path) -> None:
    assert Workspace(tmp_path).bases("a/b/run.sh") == ("a/b", "a", "")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "scripts").mkdir()
    outside = Workspace(tmp_path / "elsewhere")
    repo = (tmp_path / "repo").as_posix()
    assert outside.bases(f"{repo}/scripts/run.sh") == (f"{repo}/scripts", repo)


def test_overrides_win_over_the_disk(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(STAGE_2)
    document = Workspace(tmp_path, {"ds.json": STAGE_3}).json("ds.json")
    assert document is not None
    assert document.get("/zero_optimization/stage") == 3


# Script arguments


def test_argparse_arguments_have_destination_default_type_and_place() -> None:
    found = profile(PLAIN)
    assert found.parser is not None
    assert found.parser.kind == "argparse"
    assert not found.is_open
    assert found.options["lr"].default.get() == 1e-4
    assert str(found.options["lr"].default.origins[0]) == "train.py:6"
    assert found.options["steps"].type == "int"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("parse_args()", "parse_known_args()[0]"), "unknown arguments are accepted"),
        (("deepspeed.add_config_arguments(parser)", "add_model_args(parser)"), "a helper adds arguments"),
        (("ArgumentParser()", "ArgumentParser(parents=[base])"), "a parent parser"),
        (('"--lr", type', "*names, type"), "the name is computed"),
    ],
)
def test_a_parser_that_may_have_more_arguments_is_open(change: tuple[str, str], why: str) -> None:
    assert profile(PLAIN.replace(*change)).is_open, why


def test_a_helper_of_the_same_file_keeps_the_parser_closed() -> None:
    text = PLAIN.replace("deepspeed.add_config_arguments(parser)", "extend(parser)")
    found = profile("def extend(parser):\n    parser.add_argument('--more', default='x')\n\n\n" + text)
    assert not found.is_open
    assert found.options["more"].default.get() == "x"


def test_dataclass_fields_are_arguments_and_a_subclass_may_change_defaults() -> None:
    found = profile(
        "from dataclasses import dataclass, field\n"
        "import transformers\n\n"
        "@dataclass\nclass Data:\n    path: str = field(default='d', metadata={})\n\n"
        "@dataclass\nclass Mine(transformers.TrainingArguments):\n    learning_rate: float = 1e-3\n\n"
        "    def __post_init__(self):\n        self.bf16 = True\n\n"
        "transformers.HfArgumentParser((Data, Mine)).parse_args_into_dataclasses()\n"
    )
    assert found.parser is not None
    assert found.parser.kind == "hf"
    assert found.parsed.kind == "exact"
    assert found.options["path"].default.get() == "d"
    assert found.options["learning_rate"].default.get() == 1e-3
    assert found.parsed.rewritten == {"bf16"}


def test_a_class_from_elsewhere_makes_defaults_uncertain() -> None:
    found = profile(
        TRAINER.replace("TrainingArguments", "SFTConfig").replace("from ", "from trl import SFTConfig\nfrom ", 1)
    )
    assert found.parsed.kind == "foreign"
    assert found.is_open


@pytest.mark.parametrize("module", ["click", "typer", "fire", "hydra"])
def test_other_parsers_are_open(module: str) -> None:
    found = profile(f"import {module}\n")
    assert found.is_open
    assert not found.options


def test_a_script_with_a_syntax_error_has_no_arguments() -> None:
    assert profile("import argparse\nparser = argparse.ArgumentParser(\n").options == {}


def test_positions_count_code_points() -> None:
    found = profile('import deepspeed\nx = "é"; deepspeed.initialize(config="ds.json")\n')
    assert found.config_paths[0].origins[0].region.column == 38


# Joining


def test_a_plan_joins_command_script_config_and_facts() -> None:
    plan = plan_of(
        {
            "scripts/run.sh": "torchrun --nproc_per_node 8 train.py --output_dir o --deepspeed ./configs/ds.json\n",
            "train.py": TRAINER,
            "configs/ds.json": STAGE_3,
        },
        "scripts/run.sh",
    )
    assert plan.script == "train.py"
    assert plan.config_path.get() == "configs/ds.json"
    assert plan.world_size.get() == 8
    assert plan.zero_stage.get() == 3
    assert plan.consumer.get() == "hf"
    assert plan.passed["output_dir"].get() == "o"
    assert plan.arguments["gradient_accumulation_steps"].get() == 1
    assert str(plan.zero_stage.origins[0]) == "configs/ds.json:1"


def test_the_folder_with_most_of_the_files_is_the_working_directory() -> None:
    plan = plan_of(
        {
            "a/run.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
            "a/ds.json": STAGE_2,
            "train.py": PLAIN,
            "ds.json": STAGE_3,
        },
        "a/run.sh",
    )
    assert plan.config_path.get() == "ds.json"


def test_cd_decides_where_files_are_found() -> None:
    plan = plan_of(
        {
            "run.sh": "cd sub\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
            "sub/train.py": PLAIN,
            "sub/ds.json": STAGE_3,
            "ds.json": STAGE_2,
            "train.py": PLAIN,
        }
    )
    assert (plan.script, plan.zero_stage.get()) == ("sub/train.py", 3)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("deepspeed train.py --deepspeed --deepspeed_config ds.json", "ds.json"),
        ("deepspeed train.py --deepspeed=ds.json", "ds.json"),
        ("torchrun train.py --ds_config ds.json", "ds.json"),
        ("accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py", "ds.json"),
    ],
)
def test_every_spelling_of_the_config_flag_is_understood(command: str, path: str) -> None:
    plan = plan_of({"run.sh": f"{command}\n", "train.py": PLAIN, "ds.json": STAGE_3})
    assert plan.config_path.get() == path
    assert plan.zero_stage.get() == 3


@pytest.mark.parametrize(
    ("preset", "stage"), [("deepspeed_zero2", 2), ("deepspeed_zero3_offload", 3), ("zero3", 3), ("zero2_offload", 2)]
)
def test_presets_state_the_stage_without_a_file(preset: str, stage: int) -> None:
    plan = plan_of({"run.sh": f"NPROC_PER_NODE=8 xtuner train cfg.py --deepspeed {preset}\n"})
    assert plan.zero_stage.get() == stage
    assert plan.config is None
    assert plan.missing == ()


def test_a_literal_in_the_script_names_the_config() -> None:
    script = PLAIN.replace("args=args, model", 'config="conf/ds.json", model')
    plan = plan_of({"run.sh": "deepspeed train.py\n", "train.py": script, "conf/ds.json": STAGE_3})
    assert plan.config_path.get() == "conf/ds.json"
    assert str(plan.config_path.origins[0]) == "train.py:10"


def test_the_default_of_an_argument_names_the_config_unless_words_are_unknown() -> None:
    script = PLAIN.replace('"--steps", type=int, default=10', '"--ds_config", default="ds.json"')
    files = {"run.sh": "deepspeed train.py\n", "train.py": script, "ds.json": STAGE_3}
    assert plan_of(files).zero_stage.get() == 3
    assert plan_of({**files, "run.sh": 'deepspeed train.py "$@"\n'}).zero_stage.is_unknown


def test_accelerate_yaml_gives_config_and_world_size() -> None:
    yaml = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    files = {
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        "acc.yaml": yaml,
        "train.py": TRAINER,
        "ds.json": STAGE_3,
    }
    plan = plan_of(files)
    assert (plan.world_size.get(), plan.zero_stage.get(), plan.consumer.get()) == (4, 3, "hf")
    inline = yaml.replace("deepspeed_config_file: ds.json", "zero_stage: 2")
    assert plan_of({**files, "acc.yaml": inline}).zero_stage.get() == 2


def test_a_recipe_holds_the_arguments_of_llamafactory() -> None:
    recipe = "deepspeed: conf/ds.json\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\nbf16: true\n"
    files = {
        "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train recipes/sft.yaml learning_rate=1e-5\n",
        "recipes/sft.yaml": recipe,
        "conf/ds.json": STAGE_3,
    }
    plan = plan_of(files)
    assert (plan.zero_stage.get(), plan.consumer.get()) == (3, "hf")
    assert plan.arguments["gradient_accumulation_steps"].get() == 8
    assert str(plan.arguments["bf16"].origins[0]) == "recipes/sft.yaml:4"
    assert plan.arguments["learning_rate"].at() == "1e-05 (run.sh:1)"
    assert plan.arguments["max_grad_norm"].get() == 1.0


def test_a_config_that_the_launch_script_writes_is_unknown() -> None:
    run = "sed s/BATCH/8/ template.json > ds.json\ndeepspeed train.py --deepspeed_config ds.json\n"
    plan = plan_of({"run.sh": run, "train.py": PLAIN, "ds.json": STAGE_3})
    assert plan.config_path.is_unknown
    assert plan.zero_stage.is_unknown
    assert plan.missing == ()


def test_a_short_script_has_the_profile_of_the_main_that_it_calls() -> None:
    plan = plan_of(
        {
            "run.sh": "deepspeed llm/train_mem.py --deepspeed ds.json\n",
            "llm/train_mem.py": "from llm.train import train\n\nif __name__ == '__main__':\n    train()\n",
            "llm/train.py": TRAINER,
            "ds.json": STAGE_2,
        }
    )
    assert plan.consumer.get() == "hf"
    assert plan.profile is not None
    assert plan.profile.args_path == "llm/train.py"


def test_the_trainer_fills_auto_and_keeps_what_the_config_states() -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3, "zero_optimization": {}}'
    run = "torchrun --nproc_per_node 2 train.py --deepspeed ds.json --per_device_train_batch_size 5\n"
    plan = plan_of({"run.sh": run, "train.py": TRAINER, "ds.json": config})
    assert (plan.batch.micro.get(), plan.batch.steps.get()) == (5, 3)
    assert str(plan.batch.micro.origins[0]) == "run.sh:1"


def test_defaults_are_unknown_when_words_are_unknown() -> None:
    run = 'torchrun --nproc_per_node 2 train.py --deepspeed ds.json --learning_rate 1e-4 "$@"\n'
    plan = plan_of({"run.sh": run, "train.py": TRAINER, "ds.json": STAGE_2})
    assert plan.arguments["learning_rate"].get() == 1e-4
    assert plan.arguments["weight_decay"].is_unknown


# Contexts


def test_arguments_have_the_same_order_in_every_process() -> None:
    # A set of words has another order in each.
    (plan,) = plans_of({"run.sh": "python train.py $ARGS\n"})
    assert list(default_arguments(plan.command, None)) == [*EXACT_DEFAULTS, *INTEGERS_AND_WORDS]


def test_contexts_hold_what_all_runs_of_a_file_agree_on() -> None:
    run = (
        "deepspeed --num_gpus 4 train.py --lr 1 --steps 5 --deepspeed_config two.json\n"
        "deepspeed --num_gpus 4 train.py --lr 2 --steps 5 --deepspeed_config three.json\n"
    )
    plans = plans_of({"run.sh": run, "train.py": PLAIN, "two.json": STAGE_2, "three.json": STAGE_3})
    contexts = contexts_for(plans, Context())
    script = contexts["train.py"]
    assert script.world_size.get() == 4
    assert script.zero_stage.is_unknown
    assert script.arguments["steps"].get() == "5"
    assert script.arguments["lr"].is_unknown
    assert contexts["three.json"].zero_stage.get() == 3
    assert contexts["three.json"].consumer.get() == "deepspeed"


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        ('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2}', 4),
        ('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}', 3),
        ('{"train_micro_batch_size_per_gpu": 2}', 1),
        ('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"}', None),
    ],
)
def test_a_script_knows_the_accumulation_of_its_run(config: str, steps: int | None) -> None:
    files = {
        "run.sh": "deepspeed --num_gpus 4 train.py --deepspeed_config ds.json\n",
        "train.py": PLAIN,
        "ds.json": config,
    }
    assert contexts_for(plans_of(files), Context())["train.py"].accumulation.value == steps


def test_what_the_user_states_stays_where_plans_say_nothing() -> None:
    files = {"run.sh": "torchrun --nnodes $N train.py --deepspeed ds.json\n", "train.py": TRAINER, "ds.json": STAGE_2}
    base = Context(world_size=known(16))
    assert contexts_for(plans_of(files), base)["ds.json"].world_size.get() == 16
    files["run.sh"] = "torchrun --nnodes 1 --nproc_per_node 8 train.py --deepspeed ds.json\n"
    assert contexts_for(plans_of(files), base)["ds.json"].world_size.is_unknown


@pytest.mark.parametrize(
    ("given", "flag", "steps"),
    [
        ("own.steps", " --steps 8", 8),
        ("own.steps", "", None),
        ('"8"', "", 8),
        ("None", "", None),
        ("[8]", "", None),
        ("True", "", None),
        ("8", "", 8),
    ],
)
def test_what_a_script_hands_to_training_arguments_is_a_number_or_unknown(
    given: str, flag: str, steps: int | None
) -> None:
    script = (
        "from dataclasses import dataclass\nfrom typing import Optional\n\n"
        "from transformers import HfArgumentParser, TrainingArguments\n\n\n@dataclass\nclass Arguments:\n"
        "    steps: Optional[int] = None\n\n\n(own,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
        f'args = TrainingArguments("out", gradient_accumulation_steps={given}, deepspeed="ds.json")\n'
    )
    files = {
        "run.sh": f"torchrun --nproc_per_node 2 train.py{flag}\n",
        "train.py": script,
        "ds.json": '{"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}\n',
    }
    assert plan_of(files).batch.steps.get_or(None) == steps


def test_documentation_does_not_disagree_with_a_real_launch_file() -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 8 train.py --deepspeed ds.json\n",
        "README.md": "```bash\ntorchrun --nproc_per_node 2 train.py --deepspeed ds.json\n```\n",
        "train.py": TRAINER,
        "ds.json": STAGE_2,
    }
    plans = plans_of(files, "README.md") + plans_of(files)
    assert contexts_for(plans, Context())["train.py"].world_size.get() == 8


@pytest.mark.parametrize(
    ("run", "launcher", "processes"),
    [
        ("torchrun --nnodes 2 --nproc_per_node 4 train.py\n", "torchrun", 4),
        ("python train.py\n", "python", None),
        ("torchrun --nproc_per_node 4 train.py\ntorchrun --nproc_per_node 2 train.py\n", "torchrun", None),
        ("torchrun --nproc_per_node 4 train.py\ndeepspeed --num_gpus 4 train.py\n", None, 4),
    ],
)
def test_a_script_learns_how_its_processes_are_started(run: str, launcher: str | None, processes: int | None) -> None:
    context = contexts_for(plans_of({"run.sh": run, "train.py": "print(1)\n"}), Context())["train.py"]
    assert context.launcher.get_or(None) == launcher
    assert context.processes_per_node.get_or(None) == processes
    assert context.is_one_process is (launcher == "python")


@pytest.mark.parametrize(("second", "world"), [(1, 1), (2, None)])
def test_a_config_knows_that_all_its_runs_are_one_process(second: int, world: int | None) -> None:
    run = "deepspeed --num_gpus {} train.py --deepspeed_config ds.json\n"
    files = {"run.sh": run.format(1) + run.format(second), "train.py": PLAIN, "ds.json": STAGE_2}
    assert contexts_for(plans_of(files), Context())["ds.json"].world_size.value == world


WORDS = """torchrun --nproc_per_node 8 train.py --deepspeed ds.json = $A " ' --config_file a.yaml cd -m pkg.run { } [ :
é > ) TrainingArguments( HfArgumentParser( parser.add_argument( "zero_optimization" "stage" "auto" "train_batch_size"
deepspeed_config: zero_stage -1 ~/ 1e999"""
PIECES = st.sampled_from(
    [*WORDS.split(), " ", "\\\n", "\n", "\0", "class A(B):", "import argparse", "accelerate launch"]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@given(run=TEXTS, script=TEXTS, config=TEXTS, yaml=TEXTS)
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_plan(run: str, script: str, config: str, yaml: str) -> None:
    files = {"train.py": script, "pkg/run.py": script, "ds.json": config, "a.yaml": yaml}
    commands = (
        "torchrun --nproc_per_node 2 train.py --deepspeed ds.json\n"
        "accelerate launch --config_file a.yaml -m pkg.run --deepspeed_config ds.json\n"
        "llamafactory-cli train a.yaml\n"
    )
    plans = plans_of({**files, "run.sh": commands}) + plans_of({**files, "run.sh": f"{commands}{run}\n"})
    contexts_for(plans, Context())
    assert len(plans) >= 3


def test_a_config_of_another_shape_is_no_fact() -> None:
    for text in ("[]", "3", '{"zero_optimization": [1]}', '{"zero_optimization": {"stage": "auto"}}', "{", ""):
        plan = plan_of(
            {"run.sh": "deepspeed train.py --deepspeed_config ds.json\n", "train.py": PLAIN, "ds.json": text}
        )
        assert not plan.zero_stage.is_known or plan.zero_stage.get() == 0, text
        assert not plan.batch.train.is_known
