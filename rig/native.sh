# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the service on this machine itself. Sourced by dev. The unprivileged part of
# the service cannot read a home directory, so its files are copied to /var/lib/ramet.

native_root=/var/lib/ramet/dev

native_service() { as_root "$top/rig/service.sh" "$@" 8>&-; }

# Puts the product and the guest's root file system where the service finds them.
native_unpack() {
	getent passwd ramet >/dev/null || as_root useradd --system --no-create-home --shell /usr/sbin/nologin ramet
	as_root mkdir -p "$native_root"
	as_root chown ramet: /var/lib/ramet # rametd refuses another owner
	as_root tar -C "$native_root" -xf "$top/build/product.tar"
	as_root cp "$top/build/product.tar" "$native_root/product.tar"
	as_root cp -u --sparse=always "$(rootfs_dir)/rootfs.ext4" "$native_root/rootfs.ext4"
}

native_up() {
	local lib=$native_root/usr/lib/ramet
	native_templates
	if [[ $# -eq 0 ]] && native_service status && healthy && as_root cmp -s "$top/build/product.tar" "$native_root/product.tar"; then
		return
	fi
	native_service stop
	native_unpack
	native_service start "$lib/rametd" --vmm="$lib/ramet-vmm" --notify="$lib/ramet-notify" \
		--kernel="$native_root/usr/share/ramet/vmlinux" \
		--initramfs="$native_root/usr/share/ramet/initramfs.cpio" \
		--rootfs="$native_root/rootfs.ext4" --templates_dir="$native_root/templates" \
		--ui_dir="$native_root/usr/share/ramet/ui" --listen_port="$(api_port)" --cgroup=/ "$@"
}

# Copies the templates that were built to the folder where the service finds them.
native_templates() {
	local built name into=$native_root/templates
	as_root mkdir -p "$into"
	for built in "$top"/build/templates/*; do
		name=${built##*/}
		[[ -d $built && $(as_root cat "$into/$name/of" 2>/dev/null) != "$(readlink "$built")" ]] || continue
		as_root rm -rf "${into:?}/.$name" "${into:?}/.old-$name"
		as_root cp -rL --sparse=always "$built" "$into/.$name"
		readlink "$built" | as_root tee "$into/.$name/of" >/dev/null
		[[ ! -e $into/$name ]] || as_root mv "$into/$name" "$into/.old-$name"
		as_root mv "$into/.$name" "$into/$name"
		as_root rm -rf "${into:?}/.old-$name"
	done
}

native_down() {
	"$top/rig/service.sh" status || return 0
	native_service stop
	say "the service has stopped"
}
