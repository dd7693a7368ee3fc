"""``-r`` and ``-c`` lines of requirements files are followed to the file that pins, inside the project only."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.engine.surroundings import Surroundings
from dslint.model.context import VersionFact
from dslint.model.versions.includes import included_paths
from dslint.settings import make_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def deepspeed(path: str = "ds.json") -> VersionFact:
    return Surroundings(make_settings({}), {}).context(path).deepspeed


def shown(fact: VersionFact) -> str:
    assert fact.origin is not None
    return f"{fact.specifier} {fact.origin.path}:{fact.origin.region.line} {fact.stated_by}"


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("-r other.txt", ["other.txt"]),
        ("-rother.txt", ["other.txt"]),
        ("  -c ../constraints.txt  # why", ["../constraints.txt"]),
        ("--requirement base", ["base"]),
        ("--constraint=c.txt", ["c.txt"]),
        ("-r 'with space.txt'", ["with space.txt"]),
        ("-r a.txt\r\n-c b.txt\r\n-r a.txt\r\n", ["a.txt", "b.txt"]),
        ("# -r other.txt", []),
        ("numpy  # via -r base.in", []),
        ("-r https://example.org/requirements.txt", []),
        ("-r\n--no-binary x\n-r", []),
        ("-e .\n--extra-index-url x\n-f links", []),
    ],
)
def test_the_lines_that_name_another_file(line: str, paths: list[str]) -> None:
    assert included_paths(SourceFile("requirements.txt", line)) == paths


def test_an_included_file_pins_and_is_the_origin(project: Path) -> None:
    write(project, {"requirements.txt": "numpy\n-r deps/gpu.pip\n", "deps/gpu.pip": "torch\n\ndeepspeed==0.12.6\n"})
    assert shown(deepspeed()) == "==0.12.6 deps/gpu.pip:3 gpu.pip"


def test_paths_are_relative_to_the_file_that_names_them(project: Path) -> None:
    write(
        project,
        {
            "requirements.txt": "-r deps/train.txt\n",
            "deps/train.txt": "-c pins.cfg\ndeepspeed>=0.12\n",
            "deps/pins.cfg": "deepspeed==0.14.2\n",
            "pins.cfg": "deepspeed==0.1.0\n",
        },
    )
    assert shown(deepspeed()) == "==0.14.2 deps/pins.cfg:1 pins.cfg"


def test_what_holds_together_is_joined_and_contradictions_say_nothing(project: Path) -> None:
    write(project, {"requirements.txt": "deepspeed>=0.12\n-c upper\n", "upper": "deepspeed<0.15\n"})
    assert shown(deepspeed()) == ">=0.12,<0.15 requirements.txt:1 requirements.txt"
    write(project, {"requirements.txt": "deepspeed==0.12.6\n-c upper\n", "upper": "deepspeed==0.13.0\n"})
    assert not deepspeed().is_known


def test_cycles_end_and_missing_files_and_folders_are_skipped(project: Path) -> None:
    write(
        project,
        {
            "requirements.txt": "-r requirements.txt\n-r missing.txt\n-r folder\n-r a/one\n",
            "a/one": "-r two\n-r ../requirements.txt\n",
            "a/two": "-r one\ndeepspeed==0.16.9\n",
            "folder/keep": "",
        },
    )
    assert shown(deepspeed()) == "==0.16.9 a/two:2 two"


def test_nothing_outside_the_project_is_read(project: Path) -> None:
    outside = project.parent / "outside.txt"
    outside.write_text("deepspeed==0.1.0\n")
    (project / "link").symlink_to(outside)
    write(project, {"requirements.txt": f"-r ../outside.txt\n-r {outside}\n-r link\n"})
    assert not deepspeed().is_known


def test_an_inner_file_may_name_one_at_the_root(project: Path) -> None:
    write(project, {"pins": "deepspeed==0.15.1\n", "packages/a/requirements.txt": "-r ../../pins\ndeepspeed\n"})
    assert shown(deepspeed("packages/a/ds.json")) == "==0.15.1 pins:1 pins"
    assert not deepspeed("ds.json").is_known


def test_a_long_chain_of_files_ends(project: Path) -> None:
    write(project, {f"r{i}": f"-r r{i + 1}\n" for i in range(80)})
    write(project, {"requirements.txt": "-r r0\n", "r80": "deepspeed==0.12.6\n"})
    assert not deepspeed().is_known


def test_what_a_text_tells_counts_only_where_no_file_states_a_version(project: Path) -> None:
    write(project, {"README.md": "pip install deepspeed==0.9.5 torch==2.1.0\n", "examples/README.md": "# Examples\n"})
    assert deepspeed("examples/ds.json").specifier == "==0.9.5"
    write(project, {"examples/install.sh": "pip install deepspeed==0.12.6\n"})
    assert deepspeed("examples/ds.json").specifier == "==0.12.6"
    assert deepspeed().specifier == "==0.9.5"
    write(project, {"requirements.txt": "deepspeed>=0.9\n"})
    assert deepspeed("examples/ds.json").specifier == ">=0.9"
    torch = Surroundings(make_settings({}), {}).context("ds.json").libraries["torch"]
    assert str(torch.origin) == "README.md:1"
