# SPDX-License-Identifier: Apache-2.0
"""Ramet: sandboxes for AI agents, each a real microVM with a persistent Python process."""

from ramet.client import Client
from ramet.errors import (
    BadRequest,
    CapReached,
    Conflict,
    ConnectionFailed,
    DirectoryNotEmpty,
    DiskFull,
    Expired,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    NotFound,
    PermissionDenied,
    RametError,
    ServerError,
    Unauthorized,
    Unavailable,
    VmDied,
)
from ramet.files import Files
from ramet.pty import Pty, Ptys
from ramet.sandbox import Sandbox
from ramet.types import (
    Diff,
    Event,
    ExecResult,
    FileInfo,
    FileType,
    Language,
    PtyInfo,
    SandboxInfo,
    TemplateInfo,
)

__all__ = [
    "BadRequest",
    "CapReached",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Diff",
    "DirectoryNotEmpty",
    "DiskFull",
    "Event",
    "ExecResult",
    "Expired",
    "FileExists",
    "FileInfo",
    "FileType",
    "Files",
    "IsADirectory",
    "Language",
    "NoSuchFile",
    "NotADirectory",
    "NotFound",
    "PermissionDenied",
    "Pty",
    "PtyInfo",
    "Ptys",
    "RametError",
    "Sandbox",
    "SandboxInfo",
    "ServerError",
    "TemplateInfo",
    "Unauthorized",
    "Unavailable",
    "VmDied",
]

__version__ = "0.1.0"
