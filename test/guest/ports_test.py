# SPDX-License-Identifier: Apache-2.0
"""AGENT_DIAL: connections to TCP servers on this machine."""

import errno
import hashlib
import os
import socket
import struct
import threading
import unittest

from harness import DIAL, DONE, ERROR, PING, PONG, TIMEOUT, AgentTest

RELAYS_MAX = 128


def listener(family=socket.AF_INET):
    server = socket.socket(family)
    server.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
    server.listen(200)
    server.settimeout(TIMEOUT)
    return server


def until_end(sock):
    data = bytearray()
    while more := sock.recv(65536):
        data += more
    return bytes(data)


class PortsTest(AgentTest):
    def listen(self, family=socket.AF_INET):
        server = listener(family)
        self.addCleanup(server.close)
        return server

    def dial(self, port):
        client = self.connect()
        return client, client.ask(DIAL, struct.pack("<H", port))

    def connected(self, server):
        """Returns both ends of a new connection."""
        client, answer = self.dial(server.getsockname()[1])
        self.assertEqual(answer, (DONE, b""))
        peer, _ = server.accept()
        peer.settimeout(TIMEOUT)
        self.addCleanup(peer.close)
        return client.sock, peer

    def test_bytes_pass_in_both_directions(self):
        host, peer = self.connected(self.listen())
        host.sendall(b"a request")
        self.assertEqual(peer.recv(100), b"a request")
        peer.sendall(b"an answer")
        self.assertEqual(host.recv(100), b"an answer")

    def test_each_direction_ends_on_its_own(self):
        host, peer = self.connected(self.listen())
        host.sendall(b"all of it")
        host.shutdown(socket.SHUT_WR)
        self.assertEqual(until_end(peer), b"all of it")
        peer.sendall(b"still here")
        peer.close()
        self.assertEqual(until_end(host), b"still here")

    def test_the_server_may_end_first(self):
        host, peer = self.connected(self.listen())
        peer.sendall(b"bye")
        peer.shutdown(socket.SHUT_WR)
        self.assertEqual(until_end(host), b"bye")
        host.sendall(b"one more thing")
        host.close()
        self.assertEqual(until_end(peer), b"one more thing")

    def test_a_server_on_ipv6_only_is_reached(self):
        host, peer = self.connected(self.listen(socket.AF_INET6))
        peer.sendall(b"six")
        self.assertEqual(host.recv(100), b"six")

    def test_a_port_without_a_server_is_refused(self):
        server = self.listen()
        port = server.getsockname()[1]
        server.close()
        client, (kind, payload) = self.dial(port)
        self.assertEqual((kind, struct.unpack_from("<I", payload)[0]), (ERROR, errno.ECONNREFUSED))
        self.assertEqual(payload[8:].decode(), f"nothing listens on port {port} in the sandbox")
        self.assertEqual(until_end(client.sock), b"")

    def test_much_data_passes_unchanged_both_ways_at_once(self):
        host, peer = self.connected(self.listen())
        data = os.urandom(16 << 20)

        def echo():
            while part := peer.recv(100_000):
                peer.sendall(part)
            peer.shutdown(socket.SHUT_WR)

        def send():
            host.sendall(data)
            host.shutdown(socket.SHUT_WR)

        threads = [threading.Thread(target=work) for work in (echo, send)]
        for thread in threads:
            thread.start()
        back = until_end(host)
        for thread in threads:
            thread.join()
        self.assertEqual(hashlib.sha256(back).digest(), hashlib.sha256(data).digest())

    def test_a_server_that_reads_nothing_stops_the_host(self):
        host, _ = self.connected(self.listen())
        host.setblocking(False)
        sent = 0
        with self.assertRaises(BlockingIOError):
            while sent < 256 << 20:
                sent += host.send(bytes(65536))
                self.assertEqual(self.client.ask(PING)[0], PONG)  # others are served meanwhile

    def test_the_server_sees_the_host_leave(self):
        host, peer = self.connected(self.listen())
        host.close()
        self.assertEqual(until_end(peer), b"")

    def test_the_host_may_leave_while_it_connects(self):
        server = self.listen()
        for _ in range(20):
            client = self.connect()
            client.send(DIAL, struct.pack("<H", server.getsockname()[1]))
            client.close()
        self.connected(server)

    def test_too_many_connections_are_refused_until_one_ends(self):
        server = self.listen()
        ends = [self.connected(server) for _ in range(RELAYS_MAX)]
        client, (kind, payload) = self.dial(server.getsockname()[1])
        self.assertEqual((kind, struct.unpack_from("<I", payload)[0]), (ERROR, errno.EAGAIN))
        for host, peer in ends:
            host.close()
            self.assertEqual(until_end(peer), b"")
        self.connected(server)

    def test_malformed_requests_end_the_connection(self):
        for payload in (b"", b"\x01", struct.pack("<H", 0), b"\x01\x02\x03"):
            client = self.connect()
            client.send(DIAL, payload)
            with self.assertRaises((EOFError, ConnectionResetError)):
                client.recv()


if __name__ == "__main__":
    unittest.main()
