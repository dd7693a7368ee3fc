"""What dslint takes for granted: one table for the words of findings and for docs/assumptions.md.

A finding that rests on a row with a `sentence` is likely, and says so in that sentence; the other rows hold for every
job and every finding.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """A row of the table: about what, what is assumed, why, and how a finding that rests on it says so.

    `sentence` goes on after "assumes that"; `{name}` in it is filled in by the finding, `unnamed` stands where the
    finding has no name.
    """

    key: str
    about: str
    text: str
    why: str
    sentence: str = ""
    unnamed: str = ""

    def words(self, name: str = "") -> str:
        """Return the sentence about one name, or about none."""
        return self.sentence.format(name=name) if name or not self.unnamed else self.unnamed


ASSUMPTIONS = (
    Assumption(
        "unmodelled-code",
        "code without a model",
        "the result of a call that dslint has no row and no source for is the same on all ranks when all that goes into"
        " it is the same, and may differ like what goes into it",
        "true of all that is no clock, random generator, file listing or process id; those are known by name",
        "code that dslint cannot read gives every rank the same result for the same arguments, and only then",
    ),
    Assumption(
        "kept-objects",
        "code without a model",
        "it may keep and change every object that it gets: a rule that asks whether something is *never* done is silent"
        " about such objects",
        "the object may be told so elsewhere",
    ),
    Assumption(
        "worlds",
        "numbers of ranks",
        "jobs of 2 and 4 ranks on one machine, and of 4 and 16 ranks on two machines, represent all jobs",
        "a test that compares the rank with a larger number is unknown; a test of the number of ranks alone is unknown"
        " unless it asks for more than one",
    ),
    Assumption(
        "same-arguments",
        "arguments of a script",
        "the same on all ranks; `--local_rank` and its relatives are the rank that a launcher passes",
        "a launcher starts all processes with the same arguments",
    ),
    Assumption(
        "launches-are-runs",
        "launch commands",
        "a script that launch files of the project start runs as they start it: an option has the value that a command"
        " gives, else its default; a variable has the value that the file exports. Branches that no command takes are"
        " not judged, functions that none reaches are, with open parameters; of commands in documents only the ZeRO"
        " stages count",
        "a mistake that hangs no run is none; what words cannot be read, or any of many commands, leaves the options"
        " open",
    ),
    Assumption(
        "option-is-passed",
        "launch commands",
        "what is plainly under an option that no command passes is reported, for somebody may pass it",
        "an option is there to be passed",
        "somebody passes `{name}`, which no launch command of the project does",
        "somebody passes an option that no launch command of the project passes",
    ),
    Assumption(
        "same-environment",
        "environment variables",
        "the same on all ranks, except those that launchers set for each process and those of one host",
        "`schemas/libraries/python.toml`, table `environment`",
    ),
    Assumption(
        "shared-files",
        "files of a fixed name",
        "the same on all machines; whether a file is there, listings, sizes and times are each machine's own",
        "training jobs share their storage",
        "the folder is one that all machines share",
    ),
    Assumption(
        "even-loaders",
        "data loaders",
        "every item differs between ranks, the number of items is the same",
        "samplers pad; a loop over a rank's own part of a list is known as such",
    ),
    Assumption(
        "data-by-name",
        "parameters of functions that nothing calls",
        "names such as `batch` or `inputs` hold each rank's own data, and the items of a parameter named like a loader"
        " are each rank's own",
        "convention",
        "parameter `{name}` holds each rank's own data (by its name)",
        "a parameter holds each rank's own data (by its name)",
    ),
    Assumption(
        "rank-by-name",
        "parameters of functions that nothing calls",
        "one named `rank`, `local_rank`, `world_size` or `is_main_process` is that number or that test",
        "convention",
        "parameter `{name}` is the number of the process, or a test of it (by its name)",
        "a parameter is the number of the process, or a test of it (by its name)",
    ),
    Assumption(
        "same-parameter",
        "parameters of functions that nothing calls",
        "all others are inputs that are the same on all ranks",
        "they come from the arguments or the config of a job",
        "every rank passes the same for parameter `{name}` of `{function}`, which nothing in the project calls",
    ),
    Assumption(
        "told-or-alone",
        "values that only some ranks are told",
        "a branch that tells nothing is for a job of one process: all ranks hold the same after it",
        "`if dist.is_initialized(): dist.broadcast(...)`",
        "a branch in which nothing is broadcast is for a job of one process",
    ),
    Assumption(
        "group-holds-all",
        "collectives of a process group",
        "what a group has made the same is the same on all ranks that look at it",
        "which ranks a group holds is often decided elsewhere",
        "the process group holds all ranks that use the result",
    ),
    Assumption(
        "missing-by-data",
        "values that may be `None`",
        "where `None` comes with each rank's own data, the data decide which of the two it is",
        "a field of a batch that is there or not",
        "each rank's own data decide whether the value is `None`",
    ),
    Assumption(
        "only-raise",
        "exceptions",
        "only those that a `raise` statement makes leave a block early",
        "any call may raise, and a report about each would be noise",
    ),
    Assumption(
        "reported-by-users",
        "mistakes that nobody could show",
        "what users report of a combination of settings holds for this job, too",
        "it needs GPUs, or shows in some models only",
        "this job meets what users report of these settings",
    ),
    Assumption(
        "job-on-gpus",
        "backends that a library chooses",
        "a job that names no device runs on GPUs of NVIDIA, and its process group is one of NCCL alone",
        "accelerate and DeepSpeed take NCCL where there are such GPUs",
        "the job runs on GPUs, for which the library takes NCCL",
    ),
    Assumption(
        "files-are-here",
        "files that a launch command names",
        "a relative path leads to a file of the project, and nothing makes that file before the run",
        "a path of the cluster is absolute, and what a launch file writes is known",
        "no other program makes `{name}` before the run",
    ),
)
_BY_KEY = {row.key: row for row in ASSUMPTIONS}


def assumed(key: str, name: str = "", **more: str) -> str:
    """Return the sentence of a row for a finding, about one name where there is one."""
    row = _BY_KEY[key]
    return row.sentence.format(name=name, **more) if more else row.words(name)
