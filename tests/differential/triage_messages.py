"""Makes the real libraries fail, one mistake after the other, and prints what each of them prints.

Run by ``test_triage_messages.py`` in a process of its own. Each failure stands behind a ``## <symptom>`` line. Two
ranks on gloo are needed where a message only exists between ranks (another size, a peer that left, a wait in vain);
they meet through a file, live for seconds, and are killed when they do not end.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

SECOND = datetime.timedelta(seconds=1)


def show(symptom: str, call: Callable[[], object]) -> None:
    print(f"## {symptom}", flush=True)
    try:
        call()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()


def start(**variables: object) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"):
        os.environ.pop(name, None)
    os.environ.update({name: str(value) for name, value in variables.items()})
    dist.init_process_group("gloo", timeout=SECOND)


def torch_alone() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    show("rank-not-set", start)
    show("port-out-of-range", lambda: start(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=70000))
    show("clients-missing", lambda: start(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=unused))
    show("client-socket-timeout", lambda: dist.TCPStore("127.0.0.1", unused, 2, False, timeout=SECOND))
    show("address-in-use", lambda: dist.TCPStore("127.0.0.1", port, 1, True, timeout=SECOND))
    show("store-wait-timeout", lambda: dist.TCPStore("127.0.0.1", 0, 1, True, timeout=SECOND).get("key"))
    show("timeout-type", lambda: dist.init_process_group("gloo", timeout=5))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    one = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused}
    show("interface-missing", lambda: start(**one, GLOO_SOCKET_IFNAME="none9"))
    taken.close()
    empty = torch.empty(0)
    show("zero3-empty-weights", lambda: torch.nn.functional.embedding(torch.tensor([1]), empty))
    show("zero3-empty-weights", lambda: torch.nn.Linear(2, 2).load_state_dict({"weight": empty, "bias": torch.ones(2)}))
    show(
        "checkpoint-shapes",
        lambda: torch.nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3), "bias": torch.ones(2)}),
    )


def configs() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    def config(**keys: Any) -> Callable[[], object]:
        return lambda: DeepSpeedConfig({"train_batch_size": 1, **keys})

    on = {"enabled": True}
    show("batch-triangle", config(train_batch_size=16, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=2))
    show("batch-triangle", lambda: DeepSpeedConfig({"gradient_accumulation_steps": 2}))
    show("fp16-and-bf16", config(fp16=on, bf16=on))
    show("config-refused", config(zero_optimization={"stage": 2, "aio": {}}))
    show(
        "config-refused",
        config(zero_optimization={"stage": 2, "cpu_offload": True, "offload_optimizer": {"device": "cpu"}}),
    )
    show("config-removed", config(sparse_attention={}))
    show("config-missing", lambda: DeepSpeedConfig("none/ds_config.json"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('{"train_batch_size": 1, "train_batch_size": 2}')
        file.flush()
        show("config-duplicate-key", lambda: DeepSpeedConfig(file.name))
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    scaler = DynamicLossScaler(2, 1000, 1, 1, False, True, torch.half)
    scaler.cur_scale = 1
    show("loss-scale-minimum", lambda: scaler.update_scale(True))


def rank(number: int, case: str, meeting: str) -> None:
    os.dup2(1, 2)
    print(f"[rank{number}]: up", flush=True)
    # Long for the meeting, which a loaded machine makes slow; short for the message that tells of it only.
    patience, limit = datetime.timedelta(seconds=60), datetime.timedelta(seconds=2)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=2, timeout=patience)
    if case == "collective-mismatch":
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{meeting}2", rank=number, world_size=2, timeout=patience)
    dist.barrier()  # who leaves at once would else be gone before the other has connected
    if case == "gloo-timeout":
        dist.distributed_c10d._set_pg_timeout(limit)
    try:
        if case in ("gloo-size-mismatch", "collective-mismatch"):
            dist.all_reduce(torch.ones(4 if number else 8))
        elif number == 0 and case == "monitored-barrier":
            dist.monitored_barrier(timeout=limit)
        elif number == 0:
            dist.barrier()
        elif case in ("gloo-timeout", "monitored-barrier"):  # who leaves at once closes the connection instead
            import time

            time.sleep(4)
    except RuntimeError:
        traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()
    os._exit(0)


def ranks() -> None:
    fork = multiprocessing.get_context("fork")
    for case in ("gloo-size-mismatch", "collective-mismatch", "peer-closed", "gloo-timeout", "monitored-barrier"):
        print(f"## {case}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            processes = [fork.Process(target=rank, args=(number, case, f"{folder}/meet")) for number in (0, 1)]
            for process in processes:
                process.start()
            for process in processes:
                process.join(90)
                if process.is_alive():
                    process.kill()
                    process.join()


if __name__ == "__main__":
    os.dup2(1, 2)
    ranks()
    torch_alone()
    configs()
    print("## end", flush=True)
