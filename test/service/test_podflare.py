# SPDX-License-Identifier: Apache-2.0
"""The published podflare client, unmodified; test_pty.py has its terminals."""

from __future__ import annotations

from typing import Iterator

import httpx
import podflare
import pytest


@pytest.fixture
def published(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the client use this service."""
    monkeypatch.setenv("PODFLARE_HOSTD_URL", base)
    monkeypatch.setenv("PODFLARE_HOST", base)


@pytest.fixture
def box(published: None) -> Iterator[podflare.Sandbox]:
    with podflare.Sandbox(client=podflare.Client(timeout=120.0)) as made:
        yield made


def test_state_output_and_exit_codes(box: podflare.Sandbox) -> None:
    assert podflare.Client().healthz() is True
    box.run_code("x = 5")
    result = box.run_code("print(x)\nprint('second')")
    assert (result.stdout, result.stderr, result.exit_code) == ("5\nsecond", "", 0)
    assert box.run_code("exit 4", language="bash").exit_code == 4
    assert "ZeroDivisionError" in box.run_code("1/0").stderr


def test_lines_with_unicode_separators_are_not_split(box: podflare.Sandbox) -> None:
    result = box.run_code("print('a\\u2028b\\u2029c\\x85d')")
    assert result.stdout == "a\u2028b\u2029c\x85d"


def test_every_create_option_is_accepted(published: None) -> None:
    with podflare.Sandbox(
        client=podflare.Client(timeout=120.0),
        timeout_seconds=600,
        idle_timeout_seconds=300,
        persistent=False,
        egress=True,
    ) as made:
        assert made.run_code("print('in')").stdout == "in"


def test_upload_download_and_replay(box: podflare.Sandbox, folder: str) -> None:
    data = bytes(range(256)) * 400
    box.run_code("1")
    box.upload(data, f"{folder}/deep/file.bin")
    assert box.download(f"{folder}/deep/file.bin") == data
    assert box.replay()[-1].type == "exit"


def test_invalid_forks_are_refused(box: podflare.Sandbox) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        box.fork(n=1001)
    (child,) = box.fork()
    try:
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            child.merge_into(box)
    finally:
        child.close()
