"""A pipeline of diffusers gets a model that is still wrapped for several ranks.

**What.** `StableDiffusionPipeline.from_pretrained(base, unet=unet)` or `StableDiffusionPipeline(unet=unet, ...)`, where
`unet` is what `accelerator.prepare` returned, or a `DistributedDataParallel`.

**Why it hurts.** On one GPU `prepare` returns the model itself, and the validation images come out. On several it is a
wrapper: `from_pretrained` checks the classes of what it is given and raises `ValueError`, and the pipeline itself asks
the wrapper for the `config` of the model. Rank 0 dies at the first validation or at the very end, and takes the job
with it.

**Fix.** `unet=accelerator.unwrap_model(unet)`, or `unet.module` of a `DistributedDataParallel`.

**When it stays quiet.** The model is unwrapped, also in a helper; a run of one process; a pipeline of another library.

**Evidence.** diffusers 0.35, `maybe_raise_or_warn` in pipelines/pipeline_loading_utils.py: what is passed must be of
the class that the folder names, compiled models and adapters aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.libraries import HANDED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL673",
    name="wrapped-model-in-pipeline",
    kind="script",
    severity=Severity.WARNING,
    summary="a pipeline of diffusers gets a model that is still wrapped for several ranks: it raises",
    markers=(r"diffusers", r"Pipeline", r"prepare\(|DistributedDataParallel|DDP"),
    references=("https://github.com/huggingface/diffusers/issues/2966",),
    no_experiment="needs diffusers, which the experiments do not install",
    depends_on_run=True,
)
_PIPELINE = re.compile(r"diffusers\.(?:\w+\.)*\w*Pipeline\w*(?:\.from_pretrained)?")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each wrapped model that a pipeline gets."""
    if run.context.is_one_process:
        return
    for found in run.happenings(HANDED):
        event = found.event
        if event.may or not _PIPELINE.fullmatch(event.api):
            continue
        for name in event.arguments:
            node = event.nodes.get(name) or event.node
            yield run.finding(
                META,
                event.module,
                node,
                f"`{name}` of the pipeline is a model that is still wrapped: on several GPUs the pipeline raises",
                hint=f"Pass `{name}=accelerator.unwrap_model({run.text(event.module, node)})`",
                facts={"component": name},
            )


_TRAIN = """\
import torch
from accelerate import Accelerator
from diffusers import AutoencoderKL, StableDiffusionPipeline, UNet2DConditionModel


def validate(accelerator, unet, vae):
    pipeline = StableDiffusionPipeline%s
    return pipeline.to(accelerator.device)("a hill")


def main(loader):
    accelerator = Accelerator()
    unet = UNet2DConditionModel.from_pretrained("base", subfolder="unet")
    vae = AutoencoderKL.from_pretrained("base", subfolder="vae")
    optimizer = torch.optim.AdamW(unet.parameters())
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    for batch in loader:
        accelerator.backward(unet(batch).sample.mean())
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.is_main_process:
        validate(accelerator, unet, vae)
    accelerator.wait_for_everyone()


main(torch.load("data.pt"))
"""
_CALLED = "(accelerator, accelerator.unwrap_model(unet), vae)\n    acc"
EXAMPLES = (
    bad("loaded with it", {"train.py": _TRAIN % '.from_pretrained("base", unet=unet, vae=vae)'}, "train.py:7 warning"),
    bad("made of it", {"train.py": _TRAIN % "(vae=vae, unet=unet)"}, "train.py:7 warning"),
    good(
        "unwrapped",
        {"train.py": _TRAIN % '.from_pretrained("base", unet=accelerator.unwrap_model(unet), vae=vae)'},
    ),
    good(
        "unwrapped by the caller",
        {"train.py": (_TRAIN % "(vae=vae, unet=unet)").replace("(accelerator, unet, vae)\n    acc", _CALLED)},
    ),
)
