"""What following one script from its first line has found, as far as parsers of command lines are concerned."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dslint.model.plan.parser.made import Made
from dslint.model.workspace import Workspace

MARKERS = re.compile(r"parse_args\b|parse_known|parse_intermixed|ArgumentParser\b|TrlParser\b|add_argument\b")
Environment = dict[str, Made]
_BUDGET = 400  # functions that one script may lead to


@dataclass(slots=True)
class Walk:
    """The state that all scopes of one script share.

    ``made`` are the parsers that parse the command line of the process; ``strange`` says why some other code may do
    that as well. ``others`` are the libraries with parsers of their own that the script hands its ``main`` to.
    ``visited`` are functions, ``imported`` files. ``shared`` are the parsers in the variables of a module, which its
    functions see.
    """

    workspace: Workspace
    made: list[Made] = field(default_factory=list)
    strange: str = ""
    others: list[str] = field(default_factory=list)
    visited: set[tuple[str, int]] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    shared: dict[str, Environment] = field(default_factory=dict)
    budget: int = _BUDGET

    def other_library(self, name: str) -> None:
        """Note a call or decorator of a library that reads the command line itself."""
        kind = OTHER_LIBRARIES.get(name) or OTHER_LIBRARIES.get(name.rpartition(".")[2] if "." in name else "")
        if kind is not None:
            self.others.append(kind)


OTHER_LIBRARIES = {
    "fire.Fire": "fire",
    "hydra.main": "hydra",
    "click.command": "click",
    "click.group": "click",
    "typer.Typer": "typer",
    "typer.run": "typer",
    "tyro.cli": "tyro",
    "jsonargparse.CLI": "jsonargparse",
    "jsonargparse.auto_cli": "jsonargparse",
    "LightningCLI": "lightning",
    "simple_parsing.parse": "simple_parsing",
    "absl.app.run": "absl",
    "draccus.wrap": "draccus",
    "pyrallis.wrap": "draccus",
    "OmegaConf.from_cli": "hydra",
}
