"""Code actions, and what comes of their edits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lsp_client import CONFIG, Client, uri_of

from dslint.settings import load_settings

pytest_plugins = ["lsp_fixtures"]

VERSIONED = {"workspace": {"workspaceEdit": {"documentChanges": True, "resourceOperations": ["create"]}}}
WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}


def actions(client: Client, uri: str, place: Any = WHOLE, only: list[str] | None = None) -> list[dict[str, Any]]:
    context: dict[str, Any] = {"diagnostics": []} | ({"only": only} if only else {})
    found = client.request(
        "textDocument/codeAction", {"textDocument": {"uri": uri}, "range": place, "context": context}
    )
    assert isinstance(found, list)
    return found


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after edits, by the columns of ASCII."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]

    def offset(position: dict[str, int]) -> int:
        return min(starts[min(position["line"], len(lines))] + position["character"], len(text))

    for edit in sorted(edits, key=lambda e: offset(e["range"]["start"]), reverse=True):
        text = text[: offset(edit["range"]["start"])] + edit["newText"] + text[offset(edit["range"]["end"]) :]
    return text


def changes(action: dict[str, Any], uri: str) -> list[dict[str, Any]]:
    found = action["edit"]["changes"][uri]
    assert isinstance(found, list)
    return found


def test_safe_and_unsafe_fixes_are_apart(client: Client, project: Path) -> None:
    uri = client.open(project / "ds.json")
    found = {a["title"]: a for a in actions(client, uri)}
    safe = next(a for title, a in found.items() if title.endswith("(DSL103)"))
    unsafe = found["Rename the key to `gradient_clipping` (DSL101, unsafe)"]
    assert (safe["kind"], safe["isPreferred"]) == ("quickfix", True)
    assert unsafe["kind"] == "quickfix.unsafe.dslint"
    assert not unsafe.get("isPreferred")
    text = applied(CONFIG, changes(safe, uri))
    assert '"offload_optimizer": {"device": "cpu"}' in text
    client.change(uri, applied(CONFIG, changes(unsafe, uri)), 2)
    assert "DSL101" not in {d["code"] for d in client.diagnostics(uri, version=2)}


def test_all_safe_fixes_at_once(client: Client, project: Path) -> None:
    uri = client.open(project / "ds.json")
    found = actions(client, uri, only=["source.fixAll"])
    assert [a["kind"] for a in found] == ["source.fixAll.dslint"]
    text = applied(CONFIG, changes(found[0], uri))
    assert "cpu_offload" not in text
    assert "gradient_clipp1ng" in text  # its fix is unsafe


def test_actions_of_other_lines_are_not_offered(client: Client, project: Path) -> None:
    uri = client.open(project / "ds.json")
    place = {"start": {"line": 3, "character": 4}, "end": {"line": 3, "character": 4}}
    titles = [a["title"] for a in actions(client, uri, place, ["quickfix"])]
    assert titles
    assert all("DSL101" in title for title in titles)


PYTHON = """\
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        dist.all_reduce(
            tensor,
        )

main()
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train2.py", PYTHON),
        ("again.sh", "export A=1\ntorchrun --nproc_per_node 2 \\\n  train.py \\\n  --deepspeed nowhere.json\n"),
        ("README.md", "# x\n\n```bash\ntorchrun --nproc_per_node 2 train.py --deepspeed nowhere.json\n```\n"),
        ("Dockerfile", "FROM x\nCMD deepspeed --num_gpus 8 train.py --deepspeed_config nowhere.json\n"),
        (
            "accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 7\n",
        ),
    ],
)
def test_ignore_here_ignores(client: Client, project: Path, name: str, text: str) -> None:
    uri = client.open(project / name, text)
    before = client.diagnostics(uri, version=1, least=1)
    first = next(a for a in actions(client, uri) if a["title"].startswith("Ignore"))
    code = first["title"].split()[1]
    client.change(uri, applied(text, changes(first, uri)), 2)
    after = client.diagnostics(uri, version=2)
    assert [d["code"] for d in after].count(code) == [d["code"] for d in before].count(code) - 1
    assert "DSL903" not in {d["code"] for d in after}


