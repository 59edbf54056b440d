#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a benchmark program against a second service beside the running one. The second service has
# separate settings, directories, port and uids, and no network, since only one service on a host
# can have that. Its template is booted once and kept for later runs.
# Usage: second-service.sh SETTINGS PROGRAM ARG…; PROGRAM also gets --port and --wait.
set -eu
settings=$1
shift
here=$(dirname "$0")
log=$(mktemp)
mkdir -p /sys/fs/cgroup/ramet-bench
# Prepare no sizes in the background while times are measured.
case $settings in
*--sizes=*) ;;
*) settings="--sizes= $settings" ;;
esac
# shellcheck disable=SC2086 # several settings in one word
"$here/../rametd" --listen_port=7071 --templates_dir= --network= $settings --vm_uid_base=500000 \
	--run_dir=/run/ramet-bench --state_dir=/var/lib/ramet/bench --cgroup=/ramet-bench >"$log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null; wait $service 2>/dev/null || cat "$log" >&2; rm -f "$log"; rmdir /sys/fs/cgroup/ramet-bench' EXIT
program=$1
shift
if ! "$here/$program" --port 7071 --wait 240 "$@"; then
	cat "$log" >&2
	exit 1
fi
