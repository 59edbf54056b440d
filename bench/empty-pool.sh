#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Create when nothing is ready: a second service beside the running one, with an empty pool, and
# its own directories, port and uids. Its template is booted once and kept for later runs.
# Usage: empty-pool.sh CREATES; prints the JSON of http-latency.
set -eu
creates=$1
here=$(dirname "$0")
log=$(mktemp)
mkdir -p /sys/fs/cgroup/ramet-bench
"$here/../rametd" --listen_port=7071 --pool_warm=0 --pool_shells=0 --vm_uid_base=500000 \
	--run_dir=/run/ramet-bench --state_dir=/var/lib/ramet/bench --cgroup=/ramet-bench \
	>"$log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null; wait $service 2>/dev/null || cat "$log" >&2; rm -f "$log"; rmdir /sys/fs/cgroup/ramet-bench' EXIT
if ! "$here/http-latency" --port 7071 --wait 240 --empty --creates "$creates"; then
	cat "$log" >&2
	exit 1
fi
