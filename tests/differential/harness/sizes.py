"""What is compared at which size: the default fits the test command, the full one takes its time."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.model.deepspeed.schema import load_schema
from harness import comparing, hosted, trees
from harness.cases import Case, drawn, grid, seeded, triples

NEWEST = "0.19.8"
OLDER = ("0.12.6", "0.15.4", "0.17.6")


@dataclass(frozen=True, slots=True)
class Size:
    """``mutants`` of each kind and seed; of each thousand cases ``share`` are judged, ``engines`` of them trained."""

    mutants: int
    share: int
    engines: int


# Mutants of each kind and seed, and of each thousand cases before the engine.
HOSTED = {False: (1, 30), True: (3, 100)}
NORMAL = {"seeded": Size(1, 200, 30), "grid": Size(0, 80, 15), "triples": Size(0, 80, 0), "older": Size(1, 30, 40)}
FULL = {
    "seeded": Size(2, 1000, 100),
    "grid": Size(0, 600, 40),
    "triples": Size(0, 1000, 10),
    "older": Size(1, 300, 60),
}


def cases(what: str, full: bool) -> list[Case]:
    """The cases of a group: ``seeded`` | ``grid`` | ``triples`` | ``older``."""
    size = (FULL if full else NORMAL)[what]
    made = {"grid": lambda: grid(load_schema()), "triples": triples}.get(what, lambda: seeded(size.mutants))
    return drawn(made(), size.share)


def row(what: str, full: bool, release: str = NEWEST) -> comparing.Row | None:
    """The comparison for plain DeepSpeed; ``None`` when the release cannot be had."""
    tree = trees.tree(release) if release != NEWEST else None
    if release != NEWEST and tree is None:
        return None
    size = (FULL if full else NORMAL)[what]
    return comparing.Row(
        f"deepspeed {what}", release, tuple(comparing.plain(cases(what, full), release, tree, size.engines))
    )


def trainer(full: bool) -> comparing.Row:
    """The comparison for the Trainer of transformers."""
    count, engines = HOSTED[full]
    return hosted.trainer_row(list(hosted.trainer_cases(count)), NEWEST, engines)


def accelerate(full: bool) -> comparing.Row:
    """The comparison for files of ``accelerate launch``."""
    return hosted.launcher_row(list(hosted.launcher_cases(HOSTED[full][0])), NEWEST)
