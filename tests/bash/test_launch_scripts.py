"""The real bash runs every script of ``scripts/``: what dslint knows about its launch commands is what bash passes.

The comments ``# run: [NAME=value ...] [arguments]`` of a script say with which input it is run, one run each.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bashrun.comparing import Figures, Inputs, compare_script
from bashrun.sandbox import Sandbox

FOLDER = Path(__file__).resolve().parent
SCRIPTS = FOLDER / "scripts"
NAMES = sorted(path.name for path in SCRIPTS.glob("*.sh"))
GROUPS = 4
# They name programs and folders of a machine by absolute paths: only a root of their own has them.
NEED_A_ROOT = ("absolute-path.sh", "numactl-time.sh", "srun-container.sh")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        made.add_programs((SCRIPTS / name).read_text() for name in NAMES)
        yield made


def inputs_of(text: str) -> list[Inputs]:
    found = []
    for line in re.findall(r"^# run:(.*)$", text, re.MULTILINE):
        words = shlex.split(line)
        count = next((i for i, w in enumerate(words) if not re.match(r"[A-Z_]+=", w)), len(words))
        pairs = (w.partition("=") for w in words[:count])
        found.append(Inputs(tuple(words[count:]), tuple((name, value) for name, _, value in pairs)))
    return found or [Inputs()]


def test_there_are_scripts_for_every_form() -> None:
    assert len(NAMES) >= 150


@pytest.mark.parametrize("group", range(GROUPS))
def test_bash_passes_what_dslint_reads(sandbox: Sandbox, group: int) -> None:
    total = Figures()
    idle = []
    for name in NAMES[group::GROUPS]:
        if name in NEED_A_ROOT and not sandbox.isolated:
            continue
        figures = compare_script(sandbox, FOLDER, f"scripts/{name}", inputs_of((SCRIPTS / name).read_text()))
        total.add(figures)
        idle += [] if figures.commands else [name]
    assert not total.differences, "\n".join(difference.told() for difference in total.differences)
    assert not idle, "no command of these was compared"
    assert not total.not_seen
    assert total.identical >= 0.99 * total.complete
    assert total.known >= 0.95 * total.words
