"""What pip resolves is the judge of what installs together; its answers stand here as they were given.

Each set was put before `pip install --dry-run --ignore-installed --use-feature=fast-deps` of pip 23.2.1 on Python 3.11
on 2026-11-27; `False` is `ResolutionImpossible`.
"""

from __future__ import annotations

import pytest

from dslint.core.source import SourceFile
from dslint.model.versions.project import StatedFile
from dslint.model.versions.required import compatible, cuda_of, required_by
from dslint.model.versions.requirements import statements_of
from dslint.model.versions.solve import NoSolution, choose, holding, unsolved
from dslint.model.versions.ways import bounds_by_library

ASKED_OF_PIP = [
    ("transformers==4.44.2\ndiffusers==0.42.1\n", False),
    ("transformers>=4.45\ntokenizers==0.15.1\n", False),
    ("transformers==4.28.1\ntrl==0.12.0\n", False),
    ("peft==0.10.0\naccelerate\naccelerate==0.20.3\n", False),
    ("diffusers==0.38.0\naccelerate==0.23.0\ntransformers==4.38.0\npeft==0.5.0\n", True),
    ("torch~=1.10.0\ntorchvision==0.8.2\n", False),
    ("torch==2.1.2\ntorchvision==0.17.2\n", False),
    ("torch==2.1.2\ntorchvision==0.16.2\ntorchaudio==2.1.2\n", True),
    ("torch==2.3.1\nvllm==0.6.3\n", False),
    ("torch==2.4.0\nxformers==0.0.28\n", False),
    ("accelerate==0.32.1\nnumpy==2.1.0\n", False),
    ("transformers==4.42.4\nnumpy==1.26.4\n", True),
    ("torch==2.2.2\nxformers==0.0.25.post1\n", True),
    ("trl==0.19.1\ntransformers==4.49.0\n", False),
    ("peft==0.13.2\ntransformers==4.35.2\ntokenizers==0.19.1\n", False),
    ("sentence-transformers==5.0.0\ntransformers==4.40.2\n", False),
    ("lightning==2.5.0\ntorch==2.0.1\n", False),
    ("torchmetrics==1.6.0\ntorch==1.13.1\n", False),
    ("diffusers==0.35.2\nhuggingface-hub==0.20.3\n", False),
    ("datasets==3.6.0\nfsspec==2025.7.0\n", False),
    ("datasets==2.19.2\nfsspec==2024.3.1\nhuggingface-hub==0.23.0\n", True),
]


def solved(text: str, python: str = "3.11") -> NoSolution | None:
    source = SourceFile("requirements.txt", text)
    file = StatedFile(source, bounds_by_library(statements_of(source)))
    return unsolved({name: holding(bounds, python) for name, bounds in file.bounds.items()}, python)


@pytest.mark.parametrize(("text", "has_solution"), ASKED_OF_PIP)
def test_pip_says_the_same(text: str, has_solution: bool) -> None:
    assert (solved(text) is None) == has_solution


def test_the_chain_names_who_requires_what() -> None:
    found = solved("transformers==4.28.1\ntrl==0.12.0\n")
    assert found is not None
    assert (found.library, found.clash.owner, found.clash.release) == ("transformers", "trl", "0.12.0")
    assert found.clash.required == ("transformers", ">=4.46.0")


def test_two_requirements_of_a_third() -> None:
    found = solved("transformers==4.44.2\ndiffusers==0.42.1\n")
    assert found is not None
    assert found.clash.required.name == "huggingface-hub"
    assert found.clash.against
    assert found.clash.candidate == "0.42.1"


@pytest.mark.parametrize(
    "text",
    [
        "-e ./transformers\ntokenizers==0.15.1\n",  # nobody knows what the copy requires
        'transformers>=4.45; sys_platform == "win32"\ntokenizers==0.15.1\n',
        "transformers\ntokenizers==0.15.1\n",  # an older release goes with it
        "transformers==4.45.0\n",
    ],
)
def test_nothing_is_proved(text: str) -> None:
    assert solved(text) is None


def test_markers_of_the_metadata_hold_for_a_python() -> None:
    names = {python: {r.name for r in required_by("transformers", "4.28.1", python)} for python in ("3.7", "3.10")}
    assert names["3.7"] - names["3.10"] == {"importlib-metadata"}


@pytest.mark.parametrize(
    ("specifiers", "may"),
    [
        ((">=1.0", "<1.0"), False),
        ((">=1.0", "<=1.0"), True),
        (("==1.0", ">=0.9,<2"), True),
        (("==1.0", "==1.1"), False),
        (("==0.12.*", ">=0.13"), False),
        (("~=1.4", "<1.4"), False),
        (("", ">=3"), True),
        (("!=1.0", "==1.0"), False),
    ],
)
def test_ranges_that_some_version_lies_in(specifiers: tuple[str, ...], may: bool) -> None:
    assert compatible(specifiers) is may


def test_the_newest_that_go_together() -> None:
    domains = {"transformers": ["4.37.2"], "trl": ["0.9.6", "0.12.0", "1.0.0"]}
    assert choose(domains, "3.11") == {"transformers": "4.37.2", "trl": "0.9.6"}
    assert choose({"transformers": ["4.28.1"], "trl": ["0.12.0"]}, "3.11") == {}


def test_the_cuda_of_the_wheel_of_torch() -> None:
    """What `torch.version.cuda` says in each."""
    assert {release: cuda_of(release) for release in ("1.13.1", "2.0.1", "2.1.2", "2.4.1", "2.6.0", "2.8.0")} == {
        "1.13.1": "11.7", "2.0.1": "11.7", "2.1.2": "12.1", "2.4.1": "12.1", "2.6.0": "12.4", "2.8.0": "12.8",
    }  # fmt: skip
    assert cuda_of("1.12.0") is None
