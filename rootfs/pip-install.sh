#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Install Python packages into a tree with the tree's own pip. Called by build.sh.
#   rootfs/pip-install.sh ROOT REQUIREMENTS
# Of requirements that have hashes, only wheels with these hashes are installed, and
# RAMET_FETCHED/wheels keeps them. The package index, name servers and certificates are
# this machine's; none of them stays in the tree.
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
pip() { # COMMAND OPTION…
	env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/tmp/pip/pip.conf PIP_CERT=/tmp/pip/certificates.pem \
		REQUESTS_CA_BUNDLE=/tmp/pip/certificates.pem chroot "$root" \
		python3 -m pip "$@" --quiet --no-cache-dir --requirement /tmp/pip/requirements.txt
}

options=()
if grep -q -- --hash= "$requirements"; then
	wheels=${RAMET_FETCHED:-$borrowed}/wheels
	mkdir -p "$wheels"
	[[ $wheels == "$borrowed/wheels" ]] || cp -a "$wheels" "$borrowed/"
	pip download --only-binary=:all: --dest /tmp/pip/wheels # what the folder lacks
	[[ $wheels == "$borrowed/wheels" ]] || cp -an "$borrowed/wheels/." "$wheels/"
	# Also what the distribution's packages installed already, since pip cannot replace it.
	options=(--no-index --find-links /tmp/pip/wheels --ignore-installed)
fi
pip install --break-system-packages --root-user-action=ignore --no-compile "${options[@]}"

# Compile on all CPUs, which pip does not. Nobody imports the packages' own tests.
# shellcheck disable=SC2016 # the tree's shell expands it
chroot "$root" sh -c 'python3 -m compileall -q -j 0 -x "/tests?/" \
	"$(python3 -c "import sysconfig; print(sysconfig.get_path(\"purelib\"))")"'
