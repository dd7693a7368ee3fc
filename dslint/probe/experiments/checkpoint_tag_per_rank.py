"""A checkpoint tag that is not the same on all ranks.

As written, each rank makes its tag from its own clock; as fixed, rank 0 makes it and broadcasts it. DeepSpeed warns,
and each rank writes its part into a folder of its own: no folder holds a whole checkpoint, and the return code is 0.
The same of the folder, and of that of `torch.distributed.checkpoint`. With `"tag_validation": "Fail"` in the config's
`checkpoint` section it raises instead. A random part that every rank draws from the same seed is the control: each rank
makes its tag alone, and all make the same one.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="checkpoint-tag-per-rank",
    summary="the parts of a checkpoint end up under different tags",
    rules=("DSL231",),
    flavour="deepspeed",
    one_host=True,
    expect=Expect((Kind.WRONG,), r"checkpoint is spread over 2 folders"),
    cases=(
        Case("z2", {"stage": 2, "validation": "Warn"}),
        Case("z3", {"stage": 3, "validation": "Warn"}),
        Case("folder", {"stage": 2, "validation": "Warn", "folder": True}),
        Case("distributed-checkpoint", {"sharded": True}),
        Case(
            "validated", {"stage": 2, "validation": "Fail"}, Expect((Kind.RAISE,), r"AssertionError.*is not consistent")
        ),
        Case("seeded", {"stage": 2, "validation": "Fail", "seed": 7}, verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """A clock for every rank."""
    return _save(rank, shared=False)


def fixed(rank: RankApi) -> Json:
    """One clock."""
    return _save(rank, shared=True)


def _save(rank: RankApi, shared: bool) -> Json:
    if rank.params.get("sharded"):
        return _save_sharded(rank, shared)
    import os

    import torch.distributed as dist

    from dslint.probe.parts.zero import config, engine, train

    rank.init()
    trained = engine(rank, config(rank.params["stage"], checkpoint={"tag_validation": rank.params["validation"]}))
    train(rank, trained, 1)
    names = [_name(rank)]
    if shared:
        dist.broadcast_object_list(names, src=0)
    target = os.path.join(rank.folder, "checkpoint")
    if rank.params.get("folder"):
        trained.save_checkpoint(os.path.join(target, names[0]), tag="last", save_latest=False)
    else:
        trained.save_checkpoint(target, tag=names[0])
    dist.barrier()
    folders = [name for name in sorted(os.listdir(target)) if name.startswith("at-")]
    inner = "last" if rank.params.get("folder") else ""
    return {"files": [sorted(os.listdir(os.path.join(target, name, inner))) for name in folders]}


def _name(rank: RankApi) -> str:
    """What a rank calls the checkpoint."""
    import random
    import time

    seed = rank.params.get("seed")
    return f"at-{time.time_ns() if seed is None else random.Random(seed).randrange(10**9)}"


def _save_sharded(rank: RankApi, shared: bool) -> Json:
    """`torch.distributed.checkpoint.save` of a tensor of which each rank holds a half."""
    import os

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    rank.init()
    mesh = init_device_mesh(rank.device.partition(":")[0], (rank.world,))
    names = [_name(rank)]
    if shared:
        dist.broadcast_object_list(names, src=0)
    target = os.path.join(rank.folder, "checkpoint")
    state = {"weight": distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])}
    dcp.save(state, checkpoint_id=os.path.join(target, names[0]))
    dist.barrier()
    return {"files": [sorted(os.listdir(os.path.join(target, name))) for name in sorted(os.listdir(target))]}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More than one folder."""
    files = values[0]["files"]
    if len(files) == 1:
        return None
    held = "; ".join(f"{len(names)} of {len(reference[0]['files'][0])} files" for names in files)
    return f"the checkpoint is spread over {len(files)} folders: {held}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The tag or the folder, at the stage of the run where it is known."""
    wanted = "folder" if subject.finding.fact("argument") == "folder" else "z2"
    if subject.finding.fact("call") in ("save", "async_save"):
        return {} if case.name == "distributed-checkpoint" else None
    stage = subject.finding.fact("stage")
    if case.name != wanted:
        return None
    return {} if stage is None else {"stage": stage}
