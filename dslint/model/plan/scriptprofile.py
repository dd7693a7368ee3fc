"""What a script does with its launch: who reads the DeepSpeed config, which one, and how the job is joined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile
from dslint.model.firstlook import holds_config
from dslint.model.plan.configarg import ConfigArgument, config_arguments
from dslint.model.plan.configchanges import changes_config, sets_sizes
from dslint.model.plan.enginemodel import EngineModel, engine_model
from dslint.model.plan.handover import Handover, handed_by_several, read_handover
from dslint.model.plan.interpretedconfig import is_read
from dslint.model.plan.openmmlab import openmmlab_launcher
from dslint.model.plan.parser.options import Option, ScriptParser
from dslint.model.plan.parser.reader import script_parser
from dslint.model.plan.questions import ACCELERATOR, ENGINE, PIPELINE, profile_question
from dslint.model.plan.scriptrun import ScriptRun, constant_of, place_of, script_run
from dslint.model.plan.trainerarguments import Constructed, Parsed, constructed, constructions, kind_of, parsed_classes
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc
from dslint.python.events import Event

# Groups of ranks that share a sample: the batch arithmetic then has a smaller world than the launcher starts. A key of
# a config in the script is no such group: what DeepSpeed makes of it is known.
_PARALLEL = re.compile(
    r"PipelineModule|\bmpu\s*=|model_parallel|tensor_parallel|pipeline_parallel|mesh_param|mesh_device|ulysses"
    r"|sequence_parallel(?!_size[\"']\s*:)",
    re.I,
)
# The calls about which the interpreter is asked.
_WORTH_READING = re.compile(
    r"\binitialize\b|HfArgumentParser|TrlParser|TrainingArguments|\btrl\b|\bAccelerator\b|PipelineModule"
    r"|DeepSpeed(?:Plugin|Strategy|Config)"
)
# What a script must hold to matter for a command that names no config itself.
_SELF_CONTAINED = re.compile(r"\.h?json[\"']|--launcher[\"']")
_PRECISION = re.compile(r"\bmixed_precision\s*=")
# What the code of a training script does and a script that only calls it does not.
_BEGINS = frozenset({"parses-arguments", "training-arguments", "makes-engine"})
# A script that is no longer than this may only call the `main` of another module.
_SHORT = 4000


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
    the path. ``parser`` reads the command line, ``parsed``: classes that it fills. ``constructed``: the one call of a
    ``TrainingArguments(...)``.
    ``changes_config``: the script computes the config or writes into it, so that the file is not what runs.
    ``is_parallel``: pipeline, tensor or sequence parallel groups may exist. ``pipeline_stages``: the ``num_stages`` of
    the one ``PipelineModule`` that the script makes, where there are no other groups.
    ``launcher``: the ``--launcher`` argument of an OpenMMLab script that builds a runner, else ``None``.
    ``handover``: what its one call of ``deepspeed.initialize`` gets beside the config.
    ``config_docs`` are the configs that it hands over as dicts. ``engine``: the model of its one DeepSpeed engine.
    ``sets_precision``: it hands a ``mixed_precision`` to something, which then wins over the launch command.
    ``elsewhere``: an optimizer that one of several calls of ``deepspeed.initialize`` gets; ``calls_engine``: there is
    such a call.
    ``opens_config``: an engine gets a config that the script may read from a file; ``None``: nobody has looked.
    ``args_path`` is the file with the parser: another one when the script only calls its ``main``.
    """

    path: str
    parser: ScriptParser | None = None
    parsed: Parsed = field(default_factory=Parsed)
    consumer: Fact[str] = field(default_factory=absent)
    readers: tuple[Reader, ...] = ()
    config_paths: tuple[Fact[str], ...] = ()
    config_dests: tuple[str, ...] = ()
    constructed: Constructed = field(default_factory=Constructed)
    changes_config: bool = False
    is_parallel: bool = False
    pipeline_stages: Fact[int] = field(default_factory=absent)
    launcher: Option | None = None
    args_path: str = ""
    config_docs: tuple[DataDoc, ...] = ()
    sets_precision: bool = False
    handover: Handover | None = None
    engine: EngineModel | None = None
    elsewhere: Fact[str] = field(default_factory=absent)
    opens_config: bool | None = None
    calls_engine: bool = False

    @property
    def options(self) -> Mapping[str, Option]:
        """The options and operands of the command line by their destination, as far as they are in view."""
        found = self.parser.options if self.parser is not None else ()
        return {option.dest: option for option in found if option.action != "help"}

    @property
    def is_open(self) -> bool:
        """More arguments may exist than ``options`` shows."""
        return self.parser is None or not self.parser.is_closed or self.parsed.is_open


def script_profile(
    path: str, workspace: Workspace, has_config: bool, is_thorough: bool = False
) -> ScriptProfile | None:
    """The profile of a script; ``None`` when it cannot be read, or when nothing of the run depends on it.

    ``has_config``: the command names a config, or label names. ``is_thorough``: of other scripts what their own
    text shows, and the command line.
    """
    source = workspace.read(path)
    if source is None:
        return None
    if has_config or _SELF_CONTAINED.search(source.text) or holds_config(source.text):
        return profile_of(path, workspace)
    if not is_thorough:
        return None
    if _WORTH_READING.search(source.text):
        return profile_of(path, workspace)
    return _by_text(source, script_parser(path, workspace))


def profile_of(path: str, workspace: Workspace) -> ScriptProfile | None:
    """The profile of one script, made once; ``None`` when the file cannot be read."""
    return workspace.memo("profile", path, lambda source: _read(source, workspace))


