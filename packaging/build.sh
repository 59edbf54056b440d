#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian packages in a clean root. Needs root.
#   packaging/build.sh ROOT_TAR SUFFIX PROFILES INPUT OUTDIR [again]
# ROOT_TAR is an archive that chroot.sh made. SUFFIX is added to the version ("~deb12"), since the
# packages of two releases of Debian differ. PROFILES are build profiles, "noguest" or "nopython", or
# empty. INPUT has h2o/, the source of the HTTP library, and guest/ unless the profile is noguest. OUTDIR
# receives the packages, and the wheel if python3-ramet is built. The build reaches no network. The same
# tree and inputs give the same bytes; "again" builds with another umask, time zone and number of jobs, to
# prove it.
set -euo pipefail

die() { printf 'packaging: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 5 || ($# -eq 6 && $6 == again) ]] ||
	die "usage: packaging/build.sh ROOT_TAR SUFFIX PROFILES INPUT OUTDIR [again]"
[[ $(id -u) -eq 0 ]] || die "must be run as root"
root_tar=$(realpath "$1") suffix=$2 profiles=$3 input=$(realpath "$4") out=$(realpath -m "$5")
top=$(dirname "$(dirname "$(realpath "$0")")")

work=$(mktemp -d "${TMPDIR:-/var/tmp}/ramet-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
tar -xf "$root_tar" -C "$work"
src=$work/build/ramet
mkdir -p "$src"

# The files of the tree as they are now, also those that are not committed yet.
git -c "safe.directory=$top" -C "$top" ls-files -z --cached --others --exclude-standard |
	tar -C "$top" --null --ignore-failed-read -T - -c 2>/dev/null | tar -xC "$src"
cp -r "$src/packaging/debian" "$src/debian"
mkdir -p "$src/debian/input/guest"
cp -r "$input/h2o" "$src/debian/input/"
sed -i "1s/)/$suffix)/" "$src/debian/changelog"

# Its own namespaces: no network, and no mount that remains.
# shellcheck disable=SC2016 # the arguments are those of the inner one
enter='mount --bind -o ro "$2/guest" "$1/build/ramet/debian/input/guest"; exec chroot "$1" /bin/bash -euo pipefail -s "$3" "$4"'
unshare --mount --pid --net --fork bash -ec "$enter" bash "$work" "$input" "$profiles" "${6:-}" <<'BUILD'
mount -t proc proc /proc
cd /build/ramet
jobs=$(nproc)
if [[ -n $2 ]]; then
	umask 077
	export TZ=UTC-11
	jobs=$((jobs + 1))
fi
export LC_ALL=C.UTF-8 HOME=/nonexistent DEB_BUILD_OPTIONS="parallel=$jobs noautodbgsym" DEB_BUILD_PROFILES=$1
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -S Timestamp)
export SOURCE_DATE_EPOCH
dpkg-buildpackage --build=binary --no-sign --no-check-builddeps
if [[ " $1 " != *" nopython "* ]]; then
	rm -rf sdk/python/build sdk/python/src/*.egg-info
	umask 022 # a wheel has the modes of the files
	(cd sdk/python && python3 -m build --wheel --no-isolation --outdir /build)
fi
cd /build
# The maintainers have no public address.
lintian --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog --fail-on error --info --tag-display-limit 0 ./*.changes >lintian.txt 2>&1 ||
	{ cat lintian.txt; exit 1; }
dpkg-query -W -f '${Package}\t${Version}\n' >installed.txt
BUILD

mkdir -p "$out"
find "$work/build" -maxdepth 1 -type f \( -name '*.deb' -o -name '*.whl' \) -exec mv -t "$out" {} +
mv "$work/build/lintian.txt" "$work/build/installed.txt" "$out"
