"""What passes between the thread of the protocol and the one that looks."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from dslint.engine.session import Look, Session
from dslint.server.documents import Documents
from dslint.settings import Settings


@dataclass(frozen=True)
class Wanted:
    """What the client has now, a copy of its own; ``number`` grows with each request.

    ``is_saved``: a document was saved, so that all that imports it is looked at, too.
    """

    documents: Documents
    number: int
    is_saved: bool = False


@dataclass
class Outcome:
    """A look with the settings of its folder, and the request that it answers.

    ``seconds`` it took; ``problem`` is what is wrong with the settings.
    """

    look: Look
    wanted: Wanted
    folder: str
    settings: Settings
    seconds: float = 0.0
    problem: str = ""


@dataclass
class Folder:
    """A folder that is looked at; ``first`` is the process of its first look while that runs (``is_begun``: or ran)."""

    root: str
    session: Session
    problem: str
    is_whole: bool = False
    first: subprocess.Popen[bytes] | None = None
    is_begun: bool = False


class Listener:
    """Who hears of looks; all of it is called in the thread of the analyst."""

    def looked(self, outcome: Outcome) -> None:
        """A look has ended."""

    def first_look(self, root: str, share: str) -> None:
        """The first look at a folder goes on; ``share`` is empty at its end."""

    def failed(self, error: Exception) -> None:
        """A look has failed: a defect of dslint."""
