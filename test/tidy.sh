#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs clang-tidy on one file, if the build compiles it. A run without findings is recorded
# in the cache under a checksum of the file, the preprocessed code, the flags and the settings.
#   test/tidy.sh BUILDDIR FILE
set -euo pipefail

build=$1 file=$2
kept=${RAMET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ramet}/tidy
extra=()
[[ $file == base/err.c ]] || extra+=(-include "$PWD/test/tidy.h")

# The command with which the build compiles the file, without its output.
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

# Prints what the findings depend on: the file, the names of its headers, and the preprocessed code with its macros,
# so that a comment in a header counts only if it is for clang-tidy.
seen() {
	cat "$file"
	"${command[@]}" "${extra[@]}" -M -MT x "$PWD/$file" || return
	"${command[@]}" "${extra[@]}" -E -dD -P "$PWD/$file" || return
	git grep -hA1 NOLINT -- '*.h' || [[ $? -eq 1 ]] || return
	clang-tidy --version
	printf '%s\n' "${command[@]}" "${extra[@]}"
	cat .clang-tidy
}
sum=$(seen | sed "s|$PWD|.|g" | sha256sum | cut -c1-32)
if [[ -e $kept/$sum ]]; then
	touch "$kept/$sum" # entries that were not used for long are removed
	exit 0
fi
clang-tidy --quiet -p "$build" "${extra[@]/#/--extra-arg=}" "$file"
mkdir -p "$kept"
: >"$kept/$sum"
