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
    Frozen,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    NotFound,
    PermissionDenied,
    PlainHttpWarning,
    RametError,
    ServerError,
    SpaceDamaged,
    Unauthorized,
    Unavailable,
    VmDied,
)
from ramet.files import Files
from ramet.process import Process, Processes
from ramet.pty import Pty, Ptys
from ramet.results import CodeError, Result
from ramet.sandbox import Sandbox
from ramet.space import Space
from ramet.types import (
    Diff,
    Event,
    ExecResult,
    FileInfo,
    FileType,
    Language,
    Metrics,
    ProcessEvent,
    ProcessInfo,
    ProcessResult,
    PtyInfo,
    SandboxInfo,
    SpaceInfo,
    TemplateInfo,
)

__all__ = [
    "BadRequest",
    "CapReached",
    "Client",
    "CodeError",
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
    "Frozen",
    "IsADirectory",
    "Language",
    "Metrics",
    "NoSuchFile",
    "NotADirectory",
    "NotFound",
    "PermissionDenied",
    "PlainHttpWarning",
    "Process",
    "ProcessEvent",
    "ProcessInfo",
    "ProcessResult",
    "Processes",
    "Pty",
    "PtyInfo",
    "Ptys",
    "RametError",
    "Result",
    "Sandbox",
    "SandboxInfo",
    "ServerError",
    "Space",
    "SpaceDamaged",
    "SpaceInfo",
    "TemplateInfo",
    "Unauthorized",
    "Unavailable",
    "VmDied",
]

__version__ = "0.1.0"
