"""The documents of a YAML file, each read alone with its places in the whole file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from dslint.core.source import SourceFile
from dslint.parse.data import DataDoc
from dslint.parse.yamldoc import parse_yaml

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)


def documents(source: SourceFile, is_wanted: Callable[[str], bool]) -> Iterator[DataDoc]:
    """Yield the documents whose text is wanted."""
    cuts = [match.start() for match in _SEPARATOR.finditer(source.text)]
    bounds = [0, *(cut for cut in cuts if source.text[:cut].strip()), len(source.text)]
    for begin, end in pairwise(bounds):
        if is_wanted(source.text[begin:end]):
            # The other documents become blanks, so that every place stays what it is in the file.
            around = [re.sub(r"[^\n]", " ", part) for part in (source.text[:begin], source.text[end:])]
            yield parse_yaml(SourceFile(source.path, around[0] + source.text[begin:end] + around[1]))
