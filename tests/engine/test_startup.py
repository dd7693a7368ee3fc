"""What a run loads before it can answer: a hook or an editor pays for every import, each time.

Lists of modules, not times: these hold on every machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.engine import judge
from dslint.model.context import Context
from dslint.parse.jsondoc import parse_json
from dslint.rules.registry import all_rules

# What is slow to load, or belongs to work that the command line did not ask for.
HEAVY = frozenset(
    {"accelerate", "concurrent.futures", "deepspeed", "jsonschema", "libcst", "multiprocessing", "packaging",
     "pathspec", "pydantic", "rich", "torch", "transformers", "tree_sitter", "dslint.engine.cache", "dslint.engine.run",
     "dslint.engine.fixer", "dslint.engine.scripts", "dslint.settings"}
)  # fmt: skip
ENGINE = {"dslint.engine.run", "dslint.settings"}
SCRIPTS = {"dslint.engine.cache", "dslint.engine.run", "dslint.engine.scripts", "dslint.settings"}

PLAIN_CONFIG = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
PLAIN_SCRIPT = "import sys\n\nprint(sys.argv)\n"
FINE_SCRIPT = "import torch.distributed as dist\n\nper_rank = 6 // dist.get_world_size()\n"
BAD_SCRIPT = "import torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier()\n"
# It holds the markers of rules that visit the tree of LibCST, and nothing that one of them could speak of.
TYPED_SCRIPT = (
    "import argparse\n\nimport torch.distributed as dist\n\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', type=int)\nargs = parser.parse_args()\n"
    "if args.local_rank == 0:\n    dist.barrier()\n"
)
LAUNCH = "deepspeed --num_gpus 4 bad.py\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()  # the look for settings and neighbours ends here
    (tmp_path / "package.json").write_text(json.dumps({"name": "a", "dependencies": {}}))
    (tmp_path / "ds_config.json").write_text(json.dumps(PLAIN_CONFIG))
    (tmp_path / "ds_typo.json").write_text(json.dumps({**PLAIN_CONFIG, "zero_optimization": {"stage": "two"}}))
    for name, text in {"plain.py": PLAIN_SCRIPT, "bad.py": BAD_SCRIPT, "typed.py": TYPED_SCRIPT}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def loaded(project: Path, *arguments: str) -> tuple[set[str], str]:
    """The modules after a run in a fresh process, and what it printed."""
    code = (
        "import sys\nfrom dslint.cli import main\ntry:\n    main(sys.argv[1:])\n"
        "finally:\n    sys.stderr.write('\\n' + ' '.join(sys.modules))\n"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stderr.splitlines()[-1].split()), done.stdout


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["rules"], set()),
        (["rules", "--output-format", "json"], set()),
        (["--no-cache", "package.json"], ENGINE),
        (["--no-cache", "ds_config.json"], ENGINE),
        (["--no-cache", "ds_typo.json"], {*ENGINE, "jsonschema"}),
        (["--no-cache", "plain.py"], SCRIPTS),
        (["--no-cache", "bad.py"], SCRIPTS),
        (["--no-cache", "typed.py"], SCRIPTS),
    ],
    # Sets print in another order in each worker of a parallel test run.
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value) or "nothing",
)
def test_a_run_loads_only_what_its_answer_needs(project: Path, arguments: list[str], heavy: set[str]) -> None:
    modules, _ = loaded(project, *arguments)
    assert modules & HEAVY == heavy


@pytest.mark.parametrize(("given", "after"), [("", "False True"), ("sys.argv[1:]", "True False")])
def test_a_process_that_ends_does_not_look_for_garbage_once_more(project: Path, given: str, after: str) -> None:
    code = (
        f"import gc, sys\nfrom dslint.cli import main\nfrozen = gc.get_freeze_count()\ntry:\n    main({given})\n"
        "except SystemExit:\n    print(gc.isenabled(), gc.get_freeze_count() > frozen)\n"
    )
    command = [sys.executable, "-c", code, "--no-cache", "ds_config.json"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == after


def test_a_launch_file_beside_a_script_needs_the_shell_parser_only(project: Path) -> None:
    (project / "run.sh").write_text(LAUNCH)
    modules, shown = loaded(project, "--no-cache", "--output-format", "concise", "bad.py")
    assert "DSL201" in shown
    assert modules & HEAVY == {*SCRIPTS, "tree_sitter"}


def test_a_config_alone_loads_no_reader_of_scripts_and_only_the_rules_that_it_may_concern(project: Path) -> None:
    for script in project.glob("*.py"):
        script.unlink()
    (project / "README.md").write_text("# A project\n\nNothing to start.\n")
    modules, _ = loaded(project, "--no-cache", "ds_config.json")
    readers = (
        "dslint.model.embedded",
        "dslint.model.launch",
        "dslint.model.plan",
        "dslint.model.shell",
        "dslint.parse.shell",
    )
    assert not {module for module in modules if module.startswith(readers)}
    rules = {info.module for info in all_rules() if info.kind != "dslint" and info.module in modules}
    assert rules == {
        info.module
        for info in all_rules()
        if info.kind == "config"
        and not info.optional
        and (not info.consumers or "unknown" in info.consumers)
        and info.may_concern(parse_json(SourceFile("ds_config.json", json.dumps(PLAIN_CONFIG))))
    }
    assert 0 < len(rules) < 30


def test_a_launch_file_without_heredocs_loads_no_reader_of_embedded_configs(project: Path) -> None:
    (project / "run.sh").write_text("deepspeed --num_gpus 4 plain.py --deepspeed_config ds_config.json\n")
    modules, _ = loaded(project, "--no-cache", "ds_config.json", "run.sh", "plain.py")
    assert "dslint.model.plan.runplan" in modules
    assert not {module for module in modules if module.startswith("dslint.model.embedded")}


def test_a_second_run_parses_no_script(project: Path, tmp_path: Path) -> None:
    arguments = ["--cache-dir", str(tmp_path / "cache"), "--output-format", "concise", "bad.py"]
    _, first = loaded(project, *arguments)
    modules, second = loaded(project, *arguments)
    assert "DSL201" in first
    assert second == first
    assert modules & HEAVY == SCRIPTS


def test_a_rule_that_needs_a_world_size_does_not_make_a_script_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("dslint.parse.python.parse_ast", refuse)
    raw = FINE_SCRIPT.encode()
    assert judge.check_script(judge.Job("a.py", raw, "script", ("DSL270",), Context())) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-dslint", "cannot start no-such-dslint"),
        (f"{sys.executable} -m no_such_dslint", "exit code 1 from"),
        (f"{sys.executable} -c 'import sys; sys.exit(2 * (sys.argv[1] != \"--version\"))'", "exit code 2 from"),
    ],
)
def test_the_benchmark_gives_no_figure_for_a_command_that_does_not_lint(
    project: Path, command: str, reason: str
) -> None:
    benchmark = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
    done = subprocess.run(
        [sys.executable, str(benchmark), str(project), "--runs", "1", "--dslint", command],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert "median" not in done.stdout
