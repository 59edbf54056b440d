#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Download and unpack a source package of the distribution.
#   rig/apt-source.sh PACKAGE=VERSION DESTDIR [SHA256SUMS]
# DESTDIR receives the unpacked tree itself. SHA256SUMS is a file as sha256sum
# writes it; the package's files must match it. The archive is taken from this
# machine's own apt sources, whose signatures are checked; its configuration
# and its lists are not touched.
set -euo pipefail

die() { printf 'apt-source: %s\n' "$*" >&2; exit 1; }

[[ $# -ge 2 && $# -le 3 && $1 == ?*=?* ]] ||
	die "usage: rig/apt-source.sh PACKAGE=VERSION DESTDIR [SHA256SUMS]"
package=$1
dest=$(realpath -m "$2")
sums=${3:+$(realpath "$3")}
here=$(dirname "$(realpath "$0")")

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/src"

"$here/apt-mirror.sh" deb-src >"$tmp/sources.list"

apt=(apt-get -qq -o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=-
	-o "Dir::State::lists=$tmp/lists" -o "Dir::Cache=$tmp/cache"
	-o Acquire::Languages=none -o Acquire::Retries=3)
# The unprivileged user that apt downloads as cannot enter a private directory.
[[ $(id -u) -ne 0 ]] || apt+=(-o APT::Sandbox::User=root)

"${apt[@]}" update >&2 || die "the source lists of the distribution could not be read"
(cd "$tmp/src" && "${apt[@]}" source --download-only "$package" >&2) ||
	die "source package $package could not be downloaded"

[[ -z $sums ]] || (cd "$tmp/src" && sha256sum --check --strict --quiet "$sums" >&2) ||
	die "the files of source package $package are not those in $sums"

rm -rf "$dest"
mkdir -p "$(dirname "$dest")"
dpkg-source --no-check -x "$tmp"/src/*.dsc "$dest" >/dev/null ||
	die "source package $package could not be unpacked"
