"""A process of a simulated launch, with the arms of ``probe_experiments.plain``: no torch, so that it is quick.

``python cluster_driver.py ACT OTHERS LIMIT``: rank 0 does ACT, the others OTHERS (``-``: they return at once). Rank 0
writes one line of JSON: how the arm ended, for each rank.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from probe_experiments import plain

from dslint.probe.arms import ProbeError
from dslint.probe.cluster.command import _die_with_launcher
from dslint.probe.cluster.launched import launched
from dslint.probe.cluster.leader import Cluster
from dslint.probe.cluster.member import Member
from dslint.probe.cluster.wire import join
from dslint.probe.experiment import Case

MODULE = "probe_experiments.plain"
PATIENCE = float(os.environ.get("PATIENCE", "30"))


def accepts(module: str) -> bool:
    return module == MODULE


def main() -> None:
    act, others, limit = sys.argv[1:4]
    place = launched()
    assert place is not None
    _die_with_launcher()
    if place.rank:
        Member(place, join(place, PATIENCE), accepts=accepts).serve()
        return
    experiment = replace(plain.EXPERIMENT, limit=float(limit), scales=True)
    case = Case("x", {"act": act} if others == "-" else {"act": act, "others": others})
    with Cluster(place, patience=PATIENCE, accepts=accepts) as cluster:
        print(json.dumps({"where": cluster.where}), flush=True)
        outcome, _ = cluster.arm(experiment, MODULE, case, fixed=act == "return")
        ranks = [[rank.kind.value, rank.text, rank.value] for rank in outcome.ranks]
        print(json.dumps({"kind": outcome.kind.value, "ranks": ranks, "seconds": outcome.seconds}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except ProbeError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
