"""A config file that is not where the command says.

As written, the library that reads the config of the run gets a path at which nothing is; as fixed, the file is there.
Each opens it in its own way: `deepspeed.initialize` and the Trainer of transformers take a path that does not exist for
a config in base64 and stop with a `ValueError`, `accelerate launch` stops with a `FileNotFoundError`.
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind
from dslint.probe.parts.zero import config, engine

_EXPECTED = Expect((Kind.RAISE,), "ValueError: Expected a string path to an existing deepspeed config.*Received: ")
_PASSED = Expect((Kind.RAISE,), "FileNotFoundError: The passed configuration file .* does not exist")
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\nuse_cpu: false\n"
_JSON, _YAML = "configs/zero2.json", "configs/deepspeed.yaml"

EXPERIMENT = Experiment(
    name="config-path-missing",
    summary="the run stops at start-up because a config file is not there",
    rules=("DSL443",),
    flavour="transformers",
    ranks=1,
    expect=_EXPECTED,
    cases=(
        Case("deepspeed.initialize", {"reader": "deepspeed", "path": _JSON}),
        Case("TrainingArguments", {"reader": "hf", "path": _JSON}),
        Case("DeepSpeedPlugin", {"reader": "accelerate", "path": _JSON}),
        Case("accelerate-launch", {"reader": "launch", "path": _YAML}, _PASSED),
    ),
)


def written(rank: RankApi) -> Json:
    """Nothing is at the path."""
    return _open(rank, rank.params["reader"], rank.params["path"])


def fixed(rank: RankApi) -> Json:
    """A config is there."""
    import json

    path = rank.params["path"]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(_ACCELERATE if rank.params["reader"] == "launch" else json.dumps(config(1)))
    return _open(rank, rank.params["reader"], path)


def _open(rank: RankApi, reader: str, path: str) -> Json:
    if reader == "deepspeed":
        rank.init()
        return int(engine(rank, path).zero_optimization_stage())
    if reader == "hf":
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        return bool(HfTrainerDeepSpeedConfig(path).config)
    if reader == "accelerate":
        from accelerate import DeepSpeedPlugin

        return int(DeepSpeedPlugin(hf_ds_config=path).zero_stage)
    from accelerate.commands.config.config_args import load_config_from_file

    return str(load_config_from_file(path).compute_environment)


_READERS = {"deepspeed": "deepspeed.initialize", "hf": "TrainingArguments", "accelerate": "DeepSpeedPlugin"}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The path of the finding, inside the folder of the rank, for the library that reads the config."""
    path = str(subject.finding.fact("path"))
    is_yaml = path.endswith((".yaml", ".yml"))
    wanted = (
        "accelerate-launch" if is_yaml else _READERS.get(str(subject.finding.fact("consumer")), "deepspeed.initialize")
    )
    inside = [part for part in path.split("/") if part not in ("", ".", "..")]
    return {"path": "/".join(inside)} if case.name == wanted and inside else None
