"""Library versions that project files state, each with its exact place. Files are read as text, never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile, Span
from dslint.model.context import VersionFact

if TYPE_CHECKING:
    from packaging.markers import Marker

LIBRARIES = ("deepspeed", "transformers", "accelerate", "torch", "xtuner", "mmengine", "trl", "lightning", "webdataset")
# Followed as well, with all their releases; and what these require of others, which a project may pin.
FOLLOWED = (*LIBRARIES, "peft", "datasets", "bitsandbytes", "diffusers", "pytorch-lightning")
REQUIRED = (
    "auto-gptq", "autoawq", "evaluate", "fairscale", "flash-attn", "fsspec", "gradio", "huggingface-hub",
    "hydra-core", "kernels", "liger-kernel", "lightning-utilities", "lm-eval", "matplotlib", "mmaction2", "mmcv",
    "mmdet", "mmdet3d", "mmocr", "mmpose", "mmpretrain", "mmsegmentation", "mmyolo", "numba", "numpy", "omegaconf",
    "open-clip-torch", "opencv-python", "opencv-python-headless", "optimum", "pandas", "pillow", "protobuf",
    "pyarrow", "pydantic", "safetensors", "scikit-learn", "scipy", "sentence-transformers", "setfit", "setuptools",
    "tensorflow", "timm", "tokenizers", "torchaudio", "torchdata", "torchmetrics", "torchtext", "torchvision",
    "triton", "unsloth", "unsloth-zoo", "vllm", "xformers",
)  # fmt: skip
PYTHON = "python"
_KNOWN = frozenset((*FOLLOWED, *REQUIRED, PYTHON))
_MENTION = re.compile(
    r"deepspeed|transformers|accelerate|torch|xtuner|mmengine|trl|lightning|webdataset|peft|datasets|bitsandbytes"
    r"|diffusers|tokenizers|hub|safetensors|numpy|pydantic|protobuf|pyarrow|fsspec|python|gptq|awq|evaluate|fairscale"
    r"|flash.attn|kernel|lm.eval|clip|optimum|pillow|setfit|setuptools|timm|triton|unsloth|vllm|xformers|matplotlib"
    r"|numba|opencv|pandas|scikit|scipy|gradio|tensorflow|mmcv|mmdet|mmseg|mmpose|mmpretrain|mmaction|mmocr|mmyolo|omegaconf|hydra",
    re.I,
)
# tokenizers is read for what a pin of it says of transformers: the releases of transformers that first require more.
_TOKENIZERS = "tokenizers"
_REQUIRED_TOKENIZERS = (
    ((0, 14), "4.34.0"), ((0, 19), "4.40.0"), ((0, 20), "4.45.0"), ((0, 21), "4.47.0"), ((0, 22), "4.56.0"),
    ((0, 23, 1), "5.16.0"),
)  # fmt: skip
# `mmcv-full` installs the package `mmcv` as well, with the same releases before 2.0.
_ALIASES = {"pytorch": "torch", "pytorch-gpu": "torch", "mmcv-full": "mmcv"}
# Two distributions of the same releases, which most rules need not tell apart.
_ONE_LIBRARY = {"pytorch-lightning": "lightning"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One place where a file names a library: ``certain`` unless an extra or an environment marker decides.

    ``name`` is that of the distribution, or ``python``; ``marker`` the text of the environment marker. ``taken_from``
    says where a release without a number comes from: ``git`` (the head of the library's own repository), ``commit``
    (some state of it, or of a copy), ``folder`` (one of this machine), ``preview`` (pre-releases, nightly builds);
    empty for an index. ``group`` names what is
    installed together with the certain ones when it is asked for (``extra train``, ``group dev``), or the one command
    that installs it (``command 120``).
    """

    name: str
    specifier: str
    span: Span
    certain: bool = True
    marker: str = ""
    taken_from: str = ""
    group: str = ""


