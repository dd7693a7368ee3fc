"""What several commands leave in one environment; pip is the judge of the first part.

Each list of commands was run one after the other by pip 23.2.1 on Python 3.11 in an empty environment on 2026-11-27;
what `pip list` said after each stands here.
"""

from __future__ import annotations

import pytest

from dslint.core.source import SourceFile
from dslint.model.versions.known import releases_of
from dslint.model.versions.project import StatedFile
from dslint.model.versions.replay import replay
from dslint.model.versions.requirements import statements_of
from dslint.model.versions.steps import Course, courses
from dslint.model.versions.ways import bounds_by_library

NEWEST = "newest"
ASKED_OF_PIP = [
    (
        "tokenizers==0.19.1 huggingface_hub==0.30.2",
        {"tokenizers": "0.19.1", "huggingface-hub": "0.30.2"},
    ),
    (
        "transformers==4.56.1",
        {"tokenizers": "0.22.2", "huggingface-hub": "0.36.2", "transformers": "4.56.1"},
    ),
    ("huggingface_hub", {"tokenizers": "0.22.2", "huggingface-hub": "0.36.2", "transformers": "4.56.1"}),
    ("-U huggingface_hub", {"tokenizers": "0.22.2", "huggingface-hub": NEWEST, "transformers": "4.56.1"}),
]
OTHERS = [
    ("transformers==4.44.2", {"tokenizers": "0.19.1", "huggingface-hub": "0.36.2", "transformers": "4.44.2"}),
    ("--no-deps tokenizers==0.20.3", {"tokenizers": "0.20.3", "transformers": "4.44.2"}),
    ("transformers==4.44.2", {"tokenizers": "0.19.1", "transformers": "4.44.2"}),
]


def read(name: str, text: str, **files: str) -> list[Course]:
    """The environments of a file, beside others."""
    source = SourceFile(name, text)
    own = StatedFile(source, bounds_by_library(statements_of(source)))
    beside = [SourceFile(f"{other}.txt", content) for other, content in files.items()]
    stated = [StatedFile(each, bounds_by_library(statements_of(each))) for each in beside]
    return list(courses(own, [own, *stated], "3.11"))


def left(text: str, name: str = "Dockerfile", **files: str) -> dict[str, str]:
    (course,) = read(name, text, **files)
    return replay(course, "3.11").releases


@pytest.mark.parametrize("commands", [ASKED_OF_PIP, OTHERS])
def test_pip_leaves_the_same_after_each_command(commands: list[tuple[str, dict[str, str]]]) -> None:
    text = "FROM python:3.11\n"
    for command, expected in commands:
        text += f"RUN pip install {command}\n"
        found = left(text)
        for name, release in expected.items():
            newest = [row.version for row in releases_of(name) if not row.is_yanked][-1]
            assert found[name] == (newest if release == NEWEST else release), (text, name)


def test_an_image_of_torch_brings_torch_and_hides_what_it_has_beside() -> None:
    image = "FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\n"
    found = left(image + "RUN pip install torchvision timm==0.9.16\n")
    assert found["torch"] == "2.1.2"
    assert "torchvision" not in found
    assert left(image + "RUN pip install torchvision==0.16.2\n")["torchvision"] == "0.16.2"


def test_requirement_files_count_where_they_are_there() -> None:
    text = "FROM python:3.11\nRUN pip install -r requirements.txt\n"
    assert left(text, requirements="transformers==4.44.2\n")["transformers"] == "4.44.2"
    assert read("Dockerfile", text) == []


def test_each_stage_and_each_job_is_an_environment_of_its_own() -> None:
    stages = read(
        "Dockerfile", "FROM python:3.10 AS a\nRUN pip install peft==0.7.1\nFROM python:3.11\nRUN pip install trl\n"
    )
    assert [set(course.steps[-1].bounds) for course in stages] == [{"peft"}, {"trl"}]
    jobs = "jobs:\n  one:\n    steps:\n      - run: pip install peft==0.7.1\n"
    jobs += '  two:\n    steps:\n      - with:\n          python-version: "3.9"\n      - run: pip install trl==0.7.4\n'
    one, two = read(".github/workflows/test.yml", jobs)
    assert (one.python, two.python) == ("", "3.9")
    assert set(two.steps[0].bounds) == {"trl"}


@pytest.mark.parametrize(
    "command",
    [
        "pip install git+https://github.com/huggingface/peft",
        "conda install pytorch",
        "poetry install",
        "pip install -c constraints.txt peft",
        "curl https://example.org/setup | sh",
        "pip install --pre torch",
    ],
)
def test_what_is_not_understood_ends_the_replay(command: str) -> None:
    assert read("Dockerfile", f"FROM python:3.11\nRUN pip install transformers==4.44.2\nRUN {command}\n") == []


def test_what_is_taken_away_or_unknown_is_not_there() -> None:
    text = "FROM python:3.11\nRUN pip install peft==0.7.1\nRUN pip uninstall -y peft\n"
    assert "peft" not in left(text)
    assert "peft" not in left("FROM python:3.11\nRUN pip install peft==0.7.1\nRUN pip install peft==$PEFT\n")
    assert left("FROM python:3.11\nRUN mim install mmcv==2.1.0\n")["mmcv"] == "2.1.0"


def test_scripts_that_choose_are_not_replayed() -> None:
    assert read("setup.sh", 'if [ "$1" = gpu ]; then\n  pip install torch==2.1.2\nfi\n') == []
    assert left("pip install transformers==4.44.2\n", "setup.sh")["tokenizers"] == "0.19.1"
