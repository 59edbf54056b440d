# SPDX-License-Identifier: Apache-2.0
"""Which service to use, and with which key: from the environment, then from the file of `login`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ramet._transport import DEFAULT_HOST
from ramet.cli.failure import Failure



@dataclass(frozen=True)
class Settings:
    """The service to use.

    Attributes:
        host: Its base URL, without a slash at the end.
        api_key: The key; None: none.
        ca_file: PEM file of the certificates to trust; None: the public authorities.
        host_from: Where `host` comes from: "RAMET_HOST", a file's path, or "the default".
        key_from: Likewise for `api_key`; empty without a key.
    """

    host: str
    api_key: str | None
    ca_file: str | None
    host_from: str
    key_from: str


def path() -> Path:
    """Returns the path of the file that `ramet login` writes."""
    if named := os.environ.get("RAMET_CONFIG"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "ramet" / "config.json"


def load() -> Settings:
    """Returns the settings. The key of the file is used for the host of the file only.

    Raises:
        Failure: The file cannot be read.
    """
    saved = _read(path())
    host, host_from = _first(
        (os.environ.get("RAMET_HOST"), "RAMET_HOST"),
        (saved.get("host"), str(path())),
        (DEFAULT_HOST, "the default"),
    )
    host = host.rstrip("/")
    if host != str(saved.get("host", "")).rstrip("/"):
        saved = {}
    key, key_from = _first(
        (os.environ.get("RAMET_API_KEY"), "RAMET_API_KEY"), (saved.get("api_key"), str(path()))
    )
    ca_file = os.environ.get("RAMET_CA_FILE") or saved.get("ca_file")
    return Settings(host, key or None, ca_file, host_from, key_from)


def save(host: str, api_key: str | None, ca_file: str | None) -> Path:
    """Writes the file, readable by its owner only, and returns its path.

    Raises:
        OSError: The file cannot be written; an old one is unchanged.
    """
    at = path()
    at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fields = {"host": host.rstrip("/"), "api_key": api_key, "ca_file": ca_file}
    text = json.dumps({name: value for name, value in fields.items() if value}, indent=2) + "\n"
    part = at.with_name(f".{at.name}.{os.getpid()}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        os.replace(part, at)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return at


def _first(*choices: tuple[Any, str]) -> tuple[str, str]:
    return next(((str(value), source) for value, source in choices if value), ("", ""))


def _read(at: Path) -> dict[str, Any]:
    remedy = f"`ramet login` writes it again, after `rm {at}`"
    try:
        text = at.read_text()
        saved = json.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as broken:
        raise Failure(f"the settings in {at} cannot be read: {broken}", remedy) from broken
    if not isinstance(saved, dict):
        raise Failure(f"the settings in {at} are not a JSON object", remedy)
    if saved.get("api_key") and at.stat().st_mode & 0o077:
        print(f"ramet: warning: others can read the key in {at}: chmod 600 {at}", file=sys.stderr)
    return saved
