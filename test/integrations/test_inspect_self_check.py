# SPDX-License-Identifier: Apache-2.0
"""Inspect's own checks of a sandbox environment, all of them, for a user that is not root.

Root may read and write files whose mode forbids it, so four of the checks cannot hold for root.
"""

from __future__ import annotations

from typing import AsyncIterator

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from ramet.integrations.inspect_ai import RametSandboxConfig, RametSandboxEnvironment

pytestmark = pytest.mark.anyio
CONFIG = RametSandboxConfig(user="user", fork=False)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared_env(anyio_backend: str) -> AsyncIterator[RametSandboxEnvironment]:
    environments = await RametSandboxEnvironment.sample_init("self_check", CONFIG, {})
    yield environments["default"].as_type(RametSandboxEnvironment)
    await RametSandboxEnvironment.sample_cleanup("self_check", CONFIG, environments, False)


@pytest.fixture
def sandbox_env(shared_env: RametSandboxEnvironment) -> RametSandboxEnvironment:
    return shared_env