def _read(source: SourceFile, workspace: Workspace) -> ScriptProfile:
    run = script_run(source.path, workspace, profile_question())  # the parser finds what it has read
    parser = script_parser(source.path, workspace)
    if run is None:
        return _by_text(source, parser)
    own = _main(source, run)
    parser = parser or script_parser(own.path, workspace)
    parsed, made = parsed_classes(run), constructions(run)
    given = list(config_arguments(run, [*made, *(e for e in run.once if "training-arguments" not in e.tags)]))
    consumer = _consumer(run, parsed, made, given)
    engines = run.calls(ENGINE)
    profile = ScriptProfile(source.path, parser, parsed, consumer)
    return ScriptProfile(
        source.path,
        parser,
        parsed,
        consumer,
        tuple(_readers(profile, own, given)),
        tuple({a.path.get(): a.path for a in given if a.path is not None and not a.is_changed}.values()),
        tuple(dict.fromkeys(a.dest for a in given if a.dest and not a.is_changed)),
        constructed(run),
        changes_config(own, run, given, consumer),
        bool(_PARALLEL.search(own.text)),
        _pipeline_stages(run, own),
        openmmlab_launcher(own, profile.options),
        own.path,
        _config_docs(own),
        _sets_precision(run, own),
        read_handover(run),
        engine_model(run),
        handed_by_several(run),
        any(is_read(event.config) for events in engines for event in events),
        bool(engines),
    )


def _by_text(source: SourceFile, parser: ScriptParser | None) -> ScriptProfile:
    """What the text of a script says that makes none of the calls in question, or that Python cannot read."""
    plain = ScriptProfile(source.path, parser, args_path=source.path)
    return replace(
        plain,
        is_parallel=bool(_PARALLEL.search(source.text)),
        launcher=openmmlab_launcher(source, plain.options),
        config_docs=_config_docs(source),
        sets_precision=_PRECISION.search(source.text) is not None,
    )


def _main(source: SourceFile, run: ScriptRun) -> SourceFile:
    """The file whose code the script is: another one where it is short and only calls the ``main`` there."""
    if len(source.text) > _SHORT or _WORTH_READING.search(source.text):
        return run.entry.module.source
    return next((event.module.source for event in run.events if event.tags & _BEGINS), run.entry.module.source)


def _config_docs(source: SourceFile) -> tuple[DataDoc, ...]:
    if not holds_config(source.text):
        return ()
    from dslint.model.embedded.python import configs_of_run

    return configs_of_run(source)


def _consumer(run: ScriptRun, parsed: Parsed, made: Sequence[Event], given: Sequence[ConfigArgument]) -> Fact[str]:
    """Who hands the config to DeepSpeed. More than one candidate is unknown."""
    found: dict[str, None] = {}
    if run.calls(ENGINE):
        found["deepspeed"] = None
    is_trainer = any(kind_of(event) == "exact" or event.api.startswith("trl.") for event in made)
    if is_trainer or parsed.kind in ("exact", "foreign") or any(a.reader == "hf" for a in given):
        found["hf"] = None
    elif any(_is_own(run, events[0]) for events in run.calls(ACCELERATOR)):
        found["accelerate"] = None
    if any(event.api.endswith(".DeepSpeedStrategy") and "group-options" in event.tags for event in run.all_events):
        found["lightning"] = None
    if not found:
        return absent()
    if len(found) > 1:
        return unknown("the script uses DeepSpeed directly and through a trainer")
    return known(next(iter(found)))


def _is_own(run: ScriptRun, event: Event) -> bool:
    """An Accelerator of the script itself, or one that gets a plugin: others may only count ranks."""
    return event.module is run.entry.module or bool(event.arguments.keys() & {"deepspeed_plugin", "deepspeed_plugins"})


def _readers(profile: ScriptProfile, own: SourceFile, given: Sequence[ConfigArgument]) -> Iterator[Reader]:
    """Who reads which config. Where a Trainer is used it fills what accelerate's plugin is handed as well."""
    consumer = profile.consumer.get_or("")
    for argument in given:
        reader = "hf" if consumer == "hf" else argument.reader or consumer
        if not reader:
            continue
        path = argument.path.get() if argument.path is not None else ""
        if reader == "deepspeed" and (argument.is_changed or sets_sizes(own, profile.consumer)):
            reader = "unknown"  # what the file says is not what DeepSpeed reads
        option = profile.options.get(argument.dest)
        if option is not None and isinstance(option.default.value, str):
            path = option.default.value
        if path or argument.pattern:
            yield Reader(reader, argument.location, path, argument.pattern)
    option = profile.options.get("deepspeed")
    if consumer == "hf" and profile.parsed.kind and option is not None and isinstance(option.default.value, str):
        yield Reader("hf", option.location, option.default.value)


def _pipeline_stages(run: ScriptRun, own: SourceFile) -> Fact[int]:
    """The stages of the one pipeline, which then has a topology of its own (deepspeed/runtime/pipe/module.py)."""
    calls = run.calls(PIPELINE)
    if not calls:
        return absent()
    event = calls[0][0]
    others = _PARALLEL.search(own.text.replace("PipelineModule", ""))
    stages = event.arguments.get("num_stages")
    if len(calls) > 1 or len(calls[0]) > 1 or others or event.open or "topology" in event.arguments or stages is None:
        return unknown("the groups of the pipeline are not visible")
    value = constant_of(stages)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return unknown("the number of pipeline stages is not visible")
    return known(value, place_of(event, "num_stages"))


def _sets_precision(run: ScriptRun, own: SourceFile) -> bool:
    """The script hands a precision to its Accelerator."""
    made = [event for events in run.calls(ACCELERATOR) for event in events]
    if not made:
        return _PRECISION.search(own.text) is not None
    given = (event.arguments.get("mixed_precision") for event in made)
    return any(event.open for event in made) or any(v is not None and v.constants != (None,) for v in given)
