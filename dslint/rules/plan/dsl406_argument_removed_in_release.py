"""**What.** The command passes an argument that the release of the library in use does not have any more, or not yet:
`--evaluation_strategy`, `--overwrite_output_dir` or `--group_by_length` to a script whose HfArgumentParser reads
`TrainingArguments`; `--deepspeed_mpi` to one that calls `deepspeed.add_config_arguments`.

**Why it hurts.** The job starts on every node, imports its libraries, and stops: `ValueError: Some specified
arguments are not used by the HfArgumentParser: ['--evaluation_strategy', 'steps']`. transformers 5.0 alone removed 26
arguments; most published fine-tuning scripts pass some of them.

**Fix.** Write the new name, leave the argument out, or pin the release that takes it. The fix renames where the
values are the same.

**When it stays quiet.** When nobody states a release of the library; when the parser lets unknown arguments pass;
when a dataclass of the script has a field of that name; when a pin of tokenizers keeps the releases that refuse the
argument out of an open range of transformers (`transformers>=4.37`, `tokenizers==0.15.1`). An error means that every
release in use refuses the argument, a warning that the stated range reaches such releases and its newest one refuses
(information in documentation). Keyword arguments in the script are `removed-training-argument`.

**Evidence.** `schemas/trainer_arguments.json`, generated from the released sources of transformers 4.0 to 5.23 and
trl 0.4 to 1.16; `deepspeed/__init__.py` of 0.9 to 0.19.8 (`--deepspeed_mpi` went with 0.13.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.launch.command import Flag
from dslint.model.plan.parser.options import ScriptParser
from dslint.model.plan.parser.places import place_of
from dslint.model.plan.runplan import RunPlan
from dslint.model.trainerargs import Releases, Standing, class_of, fields_ever, hint, standing, successor, taken
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL406",
    name="argument-removed-in-release",
    kind="plan",
    severity=Severity.ERROR,
    summary="The command passes an argument that the release of the library in use does not take",
    fix="safe",
    references=("https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",),
    versions=("transformers>=4.0", "deepspeed>=0.9"),
    depends_on_run=True,
    needs=("parser",),
)


def _run(words: str) -> str:
    return f"torchrun --nproc_per_node 2 train.py --output_dir out {words}\n"


_FIVE = "transformers==5.20.0\n"
_OLD, _NEW = _run("--evaluation_strategy steps"), _run("--eval_strategy steps")
_MPI = (
    "import argparse\n\nimport deepspeed\n\nparser = argparse.ArgumentParser()\n"
    "parser = deepspeed.add_config_arguments(parser)\n"
    'parser.add_argument("--output_dir")\nparser.add_argument("--local_rank")\nargs = parser.parse_args()\n'
)

_OWN = (
    "from dataclasses import dataclass\n\n\n@dataclass\nclass Mine(TrainingArguments):\n"
    "    group_by_length: bool = False\n\n\n"
)
_TRL = """from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
"""

EXAMPLES = (
    bad("renamed", {"run.sh": _OLD, "train.py": TRAINER, "requirements.txt": _FIVE}, "run.sh:1 error",
        fixed={"run.sh": _NEW}),
    bad("removed", {
        "run.sh": _run("--overwrite_output_dir"), "train.py": TRAINER, "requirements.txt": _FIVE,
    }, "run.sh:1 error"),
    bad("newer releases are allowed", {
        "run.sh": _OLD, "train.py": TRAINER, "requirements.txt": "transformers>=4.40\n",
    }, "run.sh:1 warning"),
    bad("an argument of DeepSpeed", {
        "run.sh": _run("--deepspeed_mpi"), "train.py": _MPI, "requirements.txt": "deepspeed==0.16.0\n",
    }, "run.sh:1 error"),
    bad("in documentation of a project that allows newer releases", {
        "README.md": f"```bash\n{_OLD}```\n", "train.py": TRAINER, "requirements.txt": "transformers>=4.40\n",
    }, "README.md:2 info"),
    bad("newer releases are allowed, and one of two has a new name", {
        "run.sh": _OLD.strip() + " --overwrite_output_dir\n", "train.py": TRAINER,
        "requirements.txt": "transformers>=4.40\n",
    }, ("run.sh:1 warning", "run.sh:1 info")),
    good("the new name", {"run.sh": _NEW, "train.py": TRAINER, "requirements.txt": _FIVE}),
    good("the release that takes it", {
        "run.sh": _OLD, "train.py": TRAINER, "requirements.txt": "transformers==4.38.0\n",
    }),
    good("a pin of tokenizers keeps newer releases out", {
        "run.sh": _OLD, "train.py": TRAINER, "requirements.txt": "transformers>=4.37\ntokenizers==0.15.1\n",
    }),
    good("nobody states a release", {"run.sh": _OLD, "train.py": TRAINER}),
    good("a field of the script", {
        "run.sh": _run("--group_by_length True"), "requirements.txt": _FIVE,
        "train.py": TRAINER.replace("parser =", f"{_OWN}parser =", 1).replace("(TrainingArguments)\n(", "(Mine)\n("),
    }),
    bad("several that have no new name are one finding", {
        "run.sh": _run("--overwrite_output_dir --group_by_length True"), "train.py": TRAINER,
        "requirements.txt": _FIVE,
    }, "run.sh:1 error"),
    bad("a class of trl extends the one of transformers", {
        "run.sh": _run("--dataset_name d --overwrite_output_dir"), "requirements.txt": _FIVE, "train.py": _TRL,
    }, "run.sh:1 error"),
    bad("one of several classes of trl has lost it", {
        "run.sh": _run("--dataset_name d --max_seq_length 512"), "requirements.txt": "trl==0.25.0\n", "train.py": _TRL,
    }, "run.sh:1 error"),
    good("one of several classes of trl has it", {
        "run.sh": _run("--dataset_name d --max_length 512"), "requirements.txt": "trl==0.25.0\n", "train.py": _TRL,
    }),
    good("a class of trl that takes any name", {
        "run.sh": _run("--overwrite_output_dir"), "requirements.txt": f"{_FIVE.strip()}\ntrl==0.12.0\n",
        "train.py": _TRL.replace("SFTConfig", "PPOv2Config"),
    }),
    good("unknown arguments pass", {
        "run.sh": _OLD, "requirements.txt": _FIVE,
        "train.py": TRAINER.replace("into_dataclasses()", "into_dataclasses(return_remaining_strings=True)"),
    }),
)  # fmt: skip

_DEEPSPEED = {"--deepspeed_mpi": "0.13.1"}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Ask the table about every argument that the command passes."""
    parser = plan.parser
    if parser is None or plan.command.script is None:
        return
    found: list[Finding] = []
    if parser.libraries and not _lets_pass(parser) and all(class_of(".".join(o)) for o in parser.libraries):
        releases = Releases(*(context.libraries.get(name, VersionFact()) for name in ("transformers", "trl")))
        for flag in plan.command.script_flags:
            found += _trainer(plan, parser, flag, releases)
    yield from _joined(found)
    for flag in plan.command.script_flags:
        removed = _DEEPSPEED.get(flag.name)
        if removed is not None and parser.is_closed:
            yield from _deepspeed(plan, parser, flag, removed, context.deepspeed)


