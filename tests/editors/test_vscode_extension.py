"""The VS Code extension: npm installs, checks, builds, tests and packages it; its tables are those of dslint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from dslint import __version__
from dslint.engine.discovery import KIND_BY_NAME, KIND_BY_SUFFIX
from dslint.server.client_settings import Wishes

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "editors/vscode"
MANIFEST: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text())
LOCK: dict[str, Any] = json.loads((EXTENSION / "package-lock.json").read_text())
FILES: dict[str, list[str]] = json.loads((EXTENSION / "src/files.json").read_text())
BUILT = shutil.ignore_patterns("node_modules", "dist", "out", "*.vsix")
# What the extension keeps for itself; everything else is a wish to the server.
OWN = {"enable", "path", "interpreter", "logFile", "trace.server"}


def npm(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "DSLINT_PYTHON": sys.executable,
        "DSLINT_INCIDENT": str(ROOT / "tests/fixtures/projects/llava-loss-zero"),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    return subprocess.run(["npm", *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with everything that the lock file names; without npm, or a registry, there is nothing to test."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version[1:].partition(".")[0]) < 20:
        pytest.skip(f"the tools of the extension need node 20, found {version.strip()}")
    top = tmp_path_factory.mktemp("npm")
    folder = shutil.copytree(EXTENSION, top / "editors/vscode", ignore=BUILT)
    shutil.copy(ROOT / "LICENSE", top)
    # No program of a package runs while it is installed.
    done = npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    if done.returncode and re.search(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|ENOTCACHED", done.stderr):
        pytest.skip("npm reaches no registry from here")
    assert done.returncode == 0, done.stderr
    return folder


def test_types_style_and_unit_tests(extension: Path) -> None:
    for script in ("check", "lint", "test"):
        done = npm("run", script, cwd=extension)
        assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^\S pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 20


def test_the_extension_speaks_with_the_real_server(extension: Path) -> None:
    pytest.importorskip("pygls", reason="pip install 'deepspeed-lint[server]'")
    done = npm("run", "test:server", cwd=extension)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_holds_what_runs_and_nothing_else(extension: Path) -> None:
    done = npm("run", "package", cwd=extension)
    assert done.returncode == 0, done.stdout + done.stderr
    with ZipFile(extension / "dslint.vsix") as archive:
        names = {name.removeprefix("extension/") for name in archive.namelist() if name.startswith("extension/")}
        manifest = json.loads(archive.read("extension/package.json"))
        bundle = archive.read("extension/dist/extension.js").decode()
    assert names == {"package.json", "readme.md", "LICENSE.txt", "icon.png", "dist/extension.js"}
    assert manifest["version"] == __version__
    assert set(re.findall(r'require\("([^"./][^"]*)"\)', bundle)) & {"vscode"}
    assert str(ROOT) not in bundle


def test_the_lock_file_names_packages_by_their_digest_and_no_private_registry() -> None:
    packages = {name: package for name, package in LOCK["packages"].items() if name}
    assert len(packages) > 100
    for name, package in packages.items():
        assert package.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/"), name
        assert package["integrity"].startswith("sha512-"), name
    assert LOCK["packages"][""]["devDependencies"] == MANIFEST["devDependencies"]


def test_every_setting_is_one_that_the_server_knows() -> None:
    names = {name.removeprefix("dslint.") for name in MANIFEST["contributes"]["configuration"]["properties"]}
    wishes = names - OWN
    assert names >= OWN
    unknown = Wishes.of(dict.fromkeys(wishes, "warning")).problems
    assert unknown == ()
    documented = set(re.findall(r"`(\w+)`", (ROOT / "docs/editor.md").read_text()))
    assert wishes <= documented


def test_the_server_hears_of_every_kind_of_file_that_dslint_reads() -> None:
    # Notebooks come cell by cell.
    assert set(FILES["suffixes"]) == {suffix[1:] for suffix in KIND_BY_SUFFIX} - {"ipynb"}
    for name in KIND_BY_NAME:
        assert any(fnmatch(name, pattern.lower()) for pattern in FILES["names"]), name


def test_the_version_is_that_of_dslint() -> None:
    assert MANIFEST["version"] == LOCK["version"] == __version__
