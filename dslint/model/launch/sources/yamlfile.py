"""Commands in YAML files: workflows, docker compose, Kubernetes, Ray, SkyPilot, Azure ML, dstack, Taskfile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile, Span
from dslint.model.firstlook import text_may_start
from dslint.model.launch.commandlines import IMAGE_DECIDES
from dslint.model.launch.sources import azureml, machinegpus, machinenodes
from dslint.model.launch.sources.snippet import (
    UNKNOWN_WORD,
    Snippet,
    command_line,
    shell_text,
    unset,
    value_at,
)
from dslint.model.launch.sources.volcano import is_volcano, tasks_of
from dslint.model.launch.sources.yamldocuments import documents
from dslint.model.shell.pieces import Value
from dslint.parse.data import DataDoc, join_pointer

# ``${{ matrix.gpus }}`` of GitHub, ``$(NAME)`` that Kubernetes fills into a word.
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_DEPTH = 12
_NOTHING: machinegpus.Facts = {}
Variables = Mapping[str, "Value | None"]


def yaml_snippets(source: SourceFile) -> Iterator[Snippet]:
    """The commands of all documents of a file."""
    for doc in documents(source, text_may_start):
        yield from _Reader(source, doc).snippets()


class _Reader:
    def __init__(self, source: SourceFile, doc: DataDoc) -> None:
        self.source = source
        self.doc = doc

    def snippets(self) -> Iterator[Snippet]:
        data = self.doc.data
        if not isinstance(data, dict):
            return
        if isinstance(data.get("jobs"), dict):
            yield from self._github(data)
        elif isinstance(data.get("services"), dict):
            yield from self._compose()
        elif isinstance(data.get("run"), str) and {"resources", "num_nodes", "setup", "envs", "workdir"} & set(data):
            variables = {**self._of_skypilot(data), **self._variables("/envs"), **self._variables("/secrets")}
            gpus = machinegpus.of_accelerators(self.source, self.doc, "/resources/accelerators")
            machine = {**gpus, **machinenodes.of_skypilot(self.source, self.doc)}
            yield from self._text("/run", variables, cwd=absent(), machine=machine)
        elif "kind" in data and "apiVersion" in data:
            yield from self._resource(data)
        elif isinstance(data.get("command"), str) and _AZURE & set(data):
            yield from self._azure(data)
        else:
            yield from self._of_runners(data)

    def _azure(self, data: dict[str, Any]) -> Iterator[Snippet]:
        """``command`` of a job of Azure ML, in as many processes as its ``distribution`` says."""
        variables = self._variables("/environment_variables")
        command = azureml.started(data, data["command"])
        if command == data["command"]:
            yield from self._text("/command", variables, cwd=_IMAGE, is_open=True)
        elif text_may_start(command):
            written = _EXPRESSION.sub(lambda m: unset(len(m[0])), command)
            span = self.doc.values["/command"]
            yield Snippet(written, 0, span, variables, frozenset(variables), True, _IMAGE, command)

    def _of_runners(self, data: dict[str, Any]) -> Iterator[Snippet]:
        """A Taskfile, a task of dstack, jobs of GitLab."""
        if isinstance(data.get("tasks"), dict):
            yield from self._tasks()
        elif isinstance(data.get("commands"), list) and isinstance(data.get("type"), str):  # dstack
            gpus = machinegpus.of_accelerators(self.source, self.doc, "/resources/gpu")
            yield from self._items("/commands", self._variables("/env"), is_open=True, machine=gpus)
        elif not self.doc.path.endswith(("config.yaml", "config.yml")):
            yield from self._gitlab()

    def _resource(self, data: dict[str, Any]) -> Iterator[Snippet]:
        """Containers, the entry point of a RayJob, the trainer of a TrainJob."""
        yield from self._containers("", data, 0)
        if isinstance(self.doc.get("/spec/entrypoint"), str):
            yield from self._text("/spec/entrypoint", {}, cwd=_IMAGE, is_open=True)
        trainer = self.doc.get("/spec/trainer")
        if isinstance(trainer, dict) and ("command" in trainer or "args" in trainer):
            variables = {**self._injected(), **self._variables("/spec/trainer/env")}
            gpus = machinegpus.of_container(self.source, self.doc, "/spec/trainer/resourcesPerNode")
            machine = {**gpus, **machinenodes.of_resource(self.source, self.doc, "")}
            yield from self._started("/spec/trainer", "command", "args", variables, machine)

    def _github(self, data: dict[str, Any]) -> Iterator[Snippet]:
        """``jobs.*.steps[*].run`` with the variables of the workflow, the job and the step."""
        for _, at, job in self.doc.children("/jobs"):
            steps = job.get("steps") if isinstance(job, dict) else None
            for number, step in enumerate(steps if isinstance(steps, list) else ()):
                here = f"{at}/steps/{number}"
                key = "run/command" if isinstance(step, dict) and isinstance(step.get("run"), dict) else "run"
                if not isinstance(step, dict) or not isinstance(self.doc.get(f"{here}/{key}"), str):
                    continue
                variables = {
                    **self._variables("/env"),
                    **self._variables(f"{at}/env"),
                    **self._variables(f"{here}/env"),
                }
                name = "working-directory"
                folder = step.get(name) or _default(job, name) or _default(data, name)
                shell = step.get("shell") or _default(job, "shell") or _default(data, "shell")
                cwd: Fact[str] = known(folder) if isinstance(folder, str) and "$" not in folder else absent()
                cwd = cwd if folder is None or cwd.is_known else _UNSAID
                # GitHub: ``bash -e`` where no shell is named, ``bash --noprofile --norc -eo pipefail`` for ``bash``.
                yield from self._text(f"{here}/{key}", variables, cwd=cwd, has_pipefail=shell == "bash")

    def _gitlab(self) -> Iterator[Snippet]:
        """``script`` of each job: a text or a list of texts, which run one after the other in one shell."""
        for _, at, job in self.doc.children(""):
            if not isinstance(job, dict) or not isinstance(job.get("script"), list | str):
                continue
            variables = {**self._variables("/variables"), **self._variables(f"{at}/variables")}
            script = job["script"]
            items = [f"{at}/script"] if isinstance(script, str) else [f"{at}/script/{i}" for i in range(len(script))]
            for item in items:
                if isinstance(self.doc.get(item), str):
                    yield from self._text(item, variables, cwd=absent())

    def _items(
        self, at: str, variables: Variables, *, is_open: bool = False, machine: machinegpus.Facts = _NOTHING
    ) -> Iterator[Snippet]:
        """A list of texts, each for a shell."""
        for item in [f"{at}/{number}" for number in range(len(self.doc.get(at)))]:
            if isinstance(self.doc.get(item), str):
                yield from self._text(item, variables, cwd=absent(), is_open=is_open, machine=machine)

    def _tasks(self) -> Iterator[Snippet]:
        """``cmds`` of each task of a Taskfile: texts, or tables with a ``cmd``; Go templates are filled in before."""
        for _, at, task in self.doc.children("/tasks"):
            variables = {**self._variables("/env"), **self._variables(f"{at}/env")}
            given = task.get("cmds", task.get("cmd")) if isinstance(task, dict) else task
            key = f"{at}/cmds" if isinstance(given, list) else at
            for number, item in enumerate(given if isinstance(given, list) else ()):
                here = f"{key}/{number}/cmd" if isinstance(item, dict) else f"{key}/{number}"
                if isinstance(self.doc.get(here), str):
                    yield from self._text(here, variables, cwd=absent())

    def _of_skypilot(self, data: dict[str, Any]) -> dict[str, Value | None]:
        """What SkyPilot tells every node: how many there are, and the GPUs of one."""
        found: dict[str, Value | None] = dict.fromkeys(
            ("SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE", "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS")
        )
        if isinstance(data.get("num_nodes"), int):
            found["SKYPILOT_NUM_NODES"] = self._value("/num_nodes", data["num_nodes"])
        at = "/resources/accelerators"
        given = self.doc.get(at)
        if isinstance(given, str) and (match := re.fullmatch(r"[\w.-]+(?::(\d+))?", given)):
            found["SKYPILOT_NUM_GPUS_PER_NODE"] = self._value(at, match[1] or "1")
        elif isinstance(given, dict) and len(given) == 1 and isinstance(next(iter(given.values())), int):
            found["SKYPILOT_NUM_GPUS_PER_NODE"] = self._value(at, next(iter(given.values())))
        return found

    def _injected(self) -> dict[str, Value | None]:
        """What the operator of a PyTorchJob or TrainJob puts into the environment, with the counts of the file."""
        found: dict[str, Value | None] = dict(_INJECTED)
        if self.doc.get("/kind") == "TrainJob":
            places = ("/spec/trainer/numNodes", "/spec/trainer/numProcPerNode")
            total, at = self.doc.get(places[0]), places[0]
        else:
            places = ("/spec/pytorchReplicaSpecs", "/spec/nprocPerNode")
            total, at = self._replicas(), places[0]
        if isinstance(total, int):
            found["PET_NNODES"] = self._value(at, total)
        per_node = self.doc.get(places[1])
        if str(per_node).isdigit():
            found["PET_NPROC_PER_NODE"] = self._value(places[1], str(per_node))
        return found

    def _replicas(self) -> int | None:
        """The nodes of a PyTorchJob; ``None`` where their number may change."""
        specs = self.doc.get("/spec/pytorchReplicaSpecs")
        if not isinstance(specs, dict) or self.doc.has("/spec/elasticPolicy"):
            return None
        given = [spec.get("replicas", 1) for spec in specs.values() if isinstance(spec, dict)]
        counts = [count for count in given if isinstance(count, int)]
        return sum(counts) if counts and len(counts) == len(specs) else None

    def _compose(self) -> Iterator[Snippet]:
        """``entrypoint`` and ``command`` of each service; the image decides over the directory."""
        for _, at, service in self.doc.children("/services"):
            if isinstance(service, dict):
                variables = self._variables(f"{at}/environment")
                gpus = machinegpus.of_service(self.source, self.doc, at)
                yield from self._started(at, "entrypoint", "command", variables, gpus)

    def _says_all(self) -> bool:
        """The kind of a resource is one whose controller gives pods nothing but what is known here.

        An image may set variables, too; those that decide over nodes and ranks differ from pod to pod.
        """
        kind, version = self.doc.get("/kind"), str(self.doc.get("/apiVersion"))
        if is_volcano(self.doc):
            return bool(kind == "Job")
        is_trained = kind in ("PyTorchJob", "MPIJob") and version.startswith("kubeflow.org/")
        return is_trained or version.startswith(_OF_KUBERNETES)

    def _given(self) -> dict[str, Value | None]:
        """What the controller of a resource puts into the environment of its pods: the number of the pod."""
        names = ["JOB_COMPLETION_INDEX"] if str(self.doc.get("/apiVersion")).startswith(("batch/", "jobset.")) else []
        if is_volcano(self.doc):
            names += ["VC_TASK_INDEX", "VK_TASK_INDEX"]
            names += [f"VC_{task}_{what}" for task in self._tasks_of_volcano() for what in ("HOSTS", "NUM")]
        return {**dict.fromkeys(names), **(self._injected() if self._injects() else {})}

    def _injects(self) -> bool:
        is_own = str(self.doc.get("/apiVersion")).startswith(_OF_KUBERNETES)
        return not is_own and self.doc.get("/kind") != "MPIJob"

    def _tasks_of_volcano(self) -> Iterator[str]:
        for task in tasks_of(self.doc):
            name = task.get("name") if isinstance(task, dict) else None
            yield str(name).upper().replace("-", "_")

    def _containers(self, at: str, data: Any, depth: int) -> Iterator[Snippet]:
        """``command`` and ``args`` of each container, wherever an operator's resource keeps its pods."""
        items = (
            list(enumerate(data)) if isinstance(data, list) else list(data.items()) if isinstance(data, dict) else []
        )
        for key, value in items if depth < _DEPTH else ():
            here = join_pointer(at, key)
            if key in ("containers", "initContainers") and isinstance(value, list):
                for number, container in enumerate(value):
                    if isinstance(container, dict):
                        pod = f"{here}/{number}"
                        variables = {**self._given(), **self._variables(f"{pod}/env")}
                        gpus = machinegpus.of_container(self.source, self.doc, f"{pod}/resources")
                        machine = {**gpus, **machinenodes.of_resource(self.source, self.doc, pod)}
                        is_open = "envFrom" in container or not self._says_all()
                        yield from self._started(pod, "command", "args", variables, machine, is_open=is_open)
            else:
                yield from self._containers(here, value, depth + 1)

    def _started(
        self,
        at: str,
        first: str,
        second: str,
        variables: Variables,
        machine: machinegpus.Facts,
        *,
        is_open: bool = True,
    ) -> Iterator[Snippet]:
        """Two lists of words that are one command line, or a text for the shell."""
        words: list[object] = []
        places: list[str] = []
        for name in (first, second):
            value = self.doc.get(f"{at}/{name}")
            if isinstance(value, str) and name == first and isinstance(self.doc.get(f"{at}/{second}"), str):
                line = f"{value} {self.doc.get(f'{at}/{second}')}"  # compose splits both into words
                if text_may_start(line):
                    span = self.doc.values[f"{at}/{name}"]
                    yield Snippet(line, 0, span, variables, frozenset(variables), is_open, _IMAGE, machine=machine)
                return
            if isinstance(value, str) and not words:
                yield from self._text(f"{at}/{name}", variables, cwd=_IMAGE, is_open=is_open, machine=machine)
            for number, word in enumerate(value if isinstance(value, list) else ()):
                words.append(word)
                places.append(f"{at}/{name}/{number}")
        text = shell_text(words)
        if text is not None:
            yield from self._text(places[text], variables, cwd=_IMAGE, is_open=is_open, machine=machine)
        elif words:
            line = " ".join(_filled_in(w) if isinstance(w, str) and "$" in w else command_line((w,)) for w in words)
            if text_may_start(line):
                span = Span(self.doc.values[places[0]].start, self.doc.values[places[-1]].end)
                yield Snippet(line, 0, span, variables, frozenset(variables), is_open, _IMAGE, machine=machine)

    def _text(
        self,
        at: str,
        variables: Variables,
        *,
        cwd: Fact[str],
        is_open: bool = False,
        has_pipefail: bool = False,
        machine: machinegpus.Facts = _NOTHING,
    ) -> Iterator[Snippet]:
        """A scalar that a shell runs."""
        span = self.doc.values[at]
        text, base, anchor = _verbatim(self.source.text[span.start : span.end], span, self.doc.get(at))
        written, text = text, _EXPRESSION.sub(lambda m: unset(len(m[0])), text)
        if text_may_start(text):
            exported = frozenset(variables)
            yield Snippet(text, base, anchor, variables, exported, is_open, cwd, written, has_pipefail, machine)

    def _variables(self, at: str) -> dict[str, Value | None]:
        """A mapping of variables, a list of ``NAME=value``, or a list of ``{name, value}``."""
        found: dict[str, Value | None] = {}
        data = self.doc.get(at)
        for number, item in enumerate(data if isinstance(data, list) else ()):
            if isinstance(item, str) and "=" in item:
                name, _, text = item.partition("=")
                found[name] = self._value(f"{at}/{number}", text)
            elif isinstance(item, dict) and isinstance(item.get("name"), str):
                here = f"{at}/{number}/value"
                found[item["name"]] = self._value(here, item["value"]) if self.doc.has(here) else None
        for name, here, value in self.doc.children(at):
            found[name] = self._value(here, value)
        return {name: value for name, value in found.items() if re.fullmatch(r"[A-Za-z_]\w*", name)}

    def _value(self, at: str, value: object) -> Value | None:
        if isinstance(value, bool) or not isinstance(value, str | int) or "$" in str(value):
            return None
        return value_at(self.source, str(value), self.doc.values[at])


