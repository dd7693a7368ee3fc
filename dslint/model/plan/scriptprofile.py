"""What a script does with its launch: who reads the DeepSpeed config, which one, and how the job is joined."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.plan.pyscript import PyScript, read_script, text_of
from dslint.model.plan.scriptargs import Declared, ScriptArgs, is_training_arguments, read_script_args
from dslint.model.workspace import Workspace

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
# Groups of ranks that share a sample: the batch arithmetic then has a smaller world than the launcher starts.
_PARALLEL = re.compile(r"PipelineModule|\bmpu\s*=|model_parallel|tensor_parallel|sequence_parallel|pipeline_parallel")
_WORTH_PARSING = re.compile(r"ArgumentParser|TrlParser|TrainingArguments|deepspeed|Accelerator|import click|typer|fire")
# What a script must hold to matter for a command that names no config itself.
_SELF_CONTAINED = re.compile(r"\.h?json[\"']|--launcher[\"']")
# The config file may name the launcher as well.
_FROM_CONFIG = re.compile(
    r"get\(\s*[\"']launcher[\"']|[\"']launcher[\"']\s+(?:not\s+)?in\b|(?:is_none|hasattr)\(\w+, [\"']launcher"
)
_RUNNERS = ("Runner.from_cfg", "FlexibleRunner.from_cfg", "RUNNERS.build", "init_dist")


@dataclass(frozen=True, slots=True)
class ScriptProfile:
    """The facts of one script that a run plan joins with its command.

    ``consumer``: ``hf`` | ``deepspeed`` | ``accelerate`` when the script shows who reads the config.
    ``config_paths``: DeepSpeed config files named by literals. ``config_dest``: the argument that holds the path
    (``deepspeed_config``), empty when unknown. ``training``: literal keywords of a ``TrainingArguments(...)`` call.
    ``changes_config``: the script computes the config or writes into it, so that the file is not what runs.
    ``is_parallel``: pipeline, tensor or sequence parallel groups may exist.
    ``launcher``: the ``--launcher`` argument of an OpenMMLab script that builds a runner, else ``None``.
    ``args_path`` is the file with the parser: another one when the script only calls its ``main``.
    """

    path: str
    args: ScriptArgs = field(default_factory=ScriptArgs)
    consumer: Fact[str] = field(default_factory=absent)
    config_paths: tuple[Fact[str], ...] = ()
    training: Mapping[str, Fact[object]] = field(default_factory=dict)
    changes_config: bool = False
    is_parallel: bool = False
    launcher: Declared | None = None
    args_path: str = ""


def script_profile(path: str, workspace: Workspace, has_config: bool) -> ScriptProfile | None:
    """The profile of a script; ``None`` when it cannot be read, or when nothing of the run depends on it.

    ``has_config``: the command names a config. A script that only calls the ``main`` of another module of the
    project has the profile of that module.
    """
    source = workspace.read(path)
    if source is None or not (has_config or _SELF_CONTAINED.search(source.text)):
        return None
    profile = workspace.memo("profile", path, read_profile)
    if profile is None or profile.args.parser != "none" or not profile.consumer.is_absent:
        return profile
    if len(source.text) > 4000:
        return profile
    for target in _delegates(source, workspace):
        found = workspace.memo("profile", target, read_profile)
        if found is not None and found.args.parser != "none":
            return replace(found, path=path)
    return profile


def read_profile(source: SourceFile) -> ScriptProfile:
    """The profile of one file, without its imports."""
    if not _WORTH_PARSING.search(source.text):
        return ScriptProfile(source.path)
    script = read_script(source)
    args = read_script_args(script)
    training, paths = _literal_config(script)
    initialize = [call for name, call in script.called if name == "deepspeed.initialize"]
    return ScriptProfile(
        source.path,
        args,
        _consumer(script, args, bool(initialize)),
        tuple(paths),
        training,
        _changes_config(script, initialize),
        bool(_PARALLEL.search(source.text)),
        _openmmlab_launcher(script, args),
        source.path,
    )


def _consumer(script: PyScript, args: ScriptArgs, initializes: bool) -> Fact[str]:
    """Who hands the config to DeepSpeed. More than one candidate is unknown."""
    found: dict[str, None] = {}
    if initializes:
        found["deepspeed"] = None
    names = {name for name, _ in script.called}
    if args.training_arguments or any(is_training_arguments(n) for n in names):
        found["hf"] = None
    elif any(n.rpartition(".")[2] == "Accelerator" for n in names):
        found["accelerate"] = None
    if not found:
        return absent()
    if len(found) > 1:
        return unknown("the script uses DeepSpeed directly and through a trainer")
    return known(next(iter(found)))


def _literal_config(script: PyScript) -> tuple[dict[str, Fact[object]], list[Fact[str]]]:
    """Keywords of ``TrainingArguments(...)`` and every config path that stands as a literal."""
    training: dict[str, Fact[object]] = {}
    paths: list[Fact[str]] = []
    for name, call in script.called:
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        if is_training_arguments(name):
            training = {key: script.literal(value) for key, value in keywords.items()}
            if len(keywords) != len(call.keywords):
                training["**"] = unknown("keywords are unpacked")
            nodes = [keywords.get("deepspeed")]
        elif name == "deepspeed.initialize":
            nodes = [keywords.get("config"), keywords.get("config_params")]
        elif name.endswith(("DeepSpeedPlugin", "HfDeepSpeedConfig")):
            nodes = [keywords.get("hf_ds_config"), *call.args[:1]]
        else:
            continue
        for node in nodes:
            text = text_of(node)
            if node is not None and text is not None and text.endswith((".json", ".hjson")):
                paths.append(known(text, script.location(node)))
    return training, paths


def _changes_config(script: PyScript, initialize: list[ast.Call]) -> bool:
    if script.assigned_attributes & {"deepspeed_config", "deepspeed", *BATCH_KEYS}:
        return True
    if any(f'"{key}"' in script.source.text or f"'{key}'" in script.source.text for key in BATCH_KEYS):
        return True
    for call in initialize:
        for keyword in call.keywords:
            if keyword.arg is None:
                return True
            if keyword.arg in ("config", "config_params") and not _is_path(keyword.value):
                return True
    return False


def _is_path(node: ast.expr) -> bool:
    """A literal, or an attribute of the parsed arguments: the file is handed over as it is."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))


def _openmmlab_launcher(script: PyScript, args: ScriptArgs) -> Declared | None:
    declared = args.declared.get("launcher")
    if declared is None or not {"pytorch", "slurm"} <= set(declared.choices):
        return None
    if _FROM_CONFIG.search(script.source.text):
        return None
    names = {name for name, _ in script.called}
    return declared if any(n.endswith(_RUNNERS) for n in names) else None


def _delegates(source: SourceFile, workspace: Workspace) -> Iterator[str]:
    """Files of the modules from which a short script imports the function that it calls."""
    script = read_script(source)
    called = {name for name, _ in script.called}
    for origin in script.imports.values():
        if origin not in called:
            continue
        module = origin.rpartition(".")[0]
        relative = module.replace(".", "/").lstrip("/") + ".py"
        found = workspace.resolve(relative, workspace.bases(posixpath.join(source.path)))
        if found is not None and found != source.path:
            yield found