def test_a_key_of_a_config_is_ignored_in_the_settings(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin(capabilities=VERSIONED)
    uri = client.open(own / "ds.json")
    found = next(a for a in actions(client, uri) if a["title"] == "Ignore DSL101 for this key in dslint.toml")
    create, edit = found["edit"]["documentChanges"]
    assert (create["kind"], create["uri"]) == ("create", uri_of(own / "dslint.toml"))
    (own / "dslint.toml").write_text(applied("", edit["edits"]))
    assert load_settings(own, {}).per_file_ignores == {"ds.json": ("DSL101:/gradient_clipp1ng",)}
    client.since = len(client.messages)
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri_of(own / "dslint.toml"), "type": 1}]})
    client.wait(
        lambda m: (
            m.get("method") == "textDocument/publishDiagnostics"
            and m["params"]["uri"] == uri
            and "DSL101" not in {d["code"] for d in m["params"]["diagnostics"]}
        )
    )
    # The line is there now: the next key goes into its list.
    other = next(a for a in actions(client, uri) if a["title"].startswith("Ignore DSL103 for"))
    (edit,) = other["edit"]["documentChanges"]
    text = applied((own / "dslint.toml").read_text(), edit["edits"])
    (own / "dslint.toml").write_text(text)
    wanted = {"ds.json": ("DSL103:/zero_optimization/cpu_offload", "DSL101:/gradient_clipp1ng")}
    assert load_settings(own, {}).per_file_ignores == wanted


def test_edits_name_the_version_of_their_text(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin(capabilities=VERSIONED)
    uri = client.open(own / "ds.json", version=41)
    fix = next(a for a in actions(client, uri) if a["title"].endswith("(DSL103)"))
    assert [c["textDocument"] for c in fix["edit"]["documentChanges"]] == [{"uri": uri, "version": 41}]


def test_why_opens_the_page(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin(capabilities={"window": {"showDocument": {"support": True}}})
    uri = client.open(own / "ds.json")
    why = next(a for a in actions(client, uri) if a["title"].startswith("Why? DSL101"))
    client.request("workspace/executeCommand", {k: why["command"][k] for k in ("command", "arguments")})
    shown = client.wait(lambda m: m.get("method") == "window/showDocument")
    assert shown["params"]["uri"].endswith("DSL101.md")
    for arguments in ([], [7], ["DSL000"], [{}]):
        client.request("workspace/executeCommand", {"command": "dslint.why", "arguments": arguments})


def test_why_is_said_where_nothing_can_be_shown(client: Client, project: Path) -> None:
    client.open(project / "ds.json")
    client.request("workspace/executeCommand", {"command": "dslint.why", "arguments": ["DSL101"]})
    said = client.wait(lambda m: m.get("method") == "window/showMessage")
    assert "DSL101 unknown-top-level-key" in said["params"]["message"]


def test_a_cell_whose_address_is_none_of_a_file_has_actions(client: Client, project: Path) -> None:
    text = "import torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    cell = "vscode-notebook-cell:" + uri_of(project / "c.ipynb").removeprefix("file:") + "#W0sZmlsZQ%3D%3D"
    cells = [{"kind": 2, "document": cell}]
    item = {"uri": uri_of(project / "c.ipynb"), "notebookType": "jupyter-notebook", "version": 1, "cells": cells}
    documents = [{"uri": cell, "languageId": "python", "version": 1, "text": text}]
    client.notify("notebookDocument/didOpen", {"notebookDocument": item, "cellTextDocuments": documents})
    found = {a["title"]: a for a in actions(client, cell)}
    gone = {"notebookDocument": {"uri": item["uri"]}, "cellTextDocuments": [{"uri": cell}]}
    client.notify("notebookDocument/didClose", gone)
    assert applied(text, changes(found["Ignore DSL201 here"], cell)).splitlines()[3] == "    # dslint: ignore[DSL201]"
