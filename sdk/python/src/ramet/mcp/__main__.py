# SPDX-License-Identifier: Apache-2.0
"""`python -m ramet.mcp` is the program `ramet-mcp`."""

import sys

from ramet.mcp import main

sys.exit(main())
