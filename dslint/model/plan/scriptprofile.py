"""What a script does with its launch: who reads the DeepSpeed config, which one, and how the job is joined."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile
from dslint.model.firstlook import holds_config
from dslint.model.plan.configarg import ConfigArgument, config_arguments, is_lightning_strategy, reader_of
from dslint.model.plan.enginemodel import EngineModel, engine_model
from dslint.model.plan.handover import Handover, read_handover
from dslint.model.plan.pyscript import PyScript, read_script
from dslint.model.plan.scriptargs import Declared, ScriptArgs, read_script_args
from dslint.model.plan.scriptrun import script_run
from dslint.model.plan.trainedmodel import TrainedModel, model_without_size
from dslint.model.plan.trainerclass import trainer_class
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc
from dslint.parse.notebook import read_notebook

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
# Groups of ranks that share a sample: the batch arithmetic then has a smaller world than the launcher starts. A key of
# a config in the script is no such group: what DeepSpeed makes of it is known.
_PARALLEL = re.compile(
    r"PipelineModule|\bmpu\s*=|model_parallel|tensor_parallel|pipeline_parallel|mesh_param|mesh_device|ulysses"
    r"|sequence_parallel(?!_size[\"']\s*:)",
    re.I,
)
_WORTH_PARSING = re.compile(
    r"ArgumentParser|TrlParser|TrainingArguments|[dD]eep[sS]peed|Accelerator|import click|typer|fire"
)
# The calls about which the interpreter is asked.
_WORTH_INTERPRETING = re.compile(r"\binitialize\b|Trainer\b")
# What a script must hold to matter for a command that names no config itself.
_SELF_CONTAINED = re.compile(r"\.h?json[\"']|--launcher[\"']")
# The config file may name the launcher as well.
_FROM_CONFIG = re.compile(
    r"get\(\s*[\"']launcher[\"']|[\"']launcher[\"']\s+(?:not\s+)?in\b|(?:is_none|hasattr)\(\w+, [\"']launcher"
)
_PRECISION = re.compile(r"\bmixed_precision\s*=")
_RUNNERS = ("Runner.from_cfg", "FlexibleRunner.from_cfg", "RUNNERS.build", "init_dist")


@dataclass(frozen=True, slots=True)
class Reader:
    """A call that hands a config over: the ``path``, or a ``pattern`` of paths, that it names.

    ``consumer`` is ``unknown`` where the script may change the config before DeepSpeed reads it.
    """

    consumer: str
    location: Location
    path: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class ScriptProfile:
    """The facts of one script that a run plan joins with its command.

    ``consumer``: ``hf`` | ``deepspeed`` | ``accelerate`` | ``lightning`` when the script shows who reads the config.
    ``readers``: who reads each config that it names, also where several do.
    ``config_paths``: DeepSpeed config files named by literals. ``config_dests``: the arguments that it hands over as
    the path. ``training``: keywords of a ``TrainingArguments(...)`` call, ``training_dests`` those that are arguments
    of the script, ``training_class`` whose defaults they have (``exact``: the ones of transformers).
    ``changes_config``: the script computes the config or writes into it, so that the file is not what runs.
    ``is_parallel``: pipeline, tensor or sequence parallel groups may exist. ``pipeline_stages``: the ``num_stages`` of
    the one ``PipelineModule`` that the script makes, where there are no other groups.
    ``launcher``: the ``--launcher`` argument of an OpenMMLab script that builds a runner, else ``None``.
    ``handover``: what its one call of ``deepspeed.initialize`` gets beside the config.
    ``config_docs`` are the configs that it hands over as dicts. ``engine``: the model of its one DeepSpeed engine.
    ``trained``: the model of its one Trainer, where that has no hidden size.
    ``sets_precision``: it hands a ``mixed_precision`` to something, which then wins over the launch command.
    ``args_path`` is the file with the parser: another one when the script only calls its ``main``.
    """

    path: str
    args: ScriptArgs = field(default_factory=ScriptArgs)
    consumer: Fact[str] = field(default_factory=absent)
    readers: tuple[Reader, ...] = ()
    config_paths: tuple[Fact[str], ...] = ()
    config_dests: tuple[str, ...] = ()
    training: Mapping[str, Fact[object]] = field(default_factory=dict)
    training_dests: Mapping[str, str] = field(default_factory=dict)
    training_class: str = ""
    changes_config: bool = False
    is_parallel: bool = False
    pipeline_stages: Fact[int] = field(default_factory=absent)
    launcher: Declared | None = None
    args_path: str = ""
    config_docs: tuple[DataDoc, ...] = ()
    sets_precision: bool = False
    handover: Handover | None = None
    engine: EngineModel | None = None
    trained: TrainedModel | None = None


def script_profile(path: str, workspace: Workspace, has_config: bool) -> ScriptProfile | None:
    """The profile of a script; ``None`` when it cannot be read, or when nothing of the run depends on it.

    ``has_config``: the command names a config, or label names. A script that only calls the ``main`` of another
    module of the project has the profile of that module.
    """
    source = workspace.read(path)
    if source is None or not (has_config or _SELF_CONTAINED.search(source.text) or holds_config(source.text)):
        return None
    profile = profile_of(path, workspace)
    if profile is None or profile.args.parser != "none" or not profile.consumer.is_absent:
        return profile
    if len(source.text) > 4000:
        return profile
    for target in _delegates(source, workspace):
        found = profile_of(target, workspace)
        if found is not None and found.args.parser != "none":
            return replace(found, path=path)
    return profile


def profile_of(path: str, workspace: Workspace) -> ScriptProfile | None:
    """The profile of one script, made once; ``None`` when the file cannot be read."""
    return workspace.memo("profile", path, lambda source: read_profile(source, workspace))


def read_profile(source: SourceFile, workspace: Workspace) -> ScriptProfile:
    """The profile of one script or notebook, without its imports."""
    if source.path.endswith(".ipynb"):
        notebook = read_notebook(source.path, source.text)
        source = notebook if isinstance(notebook, SourceFile) else SourceFile(source.path, "")
    if not _WORTH_PARSING.search(source.text):
        return ScriptProfile(source.path)
    script = read_script(source)
    run = script_run(source.path, workspace) if _WORTH_INTERPRETING.search(source.text) else None
    args = read_script_args(script)
    given = list(config_arguments(script))
    training, dests, kind = _training(script)
    return ScriptProfile(
        source.path,
        args,
        consumer := _consumer(script, args, given),
        tuple(_readers(script, args, given, consumer)),
        tuple({a.path.get(): a.path for _, a in given if a.path is not None and not a.is_changed}.values()),
        tuple(dict.fromkeys(a.dest for _, a in given if a.dest and not a.is_changed)),
        training,
        dests,
        kind,
        _changes_config(script, given, consumer),
        bool(_PARALLEL.search(source.text)),
        _pipeline_stages(script),
        _openmmlab_launcher(script, args),
        source.path,
        _config_docs(source),
        _PRECISION.search(source.text) is not None,
        read_handover(run) if run is not None else None,
        engine_model(run) if run is not None else None,
        model_without_size(run) if run is not None else None,
    )


def _config_docs(source: SourceFile) -> tuple[DataDoc, ...]:
    if not holds_config(source.text):
        return ()
    from dslint.model.embedded.python import python_configs

    return tuple(doc for doc in python_configs(source) if doc.consumer != "unknown")


def _consumer(script: PyScript, args: ScriptArgs, given: Sequence[tuple[str, ConfigArgument]]) -> Fact[str]:
    """Who hands the config to DeepSpeed. More than one candidate is unknown."""
    found: dict[str, None] = {}
    names = {name for name, _ in script.called}
    if "deepspeed.initialize" in names:
        found["deepspeed"] = None
    if (
        args.training_arguments in ("exact", "foreign")
        or any(trainer_class(script, n) == "exact" for n in names)
        or any(n.startswith("trl.") and trainer_class(script, n) for n in names)
        or any(trainer_class(script, name) for name, _ in given)
    ):
        found["hf"] = None
    elif any(n.rpartition(".")[2] == "Accelerator" for n in names):
        found["accelerate"] = None
    if any(is_lightning_strategy(n) for n in names):
        found["lightning"] = None
    if not found:
        return absent()
    if len(found) > 1:
        return unknown("the script uses DeepSpeed directly and through a trainer")
    return known(next(iter(found)))


def _readers(
    script: PyScript, args: ScriptArgs, given: Sequence[tuple[str, ConfigArgument]], consumer: Fact[str]
) -> Iterator[Reader]:
    """Who reads which config. Where a Trainer is used it fills what accelerate's plugin is handed as well."""
    trains = consumer.get_or("") == "hf"
    for name, argument in given:
        reader = "hf" if trains else reader_of(script, name) or consumer.get_or("")
        if not reader or argument.node is None:
            continue
        path = argument.path.get() if argument.path is not None else ""
        if reader == "deepspeed" and (argument.is_changed or _sets_sizes(script, consumer)):
            reader = "unknown"  # what the file says is not what DeepSpeed reads
        declared = args.declared.get(argument.dest)
        if declared is not None and isinstance(declared.default.value, str):
            path = declared.default.value
        if path or argument.pattern:
            yield Reader(reader, script.location(argument.node), path, argument.pattern)
    field_ = args.declared.get("deepspeed")
    if trains and args.training_arguments and field_ is not None and isinstance(field_.default.value, str):
        yield Reader("hf", field_.location, field_.default.value)


