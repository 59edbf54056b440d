#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over those of the given files that the build knows.
#   test/tidy.sh BUILDDIR FILE…
set -euo pipefail

build=$1
shift
files=()
for f in "$@"; do
	grep -q "\"file\": \"$PWD/$f\"" "$build/compile_commands.json" && files+=("$f")
done
[[ ${#files[@]} -eq 0 ]] || clang-tidy --quiet -p "$build" "${files[@]}"
