"""The plugin inside the real flake8. The package must be installed, as the test command does it."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest

import dslint
from dslint.integrations import flake8 as integration
from dslint.integrations.flake8 import Plugin, silencing_prefix

TRAIN = """\
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.is_initialized():
    dist.new_group([0, 1], timeout=1800)
"""
# Line and column of the value, 1-based as flake8 prints them.
PLACE = f"train.py:5:{TRAIN.splitlines()[4].index('1800') + 1}: DSL221 "
INFO = """\
import deepspeed

engine, _, _, _ = deepspeed.initialize(model=model, config="ds.json")
deepspeed.init_distributed()
"""
# Nothing of it may be imported for a file that dslint has nothing to say about.
HEAVY = ("libcst", "jsonschema", "pydantic", "rich", "tree_sitter", "dslint.engine.run")


def flake8(folder: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flake8", "--isolated", *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_the_installed_package_registers_the_plugin() -> None:
    points = [p for p in metadata.entry_points(group="flake8.extension") if p.name == "DSL"]
    assert points, "install the package first: pip install -e ."
    assert points[0].load() is Plugin


def test_the_version_is_that_of_the_package() -> None:
    assert Plugin.version == dslint.__version__
    assert f"deepspeed-lint: {dslint.__version__}" in flake8(Path(), "--version").stdout


def test_a_finding_has_line_column_and_code(folder: Path) -> None:
    done = flake8(folder, "train.py")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith(PLACE), done.stdout + done.stderr
    assert done.stderr == ""


def test_columns_are_those_of_the_concise_report(folder: Path) -> None:
    own = subprocess.run(
        [sys.executable, "-m", "dslint", "--isolated", "--select=DSL221", "--output-format=concise", "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    place = own.stdout.split(" DSL221")[0]
    assert flake8(folder, "train.py").stdout.startswith(f"{place} DSL221")


def test_standard_input_is_judged_under_its_name(folder: Path) -> None:
    done = flake8(folder, "--stdin-display-name=train.py", "-", stdin=TRAIN)
    assert done.stdout.startswith(PLACE)


def test_flake8_applies_its_own_noqa(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN.replace("1800)", "1800)  # noqa: DSL221"))
    assert flake8(folder, "train.py").stdout == ""
    assert flake8(folder, "--disable-noqa", "train.py").stdout.startswith(PLACE)


def test_a_suppression_of_dslint_holds_in_flake8_too(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN.replace("1800)", "1800)  # dslint: ignore[DSL221] an old torch"))
    assert flake8(folder, "train.py").stdout == ""


def test_flake8_selects_and_ignores_codes(folder: Path) -> None:
    assert flake8(folder, "--select=DSL", "train.py").stdout.startswith(PLACE)
    assert flake8(folder, "--extend-ignore=DSL2", "train.py").stdout == ""
    assert flake8(folder, "--select=F", "train.py").stdout == ""


def test_findings_of_severity_info_need_the_option(folder: Path) -> None:
    (folder / "train.py").write_text(INFO)
    assert "DSL223" not in flake8(folder, "--select=DSL", "train.py").stdout
    assert ": DSL223 " in flake8(folder, "--select=DSL", "--dslint-info", "train.py").stdout
    (folder / "tox.ini").write_text("[flake8]\nselect = DSL\ndslint-info = true\n")
    done = subprocess.run([sys.executable, "-m", "flake8"], cwd=folder, capture_output=True, text=True, check=False)
    assert ": DSL223 " in done.stdout


def test_windows_line_ends_and_a_byte_order_mark_do_not_move_the_place(folder: Path) -> None:
    (folder / "train.py").write_bytes(b"\xef\xbb\xbf" + TRAIN.replace("\n", "\r\n").encode())
    assert PLACE in flake8(folder, "--select=DSL", "train.py").stdout


def test_columns_count_characters_not_bytes(folder: Path) -> None:
    text = TRAIN.replace("dist.new_group([0, 1], ", "dist.new_group([0, 1], pg_options='变量', ")
    (folder / "train.py").write_text(text, encoding="utf-8")
    column = text.splitlines()[4].index("1800") + 1
    assert f"train.py:5:{column}: DSL221" in flake8(folder, "--select=DSL", "train.py").stdout


def test_a_syntax_error_is_left_to_flake8(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN + "def (\n")
    out = flake8(folder, "train.py").stdout
    assert "E999" in out
    assert "DSL9" not in out


def test_several_processes_find_the_same(folder: Path) -> None:
    for number in range(6):
        (folder / f"train{number}.py").write_text(TRAIN)
    done = flake8(folder, "--select=DSL", "--jobs=2", "--extend-ignore=D1", ".")
    assert done.stdout.count(" DSL221 ") == 7
    assert done.stderr == ""


@pytest.mark.parametrize("prefix", ["D", "DS"])
def test_a_prefix_that_silences_dslint_is_named_once(folder: Path, prefix: str) -> None:
    for number in range(6):
        (folder / f"train{number}.py").write_text(TRAIN)
    done = flake8(folder, f"--extend-ignore=E501,{prefix}", "--jobs=2", ".")
    assert done.stdout == ""
    assert done.stderr == (
        f"dslint: `{prefix}` in flake8's ignore list also silences all DSL codes; "
        "add `extend-select = DSL` to see them, or ignore `DSL` to hide this line\n"
    )


def test_the_advice_of_the_warning_works(folder: Path) -> None:
    done = flake8(folder, "--extend-ignore=D", "--extend-select=DSL", "train.py")
    assert done.stdout.startswith(PLACE)
    assert done.stderr == ""
    assert flake8(folder, "--extend-ignore=D,DSL", "train.py").stderr == ""


@pytest.mark.parametrize("ignore", [["D"], ["DS"], ["DSL"], ["DSL2"], ["D1"], ["E", "W"], []])
@pytest.mark.parametrize("extend_ignore", [["D"], ["DSL"], ["DS"], None])
@pytest.mark.parametrize("select", [["D"], ["E"], ["DSL"], ["DS", "E"], None])
@pytest.mark.parametrize("extend_select", [["DSL"], ["DSL221"], ["D"], None])
def test_the_warning_agrees_with_what_flake8_decides(
    ignore: list[str], extend_ignore: list[str] | None, select: list[str] | None, extend_select: list[str] | None
) -> None:
    from flake8.style_guide import Decision, DecisionEngine

    options = Namespace(
        ignore=ignore,
        extend_ignore=extend_ignore,
        select=select,
        extend_select=extend_select,
        extended_default_select=["DSL", "E", "F", "W", "C90"],
        extended_default_ignore=[],
    )
    ignored = [*ignore, *(extend_ignore or [])]
    named = any(code.startswith("DSL") for code in ignored)
    only_by_prefix = Namespace(**{**vars(options), "ignore": [], "extend_ignore": []})
    visible = DecisionEngine(options).decision_for("DSL221") is Decision.Selected
    wanted = DecisionEngine(only_by_prefix).decision_for("DSL221") is Decision.Selected
    # A warning exactly when the code would be visible but for a shorter prefix; nobody named dslint.
    if silencing_prefix(options):
        assert wanted
        assert not visible
        assert silencing_prefix(options) in ignored
    elif wanted and not visible:
        assert named


@pytest.mark.parametrize("text", ["import os\n", "", "x = 1\n" * 1000])
def test_a_file_without_marker_words_imports_nothing_heavy(text: str) -> None:
    code = (
        "import sys, ast\n"
        "from dslint.integrations.flake8 import Plugin\n"
        "print([m for m in sys.modules if m.startswith('dslint.rules')])\n"
        f"text = {text!r}\n"
        "print(list(Plugin(ast.parse(text), 'a.py', text.splitlines(keepends=True)).run()))\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[]", "[]", "[]"], done.stderr


def test_loading_the_module_imports_only_itself() -> None:
    code = (
        "from __future__ import annotations\nimport sys, typing, collections.abc\nbefore = set(sys.modules)\n"
        "import dslint.integrations.flake8\nprint(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert eval(done.stdout) == ["dslint", "dslint.integrations", "dslint.integrations.flake8"]


def test_a_failure_of_dslint_is_a_finding_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("as if")

    monkeypatch.setattr(integration, "_is_worth_a_look", fail)
    assert [found[:3] for found in Plugin(None, "a.py", ["x\n"]).run()] == [
        (1, 0, "DSL901 dslint failed on this file: RuntimeError: as if")
    ]


NAMED = """\
import torch.distributed as dist
from parts import chief_only
if chief_only():
    dist.barrier()
"""


def test_the_settings_of_the_project_hold_in_flake8_too(folder: Path) -> None:
    def found(settings: str) -> str:
        (folder / "pyproject.toml").write_text(f"[tool.dslint]\n{settings}\n")
        command = [sys.executable, "-m", "flake8", "--select=DSL", "train.py"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout

    (folder / "train.py").write_text(NAMED)
    assert found("") == ""
    names = 'names = {guards = ["chief_only"]}'
    assert found(names).startswith("train.py:4:5: DSL201 ")
    assert found(f'{names}\nignore = ["DSL201"]') == ""
    assert found(f'{names}\nseverity = {{DSL201 = "info"}}') == ""
    assert found(f'{names}\nper-file-ignores = {{"train.py" = ["DSL201"]}}') == ""
    assert "unknown key `nmaes`" in found("nmaes = 1")
