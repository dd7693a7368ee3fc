"""A name that Python looks for when a line is reached, after the training.

As written, each rank trains a step and then reads an attribute that its arguments lack, imports a name that a module
does not have, reads a name that nothing defines, asks a class for what its module has, or lists a method; as fixed, it
takes the one that is there. What is there (the control) is found in both.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import datetime
from importlib import import_module
from types import ModuleType

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="name-missing-when-reached",
    summary="each rank stops after the training",
    rules=("DSL720", "DSL721", "DSL722", "DSL737", "DSL739"),
    expect=Expect(
        (Kind.RAISE,),
        r"has no attribute 'output_path'|cannot import name 'gather_lists'|name 'FSDP' is not defined|"
        r"'datetime.datetime' has no attribute 'datetime'|object is not iterable",
    ),
    cases=(
        Case("option", {"from": "arguments", "name": "output_path"}, rules=("DSL720",)),
        Case("import", {"from": "module", "name": "gather_lists"}, rules=("DSL721",)),
        Case("undefined", {"from": "line", "name": "FSDP(model)", "right": "len([model])"}, rules=("DSL722",)),
        Case(
            "class-for-module",
            {"from": "line", "name": "datetime.datetime.now()", "right": "datetime.now()"},
            rules=("DSL737",),
        ),
        Case("method-listed", {"from": "line", "name": "list({}.keys)", "right": "list({}.keys())"}, rules=("DSL739",)),
        Case("that-is-there", {"from": "arguments", "name": "output_dir"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The name as it is written."""
    return _train(rank, str(rank.params["name"]))


def fixed(rank: RankApi) -> Json:
    """The name that is there."""
    if rank.params["from"] == "line":
        return _train(rank, str(rank.params["right"]))
    return _train(rank, "output_dir" if rank.params["from"] == "arguments" else "gather_list")


def _train(rank: RankApi, name: str) -> Json:
    rank.init()
    model = make_ddp(rank)
    train_step(rank, model, make_optimizer(model), 0)
    if rank.params["from"] == "arguments":
        parser = ArgumentParser()
        parser.add_argument("--output_dir", default="out")
        return str(getattr(parser.parse_args([]), name))
    if rank.params["from"] == "line":
        known = {"model": model, "datetime": datetime}
        return type(eval(name, known)).__name__
    made = ModuleType("dslint_probe_helpers")
    made.__dict__["gather_list"] = list
    sys.modules[made.__name__] = made
    names: dict[str, object] = {}
    exec(f"from {made.__name__} import {name} as found", names)  # noqa: S102 - the import statement is what is tried
    return str(import_module(made.__name__).__name__ and names["found"])
