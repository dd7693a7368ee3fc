"""How fast ``dslint triage`` reads a large log with few hits, and how much memory it takes.

    python benchmarks/triage.py [--megabytes 200] [--runs 3]

The log is made here: Trainer lines, DeepSpeed lines, progress bars without line feeds and tagged ranks, one failure at
the end. Whole processes are measured, from start to exit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
END = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/me/train.py", line 42, in <module>
[rank3]:     main()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.
[rank0]:[E1120 12:34:56.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=98, NumelOut=98, Timeout(ms)=600000) ran for 600020 milliseconds
"""


def lines(seed: int = 1) -> Iterator[str]:
    """Lines of a healthy run, without end."""
    chance = random.Random(seed)
    step = 0
    while True:
        step += 1
        kind = chance.random()
        if kind < 0.4:
            yield (f"{{'loss': {chance.random() * 2:.4f}, 'grad_norm': {chance.random():.6f}, "
                   f"'learning_rate': {chance.random() * 1e-4:.3e}, 'epoch': {step / 9999:.2f}}}\n")  # fmt: skip
        elif kind < 0.6:
            yield (f"[2026-11-20 12:{step // 60 % 60:02d}:{step % 60:02d},{step % 1000:03d}] [INFO] "
                   f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05]\n")  # fmt: skip
        elif kind < 0.8:
            yield f"\r {step % 100}%|███████   | {step}/100000 [01:00<02:00,  1.20it/s]"
        else:
            yield f"[rank{step % 8}]: INFO - data.py:12 - Loaded shard {step} for the tokenizer, error rate 0.0{step}\n"


def write(path: Path, megabytes: int) -> int:
    """Write the log; returns its size in bytes."""
    # A small piece, many times: what this process holds would count as memory of the measured one.
    some = "".join(line for line, _ in zip(lines(), range(5_000), strict=False)).encode()
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(some)
        file.write(END.encode())
        return file.tell()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        size = write(log, args.megabytes)
        wall, processor, memory = [], [], 0
        for _ in range(args.runs):
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "dslint", "triage", str(log)], cwd=REPO, stdout=subprocess.DEVNULL
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall.append(time.perf_counter() - began)
            processor.append(usage.ru_utime + usage.ru_stime)
            memory = max(memory, usage.ru_maxrss)
            if os.waitstatus_to_exitcode(status) != 1:
                print("the failure at the end was not found", file=sys.stderr)
                return 1
        seconds, cpu = statistics.median(wall), statistics.median(processor)
        print(f"{size / 1e6:.0f} MB: {seconds:.2f} s ({size / seconds / 1e6:.0f} MB/s), processor {cpu:.2f} s "
              f"({size / cpu / 1e6:.0f} MB/s), peak memory {memory / 1024:.0f} MB")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
