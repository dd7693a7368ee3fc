"""**What.** A pin on a release whose metadata pip no longer accepts: `pytorch-lightning==1.6.5` requires
`torch (>=1.8.*)`, `omegaconf==2.0.6` requires `PyYAML (>=5.1.*)`, and `.*` after `>=` is no version specifier.

**Why it hurts.** pip from 24.1 on takes such a release as if it did not exist: `No matching distribution found`, and
the environment is not built. With an older pip the same lines still install, so that it breaks with a new image.

**Fix.** Pin the next release whose metadata are valid (`pytorch-lightning==1.8.6`), or an older pip in the same
environment (`pip<24.1`).

**When it stays quiet.** The files hold pip below 24.1 or install with uv, which reads such a range as it was meant. It
is an information where no file says which pip is in use: the one that comes with Python 3.8 to 3.10 is older.

**Evidence.** `schemas/refused_metadata.json`, from the metadata of the released wheels; pip 24.1 and later on
`pytorch-lightning==1.8.3`: `.* suffix can only be used with == or != operators`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from dslint.core.finding import Finding, Severity
from dslint.core.schemafiles import load_file
from dslint.model.context import Context
from dslint.model.versions.allowed import Bound
from dslint.model.versions.known import releases_of
from dslint.model.versions.project import Requirements
from dslint.model.versions.ranges import contains, version
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL536",
    name="requirements-that-pip-refuses",
    kind="versions",
    severity=Severity.WARNING,
    summary="A pin on a release whose metadata pip from 24.1 on refuses",
    references=("https://github.com/pypa/pip/issues/12063",),
    depends_on_run=True,
    no_experiment="no training begins: the installer refuses the release",
)

_TRAIN = {"train.py": "import pytorch_lightning\n"}
_PINS = "torch==1.13.1\npytorch-lightning==1.7.7\n"

EXAMPLES = (
    bad("conda brings the newest pip", {
        "environment.yml": "dependencies:\n  - python=3.8\n  - pip\n  - pip:\n    - -r requirements.txt\n",
        "requirements.txt": _PINS, **_TRAIN,
    }, "requirements.txt:2 warning"),
    bad("the image takes a new pip", {
        "Dockerfile": "FROM python:3.9\nRUN pip install -U pip\nRUN pip install torch==1.13.1 omegaconf==2.0.6\n",
        **_TRAIN,
    }, "Dockerfile:3 warning"),
    bad("nobody says which pip", {"requirements.txt": _PINS, **_TRAIN}, "requirements.txt:2 info"),
    good("an older pip", {
        "environment.yml": "dependencies:\n  - python=3.8\n  - pip<24.1\n  - pip:\n    - -r requirements.txt\n",
        "requirements.txt": _PINS, **_TRAIN,
    }),
    good("the release with valid metadata", {
        "environment.yml": "dependencies:\n  - python=3.8\n  - pip\n  - pip:\n    - -r requirements.txt\n",
        "requirements.txt": "torch==1.13.1\npytorch-lightning==1.8.6\n", **_TRAIN,
    }),
    good("a range with a valid one", {
        "requirements.txt": "torch==1.13.1\npytorch-lightning>=1.7,<1.10\n", "setup.sh": "pip install -U pip\n",
        **_TRAIN,
    }),
    good("uv", {"requirements.txt": _PINS, "setup.sh": "pip install -U pip uv\nuv pip install -r requirements.txt\n",
                **_TRAIN}),
)  # fmt: skip

# The newest pip is asked for, also by a conda environment that bounds it not.
_NEW = re.compile(
    r"\bpip3?[ \t]+install\b[^\n;&|]*[ \t](?:-U|--upgrade)[ \t](?:[^\n;&|]*[ \t])?[\"']?pip[\"']?(?=[\s;&|]|$)"
    r"|^[ \t]*-[ \t]+pip[ \t]*(?:#[^\n]*)?$|\bpip[ \t]*(?:==|>=)[ \t]*(?:24\.[1-9]|2[5-9])",
    re.M,
)
_OLD = re.compile(r"\bpip[ \t]*(?:<=?|==?|~=)[ \t]*(?:24\.0|2[0-3]\b|1\d|24\.1(?!\d)|24\b)")
_UV = re.compile(r"\buv[ \t]+(?:pip|sync|add|run|venv)\b")


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """Each pin on such a release, or a range of nothing else."""
    del context
    texts = [file.source.text for file in (*doc.files, *doc.commands)]
    if any(_OLD.search(text) or _UV.search(text) for text in texts):
        return
    is_new = any(_NEW.search(text) for text in texts)
    told = set()
    for file in doc.files:
        for name in _refused():
            for bound in file.bounds.get(name, ()):
                release = _only(name, bound)
                if bound.origin is None or not release or name in told or "conda" in file.name:
                    continue
                told.add(name)
                yield _finding(name, bound, release, Severity.WARNING if is_new else Severity.INFO)


@cache
def _refused() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = load_file("refused_metadata.json")["releases"]
    return found


def _only(name: str, bound: Bound) -> str:
    """The newest release that a bound takes, where all of them are refused."""
    if not bound.specifier or bound.taken_from:
        return ""
    refused = _refused()[name]
    every = {*refused, *(release.version for release in releases_of(name))}
    taken = [release for release in every if contains(bound.specifier, release)]
    return max(taken, key=_order) if taken and all(release in refused for release in taken) else ""


def _order(release: str) -> tuple[int, ...]:
    found = version(release)
    return found.release if found is not None else ()


def _finding(name: str, bound: Bound, release: str, severity: Severity) -> Finding:
    assert bound.origin is not None
    valid = [each.version for each in releases_of(name) if each.version not in _refused()[name]]
    later = next((each for each in valid if _order(each) >= _order(release)), "")
    text = _refused()[name][release].partition(";")[0].strip()
    return META.finding(
        bound.origin,
        f"pip from 24.1 on finds no `{name}` {release}: it requires `{text}`",
        hint=f"Pin `{name}=={later}`, or `pip<24.1` beside it" if later else "Pin `pip<24.1` beside it",
        severity=severity,
        facts={"release": release},
    )
