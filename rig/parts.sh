# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the parts that a start needs: packages, the guest's kernel and root file system,
# the rig's host, and the product itself. Sourced by dev.

need_for_build() {
	need gcc libc6-dev cmake ninja-build pkg-config make patch dpkg-dev ca-certificates curl \
		libseccomp-dev libcap-dev liburing-dev libsqlite3-dev libssl-dev \
		libmnl-dev libnftables-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev libcmocka-dev \
		python3 linux-source-6.1 flex bison bc libelf-dev xz-utils mmdebstrap e2fsprogs "$@"
	[[ -z ${RAMET_ROOTFS_MIRROR:-} ]] || need ubuntu-keyring
}
need_for_rig() {
	[[ $(uname -m) == x86_64 ]] ||
		die "this machine ($(uname -m)) has no KVM that runs an x86-64 kernel and cannot emulate one"
	need openssh-client cpio busybox-static kmod mmdebstrap e2fsprogs gcc libc6-dev
}
need_for_native() { :; }

build_probe() {
	[[ $top/build/probe -nt $top/rig/probe.c ]] && return
	command -v cc >/dev/null || need gcc libc6-dev
	mkdir -p "$top/build"
	cc -O2 -Wall -Wextra -o "$top/build/probe.$$" "$top/rig/probe.c"
	mv "$top/build/probe.$$" "$top/build/probe"
}

kernel_dir() {
	cache_path kernel kernel-config proto/platform.h \
		"$(dpkg-query -W -f '${Version}' linux-source-6.1)"
}
rootfs_dir() {
	cache_path rootfs rootfs rig/apt-mirror.sh "${RAMET_ROOTFS_SUITE:-}" "${RAMET_ROOTFS_MIRROR:-}"
}
host_image_dir() { cache_path host rig/host-image.sh rig/apt-mirror.sh; }
qemu_dir() { cache_path qemu rig/qemu.sh rig/apt-mirror.sh; }
assets_dir() { cache_path assets "$(rootfs_dir)"; }
template_dir() { # NAME
	if is_shared "$1"; then
		cache_path "template-$1" "templates/$1"
	else
		cache_path "template-$1" "templates/$1" rootfs rig/apt-mirror.sh "${RAMET_ROOTFS_SUITE:-}" \
			"${RAMET_ROOTFS_MIRROR:-}"
	fi
}
h2o_dir() { cache_path h2o third_party/h2o rig/apt-source.sh rig/apt-mirror.sh; }
h2o_unpatched_dir() { cache_path h2o-unpatched third_party/h2o rig/apt-source.sh rig/apt-mirror.sh; }
# This is v2.6.0. Go does not accept that name, since the module's path has no /v2.
h2spec_version=v0.0.0-20200804131034-70ac22940108
h2spec_dir() { cache_path h2spec "$h2spec_version"; }
# Python with what the SDK and the tests need. Debian's httpx is older than what the SDK needs.
venv_dir() { cache_path venv test/requirements.txt "$(/usr/bin/python3 --version)"; }
make_venv() {
	/usr/bin/python3 -m venv "$1" &&
		"$1/bin/python" -m pip install --quiet --requirement "$top/test/requirements.txt"
}
build_venv() { cached "$(venv_dir)" "Python for the SDK and the tests" make_venv; }
need_venv() { need python3-venv && build_venv; }
integrations_venv_dir() {
	cache_path venv-integrations test/integrations/requirements.txt \
		test/integrations/requirements-no-deps.txt "$(/usr/bin/python3 --version)"
}
# The packages of other projects that the SDK has adapters for, some 150 with what they need: uv
# installs them in 10 s, pip in minutes. They keep their bytecode, as they are slow to import. The
# last list has packages whose needs contradict those of the others.
make_integrations_venv() {
	local lists=$top/test/integrations
	/usr/bin/python3 -m venv "$1" &&
		"$1/bin/python" -m pip install --quiet "$(grep '^uv==' "$lists/requirements.txt")" &&
		export UV_CACHE_DIR=$cache/uv VIRTUAL_ENV=$1 &&
		"$1/bin/uv" pip install --quiet --requirement "$lists/requirements.txt" &&
		"$1/bin/uv" pip install --quiet --no-deps --requirement "$lists/requirements-no-deps.txt"
}
need_integrations_venv() {
	cached "$(integrations_venv_dir)" "Python with the packages of the integrations" make_integrations_venv
}

