#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Unpack QEMU with all the libraries it needs, without installing it. Needs root.
#   rig/qemu.sh OUTDIR
# OUTDIR receives the tree and `run`, which starts it. The version of backports
# is preferred: before 8.1 a processor of the guest may go on with code that
# another one has just rewritten (a kernel does that to itself all the time), and
# one start of the rig in about ten ended in a crash.
set -euo pipefail

die() { printf 'qemu: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 1 ]] || die "usage: rig/qemu.sh OUTDIR"
[[ $(id -u) -eq 0 ]] || die "must be run as root"
out=$(realpath -m "$1")
here=$(dirname "$(realpath "$0")")
# shellcheck source=/dev/null
suite=$(. /etc/os-release && printf %s "$VERSION_CODENAME")

unpack() {
	rm -rf "$out/tree"
	mmdebstrap --quiet --mode=root --variant=extract --include=qemu-system-x86,seabios \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "5"' "$@" "$suite" "$out/tree" -
}

mkdir -p "$out"
main=$("$here/apt-mirror.sh" deb)
backports=$("$here/apt-mirror.sh" backports)
unpack --aptopt="APT::Default-Release \"$suite-backports\"" <<<"$main"$'\n'"$backports" ||
	unpack <<<"$main" || die "QEMU could not be unpacked from the archive"

cat >"$out/run" <<'EOF'
#!/bin/sh
tree=$(dirname "$(realpath "$0")")/tree
lib=$tree/usr/lib/x86_64-linux-gnu:$tree/lib/x86_64-linux-gnu
exec "$tree/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$lib" \
	"$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios" "$@"
EOF
chmod 755 "$out/run"
"$out/run" --version
