"""When the rules about requirement files are asked, and how they are told to be quiet."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import dslint

CLASH = "transformers==4.44.2\ndiffusers==0.42.1\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(CLASH)
    return tmp_path


def codes(*arguments: str) -> list[str]:
    done = dslint("--no-cache", "--output-format", "concise", *arguments)
    return [line.split()[1] for line in done.out.splitlines() if line.startswith("requirements")]


def test_a_run_without_python_does_not_ask(project: Path) -> None:
    assert codes(".") == []
    (project / "train.py").write_text("print()\n")
    assert codes(".") == ["DSL530"]


def test_a_file_that_the_user_names_is_judged_alone(project: Path) -> None:
    assert codes("requirements.txt") == ["DSL530"]
    assert codes("--ignore", "DSL530", "requirements.txt") == []


def test_a_comment_silences_its_line(project: Path) -> None:
    text = CLASH.replace("4.44.2", "4.44.2  # dslint: ignore[DSL530] the image overrides it")
    (project / "requirements.txt").write_text(text)
    assert codes("requirements.txt") == []


def test_settings_silence_a_file(project: Path) -> None:
    (project / "dslint.toml").write_text('[per-file-ignores]\n"requirements*.txt" = ["DSL530"]\n')
    assert codes("requirements.txt") == []


def test_files_of_a_folder_speak_for_the_folder_around(project: Path) -> None:
    (project / "requirements.txt").unlink()
    (project / "requirements").mkdir()
    (project / "requirements" / "train.txt").write_text(CLASH)
    assert codes("requirements/train.txt") == ["DSL530"]
