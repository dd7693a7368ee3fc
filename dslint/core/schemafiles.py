"""The files of ``schemas``: data that dslint carries, read once where it is asked for."""

from __future__ import annotations

import json
import os
from typing import Any

import dslint

_PACKAGE = os.path.dirname(os.path.abspath(dslint.__file__))
# Of the installed package, else of the checkout.
_FOLDERS = (os.path.join(_PACKAGE, "_schemas"), os.path.join(os.path.dirname(_PACKAGE), "schemas"))


def load_file(name: str) -> dict[str, Any]:
    """The JSON file with this name, such as ``deepspeed/history.json``.

    Raises:
        OSError: no such file.
    """
    data: dict[str, Any] = json.loads(load_bytes(name))
    return data


def load_bytes(name: str) -> bytes:
    """The file with this name as it is.

    Read by the loader of the package, as :mod:`importlib.resources` would: an installed dslint may be a zip file. That
    module itself takes ten milliseconds to load, which every run on one file would wait for.

    Raises:
        OSError: no such file.
    """
    packed, own = (os.path.join(folder, *name.split("/")) for folder in _FOLDERS)
    read = dslint.__loader__.get_data  # type: ignore[union-attr]  # a package of files or of a zip file has one
    try:
        raw: bytes = read(packed)
    except OSError:
        raw = read(own)
    return raw
