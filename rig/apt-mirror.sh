#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Print one-line apt sources for the distribution this machine runs, taken from
# its own apt configuration, so that no archive is named in this tree.
#   rig/apt-mirror.sh deb        what is configured
#   rig/apt-mirror.sh deb-src    the same archives, their sources
#   rig/apt-mirror.sh backports  the backports suite beside the main archive
set -euo pipefail

die() { printf 'apt-mirror: %s\n' "$*" >&2; exit 1; }

kind=${1:-deb}
# shellcheck source=/dev/null
codename=$(. /etc/os-release && printf %s "${VERSION_CODENAME:-}")
[[ -n $codename ]] || die "/etc/os-release names no release code name"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
option=
[[ ! -e $keyring ]] || option="[signed-by=$keyring] "

# Fields of a target that are not set stay as $(NAME); archives of other
# vendors carry other suite names and are left out by the code name.
mapfile -t archives < <(apt-get indextargets --format "\$(SITE) \$(RELEASE)" 'Created-By: Packages' |
	awk -v c="$codename" '$2 == c || index($2, c "-") == 1' | sort -u)
[[ ${#archives[@]} -gt 0 ]] || die "apt has no source for $codename configured"

case $kind in
deb | deb-src)
	for a in "${archives[@]}"; do
		printf '%s %s%s main\n' "$kind" "$option" "$a"
	done
	;;
backports)
	for a in "${archives[@]}"; do
		[[ ${a#* } != "$codename" ]] ||
			printf 'deb %s%s %s-backports main\n' "$option" "${a% *}" "$codename"
	done
	;;
*) die "unknown kind of source: $kind" ;;
esac
