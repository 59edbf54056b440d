#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build the guest's root file system, or that of a template. Needs root.
#   rootfs/build.sh OUTDIR [TEMPLATE]
# OUTDIR receives rootfs.ext4, a sparse raw image. It contains nothing of Ramet:
# the guest's init and agent come from the initramfs. TEMPLATE is a folder as
# described in docs/templates.md; its warmup.py and template.conf are copied to
# OUTDIR as well.
#   RAMET_ROOTFS_SUITE   another release than Debian 13, such as bookworm (Debian 12)
#   RAMET_ROOTFS_MIRROR  the archive (a URL) of an Ubuntu release such as noble;
#                        without it, the archive of this machine's own release
#   RAMET_FETCHED        a folder that keeps downloaded packages for the next build
set -euo pipefail

die() { printf 'rootfs: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 1 || $# -eq 2 ]] || die "usage: rootfs/build.sh OUTDIR [TEMPLATE]"
[[ $(id -u) -eq 0 ]] || die "must be run as root"
out=$(realpath -m "$1")
template=${2:+$(realpath "$2")}
here=$(dirname "$(realpath "$0")")
size=4G # of the disk; mostly a hole, with room for what users install
suite=${RAMET_ROOTFS_SUITE:-trixie}
mirror=${RAMET_ROOTFS_MIRROR:-}

mkdir -p "$out"
tmp=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

if [[ -n $mirror ]]; then
	[[ -n ${RAMET_ROOTFS_SUITE:-} ]] || die "RAMET_ROOTFS_MIRROR is set; RAMET_ROOTFS_SUITE must name the release"
	sources=$(for s in "$suite" "$suite-updates" "$suite-security"; do
		printf 'deb %s %s main universe\n' "$mirror" "$s"
	done)
	keyring=(--keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg)
else
	# shellcheck source=/dev/null
	own=$(. /etc/os-release && printf %s "$VERSION_CODENAME")
	sources=$("$here/../rig/apt-mirror.sh" deb | sed "s/ $own\([- ]\)/ $suite\1/")
	keyring=()
fi

# Package lists have one or more names per line; # begins a comment.
lists=("$here/manifest.txt")
[[ ! -e $template/packages.txt ]] || lists+=("$template/packages.txt")
packages=$(sed 's/#.*//' "${lists[@]}" | xargs | tr ' ' ',')

install=$here/pip-install.sh
hooks=("--customize-hook='$install' \"\$1\" '$here/requirements.txt'")
if [[ -n $template ]]; then
	[[ ! -e $template/requirements.txt ]] ||
		hooks+=("--customize-hook='$install' \"\$1\" '$template/requirements.txt'")
	[[ ! -d $template/files ]] || hooks+=("--customize-hook=copy-in '$template/files/.' /")
fi

# apt checks the packages that are there already against the archive's hashes.
kept=()
if [[ -n ${RAMET_FETCHED:-} ]]; then
	mkdir -p "$RAMET_FETCHED/debs"
	kept=(--skip=download/empty --skip=essential/unlink
		"--setup-hook=mkdir -p \"\$1/var/cache/apt/archives\""
		"--setup-hook=sync-in '$RAMET_FETCHED/debs' /var/cache/apt/archives"
		"--customize-hook=sync-out /var/cache/apt/archives '$RAMET_FETCHED/debs'")
fi

# Manuals and translations make up half of the size, and nobody reads them in a
# sandbox. The tree is disposable, so dpkg need not sync each file, and an
# installation must not start services.
# shellcheck disable=SC2016 # $1 is expanded by the shell that runs the hooks
# In a mount namespace, so that a build that is killed leaves no /proc mounted in its folder.
unshare --mount mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" "${keyring[@]}" \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt=force-unsafe-io \
	--aptopt='Acquire::Languages "none"' \
	--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "5"' \
	--customize-hook='chroot "$1" passwd -d root >/dev/null' \
	--customize-hook='chroot "$1" update-alternatives --quiet --install /usr/bin/vim vim /usr/bin/vim.tiny 10' \
	--customize-hook="copy-in '$here/files/.' /" \
	--customize-hook='rm -f "$1"/etc/machine-id && : >"$1"/etc/machine-id' \
	--customize-hook='chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash user' \
	--customize-hook='chown root: "$1"/etc/sudoers.d/user && chmod 440 "$1"/etc/sudoers.d/user' \
	"${kept[@]}" "${hooks[@]}" \
	--customize-hook="'$here/fonts.sh' \"\$1\"" \
	--customize-hook='ln -sf /proc/net/pnp "$1/etc/resolv.conf"' \
	"$suite" "$tmp/root" - <<<"$sources" ||
	die "mmdebstrap failed; if the archive lacks $suite, choose another release with RAMET_ROOTFS_SUITE"

# Clear the inode tables now: otherwise the guest does it after each start, and
# writes all of them into every sandbox's own layer. The other options make the
# file system grow fast, to 1 TiB within seconds under emulation: with metadata
# checksums the guest reads two blocks from the disk for each new group of 128
# MiB, one after the other.
rm -f "$out/rootfs.tmp"
mke2fs -q -t ext4 -L root -m 0 -J size=16 -d "$tmp/root" \
	-O ^metadata_csum,uninit_bg -G 256 \
	-E "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,resize=$((1 << 28))" "$out/rootfs.tmp" "$size" >/dev/null
mv "$out/rootfs.tmp" "$out/rootfs.ext4"
for file in warmup.py template.conf; do
	[[ ! -e $template/$file ]] || install -m 644 "$template/$file" "$out/"
done
