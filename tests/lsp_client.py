"""A client of the language server over the pipes of a real process, without any library of the protocol."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Seconds for anything that a test waits for; the machines of CI are slow.
PATIENCE = 30.0


CONFIG = """\
{
  "train_batch_size": 30,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_clipp1ng": 1.0,
  "zero_optimization": {"stage": 2, "cpu_offload": true}
}
"""
SCRIPT = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args)
"""
RUN = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"


def make_project(folder: Path) -> Path:
    """The project of most tests; without pygls there is no server to be tested on it."""
    pytest.importorskip("pygls", reason="pip install 'deepspeed-lint[server]'")
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "ds.json").write_text(CONFIG)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "run.sh").write_text(RUN)
    return folder


def uri_of(path: Path) -> str:
    return "file://" + quote(str(path))


class Client:
    """Starts ``dslint server`` and speaks with it; a thread reads what comes."""

    def __init__(self, folder: Path, arguments: tuple[str, ...] = (), begins_in: Path | None = None) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder.parent / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dslint", "server", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=begins_in or folder,
        )
        self.messages: list[dict[str, Any]] = []
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._arrived = threading.Condition()
        self._number = 0
        self._errors: list[bytes] = []
        self._open: set[str] = set()
        # Messages before this one are of no interest any more.
        self.since = 0
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line)

    @property
    def errors(self) -> str:
        return b"".join(self._errors).decode("utf-8", "replace")

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not line:
                break
            message = json.loads(stream.read(length))
            with self._arrived:
                self.messages.append(message)
                if "method" not in message and message.get("id") in self._answers:
                    self._answers[message["id"]].put(message)
                elif "method" in message and "id" in message:
                    self.send({"jsonrpc": "2.0", "id": message["id"], "result": None})
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def notify(self, method: str, params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: object) -> int:
        self._number += 1
        self._answers[self._number] = queue.Queue()
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        return self._answers[number].get(timeout=PATIENCE)

    def request(self, method: str, params: object) -> Any:
        answer = self.answer(self.ask(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    def begin(self, options: object = None, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result = self.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": uri_of(self.folder),
                "workspaceFolders": [{"uri": uri_of(self.folder), "name": "project"}],
                "capabilities": capabilities or {},
                "initializationOptions": options,
            },
        )
        self.notify("initialized", {})
        assert isinstance(result, dict)
        return result

    def open(self, path: Path, text: str | None = None, language: str = "plaintext", version: int = 1) -> str:
        text = path.read_text() if text is None else text
        self._open.add(uri_of(path))
        item = {"uri": uri_of(path), "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri_of(path)

    def close_all(self) -> None:
        for uri in self._open:
            self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        self._open.clear()

    def change(self, uri: str, text: str, version: int) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def wait(self, wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """The first message after the given number of them that is wanted."""
        since = max(since, self.since)
        until = time.monotonic() + PATIENCE
        with self._arrived:
            while True:
                for message in self.messages[since:]:
                    if wanted(message):
                        return message
                rest = until - time.monotonic()
                assert rest > 0, [str(m)[:300] for m in self.messages[since:]] + [self.errors]
                assert self.process.poll() is None or rest > PATIENCE - 5, self.errors
                self._arrived.wait(min(rest, 0.5))

    def diagnostics(self, uri: str, version: int | None = None, least: int = 0) -> list[dict[str, Any]]:
        """The diagnostics of a document, of the given version, at least so many of them."""

        def wanted(message: dict[str, Any]) -> bool:
            params = message.get("params")
            return (
                message.get("method") == "textDocument/publishDiagnostics"
                and params["uri"] == uri
                and (version is None or params.get("version") == version)
                and len(params["diagnostics"]) >= least
            )

        found = self.wait(wanted)["params"]["diagnostics"]
        assert isinstance(found, list)
        return found

    def end(self) -> int:
        """Say goodbye as the protocol wants it; returns the exit code."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
