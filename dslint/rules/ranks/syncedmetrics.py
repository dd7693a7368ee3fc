"""Metrics of Lightning that the ranks may have averaged before anybody reads them."""

from __future__ import annotations

import ast
import re

from dslint.python.source import Module
from dslint.rules.runs import RunQuery

_SYNCS = re.compile(r"\bsync_dist\s*=\s*(?!False)")


def is_synced_metric(run: RunQuery, origin: tuple[Module, ast.AST] | None) -> bool:
    """Return whether a difference begins in `trainer.callback_metrics`, and the modules of the run log synchronously.

    Nobody looks here which of the names are logged so.
    """
    node = origin[1] if origin is not None else None
    is_metric = isinstance(node, ast.Attribute) and node.attr.endswith("_metrics")
    return is_metric and any(module.search(_SYNCS) for module in run.machine.program.modules())