def parse_versions(source: SourceFile, included: Iterable[SourceFile] = ()) -> dict[str, VersionFact]:
    """The versions of the libraries dslint knows that one project file states, by library.

    The file's name says how to read it: requirements and constraints, pyproject.toml, setup.cfg, setup.py, conda
    environments, Pipfile, pixi.toml, the lock files of uv, poetry, pdm and pipenv, pylock.toml; of Dockerfiles, shell
    scripts and texts the ``pip install`` lines. A library without a version, and
    one with contradictory versions, is left out.

    ``included`` are the files that a requirements file names with ``-r`` and ``-c``: pip installs what satisfies all of
    them together, so they count as one file.
    """
    return facts_of(statements_of(source, included))


def facts_of(stated: Iterable[tuple[SourceFile, Statement]]) -> dict[str, VersionFact]:
    """One fact for each library that dslint knows, out of all statements that hold together."""
    by_library: dict[str, list[tuple[SourceFile, Statement]]] = {}
    for read, statement in stated:
        name = _ONE_LIBRARY.get(statement.name, statement.name)
        if statement.specifier and (name in LIBRARIES or name == _TOKENIZERS):
            by_library.setdefault(name, []).append((read, statement))
    facts = {library: _joined(statements) for library, statements in by_library.items()}
    pin, transformers = facts.pop(_TOKENIZERS, None), facts.get("transformers")
    if pin is not None and transformers is not None:
        facts["transformers"] = _limited(transformers, pin)
    return {library: fact for library, fact in facts.items() if fact}


def statements_of(source: SourceFile, included: Iterable[SourceFile] = ()) -> list[tuple[SourceFile, Statement]]:
    """All that one project file states of the libraries that are followed, of what they require, and of Python."""
    readers = [(source, _reader(source.path)), *((s, requirements_txt) for s in included)]
    return [
        (read, statement)
        for read, reader in readers
        if reader is not None and (_MENTION.search(read.text) or _MENTION.search(read.path.rsplit("/", 1)[-1]))
        for statement in reader(read)
    ]


def _limited(transformers: VersionFact, tokenizers: VersionFact) -> VersionFact:
    """`tokenizers==0.15.1` beside an open range of transformers: pip takes none that requires a newer one."""
    release = re.fullmatch(r"==(\d+(?:\.\d+)*)", tokenizers.specifier)
    if release is None or transformers.specifier.startswith("=="):
        return transformers
    given = tuple(int(part) for part in release[1].split("."))
    limit = next((first for needed, first in _REQUIRED_TOKENIZERS if given < needed), None)
    return replace(transformers, specifier=f"{transformers.specifier},<{limit}") if limit else transformers


def is_requirements(path: str) -> bool:
    """Whether a file is read as ``requirements.txt`` is, and so may name others with ``-r`` and ``-c``."""
    return _reader(path) is requirements_txt


def _reader(path: str) -> Callable[[SourceFile], Iterable[Statement]] | None:
    from dslint.model.versions import lockfiles, manifests, pythons, setupfiles

    name = path.rsplit("/", 1)[-1].lower()
    by_name: dict[str, Callable[[SourceFile], Iterable[Statement]]] = {
        ".python-version": pythons.python_version_file,
        "conda-lock.yml": lockfiles.yaml_lock,
        "pixi.lock": lockfiles.yaml_lock,
        "pipfile.lock": lockfiles.pipfile_lock,
        "pyproject.toml": manifests.pyproject,
        "pixi.toml": manifests.pixi,
        "pipfile": manifests.pipfile,
        "setup.cfg": setupfiles.setup_cfg,
        "setup.py": setupfiles.setup_py,
    }
    if name in by_name:
        return by_name[name]
    if name.endswith(".lock") or (name.startswith("pylock.") and name.endswith("toml")):
        return lockfiles.toml_lock
    if name.endswith((".yml", ".yaml")):
        return pythons.workflow if "/.github/workflows/" in f"/{path}" else manifests.conda
    if "dockerfile" in name:
        return manifests.dockerfile
    if name.endswith(".md"):
        from dslint.model.versions import prose

        return prose.told
    if name.endswith(".sh"):
        return manifests.installs
    return requirements_txt if name.endswith((".txt", ".in")) else None


