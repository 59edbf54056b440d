#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Manages the inputs of the fuzz targets, which README.md describes.
#   test/fuzz/corpus.sh unpack TARGET DIR   replaces DIR by the inputs of TARGET's archive
#   test/fuzz/corpus.sh replay TARGET FILE  runs the target's program FILE, linked with replay.c,
#                                           on all its inputs
#   test/fuzz/corpus.sh merge [TARGET…]     packs new archives from the old ones and from new
#                                           inputs; without TARGET, for all targets
set -euo pipefail

top=$(realpath "$(dirname "$0")/../..")
# shellcheck source=../../rig/common.sh
. "$top/rig/common.sh"
# shellcheck source=../../rig/parts.sh
. "$top/rig/parts.sh"

corpus=$top/test/fuzz/corpus
work=$top/build/fuzz-merge

unpack() { # TARGET DIR
	rm -rf "$2"
	mkdir -p "$2"
	[[ ! -e $corpus/$1.tar.xz ]] || tar -xJf "$corpus/$1.tar.xz" -C "$2"
}

# Packs the files of DIR into ARCHIVE, or removes ARCHIVE if there are none. The same files always
# give the same bytes. Files get numbers as names, which compress better than libFuzzer's hashes.
pack() { # DIR ARCHIVE
	local n=0 name number
	rm -rf "$1.numbered"
	mkdir "$1.numbered"
	while IFS= read -r name; do
		printf -v number %04d "$n"
		cp "$1/$name" "$1.numbered/$number"
		n=$((n + 1))
	done < <(find "$1" -type f -printf '%f\n' | LC_ALL=C sort)
	if [[ $n -eq 0 ]]; then
		rm -f "$2"
		return
	fi
	(cd "$1.numbered" && tar --format=ustar --sort=name --mtime=@0 --mode=644 \
		--owner=0 --group=0 --numeric-owner -c -- *) | xz -9e -T1 >"$1.tar.xz"
	mv "$1.tar.xz" "$2"
}

# Prints the number of features (edges, and how often they are taken) that the inputs reach.
features() { # BINARY DIR…
	local n
	n=$("$1" -runs=0 -timeout=60 -rss_limit_mb=2048 "${@:2}" 2>&1 |
		sed -n 's/.*INITED[[:space:]].* ft: \([0-9]*\) .*/\1/p')
	[[ -n $n ]] || die "${1##*/} fails with its known inputs; run it with ${*:2}"
	echo "$n"
}

size() { stat -c %s "$1" 2>/dev/null || echo 0; }

merge() { # TARGET
	local target=$1 binary seeds=$corpus/$1 found=$top/build/fuzz-found/fuzz_$1 sources
	local old=$work/$1.old new=$work/$1 archive=$corpus/$1.tar.xz packed=$work/$1.new.tar.xz
	local before after
	binary=$(find "$top/build/fuzz/test" -type f -name "fuzz_$target" -executable)
	[[ -n $binary ]] || die "there is no fuzz target '$target'"
	[[ -d $seeds ]] || die "$seeds is missing: a target needs a few named seeds"
	unpack "$target" "$old"
	sources=("$old")
	[[ ! -d $found ]] || sources+=("$found")
	# libFuzzer adds to the first folder each input that reaches more than those in it.
	rm -rf "$new"
	cp -r "$seeds" "$new"
	"$binary" -merge=1 -timeout=60 -rss_limit_mb=2048 "$new" "${sources[@]}" >"$work/$target.log" 2>&1 ||
		die "merging the inputs of $target failed; see $work/$target.log"
	before=$(features "$binary" "$seeds" "$old")
	after=$(features "$binary" "$new")
	(cd "$seeds" && find . -type f -print0) | (cd "$new" && xargs -0 rm)
	pack "$new" "$packed"
	# Keep an archive that would gain nothing, since each version makes the repository larger.
	if ((after < before || (after == before && $(size "$packed") >= $(size "$archive")))); then
		echo "$target: unchanged, $before features"
		return
	fi
	if [[ -e $packed ]]; then mv "$packed" "$archive"; else rm -f "$archive"; fi
	echo "$target: $before features before, $after now; $(size "$archive") bytes"
}

main() {
	local target command=${1:-}
	[[ $# -eq 0 ]] || shift
	case $command in
	unpack)
		[[ $# -eq 2 ]] || die "usage: test/fuzz/corpus.sh unpack TARGET DIR"
		unpack "$@"
		;;
	replay)
		[[ $# -eq 2 ]] || die "usage: test/fuzz/corpus.sh replay TARGET FILE"
		[[ -d $corpus/$1 ]] || die "$corpus/$1 is missing: a target needs a few named seeds"
		unpack "$1" "$2.inputs"
		exec "$2" "$corpus/$1" "$2.inputs"
		;;
	merge)
		cmake_tree fuzz >/dev/null
		mkdir -p "$work"
		if [[ $# -eq 0 ]]; then
			readarray -t targets < <(find "$corpus" -mindepth 1 -type d -printf '%f\n' | sort)
			set -- "${targets[@]}"
		fi
		for target in "$@"; do merge "$target"; done
		;;
	*) die "usage: test/fuzz/corpus.sh unpack TARGET DIR | replay TARGET FILE | merge [TARGET…]" ;;
	esac
}

main "$@"
