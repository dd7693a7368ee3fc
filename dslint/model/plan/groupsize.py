"""The number of ranks for which a script makes its process group, where it is written out."""

from __future__ import annotations

import ast
import re

from dslint.core.fact import Fact, absent, known
from dslint.core.source import SourceFile
from dslint.model.plan.pyscript import PyScript, read_script

_WORTH_PARSING = re.compile(r"(?:init_process_group|init_distributed)\([^()]*world_size\s*=\s*\w")
_MAKERS = ("torch.distributed.init_process_group", "deepspeed.init_distributed")


def group_size(source: SourceFile) -> Fact[int]:
    """``world_size=8`` of the one call that makes the group; absent where it is computed, conditional or not alone."""
    if not _WORTH_PARSING.search(source.text):
        return absent()
    script = read_script(source)
    calls = [call for name, call in script.called if name in _MAKERS]
    if len(calls) != 1 or script.tree is None:
        return absent()
    value = next((k.value for k in calls[0].keywords if k.arg == "world_size"), None)
    if value is None or not _is_certain(script, calls[0]):
        return absent()
    size = script.literal(value).get_or(None)
    if isinstance(size, int) and not isinstance(size, bool) and size > 1:
        return known(size, script.location(value))
    return absent()


def _is_certain(script: PyScript, call: ast.Call) -> bool:
    """The call stands under no condition but ``if __name__ == "__main__"``."""
    for node in ast.walk(script.tree) if script.tree is not None else ():
        if isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.IfExp)) and any(
            n is call for n in ast.walk(node)
        ):
            if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
                continue
            return False
    return True
