"""The history of the surface: which release has which names, against facts and against the installed libraries."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys
import time

import pytest
from surface_judge import compare

from dslint.model.surface import library_of, surface


def known(dotted: str, release: str) -> bool | None:
    history = surface(dotted.partition(".")[0])
    assert history is not None
    assert release in history.releases
    return history.presence(dotted).in_release(release)


@pytest.mark.parametrize(
    ("dotted", "release", "there"),
    [
        # A private module that is gone, and a name in it.
        ("torch._six", "1.13.1", True),
        ("torch._six.inf", "1.13.1", True),
        ("torch._six", "2.0.1", False),
        ("torch._six.inf", "2.0.1", False),
        # From C code, by its stubs.
        ("torch.float32", "1.12.1", True),
        ("torch.add", "2.13.0", True),
        ("torch.Tensor.cuda", "1.13.1", True),
        # What no stub ever listed is not known.
        ("torch.surely_not", "2.13.0", None),
        ("torch.Tensor.surely_not", "2.13.0", None),
        # A re-export, a method of a base, a submodule, a name that Python gives to every class.
        ("torch.nn.Linear.to", "2.1.2", True),
        ("torch.nn.Linear.surely_not", "2.1.2", None),
        ("torch.optim.AdamW.step", "2.1.2", True),
        ("torch.distributed.fsdp", "1.12.1", True),
        ("torch.distributed.fsdp.fully_shard", "2.5.1", False),
        ("torch.distributed.fsdp.fully_shard", "2.6.0", True),
        ("peft.LoraConfig.__init__", "0.3.0", True),
        ("peft.prepare_model_for_int8_training", "0.9.0", True),
        ("peft.prepare_model_for_int8_training", "0.10.0", False),
        ("deepspeed.DeepSpeedEngine.train_batch_size", "0.9.0", True),
        ("deepspeed.initialize", "0.19.8", True),
        ("deepspeed.ops.adam.FusedAdam", "0.14.4", True),
        # The module makes these names by a loop.
        ("deepspeed.ops.op_builder.FusedAdamBuilder", "0.14.4", None),
        # Loaded when asked.
        ("trl.SFTTrainer", "0.7.11", True),
        ("trl.SFTConfig", "0.7.11", False),
        ("datasets.load_metric", "2.21.0", True),
        ("datasets.load_metric", "3.0.2", False),
        ("accelerate.Accelerator.prepare", "0.20.3", True),
        # Its methods set attributes by a variable: what no release has may be one, what is gone is gone.
        ("accelerate.Accelerator.surely_not", "1.15.0", None),
        ("accelerate.Accelerator.use_fp16", "0.20.3", True),
        ("accelerate.Accelerator.use_fp16", "1.15.0", False),
    ],
)
def test_presence(dotted: str, release: str, there: bool | None) -> None:
    assert known(dotted, release) is there


@pytest.mark.parametrize(
    ("dotted", "release", "there"),
    [
        ("transformers.AdamW", "4.49.0", True),
        ("transformers.AdamW", "5.0.0", False),
        ("transformers.DynamicCache", "4.30.2", False),
        ("transformers.DynamicCache", "4.36.2", True),
        ("transformers.Glm4vForConditionalGeneration", "4.49.0", False),
        ("transformers.Glm4vForConditionalGeneration", "4.57.6", True),
        ("transformers.models.llama.modeling_llama.LlamaFlashAttention2", "4.44.2", True),
        ("transformers.models.llama.modeling_llama.LlamaFlashAttention2", "4.49.0", False),
        # A module that a package keeps alive under its old name, with what is in the new one.
        ("transformers.tokenization_utils", "5.0.0", True),
        ("transformers.tokenization_utils.PreTrainedTokenizer", "5.0.0", True),
        # A lazy module of transformers 5 looks for `BertTokenizer` when it is asked for this one.
        ("transformers.NoSuchTokenizerFast", "5.0.0", None),
        ("transformers.NoSuchTokenizer", "5.0.0", False),
        ("transformers.deepspeed.HfDeepSpeedConfig", "4.30.2", True),
        ("transformers.TFBertModel", "4.49.0", True),
        ("transformers.TFBertModel", "5.0.0", False),
    ],
)
def test_presence_in_transformers(dotted: str, release: str, there: bool | None) -> None:
    assert known(dotted, release) is there


def test_releases_are_ascending_and_library_of_tells_the_library() -> None:
    history = surface("torch")
    assert history is not None
    assert history.releases.index("1.13.1") < history.releases.index("2.9.1") < history.releases.index("2.10.0")
    assert library_of("torch._six") == "torch"
    assert library_of("tokenizers.models") is None
    assert surface("scipy") is None


def test_a_signature_says_what_a_call_takes() -> None:
    history = surface("peft")
    assert history is not None
    old, new = (history.signature("peft.get_peft_model", release) for release in ("0.2.0", "0.19.1"))
    assert old is not None
    assert new is not None
    assert [each.name for each in old.parameters] == ["model", "peft_config"]
    assert new.parameter("adapter_name") is not None
    assert old.parameter("adapter_name") is None
    assert not old.accepts("adapter_name")
    torch = surface("torch")
    assert torch is not None
    load = torch.signature("torch.load", "2.5.1")
    assert load is not None
    assert load.takes_kwargs
    assert [each.default for each in load.parameters if each.name == "weights_only"] == ["None"]
    method = torch.signature("torch.nn.Linear.forward", "2.13.0")
    assert method is not None
    assert [each.name for each in method.parameters] == ["input"]


def test_a_dataclass_takes_its_fields_and_those_of_its_bases() -> None:
    history = surface("trl")
    assert history is not None
    # Its base is a class of transformers.
    assert history.signature("trl.SFTConfig", "0.9.6") is None
    peft = surface("peft")
    assert peft is not None
    lora = peft.signature("peft.LoraConfig", "0.13.2")
    assert lora is not None
    names = [each.name for each in lora.parameters]
    assert names[:2] == ["peft_type", "auto_mapping"]
    assert "use_dora" in names


def test_programs_of_releases() -> None:
    accelerate = surface("accelerate")
    assert accelerate is not None
    assert accelerate.entry_points("1.15.0")["accelerate"] == "accelerate.commands.accelerate_cli:main"


def test_what_an_import_needs_of_another_library() -> None:
    """peft 0.21.2 names what transformers 4.30.2 lacks, and peft 0.17.1 what transformers 5 has no more."""
    history, transformers = surface("peft"), surface("transformers")
    assert history is not None
    assert transformers is not None

    def lacking(release: str, other: str) -> set[str]:
        needs = [need for need in history.needs_at_import(release) if need.library == "transformers"]
        return {
            need.dotted
            for need in needs
            if not need.conditions and transformers.presence(need.dotted).in_release(other) is False
        }

    assert {"transformers.DynamicCache", "transformers.Cache"} <= lacking("0.21.2", "4.30.2")
    assert lacking("0.21.2", "5.24.0") == set()
    assert lacking("0.17.1", "5.24.0") == {"transformers.HybridCache"}
    conditions = {need.dotted: need.conditions for need in history.needs_at_import("0.21.2")}
    assert conditions["transformers.deepspeed.deepspeed_config"] == ("!transformers>=4.33.0",)
    assert history.needs_at_import("0.21.2", "peft.tuners.lora.model") == history.needs_at_import("0.21.2")


def test_moved_names() -> None:
    history = surface("torch")
    assert history is not None
    presence = history.presence("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel")
    assert presence.moved_to is None
    assert history.presence("torch._six.inf").moved_to is None


def test_a_lookup_is_quick() -> None:
    """Cold: a new reader for each name. The median of ten; the machine may be busy."""
    from dslint.model.surface.history import Surface

    names = ["torch.distributed.all_reduce", "torch._six.inf", "torch.optim.AdamW", "torch.nn.Linear.forward"]
    taken = []
    for _ in range(10):
        for name in names:
            began = time.process_time()
            Surface("torch").presence(name)
            taken.append(time.process_time() - began)
    assert sorted(taken)[len(taken) // 2] < 0.02


def test_nothing_is_loaded_where_nothing_is_asked() -> None:
    code = "import sys, dslint.engine.run; print([name for name in sys.modules if 'model.surface.blocks' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("library", "only"), [("accelerate", ""), ("deepspeed", "deepspeed.runtime"), ("torch", ""), ("transformers", "")]
)
def test_the_installed_library_agrees(library: str, only: str) -> None:
    """The real library of exactly that release judges a sample of names and signatures."""
    judged(library, only, 500)


def judged(library: str, only: str, names: int) -> None:
    history = surface(library)
    release = importlib.metadata.version(library).partition("+")[0]
    if history is None or release not in history.releases:
        pytest.skip(f"schemas/surface has no {library} {release}, which is installed")
    result = compare(library, release, 17, names, 500, only)
    counts = result.counts
    exists = counts["names"] + counts["real names"]
    wrong = counts["names, different"] + counts["real names, different"]
    assert exists > 500
    assert wrong <= exists / 1000, result.differences
    attributes = counts["attributes"] + counts["real attributes"]
    assert counts["attributes, different"] + counts["real attributes, different"] <= attributes / 1000, (
        result.differences
    )
    assert counts["signatures"] > 50
    assert counts["signatures, different"] <= counts["signatures"] / 200, result.differences
    assert counts["defaults, different"] == 0, result.differences


def test_the_judge_finds_what_is_wrong() -> None:
    """The negative control: names of another release are told."""
    history = surface("accelerate")
    assert history is not None
    installed = importlib.metadata.version("accelerate")
    assert installed != "0.20.3"
    result = compare("accelerate", "0.20.3", 17, 2000, 100)
    assert result.counts["real names, different"] > 20
    assert inspect.isfunction(compare)
