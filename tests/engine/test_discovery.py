"""Which files are looked at: git's rules, excludes, content."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dslint.engine.discovery import Discovery, ExcludeSettings, discover, kind_by_content, kind_of
from dslint.engine.gitindex import tracked


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def shown(found: Discovery) -> list[str]:
    return [c.path for c in found.candidates]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (
        "train.py",
        "ds.json",
        "out/run.sh",
        "out/deep/a.py",
        "venv/lib/x.py",
        "notes.txt",
        "scripts/zero2.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    return tmp_path


def test_built_in_excludes_and_foreign_suffixes_are_left_out(project: Path) -> None:
    assert shown(discover(["."], ExcludeSettings())) == [
        "ds.json",
        "train.py",
        "out/run.sh",
        "out/deep/a.py",
        "scripts/zero2.json",
    ]


def test_gitignore_holds_with_and_without_a_git_checkout(project: Path) -> None:
    (project / ".gitignore").write_text("out/\n*.json\n!ds.json\n")
    assert shown(discover(["."], ExcludeSettings())) == ["ds.json", "train.py"]
    git(project, "init", "-q")
    assert shown(discover(["."], ExcludeSettings())) == ["ds.json", "train.py"]
    assert len(shown(discover(["."], ExcludeSettings(respect_gitignore=False)))) == 5


def test_a_gitignore_of_an_inner_folder_wins_over_the_outer_one(project: Path) -> None:
    (project / ".gitignore").write_text("*.sh\n")
    (project / "out" / ".gitignore").write_text("!run.sh\ndeep\n")
    assert shown(discover(["out"], ExcludeSettings())) == ["out/run.sh"]


def test_the_gitignore_above_the_given_folder_holds_inside_a_checkout(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.sh\n")
    assert shown(discover(["out"], ExcludeSettings())) == ["out/deep/a.py"]


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_tracked_files_are_never_ignored(project: Path, version: str) -> None:
    git(project, "init", "-q")
    git(project, "add", "-f", "scripts/zero2.json", "out/deep/a.py", "train.py")
    if version == "3":
        git(project, "update-index", "--skip-worktree", "train.py")
    git(project, "update-index", "--index-version", version)
    (project / ".gitignore").write_text("*.json\nout\n")
    tracked.cache_clear()
    assert shown(discover(["."], ExcludeSettings())) == ["train.py", "out/deep/a.py", "scripts/zero2.json"]


def test_a_broken_index_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for content in (b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\7short", b"nonsense" * 100):
        (tmp_path / ".git" / "index").write_bytes(content)
        tracked.cache_clear()
        assert tracked(str(tmp_path)) == frozenset()


def test_a_named_file_is_checked_in_spite_of_excludes_unless_forced(project: Path) -> None:
    assert shown(discover(["venv/lib/x.py"], ExcludeSettings())) == ["venv/lib/x.py"]
    assert shown(discover(["train.py"], ExcludeSettings(extend_exclude=("train.py",), force_exclude=True))) == []
    assert shown(discover(["./train.py", "train.py", "."], ExcludeSettings())).count("train.py") == 1


def test_forced_excludes_hold_for_files_below_an_excluded_folder(project: Path) -> None:
    forced = ExcludeSettings(root=str(project), extend_exclude=("out", "scripts/"), force_exclude=True)
    given = ["venv/lib/x.py", "out/deep/a.py", "scripts/zero2.json", "out/deep", "venv", "train.py"]
    assert shown(discover(given, forced)) == ["train.py"]
    # A folder above the project may be called like an excluded one.
    inside = ExcludeSettings(root=str(project / "out"), extend_exclude=("out",), force_exclude=True)
    assert shown(discover(["out/deep/a.py", "out/deep"], inside)) == ["out/deep/a.py"]


def test_a_named_folder_is_walked_in_spite_of_excludes_and_gitignore_unless_forced(project: Path) -> None:
    (project / ".gitignore").write_text("out/\n*.sh\n")
    git(project, "init", "-q")
    assert shown(discover(["out"], ExcludeSettings())) == ["out/deep/a.py"]
    assert shown(discover(["out/deep"], ExcludeSettings())) == ["out/deep/a.py"]
    (project / ".gitignore").unlink()
    for pattern in ("out", "out/", "/out", "o*", "**/out/**"):
        excludes = ExcludeSettings(extend_exclude=(pattern, "*.sh"))
        assert shown(discover(["out"], excludes)) == ["out/deep/a.py"], pattern
        assert shown(discover(["out/deep"], excludes)) == ["out/deep/a.py"], pattern
        assert shown(discover(["out"], replace(excludes, force_exclude=True))) == []
        assert "out/deep/a.py" not in shown(discover(["."], excludes))
    assert shown(discover(["venv/lib"], ExcludeSettings())) == ["venv/lib/x.py"]


def test_the_name_of_the_project_folder_itself_excludes_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "out/out").mkdir()
    (project / "out/out/b.py").write_text("x = 1\n")
    monkeypatch.chdir(project / "out")
    for pattern in ("out", "out/"):
        excludes = ExcludeSettings(root=str(project / "out"), extend_exclude=(pattern, "*.sh"))
        for given in (".", str(project / "out"), ".."):
            found = [path.rpartition("/")[2] for path in shown(discover([given], excludes))]
            assert "a.py" in found or given == "..", (pattern, given)
            assert "b.py" not in found


def test_missing_paths_are_named_and_the_others_go_on(project: Path) -> None:
    found = discover(["nowhere", "train.py", "a\0b"], ExcludeSettings())
    assert shown(found) == ["train.py"]
    assert [m.split(":")[0] for m in found.missing] == ["nowhere", "a\0b"]


def test_excludes_are_gitignore_patterns_relative_to_the_root(project: Path) -> None:
    found = discover(["."], ExcludeSettings(extend_exclude=("out/deep/", "scripts/*.json")))
    assert shown(found) == ["ds.json", "train.py", "out/run.sh"]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"#!/usr/bin/env python3\n", "script"),
        (b"#!/bin/bash -e\n", "shell"),
        (b"#!/bin/bash\n", "shell"),
        (b"#!/usr/bin/env bash\nsrun x", "shell"),
        (b"  {\n}", "json"),
        (b"\x7fELF", "-"),
        (b"", "-"),
    ],
)
def test_a_file_without_a_telling_name_is_judged_by_its_content(raw: bytes, kind: str) -> None:
    assert kind_by_content(raw) == kind


def test_suffixes_tell_the_kind() -> None:
    assert [kind_of(n) for n in ("a.PY", "run.sbatch", "ds.jsonc", "b.txt", "Makefile", "train")] == [
        "script", "shell", "json", "-", "makefile", "",
    ]  # fmt: skip
