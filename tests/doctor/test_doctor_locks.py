"""D1 and its repair: when a lock is stale, in use, or cannot be judged."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_machine import NOW, FakeMachine, lock_in, only

from dslint.doctor.checks import d01_stale_extension_lock as d01
from dslint.doctor.locks import Verdict, judge, remove
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import StaleLock

OTHER = os.getuid() + 4242


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def verdict(fake: FakeMachine, lock: Path, uid: int | None = None) -> Verdict:
    machine = fake.machine(uid=uid) if uid is not None else fake.machine()
    return judge(machine, lock).verdict


def test_no_lock_is_fine(fake: FakeMachine) -> None:
    fake.build()
    assert only(d01.check(fake.machine()), "ok").found.startswith("no lock in ")


def test_a_lock_that_nobody_holds_is_stale_and_named(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    outcome = only(d01.check(fake.machine()), "error")
    assert outcome.found == f"{lock} (1 h old) is stale"
    assert "never built" in outcome.reason
    assert outcome.repair == "dslint doctor --fix"
    assert outcome.lock is not None
    assert outcome.lock.path == lock


def test_a_complete_library_beside_it_changes_nothing(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    (lock.parent / "fused_adam.so").write_bytes(b"\x7fELF")
    assert "never built" not in only(d01.check(fake.machine()), "error").reason


def test_a_lock_that_a_process_holds_open_is_in_use(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.process(77, "python", files=("/dev/null", lock))
    outcome = only(d01.check(fake.machine()), "ok")
    assert "is in use" in outcome.found
    assert "process 77 (python)" in outcome.reason


def test_another_file_of_the_same_name_is_not_the_lock(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.process(77, "python", files=(lock_in(fake.build("cpu_adam")),))
    assert verdict(fake, lock) is Verdict.STALE


@pytest.mark.parametrize("name", ["ninja", "cc1plus", "nvcc", "c++", "cicc", "ptxas", "ld", "hipcc"])
def test_a_compiler_that_works_there_keeps_the_lock(fake: FakeMachine, name: str) -> None:
    lock = lock_in(fake.build())
    fake.process(78, name, cwd=lock.parent)
    assert verdict(fake, lock) is Verdict.IN_USE


def test_a_shell_that_stands_there_does_not(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.process(78, "bash", cwd=lock.parent)
    fake.process(os.getpid(), "dslint", cwd=lock.parent)
    assert verdict(fake, lock) is Verdict.STALE


def test_a_compiler_elsewhere_does_not(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.process(78, "nvcc", cwd=fake.build("cpu_adam"))
    assert verdict(fake, lock) is Verdict.STALE


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "9p", "virtiofs", "cifs", "fuse.sshfs", "fuse.something", "gpfs"])
def test_where_other_machines_reach_nothing_is_proven(fake: FakeMachine, kind: str) -> None:
    lock = lock_in(fake.build())
    fake.mount(kind)
    outcome = only(d01.check(fake.machine()), "unknown")
    assert kind in outcome.reason
    assert outcome.lock is None
    # Somebody who is seen settles it all the same.
    fake.process(77, "python", files=(lock,))
    assert verdict(fake, lock) is Verdict.IN_USE


def test_without_a_mount_table_nothing_is_proven(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.proc("mounts", "")
    assert verdict(fake, lock) is Verdict.UNKNOWN


def test_a_folder_that_this_machine_exports_is_not_proven(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.process(33, "nfsd", uid=0, parent=2)
    assert verdict(fake, lock) is Verdict.UNKNOWN  # and nothing says what is exported
    table = fake.system / "var/lib/nfs/etab"
    table.parent.mkdir(parents=True)
    table.write_text(f"{fake.folder}\t10.0.0.0/8(rw,sync)\n")
    assert verdict(fake, lock) is Verdict.UNKNOWN
    table.write_text("/srv/data\t10.0.0.0/8(rw,sync)\n")
    assert verdict(fake, lock) is Verdict.STALE


def test_a_root_that_cannot_be_read_is_said(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.build()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be read" in only(d01.check(fake.machine()), "unknown").found


def test_in_a_container_only_its_own_layer_is_proven(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    fake.namespace("pid:[4026532177]")
    judgement = judge(fake.machine(), lock)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "container" in judgement.why
    fake.proc("mounts", "overlay / overlay rw 0 0\n")
    assert verdict(fake, lock) is Verdict.STALE


def test_a_lock_of_another_user_is_left_to_that_user(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    assert verdict(fake, lock, uid=OTHER) is Verdict.UNKNOWN
    # Set back it is not older: the change of the inode tells.
    os.utime(lock, (NOW - 2 * 86400, NOW - 2 * 86400))
    now = time.time()
    fake.proc("stat", f"btime {int(now) - 3600}\n")
    assert verdict(fake, lock, uid=OTHER) is Verdict.UNKNOWN
    # Made before the machine was started: nobody can have it open.
    os.utime(lock, (now, now))
    fake.proc("stat", f"btime {int(now) + 3600}\n")
    assert verdict(fake, lock, uid=OTHER) is Verdict.STALE
    # A container may show a start of its own.
    fake.namespace("pid:[4026532177]")
    fake.proc("mounts", "overlay / overlay rw 0 0\n")
    assert verdict(fake, lock, uid=OTHER) is Verdict.UNKNOWN


def test_a_process_that_hides_its_files_could_hold_it(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = lock_in(fake.build())
    hidden = fake.process(79, "python") / "fd"
    real = os.listdir

    def listdir(path: str | Path = ".") -> list[str]:
        if Path(path) == hidden:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    judgement = judge(fake.machine(), lock)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "process 79 (python)" in judgement.why
    # Programs that always hide them and never build do not count, nor do those of other users.
    fake.process(79, "(sd-pam)")
    assert verdict(fake, lock) is Verdict.STALE
    fake.process(79, "python", uid=OTHER)
    assert verdict(fake, lock) is Verdict.STALE


def test_a_young_lock_is_not_judged_yet(fake: FakeMachine) -> None:
    lock = lock_in(fake.build(), age=2)
    judgement = judge(fake.machine(), lock)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "2 s old" in judgement.why


def test_what_is_not_torchs_lock_is_not_judged(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    lock.write_text("pid 1")
    os.utime(lock, (NOW - 3600, NOW - 3600))
    assert verdict(fake, lock) is Verdict.UNKNOWN
    lock.unlink()
    lock.symlink_to("/dev/null")
    assert verdict(fake, lock) is Verdict.UNKNOWN
    lock.unlink()
    lock.mkdir()
    assert verdict(fake, lock) is Verdict.UNKNOWN


def test_without_processes_in_proc_nothing_is_proven(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    machine = fake.machine()
    for entry in ("status", "cmdline"):
        (fake.system / "proc/1" / entry).unlink()
    assert judge(machine, lock).verdict is Verdict.UNKNOWN


def test_a_stated_root_and_the_default_one_are_both_looked_at(fake: FakeMachine) -> None:
    stated = fake.folder / "stated"
    fake.environ["TORCH_EXTENSIONS_DIR"] = str(stated)
    first = lock_in(fake.build(tag=None, root=stated))
    (first.parent / "build.ninja").touch()
    second = lock_in(fake.build())
    found = [outcome.lock.path for outcome in d01.check(fake.machine()) if outcome.lock]
    assert found == [first, second]


def test_xdg_cache_home_moves_the_default_root(fake: FakeMachine) -> None:
    fake.environ["XDG_CACHE_HOME"] = str(fake.folder / "xdg")
    lock = lock_in(fake.build(root=fake.folder / "xdg/torch_extensions"))
    assert str(lock) in only(d01.check(fake.machine()), "error").found


def test_a_lock_in_a_stated_folder_without_traces_of_torch_is_not_removed(fake: FakeMachine) -> None:
    stated = fake.folder / "tmp"
    fake.environ["TORCH_EXTENSIONS_DIR"] = str(stated)
    lock_in(fake.build("somebodys_own", tag=None, root=stated))
    assert only(d01.check(fake.machine()), "unknown").lock is None


def stale(machine: Machine, lock: Path) -> StaleLock:
    found = judge(machine, lock).lock
    assert found is not None
    return found


def test_removal_takes_this_file_and_nothing_else(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    other = lock.parent / "fused_adam.o"
    other.touch()
    machine = fake.machine()
    assert remove(machine, stale(machine, lock)) == ""
    assert not lock.exists()
    assert other.exists()


def test_removal_looks_again(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    machine = fake.machine()
    proven = stale(machine, lock)
    fake.process(80, "python", files=(lock,))
    assert "process 80 (python)" in remove(machine, proven)
    assert lock.exists()


def test_removal_spares_a_new_lock_of_the_same_name(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    machine = fake.machine()
    proven = stale(machine, lock)
    lock.unlink()
    lock_in(lock.parent, age=60)  # the inode number may well be the same
    assert remove(machine, proven) == "it is another file now: a new build has begun"
    assert lock.exists()


def test_removal_of_a_lock_that_is_gone_is_no_fault(fake: FakeMachine) -> None:
    lock = lock_in(fake.build())
    machine = fake.machine()
    proven = stale(machine, lock)
    lock.unlink()
    assert remove(machine, proven) == ""
