"""**What.** A Dockerfile builds on `nvidia/cuda:11.8.0-devel` and installs DeepSpeed with a torch whose wheel is built
for CUDA 12: nvcc of the image and torch are of two major releases of CUDA.

**Why it hurts.** torch itself runs, for its wheel brings its own CUDA. The first optimizer or kernel that DeepSpeed
compiles (`FusedAdam`, `CPUAdam` of offloading) stops on every rank: `CUDAMismatchException: >- DeepSpeed Op Builder:
Installed CUDA version 11.8 does not match the version torch was compiled with 12.1`.

**Fix.** Take the base image of torch's CUDA, or the wheel of the image's CUDA
(`--index-url https://download.pytorch.org/whl/cu118`).

**When it stays quiet.** The majors agree; the image has no compiler (`-base`, `-runtime`: nothing is compiled there);
the file names an index or a build of torch of its own (`+cu118`, conda), installs another CUDA, or sets
`DS_SKIP_CUDA_CHECK`; DeepSpeed is not among the requirements; the release of torch is not known.

**Evidence.** `assert_no_cuda_mismatch` in `deepspeed/ops/op_builder/builder.py` of 0.19.8; the CUDA of each wheel is
what it requires (`nvidia-cuda-runtime-cu12`, `cuda-toolkit`; `schemas/required.json`). Nobody compiled it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.versions.project import Requirements, StatedFile
from dslint.model.versions.ranges import pin_of
from dslint.model.versions.required import cuda_of
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL535",
    name="nvcc-of-other-cuda",
    kind="versions",
    severity=Severity.WARNING,
    summary="The base image compiles for another major release of CUDA than torch is built for",
    references=("https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/builder.py",),
    depends_on_run=True,
    no_experiment="what is compiled for GPUs is compiled nowhere else",
)

_TRAIN = {"train.py": "import deepspeed\n"}
_INSTALL = "COPY . /work\nWORKDIR /work\nRUN pip install -r requirements.txt\n"

EXAMPLES = (
    bad("CUDA 11 under a torch for 12", {
        "Dockerfile": f"FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04\n{_INSTALL}",
        "requirements.txt": "torch==2.4.1\ndeepspeed==0.15.4\n", **_TRAIN,
    }, "Dockerfile:1 warning"),
    bad("what a fresh install takes is built for CUDA 13", {
        "Dockerfile": "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\nRUN pip install torch deepspeed\n", **_TRAIN,
    }, "Dockerfile:1 warning"),
    good("one major", {
        "Dockerfile": f"FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n{_INSTALL}",
        "requirements.txt": "torch==2.4.1\ndeepspeed==0.15.4\n", **_TRAIN,
    }),
    good("an image without a compiler", {
        "Dockerfile": f"FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\n{_INSTALL}",
        "requirements.txt": "torch==2.4.1\ndeepspeed==0.15.4\n", **_TRAIN,
    }),
    good("the wheel of the image's CUDA", {
        "Dockerfile": "FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\n"
        "RUN pip install torch==2.4.1 --index-url https://download.pytorch.org/whl/cu118\n"
        "RUN pip install deepspeed==0.15.4\n", **_TRAIN,
    }),
    good("no DeepSpeed", {
        "Dockerfile": "FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\nRUN pip install torch==2.4.1\n",
        "train.py": "import torch\n",
    }),
)  # fmt: skip

_IMAGE = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?:docker\.io/)?(nvidia/cuda:(\d+)\.\d+[\w.-]*)", re.M | re.I)
_FROM = re.compile(r"^[ \t]*FROM\b", re.M | re.I)
_PIP = re.compile(r"\bpip3?\b[^\n]*\binstall\b")
# Another torch, another compiler, or no check.
_ELSE = re.compile(
    r"index-url|find-links|download\.pytorch\.org|\+cu\d|conda|mamba|apptainer|DS_SKIP_CUDA_CHECK|cuda-toolkit|cuda-nvcc"
    r"|[ \t]-[fi][ \t]|CUDA_HOME|TORCH_INDEX",
    re.I,
)


def check(doc: Requirements, context: Context) -> Iterator[Finding]:
    """Each Dockerfile with one base image, with the release of torch that it installs."""
    del context
    if not doc.allowed.of("deepspeed").bounds:
        return
    for file in doc.files:
        if "dockerfile" in file.name:
            yield from _of_image(doc, file)


def _of_image(doc: Requirements, file: StatedFile) -> Iterator[Finding]:
    text = file.source.text
    image = _IMAGE.search(text)
    others = [other.source.text for other in doc.files if other.name.endswith(".txt")]
    if image is None or len(_FROM.findall(text)) != 1 or not _PIP.search(text) or "devel" not in image[1]:
        return
    if any(_ELSE.search(_without_images(part)) for part in (text, *others)):
        return
    torch = doc.allowed.of("torch")
    own = next((pin for bound in file.bounds.get("torch", ()) if (pin := pin_of(bound.specifier))), None)
    release = own or torch.fresh
    built_for = cuda_of(release) if release is not None else None
    if built_for is None or torch.is_head or built_for.partition(".")[0] == image[2]:
        return
    bound = next((b for b in torch.bounds if b.origin is not None), None)
    yield META.finding(
        file.source.location(Span(*image.span(1))),
        f"the image compiles for CUDA {image[2]}, torch {release} is built for {built_for}: DeepSpeed cannot compile",
        hint=f"Take an image `nvidia/cuda:{built_for}...-devel`, or the wheel of torch for CUDA {image[2]}",
        related=(bound.origin.labelled(f"torch {release}"),) if bound is not None and bound.origin is not None else (),
    )


def _without_images(text: str) -> str:
    return _IMAGE.sub("", text)
