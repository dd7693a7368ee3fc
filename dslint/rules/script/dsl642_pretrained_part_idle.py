"""A part of a pretrained model takes no part in the loss, and `DistributedDataParallel` waits for its gradient.

**What.** A model of the project holds a model of transformers, timm or torchvision and uses a part of it only:
`last_hidden_state` of a `BertModel`, whose pooler then gives nothing; the images of a `CLIPModel`, whose text tower
never runs; `forward_features` of a model of timm, whose classification head stays out. DDP gets all of it, without
mentioning parameters that are not used; so does a Trainer of Lightning with `strategy="ddp"`.

**Why it hurts.** DDP waits for the gradient of every parameter. The pooler or the tower gets none, and the next
forward raises `RuntimeError: Expected to have finished reduction in the prior iteration`. On one GPU the same script
trains.

**Fix.** Load what is used (`add_pooling_layer=False`, `num_classes=0`, `CLIPVisionModel`), freeze the rest, or pass
`find_unused_parameters=True`.

**When it stays quiet.** DDP that looks for unused parameters, or has a static graph; an Accelerator with a plugin for
DeepSpeed or FSDP; projects that freeze anything, loop over all parameters or add something times zero to a loss; a
result that is returned, passed on or unpacked; names of models that nobody can read; forward passes without gradients.

**Evidence.** Two gloo ranks, torch 2.13: a layer that no rank uses makes the second forward raise. transformers 5.23:
`BertModel` has a pooler unless `add_pooling_layer=False`, and `last_hidden_state` does not come from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.queries.idleparts import IdlePart, IdleParts
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.ddppasses import waits_for_all

META = RuleMeta(
    code="DSL642",
    name="pretrained-part-idle",
    kind="script",
    severity=Severity.WARNING,
    summary="a pooler or tower of a pretrained model gets no gradient under DDP: the second step raises",
    markers=(
        r"DistributedDataParallel|DDP|Accelerator|ddp_find_unused|lightning",
        r"transformers|from_pretrained|timm|torchvision",
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/43259",
        "https://github.com/huggingface/sentence-transformers/issues/1454",
        "https://github.com/huggingface/accelerate/issues/2017",
    ),
    depends_on_run=True,
)
# A call that trains wraps the model itself: `fit` of Lightning.
_WRAPS = frozenset({"wraps-model", "prepares", "trainer-train"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each pretrained model with an idle part in a DDP that waits for all parameters."""
    if run.context.is_one_process or run.stage is not None:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        if not any(event.tags & {"backward", "trainer-train"} for event in events(tree)):
            continue
        for wrap in events(tree):
            if not wrap.tags & _WRAPS or not wrap.modules or not waits_for_all(run, wrap):
                continue
            for part in IdleParts(run.machine, wrap.modules, run.makers).find():
                if id(part.made.node) not in seen:
                    seen.add(id(part.made.node))
                    yield _finding(run, wrap, part)


def _finding(run: RunQuery, wrap: Event, part: IdlePart) -> Finding:
    instead = f"`{part.told_by}`" if part.told_by else "Load what is used"
    return run.finding(
        META,
        part.made.module,
        part.made.node,
        f"no loss uses {part.what} of `{part.field}`, but DDP waits for its gradients: the next forward raises",
        hint=f"{'Pass ' if part.told_by else ''}{instead}, or let DDP look with `find_unused_parameters=True`",
        related=(
            run.location(part.module, part.use, "all that is used"),
            run.location(wrap.module, wrap.node, "wrapped here"),
        ),
        facts={"layer": part.field, "conditional": False},
    )


_DDP = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import BertModel


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel.from_pretrained("bert-base-cased"%s)
        self.head = nn.Linear(768, 5)

    def forward(self, ids):
        out = self.bert(ids)
        return self.head(%s)


def main(loader, rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Tagger().cuda(rank), device_ids=[rank]%s)
    for ids, labels in loader:
        nn.functional.cross_entropy(model(ids), labels).backward()
"""
_CLIP = """\
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import nn
from transformers import CLIPModel


class Tagger(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.clip = CLIPModel.from_pretrained(name)
        self.head = nn.Linear(self.clip.config.projection_dim, 5)

    def forward(self, pixels, ids):
        return self.head(self.clip.get_image_features(pixels)%s)


def main(loader, optimizer, name):
    accelerator = Accelerator(%s)
    model, optimizer, loader = accelerator.prepare(Tagger(name), optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch["pixels"], batch["ids"]).mean())
        optimizer.step()
"""
_SEARCH = "kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]"
_LIGHTNING = """\
import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from transformers import BertModel


