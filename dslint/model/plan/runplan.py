"""The run plan: what happens when somebody starts a launch command, joined over the files that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location
from dslint.model.deepspeed.batch import Batch
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.localrank import is_legacy_launch
from dslint.model.launch.openmmlab import convention_of
from dslint.model.plan.alonefile import file_not_alone
from dslint.model.plan.arguments import passed_arguments, run_consumer
from dslint.model.plan.asked import (
    config_reader,
    joined_group,
    joins_others,
    local_rank,
    matters,
    optimizer_elsewhere,
    stated_group_size,
    trained_model,
    trainer_optimizer,
    unused_accelerate_file,
)
from dslint.model.plan.batch import batch_of, batch_world, precision_of
from dslint.model.plan.config import Named, choose_config, named_config
from dslint.model.plan.continued import Elsewhere, misspelt_continuations
from dslint.model.plan.counts import resolved_counts
from dslint.model.plan.degrees import Degrees, misfit_degrees
from dslint.model.plan.environmentwords import environment_words
from dslint.model.plan.files import Files, other_spelling
from dslint.model.plan.gpulesspods import GpulessPod, gpuless_pod
from dslint.model.plan.groupnumbers import GroupNumber, NoNumber, group_numbers, no_number
from dslint.model.plan.handover import Handover
from dslint.model.plan.hostfile import HostfileProblem, hostfile_problem
from dslint.model.plan.interpretedconfig import config_path
from dslint.model.plan.jobnodes import NodeDifference, node_differences
from dslint.model.plan.labelnames import LabelNames, read_label_names
from dslint.model.plan.layerclass import LayerClass, wrong_layer_class
from dslint.model.plan.leftinshell import left_in_shell
from dslint.model.plan.localdevice import local_device
from dslint.model.plan.localrank import LocalRank
from dslint.model.plan.lostaccumulation import LostAccumulation, lost_accumulation
from dslint.model.plan.meshes import Mesh, mesh_of
from dslint.model.plan.missing import missing_script
from dslint.model.plan.named import arguments_of, changes_config, is_plain, missing_of, script_path, words_of
from dslint.model.plan.owndevices import OwnDevices, own_devices
from dslint.model.plan.ownprecision import own_precision
from dslint.model.plan.ownstrategy import chooses_strategy
from dslint.model.plan.owntrainer import OwnOptimizer
from dslint.model.plan.parser.options import Passed, Problem, ScriptParser
from dslint.model.plan.rankuse import RankUse
from dslint.model.plan.readsenv import named_variables
from dslint.model.plan.recipe import (
    Recipe,
    recipe,
    standalone,
    started_by_hand,
)
from dslint.model.plan.scriptprofile import ScriptProfile, script_profile
from dslint.model.plan.sharedmemory import Container, small_container
from dslint.model.plan.stagearg import run_stage
from dslint.model.plan.stated import StatedCounts
from dslint.model.plan.trainedmodel import TrainedModel
from dslint.model.plan.trainerdevices import devices_asked, trainer_devices
from dslint.model.plan.trainernodes import nodes_asked, shown_devices, trainer_nodes
from dslint.model.plan.unreadsettings import UnreadSettings, unread_settings
from dslint.model.plan.unsetrank import UnsetRank, unset_rank
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

if TYPE_CHECKING:
    from dslint.model.embedded.heredoc import WrittenConfig


@dataclass(frozen=True, slots=True)
class Peer:
    """Another run of the same config; ``is_earlier`` when its command stands before this one.

    ``numbers`` are its batch sizes and world size, for the question whether two runs fail alike.
    """

    command: LaunchCommand
    consumer: Fact[str]
    arguments: Mapping[str, Fact[Any]]
    is_earlier: bool
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One launch command joined with its script, arguments and configs; every value with its origin.

    ``script`` and ``config_path`` are user-facing paths. ``passed`` are the arguments as the command words them,
    ``arguments`` the values that ``TrainingArguments`` or the script will hold (flag, else default).
    ``batch`` is what DeepSpeed will see after a trainer filled ``"auto"``, ``batch_world`` the number of ranks it
    multiplies with. ``missing`` are config files that the command names and that are nowhere.
    ``config_is_rewritten``: the script or an autotuner changes the config, so its numbers are not what runs.
    ``labels`` are label names that the command passes and the Trainer cannot gather without harm.
    ``peers`` are the other runs of the same config file. ``recipe`` is the file with the arguments, if one has them.
    ``ignored`` are numbers that the user states and files contradict, in words.
    ``local_rank`` is how the script learns its own, where a launcher starts it and its parser is in full view.
    ``parser`` reads the command line of the script, where it is found; ``given`` is what it makes of the words of this
    command: a value for each option (flag, else default), and what it refuses.
    ``missing_script`` is a script that is nowhere; ``group`` the call by which a script that plain ``python`` starts
    joins a process group; ``hostfile`` what DeepSpeed does not take about the hostfile.
    ``meant`` is the file that a script which is nowhere would be if a module were a path, or a path a module.
    ``group_size``: the number of ranks that the script writes out for its process group. ``reads`` are the names of
    variables in the script. ``elsewhere`` is the optimizer that `deepspeed.initialize` gets in a module which the
    script imports, or in one of several calls. ``own_optimizer`` is what the script gives its Trainer beside a config,
    ``trained`` the model of its one Trainer, where the config needs the hidden size of a model that has none.
    ``differs``: what this node of a job says differently from the first node, whose command stands elsewhere.
    ``continues``: paths that it reads and that another run writes under another spelling.
    ``ranks`` is how the script trains with others, where Python or `srun` alone starts it and something speaks of
    several; ``unused`` a config of `accelerate launch` for several processes that the text names and nobody reads.
    ``degrees``: those of parallelism that its processes cannot have; ``mesh``: the device mesh of the script;
    ``layer_class``: a class of layers for FSDP that the model does not have; ``unexported``: variables for the script
    that stay in the shell; ``own_devices``: the GPUs that it chooses itself. ``devices``: those it asks Lightning for,
    ``machines`` how many machines, where nothing tells of others.
    ``no_number``: an option that its process group needs as a number, and that is none.
    ``container``: the one with little shared memory that it runs in; ``as_words``: variables behind its script.
    ``local_device``: where it takes the device with the number of its task.
    ``own_precision``: what its `Accelerator` gets; ``not_alone``: the test for a file of arguments that is false.
    ``lost_accumulation``: steps that are stated and that its `Accelerator` is never told.
    ``unread``: settings of a config of `accelerate launch` that the text names, where another launcher starts it.
    ``no_gpu``: the pod that it runs in, where that asks for no GPU and should.
    ``unset_rank``: it takes its device from `LOCAL_RANK`, which its launcher does not set.
    ``chooses_strategy``: it wraps its model itself, whatever `accelerate launch --multi_gpu` says.
    ``convention`` is the family of a script that is not in the project, whose command line is known by its name.
    """

    command: LaunchCommand
    nodes: Fact[int]
    processes_per_node: Fact[int]
    world_size: Fact[int]
    script: str | None = None
    profile: ScriptProfile | None = None
    passed: Mapping[str, Fact[str]] = field(default_factory=dict)
    arguments: Mapping[str, Fact[Any]] = field(default_factory=dict)
    config_path: Fact[str] = field(default_factory=absent)
    config: DataDoc | None = None
    accelerate: DataDoc | None = None
    zero_stage: Fact[int] = field(default_factory=absent)
    precision: Fact[str] = field(default_factory=absent)
    batch: Batch = field(default_factory=Batch)
    batch_world: Fact[Any] = field(default_factory=absent)
    consumer: Fact[str] = field(default_factory=absent)
    missing: tuple[Named, ...] = ()
    config_is_rewritten: bool = False
    labels: LabelNames | None = None
    peers: tuple[Peer, ...] = ()
    recipe: DataDoc | None = None
    local_rank: LocalRank | None = None
    ignored: tuple[str, ...] = ()
    parser: ScriptParser | None = None
    given: Passed | None = None
    missing_script: Named | None = None
    group: Location | None = None
    hostfile: HostfileProblem | None = None
    meant: str | None = None
    group_size: Fact[int] = field(default_factory=absent)
    reads: frozenset[str] = frozenset()
    elsewhere: Fact[str] = field(default_factory=absent)
    own_optimizer: OwnOptimizer | None = None
    convention: str = ""
    trained: TrainedModel | None = None
    differs: tuple[NodeDifference, ...] = ()
    continues: tuple[Elsewhere, ...] = ()
    ranks: RankUse | None = None
    devices: Fact[int] = field(default_factory=absent)
    unused: DataDoc | None = None
    degrees: Degrees | None = None
    mesh: Mesh | None = None
    layer_class: LayerClass | None = None
    unexported: tuple[tuple[str, Location], ...] = ()
    own_devices: OwnDevices | None = None
    local_device: Location | None = None
    machines: Fact[int] = field(default_factory=absent)
    container: Container | None = None
    no_number: NoNumber | None = None
    chooses_strategy: bool = False
    unset_rank: UnsetRank | None = None
    lost_accumulation: LostAccumulation | None = None
    own_precision: Fact[str] = field(default_factory=absent)
    not_alone: Location | None = None
    as_words: tuple[tuple[str, Word], ...] = ()
    unread: UnreadSettings | None = None
    no_gpu: GpulessPod | None = None

    @property
    def handover(self) -> Handover | None:
        """What the script hands to DeepSpeed beside the config; ``None`` where a trainer does, or nobody knows."""
        plain = self.consumer.get_or("") == "deepspeed" and not self.config_is_rewritten
        return self.profile.handover if plain and self.profile is not None else None

    @property
    def is_legacy(self) -> bool:
        """``python -m torch.distributed.launch``."""
        return self.command.launcher == "torchrun" and is_legacy_launch(self.command)

    @property
    def refused(self) -> tuple[Problem, ...]:
        """What the parser of the script refuses about the words of the command."""
        return self.given.problems if self.given is not None else ()

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The values of the batch triangle, without their places."""
        facts = (self.batch.train, self.batch.micro, self.batch.steps, self.batch_world)
        return tuple((fact.state, fact.value) for fact in facts)


def build_plans(
    commands: Iterable[LaunchCommand],
    workspace: Workspace,
    reader: Callable[[str], Fact[str]] | None = None,
    recipes: Sequence[Recipe] = (),
    scripts: Sequence[str] = (),
    written: Callable[[str], Sequence[WrittenConfig]] | None = None,
    is_thorough: bool = False,
    counts: Callable[[str], StatedCounts] | None = None,
    built: Callable[[RunPlan], None] = lambda _: None,
) -> list[RunPlan]:
    """One plan a command, in the order of the commands, then one for each recipe and script that no command uses.

    ``scripts`` are those among which some may make their ``TrainingArguments`` with a config themselves.

    ``reader`` says who reads the config at a path where the user states it; ``written`` says which configs
    a launch file writes. ``is_thorough``: scripts are read also where no rule needs to know them.
    ``counts`` says how many nodes and processes the user states for the commands of a file.
    ``built`` gets the plan of each command before the next one is asked for; one with a config may get peers later.
    """
    told = _Told(reader, counts, is_thorough)
    plans: list[RunPlan] = []
    for command in commands:
        made = written(command.location.path) if written is not None else ()
        key = ("plan", command, *made)
        plans.append(workspace.remembered(key, partial(_build, command, workspace, told, written=made)))
        built(plans[-1])
    used = {workspace.normal(plan.recipe.path) for plan in plans if plan.recipe is not None}
    alone = [found for found in recipes if workspace.normal(found.doc.path) not in used]
    plans += [
        workspace.remembered(("recipe", found), partial(_build, standalone(found), workspace, told, found))
        for found in alone
    ]
    started = {path for plan in plans for path in (plan.script, plan.profile and plan.profile.args_path)}
    for path in scripts:
        by_hand = started_by_hand(path, workspace) if path not in started else None
        if by_hand is not None:
            plans.append(_build(by_hand, workspace, told))
    users: dict[str, list[int]] = {}
    for index, plan in enumerate(plans):
        if plan.config is not None:
            users.setdefault(plan.config.name, []).append(index)
    for indexes in users.values():
        for index in indexes:
            peers = tuple(_peer(plans[i], i < index) for i in indexes if i != index)
            plans[index] = replace(plans[index], peers=peers)
    for index, differences in node_differences(plans).items():
        plans[index] = replace(plans[index], differs=differences)
    for index, mistakes in misspelt_continuations(plans, workspace).items():
        plans[index] = replace(plans[index], continues=mistakes)
    return plans


def _peer(plan: RunPlan, is_earlier: bool) -> Peer:
    return Peer(plan.command, plan.consumer, plan.arguments, is_earlier, plan.numbers)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the user states, and how much is to be read."""

    reader: Callable[[str], Fact[str]] | None
    counts: Callable[[str], StatedCounts] | None
    is_thorough: bool


