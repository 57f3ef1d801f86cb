"""Where a store is, and that no password of its address is ever printed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.store import address, sqlite
from qualgate.store.database import check_store, open_store, upgrade


@pytest.mark.parametrize(
    ("url", "placed", "artifacts"),
    [
        ("sqlite:///q.db", "sqlite:////gate/q.db", "/gate/q.db.artifacts"),
        ("sqlite:///../q.db", "sqlite:////q.db", "/q.db.artifacts"),
        ("sqlite:////var/q.db", "sqlite:////var/q.db", "/var/q.db.artifacts"),
        ("postgresql://me@h/db", "postgresql://me@h/db", "/gate/qualgate.artifacts"),
        ("postgresql+psycopg://h:5432/db?sslmode=require", None, "/gate/qualgate.artifacts"),
        ("postgresql://me@/db?host=/run/postgresql", None, "/gate/qualgate.artifacts"),
        ("postgresql://[::1]:5433/db", None, "/gate/qualgate.artifacts"),
    ],
)
def test_a_file_is_placed_beside_the_gate_file_and_so_are_a_database_s_artifacts(url, placed, artifacts):
    found = address.placed(url, Path("/gate"))
    assert found == (placed or url)
    assert address.artifacts_folder(found, Path("/gate")) == Path(artifacts)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql+psycopg://me:hunter2@host:5432/db?sslmode=require",
        "postgresql://host/db?password=hunter2",
        "postgresql://host/db?sslpassword=hunter2",
        "postgres://me:hunter2@host/db",
        "postgresql+asyncpg://me:hunter2@host/db",
        "postgresql:/me:hunter2@host/db",
        "POSTGRESQL://me:hunter2@host/db",
        "mysql://me:hunter2@host/db",
        "me:hunter2@host/db",
        "http://host/db?password=hunter2",
    ],
)
@pytest.mark.parametrize("asked", [open_store, check_store, upgrade])
def test_a_password_in_an_address_is_refused_and_not_repeated(url, asked):
    with pytest.raises(UsageError) as refused:
        asked(url)
    assert "hunter2" not in str(refused.value)


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """What this machine is told to have mounted, beside its own disk."""

    def mounted(*lines: str) -> Path:
        file = tmp_path / "mounts"
        file.write_text("".join(f"{line} 0 0\n" for line in ("/dev/vda / ext4 rw", *lines)))
        monkeypatch.setattr(sqlite.file_system, "__defaults__", (file,))
        return file

    return mounted


def test_sqlite_on_a_network_s_file_system_is_refused_with_the_reason(tmp_path, mounts):
    far, local, link = tmp_path / "far away", tmp_path / "far away" / "local", tmp_path / "link.db"
    local.mkdir(parents=True)
    link.symlink_to(far / "q.db")
    place = str(far).replace(" ", "\\040")
    file = mounts(f"server:/x {place} nfs4 rw,vers=4.2", f"/dev/vdb {place}/local xfs rw")
    for path, kind in ((tmp_path / "q.db", "ext4"), (far / "q.db", "nfs4"), (local / "q.db", "xfs")):
        assert sqlite.file_system(path, file) == kind
    assert sqlite.file_system(far / "q.db", tmp_path / "none") == ""
    open_store(f"sqlite:///{local / 'q.db'}").close()
    with pytest.raises(UsageError, match=r"network file system \(nfs4\).*postgresql://"):
        open_store(f"sqlite:///{far / 'q.db'}")
    with pytest.raises(UsageError, match=rf"{far} is on a network file system \(nfs4\)"):
        open_store(f"sqlite:///{link}")
    assert not (far / "q.db").exists()


@pytest.mark.parametrize(
    ("kind", "how", "is_refused"),
    [
        ("9p", "rw,trans=virtio,version=9p2000.L", True),  # QEMU
        ("9p", "rw,aname=drvfs;path=C:\\134;symlinkroot=/mnt/,cache=5,trans=fd,rfd=3,wfd=3", True),  # WSL 2
        ("9p", "rw,trans=fd,rfdno=4,wfdno=4,aname=/", False),  # gVisor
        ("vboxsf", "rw", True),
        ("wekafs", "rw", True),
        ("virtiofs", "rw", False),
    ],
)
def test_folders_that_two_kernels_share_are_refused_and_disks_of_one_are_not(tmp_path, mounts, kind, how, is_refused):
    mounts(f"shared {tmp_path} {kind} {how}")
    refused = pytest.raises(UsageError, match=rf"network file system \({kind}\)") if is_refused else nullcontext()
    with refused:
        open_store(f"sqlite:///{tmp_path / 'q.db'}").close()


def test_an_sqlite_that_is_too_old_is_refused_before_a_file_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite.sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite.sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(UsageError, match=r"SQLite 3\.34\.1, but 3\.35 or newer is needed.*postgresql://"):
        open_store(f"sqlite:///{tmp_path / 'q.db'}")
    assert not list(tmp_path.iterdir())