class Tagger(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.bert = BertModel.from_pretrained("bert-base-cased")
        self.head = nn.Linear(768, 5)

    def training_step(self, batch, index):
        hidden = self.bert(batch["ids"])%s
        return nn.functional.cross_entropy(self.head(hidden), batch["label"])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


def main(loader):
    trainer = L.Trainer(devices=4, max_epochs=3%s)
    trainer.fit(Tagger("bert"), loader)


main([])
"""
_FIRST = ".last_hidden_state[:, 0]"
_IMAGES = """\
import timm
import torch.distributed as dist
from timm.data import resolve_model_data_config
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision import models


class Net(nn.Module):
    def __init__(self, arch="vit_base_patch16_224"):
        super().__init__()
        self.trunk = %s
        self.head = nn.Linear(768, 5)

    def forward(self, x):
        return self.head(%s)


def main(loader, rank):
    dist.init_process_group("nccl")
    net = Net().cuda(rank)
    print(resolve_model_data_config(net.trunk))
    model = DistributedDataParallel(net, device_ids=[rank])
    for images, labels in loader:
        nn.functional.cross_entropy(model(images), labels).backward()
"""
_TOKENS = "self.trunk.forward_features(x)[:, 0]"
_STAGES = "self.trunk.layer4(self.trunk.layer1(self.trunk.conv1(x))).mean((2, 3))"

EXAMPLES = (
    bad("a pooler", {"train.py": _DDP % ("", "out.last_hidden_state", "")}, at="train.py:11 warning"),
    bad("a pooler, by position", {"train.py": _DDP % ("", "out[0]", "")}, at="train.py:11 warning"),
    good("no pooler", {"train.py": _DDP % (", add_pooling_layer=False", "out.last_hidden_state", "")}),
    good("its output is used", {"train.py": _DDP % ("", "out.pooler_output", "")}),
    good("both outputs", {"train.py": _DDP % ("", "out[0] + out[1][:, None]", "")}),
    good(
        "DDP looks for it",
        {"train.py": _DDP % ("", "out.last_hidden_state", ", find_unused_parameters=True")},
    ),
    bad("in Lightning", {"train.py": _LIGHTNING % (_FIRST, ', strategy="ddp"')}, at="train.py:11 warning"),
    bad("the strategy as an object", {"train.py": _LIGHTNING % (_FIRST, ", strategy=DDPStrategy()")}, "train.py:11"),
    bad("the strategy follows from the devices", {"train.py": _LIGHTNING % (_FIRST, "")}, at="train.py:11 warning"),
    good(
        "Lightning looks for it",
        {
            "name.py": _LIGHTNING % (_FIRST, ', strategy="ddp_find_unused_parameters_true"'),
            "told.py": _LIGHTNING % (_FIRST, ", strategy=DDPStrategy(find_unused_parameters=True)"),
            "alone.py": (_LIGHTNING % (_FIRST, "")).replace("devices=4", "devices=1"),
        },
    ),
    good("Lightning, and its output is used", {"train.py": _LIGHTNING % (".pooler_output", ', strategy="ddp"')}),
    bad("a tower", {"train.py": _CLIP % ("", "")}, at="train.py:9 warning"),
    good("both towers", {"train.py": _CLIP % (" + self.clip.get_text_features(ids)", "")}),
    good("the whole model, too", {"train.py": _CLIP % (" + self.clip(ids, pixels).logits", "")}),
    good("the Accelerator looks for it", {"train.py": _CLIP % ("", _SEARCH)}),
    good(
        "the tower is frozen",
        {
            "train.py": (_CLIP % ("", "")).replace(
                "        self.head", "        self.clip.text_model.requires_grad_(False)\n        self.head"
            )
        },
    ),
    bad("a head", {"train.py": _IMAGES % ("timm.create_model(arch, pretrained=True)", _TOKENS)}, "train.py:12 warning"),
    bad("a head of torchvision", {"train.py": _IMAGES % ("models.resnet50()", _STAGES)}, "train.py:12 warning"),
    bad(
        "the classifier after the features",
        {"train.py": _IMAGES % ("models.vgg16()", "self.trunk.features(x).flatten(1)")},
        "train.py:12 warning",
    ),
    good("no head", {"train.py": _IMAGES % ("timm.create_model(arch, num_classes=0)", _TOKENS)}),
    good("weights without a head", {"train.py": _IMAGES % ('timm.create_model("vit_base_patch16_224.mae")', _TOKENS)}),
    good("the whole model", {"train.py": _IMAGES % ("timm.create_model(arch)", "self.trunk(x)")}),
    good(
        "the head is taken off",
        {"train.py": _IMAGES % ("models.resnet50()\n        self.trunk.fc = nn.Identity()", _STAGES)},
    ),
)
