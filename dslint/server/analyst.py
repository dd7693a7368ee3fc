"""The thread that looks at folders while the client types: one look at a time, the newest texts first."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslint.core.stopping import Interrupted
from dslint.engine.neighbours import project_root
from dslint.engine.session import Look, Session
from dslint.server import warm
from dslint.server.client_settings import Wishes
from dslint.server.documents import Documents
from dslint.server.requests import Folder, Listener, Outcome, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

# Seconds without a change before a look begins: keys come faster than this.
DEBOUNCE = 0.03
# Seconds without a change before what takes long is done, when all else is told.
_REST = 0.15
# Seconds without a change before what looks have left behind is collected.
_TIDY = 2.0
# Seconds after which changes no longer end a look: who types all the time is to see something, too.
_PATIENCE = 1.5
# A folder with fewer candidates than this is looked at at once, without a process for its first look.
_SMALL = 20
_STACK = 256 * 1024 * 1024


class Analyst:
    """Looks at the folders of a client.

    ``roots`` are absolute paths of folders. Files outside of them belong to the project around them.
    """

    def __init__(self, roots: Sequence[str], wishes: Wishes, raw: Mapping[str, Any], listener: Listener) -> None:
        self._listener = listener
        self._wake = threading.Condition()
        self._wanted: Wanted | None = None
        self._since = 0.0
        self._number = 0
        self._looked = 0
        self._is_over = False
        self._is_untidy = False
        self._roots = list(roots)
        self._wishes, self._raw = wishes, raw
        self._folders: dict[str, Folder] = {}
        self._started = 0.0
        self._on_disk: list[str] = []
        self._others_exist = False

    def start(self) -> None:
        """Begin to wait for work."""
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._run, name="dslint analyst", daemon=True).start()
        finally:
            threading.stack_size(before)

    def want(self, documents: Documents, is_saved: bool = False) -> int:
        """Ask for a look at what is open; returns the number of the request."""
        with self._wake:
            self._number += 1
            # What was saved and not looked at since is not forgotten.
            is_pending = self._wanted is not None and self._wanted.is_saved and self._wanted.number != self._looked
            self._wanted = Wanted(documents.copy(), self._number, is_saved or is_pending)
            self._since = time.monotonic()
            self._wake.notify()
            return self._number

    def use(self, roots: Sequence[str], wishes: Wishes, raw: Mapping[str, Any]) -> None:
        """From the next look on other folders or wishes count, and files may have come and gone."""
        with self._wake:
            self._roots, self._wishes, self._raw = list(roots), wishes, raw
            self._forget()

    def note(self, changed: Sequence[str], others_exist: bool) -> None:
        """Files have other texts on disk, or have come and gone; before the next look."""
        with self._wake:
            self._on_disk += changed
            self._others_exist |= others_exist

    def close(self) -> None:
        """Never look again."""
        with self._wake:
            self._is_over = True
            self._forget()
            self._wake.notify()

    def _forget(self) -> None:
        for folder in self._folders.values():
            if folder.first is not None:
                folder.first.kill()
        self._folders = {}

    # -- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            wanted = self._next()
            if wanted is None:
                return
            self._started = time.monotonic()
            try:
                self._look(wanted)
            except Interrupted:
                continue
            except Exception as error:
                log.exception("a look failed")
                self._listener.failed(error)

    def _next(self) -> Wanted | None:
        """The newest request, once nothing has come for a moment; ``None`` at the end."""
        with self._wake:
            while not self._is_over:
                is_idle = self._wanted is None or self._wanted.number == self._looked
                if is_idle and not self._is_waiting():
                    # Interpretations leave circles behind, at which Python looks seldom: who waits can afford it.
                    if not self._wake.wait(_TIDY if self._is_untidy else None):
                        gc.collect()
                        self._is_untidy = False
                    continue
                rest = self._since + DEBOUNCE - time.monotonic() if not is_idle else 0.2
                if rest > 0:
                    self._wake.wait(rest)
                    if is_idle and not self._first_looks():
                        continue
                    if not is_idle:
                        continue
                assert self._wanted is not None
                self._looked = self._wanted.number
                self._is_untidy = True
                return self._wanted
            return None

    def _is_waiting(self) -> bool:
        return any(folder.first is not None for folder in self._folders.values())

    def _first_looks(self) -> bool:
        """Say how first looks in other processes go; true when one has ended."""
        is_ended = False
        for folder in self._folders.values():
            if folder.first is None:
                continue
            if folder.first.poll() is None:
                self._listener.first_look(folder.root, f"{time.monotonic() - self._started:.0f} s")
            else:
                folder.first = None
                # The results were read when the session began: what the process has found is there only now.
                folder.session.read_results()
                is_ended = True
        return is_ended

    def _is_newer(self) -> bool:
        """Something newer is wanted."""
        return self._is_over or (self._wanted is not None and self._wanted.number != self._looked)

    def _is_stale(self) -> bool:
        """Something newer is wanted, and this look has not lasted long."""
        return self._is_newer() and (self._is_over or time.monotonic() - self._started < _PATIENCE)

    def _rest(self) -> None:
        """Wait for a moment, unless something newer is wanted.

        Raises:
            Interrupted: something newer is wanted.
        """
        with self._wake:
            if self._wake.wait_for(self._is_newer, _REST):
                raise Interrupted

    def _take_notes(self) -> None:
        with self._wake:
            changed, others_exist = self._on_disk, self._others_exist
            self._on_disk, self._others_exist = [], False
        for folder in self._folders.values():
            if others_exist:
                folder.session.forget()
            for path in changed:
                folder.session.changed_on_disk(path)

    def _look(self, wanted: Wanted) -> None:
        self._take_notes()
        for root, texts in self._by_folder(wanted).items():
            folder = self._folder(root)
            began = time.monotonic()
            if not folder.is_whole and folder.first is None and not self._begin(folder):
                look = self._whole(folder, texts)
            elif not folder.is_whole and folder.first is not None:
                if not texts:
                    continue
                look = folder.session.glance(list(texts), texts, self._is_stale)
            else:
                look = self._whole(folder, texts)
            self._tell(folder, look, wanted, began)
            if not look.is_judged:
                # Who goes on typing is not to find the processor busy with what is void.
                self._rest()
                look = folder.session.look(texts, self._is_newer, is_quick=True)
                self._tell(folder, look, wanted, began)
            if not look.is_settled:
                # What imports the changed files, once these are told: what is open, and all others once they are saved.
                others = None if wanted.is_saved else texts.keys()
                look = folder.session.look(texts, self._is_newer, wanted=others)
                self._tell(folder, look, wanted, began)

    def _tell(self, folder: Folder, look: Look, wanted: Wanted, began: float) -> None:
        seconds = time.monotonic() - began
        log.info("looked at %s in %.3f s, %d findings", folder.root, seconds, len(look.result.findings))
        self._listener.looked(Outcome(look, wanted, folder.root, folder.session.settings, seconds, folder.problem))

    def _whole(self, folder: Folder, texts: Mapping[str, str]) -> Look:
        if not folder.is_whole:
            self._listener.first_look(folder.root, "reading")
        look = folder.session.look(texts, self._is_stale, is_quick=folder.is_whole, is_first=folder.is_whole)
        if not folder.is_whole:
            folder.is_whole = True
            folder.session.save()
            self._listener.first_look(folder.root, "")
        return look

    def _begin(self, folder: Folder) -> bool:
        """Have a large folder looked at by another process first; false where that is not worth it."""
        if folder.is_begun or folder.session.is_smaller_than(_SMALL) or not folder.session.settings.cache:
            return False
        folder.is_begun = True
        folder.first = warm.start(folder.root, self._raw)
        return folder.first is not None

    def _folder(self, root: str) -> Folder:
        folder = self._folders.get(root)
        if folder is None:
            settings, problem = self._wishes.settings(root)
            folder = self._folders[root] = Folder(root, Session(root, settings), problem)
        return folder

    def _by_folder(self, wanted: Wanted) -> dict[str, dict[str, str]]:
        """The texts by the folder that they belong to; the client's folders first, also those without a text."""
        found: dict[str, dict[str, str]] = {_shown(root): {} for root in self._roots}
        for path, text in wanted.documents.texts().items():
            absolute = os.path.abspath(path)
            within = [root for root in self._roots if absolute.startswith(root.rstrip("/") + "/")]
            root = max(within, key=len) if within else project_root(os.path.dirname(absolute))
            found.setdefault(_shown(root), {})[path] = text
        return found


def _shown(root: str) -> str:
    return "." if root == os.getcwd() else root
