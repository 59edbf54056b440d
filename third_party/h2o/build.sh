#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Build libh2o's static library for its own event loop from the distribution's
# source package, with the patches beside this script.
#   third_party/h2o/build.sh [--unpatched] OUTDIR
# OUTDIR receives lib/libh2o-evloop.a and include/. With --unpatched only the
# distribution's own patches are applied; the tests of the defects need that.
# The package's version and checksums are pinned in source.sha256. CC, CFLAGS
# and AR are heeded. If RAMET_H2O_SOURCE names the unpacked source package,
# nothing is downloaded.
set -euo pipefail

die() { printf 'h2o: %s\n' "$*" >&2; exit 1; }

patched=yes
if [[ ${1:-} == --unpatched ]]; then
	patched=no
	shift
fi
[[ $# -eq 1 ]] || die "usage: third_party/h2o/build.sh [--unpatched] OUTDIR"
out=$(realpath -m "$1")
here=$(dirname "$(realpath "$0")")
version=$(sed -n 's/.*  h2o_\(.*\)\.dsc$/\1/p' "$here/source.sha256")

for tool in patch "${CC:-cc}" "${AR:-ar}"; do
	command -v "$tool" >/dev/null || die "$tool is missing"
done
[[ -e /usr/include/openssl/ssl.h ]] || die "openssl/ssl.h is missing: install the package libssl-dev"

mkdir -p "$out"
tmp=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

if [[ -n ${RAMET_H2O_SOURCE:-} ]]; then
	cp -r "$RAMET_H2O_SOURCE" "$tmp/src"
else
	"$here/../../rig/apt-source.sh" "h2o=$version" "$tmp/src" "$here/source.sha256"
fi
cd "$tmp/src"
if [[ $patched == yes ]]; then
	for p in "$here"/patches/*.patch; do
		# A patch that needs fuzz was written for another source.
		patch -s -p1 --fuzz=0 <"$p" || die "${p##*/} does not apply"
	done
fi

# What the server library needs; no FastCGI, files, mruby, WebSocket, libuv.
sources=(lib/common/*.c lib/core/*.c lib/http2/*.c lib/http1.c lib/tunnel.c
	lib/handler/{chunked,headers_util,mimemap}.c
	deps/cloexec/cloexec.c deps/picohttpparser/picohttpparser.c
	deps/libyrmcds/{close,connect,recv,send,send_text,socket,strerror,text_mode}.c)
flags=(-std=gnu99 -O2 -g -pthread -fPIC -fno-strict-aliasing -fstack-protector-strong
	-fstack-clash-protection -fcf-protection
	-D_GNU_SOURCE -D_FILE_OFFSET_BITS=64
	-DH2O_USE_LIBUV=0 -DH2O_USE_EPOLL=1 '-DH2O_ROOT="/nonexistent"'
	'-DH2O_CONFIG_PATH="/nonexistent"' -Iinclude -Ideps/cloexec -Ideps/golombset
	-Ideps/klib -Ideps/libyrmcds -Ideps/picohttpparser -Ideps/yoml
	-Wall -Wno-unused -Wno-unused-result -Wno-deprecated-declarations)
read -ra own <<<"${CFLAGS:-}"
# The last map that fits a path is used, and CFLAGS may have one for a folder above.
own+=("-ffile-prefix-map=$tmp/src=h2o")
[[ " ${own[*]-} " == *" -fsanitize="* ]] || flags+=(-D_FORTIFY_SOURCE=3)

printf '%s\n' "${sources[@]}" |
	xargs -P "$(nproc)" -I{} "${CC:-cc}" "${flags[@]}" "${own[@]}" -c {} -o {}.o
"${AR:-ar}" rcsD "$tmp/libh2o-evloop.a" "${sources[@]/%/.o}"

# Installed last and as a whole, so that a library that is there is complete.
cp deps/picohttpparser/picohttpparser.h include/
mkdir -p "$out/lib"
rm -rf "$out/include"
cp -r include "$out/include"
mv "$tmp/libh2o-evloop.a" "$out/lib/libh2o-evloop.a"
