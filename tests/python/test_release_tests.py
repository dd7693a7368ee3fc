"""Tests of releases, in all their spellings: Python itself says what each gives under a release."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from dslint.python.names import Names
from dslint.python.uses.collect import collect
from dslint.python.uses.releasetests import ReleaseTests

HEAD = """\
import importlib.metadata
import importlib.util
import operator
import re
import torch
import transformers
from packaging import version
from packaging.version import Version, parse
"""
SPELLINGS = (
    'version.parse(torch.__version__) >= version.parse("2.0")',
    'version.parse(torch.__version__).release >= version.parse("2.0").release',
    'Version(torch.__version__) < Version("2.1")',
    'not parse(torch.__version__) >= parse("2.1")',
    "parse(torch.__version__).major >= 2",
    'parse(torch.__version__) > parse("2.0") and parse(torch.__version__) <= parse("2.2.1")',
    'tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 1)',
    'tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 1)',
    '[int(x) for x in torch.__version__.split(".")[:2]] >= [1, 13]',
    'int(torch.__version__.split(".")[0]) >= 2',
    'float(".".join(torch.__version__.split(".")[:2])) >= 2.0',
    "float(torch.__version__[:3]) >= 2.1",
    'torch.__version__ >= "1.8"',
    'torch.__version__ < "1.9"',
    'torch.__version__.startswith("2.")',
    'not torch.__version__.startswith(("1.", "0."))',
    'torch.__version__ == "2.1.0"',
    'torch.__version__ in ("2.1.0", "2.1.1")',
    'torch.__version__[0] == "2"',
    'importlib.metadata.version("torch") >= "2"',
    'version.parse(importlib.metadata.version("torch")) >= version.parse("2.1.1")',
    'hasattr(torch, "compile")',
    'hasattr(torch, "compile") and parse(torch.__version__) >= parse("2.1")',
    'getattr(torch, "compile", None) is not None',
    'getattr(torch, "compile", False)',
    'V >= version.parse("2.0")',
    "TORCH_VERSION[:2] >= (2, 0)",
    "IS_NEW",
    "is_new()",
    'at_least("2.1")',
    "HAS_COMPILE",
    '"2.0" <= torch.__version__ < "2.2"',
)
SETUP = """\
V = version.parse(torch.__version__)
TORCH_VERSION = tuple(int(x) for x in torch.__version__.split(".")[:2])
IS_NEW = V >= version.parse("2.1")
def is_new():
    return version.parse(torch.__version__) >= version.parse("2.0.1")
def at_least(wanted):
    return version.parse(torch.__version__) >= version.parse(wanted)
HAS_COMPILE = False
try:
    from torch import compile
    HAS_COMPILE = True
except ImportError:
    pass
"""
RELEASES = ("1.8.1", "1.13.1", "2.0.0", "2.0.1", "2.1.0", "2.1.2", "2.3.0")


@contextmanager
def installed(release: str) -> Iterator[None]:
    torch = types.ModuleType("torch")
    torch.__version__ = release  # type: ignore[attr-defined]
    if release >= "2":
        torch.compile = object()  # type: ignore[attr-defined]
    modules = {"torch": torch, "transformers": types.ModuleType("transformers")}
    with mock.patch.dict(sys.modules, modules), mock.patch("importlib.metadata.version", return_value=release):
        yield


def answer(test: str, release: str) -> str:
    tree = ast.parse(f"{HEAD}{SETUP}if {test}:\n    torch.here\n")
    names = Names(tree)
    uses = collect(tree, names, frozenset({"torch", "transformers"}))
    told = ReleaseTests(
        names,
        uses,
        {"torch": release}.get,
        lambda dotted: (release >= "2") if dotted == "torch.compile" else dotted in ("torch", "torch.here"),
    )
    return told.open(next(use for use in uses.uses if use.name == "torch.here").guards)


@pytest.mark.parametrize("test", SPELLINGS)
def test_spelling_says_what_python_says(test: str) -> None:
    for release in RELEASES:
        with installed(release):
            space: dict[str, object] = {}
            exec(HEAD + SETUP, space)  # noqa: S102
            expected = "yes" if eval(test, space) else "no"
        assert answer(test, release) == expected, release
