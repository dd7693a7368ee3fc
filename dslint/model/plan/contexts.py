"""What all runs of a file have in common: the context for the rules that judge that file alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.context import Context
from dslint.model.deepspeed.batch import Batch, accumulation_of, micro_batch_of, read_batch
from dslint.model.launch.slurmjob import one_gpu_of_task
from dslint.model.plan.config import stage_of
from dslint.model.plan.launches import launches_of, micro_batch_of_run
from dslint.model.plan.unsetrank import unset_variables
from dslint.model.plan.users import OWN_RULES, User, agreed_reader

_CHANGED = "the script changes the config"

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan
    from dslint.parse.data import DataDoc


def contexts_for(
    plans: Sequence[RunPlan],
    base_of: Callable[[str], Context],
    readers: Mapping[str, Sequence[User]] | None = None,
    configs: Sequence[DataDoc] = (),
) -> dict[str, Context]:
    """The context of every script and config that a plan names, by user-facing path.

    ``base_of`` says what the user states about a file.
    ``readers`` are the scripts and files that hand a config to a library, by the path of the config; a script that no
    plan names has the ZeRO stage and the accumulation on which those of its ``configs`` agree.

    A fact is known only when all runs of the file agree on it. Commands in documentation count only where no
    real launch file names the script or config. Of its runs a config learns only that all of them are one process: a
    run plan is judged with the world size of its own command.
    """
    contexts: dict[str, Context] = {}
    for path, users in _by_path(plans, scripts=True).items():
        base = base_of(path)
        contexts[path] = replace(
            base,
            world_size=_agreed([p.world_size for p in users]).or_else(base.world_size),
            zero_stage=_agreed([p.zero_stage for p in users]).or_else(base.zero_stage),
            consumer=_agreed([p.consumer for p in users]).or_else(base.consumer),
            arguments={**base.arguments, **_agreed_arguments(users)},
            accumulation=_agreed([_accumulation_of_run(p) for p in users]).or_else(base.accumulation),
            micro_batch=_agreed([_micro_batch_of_run(p) for p in users]).or_else(base.micro_batch),
            processes_per_node=_agreed([p.processes_per_node for p in users]),
            nodes=_agreed([p.nodes for p in users]),
            launcher=_agreed([known(p.command.launcher) for p in users]),
            gpus_of_task=_agreed([_gpus_of_task(p) for p in users]),
            unset=_agreed([unset_variables(p.command, p.unset_rank) for p in users]),
            launches=launches_of(users),
        )
    readers = readers or {}
    runs = _by_path(plans, scripts=False)
    for path in dict.fromkeys((*runs, *readers)):
        found, named_by, base = runs.get(path, []), readers.get(path, ()), base_of(path)
        shown = [_reader(p) for p in found if not (named_by and p.command.in_docs)]
        contexts[path] = replace(
            base,
            world_size=_world_of_config(found, named_by, base.world_size),
            zero_stage=_agreed([p.zero_stage for p in found]).or_else(base.zero_stage) if found else base.zero_stage,
            consumer=agreed_reader(shown, (*named_by, *_accelerate(found))).or_else(base.consumer),
            client_optimizer=_agreed([_client(plan) for plan in found] or [absent()]),
        )
    for path, docs in _configs_by_script(readers, configs).items():
        if path not in contexts:
            stages = [stage_of(d) if d is not None else unknown(_CHANGED) for d in docs]
            base = base_of(path)
            sizes = [read_batch(d) if d is not None else None for d in docs]
            contexts[path] = replace(
                base, zero_stage=_agreed(stages).or_else(base.zero_stage), **_told_sizes(sizes, base)
            )
    return contexts


def _configs_by_script(
    readers: Mapping[str, Sequence[User]], configs: Sequence[DataDoc]
) -> dict[str, list[DataDoc | None]]:
    """The configs that each script hands over; ``None`` for one that it changes before."""
    by_path = {doc.source.path: doc for doc in configs}
    handed: dict[str, list[DataDoc | None]] = {}
    for path, users in readers.items():
        doc = by_path.get(path)
        for user in users if doc is not None and not doc.problems else ():
            handed.setdefault(user.location.path, []).append(None if user.consumer == "unknown" else doc)
    return handed


def _told_sizes(batches: Sequence[Batch | None], base: Context) -> dict[str, Any]:
    """The accumulation and micro batch on which configs agree; ``None`` where the script changes one."""
    changed: Fact[int] = unknown(_CHANGED)
    steps = [accumulation_of(batch, base.world_size) if batch is not None else changed for batch in batches]
    micro = [micro_batch_of(batch, base.world_size) if batch is not None else changed for batch in batches]
    return {
        "accumulation": _agreed(steps).or_else(base.accumulation),
        "micro_batch": _agreed(micro).or_else(base.micro_batch),
    }


def _accumulation_of_run(plan: RunPlan) -> Fact[int]:
    return unknown(_CHANGED) if plan.config_is_rewritten else accumulation_of(plan.batch, plan.batch_world)


def _micro_batch_of_run(plan: RunPlan) -> Fact[int]:
    return unknown(_CHANGED) if plan.config_is_rewritten else micro_batch_of_run(plan)


def _gpus_of_task(plan: RunPlan) -> Fact[int]:
    place = one_gpu_of_task(plan.command)
    return known(1, place) if place is not None else absent()


def _client(plan: RunPlan) -> Fact[str]:
    return plan.handover.optimizer if plan.handover is not None else plan.elsewhere


def _reader(plan: RunPlan) -> Fact[str]:
    """A script that changes the config before DeepSpeed sees it: what the file says is not what DeepSpeed reads."""
    if plan.config_is_rewritten and plan.consumer.get_or("") == "deepspeed":
        return unknown(f"the script {OWN_RULES}")
    return plan.consumer


def _accelerate(runs: Sequence[RunPlan]) -> list[User]:
    """``accelerate launch`` with the config, where the script does not show whether a Trainer stands in front."""
    pointer = "/deepspeed_config/deepspeed_config_file"
    return [
        User("accelerate", plan.command.location, is_weak=True)
        for plan in runs
        if plan.command.launcher == "accelerate" and (plan.profile is None or plan.profile.consumer.is_absent)
        if plan.command.launcher_flag("--deepspeed_config_file") or (plan.accelerate and plan.accelerate.has(pointer))
    ]


def _world_of_config(plans: Sequence[RunPlan], readers: Sequence[User], stated: Fact[int]) -> Fact[int]:
    """What the user states counts for a config unless all that use it are commands that say the number themselves."""
    started = {plan.script for plan in plans}
    is_said = all(plan.world_size.is_known and not plan.command.in_docs for plan in plans)
    if plans and is_said and all(reader.location.path in started for reader in readers):
        if all(plan.world_size.get() == stated.get_or(0) for plan in plans):
            return stated
        return _one_process(plans, readers).or_else(unknown("its runs say how many ranks there are"))
    return stated.or_else(_one_process(plans, readers))


def _one_process(plans: Sequence[RunPlan], readers: Sequence[User]) -> Fact[int]:
    """1 where every run of a config is one process; a script that no command starts may run on any number."""
    started = {plan.script for plan in plans}
    if not plans or any(plan.world_size.get_or(0) != 1 for plan in plans):
        return absent()
    return known(1) if all(reader.location.path in started for reader in readers) else absent()


def _by_path(plans: Sequence[RunPlan], scripts: bool) -> dict[str, list[RunPlan]]:
    users: dict[str, list[RunPlan]] = {}
    for plan in plans:
        if scripts:
            paths = {plan.script, plan.profile.args_path if plan.profile is not None else None}
        else:
            paths = {plan.config_path.value if plan.config_path.is_known else None}
        for path in paths - {None}:
            users.setdefault(path or "", []).append(plan)
    return {path: [p for p in found if not p.command.in_docs] or found for path, found in users.items()}


def _agreed(facts: Sequence[Fact[Any]]) -> Fact[Any]:
    first = facts[0]
    for fact in facts:
        if fact.state != first.state or fact.value != first.value:
            return unknown("the runs of this file differ")
    if first.is_absent:
        return absent()
    return first


def _agreed_arguments(users: Sequence[RunPlan]) -> Mapping[str, Fact[str]]:
    names = dict.fromkeys(name for plan in users for name in plan.passed)
    return {name: _agreed([plan.passed.get(name, absent()) for plan in users]) for name in names}
