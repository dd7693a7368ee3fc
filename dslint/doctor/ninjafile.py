"""The folders that a ``build.ninja`` of torch names, as ``torch.utils.cpp_extension._write_ninja_file`` writes it."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import NamedTuple

_ENVIRONMENT = re.compile(r"/(torch/(include|lib)|python\d\.\d+[a-z]*)/?\Z")
_FLAG_VARIABLES = ("cflags", "cuda_cflags", "ldflags", "hip_cflags")


class BuildPaths(NamedTuple):
    """Absolute paths: headers (``-I``, ``-isystem``), libraries (``-L``), and the CUDA compiler if there is one."""

    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    nvcc: str

    @property
    def of_environment(self) -> tuple[str, ...]:
        """The paths that belong to the environment: torch, Python's headers, nvcc.

        The others are the extension's own, and DeepSpeed names some that its wheel does not hold.
        """
        own = [path for path in (*self.includes, *self.libraries) if _ENVIRONMENT.search(path)]
        return (*own, self.nvcc) if self.nvcc.startswith("/") else tuple(own)

    @property
    def torch(self) -> str:
        """The torch package that the build was made for, empty when it is not to be seen."""
        for path in self.includes:
            parts = PurePosixPath(path).parts
            if parts[-2:] == ("torch", "include"):
                return str(PurePosixPath(path).parent)
        return ""


def read_paths(text: str) -> BuildPaths:
    """The paths in the text of a ``build.ninja``; of what cannot be read nothing."""
    variables: dict[str, str] = {}
    for line in text.replace("$\n", "").splitlines():
        match = re.match(r"(\w+)\s*=\s*(.*)", line)
        if match:
            variables.setdefault(match[1], re.sub(r"\$([ :$])", r"\1", match[2]))
    words: list[str] = []
    for name in _FLAG_VARIABLES:
        try:
            words += shlex.split(variables.get(name, ""))
        except ValueError:
            continue
    return BuildPaths(
        _of(words, ("-isystem", "-I")), _of(words, ("-L",)), variables.get("nvcc", "").split(" ")[-1].strip()
    )


def _of(words: list[str], flags: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for number, word in enumerate(words):
        for flag in flags:
            if word == flag and number + 1 < len(words):
                found.append(words[number + 1])
            elif word.startswith(flag) and word != flag:
                found.append(word[len(flag) :])
    return tuple(dict.fromkeys(path for path in found if path.startswith("/")))
