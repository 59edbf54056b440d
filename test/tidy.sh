#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over one file, if the build knows it.
#   test/tidy.sh BUILDDIR FILE
set -euo pipefail

build=$1 file=$2
grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" || exit 0
extra=()
[[ $file == base/err.c ]] || extra+=(--extra-arg=-include "--extra-arg=$PWD/test/tidy.h")
clang-tidy --quiet -p "$build" "${extra[@]}" "$file"
