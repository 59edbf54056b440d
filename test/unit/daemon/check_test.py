# SPDX-License-Identifier: Apache-2.0
"""Tests `rametd --check`: what files show of a start that would fail. The arguments are the paths of rametd
and rametctl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RAMETD, RAMETCTL = sys.argv.pop(1), sys.argv.pop(1)
ACCOUNT = 64123  # of the service
STRANGER = 64124
VALID = "The settings are valid.\n"
# A process that has changed its user cannot look for leaks.
ENV = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}


def run(*words: object, user: int | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, env=ENV, user=user, group=user)


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-out", cert, "-keyout", key).check_returncode()  # fmt: skip
    key.chmod(0o640)
    os.chown(key, 0, ACCOUNT)
    return cert, key


@unittest.skipIf(os.geteuid() != 0, "only root can become the account of the service")
class Check(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.home.chmod(0o755)
        self.guest = {name: self.home / name for name in ("vmm", "kernel", "initramfs", "rootfs")}
        for path in self.guest.values():
            path.touch()
        self.settings = {
            **self.guest,
            **{"user": ACCOUNT, "state_dir": self.home / "state", "run_dir": self.home / "run", "ui_dir": ""},
        }

    def flags(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self.settings.items()]

    def check(self, program: object = RAMETD, user: int | None = None) -> tuple[int, str, list[str]]:
        """Returns exit status, output, and the lines of errors without warnings of this host."""
        done = run(program, "--check", *self.flags(), user=user)
        lines = done.stderr.splitlines()
        shown = [line for line in lines if "not checked" in line or not line.startswith("warning: ")]
        return done.returncode, done.stdout, shown

    def assert_valid(self) -> None:
        self.assertEqual(self.check(), (0, VALID, []))

    def assert_refused(self, what: str) -> None:
        status, out, lines = self.check()
        self.assertEqual((status, out, len(lines)), (1, "", 1), lines)
        self.assertIn(what, lines[0])

    def make_key(self) -> None:
        done = run(RAMETCTL, *self.flags(), "key", "create", "--tier=pro", "--name=first")
        self.assertEqual(done.returncode, 0, done.stderr)

    def open_to_others(self) -> None:
        cert, key = certificate(self.home, "one")
        self.settings.update(listen_host="0.0.0.0", tls_cert=cert, tls_key=key)

    def test_nothing_is_made(self) -> None:
        self.assert_valid()
        self.assertEqual({path.name for path in self.home.iterdir()}, set(self.guest))

    def test_key_of_another_certificate(self) -> None:
        self.open_to_others()
        self.make_key()
        self.assert_valid()
        self.settings["tls_key"] = certificate(self.home, "other")[1]
        self.assert_refused("key values mismatch")
        self.settings["tls_key"] = self.settings["tls_cert"]
        self.assert_refused(f"read the key in tls_key {self.settings['tls_cert']}")
        self.settings["tls_cert"] = self.guest["kernel"]
        self.assert_refused("read the certificates in tls_cert")

    def test_key_that_the_account_cannot_read(self) -> None:
        self.open_to_others()
        self.make_key()
        os.chown(self.settings["tls_key"], 0, 0)
        self.assert_refused(f"tls_key {self.settings['tls_key']}, which the account {ACCOUNT} must be able to read")

    def test_listener_for_others_needs_a_key(self) -> None:
        self.open_to_others()
        self.assert_refused("listen_host 0.0.0.0 can be reached from other machines, and there is no key")
        self.settings["allow_open"] = "yes"
        self.assert_valid()
        self.settings["allow_open"] = "no"
        self.make_key()
        before = {path: path.read_bytes() for path in (self.home / "state").iterdir() if path.is_file()}
        self.assert_valid()
        self.assertEqual({path: path.read_bytes() for path in before}, before)
        self.settings.update(tls_cert="", tls_key="")
        self.assert_refused("keys would travel unprotected")

    def test_keys_are_those_of_the_service_that_runs(self) -> None:
        """The live copy is newer than the file."""
        self.open_to_others()
        run(RAMETCTL, *self.flags(), "key", "list").check_returncode()  # makes the catalogue
        self.assert_refused("there is no key")
        journals = self.home / "run/journals"
        os.makedirs(journals)
        shutil.copytree(self.home / "state", self.home / "without")
        self.make_key()
        for source, valid in ((self.home / "state", True), (self.home / "without", False)):
            for path in source.glob("catalogue.db*"):
                os.chown(shutil.copy(path, journals), ACCOUNT, ACCOUNT)
            if valid:
                self.assert_valid()
            else:
                self.assert_refused("there is no key")

    def test_log_of_the_catalogue_is_not_made(self) -> None:
        self.open_to_others()
        self.settings["state_dir"] = self.home / "of 100%41?#"
        self.make_key()
        (self.settings["state_dir"] / "catalogue.db-wal").unlink()  # a backup has none
        before = sorted(self.home.rglob("*"))
        self.assert_valid()  # sees the key
        self.assertEqual(sorted(self.home.rglob("*")), before)

    def test_catalogue_that_cannot_be_used(self) -> None:
        self.make_key()
        self.assert_valid()
        path = self.home / "state/catalogue.db"
        whole = path.read_bytes()
        path.write_bytes(whole[:8192] + os.urandom(8192) + whole[16384:])
        self.assert_refused(f"catalogue {path}: it is damaged")
        path.write_bytes(whole)
        os.truncate(self.home / "state/catalogue.db-wal", 0)
        path.write_bytes(whole[:60] + (999).to_bytes(4, "big") + whole[64:])  # user_version
        self.assert_refused("its schema has version 999")

    def test_missing_file_of_the_guest(self) -> None:
        self.guest["rootfs"].unlink()
        self.assert_refused(f"open the rootfs {self.guest['rootfs']}: No such file")

    def test_account_and_folders_of_others(self) -> None:
        (self.home / "state").mkdir(mode=0o700)
        self.assert_valid()  # an empty one is given to the account
        os.chown(self.home / "state", STRANGER, STRANGER)
        self.assert_refused(f"state_dir: {self.home}/state belongs to uid {STRANGER}, expected uid {ACCOUNT}")
        os.chown(self.home / "state", ACCOUNT, ACCOUNT)
        (self.home / "run").mkdir()
        os.chown(self.home / "run", STRANGER, STRANGER)
        self.assert_refused(f"run_dir: {self.home}/run must belong to root")
        os.chown(self.home / "run", 0, 0)
        self.home.chmod(0o750)
        what = f"the account {ACCOUNT} must be able to search the folders above"
        self.assert_refused(f"state_dir {self.home}/state: {what}")
        self.home.chmod(0o755)
        self.settings["user"] = "no-such-account"
        self.assert_refused("there is no account no-such-account")
        self.settings["user"] = 300000
        self.assert_refused("uid 300000, which is reserved for VM processes")

    def test_other_account_says_what_it_could_not_read(self) -> None:
        self.open_to_others()
        program = shutil.copy(RAMETD, self.home)  # its own folder may be private
        (self.home / "state").mkdir(mode=0o700)
        status, out, lines = self.check(program, STRANGER)
        self.assertEqual(status, 0, lines)
        self.assertIn("valid as far as this account can see. As root, this command checks all", out)
        self.assertEqual(len(lines), 3)
        for line, what in zip(lines, ("state_dir", "tls_key", "catalogue")):
            self.assertIn(f"warning: not checked, as uid {STRANGER} cannot read it: ", line)
            self.assertIn(what, line)

    def test_fleet_that_cannot_be_joined(self) -> None:
        fleet, tables = self.home / "fleet", self.home / "tables"
        run(RAMETCTL, "fleet", "init", self.home / "ca", 3, "https://10.0.0.1:2379").check_returncode()
        token = run(RAMETCTL, "fleet", "ca", self.home / "ca", "host", 17, "h17", "10.0.0.17:7443").stdout
        (self.home / "token").write_text(token)
        run(RAMETCTL, "fleet", "join", self.home / "token", fleet).check_returncode()
        for path in fleet.iterdir():
            os.chown(path, 0, ACCOUNT)
            path.chmod(0o640)
        tables.mkdir()
        self.settings.update(
            **{"fleet_dir": tables, "fleet_listen": "10.0.0.17:7443", "fleet_id_key": fleet / "id.key"},
            **{"fleet_ca": fleet / "ca.pem", "fleet_cert": fleet / "cert.pem", "fleet_key": fleet / "key.pem"},
        )
        self.assert_refused(f"there is no {tables}/hosts.json: `systemctl enable --now ramet-fleet`")
        host = '{"host": 17, "name": "%s", "address": "10.0.0.17:7443"}'
        table = '{"format": 1, "fleet": "f", "cell": 3, "self": 17, "hosts": [' + host + "]}"
        (tables / "hosts.json").write_text(table % "h17")
        self.assert_valid()
        (tables / "hosts.json").write_text(table % "h18")
        self.assert_refused('fleet_cert is the certificate of "h17", and the table says that this host is h18')
        self.settings["fleet_key"] = fleet / "etcd-key.pem"
        self.assert_refused("key values mismatch")
        (fleet / "id.key").write_text("short\n")
        self.assert_refused(f"fleet_id_key {fleet}/id.key: ")


if __name__ == "__main__":
    unittest.main()
