"""The rows of a plan for people: label, text, places; children hang below their row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact
from dslint.core.source import OUTSIDE, Location
from dslint.core.words import counted
from dslint.model.deepspeed.config import version_named
from dslint.model.launch.launchers.environment import sets
from dslint.model.plan.effective import DERIVED, OPEN_PART
from dslint.parse.data import dotted_key
from dslint.planview.describe import View, why_of

if TYPE_CHECKING:
    from dslint.model.launch.command import Word

# Arguments that decide memory, batch, number format and length of a run.
_ARGUMENT = re.compile(
    r"batch|accum|deepspeed|ds_config|zero_?stage|offload|fsdp|bf16|fp16|tf32|fp8|precision|dtype|max_.*len|max_.*tokens"
    r"|seq_?len|cutoff|context_len|max_steps|epochs|learning_rate|^lr$|clip|max_grad_norm|warmup|checkpointing|parallel"
    r"|local_rank|launcher|^seed$|^tp$|^pp$|^sp$"
)
# Variables that decide which devices, ranks and networks are used.
_VARIABLE = re.compile(
    r"CUDA_VISIBLE_DEVICES|(?:HIP|ROCR|ASCEND_RT|MLU)_VISIBLE_DEVICES|MASTER_|NCCL_|GLOO_|UCX_|TORCH|PYTORCH_|PET_"
    r"|ACCELERATE_|DS_|DEEPSPEED_|FSDP_|(?:LOCAL_|NODE_|GROUP_)?(?:RANK|WORLD_SIZE)$|NNODES|NPROC|OMP_NUM_THREADS"
    r"|DLTS_|FI_|IBV_|PORT$|ADDR$|PDSH|HF_HUB_OFFLINE|TRITON_CACHE"
)
_SHOWN_WORDS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a plan. ``style``: "" | ``head`` | ``unknown`` | ``remark``."""

    label: str
    text: str
    places: Sequence[Location] = ()
    style: str = ""
    children: Sequence[Row] = field(default=())


def rows_of(view: View, is_all: bool) -> list[Row]:
    """The rows of one command."""
    if is_brief(view, is_all):
        return []
    return [
        *_conditions(view),
        *_start(view),
        *_script(view),
        *_arguments(view, is_all),
        *_configs(view),
        *_batch(view),
        *_machines(view),
        *_environment(view, is_all),
        *_versions(view),
        *_listed("unknown", [Row("", text, places, "unknown") for text, places in _unknown(view, is_all)]),
        *_listed("stated", [Row("", remark, (), "unknown") for remark in view.ignored]),
        *(Row("mismatch", remark, (), "remark") for remark in view.remarks),
    ]


def is_brief(view: View, is_all: bool) -> bool:
    """One line says all: a process of plain Python without conditions."""
    return view.is_plain and not is_all and not view.command.conditions