def _joined(statements: list[tuple[SourceFile, Statement]]) -> VersionFact | None:
    """One fact out of all statements about a library that hold together."""
    chosen = [(source, s) for source, s in statements if s.certain] or statements
    specifiers = list(dict.fromkeys(s.specifier for _, s in chosen))
    if len(specifiers) > 1 and not chosen[0][1].certain:
        return None
    pins = [s for s in specifiers if s.startswith("==") and "," not in s and "*" not in s]
    if len(pins) > 1:
        return None
    source, first = chosen[0] if not pins else next(pair for pair in chosen if pair[1].specifier == pins[0])
    base = source.path.rsplit("/", 1)[-1]
    label = f"{_ONE_LIBRARY.get(first.name, first.name)} {first.specifier} stated here"
    return VersionFact(pins[0] if pins else ",".join(specifiers), source.location(first.span, label), base)


def library_name(name: str) -> str | None:
    """The distribution behind a package name as people write it; ``None`` for what is not followed."""
    plain = re.sub(r"[-_.]+", "-", name.strip().lower())
    plain = _ALIASES.get(plain, plain)
    return plain if plain in _KNOWN else None


_SIMPLE = re.compile(
    r"\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[\w\s,.-]*\])?\s*((?:==|>=|<=|!=|<|>)\s*\d+(?:\.\d+)*(?:\s*,\s*(?:>=|<=|!=|<|>)"
    r"\s*\d+(?:\.\d+)*)*)?\s*$"
)
_START = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def requirement(text: str, start: int, certain: bool = True) -> Statement | None:
    """The statement in a PEP 508 requirement that stands at ``start``; None for other libraries and other systems."""
    if "/" in text:  # an address or a path; rare, and longer to tell
        from dslint.model.versions.addresses import addressed

        found = addressed(text, start, certain)
        if found is not None:
            return found
    match = _START.match(text)
    library = library_name(match[1]) if match else None
    if library is None or match is None:
        return None
    span = Span(start + match.start(1), start + len(text.rstrip()))
    simple = _SIMPLE.match(text)
    if simple:  # most lines; the rest is worth an import
        return Statement(library, (simple[1] or "").replace(" ", ""), span, certain)
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(text.strip())
    except InvalidRequirement:
        return None
    if parsed.url is not None or (parsed.marker is not None and not _on_linux(parsed.marker)):
        return None
    marker = str(parsed.marker) if parsed.marker is not None else ""
    return Statement(library, _ordered(text, str(parsed.specifier)), span, certain and not marker, marker)


def _ordered(text: str, specifier: str) -> str:
    """``packaging`` sorts the parts of a range; keep them as written."""
    return ",".join(sorted(specifier.split(","), key=lambda part: text.replace(" ", "").find(part)))


def _on_linux(marker: Marker) -> bool:
    """Whether a requirement can apply where people train: Linux, some Python."""
    system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
    for minor in range(6, 15):
        if marker.evaluate({**system, "python_version": f"3.{minor}", "python_full_version": f"3.{minor}.9"}):
            return True
    return "extra" in str(marker)


_TXT_LINE = re.compile(r"^[^\r\n]*", re.M)
_EDITABLE = re.compile(r"[ \t]*(?:-e|--editable)[ \t=]+")
_TXT_END = re.compile(r"\s#|\s--\w|\s*\\\s*$")


def requirements_txt(source: SourceFile) -> Iterator[Statement]:
    """``requirements.txt`` and ``constraints.txt``."""
    for line in _TXT_LINE.finditer(source.text):
        text, start = line[0], line.start()
        if not text.strip() or text.lstrip()[0] == "#":
            continue
        if text.lstrip()[0] == "-":
            editable = _EDITABLE.match(text)
            if editable is None:
                continue
            text, start = text[editable.end() :], start + editable.end()
        end = _TXT_END.search(text)
        found = requirement(text[: end.start()] if end else text, start)
        if found:
            yield found
