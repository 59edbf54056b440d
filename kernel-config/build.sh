#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build the guest's kernel from the distribution's packaged source.
#   kernel-config/build.sh OUTDIR
# OUTDIR receives vmlinux (an uncompressed ELF file) and config.
set -euo pipefail

die() { printf 'kernel: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 1 ]] || die "usage: kernel-config/build.sh OUTDIR"
out=$(realpath -m "$1")
here=$(dirname "$(realpath "$0")")
fragment=$here/x86_64.config
source=/usr/src/linux-source-6.1.tar.xz

[[ -r $source ]] || die "$source is missing: install the package linux-source-6.1"
mkdir -p "$out"
tmp=$(mktemp -d "$out/src.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# The part of the tree that an x86 build without hardware drivers reads, a seventh of it: every
# Kconfig and Makefile, and these folders.
folders=(arch/x86 block certs crypto drivers/{base,block,char,clocksource,net,rtc,tty,virtio}
	fs include init io_uring ipc kernel lib mm net scripts security usr virt
	tools/{arch/x86,build,include,lib,objtool,scripts})
tar -C "$tmp" --strip-components=1 -xf "$source" --wildcards --exclude='*/drivers/net/*/*.[ch]' \
	'*/Kconfig*' '*/Makefile*' '*/Kbuild*' "${folders[@]/#/linux-source-6.1/}"
cd "$tmp"

# Replace the ACPI driver by one for our own device (proto/platform.h).
sed -i '/^config VMGENID/,/^config /s/depends on ACPI/depends on X86/' drivers/virt/Kconfig
cp "$here/vmgenid.c" drivers/virt/vmgenid.c
cp "$here/../proto/platform.h" drivers/virt/ramet-platform.h

# No watchdog of the network device: it would wake an idle guest every 5 seconds, and it only counts.
grep -q ndo_tx_timeout drivers/net/virtio_net.c || die "virtio_net has no watchdog to remove"
sed -i -e '/ndo_tx_timeout/d' -e 's/^static void virtnet_tx_timeout/static void __maybe_unused virtnet_tx_timeout/' \
	drivers/net/virtio_net.c

# The build must not depend on who builds and when.
export KBUILD_BUILD_TIMESTAMP=@0 KBUILD_BUILD_USER=ramet KBUILD_BUILD_HOST=ramet

make -s KCONFIG_ALLCONFIG="$fragment" allnoconfig

# kconfig silently drops options that it cannot honour, so check that each was accepted.
while IFS='=' read -r name value; do
	case $value in
	n) ! grep -q "^$name=" .config || die "$name is on although the fragment says n" ;;
	*) grep -qxF "$name=$value" .config || die "$name=$value was not accepted" ;;
	esac
done < <(grep '^CONFIG_' "$fragment")

# One job more than there are CPUs, because jobs sometimes wait for the disk.
make -s -j"$(($(nproc) + 1))" vmlinux
objcopy --strip-all vmlinux "$out/vmlinux.tmp"
cp .config "$out/config"
mv "$out/vmlinux.tmp" "$out/vmlinux"
