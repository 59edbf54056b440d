# SPDX-License-Identifier: Apache-2.0
"""Lists: sandboxes and the tree of their forks, processes, Spaces, checkpoints, templates, ports."""

from __future__ import annotations

import json
from typing import Any, Iterable, Iterator, Mapping, Sequence, TypeVar

from ramet import (
    CheckpointInfo,
    Client,
    HistoryEntry,
    Metrics,
    NotFound,
    PortShare,
    ProcessInfo,
    SandboxInfo,
    TreeInfo,
    TreeNode,
)
from ramet.cli.output import columns, plain, print_json, since, size, until
from ramet.cli.service import short

Node = TypeVar("Node", SandboxInfo, TreeNode)


def sandboxes(
    found: Sequence[SandboxInfo], *, tree: bool = False, as_json: bool = False, quiet: bool = False
) -> None:
    """Prints sandboxes: as a table, or as JSON with the fields of the API, or their ids only.

    Args:
        found: The sandboxes.
        tree: Show forks below their parents.
        as_json: Print JSON; with `tree` each sandbox has its forks in `children`.
        quiet: Print one full id per line.
    """
    order = list(_walk(found)) if tree else [("", one) for one in found]
    _show(
        [one.id for _, one in order],
        _nested(found) if tree else [dict(one.raw) for one in found],
        ("ID", "STATE", "TEMPLATE", "CPUS", "MEMORY", "AGE", "EXPIRES", "PARENT", "NAME"),
        ((branch + short(one.id), *_fields(one)) for branch, one in order),
        as_json=as_json,
        quiet=quiet,
    )


def tree(found: TreeInfo, *, as_json: bool = False) -> None:
    """Prints what a tree has used of its budget, and what each of its sandboxes costs."""
    if as_json:
        print_json(dict(found.raw))
        return
    used = {
        "live": str(found.live),
        "ram_mib": str(found.ram_mib),
        "cpu_seconds": f"{found.cpu_seconds:.1f}",
        "wall_seconds": f"{found.wall_seconds:.1f}",
        "depth": str(max((one.depth for one in found.nodes), default=0)),
    }
    budget = found.budget or {}
    for name, value in used.items():
        print(f"{name}: {value}" + (f" of {budget[name]}" if name in budget else ""))
    if budget:
        print(f"at_limit: {budget['at_limit']}, {found.waiting} waiting")
    if found.spaces:
        print(f"spaces: {' '.join(found.spaces)}")
    rows = [
        (
            branch + short(one.id),
            one.state,
            "-" if one.score is None else f"{one.score:g}",
            size(one.memory_private_bytes),
            f"{one.cpu_seconds:.1f} s",
            f"{one.wall_seconds:.0f} s",
            _labels(one.labels),
        )
        for branch, one in _walk(found.nodes)
    ]
    columns(("ID", "STATE", "SCORE", "MEMORY", "CPU", "AGE", "LABELS"), rows)


def _labels(labels: Mapping[str, str]) -> str:
    return " ".join(f"{plain(name)}={plain(value)}" for name, value in labels.items()) or "-"


def one_sandbox(one: SandboxInfo, *, as_json: bool = False) -> None:
    """Prints what is known about a sandbox, one field per line."""
    if as_json:
        print_json(dict(one.raw))
        return
    each = one.raw.get("checkpoint_each_call")
    fields = [
        ("id", one.id),
        ("name", _name(one)),
        ("state", one.state),
        ("template", one.template),
        ("cpus", str(one.vcpus)),
        ("memory", f"{one.ram_mib} MiB"),
        ("disk", f"{one.rootfs_gb} GiB"),
        ("created", f"{one.created_at}, {since(one.created_at)} ago"),
        ("expires", _when(one.expires_at)),
        ("expires if idle", _when(one.idle_expires_at)),
        ("persistent", "yes" if one.persistent else "no"),
        ("network", "open" if one.egress else "closed"),
        ("checkpoint each call", f"keeps {each['keep']}" if each else ""),
        ("memory used", f"{size(one.memory_private_bytes)}, shared {size(one.memory_shared_bytes)}"),
        ("parent", one.parent or ""),
        ("tree", f"{one.root}, depth {one.depth}" if one.raw.get("depth") else ""),
        ("score", f"{one.score:g}" if one.raw.get("score") is not None else ""),
        ("children", " ".join(one.children) + (" …" if one.children_more else "")),
        *((f"label {name}", value) for name, value in one.raw.get("labels", {}).items()),
        *_metadata(one.metadata),
    ]
    _print_fields(fields)


