"""DeepSpeed configs that a script writes with Python: ``python -c '... json.dump(config, f)'``, ``python - <<EOF``."""

from __future__ import annotations

import re
from dataclasses import replace

from dslint.core.source import SourceFile
from dslint.model.embedded.heredoc import WrittenConfig
from dslint.model.embedded.python import python_configs
from dslint.model.embedded.shelltext import MARK, REASON, Written
from dslint.model.firstlook import holds_config, may_be_config
from dslint.parse.data import DataDoc

# A letter that Python takes for a name, and nobody uses: it stands where bash puts what nobody knows.
_NAME = "\u01c3"
_OPENED = re.compile(r"""(?:open|Path)\(\s*["']([^"'{}]+\.json)["']""")


def written_by_python(text: Written, at: int) -> list[WrittenConfig]:
    """Return the configs in a program that a script runs; the file is known where the program names one only."""
    code = text.text.replace(MARK, _NAME)
    if not (may_be_config(code) or holds_config(code)):
        return []
    docs = python_configs(SourceFile(text.source.path, code))
    names = set(_OPENED.findall(code))
    target = names.pop() if len(names) == 1 and len(docs) == 1 else None
    return [WrittenConfig(_placed(text, doc), target, at, 1) for doc in docs]


def _placed(text: Written, doc: DataDoc) -> DataDoc:
    """Return the document with its places in the script; what holds an unknown stretch is unknown."""
    placed = text.placed(doc)
    hidden = {p: REASON for p in doc.values if isinstance(value := doc.get(p), str) and _NAME in value}
    for pointer in hidden:
        around = placed.get(pointer.rpartition("/")[0])
        if isinstance(around, dict):
            around.pop(pointer.rpartition("/")[2], None)
    # The text of a program in a script is in quotes of the shell, or not: nothing is edited in it.
    return replace(placed, opaque={**placed.opaque, **hidden}, dialect="none")
