# SPDX-License-Identifier: Apache-2.0
"""Fixtures that make the tests of one host use a sandbox of another host of its fleet.

A client must not see a difference.
"""

from __future__ import annotations

from typing import Iterator

import pytest

from conftest import Service, made
from fleet import Fleet, pair


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    yield from pair(tmp_path_factory.mktemp("fleet"), 17, 18, "client_requests_s=0", agent=True)


@pytest.fixture(scope="module")
def service(fleet: Fleet) -> Service:
    return fleet.services[17]


@pytest.fixture
def base(service: Service) -> str:
    return service.base


@pytest.fixture
def sandbox(fleet: Fleet) -> Iterator[str]:
    """Creates a sandbox on the other host, and returns its path."""
    with fleet.services[18].client() as http:
        path = made(http)
        yield path
        http.delete(path)
    for host in fleet.services.values():
        host.until_idle()
