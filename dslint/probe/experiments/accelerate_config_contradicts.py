"""An accelerate YAML file and a DeepSpeed config file that do not go together.

`accelerate launch` reads the YAML file and passes it to every process through the environment; there `DeepSpeedPlugin`
reads the DeepSpeed config. As written, the two files say things that it refuses to weigh against each other; as fixed,
the DeepSpeed config alone says them. The arms go the real way, from the words of the command to the plugin, in one
process: only the start of the processes is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

_IGNORED = Expect((Kind.RAISE,), "ValueError: When using `deepspeed_config_file`, the following .* will be ignored")
_NO_ZERO = Expect((Kind.RAISE,), "ValueError: Please specify the ZeRO optimization config in the DeepSpeed config")
_PRECISION = Expect((Kind.RAISE,), "ValueError: `--mixed_precision` arg cannot be set to `bf16` when `fp16` is set")
_HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
_FILE = _HEAD + "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
_DS: Mapping[str, Json] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}


def _case(
    name: str,
    yaml: str,
    expect: Expect,
    *flags: str,
    config: Mapping[str, Json] = _DS,
    right: tuple[str, Mapping[str, Json]] = (_FILE, _DS),
    verdict: Verdict = Verdict.CONFIRMED,
) -> Case:
    fixed = {"yaml": right[0], "config": dict(right[1])}
    return Case(name, {"yaml": yaml, "config": dict(config), "flags": list(flags), "fixed": fixed}, expect, verdict)


EXPERIMENT = Experiment(
    name="accelerate-config-contradicts",
    summary="accelerate stops because its YAML file and the DeepSpeed config both speak",
    flavour="transformers",
    ranks=1,
    expect=_IGNORED,
    cases=(
        _case("zero-stage-in-both", _FILE + "  zero_stage: 3\n", _IGNORED),
        _case("precision-beside-a-config-file", _FILE + "mixed_precision: 'no'\n", _IGNORED),
        _case("config-file-without-zero", _FILE, _NO_ZERO, config={"train_micro_batch_size_per_gpu": 1}),
        _case("precision-against-the-config-file", _FILE, _PRECISION, "--mixed_precision", "bf16",
              config={**_DS, "fp16": {"enabled": True}}),
        _case("settings-in-the-yaml-file-only", _HEAD + "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n",
              _IGNORED, verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """Both files as they are."""
    return _plugin(rank.params["yaml"], rank.params["config"], rank.params["flags"])


def fixed(rank: RankApi) -> Json:
    """The DeepSpeed config says it all."""
    return _plugin(rank.params["fixed"]["yaml"], rank.params["fixed"]["config"], rank.params["flags"])


def _plugin(yaml: str, config: dict[str, Json], flags: list[str]) -> Json:
    """The ZeRO stage of the plugin that a process of `accelerate launch` makes."""
    from accelerate import DeepSpeedPlugin
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    for name, text in (("accelerate.yaml", yaml), ("ds.json", json.dumps(config)), ("train.py", "")):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)

    def started(arguments: Any) -> None:
        found = prepare_deepspeed_cmd_env(arguments)[1]
        os.environ.update({name: value for name, value in found.items() if name.startswith("ACCELERATE_")})

    launch.deepspeed_launcher = started
    words = ["--config_file", "accelerate.yaml", *flags, "train.py"]
    launch.launch_command(launch.launch_command_parser().parse_args(words))
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"])
    return int(plugin.zero_stage)
