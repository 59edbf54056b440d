# SPDX-License-Identifier: Apache-2.0
"""The parts of the command line that need neither a service nor its packages."""

from __future__ import annotations

import base64
import io
import json
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from ramet import (
    Client,
    ConnectionFailed,
    Event,
    Frozen,
    NotFound,
    Process,
    RametError,
    Result,
    Sandbox,
    SandboxInfo,
    ServerError,
    Unavailable,
)
from ramet._transport import DEFAULT_HOST
from ramet.cli import (
    checkpoints,
    complete,
    copying,
    doctor,
    failure,
    forks,
    forwarding,
    listing,
    logs,
    output,
    parse,
    programs,
    remove,
    repl,
    service,
    settings,
)

IDS = ["sbx_" + digits.ljust(32, "0") for digits in ("aa1", "aa2", "b")]
CHK = "chk_" + "d" * 32
SPC = "spc_" + "1" * 32
CHECKPOINT: dict[str, Any] = {
    "id": CHK, "state": "stored", "name": "a\x1b[2J", "labels": {"step": "7"}, "score": None,
    "root": IDS[0], "depth": 0, "pin": True, "sandbox": IDS[0], "parent": None, "created_at": "2026-01-31T23:59:59.123Z",
    "expires_at": None, "template": "default", "vcpus": 2, "ram_mib": 1024, "rootfs_gb": 4,
    "egress": True, "bytes": 4096, "bytes_shared": 0, "metadata": {}, "call": None, "undone": False,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the settings of this machine out of the tests."""
    for name in ("RAMET_HOST", "RAMET_API_KEY", "RAMET_CA_FILE", "RAMET_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def sandbox(name: str, parent: str | None = None) -> SandboxInfo:
    return SandboxInfo.from_json(
        {
            "id": name,
            "state": "ready",
            "parent": parent,
            "template": "default",
            "vcpus": 2,
            "ram_mib": 1024,
            "created_at": "2026-01-31T23:59:59.123Z",
            "expires_at": None,
        }
    )
_AT = {"time": "2026-01-31T23:59:59.123Z", "checkpoint": None, "undone": False}
HISTORY: list[dict[str, Any]] = [
    {**_AT, "n": 1, "kind": "created", "source": None},
    {**_AT, "n": 2, "kind": "call", "code": "a\x1b", "result": "ok", "seq": 1, "seconds": 1.25, "checkpoint": CHK, "undone": True},
    {**_AT, "n": 3, "kind": "fork", "n_children": 2, "children": [IDS[1]]},
]


class Service:
    """Fake answers; `log` has the requests."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.added = ["/b"]
        self.added_b64: list[str] = []
        self.merged: dict[str, Any] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.log.append(f"{request.method} {path}")
        if request.method == "DELETE":
            gone = path.endswith(IDS[2])
            return httpx.Response(404, json={"error": "no", "code": "not_found"}) if gone else (
                httpx.Response(204)
            )
        if path.endswith("/files/stat"):
            numbers = dict.fromkeys(("uid", "gid", "size", "mtime"), 0)
            return httpx.Response(200, json={"name": "x", "type": "file", "mode": "0644", **numbers})
        if "/diff/" in path:
            found: dict[str, Any] = {"added": self.added, "removed": ["/c"], "modified": ["/a"]}
            if self.added_b64:
                found["added_b64"] = self.added_b64
            return httpx.Response(200, json=found)
        if path.endswith("/merge-files"):
            return httpx.Response(200, json=self.merged)
        if path == "/v1/sandboxes":
            return httpx.Response(200, json=[{"id": one, "state": "ready"} for one in IDS])
        if path.endswith("/fork"):
            failed = {"error": {"code": "vm_failed", "message": "no memory"}}
            return httpx.Response(200, json={"children": [{"id": IDS[0]}, failed], "ready_us": 1})
        if path.endswith("/history"):
            return httpx.Response(200, json=HISTORY)
        if path.endswith("/undo"):
            return httpx.Response(200, json={"id": IDS[0], "checkpoint": CHK, "kept": None})
        if path.endswith("/prune"):
            return httpx.Response(200, json={"checkpoints": [CHK], "bytes": 7})
        if "/checkpoints" in path:
            listed = [CHECKPOINT] if path == "/v1/checkpoints" else CHECKPOINT
            return httpx.Response(200, json=listed)
        parent = IDS[0] if path.endswith(IDS[1]) else None
        return httpx.Response(200, json={"id": path[-36:], "state": "ready", "parent": parent})


@pytest.fixture
def fake() -> Service:
    return Service()


@pytest.fixture
def client(fake: Service) -> Client:
    return Client(transport=httpx.MockTransport(fake), retry_seconds=0)


def test_saved_settings_are_private_and_used(home: Path) -> None:
    assert settings.load() == settings.Settings(
        DEFAULT_HOST, None, None, "the default", ""
    )
    at = settings.save("https://one/", "rmt_1", "/ca.pem")
    assert at == home / "ramet" / "config.json"
    assert stat.S_IMODE(at.stat().st_mode) == 0o600
    assert settings.load() == settings.Settings(
        "https://one", "rmt_1", "/ca.pem", str(at), str(at)
    )
    assert [one.name for one in at.parent.iterdir()] == ["config.json"]


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.save("https://one", "rmt_1", None)
    monkeypatch.setenv("RAMET_API_KEY", "rmt_2")
    assert settings.load().api_key == "rmt_2" and settings.load().key_from == "RAMET_API_KEY"
    assert settings.load().host == "https://one"


def test_a_saved_key_is_not_sent_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.save("https://one", "rmt_1", "/ca.pem")
    monkeypatch.setenv("RAMET_HOST", "https://two")
    found = settings.load()
    assert (found.host, found.api_key, found.ca_file) == ("https://two", None, None)
    monkeypatch.setenv("RAMET_HOST", "https://one/")
    assert settings.load().api_key == "rmt_1"


def test_a_key_that_others_can_read_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    at = settings.save("https://one", "rmt_1", None)
    settings.load()
    assert capsys.readouterr().err == ""
    at.chmod(0o644)
    settings.load()
    assert f"chmod 600 {at}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"host":'])
def test_broken_settings_name_the_file_and_a_remedy(home: Path, text: str) -> None:
    at = settings.save("https://one", None, None)
    at.write_text(text)
    with pytest.raises(failure.Failure, match=str(at)) as failed:
        settings.load()
    assert "ramet login" in failed.value.remedy


@pytest.mark.parametrize("name", ["aa1", "sbx_aa1", IDS[0], "aa10"])
def test_ids_may_be_abbreviated(client: Client, name: str) -> None:
    assert service.sandbox_id(client, name) == IDS[0]


def test_a_full_id_costs_no_request(client: Client, fake: Service) -> None:
    assert service.sandbox_id(client, "sbx_" + "9" * 32) == "sbx_" + "9" * 32
    assert fake.log == []


@pytest.mark.parametrize(
    "name, message",
    [("aa", f"aa is ambiguous: {IDS[0]}, {IDS[1]}"), ("c", "no sandbox c"), ("nope", "not the id"),
     ("", "not the id"), ("sbx_", "not the id"), (SPC, "the id of a Space, not of a sandbox")],
)
def test_other_ids_are_refused(client: Client, name: str, message: str) -> None:
    with pytest.raises(failure.Failure, match=message) as failed:
        service.sandbox_id(client, name)
    assert failed.value.remedy


def test_limit_of_a_tree_that_is_none_is_refused() -> None:
    assert parse.budget(["live=3", "at_limit=wait"]) == {"live": 3, "at_limit": "wait"}
    with pytest.raises(click.BadParameter, match="'ram' is none of live, ram_mib"):
        parse.budget(["live=3", "ram=3"])


def test_rm_removes_what_it_can(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remove.run(client, ["b", "aa1", "ff", SPC]) == failure.FAILED
    assert fake.log[-1] == f"DELETE /v1/spaces/{SPC}"
    shown = capsys.readouterr()
    assert shown.out.split() == [IDS[0], SPC]
    assert "ramet: no\n" in shown.err and "there is no sandbox ff" in shown.err
    assert remove.run(client, ["b", "ff"], force=True) == 0
    assert remove.run(client, ["aa"], force=True) == failure.FAILED


def test_checkpoint_takes_one_or_changes_one(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    def keep(what: str, **more: Any) -> None:
        checkpoints.keep(client, what, name="x", labels=None, ttl=None, pin=None, **more)

    keep(IDS[0])
    assert fake.log[-1] == f"POST /v1/sandboxes/{IDS[0]}/checkpoints"
    assert capsys.readouterr().out == CHK + "\n"
    keep("chk_d", as_json=True)
    assert fake.log[-2:] == ["GET /v1/checkpoints", f"PATCH /v1/checkpoints/{CHK}"]
    assert json.loads(capsys.readouterr().out)["bytes"] == 4096


def test_checkpoints_are_shown_and_pruned(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints.show(client, None, name=None, labels=None)
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[:4] == [CHK[:16], "stored", IDS[0][:16], "4.0"]
    assert row.split()[-3:] == ["pinned", "a\\u001b[2J", "step=7"]
    listing.one_checkpoint(client.get_checkpoint(CHK))
    shown = capsys.readouterr().out
    assert "\nname: a\\u001b[2J\n" in shown and "\nexpires: never, it is pinned\n" in shown
    assert "\non disk: 4.0 KiB, shared " in shown and "\nlabel step: 7\n" in shown
    checkpoints.prune(client, IDS[0], keep=1, older_than=None, dry_run=False)
    assert capsys.readouterr().out == CHK + "\n"
    assert remove.run(client, [CHK]) == 0
    assert fake.log[-1] == f"DELETE /v1/checkpoints/{CHK}"


def test_history_is_shown(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    listing.history(client.get_history(IDS[0]))
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["N", "AGE", "KIND", "RESULT", "TIME", "CHECKPOINT", "UNDONE", "WHAT"]
    shown = [row.split(maxsplit=2)[2].split() for row in rows]  # without N and AGE
    assert shown == [
        ["created", "-", "-", "-", "-", "-"],
        ["call", "ok", "1.250", "s", CHK[:16], "undone", "a\\u001b"],
        ["fork", *"-----"[:4], "2", "made,", "of", "which", "live:", IDS[1][:16]],
    ]
    listing.history(client.get_history(IDS[0]), as_json=True)
    assert json.loads(capsys.readouterr().out) == HISTORY


@pytest.mark.parametrize("source, path", [(CHK, "checkpoints"), (SPC, "spaces")])
def test_a_fork_of_what_is_kept_names_those_that_failed(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str], source: str, path: str
) -> None:
    assert forks.fork(client, source, 2, reseed=False) == failure.FAILED
    assert fake.log[-1] == f"POST /v1/{path}/{source}/fork"
    shown = capsys.readouterr()
    assert shown.out == IDS[0] + "\n" and "no memory" in shown.err


def test_diff_compares_a_fork_with_its_parent(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    forks.diff(client, IDS[1], None, None)
    assert fake.log[-1] == f"POST /v1/sandboxes/{IDS[0]}/diff/{IDS[1]}"
    assert capsys.readouterr().out == "C /a\nA /b\nD /c\n"
    forks.diff(client, IDS[1], IDS[2], ["/x"], as_json=True)
    assert fake.log[-1] == f"POST /v1/sandboxes/{IDS[1]}/diff/{IDS[2]}"
    assert json.loads(capsys.readouterr().out)["removed"] == ["/c"]
    with pytest.raises(failure.Failure, match="is not a fork"):
        forks.diff(client, IDS[2], None, None)


def test_merge_of_files_says_what_became_of_each(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.merged = {
        "applied": True,
        "taken": [
            {"path": "/b\x1b[2J", "branches": [], "change": "merged"},
            {"path": "/a", "branches": [], "change": "removed"},
        ],
        "conflicts": [{"path": "/c", "branches": [], "reason": "type", "resolution": "ours"}],
        "branches": [],
    }
    forks.merge_files(client, IDS[0], [IDS[1]], IDS[2], [], conflicts="ours")
    assert fake.log[-1] == f"POST /v1/sandboxes/{IDS[0]}/merge-files"
    assert capsys.readouterr().out == "D /a\nM /b\\u001b[2J\nU /c (type)\n"
    fake.merged["conflicts"][0]["resolution"] = None
    with pytest.raises(failure.Failure, match="1 conflicts are left"):
        forks.merge_files(client, IDS[0], [IDS[1]], IDS[2], [], conflicts="markers")
    fake.merged["applied"] = False
    with pytest.raises(failure.Failure, match="nothing was written: 1 conflicts"):
        forks.merge_files(client, IDS[0], [IDS[1]], IDS[2], [], conflicts="report", as_json=True)
    assert json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))["applied"] is False


HOSTILE = "/a\x1b]0;title\x07\n/b\x9b2J\u202ec\udcff"
ESCAPED = r"/a\u001b]0;title\u0007\n/b\u009b2J\u202ec\udcff"


def test_names_from_a_sandbox_cannot_control_the_terminal(
    client: Client, fake: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = HOSTILE.encode(errors="surrogateescape")
    fake.added, fake.added_b64 = [HOSTILE[:-1] + "\ufffd"], [base64.b64encode(raw).decode()]
    forks.diff(client, IDS[1], None, None)
    assert capsys.readouterr().out == f"C /a\nA {ESCAPED}\nD /c\n"
    forks.diff(client, IDS[1], None, None, as_json=True)
    shown = capsys.readouterr().out
    assert f'"{ESCAPED}"' in shown and json.loads(shown)["added"] == [HOSTILE]


def test_errors_and_tables_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    failure.complain(Frozen(HOSTILE, status=410))
    assert capsys.readouterr().err.split("\n")[0] == f"ramet: {ESCAPED}"
    output.columns(["NAME"], [[HOSTILE]])
    assert capsys.readouterr().out == f"NAME\n{ESCAPED}\n"


def test_names_that_a_folder_leaves_out_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        fifo = tarfile.TarInfo("pipe\x1b[2J\nramet: done")
        fifo.type = tarfile.FIFOTYPE
        tar.addfile(fifo)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/archive"):
            return httpx.Response(200, content=archive.getvalue())
        about = {"name": "d", "type": "directory", "size": 0, "mode": "0755", "mtime": 0}
        return httpx.Response(200, json={**about, "uid": 0, "gid": 0, "id": IDS[0], "state": ""})

    with Client(transport=httpx.MockTransport(answer), retry_seconds=0) as service:
        copying.run(service, [f"{IDS[0]}:/d"], str(tmp_path / "to"))
    assert r"ramet: left out: pipe\u001b[2J\nramet: done (" in capsys.readouterr().err


def test_results_that_are_not_unicode_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    shown = Event("result", "", 1, 0, result=Result({"text/plain": "a\ud800"}))
    assert programs.show([shown]) == 0
    assert capfd.readouterr().out == "a?\n"


def test_completions_are_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        names = ["good-1.2", "$(touch x)", "a b", "line\nplain,x", "`id`", "x;id"]
        about = {"description": "", "state": "ready", "vcpus": 1, "ram_mib": 128, "rootfs_gb": 1}
        return httpx.Response(200, json=[{"name": name, **about} for name in names])

    monkeypatch.setattr(
        service,
        "connect",
        lambda **_: Client(transport=httpx.MockTransport(answer), retry_seconds=0),
    )
    assert complete.complete_template("") == ["good-1.2"]


FAMILY = [
    sandbox("sbx_a"),
    sandbox("sbx_b", "sbx_a"),
    sandbox("sbx_c", "sbx_gone"),
    sandbox("sbx_d", "sbx_b"),
    sandbox("sbx_e", "sbx_a"),
]


def test_ls_draws_the_tree_of_forks(capsys: pytest.CaptureFixture[str]) -> None:
    listing.sandboxes(FAMILY, tree=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11].rstrip() for line in lines] == [
        "ID",
        "sbx_a",
        "├─ sbx_b",
        "│  └─ sbx_d",
        "└─ sbx_e",
        "sbx_c",
    ]
    listing.sandboxes(FAMILY, tree=True, quiet=True)
    assert capsys.readouterr().out.split() == ["sbx_a", "sbx_b", "sbx_d", "sbx_e", "sbx_c"]


def test_ls_json_has_the_fields_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    listing.sandboxes(FAMILY, as_json=True)
    assert json.loads(capsys.readouterr().out) == [one.raw for one in FAMILY]
    listing.sandboxes(FAMILY, tree=True, as_json=True)
    roots: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in roots] == ["sbx_a", "sbx_c"]
    assert roots[0]["children"][0]["children"][0]["id"] == "sbx_d"
    assert roots[0]["ram_mib"] == 1024


@pytest.mark.parametrize(
    "text, place",
    [
        ("ab1:/etc/x", ("ab1", "/etc/x")),
        ("ab1:x", ("ab1", "/root/x")),
        ("ab1:", ("ab1", "/root/")),
        ("./ab1:/x", (None, "./ab1:/x")),
        ("/x:y", (None, "/x:y")),
        ("-", (None, "-")),
        ("sbx_1:a:b", ("sbx_1", "/root/a:b")),
    ],
)
def test_ends_of_a_copy(text: str, place: tuple[str | None, str]) -> None:
    assert copying.Place.parse(text) == copying.Place(*place)


@pytest.mark.parametrize(
    "ends, message",
    [
        (("a", "b"), "neither a nor b is in a sandbox"),
        (("", "b:/y"), "a path is empty"),
        (("aa1:/x", ""), "a path is empty"),
    ],
)
def test_one_end_of_a_copy_is_in_a_sandbox(
    client: Client, fake: Service, ends: tuple[str, str], message: str
) -> None:
    with pytest.raises(failure.Failure, match=message) as failed:
        copying.run(client, [ends[0]], ends[1])
    assert failed.value.remedy and not fake.log


@pytest.mark.parametrize("target", ["none/copy", "none/"])
def test_a_copy_into_a_missing_folder_names_the_folder(
    client: Client, home: Path, target: str
) -> None:
    with pytest.raises(failure.Failure, match="none/?: there is no such folder") as failed:
        copying.run(client, ["aa1:/x"], f"{home}/{target}")
    assert f"mkdir -p {home}/none" in failed.value.remedy


@pytest.mark.parametrize("word", ["exit", "exit()", "quit", " quit() "])
def test_exit_leaves_the_prompt(
    client: Client, fake: Service, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["", word])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    fake.log.clear()
    assert repl.run(Sandbox.connect(IDS[0], client=client)) == 0
    assert not any(one.endswith("/exec") for one in fake.log)


def test_an_answer_of_something_else_is_no_missing_sandbox() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(404, text="<html>\n<p>none</p>\n"))
    with Client("http://other", transport=page) as other:
        with pytest.raises(NotFound) as failed:
            other.list_sandboxes()
    assert str(failed.value) == (
        "http://other does not answer as a Ramet service does: HTTP 404: <html> <p>none</p>"
    )
    assert "is the address right?" in failure.remedy_of(failed.value)
    answered = NotFound("there is no sandbox x", status=404, code="not_found")
    assert "ramet ls" in failure.remedy_of(answered)


@pytest.mark.parametrize(
    "error, subject, remedy",
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version", "tls", "write http:// instead of https://"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "tls", "--ca-file"),
        ("timed out", "key", "RAMET_HOST"),
    ],
)
def test_the_report_never_recommends_itself(
    error: str, subject: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise ConnectionFailed(error)

    monkeypatch.setattr(doctor, "_steps", lambda: iter([("key", fail)]))
    (check,) = doctor.checks()
    assert (check.name, check.ok) == (subject, False)
    assert remedy in check.remedy and "doctor" not in check.remedy


@pytest.mark.parametrize(
    "code, complete",
    [
        ("x = 1", True),
        ("def f():", False),
        ("def f():\n    return 1", False),
        ("def f():\n    return 1\n", True),
        ("print((1,", False),
        ('"""', False),
        ("1 +* 2", True),
        ("!ls", True),
        ("await f()", True),
        ("\0", True),
    ],
)
def test_the_prompt_waits_for_whole_statements(code: str, complete: bool) -> None:
    assert repl.is_complete(code) is complete


@pytest.mark.parametrize(
    "bytes_, text",
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 << 20, "20 MiB"), (5 << 50, "5120 TiB")],
)
def test_sizes(bytes_: int, text: str) -> None:
    assert output.size(bytes_) == text


