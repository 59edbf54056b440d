# SPDX-License-Identifier: Apache-2.0
"""The tests of ports, with a sandbox of another host of the fleet."""

from test_ports import *  # noqa: F403
from routed import *  # noqa: F403

# Its request ends before the other host has connected to the server.
del test_malformed_chunks_of_a_client_end_its_request  # noqa: F405
