# SPDX-License-Identifier: Apache-2.0
"""`rametctl backup`, `check` and `restore`, with the catalogue and the Spaces of a service."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Callable, Iterator

import httpx
import pytest

from conftest import Service
from test_spaces import frozen

RAMETCTL = os.environ.get("RAMETCTL", "build/orchestrator/operator/rametctl")

if os.geteuid() != 0:
    pytest.skip("gives files to another account", allow_module_level=True)


class Host:
    """The folders of a service, which does not run."""

    def __init__(self, home: Path) -> None:
        self.state, self.run = home / "state", home / "run"

    def rametctl(self, *words: object) -> "subprocess.CompletedProcess[str]":
        flags = [f"--state_dir={self.state}", f"--run_dir={self.run}", "--user=65534"]
        return subprocess.run(
            [RAMETCTL, *flags, *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        )

    def done(self, *words: object) -> str:
        done = self.rametctl(*words)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def fails(self, *words: object) -> str:
        done = self.rametctl(*words)
        assert done.returncode == 1, done.stdout
        return done.stdout

    def space(self, path: str) -> Path:
        return self.state / "spaces" / path[-36:]


class Online:
    """Sends a copy of the host's catalogue, as a service does that runs."""

    def __init__(self, host: Host, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.host, self.meanwhile = host, meanwhile
        self.copy = host.state.parent / "copy.db"
        backup = host.state.parent / "now"
        host.done("backup", backup)
        shutil.copy(backup / "catalogue.db", self.copy)
        shutil.rmtree(backup)

    def __enter__(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.host.run / "admin.sock"))
        self.listener.listen()
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()

    def _answer(self) -> None:
        request = b""
        while not request:  # rametctl connects once to find out whether a service runs
            client, _ = self.listener.accept()
            with client:
                while more := client.recv(4096):
                    request += more
                if request:
                    self.meanwhile()
                    with self.copy.open("rb") as copy:
                        socket.send_fds(client, [b"\0"], [copy.fileno()])
        assert request.startswith(b"backup\0")

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.listener.close()
        (self.host.run / "admin.sock").unlink()


@pytest.fixture
def spaces(start: Callable[..., Service]) -> Iterator[tuple[Host, Service, list[str]]]:
    """A stopped service with two Spaces."""
    service = start()
    with service.client() as http:
        paths = [frozen(http, metadata={"n": str(n)}) for n in range(2)]
    service.stop()
    host = Host(service.home / "service")
    for file in (host.state, *host.state.rglob("*")):
        os.chown(file, 65534, 65534)  # the service of the tests runs as root
    yield host, service, paths


def another(host: Host) -> Host:
    home = host.state.parent / "another"
    (home / "run").mkdir(parents=True)
    return Host(home)


def resumed(service: Service, path: str) -> httpx.Response:
    with service.client() as http:
        return http.post(path + "/resume")


