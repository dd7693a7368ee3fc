"""Suppression through the whole program: every kind of file, and what may be called unused."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import dslint

from dslint.engine.fixer import fix_paths
from dslint.engine.run import check_paths
from dslint.rules.base import Example
from dslint.rules.registry import all_rules, load_rule
from dslint.settings import make_settings

PORT = "torchrun --nproc_per_node 8 --master_port 70000 train.py"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".cache"))
    (tmp_path / ".git").mkdir()  # a project of its own: nothing above it is read
    return tmp_path


def bad_examples() -> list[pytest.param]:
    rows = []
    for info in all_rules():
        for example in load_rule(info.code).examples if info.kind != "dslint" else ():
            if example.at:
                rows.append(pytest.param(info.code, example, id=f"{info.code}-{example.title.replace(' ', '-')[:50]}"))
    return rows


@pytest.mark.parametrize(("code", "example"), bad_examples())
def test_a_rule_whose_finding_goes_with_the_facts_around_the_file_says_so(
    code: str, example: Example, project: Path
) -> None:
    """The file alone, without flags: a suppression that is needed in the full run must not be called unused.

    What a script imports is read whether it is given or not.
    """
    path = example.at[0].partition(":")[0]
    imported = [name for name in example.files if name.endswith(".py") and path.endswith(".py")]
    for name in {path, *imported}:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(example.files[name].encode())
    (info,) = (rule for rule in all_rules() if rule.code == code)
    selected = {"extend-select": [code]} if info.optional else {}
    alone = check_paths([path], make_settings({"cache": False, "jobs": 1, **selected}, project)).findings
    assert info.depends_on_run or any(f.code == code for f in alone)


@pytest.mark.parametrize("code", ["DSL130", "DSL160", "DSL207", "DSL270", "DSL408", "ALL", "DSL2"])
def test_a_suppression_that_another_run_may_need_is_not_unused(code: str, project: Path) -> None:
    (project / "train.py").write_text(f"import torch.distributed as dist\ndist.barrier()  # dslint: ignore[{code}]\n")
    assert dslint("train.py").out == ""
    # Where all of the project is judged, it is a note.
    assert dslint(".", "--min-severity", "warning").out == ""


def test_a_suppression_of_a_rule_that_needs_only_the_file_is_unused(project: Path) -> None:
    (project / "train.py").write_text("import torch.distributed as dist\ndist.barrier()  # dslint: ignore[DSL252]\n")
    assert dslint(".").places == [("train.py:2:17", "DSL903")]
    assert dslint(".", "--ignore", "DSL252").out == ""
    assert dslint(".", "--select", "DSL1").out == ""


# Each kind of file: the text with a mark where the comment goes, and the place of the finding without it.
TEXTS = {
    "train.py": (
        "import torch.distributed as dist\n\ndist.init_process_group(\n    timeout=7200,{}\n)\n",
        "4:13",
        "DSL221",
    ),
    "run.sh": (f"#!/bin/bash\nset -e\n{PORT}{{}}\n", "3:43", "DSL309"),
    "job.sbatch": (f"#!/bin/bash\n{PORT} \\\n  --lr 1 \\\n  --wd 2{{}}\n", "2:43", "DSL309"),
    "README.md": (f"# Run\n\n- first\n\n  ```bash\n  $ {PORT}{{}}\n  ```\n", "6:47", "DSL309"),
    "ds.jsonc": ('{\n  "train_batch_size": 8,\n  "zero_optimization": {"stagee": 2}{}\n}\n', "3:25", "DSL102"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_comment_at_the_end_of_the_line_suppresses_in_every_kind_of_file(name: str, project: Path) -> None:
    text, place, code = TEXTS[name]
    sign = "//" if name.endswith(".jsonc") else "#"
    (project / name).write_text(text.replace("{}", ""))
    assert dslint(".").places == [(f"{name}:{place}", code)]
    for comment in (
        f"noqa: {code}",
        f"dslint: ignore[{code}] a reason",
        "dslint: ignore",
        f"dslint:ignore[{code[:4]}]",
    ):
        (project / name).write_text(text.replace("{}", f"  {sign} {comment}"))
        assert dslint(".").out == "", comment
        assert dslint(".", "--ignore-noqa").codes == [code]
    (project / name).write_text(text.replace("{}", f"  {sign} dslint: ignore[DSL999]"))
    assert sorted(dslint(".").codes) == sorted([code, "DSL903"])


@pytest.mark.parametrize("name", TEXTS)
def test_a_comment_on_the_line_above_covers_the_whole_statement(name: str, project: Path) -> None:
    text, place, code = TEXTS[name]
    sign = "//" if name.endswith(".jsonc") else "#"
    line = int(place.split(":")[0]) - (1 if name.endswith(".py") else 0)
    lines = text.replace("{}", "").split("\n")
    indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
    lines.insert(line - 1, f"{indent}{sign} dslint: ignore[{code}] a reason")
    (project / name).write_text("\n".join(lines))
    assert dslint(".").out == ""


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_level_comment_covers_the_file(name: str, project: Path) -> None:
    text, _, code = TEXTS[name]
    sign = "//" if name.endswith(".jsonc") else "#"
    comment = f"{sign} dslint: ignore-file[{code}] a reason"
    if name.endswith(".md"):
        text = text.replace("  $ ", f"  {comment}\n  $ ")
    elif name.endswith(".jsonc"):
        text = f"{comment}\n{text}"
    else:
        text = text.rstrip("\n") + f"\n{comment}\n"
    (project / name).write_text(text.replace("{}", ""))
    assert dslint(".").out == ""


def test_suppressions_in_an_accelerate_config(project: Path) -> None:
    config = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
    config += "  deepspeed_config_file: missing.json{}\n"
    (project / "run.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    (project / "train.py").write_text("from accelerate import Accelerator\n")
    for comment, codes in (("", ["DSL443"]), ("  # dslint: ignore[DSL443] made on the node", [])):
        (project / "acc.yaml").write_text(config.replace("{}", comment))
        # Also when only the launch script is given, as a hook does.
        for paths in ([], ["run.sh"], ["acc.yaml", "run.sh"]):
            assert dslint(*paths).codes == codes


def test_the_comment_of_a_config_holds_when_only_its_launch_script_is_given(project: Path) -> None:
    (project / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n")
    (project / "train.py").write_text("import deepspeed\n")
    for comment, codes in (("", ["DSL408"]), (" // dslint: ignore[DSL408]", [])):
        (project / "ds.json").write_text(
            f'{{\n  "train_batch_size": 30,{comment}\n  "train_micro_batch_size_per_gpu": 4\n,'
            ' "gradient_accumulation_steps": 1}\n'
        )
        for paths in ([], ["run.sh"]):
            assert dslint(*paths).codes == codes


def test_unused_comments_are_deleted_by_fix_in_every_kind_of_file(project: Path) -> None:
    texts = {
        "a.py": "import torch.distributed as dist\ndist.barrier()  # dslint: ignore[DSL252] old reason\n",
        "b.sh": "echo 1\n# noqa: DSL309\ntorchrun --nproc_per_node 8 train.py  # noqa: DSL309\n",
        "c.md": "```bash\n# dslint: ignore[DSL309]\ntorchrun --nproc_per_node 8 train.py\n```\n",
        "ds.jsonc": '{\n  // dslint: ignore[DSL140]\n  "train_batch_size": 8, /* dslint: ignore[DSL140] */\n'
        '  "zero_optimization": {"stage": 2} // noqa: DSL140\n}\n',
    }
    for name, text in texts.items():
        (project / name).write_text(text)
    assert dslint(".").codes == ["DSL903"] * 7
    assert dslint(".", "--fix").code == 0
    assert {name: (project / name).read_text() for name in texts} == {
        "a.py": "import torch.distributed as dist\ndist.barrier()\n",
        "b.sh": "echo 1\ntorchrun --nproc_per_node 8 train.py\n",
        "c.md": "```bash\ntorchrun --nproc_per_node 8 train.py\n```\n",
        "ds.jsonc": '{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2}\n}\n',
    }


MARKDOWN = """\
# Train

