# SPDX-License-Identifier: Apache-2.0
"""`python -m ramet.cli`: the same as `ramet`."""

from ramet.cli import main

main()