def test_restored_spaces_can_be_resumed(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, service, paths = spaces
    backup = tmp_path / "backup"
    assert "of 2 spaces, 0 are damaged" in host.done("backup", backup)
    assert sorted(p.name for p in backup.iterdir()) == ["catalogue.db", "spaces"]
    assert (backup.stat().st_mode & 0o777, backup.stat().st_uid) == (0o700, 0)
    assert (backup / "catalogue.db").stat().st_mode & 0o777 == 0o600
    assert "of 2 spaces, 0 are damaged" in host.done("check", backup)

    shutil.move(host.state, host.state.parent / "lost")
    host.done("restore", backup)
    assert {p.stat().st_uid for p in [host.state, *host.state.rglob("*")]} == {65534}
    assert not (host.state / "restore.tmp").exists()
    service.start()
    with service.client() as http:
        assert sorted(s["metadata"]["n"] for s in http.get("/v1/spaces").json()) == ["0", "1"]
    for path in paths:
        assert resumed(service, path).status_code == 201
    service.stop()


def test_files_that_spaces_share_stay_shared(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, _, paths = spaces
    shared = host.space(paths[0]) / "memory"
    (host.space(paths[1]) / "memory").unlink()
    (host.space(paths[1]) / "memory").hardlink_to(shared)
    shared.chmod(0o444)
    host.done("backup", tmp_path / "backup")
    target = another(host)
    target.done("restore", tmp_path / "backup")
    files = [(target.space(path) / "memory").stat() for path in paths]
    assert files[0].st_ino == files[1].st_ino and files[0].st_mode & 0o777 == 0o444
    assert files[0].st_blocks == shared.stat().st_blocks  # also as sparse as it was


def damage(folder: Path) -> None:
    with (folder / "state").open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


def test_damage_is_named(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, service, paths = spaces
    assert "0 are damaged" in host.done("check")
    host.done("backup", tmp_path / "whole")
    damage(host.space(paths[0]))
    (host.space(paths[1]) / "manifest").unlink()
    for said in (host.fails("check"), host.fails("backup", tmp_path / "backup"), host.fails("check", tmp_path / "backup")):
        assert f"space {paths[0][-36:]}: damaged: the checksum of state differs" in said
        assert f"space {paths[1][-36:]}: damaged: open manifest: No such file" in said
        assert "the catalogue is whole; of 2 spaces, 2 are damaged" in said

    target = another(host)
    damage(tmp_path / "whole/spaces" / paths[0][-36:])
    said = target.fails("restore", tmp_path / "whole")
    assert "nothing was restored" in said and "--skip-damaged" in said
    assert list(target.state.iterdir()) == []
    assert "1 are damaged" in target.fails("restore", tmp_path / "whole", "--skip-damaged")
    assert "of 1 spaces, 0 are damaged" in target.done("check")
    assert target.space(paths[1]).exists() and not target.space(paths[0]).exists()


def test_damaged_catalogue_is_refused(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, _, _ = spaces
    backup = tmp_path / "backup"
    host.done("backup", backup)
    whole = (backup / "catalogue.db").read_bytes()
    target = another(host)
    for broken in (whole[: len(whole) // 2], whole[:4096] + bytes(8192) + whole[12288:]):
        (backup / "catalogue.db").write_bytes(broken)
        assert "it is damaged" in host.fails("check", backup)
        assert "it is damaged" in target.fails("restore", backup)
    (backup / "catalogue.db").unlink()
    assert "not completed" in target.fails("restore", backup)
    assert list(target.state.iterdir()) == []


def test_restore_overwrites_nothing(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, _, paths = spaces
    backup = tmp_path / "backup"
    host.done("backup", backup)
    assert "has a catalogue: move it away" in host.fails("restore", backup)
    for file in host.state.glob("catalogue.db*"):
        file.unlink()
    assert "move it away" in host.fails("restore", backup)
    assert host.space(paths[0]).exists()
    assert "must not exist yet" in host.fails("backup", backup)
    assert host.rametctl("backup").returncode == host.rametctl("restore").returncode == 2


def test_restore_needs_a_service_that_is_stopped(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, _, _ = spaces
    host.done("backup", tmp_path / "backup")
    target = another(host)
    (target.run / "journals").mkdir()
    (target.run / "journals/catalogue.db").touch()
    assert "rametd was killed" in target.fails("restore", tmp_path / "backup")
    assert "the service was killed" in target.fails("backup", tmp_path / "no")
    assert not (tmp_path / "no").exists()
    (target.run / "journals/catalogue.db").unlink()
    with (target.run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "rametd runs: stop it first" in target.fails("restore", tmp_path / "backup")
    target.done("restore", tmp_path / "backup")


def test_space_that_is_resumed_meanwhile_is_left_out(spaces: tuple[Host, Service, list[str]], tmp_path: Path) -> None:
    host, _, paths = spaces

    def resume() -> None:
        shutil.rmtree(host.space(paths[0]), ignore_errors=True)

    online = Online(host, resume)
    with online:
        said = host.done("backup", tmp_path / "backup")
    assert f"space {paths[0][-36:]}: was resumed or deleted meanwhile" in said
    assert "of 1 spaces, 0 are damaged" in said
    assert "of 1 spaces, 0 are damaged" in host.done("check", tmp_path / "backup")
    with online:
        assert "of 1 spaces, 0 are damaged" in host.done("check")