{before}
```bash
echo first
torchrun --nproc_per_node 8 --master_port 70000 train.py
```

Or with two:

```bash
torchrun --nproc_per_node 2 --master_port 70001 train.py
```
"""


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        ("", ["DSL309", "DSL309"]),
        ("<!-- dslint: ignore[DSL309] an example of a mistake -->", ["DSL309"]),
        ("<!-- dslint: ignore[port-out-of-range] -->\n", ["DSL309"]),
        ("<!-- noqa: DSL309 -->", ["DSL309"]),
        ("<!-- dslint: ignore-file[DSL309] all of them -->", []),
        # It speaks about what stands below, and a comment that nobody needs is reported.
        ("<!-- dslint: ignore[DSL309] -->\n\nText.\n", ["DSL903", "DSL309", "DSL309"]),
        ("<!-- dslint: ignore[DSL309] --> <!-- of another tool -->", ["DSL309"]),
        ("<!-- about dslint and its comments -->", ["DSL309", "DSL309"]),
    ],
)
def test_a_comment_of_markdown_speaks_about_the_block_below(before: str, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "README.md").write_text(MARKDOWN.format(before=before))
    result = check_paths(["README.md"], make_settings({"cache": False, "jobs": 1}))
    assert [f.code for f in result.findings] == codes


WORKFLOW = """\
on: push
jobs:
  train:
    steps:
      - run: echo a
      {above}
      - run: |{beside}
          cd src
          {inside}
          torchrun --nproc_per_node 8 \\
            --master_port 70000 train.py{end}
