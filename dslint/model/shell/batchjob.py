"""What a batch script asks of its queue (Slurm, PBS, LSF), as facts beside the environment of its commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dslint.core.fact import Fact, known
from dslint.core.source import Span
from dslint.model.shell.pieces import Value
from dslint.model.shell.slurm import EXPORT, sbatch_directives
from dslint.parse.shell import ShellDoc

# Keys of facts: ``SBATCH_NODES``, ``PBSJOB_NODES``, ``BSUB_SLOTS``; ``MACHINE_GPUS`` where a command starts on this
# machine. No program reads variables of these names.
MACHINE = "MACHINE_"
PREFIXES = ("SBATCH_", "PBSJOB_", "BSUB_", MACHINE)
# What the queue puts into the environment of the job because of its directives.
_VARIABLES = {
    "SBATCH_NODES": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "SBATCH_NTASKS": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "SBATCH_NTASKS_PER_NODE": ("SLURM_NTASKS_PER_NODE",),
    "SBATCH_GPUS_PER_NODE": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "PBSJOB_NODES": ("PBS_NUM_NODES",),
    "PBSJOB_TASKS_PER_NODE": ("PBS_NUM_PPN",),
    "BSUB_SLOTS": ("LSB_DJOB_NUMPROC",),
}
_PBS_LINE = re.compile(r"#PBS[ \t]+-l[ \t]*(?P<text>\S+)")
_SELECT = re.compile(r"select=(?P<count>\d+)(?P<rest>(?::[\w.=-]+)*)")
_NODES = re.compile(r"nodes=(?P<count>\d+)(?P<rest>(?::[\w.=-]+)*)")
_PER_CHUNK = {
    "ppn": "TASKS_PER_NODE",
    "mpiprocs": "TASKS_PER_NODE",
    "gpus": "GPUS_PER_NODE",
    "ngpus": "GPUS_PER_NODE",
}
_BSUB = {
    "SLOTS": re.compile(r"#BSUB[ \t]+-n[ \t]+(\d+)[ \t]*$"),
    "SLOTS_PER_HOST": re.compile(r"#BSUB[ \t]+-R[ \t].*?\bspan\[ptile=(\d+)\]"),
    "GPUS_PER_HOST": re.compile(r"#BSUB[ \t]+-gpu[ \t]+[\"']?(?:[^\"'\s]*:)?num=(\d+)"),
    "NODES": re.compile(r"#BSUB[ \t]+-nnodes[ \t]+(\d+)[ \t]*$"),
    "ARRAY": re.compile(r"#BSUB[ \t]+-J[ \t]+[\"']?[\w.-]*\[([\d,:-]+\](?:%\d+)?)"),
    "ALONE": re.compile(r"#BSUB[ \t](?:.*[ \t])?(-x)\b"),
}
_PBS_ARRAY = re.compile(r"#PBS[ \t]+-[Jt][ \t]+(?P<tasks>[\d,:-]+(?:%\d+)?)")
_PBS_ALONE = re.compile(r"\bplace=\S*\bexcl(?:host)?\b|\bnaccesspolicy=singlejob\b")

_ONE: Fact[str] = known("1")


def is_batch_script(shell: ShellDoc) -> bool:
    """The text has lines for a queue, which runs it as a job."""
    texts = (shell.text[comment.start - shell.base : comment.end - shell.base] for comment in shell.comments)
    return any(text.startswith(("#SBATCH", "#PBS", "#BSUB")) for text in texts)


def is_directive(name: str) -> bool:
    """The entry of an environment is a fact about the job, no variable."""
    return name.startswith(PREFIXES)


def job_directives(shell: ShellDoc) -> dict[str, Fact[str]]:
    """The directives of a batch script, by keys such as ``SBATCH_NODES``.

    PBS counts chunks (``select=2:ngpus=4``); they are nodes where the job says ``place=scatter`` or ``nodes=2``.
    """
    facts = sbatch_directives(shell)
    if "#PBS" in shell.text:
        facts |= _of_lines(shell, _pbs)
    if "#BSUB" in shell.text:
        facts |= _of_lines(shell, _bsub)
    return facts


def job_variables(directives: Mapping[str, Fact[str]]) -> dict[str, Value]:
    """What the queue puts into the environment of a batch script because of its directives."""
    exported = directives.get(EXPORT)
    for_steps = {}
    if exported is not None and exported.get_or("") == "NONE":  # it counts for each `srun` of the job, too
        for_steps["SLURM_EXPORT_ENV"] = Value("NONE", None, exported.origins)
    parts = (exported.get_or("") if exported is not None else "").strip("\"'").split(",")
    handed = {
        name: Value(value, None, exported.origins)
        for name, glue, value in (part.partition("=") for part in parts)
        if glue and exported is not None
    }
    return (
        handed
        | for_steps
        | {
            variable: Value(fact.get(), None, fact.origins)
            for name, variables in _VARIABLES.items()
            if (fact := directives.get(name)) is not None and fact.is_known and fact.get().isdigit()
            for variable in variables
        }
    )


def directives_of(environ: Mapping[str, Fact[str]]) -> dict[str, Fact[str]]:
    """The same facts inside a job of Slurm, from the variables that it has set."""
    found: dict[str, Fact[str]] = {}
    for name, variables in _VARIABLES.items():
        for variable in variables if name.startswith("SBATCH_") else ():
            fact = environ.get(variable)
            if fact is not None and fact.is_known and fact.get().isdigit():
                found.setdefault(name, fact)
    return found


def _of_lines(shell: ShellDoc, read: Callable[[str], dict[str, str]]) -> dict[str, Fact[str]]:
    facts: dict[str, Fact[str]] = {}
    lines = [(c, shell.text[c.start - shell.base : c.end - shell.base]) for c in shell.comments]
    joined = "\n".join(text for _, text in lines)
    scattered = re.search(r"#PBS[ \t]+-l[ \t]*(?:\S*[,:])?place=v?scatter", joined) is not None
    for span, text in lines:
        for name, number in read(text).items():
            key = name.replace("CHUNKS", "NODES") if scattered else name
            place = shell.source.location(Span(span.start, span.end), text.strip())
            facts[key] = known(number, place)
    if facts.get("PBSJOB_CHUNKS", _ONE).get() != "1":  # several chunks may share a node
        facts = {name: fact for name, fact in facts.items() if not name.endswith("_PER_NODE")}
    return facts


def _pbs(line: str) -> dict[str, str]:
    tasks = _PBS_ARRAY.match(line)
    alone = {"PBSJOB_ALONE": "1"} if _PBS_ALONE.search(line) else {}
    return {"PBSJOB_ARRAY": tasks["tasks"]} if tasks is not None else {**_pbs_resources(line), **alone}


def _pbs_resources(line: str) -> dict[str, str]:
    found = _PBS_LINE.match(line)
    chunk = found and (_SELECT.search(found["text"]) or _NODES.search(found["text"]))
    if not found or not chunk or "+" in found["text"]:
        return {}
    facts = {"PBSJOB_CHUNKS" if chunk.re is _SELECT else "PBSJOB_NODES": chunk["count"]}
    for part in chunk["rest"].split(":"):
        name, _, number = part.partition("=")
        if name in _PER_CHUNK and number.isdigit():
            facts[f"PBSJOB_{_PER_CHUNK[name]}"] = number
    return facts


def _bsub(line: str) -> dict[str, str]:
    return {f"BSUB_{name}": found[1] for name, regex in _BSUB.items() if (found := regex.match(line.rstrip()))}