def _joined(found: list[Finding]) -> Iterator[Finding]:
    """One finding a command, and one for each that has a fix of its own.

    Where an open range reaches beyond several removals, the first is enough to settle it: the others are information.
    """
    yield from (finding for finding in found if finding.fix is not None)
    others = [finding for finding in found if finding.fix is None]
    if others:
        more = tuple(other.location.labelled("refused too") for other in others[1:])
        first = replace(others[0], related=(*others[0].related, *more))
        is_said = len(others) < len(found) and all(f.severity is Severity.WARNING for f in found)
        yield replace(first, severity=Severity.INFO) if is_said else first


def _lets_pass(parser: ScriptParser) -> bool:
    """Unknown arguments are no error, or nobody knows all fields that the project adds."""
    return not parser.is_closed and not parser.open_because.startswith("not all fields of `trl.")


def _trainer(plan: RunPlan, parser: ScriptParser, flag: Flag, releases: Releases) -> Iterator[Finding]:
    name = flag.name.lstrip("-").replace("-", "_")
    if parser.option(flag.name) is not None or any(option.dest == name for option in parser.options):
        return
    owners = [owner for owner in parser.libraries if name in fields_ever(owner)]
    found = [(owner, standing(owner, name, releases)) for owner in owners]
    if not found or any(standing_ is None for _, standing_ in found):
        return
    owner, worst = found[0]
    if worst is None or not releases.of(worst.library).is_known or worst.reach == "deprecated":
        return
    yield _finding(plan, flag, owner, worst, releases)


