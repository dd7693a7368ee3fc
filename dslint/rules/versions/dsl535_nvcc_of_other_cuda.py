"""**What.** A Dockerfile builds on `nvidia/cuda:11.8.0-devel` and installs DeepSpeed with a torch whose wheel is built
for CUDA 12: nvcc of the image and torch are of two major releases of CUDA. The same for a wheel that is asked for by
name (`--index-url .../whl/cu118` on CUDA 12.1), and where pip puts another torch over the one of
`pytorch/pytorch:...-devel` or `nvcr.io/nvidia/pytorch:YY.MM-py3`.

**Why it hurts.** torch itself runs, for its wheel brings its own CUDA. The first optimizer or kernel that DeepSpeed
compiles (`FusedAdam`, `CPUAdam` of offloading) stops on every rank: `CUDAMismatchException: >- DeepSpeed Op Builder:
Installed CUDA version 11.8 does not match the version torch was compiled with 12.1`.

**Fix.** Take the base image of torch's CUDA, or the wheel of the image's CUDA
(`--index-url https://download.pytorch.org/whl/cu118`).

**When it stays quiet.** The majors agree; the image has no compiler (`-base`, `-runtime`: nothing is compiled there);
the file names an index whose CUDA is not in its name, several builds of torch or conda, installs another CUDA, or sets
`DS_SKIP_CUDA_CHECK`; the torch of the image stays; DeepSpeed is not among the requirements; the release of torch is not
known.

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
    bad("the wheel of another CUDA than the image's", {
        "Dockerfile": "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n"
        "RUN pip3 install torch==2.1.2 --index-url https://download.pytorch.org/whl/cu118\n"
        "RUN DS_BUILD_CPU_ADAM=1 pip3 install deepspeed==0.12.6\n", **_TRAIN,
    }, "Dockerfile:1 warning"),
    bad("an image of PyTorch, and another torch over it", {
        "Dockerfile": f"FROM pytorch/pytorch:2.1.2-cuda11.8-cudnn8-devel\n{_INSTALL}",
        "requirements.txt": "torch==2.4.1\ndeepspeed==0.15.4\n", **_TRAIN,
    }, "Dockerfile:1 warning"),
    bad("an image of NVIDIA by its month", {
        "Dockerfile": f"FROM nvcr.io/nvidia/pytorch:23.10-py3\n{_INSTALL}",
        "requirements.txt": "torch==2.0.1\ndeepspeed==0.10.3\n", **_TRAIN,
    }, "Dockerfile:1 warning"),
    good("the torch of the image stays", {
        "Dockerfile": f"FROM nvcr.io/nvidia/pytorch:23.10-py3\n{_INSTALL}",
        "requirements.txt": "torch>=2.0\ndeepspeed==0.19.8\n", **_TRAIN,
    }),
    good("the same release as in the image", {
        "Dockerfile": f"FROM pytorch/pytorch:2.1.2-cuda11.8-cudnn8-devel\n{_INSTALL}",
        "requirements.txt": "torch==2.1.2\ndeepspeed==0.15.4\n", **_TRAIN,
    }),
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

_IMAGE = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?P<name>(?:docker\.io/)?(?:nvidia/cuda:(?P<cuda>\d+)\.\d+[\w.-]*-devel[\w.-]*"
    r"|pytorch/pytorch:(?P<torch>\d+\.\d+\.\d+)-cuda(?P<with>\d+)\.\d+[\w.-]*-devel)"
    r"|nvcr\.io/nvidia/pytorch:(?P<year>\d\d)\.(?P<month>\d\d)-py3)(?=\s)",
    re.M | re.I,
)
# From which image of a month on: the major release of CUDA that NVIDIA's images of PyTorch have.
_MONTHS = (((25, 8), "13"), ((23, 1), "12"), ((20, 6), "11"))
_FROM = re.compile(r"^[ \t]*FROM\b", re.M | re.I)
_PIP = re.compile(r"\bpip3?\b[^\n]*\binstall\b")
# The wheels that are asked for by name: `.../whl/cu118`, `torch==2.1.2+cu118`.
_WHEELS = re.compile(r"download\.pytorch\.org/whl/(?:cu(\d{2,3})\b|cpu|rocm)|\btorch[a-z]*==[\d.]+\+cu(\d{2,3})\b")
# Another torch, another compiler, or no check.
_ELSE = re.compile(
    r"conda|mamba|apptainer|DS_SKIP_CUDA_CHECK|cuda-toolkit|cuda-nvcc|CUDA_HOME|TORCH_INDEX|whl/(?:nightly|test|\$)",
    re.I,
)
_OTHER_INDEX = re.compile(r"index-url|find-links|[ \t]-[fi][ \t]|download\.pytorch\.org|\+cu\d", re.I)


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
    if image is None or len(_FROM.findall(text)) != 1 or not _PIP.search(text):
        return
    texts = [_IMAGE.sub("", text), *others]
    if any(map(_ELSE.search, texts)):
        return
    wheels = {match[1] or match[2] for part in texts for match in _WHEELS.finditer(part)}
    release = _release(doc, file, image)
    if len(wheels) == 1 and None not in wheels:
        built_for = _dotted(wheels.pop())
    elif wheels or release is None or any(map(_OTHER_INDEX.search, texts)):
        return
    else:
        built_for = cuda_of(release) or ""
    cuda = image["cuda"] or image["with"] or _of_month(int(image["year"]), int(image["month"]))
    if not built_for or not cuda or built_for.partition(".")[0] == cuda:
        return
    bound = next((b for b in doc.allowed.of("torch").bounds if b.origin is not None), None)
    shown = f"torch {release}" if release else "torch"
    yield META.finding(
        file.source.location(Span(*image.span("name"))),
        f"the image compiles for CUDA {cuda}, {shown} is built for {built_for}: DeepSpeed cannot compile",
        hint=f"Take an image with CUDA {built_for.partition('.')[0]}, or the wheel of torch for CUDA {cuda}",
        related=(bound.origin.labelled(shown),) if bound is not None and bound.origin is not None else (),
    )


def _release(doc: Requirements, file: StatedFile, image: re.Match[str]) -> str | None:
    """The release of torch that pip installs over what the image has; ``None`` where it leaves that."""
    torch = doc.allowed.of("torch")
    pins = [pin for bound in file.bounds.get("torch", ()) if (pin := pin_of(bound.specifier))]
    if torch.is_head:
        return None
    if image["cuda"]:
        return pins[0] if pins else torch.fresh
    if image["torch"]:
        return next((pin for pin in (*pins, *_elsewhere(doc)) if pin != image["torch"]), None)
    return next(iter((*pins, *_elsewhere(doc))), None)


def _elsewhere(doc: Requirements) -> list[str]:
    """The pins of torch in the requirement files beside it."""
    texts = [file for file in doc.files if file.name.endswith(".txt")]
    return [pin for file in texts for bound in file.bounds.get("torch", ()) if (pin := pin_of(bound.specifier))]


def _of_month(year: int, month: int) -> str:
    return next((cuda for since, cuda in _MONTHS if (year, month) >= since), "")


def _dotted(tag: str) -> str:
    """``118`` is CUDA 11.8."""
    return f"{tag[:-1]}.{tag[-1]}"
