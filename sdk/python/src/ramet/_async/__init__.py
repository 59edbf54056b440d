# SPDX-License-Identifier: Apache-2.0
"""The asynchronous SDK, from which make_sync.py generates the synchronous one."""
