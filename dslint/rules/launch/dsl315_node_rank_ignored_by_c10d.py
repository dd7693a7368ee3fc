"""**What.** `torchrun` gets `--node_rank` together with a rendezvous backend that hands out the ranks itself (c10d,
etcd), or with `--standalone`.

**Why it hurts.** The number has no effect: node ranks are given in the order in which the agents arrive. Who counts on
rank 0 being on a certain node (checkpoints, logs) looks on the wrong one.

**Fix.** Leave `--node_rank` out, or use the static backend with `--master_addr` and `--master_port`.

**When it stays quiet.** With the static backend, and for `--node_rank 0`.

**Evidence.** torch 2.13 logs `node_rank is only used for static rdzv_backend. It will be ignored`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import places, rendezvous
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL315",
    name="node-rank-ignored-by-c10d",
    kind="launch",
    severity=Severity.INFO,
    summary="A node rank that the rendezvous backend does not use",
    no_experiment="nothing fails: torchrun logs that it does not read the number, and numbers the nodes itself",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("--node_rank",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank %s --rdzv_backend c10d --rdzv_endpoint $HOST0:29500 train.py\n"

EXAMPLES = (
    bad("c10d hands out the ranks", {"run.sh": _RUN % "$RANK", **_SCRIPT}, "run.sh:1 info"),
    bad("a number", {"run.sh": _RUN % 1, **_SCRIPT}, "run.sh:1 info"),
    good("node 0", {"run.sh": _RUN % 0, **_SCRIPT}),
    good(
        "the static backend",
        {"run.sh": "torchrun --nnodes 2 --node_rank $RANK --master_addr $HOST0 train.py\n", **_SCRIPT},
    ),
    good("a backend that is not known", {"run.sh": _RUN.replace("c10d", "$BACKEND") % "$RANK", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Node ranks beside a backend that does not read them."""
    del context
    for command in doc.commands:
        how, flag = rendezvous(command), command.launcher_flag("--node_rank")
        if how is None or flag is None or flag.value is None or how.node_rank.get_or("") == "0":
            continue
        backend = "c10d" if how.is_standalone else how.backend.get_or("static")
        if backend == "static":
            continue
        yield META.finding(
            flag.location,
            f"`{flag.name} {flag.value.raw}` has no effect with rendezvous backend {backend}: nodes are ranked by"
            " arrival",
            hint="Leave it out, or use the static backend with `--master_addr`",
            related=places(command, "--rdzv_backend", "--standalone"),
            facts={"backend": backend},
        )
