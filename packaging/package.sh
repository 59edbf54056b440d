# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Debian packages of the product, each in a clean root of its release. Sourced by dev.

# The guest's files are the same for all hosts, so one release builds them. Debian 12 has no httpx that the
# Python package can use.
# shellcheck disable=SC2154 # dev sets top, the root of the tree
declare -A package_release=([bookworm]=12 [trixie]=13)
declare -A package_profiles=([bookworm]=nopython [trixie]=noguest)

# package_needs SUITE: prints the packages that a build there needs, separated by commas
package_needs() {
	local profile=${package_profiles[$1]}
	sed -n '/^Build-Depends:/,/^Standards/p' "$top/packaging/debian/control" |
		sed "s/^Build-Depends://; /^Standards/d; /<!$profile>/d; s/<[^>]*>//; s/([^)]*)//; s/:any//" |
		tr -d ' \n'
	echo lintian
}
package_root_dir() { # SUITE
	cache_path "package-root-$1" packaging/chroot.sh rig/apt-mirror.sh "$1" "$(package_needs "$1")"
}
h2o_source_dir() { cache_path h2o-source third_party/h2o/source.sha256 rig/apt-source.sh; }

make_package_root() { as_root "$top/packaging/chroot.sh" "$1" "$(package_needs "$1")" "$2"; }
make_h2o_source() {
	local version
	version=$(sed -n 's/.*  h2o_\(.*\)\.dsc$/\1/p' "$top/third_party/h2o/source.sha256")
	"$top/rig/apt-source.sh" "h2o=$version" "$1" "$top/third_party/h2o/source.sha256"
}

# package_host_dir SUITE: the root of a host without Ramet, but with systemd and all that the packages
# depend on. The tests boot it.
package_host_needs() {
	local dir=$top/build/packages/debian-${package_release[$1]} deb
	printf 'systemd,systemd-sysv,dbus'
	for deb in "$dir"/ramet_*.deb "$dir"/python3-ramet_*.deb; do
		[[ -e $deb ]] || continue
		dpkg-deb -f "$deb" Depends
	done | tr ',' '\n' | sed 's/|.*//; s/([^)]*)//; s/:any//; s/ //g; /^ramet-guest$/d; /^$/d' | sort -u |
		sed 's/^/,/' | tr -d '\n'
}
package_host_dir() { cache_path "package-host-$1" packaging/chroot.sh rig/apt-mirror.sh "$1" "$(package_host_needs "$1")"; }
make_package_host() { as_root "$top/packaging/chroot.sh" "$1" "$(package_host_needs "$1")" "$2"; }

# package_again: builds what no cache has a second time, and otherwise, to compare the bytes
package_again() {
	local suite again=$top/build/packages/.again
	rm -rf "$again" && mkdir -p "$again" || return
	for suite in "${!package_release[@]}"; do
		package_build "$suite" "$again.$suite" "${package_profiles[$suite]} noguest" again &&
			find "$again.$suite" \( -name '*.deb' -o -name '*.whl' \) -exec mv -t "$again" {} + &&
			rm -rf "$again.$suite" || return
	done
}

# package_before: builds the package of the previous commit for Debian 12, which the tests upgrade from. A
# shallow clone may have no previous commit.
package_before() {
	local tree=$top/build/package-before out=$top/build/packages/.before
	rm -rf "$tree" "$out" && mkdir -p "$out" || return
	git -C "$top" rev-parse --quiet --verify HEAD~1 || return 0
	git clone --quiet --shared --no-checkout "$top" "$tree" && git -C "$tree" checkout --quiet HEAD~1 &&
		as_root "$tree/packaging/build.sh" "$(package_root_dir bookworm)/root.tar" \
			"~deb${package_release[bookworm]}" "${package_profiles[bookworm]} noguest" \
			"$top/build/package-input" "$out" &&
		rm -rf "$tree"
}

# package_input DIR: links what the builds need into DIR
package_input() {
	rm -rf "$1" && mkdir -p "$1/guest" &&
		cp -r "$(h2o_source_dir)" "$1/h2o" &&
		ln "$(kernel_dir)/vmlinux" "$(rootfs_dir)/rootfs.ext4" "$1/guest/" 2>/dev/null ||
		cp --sparse=always "$(kernel_dir)/vmlinux" "$(rootfs_dir)/rootfs.ext4" "$1/guest/"
}

# package_build SUITE OUTDIR [PROFILES [again]]: builds the packages of one release into OUTDIR
package_build() {
	rm -rf "$2" && as_root "$top/packaging/build.sh" "$(package_root_dir "$1")/root.tar" \
		"~deb${package_release[$1]}" "${3:-${package_profiles[$1]}}" "$top/build/package-input" "$2" ${4:+"$4"} &&
		as_root chown -R "$(id -u):$(id -g)" "$2"
}

# package_publish: gives each release's folder all packages that its hosts need, with a list of what
# they contain and checksums
package_publish() {
	local suite dir other seconds
	seconds=$(date -d "$(sed -n 's/^ -- .*>  //p' "$top/packaging/debian/changelog" | head -n 1)" +%s) || return
	for suite in "${!package_release[@]}"; do
		dir=$top/build/packages/debian-${package_release[$suite]}
		rm -rf "$dir" && mkdir -p "$dir" || return
		for other in "$top"/build/packages/.*/*.whl "$top"/build/packages/.*/ramet-guest_*.deb \
			"$top/build/packages/.$suite"/*.deb; do
			ln -f "$other" "$dir/" || return
		done
		/usr/bin/python3 "$top/packaging/sbom.py" "$dir" "$top/build/packages/.$suite/installed.txt" \
			"$(rootfs_dir)/rootfs.ext4" "$(dpkg-query -W -f '${Version}' linux-source-6.1)" "$seconds" \
			>"$dir/ramet.spdx.json" &&
			(cd "$dir" && sha256sum -- * >../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS) || return
	done
}

cmd_package() {
	local suite
	[[ $# -eq 0 ]] || die "package: unknown option '$*'"
	need_for_build e2fsprogs git
	lock
	together build_kernel -- build_rootfs
	cached "$(h2o_source_dir)" "source of h2o" make_h2o_source
	step "input of the packages" package_input "$top/build/package-input"
	for suite in bookworm trixie; do
		cached "$(package_root_dir "$suite")" "root of $suite" make_package_root "$suite"
		step "packages for Debian ${package_release[$suite]}" package_build "$suite" "$top/build/packages/.$suite"
	done
	step "list of contents and checksums" package_publish
	unlock
	say "the packages are in build/packages"
	find "$top/build/packages" -mindepth 2 -not -path '*/.*' -type f | sort
}
