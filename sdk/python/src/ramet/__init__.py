# SPDX-License-Identifier: Apache-2.0
"""Ramet: sandboxes for AI agents, each a real microVM with a persistent Python process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ramet._async.checkpoint import AsyncCheckpoint
    from ramet._async.client import AsyncClient
    from ramet._async.context import AsyncContext, AsyncContexts
    from ramet._async.files import AsyncFiles, AsyncWatch
    from ramet._async.ports import AsyncForward
    from ramet._async.process import AsyncProcess, AsyncProcesses
    from ramet._async.pty import AsyncPty, AsyncPtys
    from ramet._async.sandbox import AsyncSandbox
    from ramet._async.space import AsyncSpace
    from ramet.checkpoint import Checkpoint
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
        IncompleteListWarning,
        IsADirectory,
        NoSuchFile,
        NotADirectory,
        NotFound,
        PermissionDenied,
        PlainHttpWarning,
        ProcessFailed,
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
        AuditEvent,
        CheckpointInfo,
        Conflicts,
        ContextInfo,
        ContextLanguage,
        Diff,
        Event,
        ExecResult,
        FileEvent,
        FileEventType,
        FileConflict,
        FileInfo,
        FileMerge,
        FileType,
        HistoryEntry,
        Language,
        MergedBranch,
        Metrics,
        PortShare,
        ProcessEvent,
        ProcessInfo,
        ProcessResult,
        Pruned,
        PtyInfo,
        Region,
        SandboxInfo,
        SpaceInfo,
        Started,
        TakenFile,
        TemplateInfo,
        TreeInfo,
        TreeNode,
    )

__all__ = [
    "AsyncCheckpoint",
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
    "AuditEvent",
    "BadRequest",
    "CapReached",
    "Checkpoint",
    "CheckpointInfo",
    "Client",
    "CodeError",
    "Conflict",
    "Conflicts",
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
    "FileConflict",
    "FileEvent",
    "FileEventType",
    "FileExists",
    "FileInfo",
    "FileMerge",
    "FileType",
    "Files",
    "Forward",
    "Frozen",
    "HistoryEntry",
    "IncompleteListWarning",
    "IsADirectory",
    "Language",
    "MergedBranch",
    "Metrics",
    "NoSuchFile",
    "NotADirectory",
    "NotFound",
    "PermissionDenied",
    "PlainHttpWarning",
    "PortShare",
    "Process",
    "ProcessEvent",
    "ProcessFailed",
    "ProcessInfo",
    "ProcessResult",
    "Processes",
    "Pruned",
    "Pty",
    "PtyInfo",
    "Ptys",
    "RametError",
    "Region",
    "Result",
    "Sandbox",
    "SandboxInfo",
    "ServerError",
    "Space",
    "SpaceDamaged",
    "SpaceInfo",
    "Started",
    "TakenFile",
    "TemplateInfo",
    "TreeInfo",
    "TreeNode",
    "Unauthorized",
    "Unavailable",
    "VmDied",
    "Watch",
]

__version__ = "0.1.0"

# A program imports what it uses: httpx alone takes 0.1 s. The classes of each module:
_MODULES = {
    "_async.checkpoint": "AsyncCheckpoint",
    "_async.client": "AsyncClient",
    "_async.context": "AsyncContext AsyncContexts",
    "_async.files": "AsyncFiles AsyncWatch",
    "_async.ports": "AsyncForward",
    "_async.process": "AsyncProcess AsyncProcesses",
    "_async.pty": "AsyncPty AsyncPtys",
    "_async.sandbox": "AsyncSandbox",
    "_async.space": "AsyncSpace",
    "checkpoint": "Checkpoint",
    "client": "Client",
    "context": "Context Contexts",
    "errors": (
        "BadRequest CapReached Conflict ConnectionFailed DirectoryNotEmpty DiskFull Expired "
        "FileExists Frozen IncompleteListWarning IsADirectory NoSuchFile NotADirectory NotFound "
        "PermissionDenied PlainHttpWarning ProcessFailed RametError ServerError SpaceDamaged "
        "Unauthorized Unavailable VmDied"
    ),
    "files": "Files Watch",
    "ports": "Forward",
    "process": "Process Processes",
    "pty": "Pty Ptys",
    "results": "CodeError Result",
    "sandbox": "Sandbox",
    "space": "Space",
    "types": (
        "AuditEvent CheckpointInfo Conflicts ContextInfo ContextLanguage Diff Event ExecResult "
        "FileConflict FileEvent FileEventType FileInfo FileMerge FileType HistoryEntry Language "
        "MergedBranch Metrics PortShare ProcessEvent ProcessInfo ProcessResult Pruned PtyInfo Region "
        "SandboxInfo SpaceInfo Started TakenFile TemplateInfo TreeInfo TreeNode"
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module("ramet." + _HOME[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module("ramet." + name)
    raise AttributeError(f"module 'ramet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
