"""DeepSpeed configs in YAML files, and in sections of the files of other programs."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent

import forked
import pytest
import yaml

from dslint.core.source import SourceFile
from dslint.engine.fixer import fix_paths
from dslint.engine.run import check_paths
from dslint.model.embedded.interpolation import NEEDS_RUN, NOT_GIVEN
from dslint.model.embedded.python import configs_of_run, python_configs
from dslint.model.embedded.sections import configs_in
from dslint.model.firstlook import may_hold_section
from dslint.parse.data import DataDoc
from dslint.parse.yamldoc import parse_yaml
from dslint.settings import make_settings

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "containers"
PROJECTS = sorted(f"{path.parent.name}/{path.name}" for path in FIXTURES.glob("*/*") if path.is_dir())
SETTINGS = make_settings({"no-cache": True, "jobs": 1})


def docs_of(text: str) -> list[DataDoc]:
    text = dedent(text)
    assert may_hold_section(text.encode())
    return list(configs_in(parse_yaml(SourceFile("conf.yaml", text)), is_yaml=True, may_be_whole=True))


def doc_of(text: str) -> DataDoc:
    docs = docs_of(text)
    assert len(docs) == 1
    return docs[0]


def words(doc: DataDoc) -> dict[str, str]:
    return {p: doc.source.text[s.start : s.end] for p, s in doc.values.items() if not isinstance(doc.get(p), dict)}


@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_has_exactly_the_expected_findings(name: str, tmp_path: Path) -> None:
    project = Path(shutil.copytree(FIXTURES / name, tmp_path / "project"))
    expected = (project / "expected.txt").read_text(encoding="utf-8").splitlines()
    (project / "expected.txt").unlink()
    done = forked.dslint(project, "--no-cache", "--isolated", "--output-format", "concise", "--world-size", "8", ".")
    found = [line for line in done.stdout.decode().splitlines() if " DSL" in line]
    told = [" ".join((line.split()[0].rstrip(":"), line.split()[1])) for line in found]
    assert told == expected
    assert done.returncode == (1 if name.endswith("bad") else 0)


def test_every_container_has_a_mended_twin() -> None:
    assert {name.partition("/")[0] for name in PROJECTS} == {p.name for p in FIXTURES.iterdir()}
    assert all(f"{name.partition('/')[0]}/{kind}" in PROJECTS for name in PROJECTS for kind in ("bad", "good"))
    for name in PROJECTS:
        bad = (FIXTURES / name / "expected.txt").read_text(encoding="utf-8")
        assert bool(bad) == name.endswith("bad"), name


def test_a_section_has_its_own_pointers_and_the_places_of_the_file() -> None:
    doc = doc_of(
        """
        # for Hydra
        lr: 1
        engine:
          deepspeed:  # é
            train_batch_size: 8  # all
            zero_optimization: {stage: 2, "overlap_comm": no}
            betas: [0.9,
                    0.95]
        """
    )
    assert doc.data == {
        "train_batch_size": 8,
        "zero_optimization": {"stage": 2, "overlap_comm": False},
        "betas": [0.9, 0.95],
    }
    assert words(doc)["/zero_optimization/overlap_comm"] == "no"
    assert words(doc)["/betas/1"] == "0.95"
    assert doc.key("/zero_optimization/stage").region.line == 7
    assert (doc.key("/train_batch_size").region.line, doc.key("/train_batch_size").region.column) == (6, 5)
    assert [doc.source.text[c.start : c.end] for c in doc.comments] == ["# all"]
    assert (doc.dialect, doc.is_embedded, doc.consumer) == ("yaml", True, "")


def test_the_whole_of_a_file_is_no_section() -> None:
    doc = doc_of("zero_optimization:\n  stage: 2\ntrain_micro_batch_size_per_gpu: 4\n")
    assert not doc.is_embedded
    assert doc.name == "conf.yaml"


def test_interpolations_stand_for_values_of_the_file() -> None:
    doc = doc_of(
        """
        batch: 4
        alias: ${batch}
        names: {run: sft, part: {step: 10}}
        optim: {kind: AdamW, lr: 1e-4, more: {betas: [0.9, "${names.beta}"], eps: 1.0e-8}}
        list: [3, 5]
        none: null
        trainer:
          local: 2
          ds_config:
            train_micro_batch_size_per_gpu: ${alias}
            gradient_accumulation_steps: ${..local}
            steps_per_print: ${names.part.step}
            gradient_clipping: ${oc.env:CLIP,1.0}
            dump_state: ???
            wandb: {enabled: true, group: "${names.run}-${batch}", team: "${optim.lr}/${none}", project: "x/${user}"}
            zero_optimization:
              stage: ${list[1]}
              reduce_bucket_size: ${.allgather_bucket_size}
              allgather_bucket_size: 5e8
            optimizer: {type: "${optim.kind}", params: "${optim.more}"}
            scheduler: {type: WarmupLR, params: {warmup_max_lr: "${optim.lr}", warmup_num_steps: "${steps}"}}
        """
    )
    assert doc.data == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_print": 10,
        "wandb": {"enabled": True, "group": "sft-4", "team": "0.0001/None"},
        "zero_optimization": {"stage": 5, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8},
        "optimizer": {"type": "AdamW", "params": {"eps": 1e-8}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4}},
    }
    assert doc.opaque == {
        "/gradient_clipping": NEEDS_RUN,
        "/dump_state": NOT_GIVEN,
        "/wandb/project": NEEDS_RUN,
        "/optimizer/params/betas": NEEDS_RUN,
        "/scheduler/params/warmup_num_steps": NEEDS_RUN,
    }
    # The place of a value is where the section names it; the text there is no literal.
    assert words(doc)["/train_micro_batch_size_per_gpu"] == "${alias}"
    assert {"/train_micro_batch_size_per_gpu", "/wandb/group", "/optimizer/params/eps"} <= doc.computed
    assert doc.fact("/gradient_clipping").reason == NEEDS_RUN


def test_interpolations_that_lead_to_themselves_are_unknown() -> None:
    doc = doc_of(
        """
        a: ${b}
        b: ${a}
        ds_config:
          zero_optimization: {stage: "${a}", sub_group_size: "${ds_config.zero_optimization}"}
          steps_per_print: ${ds_config.steps_per_print}
          train_batch_size: ${ds_config.${a}}
        """
    )
    assert doc.data == {"zero_optimization": {}}
    assert set(doc.opaque) == {
        "/zero_optimization/stage",
        "/zero_optimization/sub_group_size",
        "/steps_per_print",
        "/train_batch_size",
    }


def test_a_number_that_only_omegaconf_reads_is_unknown_where_nobody_shows_it() -> None:
    text = "deepspeed:\n  zero_optimization: {stage: 2, reduce_bucket_size: 5e8, allgather_bucket_size: '5e8'}\n"
    assert yaml.safe_load(text)["deepspeed"]["zero_optimization"]["reduce_bucket_size"] == "5e8"
    doc = doc_of(text)
    assert doc.data["zero_optimization"] == {"stage": 2, "allgather_bucket_size": "5e8"}
    assert set(doc.opaque) == {"/zero_optimization/reduce_bucket_size"}
    for told in ("defaults: [_self_]\n", "model: {x: 1}\nargs:\n  lr: 1\n", "run:\n  _target_: a.B\n", "x: ${y}\n"):
        assert doc_of(told + text).data["zero_optimization"]["reduce_bucket_size"] == 5e8


def test_an_optimizer_of_sat_is_its_own_business() -> None:
    section = (
        "deepspeed:\n  train_batch_size: 8\n  zero_optimization: {stage: 1}\n  optimizer: {type: %s, params: {x: 1}}\n"
    )
    doc = doc_of("args: {mode: finetune}\n" + section % "sat.ops.FusedEmaAdam")
    assert doc.consumer == "deepspeed"
    assert "optimizer" not in doc.data
    assert doc.fact("/optimizer/type").reason.startswith("SAT makes")
    assert doc_of("args: {mode: finetune}\n" + section % "Adam").data["optimizer"]["type"] == "Adam"


def test_the_trainers_of_lightning_and_composer_add_to_their_section() -> None:
    for head in (
        "class_path: x.DeepSpeedStrategy\ninit_args:\n  config:",
        "_target_: x.DeepSpeedStrategy\nx:\nconfig:",
    ):
        column = "    " if "init_args" in head else "  "
        doc = doc_of(f"{head}\n{column}zero_optimization:\n{column}  stage: 2\n")
        assert (doc.consumer, doc.open_objects) == ("lightning", frozenset({""}))
    doc = doc_of("max_duration: 2ep\ndeepspeed_config:\n  zero_optimization: {stage: 2}\n")
    assert doc.open_objects == {""}
    assert not doc_of("run: 2\ndeepspeed_config:\n  zero_optimization: {stage: 2}\n").open_objects


@pytest.mark.parametrize(
    "text",
    [
        # accelerate's own section, which other rules read
        "distributed_type: DEEPSPEED\nmachine_rank: 0\nnum_machines: 1\nnum_processes: 8\n"
        "deepspeed_config: {zero_stage: 3, gradient_clipping: 1, gradient_accumulation_steps: 1, steps_per_print: 1}\n",
        # words that are like DeepSpeed's
        "critic:\n  ppo_micro_batch_size_per_gpu: 4\n  cliprange_value: 0.5\n  checkpoint: {x: 1}\n  optim: {lr: 1}\n"
        "  forward_micro_batch_size_per_gpu: 8\n  grad_clip: 1.0\n  ppo_mini_batch_size: 3\n",
        # GPT-NeoX, which has keys of its own beside DeepSpeed's
        '{"pipe_parallel_size": 1, "model_parallel_size": 1, "num_layers": 12, "hidden_size": 768, # comment\n'
        ' "zero_optimization": {"stage": 1, "reduce_bucket_size": 500000000}, "steps_per_print": 10, '
        '"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 0.1}}}\n',
        # a name or a switch, and settings of another program
        "deepspeed: configs/zero_optimization.json\n",
        "deepspeed: {enabled: true, stage: 2, zero_optimization_level: 2}\noptimizer: {lr: 1}\n",
        # an experiment of the autotuner
        '{"name": "z0", "exp_id": 3, "ds_config": {"train_batch_size": 8, "zero_optimization": {"stage": 2}}}\n',
        # a template
        "deepspeed:\n  train_batch_size: '{{ batch }}'\n  zero_optimization: {stage: '{{ stage }}'}\n",
        # what cannot be read as YAML
        "deepspeed:\n  zero_optimization: {stage: 2\n  train_batch_size: 8\n",
        "deepspeed: !include ds.yaml\nzero_optimization: !ENV ${X}\n",
    ],
)
def test_what_is_no_config_is_none(text: str) -> None:
    is_read = may_hold_section(text.encode())
    assert not is_read or docs_of(text) == []
    # Most are told by their keys and not by their words.
    assert is_read or "ppo_" in text or text.endswith(".json\n")


def test_an_anchor_is_read_and_never_edited(tmp_path: Path) -> None:
    text = dedent(
        """
        base: &base
          overlap_com: false
          reduce_scatter: true
        deepspeed:
          train_batch_size: 8
          zero_optimization:
            <<: *base
            stage: 2
        """
    )
    path = tmp_path / "conf.yaml"
    path.write_text(text, encoding="utf-8")
    found = check_paths([str(path)], SETTINGS).findings
    assert [(f.code, f.location.region.line, f.fix) for f in found] == [("DSL102", 3, None)]


def test_fixes_change_their_lines_alone(tmp_path: Path) -> None:
    before = (FIXTURES / "sat" / "bad" / "sft.yaml").read_text(encoding="utf-8")
    path = tmp_path / "sft.yaml"
    path.write_text(before, encoding="utf-8")
    after = fix_paths([str(path)], SETTINGS, unsafe=True).after[str(path)]
    changed = [line for line in before.splitlines() if line not in after.splitlines()]
    assert [line.strip() for line in changed] == ["cpu_offload: false", "overlap_com: false"]
    assert yaml.safe_load(after)["deepspeed"]["zero_optimization"] == {
        "stage": 2,
        "contiguous_gradients": True,
        "overlap_comm": False,
        "reduce_bucket_size": 1000000000,
    }


def test_a_comment_silences_a_finding_of_a_section(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    text = "deepspeed:\n  train_batch_size: 8\n  zero_optimization:\n    stage: 2\n    overlap_com: false{}\n"
    for comment, count in (("", 1), ("  # dslint: ignore[DSL102] known", 0)):
        path.write_text(text.format(comment), encoding="utf-8")
        assert len(check_paths([str(path)], SETTINGS).findings) == count


def test_files_without_such_words_are_not_parsed() -> None:
    assert not may_hold_section(b"optimizer:\n  lr: 1\ntrain_batch_size: 8\nfp16: true\n")
    assert not may_hold_section(b"dependencies:\n  - deepspeed==0.16\n")
    assert not may_hold_section(b"deepspeed:\n  zero_optimization: {% if x %}{}{% endif %}\n")


STRATEGY = "type='DeepSpeedStrategy', zero_optimization=dict(stage=3, overlap_comm=x), inputs_to_half=['a']"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (f"strategy = dict({STRATEGY})\n", {"zero_optimization": {"stage": 3}}),
        (f"engine = dict({STRATEGY.replace('Deep', 'mmengine.Deep')})\n", {"zero_optimization": {"stage": 3}}),
        (
            "from mmengine._strategy import DeepSpeedStrategy\n"
            "strategy = dict(type=DeepSpeedStrategy, gradient_clipping=0.5, zero_optimization={'stage': 1})\n",
            {"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}},
        ),
        # the sizes of the batch may come from the data loader
        (f"strategy = dict({STRATEGY}, train_micro_batch_size_per_gpu=4)\n", {"zero_optimization": {"stage": 3}}),
        (
            "strategy = dict(type='DeepSpeedStrategy', steps_per_print=7,\n"
            "    config=dict(zero_optimization=dict(stage=2), steps_per_print=2))\n",
            {"zero_optimization": {"stage": 2}, "steps_per_print": 7},
        ),
        (f"strategy = dict({STRATEGY}, config='ds.json')\n", None),
        (f"strategy = dict({STRATEGY.replace('DeepSpeed', 'FSDP')})\nx = 'deepspeed'\n", None),
        (f"def make():\n    strategy = dict({STRATEGY})\n", None),
    ],
)
def test_the_strategy_of_a_config_of_mmengine(text: str, data: dict[str, object] | None) -> None:
    source = SourceFile("llama_deepspeed.py", text)
    docs = python_configs(source)
    assert [doc.data for doc in docs] == ([data] if data is not None else [])
    assert configs_of_run(source) == ()
    for doc in docs:
        assert (doc.consumer, "" in doc.open_objects) == ("unknown", True)
        assert doc.key("/zero_optimization").region.line == text[: text.index("zero_opt")].count("\n") + 1


def test_parameters_of_lightnings_strategy_are_the_config_that_it_makes_of_them() -> None:
    doc = doc_of(
        """
        strategy:
          class_path: pytorch_lightning.strategies.DeepSpeedStrategy
          init_args:
            stage: 3
            offload_optimizer: true
            offload_parameters: false
            offload_params_device: nvme
            cpu_checkpointing: true
            sub_group_size: ${size}
        """
    )
    assert doc.data == {
        "zero_optimization": {"stage": 3, "offload_optimizer": {}},
        "activation_checkpointing": {"cpu_checkpointing": True},
    }
    assert words(doc)["/zero_optimization/stage"] == "3"
    assert (doc.consumer, set(doc.opaque)) == ("lightning", {"/zero_optimization/sub_group_size"})
    assert doc.fact("/zero_optimization/offload_optimizer/device").is_unknown


def test_sections_that_lightnings_strategy_turns_off_are_none() -> None:
    text = """
        strategy:
          class_path: DeepSpeedStrategy
          init_args: {zero_optimization: false, stage: 7, partition_activations: true}
        """
    assert doc_of(text).data == {"activation_checkpointing": {"partition_activations": True}}
