"""Whatever a client sends or does, the server answers what comes next, or ends: no traceback, no hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lsp_client import CONFIG, PATIENCE, ROOT, Client, uri_of

from dslint import __version__

pytest_plugins = ["lsp_fixtures"]


def is_alive(client: Client, path: Path) -> None:
    """The server still judges a config."""
    client.since = len(client.messages)
    uri = client.open(path, CONFIG, version=77)
    assert "DSL101" in {d["code"] for d in client.diagnostics(uri, version=77, least=1)}
    assert "Traceback" not in client.errors


def test_malformed_frames(client: Client, project: Path) -> None:
    for body in (b"{", b"[]", b"null", b"\xff\xfe{}", b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "2.0", "method": 7}'):
        client.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    client.raw(b"Content-Length: many\r\n\r\n")
    client.raw(b"hello\r\n\r\n")
    client.notify("textDocument/didOpen", {"textDocument": 7})
    client.notify("textDocument/noSuchThing", {})
    number = client.ask("textDocument/alsoNoSuchThing", {})
    assert client.answer(number)["error"]["code"] == -32601
    is_alive(client, project / "ds.json")


def test_uris_that_are_no_files(client: Client, project: Path) -> None:
    for uri in (
        "untitled:Untitled-1",
        "git:/x/ds.json?x",
        "http://example.org/ds.json",
        "file://host/ds.json",
        "",
        "%",
    ):
        item = {"uri": uri, "languageId": "json", "version": 1, "text": CONFIG}
        client.notify("textDocument/didOpen", {"textDocument": item})
        document = {"uri": uri, "version": 2}
        client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": "{}"}]})
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    is_alive(client, project / "ds.json")


def test_documents_that_are_not_open(client: Client, project: Path) -> None:
    uri = uri_of(project / "nowhere.json")
    client.change(uri, CONFIG, 5)
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    is_alive(client, project / "ds.json")


def test_ranges_outside_of_the_text(client: Client, project: Path) -> None:
    uri = client.open(project / "ds.json", "{\n}\n")
    for line, column, text in ((99, 99, "\n"), (0, 500, " "), (1, 0, '"train_batch_size": 8\n')):
        place = {"line": line, "character": column}
        changes = [{"range": {"start": place, "end": place}, "text": text}]
        client.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 3}, "contentChanges": changes})
    is_alive(client, project / "other.json")


def test_files_that_vanish(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin()
    uri = client.open(own / "run.sh")
    client.diagnostics(uri, version=1)
    for name in ("ds.json", "train.py", "run.sh"):
        (own / name).unlink()
    client.change(uri, "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n", 2)
    client.notify(
        "workspace/didChangeWatchedFiles",
        {"changes": [{"uri": uri_of(own / name), "type": 3} for name in ("ds.json", "train.py")]},
    )
    client.diagnostics(uri, version=2)
    os.rename(own, own.parent / "moved")
    client.change(uri, "deepspeed train.py\n", 3)
    client.diagnostics(uri, version=3)
    assert client.end() == 0
    assert "Traceback" not in client.errors


def test_a_huge_document(client: Client, project: Path) -> None:
    row = '"a": "' + "x" * 1000 + '",\n'
    uri = client.open(project / "huge.json", "{" + row * 50_000 + "}")
    end = {"line": 50_000, "character": 1}
    changes = [{"range": {"start": end, "end": end}, "text": "\n"}]
    client.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": changes})
    is_alive(client, project / "ds.json")


def test_text_that_no_file_can_hold(client: Client, project: Path) -> None:
    for index, text in enumerate(("\ud800" + CONFIG, "\0" * 100 + CONFIG, "\x0c\u2028\r" + CONFIG, "{" * 5000)):
        client.open(project / f"odd{index}.json", text)
        client.open(project / f"odd{index}.py", f"import deepspeed\n{text}")
        client.open(project / f"odd{index}.sh", f"deepspeed train.py {text}")
    is_alive(client, project / "ds.json")


def test_names_and_bytes_that_are_no_utf_8(own: Path, start: Callable[..., Client]) -> None:
    name = os.fsdecode(b"\xff\xfe.json")
    (own / name).write_text(CONFIG)
    (own / "latin.json").write_bytes(CONFIG.encode() + b'\n"\xe4\xf6"')
    (own / "latin.py").write_bytes(b"import deepspeed\n# \xe4\xf6\n")
    client = start(own)
    client.begin()
    uri = "file://" + os.fsencode(own).decode() + "/%FF%FE.json"
    item = {"uri": uri, "languageId": "json", "version": 1, "text": CONFIG}
    client.notify("textDocument/didOpen", {"textDocument": item})
    assert client.diagnostics(uri, version=1, least=1)
    is_alive(client, own / "ds.json")


def test_a_client_that_goes_away(own: Path, start: Callable[..., Client]) -> None:
    client = start(own)
    client.begin()
    client.open(own / "ds.json")
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(PATIENCE) == 1
    assert "Traceback" not in client.errors


def test_a_client_that_no_longer_reads(own: Path) -> None:
    words = [sys.executable, "-m", "dslint", "server"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(own.parent / "cache")}
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=own
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    params = b'{"processId": null, "rootUri": null, "capabilities": {}}'
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ' + params + b"}"
    process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    process.stdin.flush()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert b"Traceback" not in errors


def test_a_server_that_is_killed_is_started_again(own: Path, start: Callable[..., Client]) -> None:
    first = start(own)
    first.begin()
    first.diagnostics(first.open(own / "ds.json"), least=1)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(PATIENCE)
    again = start(own)
    again.begin()
    is_alive(again, own / "ds.json")
    assert again.end() == 0


def test_without_pygls_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ImportError('none here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "server"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dslint: the server needs pygls: pip install 'deepspeed-lint[server]'\n"


def test_a_client_can_ask_beforehand_whether_the_server_can_run(tmp_path: Path) -> None:
    def check(path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dslint", "server", "--check"]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    pytest.importorskip("pygls", reason="pip install 'deepspeed-lint[server]'")
    done = check(str(ROOT))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dslint {__version__} can serve\n", "")
    (tmp_path / "pygls.py").write_text("raise ImportError('none here')\n")
    done = check(f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs pygls" in done.stderr