def _listed(label: str, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows below one label."""
    if rows:
        yield replace(rows[0], label=label, children=rows[1:])


def headline(view: View, is_all: bool) -> str:
    """The command in shell words; without ``is_all`` up to the script."""
    command = view.command
    if view.launcher is None:
        return "no command starts this run"
    words = [*(word for around in command.wrappers for word in around), *command.argv]
    if not is_all and command.script is not None:
        end = next((i for i, w in enumerate(words) if w.location.span.end >= command.script.location.span.end), None)
        shown = words if end is None else words[: end + 1]
        shown = shown[:_SHOWN_WORDS]
        return " ".join(map(shell_word, shown)) + (" …" if len(shown) < len(words) else "")
    return " ".join(map(shell_word, words))


def quoted(text: str) -> str:
    """A text as one would type it in bash; a carriage return would move the cursor."""
    if "\r" in text:
        return "$" + repr(text.replace("\r", "\\r")).replace("\\\\r", "\\r")
    return shlex.quote(text)


def shell_word(word: Word) -> str:
    """A word as one would type it; what is not known as it stands in the file."""
    return word.raw if word.text is None else quoted(word.text)


def value_of(fact: Fact[Any]) -> str:
    """The value, or a question mark."""
    return str(fact.get()) if fact.is_known else "?"


def _conditions(view: View) -> Iterator[Row]:
    for condition in view.command.conditions:
        holds = "holds" if condition.taken else "does not hold"
        yield Row("when", f"{condition.text} {holds}", (condition.location,))


def _start(view: View) -> Iterator[Row]:
    plan = view.plan
    if view.launcher is None:
        return
    facts = (plan.nodes, plan.processes_per_node, plan.world_size)
    if view.launcher == "python" and all(fact.is_absent for fact in facts):
        yield Row("start", "python: one process, unless the script starts more")
        return
    if plan.nodes.is_known and plan.processes_per_node.is_known:
        number, each = plan.nodes.get(), plan.processes_per_node.get()
        text = f"{counted(number, 'node')} x {each} {'process' if each == 1 else 'processes'} = "
    else:
        nodes = counted(plan.nodes.get(), "node") if plan.nodes.is_known else "? nodes"
        text = f"{nodes} x {value_of(plan.processes_per_node)} processes = "
    ranks = counted(plan.world_size.get(), "rank") if plan.world_size.is_known else "? ranks"
    whys = [
        Row("", f"{name} ?: {fact.reason or 'no file says it'}", fact.origins, "unknown")
        for name, fact in zip(("nodes", "processes a node", "ranks"), facts, strict=True)
        if not fact.is_known and not (name == "ranks" and not all(f.is_known for f in facts[:2]))
    ]
    stated = dict.fromkeys(
        reason for fact in facts[:2] if fact.is_known for reason in fact.reason.split(", ") if reason
    )
    said = f" ({', '.join(stated or [facts[2].reason])})" if any(f.is_known and f.reason for f in facts) else ""
    around = f" under {view.command.outer}" if view.command.outer else ""
    places = _unique(place for fact in facts for place in fact.origins if fact.is_known)
    yield Row("start", f"{view.launcher}{around}: {text}{ranks}{said}", places, "head", tuple(whys))
    job = [
        f"{name.partition('_')[2].lower().replace('_', '-')} {value_of(fact)}" for name, fact in view.directives.items()
    ]
    if job:
        asked = [place for fact in view.directives.values() for place in fact.origins]
        queue = next(iter(view.directives)).partition("_")[0]
        yield Row({"PBSJOB": "pbs", "BSUB": "lsf"}.get(queue, "slurm"), ", ".join(job), _unique(asked))
    if view.command.cwd.is_known:
        yield Row("in", view.command.cwd.get() or ".", view.command.cwd.origins)


def _script(view: View) -> Iterator[Row]:
    word, plan = view.command.script, view.plan
    if word is None and plan.script is None:
        return
    named = f"-m {view.module} = " if view.module and plan.script else f"-m {view.module}" if view.module else ""
    path = plan.script or ("" if view.module or word is None else shell_word(word))
    kind = parser_text(view)
    if plan.script is None:
        # A program of a library, or a path outside of the project.
        kind = "" if view.module or word is None else "not in the project" if word.text is not None else why_of(word)
    places = (word.location, *word.origins) if word is not None else ()
    yield Row("runs", f"{named}{path}" + (f" ({kind})" if kind else ""), places, "head")


def parser_text(view: View, is_brief: bool = False) -> str:
    """``argparse``, ``dataclasses of HfArgumentParser``, ``click: it may take more``; empty without a parser."""
    parser = view.parser
    if parser is None or parser.kind == "none":
        return ""
    name = parser.library or parser.kind
    name = f"dataclasses of {name}" if parser.kind == "dataclasses" and name != parser.kind else name
    if not parser.is_open or is_brief:
        return name
    return f"{name}, open" + (f": {parser.why}" if parser.why else ": it may take more arguments")


def _arguments(view: View, is_all: bool) -> Iterator[Row]:
    shown = []
    for name, fact in view.arguments.items():
        if fact.is_known and (is_all or (_ARGUMENT.search(name) and _is_stated(view, fact))):
            why = f" ({fact.reason})" if fact.reason else ""
            shown.append(Row("", f"{name} {quoted(str(fact.get()))}{why}", fact.origins))
    yield from _listed("with", shown)


def _is_stated(view: View, fact: Fact[Any]) -> bool:
    """The command or a file of arguments says it, or a default of the script switches something on."""
    if not fact.origins:
        return False
    recipe = view.plan.recipe.path if view.plan.recipe is not None else ""
    return fact.origins[0].path in (view.command.location.path, recipe) or fact.get() not in (None, False, -1)


def _configs(view: View) -> Iterator[Row]:
    plan = view.plan
    for role, path in view.configs.items():
        places = plan.config_path.origins if role == "deepspeed" else ()
        children = tuple(_deepspeed(view)) if role == "deepspeed" else ()
        yield Row("config", f"{path} ({role})", places, "head", children)
    for named in plan.missing:
        where = f" in {named.left.folder or '.'}" if named.left is not None else ""
        yield Row("config", f"{named.text} does not exist{where}", (named.location,), "remark")
    if "deepspeed" not in view.configs and (plan.zero_stage.is_known or plan.config_path.is_unknown):
        why = f" ({plan.config_path.reason})" if plan.config_path.is_unknown else ""
        stage = f"ZeRO stage {plan.zero_stage.get()}" if plan.zero_stage.is_known else "ZeRO stage ?"
        yield Row("config", f"{stage}{why}", plan.zero_stage.origins, "" if plan.zero_stage.is_known else "unknown")


def _deepspeed(view: View) -> Iterator[Row]:
    plan = view.plan
    if plan.config is None:
        return
    for name, fact in (("ZeRO stage", plan.zero_stage), ("precision", plan.precision)):
        if not fact.is_absent:
            yield _fact_row(f"{name} ", fact)
    if not plan.consumer.is_known:
        yield Row("", f"read by ?: {plan.consumer.reason}", (), "unknown")
    elif plan.consumer.get() != "unknown":
        yield Row("", f"read by {_READERS.get(plan.consumer.get(), plan.consumer.get())}", plan.consumer.origins)
    open_keys: dict[str, list[str]] = {}
    for filled in view.filled:
        if filled.value.is_known:
            yield _fact_row(f"{dotted_key(filled.pointer)} auto -> ", filled.value)
        else:
            open_keys.setdefault(filled.value.reason, []).append(dotted_key(filled.pointer))
    for why, keys in open_keys.items():
        yield Row("", f"{', '.join(keys)} auto -> ? ({why})", (), "unknown")


_READERS = {"hf": "the Trainer of transformers", "deepspeed": "deepspeed.initialize", "lightning": "Lightning"}


def _fact_row(name: str, fact: Fact[Any]) -> Row:
    if fact.is_known:
        return Row("", f"{name}{fact.get()}" + (f" ({fact.reason})" if fact.reason else ""), fact.origins)
    return Row("", f"{name}? ({fact.reason or 'nobody states it'})", fact.origins, "unknown")


def _batch(view: View) -> Iterator[Row]:
    triangle = view.triangle
    if triangle.is_silent:
        return
    world, path = triangle.world, view.command.location.path
    whys = {fact.reason for fact in (triangle.train, triangle.micro, triangle.steps) if not fact.is_known}
    if len(whys) == 1 and not any(f.is_known for f in (triangle.train, triangle.micro, triangle.steps)):
        yield Row("batch", f"? ({whys.pop()})", (), "unknown")
        return
    parts = {"micro batch": triangle.micro, "accumulation": triangle.steps, "world size": world}
    if world.is_known and view.plan.world_size.is_known and world.get() != view.plan.world_size.get():
        parts = {"micro batch": triangle.micro, "accumulation": triangle.steps, "data parallel ranks": world}
    terms = " x ".join(_term(name, fact, path) for name, fact in parts.items())
    sign = "is not" if view.triangle.verdict.is_wrong else "="
    yield Row("batch", f"{terms} {sign} {_term('train batch', triangle.train, path)}", (), "head")


def _term(name: str, fact: Fact[Any], path: str) -> str:
    if not fact.is_known:
        return f"{name} ?" if fact.reason == OPEN_PART else f"{name} ? ({fact.reason or 'nobody states it'})"
    said = [*places_text(fact.origins[:2], path), *([fact.reason] if fact.reason not in ("", DERIVED) else [])]
    return f"{name} {fact.get()}" + (f" ({', '.join(said)})" if said else "")


def _machines(view: View) -> Iterator[Row]:
    """Devices and meeting point, where a file says them."""
    if view.devices.is_known:
        yield Row("devices", f"{', '.join(view.devices.get()) or 'none'} on each node", view.devices.origins)
    place = view.meeting
    facts = (place.address, place.port, place.backend, place.node_rank)
    if place.is_standalone:
        yield Row("meet", "on a free port of this machine (--standalone)", place.backend.origins)
        return
    if not any(fact.is_known for fact in facts):
        return
    said = [f"{value_of(place.address)}:{value_of(place.port)}" if not place.address.is_absent else ""]
    said += [f"port {value_of(place.port)}" if place.address.is_absent and not place.port.is_absent else ""]
    said += [f"by {place.backend.get()}" if place.backend.is_known and place.backend.get() != "static" else ""]
    said += [f"node rank {value_of(place.node_rank)}" if not place.node_rank.is_absent else ""]
    text = ", ".join(filter(None, said))
    if text:
        yield Row("meet", text, _unique(origin for fact in facts for origin in fact.origins))


def _environment(view: View, is_all: bool) -> Iterator[Row]:
    shown = [
        Row("", f"{name}={quoted(fact.get()) if fact.is_known else '?'}", fact.origins)
        for name, fact in view.env.items()
        if is_all or (_VARIABLE.match(name) and not _is_overwritten(view, name, fact))
    ]
    yield from _listed("env", shown)


def _is_overwritten(view: View, name: str, fact: Fact[str]) -> bool:
    """The variable stands in the environment from which the command is started, and the launcher sets its own."""
    return bool(fact.origins) and fact.origins[0].path.startswith(OUTSIDE) and sets(view.command, name)


def _versions(view: View) -> Iterator[Row]:
    names = {"deepspeed": "DeepSpeed"}
    shown = []
    for library, version in view.versions.items():
        by = f" ({version.stated_by})" if version.origin is None and version.stated_by else ""
        text = version_named(version, names.get(library, library))
        shown.append(Row("", f"{text}{by}", (version.origin,) if version.origin is not None else ()))
    yield from _listed("versions", shown)


def _unknown(view: View, is_all: bool) -> Iterator[tuple[str, Sequence[Location]]]:
    said: dict[str, list[Location]] = {}
    for word in view.command.argv:
        if word.text is None:
            said.setdefault(f"{word.raw}: {word.why}" if word.why else why_of(word), []).append(word.location)
    for unknown in view.unknown:
        name = unknown.what.removeprefix("env.")
        if unknown.what == "env" or (unknown.what.startswith("env.") and (is_all or _VARIABLE.match(name))):
            said.setdefault(f"{name}: {unknown.why}", []).extend([unknown.at] if unknown.at is not None else [])
    yield from said.items()


def places_text(locations: Iterable[Location], path: str) -> list[str]:
    """``:10``, ``ds.json:3``: a place in the launch file at ``path`` needs no name. A command line has no lines."""
    said: dict[str, None] = {}
    for location in locations:
        if location.path.startswith(OUTSIDE):
            said |= {} if location.path == path else {str(location): None}
            continue
        cell = f":cell {location.region.cell}" if location.region.cell is not None else ""
        said[f"{'' if location.path == path else location.path}{cell}:{location.region.line}"] = None
    return list(said)


def _unique(places: Iterable[Location]) -> list[Location]:
    return list({str(place): place for place in places}.values())
