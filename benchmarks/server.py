"""How fast `dslint server` answers: the time from a change to its diagnostics, and the memory after many changes.

    python benchmarks/server.py PROJECT [--edits N] [FILE ...]

Starts the server on a project as an editor does, waits for the first look, then changes files (one of each kind, or
those named) N times in turn by one character, and waits each time for the diagnostics of that version. Nothing is
written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_KINDS = (".py", ".sh", ".json", ".yaml", ".yml", ".md")
# The size of a file of each kind that is not the smallest nor the largest.
_MIDDLE = 0.75


class Server:
    """The server over its pipes; messages are told to whoever waits."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "dslint", "server"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder
        )
        self.arrived = threading.Condition()
        self.messages: list[tuple[float, dict[str, Any]]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                header = stream.readline()
            message = json.loads(stream.read(length))
            with self.arrived:
                self.messages.append((time.perf_counter(), message))
                self.arrived.notify_all()
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": None})

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def diagnostics(self, uri: str, version: int, patience: float = 300) -> float:
        """Wait for the diagnostics of a version; returns when they came."""
        until = time.perf_counter() + patience
        with self.arrived:
            while time.perf_counter() < until:
                for when, message in reversed(self.messages):
                    params = message.get("params")
                    is_right = message.get("method") == "textDocument/publishDiagnostics"
                    if is_right and params["uri"] == uri and params.get("version") == version:
                        self.messages.clear()
                        return when
                self.arrived.wait(1)
        raise SystemExit(f"no diagnostics of version {version} in {patience} seconds")

    def end_of_first_look(self, patience: float = 1200) -> None:
        """Wait until the progress of the first look ends."""
        until = time.perf_counter() + patience
        with self.arrived:
            while time.perf_counter() < until:
                for _, message in self.messages:
                    value = message.get("params", {}).get("value") if message.get("method") == "$/progress" else None
                    if value is not None and value["kind"] == "end":
                        return
                self.arrived.wait(1)
        raise SystemExit("the first look does not end")

    @property
    def spent(self) -> float:
        """Seconds of processor time so far: on a busy machine they say more than the clock."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """Megabytes in memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) // 1024
        return 0


def chosen(folder: Path) -> Iterator[Path]:
    """One file of each kind, of more than middling size."""
    listed = subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=True).stdout
    for suffix in _KINDS:
        files = [folder / name for name in listed.splitlines() if name.endswith(suffix)]
        files = sorted((f for f in files if f.is_file() and f.stat().st_size < 100_000), key=lambda f: f.stat().st_size)
        if files:
            yield files[int(_MIDDLE * (len(files) - 1))]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--edits", type=int, default=20, help="changes of each file (default: 20)")
    options = parser.parse_args()
    folder = options.project.resolve()
    server = Server(folder)
    begin = time.perf_counter()
    uri = folder.as_uri()
    capabilities = {"window": {"workDoneProgress": True}}
    params = {"processId": os.getpid(), "rootUri": uri, "capabilities": capabilities}
    server.send({"id": 1, "method": "initialize", "params": params})
    server.send({"method": "initialized", "params": {}})
    server.end_of_first_look()
    print(
        f"first look {time.perf_counter() - begin:.1f} s, {server.memory} MB, load {os.getloadavg()[0]:.1f}", flush=True
    )
    every: list[tuple[float, float]] = []
    for file in [f.resolve() for f in options.files] or list(chosen(folder)):
        times = edited(server, file, options.edits)
        every += times
        print(f"{row(times)}  {file.relative_to(folder)}", flush=True)
    print(f"{row(every)}  all; {server.memory} MB after {len(every)} changes")
    server.process.kill()


def edited(server: Server, file: Path, edits: int) -> list[tuple[float, float]]:
    """The seconds from each change of a file to its diagnostics, by the clock and of the processor."""
    text, uri = file.read_text(), file.as_uri()
    document = {"uri": uri, "languageId": file.suffix[1:], "version": 1, "text": text}
    server.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
    server.diagnostics(uri, 1)
    end = {"line": text.count("\n") + 1, "character": 0}
    times = []
    for version in range(2, edits + 2):
        begin, before = time.perf_counter(), server.spent
        change = {"range": {"start": end, "end": end}, "text": "\n"}
        params = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
        server.send({"method": "textDocument/didChange", "params": params})
        times.append((server.diagnostics(uri, version) - begin, server.spent - before))
        # A person looks at what comes.
        time.sleep(0.3)
    server.send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})
    return times


def row(times: list[tuple[float, float]]) -> str:
    """The medians and the 95th percentiles in milliseconds."""
    parts = []
    for name, seconds in (("clock", [t[0] for t in times]), ("processor", [t[1] for t in times])):
        ordered = sorted(seconds)
        late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        parts.append(f"{name} p50 {1000 * statistics.median(ordered):5.0f} ms p95 {1000 * late:5.0f} ms")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
