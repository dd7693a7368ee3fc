"""**What.** A port above 65535 or below 1 is given to the launcher; or one below 1024.

**Why it hurts.** torchrun stops with `ValueError: The port number of the rendezvous endpoint ... must be an integer
between 0 and 65536`; with port 0 the processes of a static rendezvous look for each other forever. Ports below 1024
belong to the system: without root the bind fails with `Permission denied`.

**Fix.** Take a free port between 1024 and 65535, best below the range that the system hands out
(`/proc/sys/net/ipv4/ip_local_port_range`).

**When it stays quiet.** When the number is not readable, when torchrun ignores `--master_port` (`--standalone`, c10d),
and for `0` where it means "any free port" (`--rdzv_endpoint host:0`, `accelerate launch --main_process_port 0`).

**Evidence.** torch 2.13: both messages and the wait observed; deepspeed passes the number on to its processes, which
stop with `ValueError: port must have value from 0 to 65535`; accelerate 1.15 with several GPUs with `OverflowError`. A
port below 1024 in the wild: deepspeedai/DeepSpeed#4845.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ports import Port, ports
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL309",
    name="port-out-of-range",
    kind="launch",
    severity=Severity.ERROR,
    summary="A port that does not exist or that only root may open",
    references=("https://github.com/deepspeedai/DeepSpeed/issues/4845",),
    needs=("--rdzv_endpoint", "--master_port", "--main_process_port", "PET_MASTER_PORT", "PORT", "MASTER_PORT"),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "a port above 65535",
        {"run.sh": "torchrun --nproc_per_node 8 \\\n  --master_port 66664 \\\n  train.py\n", **_SCRIPT},
        "run.sh:2 error",
    ),
    bad(
        "the number comes from a variable",
        {"run.sh": "PORT=70000\ndeepspeed --num_gpus 8 --master_port=$PORT train.py\n", **_SCRIPT},
        "run.sh:2 error",
    ),
    bad(
        "a system port", {"run.sh": "deepspeed --num_gpus 8 --master_port=23 train.py\n", **_SCRIPT}, "run.sh:1 warning"
    ),
    bad("XTuner reads `PORT`", {"run.sh": "NPROC_PER_NODE=8 PORT=99999 xtuner train c.py\n"}, "run.sh:1 error"),
    good("a usual port", {"run.sh": "torchrun --nproc_per_node 8 --master_port 29501 train.py\n", **_SCRIPT}),
    good(
        "a port that is computed",
        {"run.sh": "torchrun --nproc_per_node 8 --master_port $((66000 + RANDOM % 99)) train.py\n", **_SCRIPT},
    ),
    good(
        "any free port",
        {
            "run.sh": "torchrun --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node 8 train.py\n"
            "accelerate launch --num_processes 8 --main_process_port 0 train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "an argument of the script, not of the launcher",
        {"run.sh": "torchrun --nproc_per_node 8 train.py --master_port 66664\n", **_SCRIPT},
    ),
    good(
        "a line that is commented out",
        {"run.sh": "# torchrun --master_port 66664 train.py\ntorchrun train.py\n", **_SCRIPT},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Ports outside of 1024..65535."""
    del context
    for command in doc.commands:
        for port in ports(command):
            finding = _judge(port, doc.in_docs, command.launcher)
            if finding is not None:
                yield finding


def _judge(port: Port, in_docs: bool, launcher: str) -> Finding | None:
    facts: dict[str, str | int] = {"port": port.number, "launcher": launcher}
    related = tuple(place.labelled(f"{port.number} set here") for place in port.related)
    if 0 < port.number < 1024:
        return META.finding(
            port.location,
            f"port {port.number} in `{port.name}` is a system port: without root the bind fails with"
            " `Permission denied`",
            hint="Take a free port between 1024 and 65535",
            related=related,
            severity=Severity.INFO if in_docs else Severity.WARNING,
            facts=facts,
        )
    if 0 < port.number <= 65535 or (port.number == 0 and port.zero_is_free):
        return None
    return META.finding(
        port.location,
        f"port {port.number} in `{port.name}` is not between 1 and 65535: the rendezvous fails before training starts",
        hint="Take a free port between 1024 and 65535",
        related=related,
        severity=Severity.WARNING if in_docs else Severity.ERROR,
        facts=facts,
    )
