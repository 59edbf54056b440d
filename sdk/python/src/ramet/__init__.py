# SPDX-License-Identifier: Apache-2.0
"""Ramet: sandboxes for AI agents, each a real microVM with a persistent Python process."""

from ramet.client import Client
from ramet.errors import (
    BadRequest,
    CapReached,
    Conflict,
    ConnectionFailed,
    Expired,
    NotFound,
    RametError,
    ServerError,
    Unauthorized,
    Unavailable,
    VmDied,
)
from ramet.sandbox import Sandbox
from ramet.types import Diff, Event, ExecResult, Language, SandboxInfo

__all__ = [
    "BadRequest",
    "CapReached",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Diff",
    "Event",
    "ExecResult",
    "Expired",
    "Language",
    "NotFound",
    "RametError",
    "Sandbox",
    "SandboxInfo",
    "ServerError",
    "Unauthorized",
    "Unavailable",
    "VmDied",
]

__version__ = "0.1.0"
