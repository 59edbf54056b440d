# SPDX-License-Identifier: Apache-2.0
"""The routes of the API's specification, with what a request to any of them needs."""

from __future__ import annotations

import re
from typing import Any, Callable

import httpx

# The body of each route that needs one, by the last part of its path.
BODIES: dict[str, Any] = {
    "exec": {"code": "print(1)"},
    "fork": {"n": 1},
    "prune": {"keep": 1},
    "rollback": {"checkpoint": "chk_" + "f" * 32},
    "{other}": {"paths": ["/tmp"]},
    "merge-files": {"branches": ["sbx_" + "1" * 32], "base": "sbx_" + "2" * 32},
    "pty": {"argv": ["true"]},
    "read": {"since_seq": 0, "max_bytes": 1, "timeout_ms": 1},
    "input": {"data_b64": ""},
    "resize": {"cols": 80, "rows": 24},
    "processes": {"argv": ["true"]},
    "contexts": {"language": "bash"},
    "signal": {"signal": "CONT"},
    "keys": {"name": "a test", "tier": "free"},
    "{key}": {"tier": "free"},
    "rotate": {"grace_seconds": 60},
}
QUERY = {"path": "/tmp/x", "to": "/tmp/y", "mode": "700", "offset": "0"}

# How the ids that stand in paths begin; all others are ids of sandboxes.
KINDS = {"pty": "pty", "process": "prc", "context": "ctx", "space": "spc", "checkpoint": "chk"}


def routes(http: httpx.Client, *methods: str) -> list[tuple[str, str]]:
    """Returns method and path of each route that has one of the methods."""
    paths = http.get("/v1/openapi.json").json()["paths"]
    return [(method, path) for path, item in paths.items() for method in methods if method in item]


def body_of(path: str) -> Any:
    return BODIES.get(path.rpartition("/")[2])


def kinds_of(path: str) -> list[str]:
    """Returns the kind of each id in the path. A port, a path on its server, and a key are none."""
    names: list[str] = re.findall(r"{(\w+)}", path)
    return [KINDS.get(name, "sbx") for name in names if name not in ("port", "path", "key")]


def with_ids(path: str, id_of: Callable[[str], str]) -> str:
    """Returns the path with an id for each name in it: `id_of` gets the kinds in their order."""
    path = path.replace("{port}", "80").replace("{path}", "x").replace("{key}", "key_" + 16 * "0")
    return re.sub(r"{(\w+)}", lambda found: id_of(KINDS.get(found[1], "sbx")), path)
