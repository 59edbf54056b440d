# SPDX-License-Identifier: Apache-2.0
"""Adapters for agent frameworks. Import the one that you use: `ramet.integrations.NAME`."""
