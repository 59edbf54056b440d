#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make matplotlib's list of fonts for both users of a tree, which otherwise takes seconds
# of each user's first plot. Called by build.sh.
#   rootfs/fonts.sh ROOT
set -euo pipefail

for user in root user; do
	chroot "$1" su "$user" -c 'python3 -c "import matplotlib.font_manager"'
done