# Debian's etcd, without the package, whose service would start.
etcd_dir() { cache_path etcd "$(dpkg --print-architecture)"; }
make_etcd() { # OUTDIR
	mkdir -p "$1" && cd "$1" && { download_etcd || { as_root apt-get update && download_etcd; }; } &&
		dpkg-deb --fsys-tarfile etcd-server_*.deb | tar -x --strip-components=3 ./usr/bin/etcd &&
		rm etcd-server_*.deb
}
download_etcd() { apt-get -qq -o Acquire::Retries=3 download etcd-server; }
need_etcd() { cached "$(etcd_dir)" "etcd" make_etcd; }
# A current etcd. Debian's Go is too old for it, so this Go is downloaded as a module, as newer ones do
# by themselves. Go checks the checksums of its downloads.
etcd_current_version=v3.6.16 etcd_go=1.26.8
etcd_current_dir() {
	cache_path etcd-current "$etcd_current_version" "$etcd_go" "$(dpkg --print-architecture)"
}
make_etcd_current() { # OUTDIR
	command -v go >/dev/null || need golang-go
	local work toolchain module=go.etcd.io/etcd/server/v3
	toolchain=golang.org/toolchain@v0.0.1-go$etcd_go.linux-$(dpkg --print-architecture)
	work=$(mktemp -d) && mkdir -p "$1" && cd "$work" &&
		export GOPATH=$work GOCACHE=$work/cache GOFLAGS=-modcacherw GOTOOLCHAIN=local &&
		go mod download "$toolchain" && chmod -R +x "$work/pkg/mod/$toolchain"/{bin,pkg/tool} &&
		PATH=$work/pkg/mod/$toolchain/bin:$PATH && mkdir etcd && cd etcd && cat >main.go <<-EOF &&
			package main

			import (
				"os"

				"$module/etcdmain"
			)

			func main() { etcdmain.Main(os.Args) }
		EOF
		go mod init etcd && go get "$module/etcdmain@$etcd_current_version" &&
		go build -trimpath -ldflags='-s -w' -o "$1/etcd" && rm -rf "$work"
}
need_etcd_current() { cached "$(etcd_current_dir)" "current etcd" make_etcd_current; }
# Debian's HAProxy with its libraries, likewise.
haproxy_dir() { cache_path haproxy "$(dpkg --print-architecture)"; }
make_haproxy() { # OUTDIR
	mkdir -p "$1" && cd "$1" && { download_haproxy || { as_root apt-get update && download_haproxy; }; } &&
		for deb in *.deb; do dpkg-deb -x "$deb" . || return; done && rm ./*.deb
}
download_haproxy() {
	apt-get -qq -o Acquire::Retries=3 download haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1
}
need_haproxy() { cached "$(haproxy_dir)" "haproxy" make_haproxy; }

build_kernel() { cached "$(kernel_dir)" "guest kernel" "$top/kernel-config/build.sh"; }
build_rootfs() { cached "$(rootfs_dir)" "guest root file system" make_rootfs; }
build_host_image() { cached "$(host_image_dir)" "rig's host image" as_root "$top/rig/host-image.sh"; }
build_qemu() { cached "$(qemu_dir)" "QEMU" as_root "$top/rig/qemu.sh"; }
build_h2o() { cached "$(h2o_dir)" "h2o" "$top/third_party/h2o/build.sh"; }
build_h2o_unpatched() {
	cached "$(h2o_unpatched_dir)" "h2o unpatched" "$top/third_party/h2o/build.sh" --unpatched
}

# Downloaded packages are kept for the next build; their hashes are checked each time.
make_rootfs() { RAMET_FETCHED=$cache/fetched as_root "$top/rootfs/build.sh" "$@"; }

# Only the tests use it. Go checks the checksums of its downloads.
build_h2spec() { cached "$(h2spec_dir)" "h2spec" make_h2spec "$h2spec_version"; }
make_h2spec() { # VERSION OUTDIR
	command -v go >/dev/null || need golang-go
	local work
	work=$(mktemp -d) && mkdir -p "$2" &&
		GOBIN=$2 GOPATH=$work GOCACHE=$work/cache GOFLAGS=-modcacherw \
			go install "github.com/summerwind/h2spec/cmd/h2spec@$1" &&
		rm -rf "$work"
}

# Builds the disk that brings the root file system into the rig. The kernel, whose build
# takes longer, is part of the product's archive instead. mke2fs takes nearly three times as
# long with metadata checksums: it computes that of an extent block for each extent it adds.
make_assets() {
	local out=$1
	mkdir -p "$out/files" &&
		ln "$(rootfs_dir)/rootfs.ext4" "$out/files/" &&
		mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -m 0 -d "$out/files" -E root_owner=0:0 \
			"$out/assets.ext4" 6G &&
		rm -rf "$out/files"
}

build_guest_disk() { build_rootfs && build_assets; }
build_rig_machine() { build_host_image && build_qemu; }
build_assets() { cached "$(assets_dir)" "assets disk" make_assets; }

# low_priority FUNCTION: runs it with less CPU time than the kernel's build, for which
# the start waits longest
low_priority() {
	renice -n 5 -p "$BASHPID" >/dev/null 2>&1 || true # fails if the priority is lower already
	"$@"
}

# build_parts MODE [FUNCTION…]: builds all that MODE's start needs, and runs each FUNCTION in
# parallel. The kernel takes longest. The rig's machine is mostly downloads, which take
# little CPU time.
build_parts() {
	local images=(low_priority build_rootfs) others=() function
	[[ $1 != rig ]] || images=(low_priority build_guest_disk -- low_priority build_rig_machine)
	for function in "${@:2}"; do others+=(-- low_priority "$function"); done
	together build_kernel -- "${images[@]}" "${others[@]}"
}

# is_shared NAME: whether the template shares the default one's root file system, since it adds
# nothing to it. Such templates are part of the product.
is_shared() {
	local dir=$top/templates/$1
	[[ ! -e $dir/packages.txt && ! -e $dir/requirements.txt && ! -e $dir/files ]]
}
build_shared_templates() {
	local dir
	for dir in "$top"/templates/*/; do
		dir=$(basename "$dir")
		! is_shared "$dir" || build_template "$dir"
	done
}

