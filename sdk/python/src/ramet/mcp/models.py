# SPDX-License-Identifier: Apache-2.0
"""Structured results of the tools. Descriptions are part of the schemas that clients see."""

from __future__ import annotations

from typing import Literal, Optional

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field


class SandboxMade(BaseModel):
    """A sandbox that can be used now."""

    sandbox: str = Field(description="The id, to pass to the other tools")
    template: str = Field(description="The template that it was made from")
    vcpus: int = Field(description="Virtual CPUs")
    ram_mib: int = Field(description="Memory in MiB")
    rootfs_gb: int = Field(description="Size of the root disk in GiB")
    expires_at: Optional[str] = Field(description="UTC time at which it ends; null: never")


class Children(BaseModel):
    """The children of a fork."""

    children: list[str] = Field(description="Ids of the children; each runs already")


class Frozen(BaseModel):
    """A sandbox on disk."""

    space: str = Field(description="The Space's id, for resume")
    size_bytes: int = Field(description="Bytes on disk")
    note: str = Field(description="What has become of the sandbox")


class Checkpointed(BaseModel):
    """A kept state of a sandbox."""

    checkpoint: str = Field(description="The checkpoint's id")
    note: str = Field(description="What can be done with it")


class FileEntry(BaseModel):
    """A file or an entry of a folder."""

    name: str = Field(description="Path within the listed folder")
    type: str = Field(description="file, directory, symlink, fifo, socket, block or char")
    size: int = Field(description="Bytes of a file; otherwise 0")
    mode: str = Field(description="Permission bits in octal")
    modified: float = Field(description="Time of the last change in seconds since 1970")
    target: Optional[str] = Field(default=None, description="Target of a symbolic link")


class FileList(BaseModel):
    """Entries of a folder."""

    entries: list[FileEntry] = Field(description="In the order of their names")
    next_after: Optional[str] = Field(
        default=None, description="There are more: pass this as `after` to get them"
    )


class Change(BaseModel):
    """A difference between two sandboxes."""

    change: Literal["added", "removed", "modified"] = Field(
        description="added: only `other` has the file; removed: only `sandbox` has it"
    )
    path: str = Field(description="Absolute path")


class MergedPath(BaseModel):
    """What a merge of files did with a path."""

    path: str = Field(description="Absolute path")
    change: Optional[str] = Field(
        default=None, description="added, removed, modified or merged; null: there is a conflict"
    )
    conflict: Optional[str] = Field(default=None, description="Why there is a conflict")
    resolution: Optional[str] = Field(
        default=None, description="ours, theirs or markers; null: the sandbox's file stays"
    )


class MergedPaths(BaseModel):
    """The result of a merge of files."""

    applied: bool = Field(description="false: nothing was written, because there are conflicts")
    paths: list[MergedPath] = Field(description="The paths from `offset` on; conflicts come last")
    total: int = Field(description="Number of all paths")
    next_offset: Optional[int] = Field(
        default=None, description="There are more: pass this as `offset` to get them"
    )


class Changes(BaseModel):
    """Differences between the files of two sandboxes."""

    changes: list[Change] = Field(description="The differences from `offset` on")
    total: int = Field(description="Number of all differences")
    next_offset: Optional[int] = Field(
        default=None, description="There are more: pass this as `offset` to get them"
    )


class Item(BaseModel):
    """A sandbox, a Space, a checkpoint or a template."""

    id: str = Field(description="The id; of a template its name")
    state: str = Field(description="State, such as ready, running or frozen")
    name: Optional[str] = Field(default=None, description="Name that it was created with")
    parent: Optional[str] = Field(
        default=None, description="The sandbox that it was forked from, or is a checkpoint of"
    )
    template: Optional[str] = Field(default=None, description="Template that it was made from")
    created_at: Optional[str] = Field(default=None, description="UTC time of its creation")
    expires_at: Optional[str] = Field(default=None, description="UTC time at which it ends")
    size_bytes: Optional[int] = Field(default=None, description="Bytes on disk of a Space or checkpoint")
    description: Optional[str] = Field(default=None, description="Description of a template")


class Items(BaseModel):
    """Sandboxes, Spaces, checkpoints or templates."""

    items: list[Item] = Field(description="Oldest first, from `offset` on")
    next_offset: Optional[int] = Field(
        default=None, description="There are more: pass this as `offset` to get them"
    )


def structured(model: BaseModel) -> CallToolResult:
    """Returns a structured result, and the same as JSON text for clients that read only text."""
    return CallToolResult(
        content=[TextContent(type="text", text=model.model_dump_json(exclude_none=True))],
        structured_content=model.model_dump(mode="json"),
    )
