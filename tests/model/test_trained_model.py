"""The classes whose configs have no hidden size, asked as transformers asks them."""

from __future__ import annotations

import pytest

from dslint.model.plan.trainedmodel import WITHOUT_SIZE


def test_their_configs_have_no_hidden_size() -> None:
    transformers = pytest.importorskip("transformers")
    found = []
    for name in WITHOUT_SIZE:
        config = getattr(transformers, f"{name}Config", None)
        if config is None:
            continue  # another release
        made = config()
        parts = [made, getattr(made, "text_config", None)]
        if any(hasattr(part, size) for part in parts for size in ("hidden_size", "hidden_sizes")):
            found.append(name)
    assert found == []
