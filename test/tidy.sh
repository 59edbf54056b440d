#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over one file, if the build knows it. That it found nothing is kept in
# the cache, under a sum of all it read: the file, its headers, flags and settings.
#   test/tidy.sh BUILDDIR FILE
set -euo pipefail

build=$1 file=$2
kept=${RAMET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ramet}/tidy
extra=()
[[ $file == base/err.c ]] || extra+=(-include "$PWD/test/tidy.h")

# How the build compiles it, without what names the output.
mapfile -t command < <(python3 - "$build/compile_commands.json" "$PWD/$file" <<'EOT'
import json, shlex, sys
for entry in json.load(open(sys.argv[1])):
    if entry["file"] == sys.argv[2]:
        words = shlex.split(entry["command"])
        print(*words[words[0].endswith("ccache"):words.index("-o")], sep="\n")
        break
EOT
)
[[ ${#command[@]} -gt 0 ]] || exit 0

seen() {
	local read
	read=$("${command[@]}" "${extra[@]}" -M -MT x "$PWD/$file") || return
	clang-tidy --version
	printf '%s\n' "${command[@]}" "${extra[@]}"
	sed 's/^x://; s/\\$//' <<<"$read" | xargs sha256sum .clang-tidy
}
sum=$(seen | sed "s|$PWD|.|g" | sha256sum | cut -c1-32)
if [[ -e $kept/$sum ]]; then
	touch "$kept/$sum" # what is not used for long is removed
	exit 0
fi
clang-tidy --quiet -p "$build" "${extra[@]/#/--extra-arg=}" "$file"
mkdir -p "$kept"
: >"$kept/$sum"
