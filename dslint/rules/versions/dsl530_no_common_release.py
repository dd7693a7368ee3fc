"""**What.** A requirements file (with what it includes by `-r` and `-c`), `pyproject.toml`, `setup.cfg` or `Pipfile`
asks for releases that cannot be installed together: one requires of another what the file excludes, or two require of
a third what excludes each other.

**Why it hurts.** pip, uv and poetry stop: `ResolutionImpossible: these package versions have conflicting
dependencies`. In an image this shows after the build has pulled gigabytes; people then install with `--no-deps`, and
the import fails on the cluster.

**Fix.** Take one of the pins away or move it into the range that the message names. `dslint versions` shows what goes
together.

**When it stays quiet.** A library comes from git, a commit or a folder; an extra or another system decides; the
metadata of a release are not known; `uv` overrides are stated; the file is a lock. It speaks only of what the metadata
prove, so that silence is not a promise.

**Evidence.** `Requires-Dist` of the released wheels (`schemas/required.json`); pip 23.2.1 on Python 3.11 refused every
bad example (`pip install --dry-run`), and resolved real pins on which the rule is silent (`tests/model/test_solve.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.versions.allowed import Bound
from dslint.model.versions.project import Requirements, StatedFile
from dslint.model.versions.ranges import existing
from dslint.model.versions.solve import Clash, NoSolution, Problem, holding
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
    for file in doc.files:
        if _is_joint(file):
            yield from _of_file(file, doc.allowed.python.version)


def _is_joint(file: StatedFile) -> bool:
    """An installer resolves the whole file at once, and nothing overrides it."""
    name = file.name
    if name.startswith("constraints"):
        return False
    if name.endswith((".txt", ".in")) or name in ("setup.cfg", "pipfile"):
        return True
    return name == "pyproject.toml" and "override-dependencies" not in file.source.text


def _of_file(file: StatedFile, python: str) -> Iterator[Finding]:
    held = {name: found for name, bounds in file.bounds.items() if (found := holding(bounds, python))}
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
    unsolved = Problem(held, python).solve()
    if unsolved is not None:
        yield from _told(unsolved, held)


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
    place = _place(held, found.library)
    if place is None:
        return
    clash, other = found.clash, found.clash.other if found.clash.other != found.library else found.clash.owner
    names = [other, *(name for before in found.before for name in (before.owner, before.other))]
    related = [
        where.labelled(_label(name, clash)) for name in dict.fromkeys(names)
        if name != found.library and (where := _place(held, name)) is not None
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
