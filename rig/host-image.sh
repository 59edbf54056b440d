#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build what the rig boots. Needs root.
#   rig/host-image.sh OUTDIR
# OUTDIR receives root.ext4 (mounted read-only), vmlinuz and modules.cpio
# (busybox and the modules that reach the root disk). Keys, the init and the
# product are not part of it: rig/rig.sh adds them at each start.
set -euo pipefail

die() { printf 'host image: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 1 ]] || die "usage: rig/host-image.sh OUTDIR"
[[ $(id -u) -eq 0 ]] || die "must be run as root"
out=$(realpath -m "$1")
here=$(dirname "$(realpath "$0")")

mkdir -p "$out"
tmp=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# The kernel's package is only unpacked, which needs no initramfs generator and
# no boot loader. The kernel of backports has more features (PAGEMAP_SCAN), so
# it is preferred where the archive has it.
fetch_kernel() {
	local sources=$1 apt package
	"$here/apt-mirror.sh" "$sources" >"$tmp/sources.list" || return 1
	mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/deb"
	apt=(-qq -o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$tmp/lists" -o "Dir::Cache=$tmp/cache"
		-o Dir::State::status=/dev/null -o APT::Sandbox::User=root
		-o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Update::Error-Mode=any)
	apt-get "${apt[@]}" update >&2 || return 1
	package=$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
	[[ -n $package ]] || return 1
	(cd "$tmp/deb" && apt-get "${apt[@]}" download "$package" >&2) || return 1
	dpkg-deb -x "$tmp"/deb/*.deb "$tmp/kernel"
}
fetch_kernel backports || fetch_kernel deb || die "no cloud kernel could be downloaded"
version=$(basename "$tmp"/kernel/lib/modules/*)
rm -rf "$tmp/kernel/usr/share/doc"
depmod -b "$tmp/kernel" "$version"

# shellcheck source=/dev/null
suite=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
packages=openssh-server,iproute2,nftables,procps,python3,util-linux,kmod,e2fsprogs
packages+=,xfsprogs,btrfs-progs,strace,curl,less,libssl3,libsqlite3-0,liburing2
packages+=,libseccomp2,libcap2,libmnl0,libnftables1,libcmocka0 # the last for the tests of jails

# shellcheck disable=SC2016 # $1 is for the shell that runs the hooks
# In a mount namespace, so that a build that is killed leaves no /proc mounted in its folder.
unshare --mount mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt=force-unsafe-io \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "5"' \
	--customize-hook='chroot "$1" passwd -d root >/dev/null' \
	--customize-hook='chroot "$1" useradd --system --no-create-home --shell /usr/sbin/nologin ramet' \
	--customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' \
	--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' \
	"$suite" "$tmp/root" - < <("$here/apt-mirror.sh" deb) || die "mmdebstrap failed"
mkdir -p "$tmp/root/assets" "$tmp/root/var/lib/ramet"
cp -a "$tmp/kernel/lib/modules" "$tmp/root/usr/lib/"

# One list of modules in the order they must be loaded, read by rig/init.
early() {
	local m
	for m in virtio_mmio virtio_blk virtio_net virtio_rng ext4 overlay kvm-amd tun veth; do
		modprobe -d "$tmp/kernel" -S "$version" --show-depends "$m"
	done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}
mkdir -p "$tmp/initramfs"/{bin,modules,dev,proc,sys,mnt,root}
install -m 755 /bin/busybox "$tmp/initramfs/bin/busybox"
while read -r path; do
	name=$(basename "$path")
	case $name in
	*.xz) name=${name%.xz} && xz -dc "$path" >"$tmp/initramfs/modules/$name" ;;
	*) cp "$path" "$tmp/initramfs/modules/$name" ;;
	esac
	printf '%s\n' "$name" >>"$tmp/initramfs/modules/order"
done < <(early)

cp "$tmp/kernel/boot/vmlinuz-$version" "$out/vmlinuz"
(cd "$tmp/initramfs" && find . | sort | cpio --quiet -o -H newc) >"$out/modules.cpio"
# Without metadata checksums: see make_assets in parts.sh.
mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -m 0 -d "$tmp/root" -E root_owner=0:0 "$out/root.tmp" 3G >/dev/null
mv "$out/root.tmp" "$out/root.ext4"
