"""Whole projects, linted with the real command line: every root cause at its line, and silence on the repaired twin.

``python tests/engine/test_projects.py --update`` rewrites the ``expected.txt`` files; review the diff before you
commit it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import forked
import pytest

REPO = Path(__file__).resolve().parents[2]
PROJECTS = REPO / "tests" / "fixtures" / "projects"
NAMES = sorted(path.name for path in PROJECTS.iterdir() if path.is_dir())
BROKEN = [name for name in NAMES if not name.endswith("-fixed")]
FILES = sorted(path for path in PROJECTS.rglob("*") if path.is_file())
# What `bash -n` refuses on purpose: none so far, bash accepts a broken continuation without a word.
BROKEN_SHELL: frozenset[str] = frozenset()


def _lint(project: Path, *flags: str) -> tuple[int, list[dict[str, object]], str]:
    """Exit code, findings and stderr of one run in ``project``."""
    done = forked.dslint(project, "--output-format", "json", "--no-cache", *flags, ".", timeout=120)
    stderr = done.stderr.decode()
    if not done.stdout:
        raise AssertionError(f"no report (exit code {done.returncode}): {stderr}")
    return done.returncode, json.loads(done.stdout)["findings"], stderr


def _lines(findings: list[dict[str, object]]) -> list[str]:
    return [f"{f['path']}:{f['line']} {f['code']} {f['severity']}" for f in findings]


def _copy(name: str, target: Path) -> Path:
    """A copy outside the repository: its own settings and .gitignore must not matter."""
    ignored = shutil.ignore_patterns("__pycache__", "expected.txt")
    return Path(shutil.copytree(PROJECTS / name, target / name, ignore=ignored))


def _expected(name: str) -> list[str]:
    return (PROJECTS / name / "expected.txt").read_text(encoding="utf-8").splitlines()


def _ids(paths: list[Path]) -> list[str]:
    return [path.relative_to(PROJECTS).as_posix() for path in paths]


@pytest.mark.parametrize("name", NAMES)
def test_dslint_reports_exactly_the_expected_findings(name: str, tmp_path: Path) -> None:
    code, findings, stderr = _lint(_copy(name, tmp_path))
    assert sorted(_lines(findings)) == sorted(_expected(name)), json.dumps(findings, indent=1)
    assert code == (1 if any(f["severity"] != "info" for f in findings) else 0), stderr


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_project_has_an_error_or_warning_and_a_silent_twin(name: str) -> None:
    assert any(not line.endswith(" info") for line in _expected(name))
    assert _expected(f"{name}-fixed") == []


@pytest.mark.parametrize("name", BROKEN)
def test_the_twin_keeps_the_files_of_the_project(name: str) -> None:
    def names(project: str) -> set[str]:
        found = {path.relative_to(PROJECTS / project).as_posix() for path in FILES if project in path.parts}
        return {path for path in found if "__pycache__" not in path}

    assert names(name) == names(f"{name}-fixed")


@pytest.mark.parametrize("name", BROKEN)
def test_a_run_from_the_repository_finds_the_same_as_a_run_inside_the_project(name: str) -> None:
    flags = ("--output-format", "json", "--no-cache")
    done = forked.dslint(REPO, *flags, f"tests/fixtures/projects/{name}", timeout=120)
    prefix = f"tests/fixtures/projects/{name}/"
    found = [line.removeprefix(prefix) for line in _lines(json.loads(done.stdout)["findings"])]
    assert sorted(found) == sorted(_expected(name))


@pytest.mark.parametrize("name", BROKEN)
def test_safe_fixes_remove_findings_and_add_none(name: str, tmp_path: Path) -> None:
    project = _copy(name, tmp_path)
    _, before, _ = _lint(project)
    _lint(project, "--fix")
    _, after, _ = _lint(project)
    fixable = sum(1 for f in before if isinstance(f["fix"], dict) and f["fix"]["safety"] == "safe")
    assert len(after) <= len(before) - fixable
    assert {(f["path"], f["code"]) for f in after} <= {(f["path"], f["code"]) for f in before}


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".py"], ids=lambda p: _ids([p])[0])
def test_every_python_file_compiles(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".json"], ids=lambda p: _ids([p])[0])
def test_every_json_file_parses(path: Path) -> None:
    assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix in {".sh", ".sbatch"}], ids=lambda p: _ids([p])[0])
def test_bash_can_read_every_shell_script(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    broken = path.relative_to(PROJECTS).as_posix() in BROKEN_SHELL
    assert (done.returncode != 0) is broken, done.stderr


class _World:
    """Stands in for ``deepspeed.comm`` while a config is parsed: eight ranks, and no process group."""

    def __init__(self, real: object) -> None:
        self._real = real

    def get_rank(self, group: object = None) -> int:
        return 0

    def get_world_size(self, group: object = None) -> int:
        return 8

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def _filled(config: dict[str, object]) -> dict[str, object]:
    """What the Hugging Face Trainer and XTuner put in place of the "auto" values that DeepSpeed cannot read."""
    fillings: dict[str, object] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "train_batch_size": 64,
        "gradient_clipping": 1.0,
    }
    return {key: fillings.get(key, value) if value == "auto" else value for key, value in config.items()}


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".json"], ids=lambda p: _ids([p])[0])
def test_deepspeed_itself_accepts_every_config_on_eight_ranks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("deepspeed.runtime.config")
    monkeypatch.setattr(module, "dist", _World(module.dist))
    config = json.loads(path.read_text(encoding="utf-8"))
    parsed = module.DeepSpeedConfig(_filled(config))
    assert parsed.zero_config.stage == config["zero_optimization"]["stage"]


def _update() -> None:
    """Rewrite each ``expected.txt`` with what dslint reports now."""
    for name in NAMES:
        with tempfile.TemporaryDirectory() as scratch:
            _, findings, _ = _lint(_copy(name, Path(scratch)))
        text = "".join(f"{line}\n" for line in _lines(findings))
        target = PROJECTS / name / "expected.txt"
        if target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
            print(f"changed: {target.relative_to(REPO)}")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python tests/engine/test_projects.py --update")
    _update()
