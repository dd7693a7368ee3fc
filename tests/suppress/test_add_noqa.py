"""``--add-noqa``: nothing is left of what it suppresses, and no file means anything else than before."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from command import SCRIPT, dslint

from dslint.settings.load import parse_toml
from dslint.suppress.insertion import is_same, with_ignores

BAD = "torchrun --nproc_per_node 8 --master_port 70000 train.py"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DSLINT_MIN_SEVERITY", "")
    return folder


def suppressed(*more: str) -> str:
    """Suppress everything, and see that nothing is left; returns what was said."""
    assert dslint().code == 1, "nothing to suppress"
    done = dslint("--add-noqa", *more)
    assert (done.code, done.out) == (0, ""), done.err
    after = dslint()
    assert (after.code, after.out) == (0, "")
    return done.err


def test_python_keeps_its_tree_and_gets_a_reason(project: Path) -> None:
    text = (
        '#!/usr/bin/env python\n# coding: utf-8\n"""A script."""\nimport torch.distributed as dist\n\n\n'
        "def main():\n\tdist.init_process_group(\n\t\t'gloo',\n\t\ttimeout=7200,\n\t)\n"
        "\tif dist.get_rank() == 0:\n\t\tx = '''\n# no comment\n'''; dist.barrier()\n\n\nmain()\n"
    )
    (project / "train.py").write_text(text)
    assert suppressed("--reason", "rank 0 is  alone\nhere") == "dslint: suppressed 2 findings in 1 file\n"
    after = (project / "train.py").read_text()
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text))
    assert "\t# dslint: ignore[DSL221] rank 0 is alone here\n\tdist.init_process_group(\n" in after
    assert "\t\t# dslint: ignore[DSL201] rank 0 is alone here\n\t\tx = '''\n" in after
    assert after.startswith("#!/usr/bin/env python\n# coding: utf-8\n")


def test_line_ends_and_two_codes_of_one_line(project: Path) -> None:
    line = "dist.init_process_group('gloo', timeout=7200); dist.new_group([0], timeout=3600)\r\n"
    (project / "train.py").write_bytes(b"import torch.distributed as dist\r\n" + line.encode())
    suppressed()
    raw = (project / "train.py").read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n") == 3


def test_shell_commands_run_as_before(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    text = (
        "#!/bin/bash\n#SBATCH --job-name=x\n\nset -e\nif true; then\n"
        f"    {BAD.replace(' --master', ' ' + chr(92) + chr(10) + '        --master')} | \\\n        cat\nfi\n"
        f"cat <<EOF\n{BAD}\nEOF\n"
    )
    (project / "run.sh").write_text(text)
    suppressed()
    stub = "torchrun() { printf '<%s>' \"$@\"; echo; }\n"
    runs = [
        subprocess.run(["bash", "-c", stub + source], capture_output=True, text=True, cwd=project)
        for source in (text, (project / "run.sh").read_text())
    ]
    assert runs[0].stdout == runs[1].stdout != ""
    assert runs[0].returncode == runs[1].returncode
    assert "    # dslint: ignore[DSL309] not judged yet\n    torchrun" in (project / "run.sh").read_text()


def test_what_stands_in_quotes_or_a_here_document_is_suppressed_at_the_top(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    here = f"#!/bin/bash\n# A launcher.\nset -e\nssh node1 bash -s <<'EOF'\ncd /data\n{BAD}\nEOF\n"
    quoted = f'bash -c "\ncd /data\n{BAD}\n"\n'
    (project / "here.sh").write_text(here)
    (project / "quoted.sh").write_text(quoted)
    suppressed()
    note = "# dslint: ignore-file[DSL309] not judged yet\n"
    assert (project / "here.sh").read_text() == here.replace("set -e\n", f"{note}set -e\n")
    assert (project / "quoted.sh").read_text() == note + quoted


def test_commands_in_yaml_are_suppressed_above_their_key(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    (project / ".gitlab-ci.yml").write_text(f"train:\n  script:\n    - |\n      cd src\n      {BAD}\n")
    suppressed()
    assert "    # dslint: ignore[DSL309] not judged yet\n    - |\n" in (project / ".gitlab-ci.yml").read_text()


def test_yaml_says_the_same(project: Path) -> None:
    config = "train_batch_size: 8\nzero_optimization:\n  stage: 2\n  overlap_com: true\nfp16: {enabld: true}\n"
    (project / "ds.yaml").write_text(config)
    (project / "train.py").write_text("import deepspeed\ndeepspeed.initialize(config='ds.yaml')\n")
    job = f"jobs:\n  train:\n    runs-on: gpu\n    steps:\n      - run: |\n          cd x\n          {BAD}\n"
    (project / ".github/workflows").mkdir(parents=True)
    (project / ".github/workflows/train.yml").write_text(job)
    suppressed()
    for path, text in (("ds.yaml", config), (".github/workflows/train.yml", job)):
        after = (project / path).read_text()
        assert after != text
        assert yaml.safe_load(after) == yaml.safe_load(text)
    assert "  # dslint: ignore[DSL102] not judged yet\n  overlap_com: true\n" in (project / "ds.yaml").read_text()


def test_markdown_shows_the_same_blocks(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    text = (
        f"# T\n\nText:\n```bash\n{BAD}\n```\n\n> ```sh\n> {BAD}\n> ```\n\n1. One\n\n   ```bash\n   {BAD}\n   ```\n\n"
        f"- ```bash\n  {BAD}\n  ```\n"
    )
    (project / "README.md").write_text(text)
    suppressed("--reason", "an example -- of a mistake")
    after = (project / "README.md").read_text()
    assert is_same(text, after, "markdown")
    assert "<!-- dslint: ignore" in after
    assert after.replace("<!--", "").count("--") - after.count("-->") == text.count("--")


def test_json_and_notebooks_are_suppressed_in_the_settings_by_pointer(project: Path) -> None:
    config = (
        '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": true}, "fp16": {"enabld": true}}\n'
    )
    (project / "ds.json").write_text(config)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": SCRIPT}
    (project / "n.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    before = (project / "n.ipynb").read_bytes()
    suppressed()
    assert (project / "ds.json").read_text() == config
    assert (project / "n.ipynb").read_bytes() == before
    assert parse_toml((project / "dslint.toml").read_text())["per-file-ignores"] == {
        "ds.json": ["DSL102:/zero_optimization/overlap_com", "DSL102:/fp16/enabld"],
        "n.ipynb": ["DSL221", "DSL201"],
    }


def test_settings_that_are_there_keep_what_they_say(project: Path) -> None:
    text = (
        '[tool.dslint]\nfail-on = "warning"  # ours\n\n[tool.dslint.per-file-ignores]\n"ds.json" = ["DSL160"]\n\n'
        "[tool.x]\ny = 1\n"
    )
    (project / "pyproject.toml").write_text(text)
    (project / "ds.json").write_text('{"train_batch_size": 8, "fp16": {"enabld": true}}\n')
    assert dslint().code == 1
    assert dslint("--add-noqa").code == 0
    after = (project / "pyproject.toml").read_text()
    assert after == text.replace('["DSL160"]', '["DSL102:/fp16/enabld", "DSL160"]')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", f"# syntax=docker/dockerfile:1\nFROM x\nRUN cd y && \\\n    {BAD}\n"),
        ("Makefile", f"train:\n\t{BAD}\n"),
        ("justfile", f"train:\n  {BAD}\n"),
    ],
)
def test_other_files_get_one_comment_below_their_first_ones(name: str, text: str, project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    (project / name).write_text(text)
    suppressed()
    head = "# syntax=docker/dockerfile:1\n" if name == "Dockerfile" else ""
    note = "# dslint: ignore-file[DSL309] not judged yet\n"
    assert (project / name).read_text() == head + note + text.removeprefix(head)


def test_notes_are_suppressed_only_where_they_are_asked_for(project: Path) -> None:
    (project / "ds.json").write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}\n'
    )
    assert dslint("--add-noqa").err == "dslint: suppressed 0 findings in 0 files\n"
    assert not (project / "dslint.toml").exists()
    assert dslint("--add-noqa", "--min-severity", "info").code == 0
    assert dslint("--min-severity", "info").out == ""


def test_what_cannot_be_judged_is_not_suppressed(project: Path) -> None:
    (project / "broken.py").write_text("import torch.distributed as dist\ndist.barrier(\n")
    before = (project / "broken.py").read_text()
    dslint("--add-noqa")
    assert (project / "broken.py").read_text() == before
    assert dslint("broken.py").codes == ["DSL900"]


def test_a_file_that_cannot_be_written_is_said_and_the_flags_are_checked(project: Path) -> None:
    (project / "train.py").write_text(SCRIPT)
    for arguments in (["--fix"], ["--diff"], ["-"]):
        assert dslint("--add-noqa", *arguments).code == 2
    assert dslint("--reason", "x").err == "dslint: --reason is what the comments of --add-noqa say\n"
    assert dslint("--add-noqa", "missing.py").code == 2


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("", ()),
        ("fail-on = 'error'", ()),
        ("[per-file-ignores]\n", ()),
        ("[per-file-ignores]\n'a.json' = []\n", ()),
        ('[per-file-ignores]\n"a.json" = [\n  "DSL1",\n]\n[launch]\nnnodes = 2\n', ()),
        ("[tool.x]\na = 1", ("tool", "dslint")),
        ("[tool.dslint]\nfix = true\n[tool.dslint.launch]\nnnodes = 1\n", ("tool", "dslint")),
    ],
)
def test_entries_are_added_to_any_settings(text: str, table: tuple[str, ...]) -> None:
    after = with_ignores(text, table, {"a.json": ["DSL160:/fp16"], 'b "x".json': ["DSL2"]})
    assert after is not None
    found = parse_toml(after)
    for part in (*table, "per-file-ignores"):
        found = found[part]
    assert found["a.json"][0] == "DSL160:/fp16"
    assert found['b "x".json'] == ["DSL2"]


@pytest.mark.parametrize(
    "text", ["per-file-ignores = {'a.json' = ['DSL1']}\n", "per-file-ignores.'a.json' = ['DSL1']\n"]
)
def test_settings_of_another_form_are_left_to_their_author(text: str) -> None:
    assert with_ignores(text, (), {"b.json": ["DSL2"]}) is None
