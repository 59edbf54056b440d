# SPDX-License-Identifier: Apache-2.0
"""The tests of files, with a sandbox of another host of the fleet."""

from test_files import *  # noqa: F403
from routed import *  # noqa: F403