def _finding(plan: RunPlan, flag: Flag, owner: tuple[str, str], found: Standing, releases: Releases) -> Finding:
    version = releases.of(found.library)
    name = flag.name.lstrip("-").replace("-", "_")
    who = version_named(version, found.library)
    does = "removed in" if found.is_removed else "new in"
    takes = f"{who} does not take `{flag.name}` ({does} {found.release})"
    if found.reach == "later":
        takes = f"{found.library} {found.release} and later do not take `{flag.name}`"
    advice = hint(owner, name, "" if found.is_removed else f"{found.library}>={found.release}")
    word = next((w for w in plan.command.script_args if w.location == flag.location), None)
    return META.finding(
        place_of(word) if word is not None else flag.location,
        f"{takes}: every process stops with `ValueError`",
        hint=advice.replace("Write `", "Write `--"),
        related=version_origin(version, found.library),
        fix=_fix(flag, owner, successor(owner, name), releases),
        severity=_severity(plan, found),
        facts={"argument": name, "class": owner[1]},
    )


def _severity(plan: RunPlan, found: Standing) -> Severity:
    """In documentation a range of the project is information: pages name the release that they were written for."""
    if not plan.command.in_docs:
        return found.severity
    return Severity.INFO if found.reach == "later" else Severity.WARNING


def _fix(flag: Flag, owner: tuple[str, str], new: str, releases: Releases) -> Fix | None:
    status = taken(owner, new, releases) if new else "no"
    place = flag.location
    if not new or status == "no" or new == "warmup_steps" or place.path.endswith(".ipynb"):
        return None
    length = place.span.end - place.span.start
    if length < len(flag.name):
        return None
    edit = Edit(place.path, Span(place.span.start, place.span.start + len(flag.name)), f"--{new}")
    return Fix(f"Rename to `--{new}`", (edit,), Safety.SAFE if status in ("yes", "") else Safety.UNSAFE)


def _deepspeed(
    plan: RunPlan, parser: ScriptParser, flag: Flag, removed: str, version: VersionFact
) -> Iterator[Finding]:
    option, beside = parser.option(flag.name), parser.option("--deepscale_config")
    if option is None or beside is None or option.location != beside.location or not version.is_known:
        return  # the script declares it itself
    status = covers(version, f">={removed}", "deepspeed")
    if status == "no":
        return
    yield META.finding(
        flag.location,
        f"`deepspeed.add_config_arguments` adds no `{flag.name}` since DeepSpeed {removed}: every process stops with"
        " `unrecognized arguments`",
        hint=f"Remove `{flag.name}`: it has no effect in newer releases, and `deepspeed.initialize` finds MPI itself",
        related=(option.location.labelled("DeepSpeed adds its arguments here"), *version_origin(version, "deepspeed")),
        severity=Severity.WARNING if plan.command.in_docs or status == "maybe" else None,
        facts={"argument": flag.name.lstrip("-"), "class": "deepspeed"},
    )