def _training(script: PyScript) -> tuple[dict[str, Fact[object]], dict[str, str], str]:
    """Keywords of the one ``TrainingArguments(...)`` call: their values, and which arguments of the script they are."""
    training: dict[str, Fact[object]] = {}
    dests: dict[str, str] = {}
    kind = ""
    for name, call in script.called:
        found = trainer_class(script, name)
        if not found:
            continue
        if kind:  # Two of them: nobody knows which one trains.
            return dict.fromkeys(training, unknown("the script makes several")), {}, "foreign"
        kind = found
        for keyword in call.keywords:
            if keyword.arg is None:
                training["**"] = unknown("keywords are unpacked")
                continue
            training[keyword.arg] = script.literal(keyword.value)
            value = script.resolved(keyword.value)
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                dests[keyword.arg] = value.attr
    return training, dests, kind


def _sets_sizes(script: PyScript, consumer: Fact[str]) -> bool:
    """The script may give the config another path or other batch sizes."""
    # ``args.train_batch_size = ...`` changes what a Trainer takes over; plain DeepSpeed reads the file.
    sizes = () if consumer.get_or("") == "deepspeed" else BATCH_KEYS
    if script.assigned_attributes & {"deepspeed_config", "deepspeed", *sizes}:
        return True
    quoted = [f"{quote}{key}{quote}" for key in BATCH_KEYS for quote in "\"'"]
    return any(text in script.source.text for text in quoted) and _names_sizes(script)


