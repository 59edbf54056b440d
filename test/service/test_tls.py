# SPDX-License-Identifier: Apache-2.0
"""The API over TLS, with a certificate made for the test."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path
from typing import Callable

import httpx
import pytest

from conftest import Service


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost", "-days", "2"]
        + ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.parametrize("http2", [False, True])
def test_tls(
    start: Callable[..., Service], certificate: tuple[Path, Path], http2: bool
) -> None:
    server = start(f"tls_cert={certificate[0]}", f"tls_key={certificate[1]}")
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx.Client(
        base_url=f"https://127.0.0.1:{server.port}", http2=http2, verify=trust, trust_env=False
    ) as http:
        answer = http.get("/v1/healthz")
        assert (answer.text, answer.http_version) == ("ok", "HTTP/2" if http2 else "HTTP/1.1")
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        run = http.post(path + "/exec", json={"code": "lines 500 1000\nnothing " + "x" * 3_000_000})
        assert len(run.text.splitlines()) == 501
        assert json.loads(run.text.splitlines()[-1])["data"] == 0


def test_plain_http_gets_an_error(
    start: Callable[..., Service], certificate: tuple[Path, Path]
) -> None:
    server = start(f"tls_cert={certificate[0]}", f"tls_key={certificate[1]}")
    for method in ("GET", "POST"):
        with server.client() as http:
            answer = http.request(method, "/v1/sandboxes")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert "use https" in answer.json()["error"]
    assert server.raw(b"neither of both\r\n\r\n")[:4] != b"HTTP"


def test_key_must_match_the_certificate(
    start: Callable[..., Service], certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", other],
        check=True,
        capture_output=True,
    )
    with pytest.raises(AssertionError, match="tls_key"):
        start(f"tls_cert={certificate[0]}", f"tls_key={other}")
