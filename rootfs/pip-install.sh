#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Install Python packages into a tree with the tree's own pip. Called by build.sh.
#   rootfs/pip-install.sh ROOT REQUIREMENTS
# The package index, name servers and certificates are this machine's; none of
# them stays in the tree.
set -euo pipefail

root=$1 requirements=$2
borrowed=$root/tmp/pip
mkdir -p "$borrowed"
trap 'rm -rf "$borrowed"' EXIT

cp "$requirements" "$borrowed/requirements.txt"
: >"$borrowed/pip.conf"
for config in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" /etc/pip.conf; do
	[[ ! -s $config ]] || { cp "$config" "$borrowed/pip.conf" && break; }
done
cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$borrowed/certificates.pem"

# mmdebstrap provides this machine's /etc/resolv.conf during the build. pip prefers
# REQUESTS_CA_BUNDLE to its own setting, and this machine's paths do not exist in the tree.
env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/tmp/pip/pip.conf PIP_CERT=/tmp/pip/certificates.pem \
	REQUESTS_CA_BUNDLE=/tmp/pip/certificates.pem chroot "$root" \
	python3 -m pip install --quiet --no-cache-dir --break-system-packages \
	--requirement /tmp/pip/requirements.txt
