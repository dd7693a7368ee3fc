"""What a plan asks of its script beside the profile: each only where command, config and reader make it matter."""

from __future__ import annotations

import re

from dslint.core.fact import Fact, absent
from dslint.core.source import Location, SourceFile
from dslint.model.deepspeed.detect import is_accelerate_config
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.slurmjob import job_tasks, machine_gpus
from dslint.model.plan.config import ConfigChoice, names_config
from dslint.model.plan.files import Files
from dslint.model.plan.groupmade import joins_group
from dslint.model.plan.groupsize import group_size
from dslint.model.plan.handover import engine_of_arguments, handed_elsewhere
from dslint.model.plan.labelnames import FLAG
from dslint.model.plan.localrank import LocalRank, local_rank_of
from dslint.model.plan.owntrainer import OwnOptimizer, own_optimizer
from dslint.model.plan.parser.options import ScriptParser
from dslint.model.plan.rankuse import RankUse, rank_use
from dslint.model.plan.recipe import NO_COMMAND, names_recipe
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.model.plan.trainedmodel import SIZES, TrainedModel, model_without_size
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

_LAUNCHES = re.compile(r"accelerate[ \t-]+launch|accelerate\.commands\.launch")
_YAML = re.compile(r"[\w./-]+\.ya?ml\b")
_SCRIPT = re.compile(r"[\w./-]+\.(?:sh|bash|sbatch|slurm)\b")
_COMMENT = re.compile(r"^[ \t]*#[^\n]*|(?<=[ \t])#[ \t][^\n]*", re.MULTILINE)


def matters(command: LaunchCommand) -> bool:
    """Whether something of the run depends on what the script does, by the words of the command alone."""
    named = command.launcher == NO_COMMAND or names_config(command) or names_recipe(command)
    return named or command.script_flag(FLAG) is not None


def joined_group(plain: str | None, workspace: Workspace) -> Location | None:
    """Where a script that no launcher starts joins a process group."""
    if plain is None:
        return None
    return workspace.memo("group", plain, lambda source: joins_group(source, workspace))


def joins_others(
    command: LaunchCommand, script: str | None, unused: DataDoc | None, workspace: Workspace
) -> RankUse | None:
    """How the script trains with others, where something speaks of several and Python or ``srun`` alone starts it."""
    if script is None or command.outer or command.launcher not in ("python", "srun", "mpirun"):
        return None
    several = (job_tasks(command), machine_gpus(command)) if command.launcher == "python" else (command.world_size,)
    if unused is None and all(fact.get_or(1) < 2 for fact in several):
        return None
    return workspace.memo("rank use", script, lambda source: rank_use(source, workspace))


def unused_accelerate_file(command: LaunchCommand, files: Files) -> DataDoc | None:
    """A config of ``accelerate launch`` for several processes that the text of a plain command names, and no launcher.

    People copy it to where accelerate looks for it, and then start Python.
    """
    if command.launcher != "python" or command.outer:
        return None
    for name in yaml_beside(command, files):
        path = files.find(name)
        doc = files.workspace.yaml(path) if path is not None else None
        if doc is not None and is_accelerate_config(path or "", doc.data) and (_number(doc) > 1):
            return doc
    return None


def yaml_beside(command: LaunchCommand, files: Files) -> tuple[str, ...]:
    """The YAML files that a text names outside of its comments, where nothing that it runs is `accelerate launch`.

    What else the text starts, the reader of launch texts says: also by a variable, or in a script that it calls.
    """
    path = command.location.path
    source = files.workspace.read(path)
    text = _COMMENT.sub("", source.text) if source is not None else ""
    if not re.search("accelerate", text, re.IGNORECASE) or _LAUNCHES.search(text):
        return ()
    names = tuple(dict.fromkeys(_YAML.findall(text)))
    scripts = [found for name in dict.fromkeys(_SCRIPT.findall(text)) if (found := files.find(name)) is not None]
    if not names or any(_launches(script, files.workspace) for script in (path, *scripts)):
        return ()
    return names


def _launches(path: str, workspace: Workspace) -> bool:
    from dslint.model.launch.document import read_launch_docs

    def read(source: SourceFile) -> bool:
        if _LAUNCHES.search(_COMMENT.sub("", source.text)):
            return True
        docs = (
            read_launch_docs(source, "shell", workspace) if path.endswith((".sh", ".bash", ".sbatch", ".slurm")) else []
        )
        return any(command.launcher == "accelerate" for doc in docs for command in (*doc.commands, *doc.called))

    return workspace.memo("starts accelerate launch", path, read) or False


def _number(doc: DataDoc) -> int:
    number = doc.get("/num_processes")
    return number if isinstance(number, int) else 0


def stated_group_size(script: str | None, workspace: Workspace) -> Fact[int]:
    """The number of ranks that the script writes out for its process group."""
    if script is None:
        return absent()
    return workspace.memo("group size", script, lambda source: group_size(source, workspace)) or absent()


def config_reader(script: str | None, workspace: Workspace, consumer: Fact[str]) -> Fact[str]:
    """Who reads the config, unless the script only looks like one of a Trainer."""
    is_asked = script is not None and consumer.get_or("") == "hf"
    return engine_of_arguments(script, workspace).or_else(consumer) if is_asked and script is not None else consumer


def optimizer_elsewhere(
    profile: ScriptProfile | None, choice: ConfigChoice, consumer: Fact[str], workspace: Workspace
) -> Fact[str]:
    """The optimizer that comes beside the one of the config; a Trainer passes none."""
    is_asked = consumer.get_or("deepspeed") == "deepspeed" and choice.doc is not None and choice.doc.has("/optimizer")
    if not is_asked or profile is None:
        return absent()
    return profile.elsewhere if profile.calls_engine else handed_elsewhere(profile.path, workspace)


def trainer_optimizer(
    script: str | None, choice: ConfigChoice, consumer: Fact[str], workspace: Workspace
) -> OwnOptimizer | None:
    """What the Trainer of the script is given; the script is interpreted where its words speak of an optimizer."""
    is_asked = script is not None and choice.doc is not None and consumer.get_or("") == "hf"
    return own_optimizer(script, workspace) if is_asked and script is not None else None


def trained_model(
    profile: ScriptProfile | None, choice: ConfigChoice, consumer: Fact[str], workspace: Workspace
) -> TrainedModel | None:
    """The model without a hidden size; the script is interpreted where the config needs one."""
    doc = choice.doc
    if profile is None or doc is None or consumer.get_or("") != "hf" or all(doc.get(key) != "auto" for key in SIZES):
        return None
    return workspace.memo("trained", profile.args_path, lambda source: model_without_size(source, workspace))


def local_rank(
    command: LaunchCommand, script: str | None, parser: ScriptParser | None, workspace: Workspace
) -> LocalRank | None:
    """The local rank that a launcher passes, and what the script's parser does with it."""
    if script is None or command.launcher not in ("torchrun", "deepspeed", "accelerate"):
        return None
    if parser is None:
        return None
    first = parser.whole or parser  # the words of a launcher stand in front of a command
    return workspace.memo("local rank", script, lambda source: local_rank_of(first, source, workspace))
