#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the root of a clean Debian system as an archive, root.tar. Needs root.
#   packaging/chroot.sh SUITE PACKAGES OUTDIR
# PACKAGES, separated by commas, are installed beside the essential ones. They come from the archives
# that this machine's apt is configured for, and so do packages that are installed there later.
set -euo pipefail

die() { printf 'packaging: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 3 ]] || die "usage: packaging/chroot.sh SUITE PACKAGES OUTDIR"
[[ $(id -u) -eq 0 ]] || die "must be run as root"
here=$(dirname "$(realpath "$0")")

# shellcheck source=/dev/null
own=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
sources() { "$here/../rig/apt-mirror.sh" deb | sed "s/ $own\([- ]\)/ $1\1/"; }

mkdir -p "$3"
# In a mount namespace, so that a build that is killed leaves no /proc mounted in its folder.
unshare --mount mmdebstrap --quiet --mode=root --variant=minbase --format=tar --include="$2" \
	--dpkgopt=force-unsafe-io \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "5"' \
	"$1" "$3/root.tar" - < <(sources "$1")