def one_checkpoint(one: CheckpointInfo, *, as_json: bool = False) -> None:
    """Prints what is known about a checkpoint, one field per line."""
    if as_json:
        print_json(dict(one.raw))
        return
    on_disk = f"{size(one.size_bytes)}, shared {size(one.shared_bytes)}"
    undone = ", undone" if one.undone else ""
    fields = [
        ("id", one.id),
        ("name", one.name or ""),
        ("state", one.state),
        ("template", one.template),
        ("memory", f"{one.ram_mib} MiB"),
        ("created", f"{one.created_at}, {since(one.created_at)} ago"),
        ("expires", "never, it is pinned" if one.pin else _when(one.expires_at)),
        ("on disk", on_disk),
        ("its deletion frees", "" if one.freed_bytes is None else size(one.freed_bytes)),
        ("sandbox", one.sandbox),
        ("parent", one.parent or ""),
        ("tree", f"{one.root}, depth {one.depth}"),
        ("after event", "" if one.call is None else f"{one.call}{undone}"),
        ("score", "" if one.score is None else f"{one.score:g}"),
        *((f"label {name}", value) for name, value in one.labels.items()),
        *_metadata(one.metadata),
    ]
    _print_fields(fields)


def _metadata(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((f"metadata {name}", json.dumps(value)) for name, value in metadata.items())


def _print_fields(fields: Iterable[tuple[str, str]]) -> None:
    for name, value in fields:
        if value:
            print(f"{plain(name)}: {plain(value)}")


def _when(time: str | None) -> str:
    return "never" if time is None else f"{time}, in {until(time)}"


def processes(
    found: Sequence[ProcessInfo], *, as_json: bool = False, quiet: bool = False
) -> None:
    """Prints processes and terminals, those that have ended included."""
    rows = (
        (
            short(one.id),
            one.state if one.running else f"exit {one.exit_code}",
            str(one.pid),
            one.user or "root",
            since(one.started_at),
            size(one.output_bytes),
            one.command,
        )
        for one in found
    )
    headers = ("ID", "STATE", "PID", "USER", "AGE", "OUTPUT", "COMMAND")
    raw = [vars(one) | {"state": one.state} for one in found]
    _show([one.id for one in found], raw, headers, rows, as_json=as_json, quiet=quiet)


def stats(client: Client, ids: Sequence[str], *, as_json: bool = False) -> None:
    """Prints what sandboxes use of the host at this moment."""
    found: list[tuple[str, Metrics]] = []
    for one in ids:
        try:
            found.append((one, client.get_metrics(one, limit=1)[-1]))
        except NotFound:
            if len(ids) == 1:
                raise  # of several, it has ended meanwhile
    rows = (
        (
            short(name),
            "-" if now.cpu_percent is None else f"{now.cpu_percent:.0f}%",
            f"{now.cpu_seconds:.1f} s",
            f"{size(now.memory_used_bytes)} / {size(now.memory_limit_bytes)}",
            f"{size(now.disk_layer_bytes)} / {size(now.disk_size_bytes)}",
            size(now.network_received_bytes),
            size(now.network_sent_bytes),
        )
        for name, now in found
    )
    headers = ("ID", "CPU", "CPU TIME", "MEMORY", "DISK", "RECEIVED", "SENT")
    raw = [{"id": name, **vars(now)} for name, now in found]
    names = [name for name, _ in found]
    _show(names, raw, headers, rows, as_json=as_json, quiet=False)


def spaces(client: Client, *, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the Spaces."""
    found = client.list_spaces()
    rows = (
        (
            short(one.id),
            one.state,
            one.template,
            f"{one.ram_mib} MiB",
            size(one.size_bytes),
            since(one.created_at),
        )
        for one in found
    )
    headers = ("ID", "STATE", "TEMPLATE", "MEMORY", "ON DISK", "AGE")
    raw = [one.raw for one in found]
    _show([one.id for one in found], raw, headers, rows, as_json=as_json, quiet=quiet)


def checkpoints(
    found: Sequence[CheckpointInfo], *, as_json: bool = False, quiet: bool = False
) -> None:
    """Prints checkpoints."""
    rows = (
        (
            short(one.id),
            one.state,
            short(one.sandbox),
            size(one.size_bytes),
            since(one.created_at),
            "pinned" if one.pin else until(one.expires_at),
            plain(one.name or "-"),
            _labels(one.labels),
        )
        for one in found
    )
    headers = ("ID", "STATE", "SANDBOX", "ON DISK", "AGE", "EXPIRES", "NAME", "LABELS")
    raw = [one.raw for one in found]
    _show([one.id for one in found], raw, headers, rows, as_json=as_json, quiet=quiet)


def history(found: Sequence[HistoryEntry], *, as_json: bool = False) -> None:
    """Prints what happened in a sandbox."""
    rows = (
        (
            str(one.n),
            since(one.time),
            one.kind,
            one.result or "-",
            "-" if one.seconds is None else f"{one.seconds:.3f} s",
            short(one.checkpoint),
            "undone" if one.undone else "-",
            _what(one),
        )
        for one in found
    )
    headers = ("N", "AGE", "KIND", "RESULT", "TIME", "CHECKPOINT", "UNDONE", "WHAT")
    _show([], [dict(one.raw) for one in found], headers, rows, as_json=as_json, quiet=False)


def _what(one: HistoryEntry) -> str:
    if one.kind == "fork":
        living = " ".join(map(short, one.children))
        return f"{one.n_children} made" + (f", of which live: {living}" if living else "")
    return one.code or one.name or one.source or "-"


def templates(client: Client, *, as_json: bool = False, quiet: bool = False) -> None:
    """Prints the templates."""
    found = client.templates()
    rows = (
        (
            one.name,
            one.state,
            str(one.vcpus),
            f"{one.ram_mib} MiB",
            f"{one.rootfs_gb} GiB",
            str(one.raw.get("why") or one.description),
        )
        for one in found
    )
    headers = ("NAME", "STATE", "CPUS", "MEMORY", "DISK", "DESCRIPTION")
    raw = [one.raw for one in found]
    _show([one.name for one in found], raw, headers, rows, as_json=as_json, quiet=quiet)


def ports(found: Sequence[PortShare], *, as_json: bool = False, quiet: bool = False) -> None:
    """Prints shared ports."""
    rows = ((str(one.port), "public" if one.public else "token", one.url) for one in found)
    raw = [vars(one) for one in found]
    headers = ("PORT", "ACCESS", "URL")
    _show([str(one.port) for one in found], raw, headers, rows, as_json=as_json, quiet=quiet)


def _show(
    names: Sequence[str],
    raw: Sequence[Any],
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Prints a list in one of three forms: names only, JSON, or a table."""
    if quiet:
        for name in names:
            print(name)
    elif as_json:
        print_json(raw)
    else:
        columns(headers, rows)


def _fields(one: SandboxInfo) -> tuple[str, ...]:
    return (
        one.state,
        one.template,
        str(one.vcpus),
        f"{one.ram_mib} MiB",
        since(one.created_at),
        until(one.expires_at),
        short(one.parent),
        _name(one) or "-",
    )


def _name(one: SandboxInfo) -> str:
    """Returns what `--name` has set. Metadata may have anything else there."""
    name = (one.raw.get("metadata") or {}).get("name")
    return name if isinstance(name, str) else ""


def _families(found: Sequence[Node]) -> tuple[list[Node], dict[str, list[Node]]]:
    """Returns the sandboxes without a listed parent, and the forks of each other one."""
    known = {one.id for one in found}
    roots: list[Node] = []
    forks: dict[str, list[Node]] = {}
    for one in found:
        if one.parent in known:
            forks.setdefault(str(one.parent), []).append(one)
        else:
            roots.append(one)
    return roots, forks


def _walk(found: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    """Yields each sandbox, after its parent, with the branches to draw before its id."""
    roots, forks = _families(found)
    waiting = [("", "", one) for one in reversed(roots)]
    while waiting:
        branch, below, one = waiting.pop()
        yield branch, one
        children = forks.get(one.id, [])
        for i in reversed(range(len(children))):
            last = i == len(children) - 1
            waiting.append(
                (
                    below + ("└─ " if last else "├─ "),
                    below + ("   " if last else "│  "),
                    children[i],
                )
            )


def _nested(found: Sequence[SandboxInfo]) -> list[dict[str, Any]]:
    roots, forks = _families(found)
    objects = {one.id: {**one.raw, "children": []} for one in found}
    for parent, children in forks.items():
        objects[parent]["children"] = [objects[child.id] for child in children]
    return [objects[one.id] for one in roots]
