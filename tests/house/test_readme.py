"""What README and ARCHITECTURE show and name is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.arguments import COMMANDS
from dslint.commands import parser_of
from dslint.init_command import pieces_for

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()
USAGE = (ROOT / "docs/usage.md").read_text()

# Pages that name commands for people who use dslint.
GUIDE = [
    *(f"docs/{name}.md" for name in ("index", "start", "usage", "ci", "faq", "comparison", "versions", "editor")),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/zh").glob("*.md")),
]


def commands_of(text: str) -> list[str]:
    """The command lines of a text, without the remarks behind them."""
    return [re.sub(r"\s+# .*", "", line) for line in re.findall(r"^\$ (.*)$", text, re.M)]


def test_the_readme_is_one_that_people_read_to_its_end() -> None:
    assert len(README.splitlines()) < 130
    titles = re.findall(r"^## (.*)$", README, re.M)
    assert titles[:4] == ["Install", "Use", "CI and pre-commit", "Suppress, or begin with a baseline"]


def test_the_chinese_readme_has_the_same_headings_commands_links_and_snippets() -> None:
    def shape(text: str) -> dict[str, list[str]]:
        links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("README")]
        blocks = re.findall(r"```yaml\n.*?```", text, re.S)
        named = re.findall(r"`(dslint [^`]*|--[\w-]+[^`]*|DSL\d+)`", text)
        levels = re.findall(r"^#+(?= )", text, re.M)
        return {"levels": levels, "commands": commands_of(text), "links": links, "yaml": blocks, "named": named}

    assert shape(CHINESE) == shape(README)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", *GUIDE])
def test_every_link_leads_to_a_file_and_a_heading(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if link.startswith("http"):
            continue
        target = (page.parent / path).resolve()
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            named = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in named | set(re.findall(r"\{ #([\w-]+) \}", target.read_text())), link


def test_the_picture_shows_what_dslint_prints() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_picture.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    from xml.etree.ElementTree import parse

    shown = "".join(parse(ROOT / "docs/images/example.svg").getroot().itertext()).replace("\xa0", " ")
    for words in ("warning[DSL160]", '"overlap_comm": true', "pyproject.toml:23", "Found 1 warning in 1 of 1 file."):
        assert words in shown, words


def test_the_printed_plan_is_what_dslint_prints(tmp_path: Path) -> None:
    match = re.search(r"```text\n\$ dslint plan (?P<path>\S+)\n(?P<output>.*?)```\n", USAGE, re.S)
    assert match, "docs/usage.md shows no plan"
    project = shutil.copytree(ROOT / "tests/fixtures/projects/llava-loss-zero", tmp_path / "project")
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "plan", match["path"]],
        cwd=project,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == match["output"].splitlines()


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", *GUIDE])
def test_every_command_and_flag_that_the_documents_name_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    lines = [line.rpartition("| ")[2] for line in commands_of(text)]
    shown = [line.removeprefix("dslint").strip() for line in lines if re.match(r"dslint\b", line)]
    shown += [words.removeprefix("dslint ") for words in re.findall(r"`(dslint [^`]*)`", text)]
    assert shown or name.startswith("docs/"), "no command is found any more"
    for line in shown:
        words = line.partition(" -- ")[0].split()
        command = words[0] if words and words[0] in COMMANDS else "check"
        flags = set(parser_of(command)._option_string_actions)
        named = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
        assert named - flags == set(), line


def test_the_workflow_and_the_hook_of_the_readme_are_those_of_init(tmp_path: Path) -> None:
    import yaml

    workflow, hook = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", README, re.S))
    written = {name: yaml.safe_load(piece.text) for name, piece in pieces_for(tmp_path).items() if name != "settings"}
    release = written["pre-commit"]["repos"][0]["hooks"][0]["additional_dependencies"][0]
    steps, own = workflow["jobs"]["dslint"]["steps"], written["github"]["jobs"]["dslint"]["steps"]
    own[2]["run"] = own[2]["run"].replace(f'"{release}"', "deepspeed-lint")
    assert steps == own
    written["pre-commit"]["repos"][0]["hooks"][0]["additional_dependencies"] = ["deepspeed-lint"]
    assert hook == written["pre-commit"]


def test_the_map_names_every_module_at_the_top_and_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = {p.name for p in (ROOT / "dslint").glob("*.py") if not p.name.startswith("__")}
    rooms = {f"{p.parent.name}/" for p in (ROOT / "dslint").glob("*/__init__.py")}
    assert {name for name in modules | rooms if f"`{name}`" not in text and f"/{name}`" not in text} == set()


def test_the_commands_for_a_fresh_clone_name_what_is_there() -> None:
    paths = re.findall(r"(?:bin/dslint|bash) ((?:tests|scripts)/\S+)", README)
    assert len(paths) == 2
    assert all((ROOT / path).exists() for path in paths), paths


def test_the_chinese_guide_speaks_of_all_tasks_and_of_every_command_that_the_readme_names() -> None:
    text = "".join((ROOT / name).read_text() for name in GUIDE if name.startswith("docs/zh/"))
    own = {words.split()[1] for words in re.findall(r"`(dslint [a-z][^`]*)`", CHINESE) if words.split()[1] in COMMANDS}
    assert own >= {"plan", "run", "probe", "versions", "server", "facts"}
    assert {name for name in own if f"dslint {name}" not in text} - {"triage", "doctor"} == set()
    for words in ("--write-baseline", "--add-noqa", "--fix", "dslint: ignore[", "per-file-ignores", "pre-commit"):
        assert words in text, words
