# SPDX-License-Identifier: Apache-2.0
"""The network of real guests.

A network namespace on the host with a few servers plays the outside world, so that no test needs
the internet. VMs may reach its address `OUTSIDE`, but not its addresses of `PRIVATE`.
"""

from __future__ import annotations

import json
import textwrap
from contextlib import ExitStack
from typing import Iterator

import httpx
import pytest

import ramet
from conftest import bash, on_host, output, put_on_host, until, vm_of
from ramet import Client, Sandbox

OUTSIDE = "203.0.113.1"
HOST = "203.0.113.254"  # the host's address on the link to the outside
OUTSIDE6, HOST6 = "2a00:ffff::1", "2a00:ffff::fe"
PRIVATE = ["10.9.9.9", "172.16.9.9", "192.168.9.9", "100.64.9.9", "169.254.169.254"]
GUEST = "192.168.252.2"
GATEWAY = "192.168.252.1"

# TCP 80 sends the client's address, then echoes. UDP 9 writes each datagram to a file. UDP 53
# answers each query for a name with OUTSIDE, and writes the name to another file.
SERVER = f"""
import socket, socketserver, sys, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall((self.client_address[0] + "\\n").encode())
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Note(socketserver.BaseRequestHandler):
    def handle(self):
        with open("/run/ramet-test/heard", "a") as f:
            f.write(self.request[0].decode() + "\\n")
        self.request[1].sendto(b"heard", self.client_address)
class Name(socketserver.BaseRequestHandler):
    def handle(self):
        question, labels = self.request[0], []
        at = 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = question[at + 1 : at + 3]
        with open("/run/ramet-test/asked", "a") as f:
            f.write(".".join(labels) + "\\n")
        answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4" + socket.inet_aton("{OUTSIDE}")
        count = 1 if kind == b"\\0\\1" else 0
        head = question[:2] + b"\\x81\\x80\\0\\1\\0" + bytes([count]) + b"\\0\\0\\0\\0"
        self.request[1].sendto(head + question[12 : at + 5] + answer * count, self.client_address)
class Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 64
class Threads6(Threads):
    address_family = socket.AF_INET6
    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()
servers = [Threads(("", 80), Echo), Threads6(("", 80), Echo), socketserver.UDPServer(("", 9), Note),
           socketserver.UDPServer((sys.argv[1], 53), Name)]
for s in servers:
    threading.Thread(target=s.serve_forever, daemon=True).start()
open("/run/ramet-test/ready", "w").close()
threading.Event().wait()
"""


def resolver() -> str:
    """Returns the address of the host's name server, which the outside world takes over."""
    first = on_host("grep -m1 ^nameserver /etc/resolv.conf").split()
    return first[1]


@pytest.fixture(scope="module")
def world() -> Iterator[None]:
    """The outside world: a network namespace on the host."""
    dns = resolver()
    add = " && ".join(f"ip -n ramet-test addr add {a}/32 dev out1" for a in [*PRIVATE, dns])
    on_host(
        "kill -9 $(ip netns pids ramet-test 2>/dev/null) 2>/dev/null; ip netns del ramet-test 2>/dev/null; "
        "ip link del ramet-out 2>/dev/null; rm -rf /run/ramet-test; mkdir /run/ramet-test && "
        "ip netns add ramet-test && "
        "ip link add ramet-out type veth peer name out1 netns ramet-test && "
        f"ip addr add {HOST}/24 dev ramet-out && ip link set ramet-out up && "
        f"ip -n ramet-test addr add {OUTSIDE}/24 dev out1 && {add} && "
        f"ip addr add {HOST6}/64 dev ramet-out nodad && "
        f"ip -n ramet-test addr add {OUTSIDE6}/64 dev out1 nodad && "
        "ip -n ramet-test link set lo up && ip -n ramet-test link set out1 up && "
        + " && ".join(f"ip route add {a}/32 via {OUTSIDE}" for a in [*PRIVATE, dns])
    )
    put_on_host("/run/ramet-test/server.py", SERVER.encode())
    on_host(
        f"setsid ip netns exec ramet-test python3 /run/ramet-test/server.py {dns} "
        "</dev/null >/run/ramet-test/log 2>&1 & echo $! >/run/ramet-test/pid"
    )
    until(lambda: "ready" in on_host("ls /run/ramet-test"))
    yield
    on_host(
        "kill $(ip netns pids ramet-test); ip netns del ramet-test; ip link del ramet-out; "
        "rm -rf /run/ramet-test"
    )


