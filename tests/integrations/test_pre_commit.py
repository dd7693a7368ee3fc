"""The hooks under the real pre-commit, installed from a git repository as a user gets them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ("dslint", "dslint-fix", "dslint-project")

TRAIN = """\
import torch.distributed as dist

dist.init_process_group("nccl", timeout=7200)
"""
FIXED = """\
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("nccl", timeout=timedelta(seconds=7200))
"""
FOUND = "train.py:3:41: DSL221 [*] "
# A name that pre-commit has no type for, and a mistake that no fix can mend.
LAUNCH = "#!/bin/bash\n#SBATCH --nodes=1\ntorchrun --nproc_per_node 8 --master_port 70000 train.py\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def hook_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This working tree as a git repository with one commit: what is under test is what lies here."""
    folder = tmp_path_factory.mktemp("hooks") / "dslint"
    wanted = ("dslint", "schemas", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
    folder.mkdir()
    for name in wanted:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "under test")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """pre-commit keeps the environment that it builds here, so that one installation serves all tests."""
    home = tmp_path_factory.mktemp("pre-commit-home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "DSLINT_", "PRE_COMMIT"))}
    return {
        **kept,
        "PRE_COMMIT_HOME": str(home),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",
        "DSLINT_CACHE_DIR": str(home / "dslint"),
    }


@pytest.fixture
def project(tmp_path: Path, hook_repository: Path) -> Path:
    """A git repository of a user, with one mistake that has a fix."""
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "notes.txt").write_text("torchrun --nproc_per_node 8 --master_port 70000 train.py\n")
    revision = git(hook_repository, "rev-parse", "HEAD").strip()
    hooks = "".join(f"      - id: {hook}\n        verbose: true\n" for hook in HOOKS)
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hook_repository}\n    rev: {revision}\n    hooks:\n{hooks}"
    )
    git(tmp_path, "add", "-A")
    return tmp_path


def can_install(environment: dict[str, str]) -> bool:
    """Whether pip reaches an index from here; asked only when pre-commit could not install."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest"]
    folder = Path(environment["PRE_COMMIT_HOME"]) / "probe"
    done = subprocess.run([*command, str(folder), "libcst"], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def pre_commit(project: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pre_commit", *arguments]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    # 3: pre-commit itself failed, here while it installed the hook.
    if done.returncode == 3 and "pip" in done.stdout + done.stderr and not can_install(environment):
        pytest.skip("pip reaches no package index from here")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done


def section(done: subprocess.CompletedProcess[str], hook: str) -> str:
    """What pre-commit printed about one hook."""
    names = {"dslint": "dslint.", "dslint-fix": "dslint --fix.", "dslint-project": "dslint (whole project)."}
    start = (
        done.stdout.index(f"\n{names[hook]}") if f"\n{names[hook]}" in done.stdout else done.stdout.index(names[hook])
    )
    ends = [at for name in names.values() if (at := done.stdout.find(f"\n{name}", start + 1)) > 0]
    return done.stdout[start : min(ends, default=len(done.stdout))]


def test_all_hooks_report_then_fix_what_is_staged(project: Path, environment: dict[str, str]) -> None:
    done = pre_commit(project, environment, "run")
    assert done.returncode == 1
    reported = section(done, "dslint")
    assert FOUND in reported, done.stdout
    assert "exit code: 1" in reported
    assert "files were modified by this hook" in section(done, "dslint-fix")
    assert (project / "train.py").read_text() == FIXED
    assert "Passed" in section(done, "dslint-project")


def test_a_clean_commit_passes_all_hooks(project: Path, environment: dict[str, str]) -> None:
    (project / "train.py").write_text(FIXED)
    git(project, "add", "-A")
    done = pre_commit(project, environment, "run")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Passed") == 3


def test_launch_scripts_with_unusual_names_are_checked(project: Path, environment: dict[str, str]) -> None:
    (project / "train.py").write_text(FIXED)
    (project / "job.sbatch").write_text(LAUNCH)
    git(project, "add", "-A")
    done = pre_commit(project, environment, "run", "dslint")
    assert done.returncode == 1
    assert "job.sbatch:3:" in done.stdout
    assert "DSL309" in done.stdout
    assert "notes.txt" not in done.stdout


def test_excludes_hold_for_the_files_that_pre_commit_names(project: Path, environment: dict[str, str]) -> None:
    (project / "pyproject.toml").write_text('[tool.dslint]\nextend-exclude = ["train.py"]\n')
    git(project, "add", "-A")
    done = pre_commit(project, environment, "run")
    assert done.returncode == 0, done.stdout


def test_only_the_project_hook_looks_beyond_the_changed_files(project: Path, environment: dict[str, str]) -> None:
    git(project, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "before dslint")
    (project / "other.py").write_text("print('hello')\n")
    git(project, "add", "other.py")
    changed = pre_commit(project, environment, "run", "dslint")
    assert changed.returncode == 0, changed.stdout
    whole = pre_commit(project, environment, "run", "dslint-project")
    assert whole.returncode == 1
    assert FOUND in whole.stdout


def test_the_hook_of_the_readme_works_as_it_is_pasted(
    project: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The package comes from a folder instead of PyPI; all else is what a user gets."""
    wheels = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, env=environment)
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (project / ".pre-commit-config.yaml").write_text(blocks[1])
    git(project, "add", "-A")
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files"],
        cwd=project,
        env={**environment, "PIP_FIND_LINKS": str(wheels)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert FOUND in done.stdout
