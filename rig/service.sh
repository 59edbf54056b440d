#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Start and stop the service on the machine where the VMs run (the rig's host,
# or this one). Run as root.
#   service.sh start RAMETD [FLAG…]   returns at once
#   service.sh stop                   returns when it has ended
#   service.sh status                 exit 0 while it runs
#   service.sh log | follow           the log so far, or as it grows
run=${RAMET_RUN_DIR:-/run/ramet}
pidfile=$run/dev.pid
log=${RAMET_LOG:-/var/log/ramet.log}

# As run-ramet.mount does it. A VM that runs has its socket in the directory: nothing is mounted
# over that.
mount_run() {
	mkdir -p "$run"
	mountpoint -q "$run" || [ -n "$(ls -A "$run")" ] ||
		mount -t tmpfs -o size=4%,mode=0755,nosuid,nodev,noexec ramet "$run"
}

running() {
	pid=$(cat "$pidfile" 2>/dev/null) && grep -qsa rametd "/proc/$pid/cmdline"
}

case ${1:-} in
start)
	running && { echo "the service runs already (process $pid)" >&2; exit 1; }
	shift
	mount_run
	ulimit -n 65536
	[ ! -s "$log" ] || mv "$log" "$log.old"
	setsid "$@" </dev/null >"$log" 2>&1 &
	echo $! >"$pidfile"
	;;
stop)
	running || { rm -f "$pidfile"; exit 0; }
	kill -TERM "$pid"
	i=0
	while [ -e "/proc/$pid" ]; do
		i=$((i + 1))
		[ "$i" -lt 300 ] || { echo "the service did not stop within 30 s; it is killed" >&2; kill -KILL "$pid"; }
		sleep 0.1
	done
	rm -f "$pidfile"
	;;
status) running ;;
log) cat "$log" ;;
follow) exec tail -n +1 -F "$log" ;;
*)
	echo "usage: service.sh start RAMETD [FLAG…] | stop | status | log | follow" >&2
	exit 2
	;;
esac
