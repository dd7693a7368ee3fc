"""The plans as a graph: launch commands -> scripts -> files of arguments and configs -> versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dslint.core.words import counted
from dslint.model.deepspeed.config import version_named
from dslint.planview.describe import View
from dslint.planview.rows import parser_text, shell_word, value_of
from dslint.report.place import one_line

_LONGEST = 56
_RUNS, _FEW = "runs", 3
# In a graph of more commands than this, versions stand with configs of DeepSpeed only.
_MANY = 12


@dataclass(slots=True)
class Node:
    """A box. ``kind``: ``launch`` | ``script`` | ``config`` | ``accelerate`` | ``arguments`` | ``versions``."""

    name: str
    kind: str
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Edge:
    """An arrow between two nodes by name. ``users`` are the commands (``run.sh:3``) that it belongs to."""

    start: str
    end: str
    label: str = ""
    users: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """Nodes by name in the order of their first use, and the arrows between them."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def add(self, kind: str, key: str, *lines: str) -> Node:
        """The node of a file or command; a file that several commands use is one node with all that they say."""
        name = f"{kind}:{key}"
        node = self.nodes.setdefault(name, Node(name, kind))
        node.lines += [shown for line in lines if (shown := _short(line)) and shown not in node.lines]
        return node

    def join(self, start: Node, end: Node, label: str = "", user: str = "") -> None:
        """An arrow, once."""
        edge = self.edges.setdefault((start.name, end.name), Edge(start.name, end.name, _short(label)))
        if user and user not in edge.users:
            edge.users.append(user)


def graph_of(views: Sequence[View]) -> Graph:
    """The graph of all commands; plain ``python x.py`` only where there is nothing else."""
    graph = Graph()
    shown = [view for view in views if not view.is_plain] or views
    for number, view in enumerate(shown):
        _add(graph, view, number, has_versions="deepspeed" in view.configs or len(shown) <= _MANY)
    _name_users(graph)
    return graph


def _name_users(graph: Graph) -> None:
    """Where one script runs with several configs, the arrows say in which command; where many run it, none says so."""
    runs = Counter(edge.end for edge in graph.edges.values())
    for edge in graph.edges.values():
        if edge.label == _RUNS and runs[edge.end] > _FEW:
            edge.label = ""
    ways: dict[str, list[Edge]] = {}
    for edge in graph.edges.values():
        if edge.users and graph.nodes[edge.start].kind == "script":
            ways.setdefault(edge.start, []).append(edge)
    for edges in ways.values():
        for edge in edges if len(edges) > 1 else ():
            more = f" +{len(edge.users) - 1}" if len(edge.users) > 1 else ""
            edge.label = f"{edge.label} in {edge.users[0]}{more}".strip()


def _add(graph: Graph, view: View, number: int, has_versions: bool) -> None:
    plan, place = view.plan, view.command.location
    launch = graph.add("launch", str(number), f"{place.path}:{place.region.line}", *_launch_lines(view))
    last, user = launch, f"{place.path.rpartition('/')[2]}:{place.region.line}"
    if plan.script is not None or view.command.script is not None:
        script = _script(graph, view)
        graph.join(launch, script, _RUNS)
        last = script
    source = last
    if plan.recipe is not None:
        recipe = graph.add("arguments", plan.recipe.path, plan.recipe.path, "arguments")
        graph.join(source, recipe, "reads", user)
        source = last = recipe
    if plan.accelerate is not None:
        accelerate = graph.add("accelerate", plan.accelerate.path, plan.accelerate.path, "accelerate config")
        graph.join(launch, accelerate, "--config_file")
        if plan.config is not None and plan.accelerate.path in {p.path for p in plan.config_path.origins}:
            source = accelerate
    if "deepspeed" in view.configs:
        path = view.configs["deepspeed"]
        config = graph.add("config", path, path, "DeepSpeed config", ", ".join(_config_facts(view)))
        graph.join(source, config, _flag(view), user)
        last = config
    for named in plan.missing:
        if named.left is not None:
            continue
        graph.join(source, graph.add("config", f"missing {named.text}", named.text, "does not exist"), "", user)
    versions = [_version(view, name) for name in view.versions]
    if versions and has_versions and not view.is_plain:
        graph.join(last, graph.add("versions", "\n".join(versions), *versions))


def _launch_lines(view: View) -> Iterator[str]:
    plan, triangle = view.plan, view.triangle
    for condition in view.command.conditions:
        yield f"{'when' if condition.taken else 'unless'} {condition.text}"
    if view.launcher is None:
        yield "no command starts this run"
        return
    around = f" under {view.command.outer}" if view.command.outer else ""
    if plan.world_size.is_absent and plan.nodes.is_absent:
        yield f"{view.launcher}{around}"
    else:
        ranks = counted(plan.world_size.get(), "rank") if plan.world_size.is_known else "? ranks"
        parts = (
            f"{value_of(plan.nodes)} x {value_of(plan.processes_per_node)} = "
            if plan.nodes.is_known or plan.processes_per_node.is_known
            else ""
        )
        yield f"{view.launcher}{around}: {parts}{ranks}"
    if triangle.micro.is_known and triangle.train.is_known:
        sign = "is not" if triangle.verdict.is_wrong else "="
        terms = " x ".join(value_of(fact) for fact in (triangle.micro, triangle.steps, triangle.world))
        yield f"batch {terms} {sign} {triangle.train.get()}"
    if "deepspeed" not in view.configs and plan.zero_stage.is_known:
        yield f"ZeRO stage {plan.zero_stage.get()}"


def _script(graph: Graph, view: View) -> Node:
    plan, word = view.plan, view.command.script
    named = plan.script or view.module or (shell_word(word) if word is not None else "")
    kind = parser_text(view, is_brief=True)
    is_elsewhere = plan.script is None and not view.module and word is not None and word.text is not None
    return graph.add(
        "script", named, named, "not in the project" if is_elsewhere else f"parser: {kind}" if kind else ""
    )


def _config_facts(view: View) -> Iterator[str]:
    if view.plan.zero_stage.is_known:
        yield f"ZeRO stage {view.plan.zero_stage.get()}"
    if view.plan.precision.is_known:
        yield view.plan.precision.get()


def _flag(view: View) -> str:
    """The option that names the config, where one does."""
    places = {(p.path, p.span.start) for p in view.plan.config_path.origins}
    for flag in (*view.command.script_flags, *view.command.launcher_flags):
        spots = {(flag.location.path, flag.location.span.start)}
        if flag.value is not None:
            spots.add((flag.value.location.path, flag.value.location.span.start))
        if spots & places:
            return flag.name
    return ""


def _version(view: View, library: str) -> str:
    name = "DeepSpeed" if library == "deepspeed" else library
    return version_named(view.versions[library], name)


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 24]}…{text[-23:]}"