@pytest.fixture(scope="module")
def box(world: None, client: Client) -> Iterator[Sandbox]:
    """One sandbox for all tests that leave it unchanged."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


def python(sbx: Sandbox, code: str) -> str:
    return output(sbx, textwrap.dedent(code))


def dial(sbx: Sandbox, address: str, port: int = 80) -> str:
    """Connects over TCP; returns the first data received, or "error" and the name of the error."""
    return python(
        sbx,
        f"""
        import errno, socket
        try:
            with socket.create_connection(({address!r}, {port}), timeout=30) as s:
                print(s.recv(100).decode().strip(), end="")
        except OSError as e:
            print("error", errno.errorcode.get(e.errno, e), end="")
        """,
    )


def say(sbx: Sandbox, text: str) -> None:
    """Sends one datagram to the outside; it may be dropped."""
    python(
        sbx,
        f"""
        import socket
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto({text!r}.encode(), ({OUTSIDE!r}, 9))
        """,
    )


def heard() -> list[str]:
    return on_host("cat /run/ramet-test/heard 2>/dev/null || true").split("\n")


def dropped() -> int:
    """Returns how many packets of VMs without egress the host has dropped."""
    rules = on_host("nft list chain inet ramet first")
    return int(rules.split("@no_egress counter packets ")[1].split()[0])


def slot_of(sbx: Sandbox) -> int:
    return int(vm_of(sbx)[0])


def links() -> int:
    """Returns the number of VM links on the host."""
    return sum(name.startswith("rt") for name in on_host("ls /sys/class/net").split())


# --- reachable destinations ---


def test_address_and_route_exist_at_once(world: None, client: Client) -> None:
    with Sandbox(client=client) as sbx:
        facts = bash(sbx, "ip -4 -o addr show dev eth0; ip route; cat /etc/resolv.conf")
    assert f"inet {GUEST}/30" in facts
    assert f"default via {GATEWAY} dev eth0" in facts
    assert f"nameserver {GATEWAY}" in facts


@pytest.mark.smoke
def test_outside_sees_the_address_of_the_host(box: Sandbox) -> None:
    assert dial(box, OUTSIDE) == HOST


def test_ipv6_works_if_the_host_has_it(box: Sandbox) -> None:
    facts = bash(box, "ip -6 addr show dev eth0 scope global; ip -6 route")
    if "default" not in on_host("ip -6 route"):
        assert "default" not in facts
        pytest.skip("this host has no default route of IPv6")
    assert "fd52:616d:6574::" in facts.replace(":0:", "::") and "default via fe80::" in facts
    assert dial(box, OUTSIDE6) == HOST6
    assert dial(box, "fd52:616d:6574:ff00::", 22).startswith("error")


def test_names_are_resolved(box: Sandbox) -> None:
    found = python(box, "import socket; print(socket.gethostbyname('some.example'), end='')")
    assert found == OUTSIDE
    assert "some.example" in on_host("cat /run/ramet-test/asked")


def test_a_megabyte_is_echoed_completely(box: Sandbox) -> None:
    same = python(
        box,
        f"""
        import os, socket, threading
        data, got = os.urandom(1 << 20), b""
        with socket.create_connection(({OUTSIDE!r}, 80)) as s:
            while not got.endswith(b"\\n"):
                got += s.recv(1)
            sender = threading.Thread(target=s.sendall, args=(data,))
            sender.start()
            back = bytearray()
            while len(back) < len(data):
                back += s.recv(65536)
            sender.join()
        print(bytes(back) == data, end="")
        """,
    )
    assert same == "True"


# --- blocked destinations ---


@pytest.mark.smoke
def test_private_ranges_are_unreachable(box: Sandbox) -> None:
    dial_all = (
        "import socket\n"
        f"for address in {PRIVATE}:\n"
        "    try:\n"
        "        socket.create_connection((address, 80), 30).close()\n"
        "        print('reached', address)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    put_on_host("/run/ramet-test/dial.py", dial_all.encode())
    from_host = on_host("python3 /run/ramet-test/dial.py")
    assert from_host.splitlines() == [f"reached {address}" for address in PRIVATE]
    assert output(box, dial_all) == ""


def test_host_is_unreachable(box: Sandbox) -> None:
    on_host(
        "setsid python3 -m http.server 8099 --bind 0.0.0.0 </dev/null >/dev/null 2>&1 & "
        "echo $! >/run/ramet-test/http"
    )
    try:
        probe = "python3 -c \"import socket; socket.create_connection(('%s', 8099), 10)\"; echo $?"
        until(lambda: on_host(probe % HOST + " 2>&1").endswith("0\n"))
        links = [
            a["local"]
            for link in json.loads(on_host("ip -j -4 addr"))
            for a in link["addr_info"]
            if link["ifname"] != "lo"
        ]
        assert HOST in links
        for address in [GATEWAY, *links[:6]]:
            assert dial(box, address, 8099).startswith("error"), address
    finally:
        on_host("kill $(cat /run/ramet-test/http)")


@pytest.mark.alone
def test_sandboxes_cannot_reach_each_other(box: Sandbox, client: Client) -> None:
    with Sandbox(client=client) as other:
        python(
            other,
            """
            import socket, threading
            server = socket.create_server(("", 80))
            def serve():
                while True:
                    server.accept()[0].sendall(b"come in")
            threading.Thread(target=serve, daemon=True).start()
            """,
        )
        assert dial(other, GUEST) == "come in"  # its own address
        slot = slot_of(other)
        for address in (f"10.251.0.{2 * slot + 1}", f"10.251.0.{2 * slot}"):
            assert dial(box, address).startswith("error")


# --- egress ---


@pytest.mark.smoke
@pytest.mark.alone
def test_sandbox_without_egress_sends_nothing(
    box: Sandbox, client: Client, http: httpx.Client
) -> None:
    with ExitStack() as stack:
        closed = stack.enter_context(Sandbox(client=client, egress=False))
        child = stack.enter_context(closed.fork()[0])
        for sbx in (closed, child):
            assert http.get(f"/v1/sandboxes/{sbx.id}").json()["egress"] is False
        for sbx in (closed, child):
            before = dropped()
            say(sbx, "from the closed one")
            python(
                sbx,
                f"""
                import socket
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    q = b"\\1\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6closed\\0\\0\\1\\0\\1"
                    s.sendto(q, ({GATEWAY!r}, 53))
                """,
            )
            until(lambda: dropped() >= before + 2)
        say(box, "from the open one")
        until(lambda: "from the open one" in heard())
    assert "from the closed one" not in heard()
    assert "closed" not in on_host("cat /run/ramet-test/asked 2>/dev/null || true").split()


@pytest.mark.alone
def test_egress_is_closed_in_a_running_sandbox(client: Client, world: None) -> None:
    with Sandbox(client=client) as sbx:
        child = sbx.fork()[0]
        for each in (sbx, child):
            say(each, "from the still open " + each.id)
            until(lambda: "from the still open " + each.id in heard())
        assert sbx.update(egress=False).raw["egress"] is False
        before = dropped()
        say(sbx, "from the closed one")
        until(lambda: dropped() >= before + 1)
        say(child, "from the open child")
        until(lambda: "from the open child" in heard())
        sbx.merge_into(child)
        assert sbx.info().raw["egress"] is False
        before = dropped()
        say(sbx, "from the closed one")
        until(lambda: dropped() >= before + 1)
        with pytest.raises(ramet.Conflict, match="can't be opened again"):
            sbx.update(egress=True)
    assert "from the closed one" not in heard()


# --- spoofing ---


def test_spoofed_addresses_are_dropped(box: Sandbox) -> None:
    python(
        box,
        f"""
        import socket, struct
        own = bytes.fromhex("0252414d4554")
        gateway = bytes.fromhex("0252414d4501")
        def checksum(data):
            total = sum(struct.unpack(f"!{{len(data) // 2}}H", data))
            total = (total & 0xffff) + (total >> 16)
            return ~((total & 0xffff) + (total >> 16)) & 0xffff
        def frame(mac, source, text):
            udp = struct.pack("!HHHH", 7, 9, 8 + len(text), 0) + text
            head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
            ends = socket.inet_aton(source) + socket.inet_aton({OUTSIDE!r})
            head = head[:10] + struct.pack("!H", checksum(head + ends)) + ends
            return gateway + mac + b"\\x08\\0" + head + udp
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
            s.bind(("eth0", 0))
            s.send(frame(own, "192.168.252.6", b"false address"))
            s.send(frame(own, "203.0.113.9", b"false address"))
            s.send(frame(bytes.fromhex("020000000066"), {GUEST!r}, b"false mac"))
            s.send(frame(own, {GUEST!r}, b"honest"))
        """,
    )
    until(lambda: "honest" in heard())
    assert not {"false address", "false mac"} & set(heard())


# --- forks ---


# Runs in a child or resumed sandbox, whose connections were reset.
TRY_CONNECTION = """
    try:
        s.sendall(b"from another")
        print("got", s.recv(100), end="")
    except OSError as e:
        print(type(e).__name__, end="")
