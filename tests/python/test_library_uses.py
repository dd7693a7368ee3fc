"""What a module uses of libraries, and under which releases it comes there."""

from __future__ import annotations

import ast
import textwrap

import pytest

from dslint.python.names import Names
from dslint.python.uses.collect import collect
from dslint.python.uses.kinds import Use, Uses
from dslint.python.uses.releasetests import ReleaseTests

LIBRARIES = frozenset({"torch", "transformers", "peft"})
# What the old release has alone, and the new one.
OLD, NEW = ("torch.old", "transformers.old"), ("torch.new", "transformers.new")


def uses(code: str) -> tuple[Names, Uses]:
    tree = ast.parse(textwrap.dedent(code))
    names = Names(tree)
    return names, collect(tree, names, LIBRARIES)


def runs(code: str, dotted: str) -> dict[str, str]:
    """Return whether the last use of a name runs under the old release and under the new one."""
    names, found = uses(code)
    use = [use for use in found.uses if use.name == dotted][-1]

    def under(release: str) -> str:
        gone = NEW if release == "1.0" else OLD
        tests = ReleaseTests(names, found, lambda _: release, lambda dotted: dotted not in gone)
        return tests.open(use.guards)

    return {release: under(release) for release in ("1.0", "2.0")}


def named(code: str) -> list[str]:
    return [use.name for use in uses(code)[1].uses]


def test_every_form_of_a_use_is_found() -> None:
    code = """
        import importlib
        import torch
        import torch.nn as nn
        import transformers.models.llama
        from torch import optim as o, cuda
        from transformers import *
        from peft.utils import (a, b)
        from . import transformers_own
        x = nn.Linear(2, bias=False)
        cuda.amp.autocast
        importlib.import_module("transformers.integrations")
        class Net(nn.Module):
            def forward(self): return torch.relu(self.x)
        @torch.no_grad()
        def f(a: torch.Tensor = torch.zeros(1)) -> o.Adam: ...
    """
    assert named(code) == [
        *("torch", "torch.nn", "transformers.models.llama", "torch.optim", "torch.cuda", "transformers"),
        *("peft.utils.a", "peft.utils.b", "torch.nn.Linear", "torch.cuda.amp.autocast", "transformers.integrations"),
        *("torch.nn.Module", "torch.relu", "torch.no_grad", "torch.zeros", "torch.optim.Adam", "torch.Tensor"),
    ]


def test_annotations_that_nobody_evaluates_are_no_uses() -> None:
    code = """
        from __future__ import annotations
        import torch
        def f(a: torch.A, *b: torch.B) -> torch.C: ...
        x: torch.D = 1
    """
    assert named(code) == ["torch"]


def test_code_that_never_runs_has_no_uses() -> None:
    code = """
        import torch
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from torch import a
        if False and torch.b:
            torch.c
        def f():
            return 1
            torch.d
    """
    assert named(code) == ["torch", "torch.b"]


def test_what_the_program_puts_into_a_library_is_known() -> None:
    code = """
        import sys, torch
        torch.a = 1
        setattr(torch, "b", 2)
        sys.modules["torch._six"] = torch
    """
    assert uses(code)[1].patched == {"torch.a", "torch.b", "torch._six"}


def caught(code: str, name: str) -> frozenset[str]:
    return next(use for use in uses(code)[1].uses if use.name == name).caught


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("except ImportError:\n    a = None", {"ImportError"}),
        ("except (ImportError, AttributeError) as e:\n    a = None", {"ImportError", "AttributeError"}),
        ("except:\n    a = None", {""}),
        ("except builtins.Exception:\n    pass", {"Exception"}),
        ("except ImportError:\n    raise RuntimeError('install it')", set()),
        ("except ImportError:\n    print('install it')\n    sys.exit(1)", set()),
    ],
)
def test_handlers_catch(handler: str, expected: set[str]) -> None:
    assert caught(f"try:\n    from torch import a\n{handler}", "torch.a") == expected


GUARDED = {
    "a handler runs where the import fails": (
        "try:\n    from torch import new\nexcept ImportError:\n    import torch\n    torch.here",
        {"1.0": "yes", "2.0": "no"},
    ),
    "the rest of a try runs where the import works": (
        "import torch\ntry:\n    from torch import new\nexcept ImportError:\n    pass\nelse:\n    torch.here",
        {"1.0": "no", "2.0": "yes"},
    ),
    "what comes after a handler that leaves": (
        "import torch\ntry:\n    from torch import new\nexcept ImportError:\n    raise\ntorch.here",
        {"1.0": "no", "2.0": "yes"},
    ),
    "another import may fail, too": (
        "import torch\ntry:\n    import apex\n    from torch import old\nexcept ImportError:\n    torch.here",
        {"1.0": "maybe", "2.0": "yes"},
    ),
    "an early return": (
        "import torch\ndef f():\n    if torch.__version__ < '2':\n        return\n    torch.here",
        {"1.0": "no", "2.0": "maybe"},
    ),
    "an assertion": ("import torch\nassert torch.__version__ >= '2'\ntorch.here", {"1.0": "no", "2.0": "yes"}),
    "a demand": (
        "import transformers\nfrom transformers.utils import check_min_version\n"
        "def f():\n    transformers.here\ncheck_min_version('1.5.0.dev0')",
        {"1.0": "no", "2.0": "maybe"},
    ),
    "a function that is called under a test alone": (
        "import torch\ndef f():\n    torch.here\nif torch.__version__ >= '2':\n    f()",
        {"1.0": "no", "2.0": "yes"},
    ),
    "a function that somebody calls without a test, too": (
        "import torch\ndef f():\n    torch.here\nif torch.__version__ >= '2':\n    f()\nf()",
        {"1.0": "yes", "2.0": "yes"},
    ),
    "functions that call each other": (
        "import torch\ndef f():\n    torch.here\n    g()\ndef g():\n    f()\n",
        {"1.0": "maybe", "2.0": "maybe"},
    ),
    "the other branch": (
        "import torch\nif torch.__version__ >= '2':\n    pass\nelse:\n    torch.here",
        {"1.0": "yes", "2.0": "no"},
    ),
    "an expression": ("import torch\nx = torch.here if hasattr(torch, 'new') else 1", {"1.0": "no", "2.0": "yes"}),
    "a test that is no test of releases": (
        "import os, torch\nif os.environ.get('X'):\n    torch.here",
        {"1.0": "maybe", "2.0": "maybe"},
    ),
    "a test of releases that cannot be computed": (
        "import torch\nif 'new' in inspect.signature(torch.f).parameters:\n    torch.here",
        {"1.0": "asked", "2.0": "asked"},
    ),
}


@pytest.mark.parametrize("title", GUARDED)
def test_guards_are_evaluated_at_each_release(title: str) -> None:
    code, expected = GUARDED[title]
    assert runs(code, "transformers.here" if "transformers" in code else "torch.here") == expected


def test_a_name_from_two_places_means_either() -> None:
    code = """
        try:
            from torch import a as x
        except ImportError:
            from torch.b import a as x
        x.y
    """
    found: list[Use] = uses(code)[1].uses
    assert found[-1].dotted == ("torch.a.y", "torch.b.a.y")
