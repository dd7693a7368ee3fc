"""How fast `dslint server` answers: the time from a change to its diagnostics, and the memory after many changes.

    python benchmarks/server.py PROJECT [FILE ...] [--edits N] [--hour N] [--patience SECONDS]

Starts the server on a project as an editor does, waits for the first look (from the cache where there is one), then
changes one file of each kind, or those named, N times by one character. It prints the time to the first diagnostics of
an opened file, and for changes median, 95th percentile and maximum of

    answer     from the change to the diagnostics of that version, by the clock
    processor  what the server spends on it until it rests

Then comes an hour of edits: changes of forty open files in turn, faster than a person types, with the memory at its
begin and after each 500. Nothing is written into the project.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Files that are open in the hour of edits, and how many changes pass between two looks at the memory.
_OPEN, _STEP = 40, 500
_LANGUAGES = {".py": "python", ".sh": "shellscript", ".md": "markdown"}


class Server:
    """The server over its pipes; what it has published is kept by file."""

    def __init__(self, folder: Path, patience: float) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "dslint", "server"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder
        )
        self.patience = patience
        self.arrived = threading.Condition()
        self.published: dict[str, tuple[int | None, float]] = {}
        self.is_looked = False
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
                self._take(message)
                self.arrived.notify_all()
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": None})

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        if message.get("method") == "textDocument/publishDiagnostics":
            version, now = params.get("version"), time.perf_counter()
            if self.published.get(params["uri"], (None, 0.0))[0] != version:
                self.published[params["uri"]] = version, now
        elif message.get("method") == "$/progress" and params["value"]["kind"] == "end":
            self.is_looked = True

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        """Send one notification about a document."""
        self.send({"method": f"textDocument/{method}", "params": params})

    def diagnostics(self, uri: str, version: int) -> float:
        """Wait for the diagnostics of a version; returns when the first of them came."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: self.published.get(uri, (None, 0.0))[0] == version, self.patience):
                raise SystemExit(f"no diagnostics of version {version} of {uri} in {self.patience:.0f} seconds")
            return self.published[uri][1]

    def end_of_first_look(self) -> None:
        """Wait until the progress of the first look ends."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: self.is_looked, self.patience):
                raise SystemExit(f"the first look does not end in {self.patience:.0f} seconds")

    def rest(self) -> None:
        """Wait until the server has nothing left to do: it spends no processor time for a while."""
        still, before, until = 0, self.spent, time.perf_counter() + self.patience
        while still < 3 and time.perf_counter() < until:
            time.sleep(0.1)
            state, now = self._status(), self.spent
            still, before = (still + 1 if state == "S" and now == before else 0), now

    def _status(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    @property
    def spent(self) -> float:
        """Seconds of processor time so far: on a busy machine they say more than the clock."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, what: str = "VmRSS") -> int:
        """Megabytes in memory, now or at most (``VmHWM``)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) // 1024
        return 0


class Document:
    """A file that is open in the editor."""

    def __init__(self, server: Server, file: Path) -> None:
        self.server = server
        self.uri = file.as_uri()
        self.text = file.read_text(encoding="utf-8", errors="replace")
        self.version = 1

    def open(self) -> float:
        """Open it; returns the seconds to its first diagnostics."""
        began = time.perf_counter()
        language = _LANGUAGES.get(Path(self.uri).suffix, Path(self.uri).suffix[1:])
        item = {"uri": self.uri, "languageId": language, "version": 1, "text": self.text}
        self.server.published.pop(self.uri, None)
        self.server.notify("didOpen", textDocument=item)
        return self.server.diagnostics(self.uri, 1) - began

    def close(self) -> None:
        """Close it."""
        self.server.notify("didClose", textDocument={"uri": self.uri})

    def type(self, line: int, text: str) -> float:
        """Type at the begin of a line; returns when that began."""
        return self._change(line, line, text)

    def undo(self, line: int) -> float:
        """Take away the line that was typed before another one; returns when that began."""
        return self._change(line, line + 1, "")

    def _change(self, first: int, end: int, text: str) -> float:
        """Put a text in the place of lines; returns when that began."""
        began = time.perf_counter()
        self.version += 1
        span = {"start": {"line": first, "character": 0}, "end": {"line": end, "character": 0}}
        document = {"uri": self.uri, "version": self.version}
        self.server.notify("didChange", textDocument=document, contentChanges=[{"range": span, "text": text}])
        return began


def chosen(folder: Path) -> Iterator[tuple[str, Path]]:
    """One file of each kind: the README, and of more than middling size the others; the largest script beside."""
    files = listed(folder)

    def of(*suffixes: str, part: float = 0.75, holds: str = "") -> Path | None:
        found = [f for f in files if f.suffix in suffixes and (not holds or holds in f.read_text(errors="replace"))]
        return found[int(part * (len(found) - 1))] if found else None

    kinds = {
        "README": next((f for f in files if f.parent == folder and f.name.lower() == "readme.md"), of(".md")),
        "shell": of(".sh", ".bash", ".slurm"),
        "config": of(".json", holds="zero_optimization") or of(".json"),
        "YAML": of(".yaml", ".yml"),
        "small module": of(".py", part=0.5),
        "script": of(".py", holds="init_process_group") or of(".py"),
        "largest script": of(".py", part=1.0, holds="torch"),
    }
    yield from ((kind, file) for kind, file in kinds.items() if file is not None)


def listed(folder: Path) -> list[Path]:
    """The files of a project that an editor opens, small ones first."""
    names = subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=False).stdout
    files = [folder / name for name in names.splitlines()] or [f for f in folder.rglob("*") if ".git" not in f.parts]
    kinds = {".py", ".sh", ".bash", ".slurm", ".json", ".yaml", ".yml", ".md"}
    files = [f for f in files if f.suffix in kinds and f.is_file() and 0 < f.stat().st_size < 150_000]
    return sorted(files, key=lambda f: f.stat().st_size)


def measured(document: Document, edits: int) -> tuple[float, list[tuple[float, float]]]:
    """The seconds to the diagnostics of an opened file; of each change by the clock and of the processor."""
    server = document.server
    opened = document.open()
    server.rest()
    line, times = document.text.count("\n") // 2, []
    for number in range(edits):
        before = server.spent
        # A line break above a line in the middle, and away with it again.
        began = document.undo(line) if number % 2 else document.type(line, "\n")
        answer = server.diagnostics(document.uri, document.version) - began
        server.rest()
        times.append((answer, server.spent - before))
    document.close()
    return opened, times


def hour(server: Server, files: Sequence[Path], edits: int) -> None:
    """Many changes of many files that are open at once, with the memory from time to time."""
    chance = random.Random(18)
    documents = [Document(server, file) for file in files]
    for document in documents:
        document.open()
    server.rest()
    print(f"hour of edits: {len(documents)} files open, {server.memory()} MB", flush=True)
    answers: list[float] = []
    for number in range(1, edits + 1):
        document = chance.choice(documents)
        line = chance.randrange(document.text.count("\n") + 1)
        answers.append(-document.type(line, chance.choice(("\n", "# x\n", "x = 1\n"))))
        answers[-1] += server.diagnostics(document.uri, document.version)
        document.undo(line)
        if number % _STEP == 0 or number == edits:
            server.rest()
            print(
                f"  after {number} edits {server.memory()} MB (at most {server.memory('VmHWM')} MB), "
                f"answers {row(answers)}",
                flush=True,
            )
            answers.clear()


def row(seconds: Sequence[float]) -> str:
    """Median, 95th percentile and maximum in milliseconds."""
    ordered = sorted(1000 * one for one in seconds)
    late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"median {statistics.median(ordered):5.0f}  p95 {late:5.0f}  max {ordered[-1]:5.0f} ms"


def begun(folder: Path, patience: float) -> Server:
    """A server that has looked at the folder once."""
    began = time.perf_counter()
    server = Server(folder, patience)
    capabilities = {"window": {"workDoneProgress": True}}
    params = {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": capabilities}
    server.send({"id": 1, "method": "initialize", "params": params})
    server.send({"method": "initialized", "params": {}})
    server.end_of_first_look()
    server.rest()
    load = os.getloadavg()[0]
    print(f"first look {time.perf_counter() - began:.1f} s, {server.memory()} MB, load {load:.1f}", flush=True)
    return server


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--edits", type=int, default=20, help="changes of each file (default: 20)")
    parser.add_argument("--hour", type=int, default=1000, help="changes in the hour of edits (default: 1000)")
    parser.add_argument("--patience", type=float, default=600, help="seconds for any one answer (default: 600)")
    options = parser.parse_args()
    folder = options.project.resolve()
    server = begun(folder, options.patience)
    try:
        for kind, file in [("", f.resolve()) for f in options.files] or chosen(folder):
            opened, times = measured(Document(server, file), options.edits)
            print(f"{kind:15}opened {1000 * opened:5.0f} ms  {file.relative_to(folder)}")
            print(f"{'':15}answer     {row([one[0] for one in times])}")
            print(f"{'':15}processor  {row([one[1] for one in times])}", flush=True)
        if options.hour:
            files = listed(folder)
            step = max(len(files) // _OPEN, 1)
            hour(server, files[::step][-_OPEN:], options.hour)
    finally:
        server.process.kill()


if __name__ == "__main__":
    main()