def _filled_in(word: str) -> str:
    """A word of an exec form in which Kubernetes fills in ``$(NAME)``: one word, of which the option is known."""
    if not _PLAIN_WORD.fullmatch(word):
        return UNKNOWN_WORD
    return f'"{_OF_CONTAINER.sub(lambda found: "${" + found[1] + "}", word)}"'


_OF_CONTAINER = re.compile(r"(?<!\$)\$\(([A-Za-z_]\w*)\)")
_PLAIN_WORD = re.compile(r"(?:[\w./:=@,+-]|\$\([A-Za-z_]\w*\))+")
# What the operator of a PyTorchJob puts into the environment of torchrun, whatever the file says.
_INJECTED: Variables = dict.fromkeys(
    (
        *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
        *("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
    )
)
# Keys that a command job of Azure ML has.
_AZURE = frozenset({"environment", "distribution", "compute", "$schema"})
# Resources of Kubernetes itself, into which no operator puts variables.
_OF_KUBERNETES = ("batch/v1", "v1", "apps/", "jobset.")
_IMAGE: Fact[str] = unknown(IMAGE_DECIDES)
_UNSAID: Fact[str] = unknown("the workflow computes the directory")


def _default(data: dict[str, Any], name: str) -> object:
    """A setting for all steps of a job or workflow."""
    at: Any = data
    for key in ("defaults", "run", name):
        at = at.get(key) if isinstance(at, dict) else None
    return at


def _verbatim(raw: str, span: Span, value: object) -> tuple[str, int, Span | None]:
    """The text as it stands in the file, with its offset; the value itself where the scalar is escaped."""
    if raw[:1] in ("|", ">"):
        head, _, body = raw.partition("\n")
        if raw[0] == ">":
            body = re.sub(r"(?<!\n)\n(?!\n|$)", " ", body)
        return body, span.start + len(head) + 1, None
    if raw[:1] in ("'", '"') and len(raw) > 1:
        inner = raw[1:-1]
        if inner == value:
            return inner, span.start + 1, None
        return str(value), 0, span
    if raw == value:
        return raw, span.start, None
    folded = re.sub(r"\n(?!\n)", " ", raw)
    return (folded, span.start, None) if folded.split() == str(value).split() else (str(value), 0, span)
