"""The table of what went from the standard library, against the CPython that runs the tests."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import warnings

import pytest

from dslint.core.schemafiles import load_file
from dslint.model.versions.stdlib import is_at_least, modules_with_removals, removed_in
from dslint.rules.registry import load_rule

TABLE = load_file("standard_library.json")
HERE = f"3.{sys.version_info[1]}"


@pytest.mark.parametrize("module", sorted(TABLE["modules"]))
def test_modules_are_there_until_they_went(module: str) -> None:
    if is_at_least(HERE, TABLE["modules"][module]):
        found = importlib.util.find_spec(module)
        assert found is None or "site-packages" in str(found.origin)
    elif module not in ("nis", "ossaudiodev", "spwd", "crypt"):  # a build of Python may leave these out
        assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("dotted", sorted(set(TABLE["names"]) - {"opcode.is_pseudo"}))  # that came with 3.12
def test_names_are_there_until_they_went(dotted: str) -> None:
    module, _, name = dotted.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            is_there = hasattr(importlib.import_module(module), name)
        except ImportError:
            is_there = False
    assert is_there != is_at_least(HERE, TABLE["names"][dotted])


def test_distutils_is_left_to_setuptools() -> None:
    assert removed_in("distutils.util.strtobool") is None
    assert "distutils" not in modules_with_removals()


def test_an_attribute_of_a_module_that_stays() -> None:
    assert removed_in("collections.Mapping.get") == ("collections.Mapping", "3.10")
    assert removed_in("imp.reload") == ("imp", "3.12")
    assert removed_in("collections.OrderedDict") is None


@pytest.mark.parametrize("module", sorted(set(TABLE["modules"]) - {"distutils", "macpath", "ossaudiodev"}))
def test_the_marker_of_the_rule_finds_every_module(module: str) -> None:
    (marker,) = load_rule("DSL533").meta.markers
    assert re.search(marker.encode(), f"import {module}\n".encode())
