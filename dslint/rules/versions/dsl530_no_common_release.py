"""**What.** A requirements file (with what it includes by `-r` and `-c`, and the constraints that a command gives it),
`pyproject.toml` or `setup.cfg` (alone, and with each extra and group), `setup.py`, `Pipfile`, what `pip:` of a conda
environment lists, or one `pip install` command asks for releases that cannot be installed together: one requires
of another what the file excludes, or two require of a third what excludes each other. `torchvision` requires exactly
one `torch`, `vllm` and `xformers` as well.

**Why it hurts.** pip, uv and poetry stop: `ResolutionImpossible: these package versions have conflicting dependencies`.
In an image this shows after the build has pulled gigabytes; people then install with `--no-deps`, and the import fails
on the cluster.

**Fix.** Take one of the pins away or move it into the range that the message names. `dslint versions` shows what goes
together.

**When it stays quiet.** A library comes from git, a commit or a folder; an extra or another system decides; the
metadata of a release are not known; `uv` overrides are stated; the file is a lock; `--no-deps` installs it. It speaks
only of what the metadata prove, so that silence is no promise.

**Evidence.** `Requires-Dist` of the released wheels (`schemas/required.json`); pip 23.2.1 on Python 3.11 refused every
bad example (`pip install --dry-run`), and resolved real pins on which the rule is silent (`tests/model/test_solve.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.versions.allowed import Bound
from dslint.model.versions.project import Requirements, StatedFile
from dslint.model.versions.ranges import existing
from dslint.model.versions.solve import Clash, NoSolution, holding, unsolved
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL530",
    name="no-common-release",
    kind="versions",
    severity=Severity.ERROR,
    summary="Requirements that no releases satisfy together",
    references=(
        "https://pip.pypa.io/en/stable/topics/dependency-resolution/",
        "https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use",
    ),
    depends_on_run=True,
    no_experiment="no training begins: the installer refuses the requirements, and pip is the judge of the examples",
)

_TRAIN = {"train.py": "import transformers\n"}

EXAMPLES = (
    bad("one pin requires more than the other gives", {
        "requirements.txt": "torch\ntransformers==4.28.1\ntrl==0.12.0\n", **_TRAIN,
    }, "requirements.txt:2 error"),
    bad("every allowed release requires a newer tokenizers", {
        "requirements.txt": "transformers>=4.45\ntokenizers==0.15.1\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("both require huggingface-hub, in ranges that exclude each other", {
        "requirements.txt": "transformers==4.44.2\ndiffusers==0.42.1\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("a constraint", {
        "requirements.txt": "-c pins.txt\npeft==0.10.0\naccelerate\n", "pins.txt": "accelerate==0.20.3\n", **_TRAIN,
    }, "requirements.txt:2 error"),
    bad("two lines exclude each other", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n'
        'dependencies = [\n  "transformers>=4.40",\n  "transformers<4.36",\n]\n', **_TRAIN,
    }, "pyproject.toml:6 error"),
    bad("torchvision requires one torch", {
        "requirements.txt": "torch==2.1.2\ntransformers\ntorchvision==0.17.2\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("a pin of numpy that the release of another library excludes", {
        "requirements.txt": "accelerate==0.32.1\nnumpy==2.1.0\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("an extra", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.3.1"]\n'
        '[project.optional-dependencies]\nfast = [\n  "vllm==0.6.3",\n]\n', **_TRAIN,
    }, "pyproject.toml:4 error"),
    bad("install_requires", {
        "setup.py": "from setuptools import setup\n\nsetup(\n    name='x',\n"
        "    install_requires=['transformers==4.28.1', 'trl==0.12.0'],\n)\n", **_TRAIN,
    }, "setup.py:5 error"),
    bad("one command of a Dockerfile", {
        "Dockerfile": "FROM python:3.10\nRUN pip install torch==2.1.0 torchvision==0.15.2\n", **_TRAIN,
    }, "Dockerfile:2 error"),
    bad("constraints that a command gives", {
        "requirements.txt": "peft==0.10.0\naccelerate\n", "constraints.txt": "accelerate==0.20.3\n",
        "Dockerfile": "FROM python:3.10\nCOPY . .\nRUN pip install -r requirements.txt -c constraints.txt\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    bad("what conda gives to pip", {
        "environment.yml": "name: x\ndependencies:\n  - python=3.10\n  - pip\n  - pip:\n"
        "    - tokenizers==0.13.3\n    - transformers==4.40.0\n", **_TRAIN,
    }, "environment.yml:6 error"),
    good("pip replaces what conda has installed before", {
        "environment.yml": "dependencies:\n  - tokenizers=0.13.3\n  - pip:\n    - transformers==4.40.0\n", **_TRAIN,
    }),
    bad("constraints that an install script gives", {
        "requirements.txt": "transformers==4.42.4\nnumpy\n", "constraints.txt": "numpy==2.1.0\n",
        "install.sh": "pip install -r requirements.txt -c constraints.txt\n", **_TRAIN,
    }, "requirements.txt:1 error"),
    good("a resolver has written it, with an override", {
        "requirements.txt": "# This file was autogenerated by uv via the following command:\n#    uv export\n"
        "transformers==5.4.0\nvllm==0.19.1\n", **_TRAIN,
    }),
    good("two extras for two uses", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["transformers"]\n'
        '[project.optional-dependencies]\nold = ["torch==2.3.1"]\nfast = ["vllm==0.6.3"]\n', **_TRAIN,
    }),
    good("two commands, of which the second one changes what the first has installed", {
        "Dockerfile": "FROM python:3.10\nRUN pip install torch==2.1.0\nRUN pip install --no-deps torchvision==0.16.0\n",
        **_TRAIN,
    }),
    good("pins that go together", {
        "requirements.txt": "torch==2.1.2\ntransformers==4.37.2\ntokenizers==0.15.1\naccelerate==0.21.0\n", **_TRAIN,
    }),
    good("a range that an older release satisfies", {
        "requirements.txt": "transformers>=4.34\ntokenizers==0.15.1\n", **_TRAIN,
    }),
    good("a library from its repository", {
        "requirements.txt": "git+https://github.com/huggingface/transformers\ntokenizers==0.15.1\n", **_TRAIN,
    }),
    good("two files for two uses", {
        "requirements-old.txt": "transformers==4.28.1\n", "requirements-rl.txt": "trl==0.12.0\n", **_TRAIN,
    }),
)  # fmt: skip


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """Each file by itself: different files need not be installed together."""
    del context
    python = doc.allowed.python.version
    commands = [
        command[0]
        for file in (*doc.files, *doc.commands)
        if _RUNS.search(file.name)
        for command in _COMMAND.finditer(file.source.text)
    ]
    for file in doc.files:
        if _RUNS.search(file.name):
            yield from _of_commands(file, python)
        elif _is_joint(file) and not any("--no-dep" in command and file.name in command for command in commands):
            with_it = _constraints(file, doc.files, commands)
            base = [_joined(file.bounds, with_it, group) for group in ("", *_groups(file))]
            yield from next(filter(None, (list(_of_bounds(bounds, python)) for bounds in base)), ())


_RUNS = re.compile(r"dockerfile|\.(sh|md|ya?ml)$", re.I)
_COMMAND = re.compile(r"\binstall\b(?:\\\r?\n|[^\n;&|])*")
_GIVEN = re.compile(r"(?:-c|--constraint)[ =]*[\"']?(?:\S*/)?([\w.-]+)")


def _is_joint(file: StatedFile) -> bool:
    """An installer resolves the whole file at once, and nothing overrides it."""
    name = file.name
    # What a resolver has written is a lock, with the overrides that it was given.
    if name.startswith("constraints") or "autogenerated by" in file.source.text[:300]:
        return False
    if name.endswith((".txt", ".in")) or name in ("setup.cfg", "setup.py", "pipfile"):
        return True
    return name == "pyproject.toml" and "override-dependencies" not in file.source.text


def _constraints(file: StatedFile, files: tuple[StatedFile, ...], commands: list[str]) -> list[StatedFile]:
    """The files that a command gives as constraints where it installs this one."""
    given = {
        name.lower()
        for command in commands
        if re.search(rf"(?:-r|--requirement)[ =]*[\"']?(?:\S*/)?{re.escape(file.name)}", command, re.I)
        for name in _GIVEN.findall(command)
    }
    return [other for other in files if other.name in given and other is not file]


def _groups(file: StatedFile) -> list[str]:
    """The extras and groups of a file; what is among the others of a setup.py may never be installed together."""
    groups = {bound.group: None for bounds in file.bounds.values() for bound in bounds}
    return [group for group in groups if group.startswith(("extra ", "group "))]


def _joined(own: Mapping[str, tuple[Bound, ...]], others: list[StatedFile], group: str) -> dict[str, list[Bound]]:
    """What holds together: the certain lines, those of one group, and constraints on what these name."""
    found: dict[str, list[Bound]] = {}
    for name, bounds in own.items():
        kept = [b if not b.group else replace(b, is_certain=True) for b in bounds if b.group in ("", group)]
        if kept:
            found[name] = kept
    for other in others:
        for name, bounds in other.bounds.items():
            found.setdefault(name, []).extend(bounds)
    return found


def _of_commands(file: StatedFile, python: str) -> Iterator[Finding]:
    """Each command that installs several things at once; of a text no more than a warning."""
    groups = dict.fromkeys(bound.group for bounds in file.bounds.values() for bound in bounds if bound.group)
    for group in groups:
        held = {name: [b for b in bounds if b.group == group] for name, bounds in file.bounds.items()}
        for finding in _of_bounds({name: bounds for name, bounds in held.items() if bounds}, python):
            yield replace(finding, severity=Severity.WARNING) if file.name.endswith(".md") else finding


def _of_bounds(stated: Mapping[str, Sequence[Bound]], python: str) -> Iterator[Finding]:
    held = {name: found for name, bounds in stated.items() if (found := holding(bounds, python))}
    held.pop("python", None)
    for name, bounds in held.items():
        pair = _excluding(name, bounds)
        if pair is not None:
            first, second = pair
            yield META.finding(
                second,
                f"the two lines for `{name}` in this file exclude each other: pip installs nothing",
                hint="Keep the intended line",
                related=(first.labelled("excludes the other line"),),
            )
            return
    nothing = unsolved(held, python)
    if nothing is not None:
        yield from _told(nothing, held)


def _excluding(name: str, bounds: list[Bound]) -> tuple[Location, Location] | None:
    """Two lines of one library each of which some release satisfies, and none satisfies both."""
    last = bounds[-1]
    if any(bound.taken_from for bound in bounds):
        return None
    theirs = existing(name, last.specifier) or ()
    for bound in bounds[:-1]:
        mine = existing(name, bound.specifier) or ()
        if mine and theirs and not set(mine) & set(theirs) and bound.origin and last.origin:
            return bound.origin, last.origin
    return None


def _told(found: NoSolution, held: dict[str, list[Bound]]) -> Iterator[Finding]:
    place = next(filter(None, (_place(held, n) for n in (found.library, found.clash.owner, found.clash.other))), None)
    if place is None:
        return
    clash, other = found.clash, found.clash.other if found.clash.other != found.library else found.clash.owner
    names = [other, *(name for before in found.before for name in (before.owner, before.other))]
    related = [
        where.labelled(_label(name, clash)) for name in dict.fromkeys(names)
        if (where := _place(held, name)) is not None and where != place
    ]  # fmt: skip
    yield META.finding(place, _message(found), hint=_hint(clash), related=tuple(related))


def _place(held: dict[str, list[Bound]], name: str) -> Location | None:
    """The line that says most about a library."""
    bounds = sorted(held.get(name, ()), key=lambda bound: (not bound.is_pin, not bound.specifier))
    return bounds[0].origin if bounds else None


def _label(name: str, clash: Clash) -> str:
    if name == clash.owner:
        return f"{clash.owner} {clash.release} requires {clash.required.name}{clash.required.specifier}"
    if name == clash.other and clash.against:
        return f"{name} {clash.candidate} requires {clash.required.name}{clash.against}"
    return f"{name} is limited here"


def _message(found: NoSolution) -> str:
    clash = found.clash
    needs = f"`{clash.owner}` {clash.release} requires `{clash.required.name}{clash.required.specifier}`"
    if clash.against:
        return f"{needs}, `{clash.other}` {clash.candidate} `{clash.against}`: pip finds no common release"
    return f"{needs}, which the file excludes: pip finds no common release"


def _hint(clash: Clash) -> str:
    return f"Move the pin of `{clash.other}` or of `{clash.owner}`; `dslint versions` shows which releases go together"