"""
LOST = ("ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError")


@pytest.mark.smoke
def test_fork_and_resume_keep_the_address_and_reset_connections(
    world: None, client: Client
) -> None:
    with ExitStack() as stack:
        parent = stack.enter_context(Sandbox(client=client))
        python(
            parent,
            f"""
            import socket
            s = socket.create_connection(({OUTSIDE!r}, 80), timeout=60)
            seen = s.makefile().readline()
            s.sendall(b"before")
            assert s.recv(100) == b"before"
            """,
        )
        children = [stack.enter_context(child) for child in parent.fork(2)]
        for child in children:
            assert python(child, TRY_CONNECTION) in LOST
        assert python(parent, "s.sendall(b'after'); print(s.recv(100), end='')") == "b'after'"
        resumed = stack.enter_context(Sandbox.resume(parent.freeze().id, client=client))
        assert python(resumed, TRY_CONNECTION) in LOST
        for sbx in (resumed, *children):
            assert f"inet {GUEST}/30" in bash(sbx, "ip -4 -o addr show dev eth0")
            assert dial(sbx, OUTSIDE) == HOST


# --- quiet ---


def test_host_sends_an_idle_guest_nothing(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        devices = on_host(f"cat /proc/{vm_of(sbx)[1]}/net/dev")
        (tap,) = (line.split() for line in devices.splitlines() if "tap0:" in line)
        assert tap[10] == "0", devices  # packets sent


# --- cleanup ---


@pytest.mark.alone
def test_links_without_a_vm_are_bounded(world: None, client: Client) -> None:
    with Sandbox(client=client) as sbx:
        assert dial(sbx, OUTSIDE) == HOST
    taken = len(on_host("pidof ramet-vmm").split())
    until(lambda: links() - taken <= 64 + 2)
    assert "rt" not in on_host("nft list set inet ramet no_egress | grep elements || true")