def _build(
    command: LaunchCommand,
    workspace: Workspace,
    told: _Told,
    given: Recipe | None = None,
    written: Sequence[WrittenConfig] = (),
) -> RunPlan:
    plan = _planned(command, workspace, told, given, written)
    if plan.config is not None or not (plan.config_path.is_absent and plan.zero_stage.is_absent):
        return plan
    found = config_path(plan, workspace)
    return plan if found is None else _planned(command, workspace, told, given, written, found)


def _planned(
    command: LaunchCommand,
    workspace: Workspace,
    told: _Told,
    given: Recipe | None,
    written: Sequence[WrittenConfig],
    named: tuple[str, Location] | None = None,
) -> RunPlan:
    files = Files(command, workspace, written)
    script = script_path(command, files)
    profile = script_profile(script, workspace, matters(command), told.is_thorough) if script is not None else None
    arguments_file = given or recipe(command, files, profile, script)
    around = files.beside(script) if script is not None else files
    choice = choose_config(command, profile, around, arguments_file) if named is None else named_config(*named, around)
    stated = told.reader(choice.path.get()) if told.reader is not None and choice.path.is_known else absent()
    if choice.doc is not None and choice.doc.consumer not in ("", "unknown"):
        stated = stated.or_else(known(choice.doc.consumer))
    consumer = stated.or_else(config_reader(script, workspace, run_consumer(command, profile, choice)))
    parser, given_to = words_of(command, script, workspace)
    passed = passed_arguments(command)
    arguments = arguments_of(command, profile, arguments_file, consumer, given_to, passed, around)
    plain = script if is_plain(command) else None
    counts, ignored = resolved_counts(command, plain, choice, files, told.counts)
    is_rewritten = command.launcher_flag("--autotuning") is not None or changes_config(profile, choice, named)
    plan = RunPlan(
        command,
        counts.nodes,
        counts.per_node,
        counts.total,
        script,
        profile,
        passed,
        arguments,
        choice.path,
        choice.doc,
        choice.accelerate,
        run_stage(choice, command, (parser, given_to), profile, workspace),
        precision_of(choice.doc, consumer, arguments),
        Batch() if is_rewritten else batch_of(choice.doc, consumer, arguments),
        batch_world(choice.doc, counts.total, command, profile),
        consumer,
        missing_of(command, around, choice),
        is_rewritten,
        read_label_names(command, profile, workspace),
        recipe=arguments_file.doc if arguments_file is not None else None,
        local_rank=local_rank(command, script, parser, workspace),
        ignored=ignored,
        parser=parser,
        given=given_to,
        missing_script=missing_script(command, files) if script is None or command.cwd.is_known else None,
        group=joined_group(plain, workspace),
        hostfile=hostfile_problem(command, files.beside(script) if script is not None else files),
        meant=other_spelling(command, files),
        group_size=stated_group_size(script, workspace),
        reads=(script and workspace.memo("variables", script, named_variables)) or frozenset(),
        elsewhere=optimizer_elsewhere(profile, choice, consumer, workspace),
        own_optimizer=trainer_optimizer(script, choice, consumer, workspace),
        convention=convention_of(command) if script is None else "",
        trained=trained_model(profile, choice, consumer, workspace),
    )
    return _with_sizes(plan, files, around)


