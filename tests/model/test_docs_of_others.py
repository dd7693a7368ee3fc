"""Commands in documentation that belong to another code base."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.workspace import Workspace

_PROJECT = '[project]\nname = "detector"\n'
_LIST = """\
# Benchmarks

* __Detector__: with release 1.2, run
  ```
  torchrun --nproc_per_node 8 tools/train.py --config-file a.yaml
  ```

* __otherdet__: at commit `b0d845f`, run
  ```
  torchrun --nproc_per_node 8 tools/train.py --cfg b.yaml
  ```

* __olddet__: run
  ```
  torchrun --nproc_per_node 8 tools/train.py --old c.yaml
  ```

## Training

```
torchrun --nproc_per_node 8 tools/train.py --config-file d.yaml
```
"""


def lines(text: str) -> list[str]:
    workspace = Workspace(Path("/nonexistent"), {"pyproject.toml": _PROJECT, "docs/notes.md": text, ".git/config": ""})
    docs = read_launch_docs(SourceFile("docs/notes.md", text), "markdown", workspace)
    return [command.script_args[-1].text or "" for doc in docs for command in doc.commands]


def test_items_about_other_code_bases_are_left_out() -> None:
    assert lines(_LIST) == ["a.yaml", "d.yaml"]


@pytest.mark.parametrize("lead", ["__Data__", "**Step 2**", "[Weights](https://example.org)"])
def test_other_items_stay(lead: str) -> None:
    assert lines(f"* {lead}: then run\n  ```\n  torchrun train.py --cfg b.yaml\n  ```\n") == ["b.yaml"]