def _names_sizes(script: PyScript) -> bool:
    """A batch size is named elsewhere than in ``config["train_batch_size"]`` or ``config.get(...)`` that is read."""
    if script.tree is None:
        return True
    reads: set[int] = set()
    named: set[int] = set()
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            reads.add(id(node.slice))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            reads.add(id(node.args[0]))
        elif isinstance(node, ast.Constant) and node.value in BATCH_KEYS:
            named.add(id(node))
    return not named <= reads


def _changes_config(script: PyScript, given: Sequence[tuple[str, ConfigArgument]], consumer: Fact[str]) -> bool:
    if _sets_sizes(script, consumer):
        return True
    initialize = [call for name, call in script.called if name == "deepspeed.initialize"]
    if any(keyword.arg is None for call in initialize for keyword in call.keywords):
        return True
    return any(name == "deepspeed.initialize" and not argument.is_known for name, argument in given)


def _pipeline_stages(script: PyScript) -> Fact[int]:
    """The stages of the one pipeline, which then has a topology of its own (deepspeed/runtime/pipe/module.py)."""
    calls = [call for name, call in script.called if name.rpartition(".")[2] == "PipelineModule"]
    if not calls:
        return absent()
    keywords = {keyword.arg: keyword.value for keyword in calls[0].keywords}
    others = _PARALLEL.search(script.source.text.replace("PipelineModule", ""))
    if len(calls) > 1 or others or None in keywords or "topology" in keywords or "num_stages" not in keywords:
        return unknown("the groups of the pipeline are not visible")
    found = script.literal(keywords["num_stages"])
    value = found.get_or(None)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return unknown("the number of pipeline stages is not visible")
    return known(value, *found.origins)


def _openmmlab_launcher(script: PyScript, args: ScriptArgs) -> Declared | None:
    declared = args.declared.get("launcher")
    if declared is None or not {"pytorch", "slurm"} <= set(declared.choices):
        return None
    if _FROM_CONFIG.search(script.source.text):
        return None
    # ``args.launcher = "pytorch"``: the script sees for itself who started it.
    if any(
        dotted.endswith(".launcher") and not dotted.startswith(("cfg.", "config.")) for dotted in script.assigned_dotted
    ):
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