"""


@pytest.mark.parametrize(
    ("place", "codes"),
    [
        ("", ["DSL309"]),
        ("above", []),
        ("beside", []),
        ("inside", []),
        ("end", []),
    ],
)
def test_the_shell_of_a_workflow_takes_comments_and_so_does_its_key(
    place: str, codes: list[str], project: Path
) -> None:
    comments = dict.fromkeys(("above", "beside", "inside", "end"), "")
    if place:
        comments[place] = " # dslint: ignore[DSL309] why"
    (project / ".github/workflows").mkdir(parents=True)
    (project / ".github/workflows/ci.yml").write_text(WORKFLOW.format(**comments))
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1, "select": ["DSL309", "DSL903"]}))
    assert [f.code for f in result.findings] == codes


def test_an_unused_comment_of_markdown_is_deleted_by_its_fix(tmp_path: Path) -> None:
    text = MARKDOWN.format(before="<!-- dslint: ignore[DSL309, DSL301] reason -->\n\nText.\n")
    (tmp_path / "README.md").write_text(text)
    fixed = fix_paths(["README.md"], make_settings({"cache": False, "jobs": 1}))
    assert "<!--" not in fixed.after["README.md"]
    assert fixed.after["README.md"] == text.replace("<!-- dslint: ignore[DSL309, DSL301] reason -->\n", "")


def test_patterns_of_launches_and_consumers_that_match_nothing_are_notes(project: Path) -> None:
    (project / "run.sh").write_text("deepspeed train.py\n")
    (project / "dslint.toml").write_text(
        '[launches."run.sh"]\nnnodes = 1\n[launches."gone/*.sh"]\nnnodes = 2\n[consumers]\n"old/*.json" = "hf"\n'
    )
    found = dslint(".", "--select", "DSL903", "--min-severity", "info").out.splitlines()
    assert [line.partition(" of ")[0] for line in found] == [
        "dslint.toml:3:1: DSL903 info: `gone/*.sh`",
        "dslint.toml:6:1: DSL903 info: `old/*.json`",
    ]
    assert dslint("run.sh", "--select", "DSL903", "--min-severity", "info").out == ""


def test_entries_of_the_settings_that_match_nothing_are_found_where_they_stand(project: Path) -> None:
    (project / "configs").mkdir()
    (project / "configs/ds.json").write_text('{"train_batch_size": 8, "fp16": {"enabled": true}}\n')
    (project / "dslint.toml").write_text(
        "[per-file-ignores]\n"
        '"configs/ds.json" = ["DSL160:/zero_optimization/overlap_comm", "DSL101:/fp16"]\n'
        '"configs/gone.json" = ["DSL1"]\n'
        '"old/**" = ["DSL2"]\n'
        '"configs/*.json" = ["DSL2"]\n'
        '"!configs/" = ["DSL2"]\n'
    )
    shown = [(place, code) for place, code in dslint("--min-severity", "info").places if code == "DSL903"]
    assert sorted(shown) == [
        ("dslint.toml:2:1", "DSL903"),
        ("dslint.toml:3:1", "DSL903"),
        ("dslint.toml:4:1", "DSL903"),
    ]
    out = dslint("--min-severity", "info").out
    assert "`configs/ds.json` has nothing at `/zero_optimization/overlap_comm`" in out
    assert "there is no `configs/gone.json`" in out
    assert "info: `old/**` matches no file that dslint looks at" in out
    # A part of the project says nothing about patterns.
    assert "old/**" not in dslint("configs", "--min-severity", "info").out


def test_a_suppression_that_no_run_of_the_project_needs_is_a_note_for_every_rule(project: Path) -> None:
    rules = [r.code for r in all_rules() if r.kind != "dslint" and not r.optional]
    lines = [f"x = {n}  # dslint: ignore[{code}]" for n, code in enumerate(rules)]
    (project / "train.py").write_text("\n".join(["import torch.distributed as dist", *lines]) + "\n")
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1}))
    named = {code for code in rules for f in result.findings if f.code == "DSL903" and f"`{code}`" in f.message}
    assert named == set(rules)
    depends = {r.code for r in all_rules() if r.depends_on_run}
    for finding in result.findings:
        (code,) = (code for code in rules if f"`{code}`" in finding.message)
        assert finding.severity.value == ("info" if code in depends else "warning")
        assert finding.fix is not None
        assert finding.fix.safety.value == ("unsafe" if code in depends else "safe")
    alone = check_paths(["train.py"], make_settings({"cache": False, "jobs": 1}))
    assert not {code for code in depends for f in alone.findings if f"`{code}`" in f.message}
