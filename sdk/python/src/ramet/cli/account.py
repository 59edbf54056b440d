# SPDX-License-Identifier: Apache-2.0
"""`ramet login`: saves the service's address and a key."""

from __future__ import annotations

import os
import sys

import click

from ramet import Unauthorized
from ramet.cli import settings
from ramet.cli.failure import Failure
from ramet.cli.service import connect


def login(host: str | None, *, from_input: bool = False, ca_file: str | None = None) -> None:
    """Asks for a key if the service needs one, checks it with the service, and saves it.

    Args:
        host: The service's address. None: the present one.
        from_input: Read the key from standard input, without a prompt.
        ca_file: PEM file of the certificates to trust.

    Raises:
        ConnectionFailed: No service answers. Nothing is saved.
        Unauthorized: The service does not accept the key. Nothing is saved.
    """
    now = settings.load()
    host = (host or now.host).rstrip("/")
    if not host.startswith(("http://", "https://")):
        raise Failure(f"{host} is not a URL", f"write https://{host}, or http:// if it has no TLS")
    ca_file = os.path.abspath(ca_file) if ca_file else now.ca_file
    key = None
    if _needs_key(host, ca_file):
        key = _read_key(host, from_input)
        with connect(settings.Settings(host, key, ca_file, "", "")) as client:
            client.templates()
    at = settings.save(host, key, ca_file)
    print(f"{host} " + ("accepts the key" if key else "needs no key") + f". Saved in {at}.")
    for name in ("RAMET_HOST", "RAMET_API_KEY"):
        if os.environ.get(name):
            print(f"ramet: warning: {name} is set, and takes precedence", file=sys.stderr)


def _needs_key(host: str, ca_file: str | None) -> bool:
    """Returns False for a service without keys, which would accept any."""
    variable = os.environ.pop("RAMET_API_KEY", None)  # which a client without a key would use
    try:
        with connect(settings.Settings(host, None, ca_file, "", "")) as client:
            client.templates()
    except Unauthorized:
        return True
    finally:
        if variable is not None:
            os.environ["RAMET_API_KEY"] = variable
    return False


def _read_key(host: str, from_input: bool) -> str:
    if from_input:
        key = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        key = str(click.prompt(f"API key for {host}", hide_input=True)).strip()
    else:
        raise Failure("standard input is not a terminal", "pass the key with --key-stdin")
    if not key:
        raise Failure(f"{host} needs a key, and none was given", "ask the operator for one")
    return key


def serve_mcp(arguments: list[str]) -> int:
    """Runs the MCP server, for the service in the settings; returns its exit code."""
    from ramet.mcp import main

    export()
    return main(arguments)


def export() -> None:
    """Puts the settings into the environment, for code that creates a client by itself."""
    place = settings.load()
    os.environ["RAMET_HOST"] = place.host
    if place.api_key:
        os.environ["RAMET_API_KEY"] = place.api_key
    if place.ca_file:
        os.environ["RAMET_CA_FILE"] = place.ca_file
