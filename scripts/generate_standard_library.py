"""Generates ``schemas/standard_library.json``: what Python has taken out of its standard library, and when.

    python scripts/generate_standard_library.py PYTHON ...

Each argument is the program of one CPython (3.7 and newer, in any order). Each lists its modules, and for those that
harmless to import what is public in it. What a later one does not list is asked of every Python by its name, since a
module may make names on demand. What one release has and no later one stands in the table, with the release that lacks
it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "schemas" / "standard_library.json"
# Runs in every Python: so it is old syntax.
LIST = """
import importlib, json, os, pkgutil, sys, sysconfig, warnings
warnings.simplefilter("ignore")
lib = sysconfig.get_paths()["stdlib"]
names = set(m.name for m in pkgutil.iter_modules([lib, os.path.join(lib, "lib-dynload")]))
names |= set(sys.builtin_module_names) | set(getattr(sys, "stdlib_module_names", ()))
skipped = {"antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter", "lib2to3", "site", "test", "msilib"}
found = {}
for name in sorted(names):
    if name.startswith("_") or name == "site-packages":
        continue
    if importlib.util.find_spec(name) is None:
        continue
    found[name] = []
    inner = [name] + [name + "." + part for part in ("abc", "util", "request", "parse", "machinery", "etree")]
    for dotted in inner if name not in skipped else ():
        try:
            module = importlib.import_module(dotted)
        except BaseException:
            continue
        listed = set(getattr(module, "__all__", ()))
        for public in dir(module):
            value = getattr(module, public, None)
            own = str(getattr(value, "__module__", "")).split(".")[0].lstrip("_") == name
            if not public.startswith("_") and (own or public in listed) and type(value).__name__ != "module":
                found[name].append(dotted + "." + public)
sys.stdout.write(json.dumps({"version": list(sys.version_info[:2]), "found": found}))
"""
ASK = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
found = []
for dotted in json.load(sys.stdin):
    module, _, name = dotted.rpartition(".")
    try:
        getattr(importlib.import_module(module), name)
        found.append(dotted)
    except BaseException:
        pass
sys.stdout.write(json.dumps(found))
"""


def asked(program: str, code: str, given: str = "") -> Any:
    """What a Python answers to a program."""
    done = subprocess.run([program, "-I", "-c", code], input=given.encode(), capture_output=True, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


def main(programs: list[str]) -> int:
    """Ask every Python, compare each with the next."""
    tables = [{**asked(program, f"import importlib.util\n{LIST}"), "program": program} for program in programs]
    tables.sort(key=lambda table: table["version"])
    releases = [".".join(map(str, table["version"])) for table in tables]
    newest = tables[-1]["found"]
    modules = {
        module: next(r for r, later in zip(releases, tables, strict=True) if is_after(r, module, tables, releases))
        for table in tables for module in table["found"] if module not in newest
    }  # fmt: skip
    listed = {name for table in tables for public in table["found"].values() for name in public}
    of_abc = {
        name.replace("collections.abc.", "collections.") for name in listed if name.startswith("collections.abc.")
    }
    kept = {name for public in newest.values() for name in public}
    doubtful = sorted(name for name in (listed | of_abc) - kept if name.partition(".")[0] not in modules)
    answers = [set(asked(table["program"], ASK, json.dumps(doubtful))) for table in tables]
    names = {}
    for name in doubtful:
        having = [at for at, answer in enumerate(answers) if name in answer]
        if having and having[-1] + 1 < len(releases):
            names[name] = releases[having[-1] + 1]
    data = {"pythons": releases, "modules": dict(sorted(modules.items())), "names": names}
    TARGET.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(TARGET, len(data["modules"]), "modules,", len(data["names"]), "names")
    return 0


def is_after(release: str, module: str, tables: list[dict[str, Any]], releases: list[str]) -> bool:
    """The release is the first one from which on no Python has a module."""
    having = [at for at, table in enumerate(tables) if module in table["found"]]
    return releases.index(release) == having[-1] + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
