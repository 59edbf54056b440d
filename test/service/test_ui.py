# SPDX-License-Identifier: Apache-2.0
"""The files of the page /ui/, and which requests of pages are served. test/ui tests the page itself."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import httpx
import pytest

from conftest import Service, refused

UI = Path(__file__).resolve().parents[2] / "ui"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "ui"
    path.mkdir()
    (path / "index.html").write_text("<!doctype html><title>a page</title>")
    (path / "a.js").write_text("'a'")
    (path / "empty.css").write_text("")
    (path / "notes.txt").write_text("not for browsers")
    (path / ".hidden.js").write_text("'h'")
    (path / "folder.js").mkdir()
    (path.parent / "secret.js").write_text("'s'")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("home"), f"ui_dir={folder}", agent=False)
    yield service
    service.stop()


@pytest.fixture
def browser(page: Service) -> Iterator[httpx.Client]:
    with page.client() as client:
        yield client


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize(
    "path,kind,start",
    [
        ("/ui/", "text/html; charset=utf-8", "<!doctype"),
        ("/ui/?x=1", "text/html; charset=utf-8", "<!doctype"),
        ("/ui/index.html", "text/html; charset=utf-8", "<!doctype"),
        ("/ui/a.js", "text/javascript; charset=utf-8", "'a'"),
        ("/ui/empty.css", "text/css; charset=utf-8", ""),
    ],
)
def test_files_are_served_with_their_types(
    page: Service, path: str, kind: str, start: str, http2: bool
) -> None:
    with page.client(http2) as client:
        answer = client.get(path)
        head = client.head(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.text.startswith(start)
    assert int(head.headers["content-length"]) == len(answer.content) and head.content == b""


def test_every_file_has_strict_headers(browser: httpx.Client) -> None:
    for path in ("/ui/", "/ui/a.js"):
        headers = browser.get(path).headers
        policy = dict(one.strip().split(" ", 1) for one in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-cache"


def test_a_known_file_is_not_sent_again(browser: httpx.Client) -> None:
    tag = browser.get("/ui/a.js").headers["etag"]
    assert tag != browser.get("/ui/").headers["etag"]
    for value in (tag, f"W/{tag}", f'"other", {tag}'):
        again = browser.get("/ui/a.js", headers={"if-none-match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert browser.get("/ui/a.js", headers={"if-none-match": '"other"'}).text == "'a'"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../secret.js",
        "/ui/..%2fsecret.js",
        "/ui/%2e%2e/secret.js",
        "/ui//etc/passwd",
        "/ui/./a.js",
        "/ui/%61.js",
        "/ui/notes.txt",
        "/ui/.hidden.js",
        "/ui/folder.js",
        "/ui/folder.js/",
        "/ui/a.js/",
        "/ui/a.js%00",
        "/ui/a.jsx",
        "/ui/a",
        "/uix",
    ],
)
def test_no_other_path_is_served(page: Service, path: str) -> None:
    head, _, body = page.raw(
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
    ).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"400") and b"'s'" not in body


def test_other_methods_are_refused(browser: httpx.Client) -> None:
    answer = browser.post("/ui/")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


def test_the_page_has_one_address(browser: httpx.Client) -> None:
    answer = browser.get("/ui")
    assert (answer.status_code, answer.headers["location"]) == (308, "ui/")


def test_files_need_no_key_but_what_they_ask_for_does(start: Callable[..., Service], folder: Path) -> None:
    with start(f"ui_dir={folder}", "operator").client() as client:
        assert client.get("/ui/").status_code == 200
        refused(client.get("/v1/sandboxes"), 401, "key_missing")


def test_a_service_without_files_says_so(start: Callable[..., Service]) -> None:
    with start("ui_dir=/nonexistent/ui").client() as client:
        assert "ui_dir" in refused(client.get("/ui/"), 404, "no_such_route")
        refused(client.get("/ui"), 404, "no_such_route")


def test_only_the_own_page_may_change_something(page: Service, browser: httpx.Client) -> None:
    for origin in (page.base, page.base.replace("http:", "https:")):
        made = browser.post("/v1/sandboxes", json={}, headers={"origin": origin})
        assert made.status_code == 201, made.text
        browser.delete(f"/v1/sandboxes/{made.json()['id']}")
    named = {"host": f"localhost:{page.port}", "origin": f"http://localhost:{page.port}"}
    assert browser.get("/v1/sandboxes", headers=named).is_success
    for origin in (
        "null",
        "",
        "http://127.0.0.1",
        f"http://localhost:{page.port}",
        f"{page.base}/",
        f"{page.base}0",
        f"{page.base}.evil.example",
        f"ftp://127.0.0.1:{page.port}",
        f"127.0.0.1:{page.port}",
    ):
        answer = browser.post("/v1/sandboxes", json={}, headers={"origin": origin})
        refused(answer, 403, "browser_refused")
    rebound = {"host": "evil.example", "origin": "http://evil.example"}
    refused(browser.post("/v1/sandboxes", json={}, headers=rebound), 403, "host_refused")


def test_the_installed_files_are_small() -> None:
    files = [path for path in UI.iterdir() if path.suffix in (".html", ".js", ".css", ".svg")]
    assert "index.html" in [path.name for path in files]
    assert sum(path.stat().st_size for path in files) <= 200 << 10
