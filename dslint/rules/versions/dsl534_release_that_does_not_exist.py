"""**What.** A pin on a release that was never made: `accelerate==0.32.2`, `transformers==4.29.9`.

**Why it hurts.** pip stops with `No matching distribution found`, and nothing of the file is installed.

**Fix.** Write a release that exists; the hint names the nearest one.

**When it stays quiet.** The release is newer than those that dslint knows, a pre-release or a development release; the
file names another index (`--index-url`, `--extra-index-url`, `--find-links`); conda installs it; the library is not
followed.

**Evidence.** The releases that the index lists (`schemas/releases.json`), yanked ones among them;
`pip install --dry-run --no-deps` of pip 23.2.1 found none of the bad examples, and `accelerate==0.32.1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.versions.known import release_of, releases_of
from dslint.model.versions.project import Requirements
from dslint.model.versions.ranges import pin_of, version
from dslint.model.versions.requirements import FOLLOWED
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL534",
    name="release-that-does-not-exist",
    kind="versions",
    severity=Severity.ERROR,
    summary="A pin on a release of a library that was never made",
    references=("https://packaging.python.org/en/latest/specifications/version-specifiers/",),
    depends_on_run=True,
    no_experiment="no training begins: the installer finds nothing to install",
)

_TRAIN = {"train.py": "import transformers\n"}

EXAMPLES = (
    bad("a patch that was never made", {
        "requirements.txt": "torch\naccelerate==0.32.2\n", **_TRAIN,
    }, "requirements.txt:2 error"),
    bad("in pyproject.toml", {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["transformers==4.29.9"]\n', **_TRAIN,
    }, "pyproject.toml:4 error"),
    good("a release", {"requirements.txt": "accelerate==0.32.1\n", **_TRAIN}),
    good("newer than all that are known", {"requirements.txt": "accelerate==99.0.0\n", **_TRAIN}),
    good("another index", {
        "requirements.txt": "--extra-index-url https://example.org/simple\naccelerate==0.32.2\n", **_TRAIN,
    }),
    good("a release candidate", {"requirements.txt": "transformers==4.0.0rc1\n", **_TRAIN}),
)  # fmt: skip

_OTHER_INDEX = re.compile(
    r"index-url|find-links|^[ \t]*-[if][ \t=]|index_url|\[\[tool\.(uv\.index|poetry\.source)", re.M
)
# conda has releases of its own (`pytorch=1.8.2`), and what a text tells may be an example.
_NOT_PIP = re.compile(r"\.(ya?ml|md|sh)$|dockerfile", re.I)


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """Every pin of a library that is followed."""
    del context
    for file in doc.files:
        if _NOT_PIP.search(file.name) or _OTHER_INDEX.search(file.source.text):
            continue
        for name in FOLLOWED:
            for bound in file.bounds.get(name, ()):
                pin = pin_of(bound.specifier)
                if pin is None or bound.origin is None or not _is_missing(name, pin):
                    continue
                yield META.finding(
                    bound.origin,
                    f"`{name}` has no release {pin}: pip finds nothing to install",
                    hint=f"Write `{name}=={_nearest(name, pin)}`",
                )


def _is_missing(name: str, pin: str) -> bool:
    """A final release below the newest known one, of which no index knows."""
    wanted, releases = version(pin), releases_of(name)
    newest = version(releases[-1].version) if releases else None
    if wanted is None or newest is None or wanted.is_prerelease or wanted >= newest:
        return False
    return release_of(name, pin) is None


def _nearest(name: str, pin: str) -> str:
    """The newest release below the pin, else the oldest."""
    wanted = version(pin)
    below = [r.version for r in releases_of(name) if (v := version(r.version)) is not None and wanted and v < wanted]
    return below[-1] if below else releases_of(name)[0].version