def test_errors_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    failure.complain(Frozen("it is the Space spc_1", status=404))
    failure.complain(Unavailable("no VM is left", status=503, retry_after=2.5))
    assert capsys.readouterr().err == (
        "ramet: it is the Space spc_1\n  `ramet resume SPACE` continues it\n"
        "ramet: no VM is left\n  try again in 2.5 s\n"
    )


def test_without_its_packages_the_command_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ramet.cli import main

    for name in [one for one in sys.modules if one.startswith(("click", "ramet.cli.app"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("ramet.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "click", None)
    with pytest.raises(SystemExit) as ended:
        main(["ls"])
    assert ended.value.code == 125
    assert "pip install './sdk/python[cli]'" in capsys.readouterr().err


class Sandboxes:
    """A fake service whose sandboxes have files, processes and metrics; `log` has the requests."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.files = {"/root/a": b"of a", "/d/b": b"of b"}
        self.folders = ["/root", "/d", "/d/.", "/to"]
        self.keyed = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        asked = dict(request.url.params)
        body: Any = request.read()
        if request.headers.get("content-type") == "application/json":
            body = json.loads(body)
        self.log.append((f"{request.method} {path}", body))
        if self.keyed and request.headers.get("authorization") != "Bearer rmt_right":
            return httpx.Response(401, json={"error": "no", "code": "unauthorized"})
        name = path.split("/")[2] if path.count("/") > 1 else ""
        answer = getattr(self, request.method.lower() + "_" + path.rpartition("/")[2], None)
        if answer is not None:
            return httpx.Response(**{"status_code": 200, **answer(asked, body)})
        if request.method == "GET" and path == "/sandboxes":
            return httpx.Response(200, json=[self.one(name) for name in IDS])
        if path == f"/sandboxes/{name}":
            return httpx.Response(200, json=self.one(name))
        if path == f"/checkpoints/{CHK}":
            return httpx.Response(200, json=CHECKPOINT)
        return httpx.Response(204)

    def one(self, name: str) -> dict[str, Any]:
        return {
            "id": name, "state": "ready", "template": "default", "vcpus": 2, "ram_mib": 1024,
            "rootfs_gb": 4, "persistent": False, "egress": True,
            "created_at": "2026-01-31T23:59:59.123Z", "expires_at": None, "idle_expires_at": None,
            "parent": None, "children": [], "memory_private_bytes": 1024,
            "memory_shared_bytes": 2048, "metadata": {"name": "web\x1b[2J", "run": 7},
        }  # fmt: skip

    def get_templates(self, *_: Any) -> dict[str, Any]:
        return {"json": []}

    def get_processes(self, *_: Any) -> dict[str, Any]:
        return {"json": [self.process("1"), self.process("2", state="ended", exit_code=3)]}

    def process(self, digit: str, **more: Any) -> dict[str, Any]:
        return {
            "id": "prc_" + digit * 32, "pid": 7, "command": "sleep\x07 9", "user": None, "tty": False,
            "stdin": False, "started_at": "2026-01-31T23:59:59.123Z", "state": "running",
            "ended_at": None, "exit_code": None, "signal": None, "timed_out": False,
            "output_bytes": 2048, **more,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_prc_"):
            return lambda *_: {"json": self.process(name[8])}
        raise AttributeError(name)

    def get_metrics(self, *_: Any) -> dict[str, Any]:
        now = {
            "at": "", "cpu_percent": 48.7, "cpu_seconds": 3, "memory_used_bytes": 1 << 20,
            "disk_layer_bytes": 0, "network_received_bytes": 5, "network_sent_bytes": 6,
        }  # fmt: skip
        sizes = {"vcpus": 2, "memory_limit_bytes": 1 << 30, "disk_size_bytes": 4 << 30}
        return {"json": {**sizes, "now": now, "samples": []}}

    def get_stat(self, asked: Any, *_: Any) -> dict[str, Any]:
        path = asked["path"]
        kind = "directory" if path in self.folders else "file"
        if kind == "file" and path not in self.files:
            return {"status_code": 404, "json": {"error": "no", "code": "no_such_file"}}
        about = {"name": path, "type": kind, "mode": "0750", "uid": 0, "gid": 0}
        return {"json": {**about, "size": 0, "mtime": 0}}

    def get_files(self, asked: Any, *_: Any) -> dict[str, Any]:
        return {"content": self.files[asked["path"]]}

    def put_files(self, asked: Any, body: bytes) -> dict[str, Any]:
        self.files[asked["path"]] = body
        return {}

    def post_mkdir(self, asked: Any, *_: Any) -> dict[str, Any]:
        self.folders.append(asked["path"])
        return {"status_code": 204}

    def get_archive(self, asked: Any, *_: Any) -> dict[str, Any]:
        return {"content": f"tar of {asked['path']}".encode()}

    def put_archive(self, asked: Any, body: bytes) -> dict[str, Any]:
        self.files[asked["path"] + "/"] = body
        return {}


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Sandboxes:
    made = Sandboxes()
    answers = dict[str, Any](transport=httpx.MockTransport(made), retry_seconds=0)

    def connect(place: settings.Settings | None = None, **_: Any) -> Client:
        return Client("http://x", place.api_key if place else None, allow_plain_http=True, **answers)

    monkeypatch.setattr(service, "connect", connect)
    monkeypatch.setattr("ramet.cli.account.connect", connect)
    monkeypatch.setattr("ramet.cli.terminal.end_in_order", lambda: None)
    monkeypatch.setattr("warnings.showwarning", None)
    return made


def ramet_cli(*words: str) -> int:
    from ramet.cli import app

    with pytest.raises(SystemExit) as ended:
        app.run(list(words))
    return int(ended.value.code or 0)


def test_ps_lists_processes(many: Sandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert ramet_cli("ps", "aa1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "PID", "USER", "AGE", "OUTPUT", "COMMAND"]
    assert [line[18:26].strip() for line in lines[1:]] == ["running", "exit 3"]
    assert lines[1].endswith(r"2.0 KiB  sleep\u0007 9")
    assert ramet_cli("ps", "-q", "aa1") == 0
    assert capsys.readouterr().out.split() == ["prc_" + "1" * 32, "prc_" + "2" * 32]
    assert ramet_cli("ps", "--json", "aa1") == 0
    assert json.loads(capsys.readouterr().out)[1]["exit_code"] == 3


def test_kill_ends_processes(many: Sandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = ("prc_" + digit * 32 for digit in "12")
    assert ramet_cli("kill", "aa1", "11", "prc_2") == 0
    assert capsys.readouterr().out.split() == [one, two]
    at = f"/sandboxes/{IDS[0]}/processes"
    deleted = [sent for sent, _ in many.log if sent.startswith("DELETE")]
    assert deleted == [f"DELETE {at}/{one}", f"DELETE {at}/{two}"]
    assert ramet_cli("kill", "-s", "TERM", "aa1", one) == 0
    assert many.log[-1] == (f"POST {at}/{one}/signal", {"signal": "TERM"})
    assert ramet_cli("kill", "-s", "9", "aa1", one) == 0
    assert many.log[-1] == (f"POST {at}/{one}/signal", {"signal": 9})
    assert ramet_cli("kill", "aa1", "3") == 125
    assert "no process 3" in capsys.readouterr().err


def test_info_and_names(many: Sandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert ramet_cli("info", "aa1") == 0
    shown = capsys.readouterr().out
    assert "\nname: web\\u001b[2J\n" in shown and "\nmetadata run: 7\n" in shown
    assert "\nexpires: never\n" in shown and "parent" not in shown
    assert ramet_cli("info", "--json", "aa1") == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["run"] == 7
    assert ramet_cli("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("  NAME") and lines[1].endswith(r"  web\u001b[2J")


def test_info_of_a_checkpoint(many: Sandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert ramet_cli("info", "--json", CHK) == 0
    assert json.loads(capsys.readouterr().out) == CHECKPOINT


def test_update_keeps_other_metadata(many: Sandboxes) -> None:
    words = ["--lifetime", "2h", "--no-persistent", "--name", "db", "--metadata", "run=8"]
    assert ramet_cli("update", "aa1", *words) == 0
    sent = {"lifetime_seconds": 7200, "persistent": False, "metadata": {"run": "8", "name": "db"}}
    assert many.log[-1] == (f"PATCH /sandboxes/{IDS[0]}", sent)
    assert ramet_cli("update", "aa1", "--name", "db") == 0
    assert many.log[-1][1] == {"metadata": {"run": 7, "name": "db"}}
    assert ramet_cli("update", "aa1", "--idle-timeout", "90") == 0
    assert many.log[-1][1] == {"idle_timeout_seconds": 90}


def test_stats_and_interrupt(many: Sandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    assert ramet_cli("stats", "b") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and " 49% " in lines[1] and "1.0 MiB / 1.0 GiB" in lines[1]
    assert ramet_cli("stats") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert ramet_cli("interrupt", "b") == 0
    assert many.log[-1][0] == f"POST /sandboxes/{IDS[2]}/interrupt"


def test_cp_between_sandboxes(many: Sandboxes, home: Path) -> None:
    assert ramet_cli("cp", "aa1:a", "b:/new") == 0
    assert many.files["/new"] == b"of a"
    assert ramet_cli("cp", "aa1:a", "aa1:/d/b", "b:/to") == 0
    assert (many.files["/to/a"], many.files["/to/b"]) == (b"of a", b"of b")
    assert ramet_cli("cp", "aa1:/d", "b:/to") == 0
    assert many.files["/to/d/"] == b"tar of /d"
    assert ramet_cli("cp", "aa1:/d/.", "b:/to") == 0
    assert many.files["/to/"] == b"tar of /d/."


def test_cp_of_several_sources(
    many: Sandboxes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (home / name).write_text(name)
    assert ramet_cli("cp", f"{home}/one", f"{home}/two", "aa1:/to") == 0
    assert (many.files["/to/one"], many.files["/to/two"]) == (b"one", b"two")
    assert ramet_cli("cp", "aa1:a", "aa1:/d/b", str(home)) == 0
    assert ((home / "a").read_text(), (home / "b").read_text()) == ("of a", "of b")
    assert ramet_cli("cp", "aa1:a", "aa1:/d/b", f"{home}/none") == 125
    assert ramet_cli("cp", f"{home}/one", f"{home}/two", "aa1:/none") == 125
    assert "not a folder" in capsys.readouterr().err
    assert ramet_cli("cp", "aa1:/d", f"{IDS[0]}:/d") == 125
    assert "/d cannot be copied into itself, to /d/d" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["exec", "aa1", "-d", "--", "ls"], "options go before the id, as in ramet exec -d ID"),
        (["create", "--timeout", "1h"], "--timeout is now called --lifetime"),
        (["exec", "--time-limit", "1h", "aa1", "ls"], "--time-limit is now called --timeout"),
    ],
)
def test_misplaced_and_renamed_options_have_a_hint(
    many: Sandboxes, capsys: pytest.CaptureFixture[str], words: list[str], hint: str
) -> None:
    assert ramet_cli(*words) == 125
    assert hint in " ".join(capsys.readouterr().err.split())


def test_login_saves_no_key_for_a_service_without_keys(
    many: Sandboxes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAMET_API_KEY", "rmt_right")
    monkeypatch.setattr(sys, "stdin", io.StringIO("rmt_right\n"))
    assert ramet_cli("login", "http://x", "--key-stdin") == 0
    assert "needs no key" in capsys.readouterr().out
    assert "api_key" not in settings.path().read_text()
    many.keyed = True
    assert ramet_cli("login", "http://x", "--key-stdin") == 0
    assert json.loads(settings.path().read_text())["api_key"] == "rmt_right"
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert ramet_cli("login", "http://x", "--key-stdin") == 125
    assert "needs a key" in capsys.readouterr().err


def test_time_limit_has_one_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    ends = [143, 0, 137]

    def answer(request: httpx.Request) -> httpx.Response:
        event = {"type": "exit", "data": ends[0], "seq": 0, "ts": 1, "timed_out": True}
        return httpx.Response(200, content=json.dumps(event) + "\n")

    client = Client(transport=httpx.MockTransport(answer), retry_seconds=0)
    while ends:
        process = Process(IDS[0], lambda: client, "prc_" + "1" * 32, 1)
        assert programs.copy_output(process) == 124
        del ends[0]
    assert capsys.readouterr().err.count("at its time limit") == 3


def test_newest_events_are_printed_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert dict(request.url.params) == {"limit": "2", "newest_first": "true"}
        known = {"id": "evt_1", "time": "now", "event": "sandbox.died", "tenant": "local"}
        lines = [json.dumps({"n": n, "sandbox": IDS[n], **known}) + "\n" for n in (1, 0)]
        return httpx.Response(200, content="".join(lines))

    logs.of_host(Client(transport=httpx.MockTransport(answer), retry_seconds=0), newest=2)
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == IDS[:2]
    assert ramet_cli("events", "--follow", "--newest", "1") == 125
    assert "cannot be combined" in capsys.readouterr().err


def test_forward_says_once_that_nothing_listens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there, here = socket.socketpair()
    answers: list[Any] = [closed := ServerError("no", code="port_closed"), closed, here, closed]

    def connect_port(sandbox_id: str, port: int) -> socket.socket:
        answer = answers.pop(0)
        if isinstance(answer, ServerError):
            raise answer
        assert isinstance(answer, socket.socket)
        return answer

    client = Client("http://x")
    monkeypatch.setattr(client, "connect_port", connect_port)
    connect = forwarding._Connector(client, IDS[0], 8000)
    for _ in range(2):
        with pytest.raises(ServerError):
            connect()
    assert capsys.readouterr().err.count("nothing listens on port 8000 in the sandbox yet") == 1
    with there, connect():
        assert capsys.readouterr().err == ""
    with pytest.raises(ServerError):  # the server has ended meanwhile
        connect()
    assert "nothing listens" in capsys.readouterr().err


def test_files_are_taken_along_into_a_new_working_directory(many: Sandboxes, home: Path) -> None:
    (home / "data").mkdir()
    options = programs.Options(cwd="/new")
    work = programs.task(["x"], options, is_command=True, along=[str(home / "data")])
    with suppress(RametError):  # the program itself has no answer
        work(service.open_sandbox(service.connect(), IDS[0]))
    assert "/new/data/" in many.files and "/new/" not in many.files


def test_page_has_the_commands_and_columns() -> None:
    from ramet.cli import app

    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    table = page.partition("`--json` prints:")[2].partition("Fields may be added")[0]
    for name, command in app.root.commands.items():
        if any("--json" in one.opts for one in command.params):
            assert f"`{name}`" in table, name
    listed = page.partition("$ ramet ls --tree\n")[2].partition("\n")[0]
    output = io.StringIO()
    with redirect_stdout(output):
        listing.sandboxes([])
    assert listed.split() == output.getvalue().split()


@pytest.mark.parametrize(
    "words", [["--prune"], ["--prune", "--keep=1", "--name=x"], ["--keep=1"], ["--dry-run"]]
)
def test_options_of_prune_belong_together(
    many: Sandboxes, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert ramet_cli("checkpoints", *words) == failure.FAILED
    assert "--prune" in capsys.readouterr().err


_FULL_PIPE = """
import os, signal
from ramet.cli.terminal import end_in_order

end_in_order()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])  # so that it does not interrupt the call
os.write(1, bytes(10_000_000))
"""


def test_signal_that_interrupts_no_system_call_ends_the_program() -> None:
    with subprocess.Popen([sys.executable, "-c", _FULL_PIPE], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.read(1)
        program.send_signal(signal.SIGHUP)
        assert program.wait() == 128 + signal.SIGHUP
