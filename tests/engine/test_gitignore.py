"""The excludes of a user and of a checkout hold for files that git does not track, as git itself judges them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dslint.engine.discovery import ExcludeSettings, discover

FILES = ("ds.json", "own/ds.json", "own/keep.json", "train.py", "deep/own/run.sh")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without settings of git, so that those of the machine do not count."""
    home = tmp_path / "home"
    (home / ".config/git").mkdir(parents=True)
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    monkeypatch.chdir(root)
    git("init", "-q")
    return root


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def both(*paths: str) -> set[str]:
    """What is looked at, which must be what git neither tracks nor ignores."""
    found = {c.path for c in discover(paths or ["."], ExcludeSettings()).candidates}
    judged = git("ls-files", "-co", "--exclude-standard", *paths).splitlines()
    assert found == {path for path in judged if not path.endswith(".gitignore")}
    return found


def test_the_excludes_of_the_checkout_hold(project: Path) -> None:
    (project / ".git/info/exclude").write_text("own/\n!deep/own/\n*.py\n")
    assert both() == {"ds.json", "deep/own/run.sh"}
    assert both("deep") == {"deep/own/run.sh"}


@pytest.mark.parametrize(
    ("config", "ignores"),
    [
        ("", ".config/git/ignore"),
        ("[core]\n\texcludesFile = ~/mine\n", "mine"),
        ('[core]\n\teditor = vi\n\tExcludesfile="~/mine" ; why\n', "mine"),
        ("[core] excludesfile = ~/mine # why\n", "mine"),
        (
            '[core "x"]\nexcludesfile = ~/other\n[CORE]\nexcludesfile=~/first\n[user]\n[core]\nexcludesfile=~/mine\n',
            "mine",
        ),
        ("[alias]\nexcludesfile = ~/other\n", ".config/git/ignore"),
    ],
)
def test_the_excludes_of_the_user_hold(project: Path, home: Path, config: str, ignores: str) -> None:
    (home / ".gitconfig").write_text(config)
    (home / "other").write_text("*\n")
    (home / "first").write_text("*\n")
    (home / ignores).write_text("own/*.json\n!keep.json\n*.sh\n")
    assert both() == {"ds.json", "own/keep.json", "train.py"}


def test_no_excludes_file_on_purpose(project: Path, home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\nexcludesfile =\n")
    (home / ".config/git/ignore").write_text("*\n")
    assert both() == set(FILES)


def test_the_configuration_of_the_checkout_is_stronger_and_the_nearest_pattern_decides(
    project: Path, home: Path
) -> None:
    (home / "weak").write_text("*.py\n")
    (home / "strong").write_text("*.json\n*.sh\n")
    (home / ".gitconfig").write_text("[core]\nexcludesfile = ~/weak\n")
    git("config", "core.excludesFile", str(home / "strong"))
    (project / ".git/info/exclude").write_text("!ds.json\n")
    (project / "own/.gitignore").write_text("ds.json\n")
    assert both() == {"ds.json", "train.py"}


def test_the_file_in_the_home_is_stronger_than_the_one_in_the_configuration_folder(project: Path, home: Path) -> None:
    (home / "weak").write_text("*.py\n")
    (home / "strong").write_text("*.json\n")
    (home / ".config/git/config").write_text("[core]\nexcludesfile = ~/weak\n")
    (home / ".gitconfig").write_text("[core]\nexcludesfile = ~/strong\n")
    assert both() == {"train.py", "deep/own/run.sh"}


def test_a_tracked_file_is_looked_at_in_spite_of_the_excludes(project: Path, home: Path) -> None:
    git("add", "own/ds.json")
    (home / ".config/git/ignore").write_text("*.json\n*.sh\n")
    assert both() == {"own/ds.json", "train.py"}


def test_a_worktree_has_the_excludes_of_its_checkout(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-q", "--allow-empty", "-m", "start")
    git("worktree", "add", "-q", str(project.parent / "tree"))
    (project / ".git/info/exclude").write_text("*.json\n")
    monkeypatch.chdir(project.parent / "tree")
    for name in ("ds.json", "train.py"):
        Path(name).write_text("x = 1\n")
    assert both() == {"train.py"}


def test_configurations_that_cannot_be_read_state_nothing(project: Path, home: Path) -> None:
    (home / ".gitconfig").write_bytes(b"[core\n excludesfile = \xff\0\n[core]\n")
    (project / ".git/config").unlink()
    (project / ".git/config").mkdir()
    found = discover(["."], ExcludeSettings())
    assert {c.path for c in found.candidates} == set(FILES)
