"""``dslint versions``: what files state, what the code runs with, what a fresh install takes and what to pin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dslint
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dslint.model.versions.known import releases_of
from dslint.model.versions.required import required_by

TRAIN = "from peft import LoraConfig, prepare_model_for_kbit_training\n\nprint(LoraConfig)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / name.replace("__", ".")).write_text(text)


def libraries(*arguments: str) -> dict[str, dict[str, object]]:
    done = dslint("versions", "--output-format", "json", *arguments)
    return {found["name"]: found for found in json.loads(done.out)["libraries"]}


def test_the_code_limits_the_releases_and_says_where(project: Path) -> None:
    write(project, train__py=TRAIN)
    found = libraries(".")["peft"]
    assert found["state"] == "nothing said"
    assert found["works"][0] == "0.4.0"
    assert found["below"] == {"lacks": "peft.prepare_model_for_kbit_training", "file": "train.py", "line": 1}
    assert found["above"] is None
    assert found["pin"] == found["fresh"] == releases_of("peft")[-1].version


def test_files_and_code_are_taken_together(project: Path) -> None:
    write(project, train__py=TRAIN, requirements__txt="peft<0.6\n")
    found = libraries(".")["peft"]
    assert found["together"] == ["0.4.0", "0.5.0"]
    assert found["bounds"] == [
        {"specifier": "<0.6", "stated_by": "requirements.txt", "file": "requirements.txt", "line": 1}
    ]
    assert found["pin"] == "0.5.0"
    assert dslint("versions", ".").code == 0


def test_a_pin_that_the_code_does_not_run_with(project: Path) -> None:
    write(project, train__py=TRAIN, requirements__txt="peft==0.3.0\n")
    done = dslint("versions", ".")
    assert done.code == 1
    assert "no release that the files allow has all that the code uses" in done.out
    assert "older ones lack peft.prepare_model_for_kbit_training (train.py:1)" in done.out


def test_a_guard_is_no_limit(project: Path) -> None:
    text = "try:\n    from peft import prepare_model_for_kbit_training\nexcept ImportError:\n    pass\nimport peft\n"
    write(project, train__py=text)
    assert libraries(".")["peft"]["below"] is None


def test_what_to_pin_goes_together(project: Path) -> None:
    """Newer trl requires newer transformers: 0.13.0 asks for 4.46, and 0.12.2 for none below 4.47."""
    write(project, train__py="import transformers\nimport trl\n", requirements__txt="transformers==4.37.2\ntrl\n")
    found = libraries(".")
    assert found["transformers"]["pin"] == "4.37.2"
    pin = str(found["trl"]["pin"])
    assert pin.startswith("0.")
    assert all(
        "4.37.2" in SpecifierSet(required.specifier)
        for required in required_by("trl", pin, "3.12")
        if required.name == "transformers"
    )
    assert found["trl"]["fresh"] == releases_of("trl")[-1].version


def test_requirements_are_lines_that_pip_reads(project: Path) -> None:
    write(project, train__py=TRAIN, requirements__txt="torch==2.1.2\npeft\n-e ./transformers\n")
    done = dslint("versions", "--requirements", ".")
    lines = [line for line in done.out.splitlines() if not line.startswith("#")]
    assert [str(Requirement(line)) for line in lines] == lines
    assert "torch==2.1.2" in lines
    assert "# transformers: a local copy is installed" in done.out


def test_the_python_is_said_with_its_place(project: Path) -> None:
    write(project, train__py=TRAIN, Dockerfile="FROM python:3.9\nRUN pip install peft\n")
    done = dslint("versions", ".")
    assert done.out.startswith("Python 3.9 (Dockerfile:1)\n")
    # The last release of peft for Python 3.9.
    assert libraries(".")["peft"]["fresh"] == "0.17.1"


def test_flags_beat_files(project: Path) -> None:
    write(project, train__py="import transformers\n", requirements__txt="transformers==4.37.2\n")
    assert libraries("--transformers-version", "4.40.1", ".")["transformers"]["pin"] == "4.40.1"


@pytest.mark.parametrize("arguments", [("-",), ("missing",), ("--config", "missing.toml", ".")])
def test_wrong_usage(project: Path, arguments: tuple[str, ...]) -> None:
    assert dslint("versions", *arguments).code == 2


def test_nothing_to_show(project: Path) -> None:
    write(project, train__py="print()\n")
    done = dslint("versions", ".")
    assert (done.code, done.err) == (0, "dslint: no library that is followed is imported or stated in these paths\n")


def test_output_goes_to_a_file(project: Path) -> None:
    write(project, train__py=TRAIN)
    done = dslint("versions", "--requirements", "-o", "pins.txt", ".")
    assert done.out == ""
    assert (project / "pins.txt").read_text().startswith("peft==")
