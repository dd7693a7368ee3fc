"""Hover, completion, lenses and hints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lsp_client import Client

from dslint.server.jsoncursor import cursor_at

pytest_plugins = ["lsp_fixtures"]

GOOD = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 3, "overlap_comm": true}
}
"""
TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=None, args=args).train()
"""
LAUNCH = """\
export X=1
torchrun --nproc_per_node 8 hf.py \\
  --per_device_train_batch_size 4 --output_dir out --deepspeed zero3.json
"""


@pytest.fixture
def run(client: Client, project: Path) -> tuple[str, str]:
    """A config with `"auto"` and the command that uses it; their URIs."""
    client.open(project / "hf.py", TRAINER)
    config = client.open(project / "zero3.json", GOOD)
    script = client.open(project / "hf.sh", LAUNCH)
    client.diagnostics(script, version=1)
    return config, script


def ask(client: Client, method: str, uri: str, line: int = 0, character: int = 0) -> Any:
    place = {"line": line, "character": character}
    return client.request(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": place})


def test_hover_on_a_key(client: Client, run: tuple[str, str]) -> None:
    text = ask(client, "hover", run[0], 3, 27)["contents"]["value"]
    assert "`zero_optimization.stage`" in text
    assert "default: `0`" in text
    assert "the Trainer of transformers" in text
    assert "`hf.sh:2`" in text


def test_hover_says_what_auto_becomes(client: Client, run: tuple[str, str]) -> None:
    text = ask(client, "hover", run[0], 1, 5)["contents"]["value"]
    assert 'Here `"auto"` becomes 32.' in text


def test_hover_says_the_releases(client: Client, project: Path) -> None:
    uri = client.open(
        project / "ds.json", '{"train_batch_size": 8, "bf16": {"enabled": true, "check_grad_overflow": true}}'
    )
    text = ask(client, "hover", uri, 0, 52)["contents"]["value"]
    assert "since 0." in text
    assert "0.19.8" in text


def test_hover_on_a_launch_line(client: Client, run: tuple[str, str]) -> None:
    for line, character in ((1, 3), (2, 10)):
        text = ask(client, "hover", run[1], line, character)["contents"]["value"]
        assert "8 processes" in text
        assert "world size 8" in text
        assert "ZeRO stage 3" in text
    assert ask(client, "hover", run[1], 0, 3) is None


def test_lens(client: Client, run: tuple[str, str]) -> None:
    found = client.request("textDocument/codeLens", {"textDocument": {"uri": run[1]}})
    assert [lens["command"]["title"] for lens in found] == ["8 ranks, batch 32, ZeRO 3"]
    assert found[0]["range"]["start"]["line"] == 1
    command = found[0]["command"]
    client.request("workspace/executeCommand", {"command": command["command"], "arguments": command["arguments"]})
    said = client.wait(lambda m: m.get("method") == "window/showMessage")
    assert "8 processes" in said["params"]["message"]
    for arguments in ([], ["x", 1, 1], [run[1], -1, 5], [run[1], 999, 5], [1, 2, 3]):
        client.request("workspace/executeCommand", {"command": "dslint.plan", "arguments": arguments})


def test_hints(client: Client, run: tuple[str, str]) -> None:
    place = {"start": {"line": 0, "character": 0}, "end": {"line": 10, "character": 0}}
    found = client.request("textDocument/inlayHint", {"textDocument": {"uri": run[0]}, "range": place})
    assert [(h["position"]["line"], h["label"]) for h in found] == [(1, " = 32"), (2, " = 4")]


def labels(client: Client, uri: str, line: int, character: int) -> dict[str, dict[str, Any]]:
    found = ask(client, "completion", uri, line, character)
    return {item["label"]: item for item in found}


def test_completion_of_keys(client: Client, project: Path) -> None:
    text = '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n    "sta"\n  },\n  \n}\n'
    uri = client.open(project / "ds.json", text)
    found = labels(client, uri, 3, 8)
    assert "stage" in found
    assert "gradient_clipping" not in found
    edit = found["stage"]["textEdit"]
    assert edit["newText"] == '"stage": '
    assert (edit["range"]["start"]["character"], edit["range"]["end"]["character"]) == (4, 9)
    top = labels(client, uri, 5, 2)
    assert "gradient_clipping" in top
    assert "train_batch_size" not in top  # it is there already


def test_completion_of_values(client: Client, project: Path) -> None:
    uri = client.open(
        project / "ds.json", '{"train_batch_size": 8, "zero_optimization": {"stage": , "overlap_comm": }}\n'
    )
    assert {"0", "1", "2", "3"} <= set(labels(client, uri, 0, 55))
    assert {"true", "false"} <= set(labels(client, uri, 0, 73))


def test_completion_knows_the_release(client: Client, project: Path) -> None:
    text = '{"train_batch_size": 8, "bf16": {"enabled": true, ""}}\n'
    at = text.index('""') + 1
    uri = client.open(project / "ds.json", text)
    assert "check_grad_overflow" in labels(client, uri, 0, at)
    client.open(project / "requirements.txt", "deepspeed==0.14.4\n")
    client.change(uri, text, 2)
    client.diagnostics(uri, version=2)
    assert "check_grad_overflow" not in labels(client, uri, 0, at)


def test_nothing_is_completed_in_other_json(client: Client, project: Path) -> None:
    uri = client.open(project / "package.json", '{"name": "x", "scripts": {""}}\n')
    assert labels(client, uri, 0, 27) == {}


@pytest.mark.parametrize(
    ("text", "is_key", "section", "key"),
    [
        ('{"a|', True, "", None),
        ('{"a": |', False, "", "a"),
        ('{"a": {"b": 1, |}}', True, "/a", None),
        ('{"a": {"b": "x|"}}', False, "/a", "b"),
        ('{"a": {"b": tr|', False, "/a", "b"),
        ("{// note\n|", True, "", None),
        ('{"a/b": {"|"', True, "/a~1b", None),
        ('{"a": [{"b": |}]}', False, "/a/0", "b"),
        ('{"a": [1, {"b": |}]}', False, "/a/1", "b"),
        ('{"a": "\\"}", |', True, "", None),
    ],
)
def test_where_a_cursor_stands(text: str, is_key: bool, section: str, key: str | None) -> None:
    found = cursor_at(text.replace("|", ""), text.index("|"))
    assert found is not None
    assert (found.is_key, found.section, found.key) == (is_key, section, key)


@pytest.mark.parametrize("text", ["|", '{"a": 1 // x|', '{"a": 1 |', '{"a"|', "[1, |]", '{"a": 1}|', "{} |"])
def test_where_nothing_is_completed(text: str) -> None:
    assert cursor_at(text.replace("|", ""), text.index("|")) is None


@pytest.mark.parametrize("text", ["", "{" * 3000, '{"a": ' * 500, '"' * 999, "/*" * 100, json.dumps({"a": "x" * 9999})])
def test_a_cursor_in_odd_texts(text: str) -> None:
    for offset in (0, len(text) // 2, len(text)):
        cursor_at(text, offset)