# build_template NAME: builds a template and links it into build/templates
build_template() {
	local name=$1 dir
	[[ $name =~ ^[a-z0-9][a-z0-9._-]{0,62}$ && -d $top/templates/$name ]] ||
		die "there is no template '$name'; there are: $(ls -m "$top/templates")"
	dir=$(template_dir "$name")
	cached "$dir" "template $name" make_template "$name"
	mkdir -p "$top/build/templates"
	ln -sfn "$dir" "$top/build/templates/$name"
}
make_template() { # NAME OUTDIR
	if is_shared "$1"; then
		mkdir -p "$2" && install -m 644 "$top/templates/$1"/* "$2/"
	else
		make_rootfs "$2" "$top/templates/$1"
	fi
}

# cmake_tree PRESET [TARGET…]: configures and builds; concurrent runs in one tree wait for
# each other. If ccache is installed, the cache keeps its results.
cmake_tree() {
	local preset=$1 launcher
	shift
	launcher=$(command -v ccache || true)
	mkdir -p "$top/build"
	(
		flock 7
		export CCACHE_DIR=$cache/ccache CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G
		# -U: CMake's cached path of the library may be that of another build of h2o
		cmake -S "$top" --preset "$preset" -URAMET_H2O_LIB "-DRAMET_H2O_DIR=$(h2o_dir)" \
			"-DRAMET_H2O_UNPATCHED_DIR=$(h2o_unpatched_dir)" \
			"-DRAMET_PYTHON=$(venv_dir)/bin/python" "-DRAMET_H2SPEC=$(h2spec_dir)/h2spec" \
			"-DCMAKE_C_COMPILER_LAUNCHER=$launcher" &&
			cmake --build "$top/build/$preset" ${1:+--target "$@"}
	) 7>"$top/build/$preset.lock"
}

# stage_alone CMD…: runs the command while no other ./dev writes or packs build/stage.
stage_alone() {
	(
		flock 7
		"$@"
	) 7>"$top/build/stage.lock"
}

# Installs the product into build/stage.
stage_product() {
	local stage=$top/build/stage
	rm -rf "$stage.tmp" &&
		DESTDIR=$stage.tmp cmake --install "$top/build/release" --strip &&
		rm -rf "$stage" &&
		mv "$stage.tmp" "$stage"
}

# Packs the installed product and the guest's kernel into one file, for the machine on
# which the VMs run. dev copies all templates there in the same way, shared ones too.
pack_product() {
	local stage=$top/build/stage
	install -D -m 644 "$(kernel_dir)/vmlinux" "$stage/usr/share/ramet/vmlinux" &&
		tar -C "$stage" --owner=0 --group=0 --sort=name --mtime=@0 --exclude=./usr/share/ramet/templates \
			-cf "$top/build/product.tmp" . &&
		mv "$top/build/product.tmp" "$top/build/product.tar"
}

build_product() {
	build_shared_templates
	build_h2o
	step "product" cmake_tree release vmm/all orchestrator/all guest/all bench/all \
		test/native/all # installs programs that bench runs
	step "installed tree" stage_alone stage_product
}