def _numbers(script: str | None, workspace: Workspace) -> tuple[GroupNumber, ...]:
    return (script and workspace.memo("group numbers", script, partial(group_numbers, workspace=workspace))) or ()


def _with_sizes(plan: RunPlan, files: Files, around: Files) -> RunPlan:
    """The plan with what its command, script and configs say about ranks, degrees and devices beside each other."""
    command, script, workspace = plan.command, plan.script, files.workspace
    unused = unused_accelerate_file(command, files) if script is not None else None
    given = plan.given.values if plan.given is not None else {}
    asked = workspace.memo("trainer devices", script, partial(trainer_devices, workspace=workspace)) if script else None
    devices = devices_asked(asked, given).or_else(shown_devices(command, script, around))
    return replace(
        plan,
        ranks=joins_others(command, script, unused, workspace) if devices.get_or(2) > 1 else None,
        devices=devices,
        machines=nodes_asked(workspace.memo("trainer nodes", script, trainer_nodes), command, given, around)
        if script
        else absent(),
        unused=unused,
        degrees=misfit_degrees(command, files, plan.world_size),
        layer_class=wrong_layer_class(command, script, (plan.accelerate,), given, around),
        mesh=mesh_of(command, script, plan.given, files) if plan.world_size.is_known else None,
        own_devices=workspace.memo("own devices", script, own_devices) if script is not None else None,
        local_device=(
            workspace.memo("local device", script, partial(local_device, workspace=workspace)) if script else None
        ),
        no_number=no_number(_numbers(script, workspace), plan.parser, plan.given),
        container=small_container(command, around, script, given),
        unexported=tuple(left_in_shell(command, plan.reads, workspace)),
        chooses_strategy=chooses_strategy(command, script, workspace),
        unset_rank=unset_rank(command, script, workspace),
        not_alone=file_not_alone(command, plan.parser, workspace),
        as_words=environment_words(command, script, around),
        own_precision=own_precision(command, script, given, workspace),
        lost_accumulation=lost_accumulation(command, script, given, (plan.accelerate, plan.config), around),
        unread=unread_settings(command, script, files),
        no_gpu=gpuless_pod(command, script, workspace),
    )
