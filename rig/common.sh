# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Functions that all commands of dev use: progress, packages, the cache.

# shellcheck disable=SC2154 # dev sets top, the root of the tree
cache=${RAMET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ramet}
log_dir=$top/build/log
started=${EPOCHREALTIME/./}

say() {
	local us=$((${EPOCHREALTIME/./} - started))
	printf '[%3d.%d s] %s\n' $((us / 1000000)) $((us / 100000 % 10)) "$*" >&2
}

die() {
	printf 'dev: %s\n' "$*" >&2
	exit 1
}

as_root() {
	if [[ $(id -u) -eq 0 ]]; then
		"$@"
	else
		command -v sudo >/dev/null || die "root is needed for '$1': run as root or install sudo"
		sudo -E "$@"
	fi
}

# Only one dev at a time starts or stops things. Programs that outlive dev must be
# started with descriptor 8 closed, or they would hold the lock.
lock() {
	mkdir -p "$top/build"
	exec 8>"$top/build/lock"
	# In a trap, `return` without a number returns the status from before the trap.
	flock -n 8 && return 0
	say "waiting for another ./dev that starts or stops something …"
	flock 8
}
unlock() { exec 8>&-; }

# step LABEL CMD…: runs the command, with a line of progress before and after it. Its
# output is shown only if it fails. `set -e` has no effect in a function that is run
# this way, so such functions join their commands with &&.
step() {
	local label=$1 log t0=$SECONDS
	shift
	mkdir -p "$log_dir"
	log=$log_dir/${label//[^a-zA-Z0-9]/-}.log
	say "$label …"
	if ! "$@" >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		die "$label failed; all of its output is in $log"
	fi
	say "$label: done in $((SECONDS - t0)) s"
}

# together CMD -- CMD …: runs the functions in parallel; fails if one fails. Each runs
# in a separate process group, so that stop_groups reaches all processes it started.
groups=()
together() {
	local failed=0 cmd=() word pid
	for word in "$@" --; do
		if [[ $word != -- ]]; then
			cmd+=("$word")
			continue
		fi
		set -m
		"${cmd[@]}" &
		set +m
		groups+=($!)
		cmd=()
	done
	for pid in "${groups[@]}"; do wait "$pid" || failed=1; done
	groups=()
	return $failed
}
stop_groups() {
	local pid
	for pid in "${groups[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
}
trap stop_groups EXIT

# need PACKAGE…: installs missing packages; updates apt's lists only if necessary
need() {
	local missing
	missing=$(comm -23 <(printf '%s\n' "$@" | sort -u) \
		<(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u))
	[[ -n $missing ]] || return 0
	# shellcheck disable=SC2086 # each word is a package
	set -- $missing
	step "installing $# packages" install_packages "$@"
}

install_packages() {
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120
		-o Acquire::Retries=3 install -y --no-install-recommends)
	apt-get -s install --no-install-recommends "$@" >/dev/null 2>&1 || as_root apt-get update
	as_root "${apt[@]}" "$@" && return
	# The lists may be older than the archive.
	as_root apt-get update
	as_root "${apt[@]}" "$@"
}

# cache_path THING PATH-OR-TEXT…: prints the cache path of THING built from these inputs
cache_path() {
	local thing=$1 input
	shift
	printf '%s/%s-%s\n' "$cache" "$thing" "$(
		for input in "$@"; do
			if [[ -n $input && -e $top/$input ]]; then
				(cd "$top" && find "$input" -type f -not -name '*.md' -print0 | sort -z |
					xargs -0 sha256sum)
			else
				printf 'text %s\n' "$input"
			fi
		done | sha256sum | cut -c1-16
	)"
}

# cached DIR LABEL BUILDER…: runs `BUILDER… DIR.tmp` and renames it to DIR, unless DIR
# exists. An interrupted build leaves DIR.tmp; concurrent runs build it once.
cached() {
	local dir=$1 label=$2
	shift 2
	[[ ! -d $dir ]] || return 0
	mkdir -p "$cache"
	(
		flock -n 9 || { say "$label: another ./dev builds it; waiting …" && flock 9; }
		[[ ! -d $dir ]] || exit 0
		[[ ! -e $dir.tmp ]] || as_root rm -rf "$dir.tmp"
		# The builder does not inherit the locks: mmdebstrap's hooks need a free
		# descriptor below 10, since a shell can name no other.
		step "$label" "$@" "$dir.tmp" 8>&- 9>&-
		as_root chown -R "$(id -u):$(id -g)" "$dir.tmp"
		mv "$dir.tmp" "$dir"
	) 9>"$dir.lock"
}
