"""The backward of a gather passes on what this rank's own loss says, and drops what the losses of the others say.

**What.** A `torch.autograd.Function` gathers rows of all ranks; its `backward` returns `grads[rank]`, or the slice of
this rank, and reduces nothing. The loss compares each rank's own rows with the gathered ones: `own @ everything.T`.

**Why it hurts.** The rows of a rank are in the loss of every rank, as the keys or negatives of the others. The
gradients of those losses lie on the other ranks, and nothing brings them here: each row is trained by its own loss
alone. DDP averages what is there. Nothing fails; the training on N GPUs follows another gradient than one GPU with the
whole batch, and the larger N, the more of it is missing.

**Fix.** Sum in the backward: `all_reduce` over the stacked gradients, then `[rank]`, or one `reduce_scatter`;
`torch.distributed.nn.functional.all_gather` does it.

**When it stays quiet.** The backward reduces; every rank computes the loss of all rows (`everything @ everything.T`):
there the own part is the whole, up to a factor; no such product is in sight.

**Evidence.** Two gloo ranks, torch 2.13: the gradient of a DDP model with the loss of own against all rows points in
another direction than that of the whole batch on one rank; with `all_reduce` in the backward in the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.gatherlayers import gather_layers, meeting

META = RuleMeta(
    code="DSL620",
    name="gather-backward-of-own-loss",
    kind="script",
    severity=Severity.WARNING,
    summary="the backward of a gather drops the gradients of the other ranks' losses",
    markers=(r"all_gather", r"def backward\(", r"\brank|get_rank"),
    references=(
        "https://github.com/lightly-ai/lightly/issues/1528",
        "https://pytorch.org/docs/stable/distributed.html#autograd-enabled-communication-primitives",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such backward whose layer feeds a product of own rows and all rows."""
    if run.context.is_one_process:
        return
    modules = run.machine.program.modules()
    for layer in gather_layers(modules):
        found = meeting(layer, modules)
        if found is None:
            continue
        yield run.finding(
            META,
            layer.module,
            layer.returned,
            f"The backward of `{layer.cls.name}` drops the gradients from other ranks' losses: nothing sums them",
            hint="Sum in the backward (`all_reduce`, then this rank's part), or use"
            " `torch.distributed.nn.functional.all_gather`",
            related=(run.location(found.module, found.node, "own rows meet the rows of all ranks"),),
        )


_LAYER = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        ctx.size = len(rows)
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows)
        return %s

    @staticmethod
    def backward(ctx, %s):
        %s
"""
_LOSS = """\

class Contrast(torch.nn.Module):
    def forward(self, queries, keys):
        everything = torch.cat(GatherLayer.apply(keys))
        wanted = torch.arange(len(queries)) + len(queries) * dist.get_rank()
        return F.cross_entropy(%s, wanted)
"""
_CLIP = """\

def gathered(rows):
    return torch.cat(GatherLayer.apply(rows), dim=0)


def clip_loss(image, text, scale):
    all_image, all_text = gathered(image), gathered(text)
    by_image = scale * torch.matmul(%s, all_text.t())
    by_text = scale * torch.matmul(text, all_image.t())
    wanted = torch.arange(len(by_image)) + dist.get_rank() * len(by_image)
    return (F.cross_entropy(by_image, wanted) + F.cross_entropy(by_text, wanted)) / 2
"""
_TRAIN = """\

def main(model, loader):
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    loss = %s
    for x, y in loader:
        loss(model(x), model(y)).backward()
"""
_MAIN = _TRAIN % "Contrast()"
_TUPLE, _CAT = "tuple(parts)", "torch.cat(parts)"
_OWN = "return grads[dist.get_rank()].clone()"
_SLICE = "rank = dist.get_rank()\n        return grad[rank * ctx.size : (rank + 1) * ctx.size]"
_FILLED = "out = torch.zeros_like(grads[0])\n        out[:] = grads[dist.get_rank()]\n        return out"
_SUM = "total = torch.stack(grads)\n        dist.all_reduce(total)\n        return total[dist.get_rank()]"
_ONE = (_LOSS % "queries @ everything.T").replace("torch.cat(GatherLayer.apply(keys))", "GatherLayer.apply(keys)")
_OTHER = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F

from layers import GatherLayer

"""

EXAMPLES = (
    bad("own queries against all keys",
        {"train.py": _LAYER % (_TUPLE, "*grads", _OWN) + _LOSS % "queries @ everything.T" + _MAIN},
        "train.py:16 warning"),
    bad("a slice of one tensor", {"train.py": _LAYER % (_CAT, "grad", _SLICE) + _ONE + _MAIN},
        "train.py:17 warning"),
    bad("written into a tensor, in another file", {
        "layers.py": _LAYER % (_TUPLE, "*grads", _FILLED),
        "train.py": _OTHER + _CLIP % "image" + _TRAIN % "lambda x, y: clip_loss(x, y, 10.0)"}, "layers.py:17 warning"),
    good("summed", {"train.py": _LAYER % (_TUPLE, "*grads", _SUM) + _LOSS % "queries @ everything.T" + _MAIN}),
    good("every rank computes the whole loss", {
        "train.py": _LAYER % (_TUPLE, "*grads", _OWN) + (_LOSS % "everything @ everything.T").replace(
            "        wanted = torch.arange(len(queries)) + len(queries) * dist.get_rank()\n",
            "        wanted = torch.arange(len(everything))\n") + _MAIN}),
    good("a scattered sum", {"train.py": _LAYER % (
        _CAT, "grad", "own = grad.new_empty(ctx.size, *grad.shape[1:])\n"
        "        dist.reduce_scatter_tensor(own, grad.contiguous())\n        return own") + _ONE + _MAIN}),
)  # fmt: skip
