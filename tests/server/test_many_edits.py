"""Thousands of quick changes, and requests that nobody waits for: order, versions, and what is said in the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lsp_client import CONFIG, Client, uri_of

pytest_plugins = ["lsp_fixtures"]

BAD = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
"""
# The error code of the protocol for a request that was cancelled.
CANCELLED = -32800


def published(client: Client, uri: str) -> list[dict[str, Any]]:
    messages = [m["params"] for m in client.messages if m.get("method") == "textDocument/publishDiagnostics"]
    return [params for params in messages if params["uri"] == uri]


def insert(client: Client, uri: str, version: int, line: int, text: str) -> None:
    place = {"line": line, "character": 0}
    changes = [{"range": {"start": place, "end": place}, "text": text}]
    document = {"uri": uri, "version": version}
    client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})


def test_thousands_of_quick_changes(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin()
    config, script = client.open(own / "ds.json"), client.open(own / "bad.py", BAD)
    client.diagnostics(config, version=1, least=1)
    first = client.diagnostics(script, version=1, least=1)
    for version in range(2, 1502):
        insert(client, config, version, 0, "\n")
        insert(client, script, version, 0, "\n")
    last = client.diagnostics(config, version=1501, least=1)
    assert {d["range"]["start"]["line"] for d in last if d["code"] == "DSL101"} == {1503}
    found = client.diagnostics(script, version=1501, least=1)
    assert [(d["code"], d["range"]["start"]["line"]) for d in found] == [
        (d["code"], d["range"]["start"]["line"] + 1500) for d in first
    ]
    for uri in (config, script):
        versions = [params["version"] for params in published(client, uri)]
        assert versions == sorted(versions)
        # Nobody reads the diagnostics of each of them.
        assert len(versions) < 700
    assert client.end() == 0
    assert "Traceback" not in client.errors


def test_a_change_does_not_wait_for_what_takes_long(own: Path, start: Callable[..., Client]) -> None:
    """Findings move with the text at once, and each answer is about the text of its version."""
    long = BAD + "\n".join(f"def f{n}(x):\n    return [dist.get_rank() + {n}, x]\n" for n in range(300))
    client = start(own)
    client.begin()
    uri = client.open(own / "long.py", long)
    first = client.diagnostics(uri, version=1, least=1)
    lines = sorted((d["code"], d["range"]["start"]["line"]) for d in first)
    for version in range(2, 12):
        insert(client, uri, version, 0, "\n")
        found = client.diagnostics(uri, version=version, least=1)
        moved = [(code, line + version - 1) for code, line in lines]
        assert sorted((d["code"], d["range"]["start"]["line"]) for d in found) == moved
    assert "Traceback" not in client.errors


def test_requests_that_are_cancelled(client: Client, project: Path) -> None:
    uri = client.open(project / "ds.json")
    document = {"textDocument": {"uri": uri}}
    place = {**document, "position": {"line": 4, "character": 28}}
    all_of_it = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    asked = []
    for number in range(40):
        client.change(uri, CONFIG + "\n" * number, 2 + number)
        for method, params in (
            ("hover", place),
            ("completion", place),
            ("codeLens", document),
            ("inlayHint", {**document, "range": all_of_it}),
            ("codeAction", {**document, "range": all_of_it, "context": {"diagnostics": []}}),
        ):
            asked.append(client.ask(f"textDocument/{method}", params))
            client.notify("$/cancelRequest", {"id": asked[-1]})
    for number in asked:
        answer = client.answer(number)
        assert "result" in answer or answer["error"]["code"] == CANCELLED, answer
    for unknown in (asked[0], 987654, "x", None):
        client.notify("$/cancelRequest", {"id": unknown})
    client.notify("$/cancelRequest", {})
    assert "DSL101" in {d["code"] for d in client.diagnostics(uri, version=41, least=1)}
    assert "Traceback" not in client.errors


@pytest.mark.parametrize(
    "frame", [b"Content-Length: 100\r\n\r\n{", b"Content-Length: -5\r\n\r\n{}", b"\r\n\r\n", b"\0" * 50]
)
def test_a_client_that_goes_away_in_a_frame(own: Path, start: Callable[..., Client], frame: bytes) -> None:
    client = start(own)
    client.begin()
    client.open(own / "ds.json")
    client.raw(frame)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(30) == 1
    assert "Traceback" not in client.errors


def test_a_document_that_comes_and_goes(client: Client, project: Path) -> None:
    """What is opened and closed in a hurry is in the end what the disk says."""
    uri = uri_of(project / "ds.json")
    for number in range(200):
        client.open(project / "ds.json", CONFIG.replace("gradient_clipp1ng", "gradient_clipping"), version=number)
        client.close_all()
    client.open(project / "ds.json", version=1000)
    assert "DSL101" in {d["code"] for d in client.diagnostics(uri, version=1000, least=1)}
