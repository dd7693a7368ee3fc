"""Python is told to start a file as a module, or a module as a file.

The real interpreter runs with the words of the case, as every launcher starts it. As written it finds nothing to run;
as fixed the file runs. The controls are the same words where both spellings mean something.
"""

from __future__ import annotations

import os
import sys

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="module-as-path",
    summary="Python finds neither the module nor the file that it is told to start",
    rules=("DSL414",),
    flavour="plain",
    ranks=1,
    expect=Expect((Kind.RAISE,), r"No module named|__path__ attribute not found"),
    cases=(
        Case("path-behind-m", {"old": ["-m", "pkg/train.py"], "new": ["-m", "pkg.train"]}),
        Case("suffix-behind-m", {"old": ["-m", "train.py"], "new": ["-m", "train"]}),
        Case("folder-behind-m", {"old": ["-m", "pkg/train"], "new": ["-m", "pkg.train"]}),
        Case(
            "module-without-m",
            {"old": ["pkg.train"], "new": ["pkg/train.py"]},
            Expect((Kind.RAISE,), r"can't open file"),
        ),
        Case("module", {"old": ["-m", "pkg.train"], "new": ["pkg/train.py"]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The words that name nothing."""
    return _run(rank, rank.params["old"])


def fixed(rank: RankApi) -> Json:
    """The words that name the file."""
    return _run(rank, rank.params["new"])


def _run(rank: RankApi, words: list[str]) -> Json:
    os.makedirs("pkg", exist_ok=True)
    for path in ("train.py", "pkg/__init__.py", "pkg/train.py"):
        with open(path, "w", encoding="utf-8") as file:
            file.write("print('started')\n" if path.endswith("train.py") else "")
    # Without the site packages: this is about the search for one name.
    ran = rank.command([sys.executable, "-S", *words], patience=10.0)
    if ran["rc"]:
        said = ran["err"].strip().splitlines()[-1]
        # The name of the exception would look like a library that the probe itself lacks.
        said = said.partition(" (ModuleNotFoundError: ")[2] or said
        raise RuntimeError(said)
    return "started" in ran["out"]


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case that starts a module, or that starts a file, as the finding does."""
    if case.verdict is not Verdict.CONFIRMED:
        return None
    is_module = case.params["old"][0] == "-m"
    return {} if is_module == bool(subject.finding.fact("module")) else None
