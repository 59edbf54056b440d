# SPDX-License-Identifier: Apache-2.0
"""Ramet: sandboxes for AI agents, each a real microVM with a persistent Python process."""

from ramet._async.client import AsyncClient
from ramet._async.context import AsyncContext, AsyncContexts
from ramet._async.files import AsyncFiles, AsyncWatch
from ramet._async.ports import AsyncForward
from ramet._async.process import AsyncProcess, AsyncProcesses
from ramet._async.pty import AsyncPty, AsyncPtys
from ramet._async.sandbox import AsyncSandbox
from ramet._async.space import AsyncSpace
from ramet.client import Client
from ramet.context import Context, Contexts
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
from ramet.files import Files, Watch
from ramet.ports import Forward
from ramet.process import Process, Processes
from ramet.pty import Pty, Ptys
from ramet.results import CodeError, Result
from ramet.sandbox import Sandbox
from ramet.space import Space
from ramet.types import (
    ContextInfo,
    ContextLanguage,
    Diff,
    Event,
    ExecResult,
    FileEvent,
    FileEventType,
    FileInfo,
    FileType,
    Language,
    Metrics,
    PortShare,
    ProcessEvent,
    ProcessInfo,
    ProcessResult,
    PtyInfo,
    SandboxInfo,
    SpaceInfo,
    TemplateInfo,
)

__all__ = [
    "AsyncClient",
    "AsyncContext",
    "AsyncContexts",
    "AsyncFiles",
    "AsyncForward",
    "AsyncProcess",
    "AsyncProcesses",
    "AsyncPty",
    "AsyncPtys",
    "AsyncSandbox",
    "AsyncSpace",
    "AsyncWatch",
    "BadRequest",
    "CapReached",
    "Client",
    "CodeError",
    "Conflict",
    "ConnectionFailed",
    "Context",
    "ContextInfo",
    "ContextLanguage",
    "Contexts",
    "Diff",
    "DirectoryNotEmpty",
    "DiskFull",
    "Event",
    "ExecResult",
    "Expired",
    "FileEvent",
    "FileEventType",
    "FileExists",
    "FileInfo",
    "FileType",
    "Files",
    "Forward",
    "Frozen",
    "IsADirectory",
    "Language",
    "Metrics",
    "NoSuchFile",
    "NotADirectory",
    "NotFound",
    "PermissionDenied",
    "PlainHttpWarning",
    "PortShare",
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
    "Watch",
]

__version__ = "0.1.0"
