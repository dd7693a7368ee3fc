"""The built wheel in a fresh virtual environment, used from another folder as by somebody who never saw the sources.

The source distribution needs no environment of its own: the wheel that it gives is the same, byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest
from command import SCRIPT, SCRIPT_FIXED

ROOT = Path(__file__).resolve().parents[2]
CONFIG = '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "overlap_com": true}\n}\n'


def clean_environment() -> dict[str, str]:
    """Nothing of this checkout and its environment may help the installed program."""
    drop = ("PYTHON", "PIP_TARGET", "VIRTUAL_ENV", "DSLINT_", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}


def run(*command: str | Path, cwd: Path, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean_environment(), input=stdin, capture_output=True, text=True
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def install(*command: str | Path, cwd: Path) -> None:
    """Run pip; without an index there is nothing to test."""
    done = run(*command, cwd=cwd, check=False)
    if done.returncode:
        probe = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "-d", cwd / "probe"]
        if run(*probe, "libcst", cwd=cwd, check=False).returncode:
            pytest.skip("pip reaches no package index from here")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("dslint", "schemas", "tests", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    install(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    install(scripts / "python", "-m", "pip", "install", "-q", wheel, "flake8", cwd=folder)
    return scripts


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "ds.json").write_text(CONFIG)
    return tmp_path


def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == "deepspeed_lint-0.1.0-py3-none-any.whl"
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"dslint", "deepspeed_lint-0.1.0.dist-info"}
    schemas = {p.relative_to(ROOT / "schemas").as_posix() for p in (ROOT / "schemas").rglob("*.json")}
    assert {f"dslint/_schemas/{name}" for name in schemas} | {"dslint/py.typed"} <= set(names)
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "dslint").rglob("*.py")}
    assert modules <= set(names)
    # Also data that is no module.
    assert {name for name in tracked("dslint") if "/" in name} <= set(names)


def test_the_source_distribution_holds_the_tests_and_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install(python, "-m", "pip", "install", "-q", "hatchling", cwd=tmp_path)
    run(python, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path / "dist", cwd=ROOT)
    (built,) = (tmp_path / "dist").iterdir()
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    committed = (
        *("tests/house/test_wheel.py", "tests/fixtures/projects/README.md"),
        *("scripts/test.sh", "docs/rules/README.md"),
    )
    assert {*committed, "LICENSE", "CHANGELOG.md", "schemas/deepspeed/history.json"} <= names
    assert tracked() <= names
    unwanted = (".git/", ".venv", "shared", "site/", "editors/vscode/dist/")
    assert not [name for name in names if name.startswith(unwanted) or name.endswith((".pyc", ".vsix"))]
    assert not [name for name in names if "/node_modules/" in name]
    described(wheel, built)
    install(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "again", built, cwd=tmp_path)
    (again,) = (tmp_path / "again").iterdir()
    assert contents(again) == contents(wheel)


def tracked(*folders: str) -> set[str]:
    """The committed files that are there; none outside a checkout."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def described(*files: Path) -> None:
    """The index of packages would show them."""
    pytest.importorskip("twine", reason="twine is not installed: pip install '.[test]'")
    done = run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=files[0].parent)
    assert done.stdout.count("PASSED") == len(files)


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_steps_of_the_image_give_a_program_that_works(tmp_path: Path) -> None:
    """There is no Docker here: what the Dockerfile copies and runs is copied and run beside an empty environment."""
    text = (ROOT / "Dockerfile").read_text()
    build, install_root = tmp_path / "build", tmp_path / "install"
    build.mkdir()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        *sources, target = line.split()
        for name in sources:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, build / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, build / target)
    venv.create(tmp_path / "venv", with_pip=True)
    (step,) = re.findall(r"^RUN pip (.*)$", text, re.M)
    install(tmp_path / "venv/bin/pip", *step.replace("/install", str(install_root)).split(), cwd=build)
    (packages,) = install_root.glob("lib/python*/site-packages")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.M)
    # Beside and not around what was built: it would be checked, too.
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/train.py").write_text(SCRIPT)
    command = [str(install_root / "bin" / json.loads(entry)[0]), "--output-format", "concise"]
    environment = {**clean_environment(), "PYTHONPATH": str(packages), "DSLINT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path / "project", env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "train.py:5:5: DSL201 " in done.stdout


def test_the_metadata_say_what_the_project_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        info = "deepspeed_lint-0.1.0.dist-info"
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["Name"] == "deepspeed-lint"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in licence
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert "dslint = dslint.cli:main" in entry_points
    assert "DSL = dslint.integrations.flake8:Plugin" in entry_points


def test_the_installed_program_works_from_any_folder(bin_folder: Path, project: Path) -> None:
    where = run(bin_folder / "python", "-c", "import dslint; print(dslint.__file__)", cwd=project).stdout
    assert where.startswith(str(bin_folder.parent)), "this test must not see the checkout"
    assert run(bin_folder / "dslint", "--version", cwd=project).stdout == "dslint 0.1.0\n"
    assert run(bin_folder / "dslint", "rules", cwd=project).stdout.startswith("DSL101")
    assert "## Reported" in run(bin_folder / "dslint", "rule", "overlap-comm-old-version", cwd=project).stdout
    cache = ("--cache-dir", project / ".git/cache")
    found = run(bin_folder / "dslint", *cache, "--output-format", "json", cwd=project, check=False)
    assert found.returncode == 1, found.stderr
    # DSL102 needs the schema, which the wheel carries.
    assert {"DSL102", "DSL221", "DSL201"} <= {f["code"] for f in json.loads(found.stdout)["findings"]}
    for output_format in ("full", "sarif", "github"):
        done = run(bin_folder / "dslint", *cache, "--output-format", output_format, cwd=project, check=False)
        assert (done.returncode, "DSL102" in done.stdout) == (1, True)
    run(bin_folder / "python", "-m", "dslint", *cache, "--fix", "train.py", cwd=project)
    assert (project / "train.py").read_text() == SCRIPT_FIXED


def test_a_mistake_in_the_settings_is_explained_by_the_installed_program(bin_folder: Path, project: Path) -> None:
    (project / "dslint.toml").write_text("slect = []\n")
    done = run(bin_folder / "dslint", cwd=project, check=False)
    assert (done.returncode, done.stderr) == (2, "dslint: dslint.toml:1: unknown key `slect`; did you mean `select`?\n")


def test_flake8_finds_the_plugin(bin_folder: Path, project: Path) -> None:
    version = run(bin_folder / "python", "-m", "flake8", "--version", cwd=project).stdout
    assert "deepspeed-lint: 0.1.0" in version
    done = run(bin_folder / "python", "-m", "flake8", "--select", "DSL", "train.py", cwd=project, check=False)
    assert "train.py:5:5: DSL201 " in done.stdout


def test_the_installed_package_is_typed(bin_folder: Path, project: Path) -> None:
    (project / "use.py").write_text(
        "import dslint\nfrom dslint.settings import make_settings\nreveal_type(make_settings({}))\n"
        "reveal_type(dslint.check(['train.py'], world_size=8))\nreveal_type(dslint.preflight(fail_on='error').ok)\n"
        "dslint.check('train.py', wrld_size=8)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", str(bin_folder / "python"), "use.py"],
        cwd=project, env=clean_environment(), capture_output=True, text=True,
    )  # fmt: skip
    for found in ("dslint.settings.table.Settings", "dslint.runner.report.Report", "bool"):
        assert f'Revealed type is "{found}"' in done.stdout, done.stdout
    assert 'Unexpected keyword argument "wrld_size"' in done.stdout
