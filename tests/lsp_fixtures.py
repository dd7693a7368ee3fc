"""Servers and projects for the tests of `tests/server`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lsp_client import Client, make_project, uri_of


@pytest.fixture
def project(shared: Client) -> Path:
    return shared.folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A project that a test may change on disk, or start a server of its own on."""
    return make_project(tmp_path / "project")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    found = Client(make_project(tmp_path_factory.mktemp("module") / "project"))
    found.begin()
    yield found
    found.kill()


@pytest.fixture
def client(shared: Client) -> Iterator[Client]:
    """A server on the project, greeted; one for all tests of a module, as it starts in a second."""
    shared.since = len(shared.messages)
    yield shared
    shared.close_all()
    # Lenses come when what was asked for before has been looked at and told.
    shared.answer(shared.ask("textDocument/codeLens", {"textDocument": {"uri": uri_of(shared.folder / "run.sh")}}))


@pytest.fixture
def start() -> Iterator[Callable[..., Client]]:
    """Starts servers, and ends them."""
    started: list[Client] = []

    def begin(folder: Path, *arguments: str, begins_in: Path | None = None) -> Client:
        started.append(Client(folder, arguments, begins_in))
        return started[-1]

    yield begin
    for client in started:
        client.kill()
