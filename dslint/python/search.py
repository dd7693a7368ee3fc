"""Which file of a project an import means: Python's own search, over the folders that a project shows.

Python looks in the folder of the script that runs and where packages are installed. Both are tried here: the folder of
the importing file, the folder above its outermost package, then the folders above up to the project's root and its
``src``. Where two different files would do, none is taken; a file inside of a package means that package by its name.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Iterator

# ("module", folder, root, name) -> a path, ("file", path) -> the digest of its bytes, or ("scripts", folder, root) ->
# the paths of the scripts around a folder, one a line; ("entries", folder) -> what stands in a folder, one a line;
# ("ignored", path) -> whether git ignores a path. Empty: not there.
Question = tuple[str, ...]
# Libraries that a folder of the same name in a project is not, unless the importing file lies in that folder.
_LIBRARIES = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "deepspeed", "transformers", "accelerate", "datasets", "numpy"),
        *("scipy", "pandas", "trl", "peft", "lightning", "pytorch_lightning", "mmengine", "mmcv", "wandb", "tqdm"),
        *("yaml", "PIL", "cv2", "einops", "matplotlib", "sklearn", "requests", "safetensors", "tokenizers", "ray"),
        *("huggingface_hub", "tensorboard", "omegaconf", "hydra", "flash_attn", "vllm", "gradio", "sentencepiece"),
    }
)
# Of these, what projects call a module of their own: beside the script it comes before the installed library.
_SHADOWED = frozenset({"datasets"})
_NEVER_OWN = (_LIBRARIES - _SHADOWED) | sys.stdlib_module_names
# A module deeper than this is none of a project's.
_MAX_PARTS = 12


def is_library(importer: str, name: str) -> bool:
    """A module of Python or of a known library, and not a part of that library itself: no search is needed."""
    first = name.partition(".")[0]
    return first in _NEVER_OWN and f"/{first}/" not in importer


class ModuleSearch:
    """Finds modules. ``kind`` says what stands at an absolute path: ``file``, ``folder``, or an empty text."""

    def __init__(self, kind: Callable[[str], str]) -> None:
        self._kind = kind

    def find(self, folder: str, root: str, name: str) -> str:
        """The file of a module, as a file in ``folder`` of the project at ``root`` names it; empty when unknown.

        ``name`` is absolute (``pkg.mod``) or relative (``..mod``); both folders are absolute paths.
        """
        level = len(name) - len(name.lstrip("."))
        parts = [part for part in name[level:].split(".") if part]
        if len(parts) > _MAX_PARTS or not (folder + "/").startswith(root.rstrip("/") + "/"):
            return ""
        if level:
            for _ in range(level - 1):
                if folder == root:
                    return ""
                folder = posixpath.dirname(folder)
            return self._module(folder, parts)
        return self._absolute(folder, root, parts) if parts else ""

    def _absolute(self, folder: str, root: str, parts: list[str]) -> str:
        top = self._above_package(folder, root)
        inside = (folder + "/").startswith(posixpath.join(top, parts[0]) + "/")
        if not inside and parts[0] in _NEVER_OWN:
            return ""
        # `pkg/pkg.py` lies beside who writes `from pkg import Trainer`, and the package of that name is what is meant.
        places = (top,) if inside else (top, folder)
        near = {found for base in places if (found := self._module(base, parts))}
        if near or parts[0] in _SHADOWED:
            return near.pop() if len(near) == 1 else ""
        far = {found for base in self._far(top, root) if (found := self._module(base, parts))}
        return far.pop() if len(far) == 1 else ""

    def _far(self, folder: str, root: str) -> Iterator[str]:
        yield posixpath.join(root, "src")
        while folder != root:
            folder = posixpath.dirname(folder)
            yield folder

    def _above_package(self, folder: str, root: str) -> str:
        """The folder that holds the outermost package around a folder; the folder itself outside of any."""
        while folder != root and self._kind(posixpath.join(folder, "__init__.py")) == "file":
            folder = posixpath.dirname(folder)
        return folder

    def _module(self, base: str, parts: list[str]) -> str:
        """The file of a module below a folder. Packages need no ``__init__.py`` on the way."""
        for part in parts[:-1]:
            base = posixpath.join(base, part)
            if self._kind(base) != "folder":
                return ""
        if parts:
            base = posixpath.join(base, parts[-1])
        candidates = (f"{base}/__init__.py", f"{base}.py") if parts else (f"{base}/__init__.py",)
        return next((path for path in candidates if self._kind(path) == "file"), "")
