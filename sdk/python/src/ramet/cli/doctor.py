# SPDX-License-Identifier: Apache-2.0
"""`ramet doctor`: checks everything between this machine and a first call in a sandbox."""

from __future__ import annotations

import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Callable, Iterator
from urllib.parse import urlsplit

from ramet import Client, ConnectionFailed, RametError, Sandbox, __version__
from ramet._wire import trusting
from ramet.cli import settings
from ramet.cli.failure import Failure, remedy_of
from ramet.cli.output import plain, print_json
from ramet.cli.service import connect


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: The subject, such as "key".
        ok: Whether all is well.
        text: The finding.
        remedy: What to do; empty if all is well.
    """

    name: str
    ok: bool
    text: str
    remedy: str = ""


class _Wrong(Exception):
    """A check failed.

    Args:
        text: The finding.
        remedy: What to do.
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def run(*, as_json: bool = False) -> bool:
    """Prints the report; returns True if all is well. The first failure ends it, since everything
    after it would fail for the same reason."""
    done: list[Check] = []
    for check in checks():
        done.append(check)
        if not as_json:
            _print(check)
    if as_json:
        print_json([asdict(check) for check in done])
    return all(check.ok for check in done)


def checks() -> Iterator[Check]:
    """Yields the checks as they are made, up to the first that fails."""
    for name, make in _steps():
        try:
            yield Check(name, True, make())
        except _Wrong as wrong:
            yield Check(name, False, str(wrong), wrong.remedy)
            return
        except (RametError, Failure) as failed:
            subject = "tls" if "SSL: " in str(failed) else name
            yield Check(subject, False, str(failed), _remedy(failed))
            return


def _remedy(failed: RametError | Failure) -> str:
    """Returns what to do, which is never to run this report."""
    if not isinstance(failed, ConnectionFailed):
        return remedy_of(failed)
    if "SSL: WRONG_VERSION_NUMBER" in str(failed):
        return "the service has no TLS there: write http:// instead of https://; " + _address()
    if "CERTIFICATE_VERIFY_FAILED" in str(failed):
        return "`ramet login URL --ca-file FILE` trusts a certificate of your own"
    return _address()


def _steps() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "settings", _settings
    place = settings.load()
    yield "host", lambda: _reach(place.host)
    with connect(place) as client:
        yield "key", lambda: _key(client, place)
        yield "versions", lambda: _versions(client)
        yield "templates", lambda: _templates(client)
        yield "service", lambda: _healthy(client)
        yield "sandbox", lambda: _first_call(client)


def _settings() -> str:
    place = settings.load()
    if place.ca_file:
        try:
            trusting(place.ca_file)
        except ConnectionFailed as failed:
            remedy = "`ramet login URL --ca-file FILE` or RAMET_CA_FILE names another file"
            raise _Wrong(str(failed), remedy) from failed
    key = f"key from {place.key_from}" if place.api_key else "no key"
    return f"{place.host} from {place.host_from}, {key}"


def _reach(host: str) -> str:
    try:
        url = urlsplit(host)
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError as wrong:
        raise _Wrong(f"{host} is not a URL: {wrong}", _address()) from wrong
    if url.scheme not in ("http", "https") or not url.hostname:
        raise _Wrong(f"{host} is not a URL", _address())
    begin = time.monotonic()
    try:
        socket.create_connection((url.hostname, port), timeout=5).close()
    except socket.gaierror as failed:
        message = f"the name {url.hostname} is unknown: {failed.strerror}"
        raise _Wrong(message, _address()) from failed
    except OSError as failed:
        raise _Wrong(
            f"nothing answers at {url.hostname}, port {port}: {failed}",
            "start the service, with `./dev up`, or `systemctl start ramet` on its machine; "
            "if it runs, a firewall may block the port; " + _address(),
        ) from failed
    return f"{url.hostname}, port {port}, answers in {_ms(begin)}"


def _address() -> str:
    return "`ramet login https://HOST` or RAMET_HOST set another address"


def _versions(client: Client) -> str:
    theirs = client.version()
    if theirs.split(".")[:2] != __version__.split(".")[:2]:
        raise _Wrong(
            f"the service has version {theirs}, this program {__version__}",
            f"install version {theirs} of this program, from the service's checkout",
        )
    return f"service {theirs}, this program {__version__}"


def _key(client: Client, place: settings.Settings) -> str:
    next(client.iter_sandboxes(), None)
    return "accepted" if place.api_key else "none is needed"


def _templates(client: Client) -> str:
    found = client.templates()
    if not found:
        raise _Wrong("the service has no templates", "the operator's guide says how to build one")
    first = found[0]
    if first.state != "ready":
        why = first.raw.get("why")
        raise _Wrong(
            f"the default template {first.name} is not ready: it is {first.state}"
            + (f", {why}" if why else ""),
            "the operator must repair it" if first.state == "failed" else "wait a minute",
        )
    return f"{first.name} is ready" + (f", and {len(found) - 1} more exist" if found[1:] else "")


def _healthy(client: Client) -> str:
    if not client.healthz():
        raise _Wrong(
            "the service cannot create a sandbox now",
            "`rametctl checks` on its machine says what is missing; try again in a minute",
        )
    return "ready for a sandbox"


def _first_call(client: Client) -> str:
    begin = time.monotonic()
    with Sandbox(client=client) as sandbox:
        created = _ms(begin)
        begin = time.monotonic()
        result = sandbox.run_code("print(6 * 7)")
        if result.stdout != "42\n":
            raise _Wrong(
                f"a call in {sandbox.id} printed {result.stdout!r} and {result.stderr!r}",
                "tell the operator of the service, with this line",
            )
        return f"created in {created}, ran Python in {_ms(begin)}"


def _ms(begin: float) -> str:
    return f"{(time.monotonic() - begin) * 1000:.0f} ms"


def _print(check: Check) -> None:
    mark, colour = ("ok", "32") if check.ok else ("FAILED", "31")
    if sys.stdout.isatty():
        mark = f"\x1b[{colour}m{mark}\x1b[0m" + " " * (6 - len(mark))
    print(f"{mark:<6} {check.name:<9} {plain(check.text)}", flush=True)
    for part in check.remedy.split("; ") if check.remedy else ():
        print(f"       {'':<9} {part}", flush=True)
