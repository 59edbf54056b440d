#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts and stops the service on the machine on which the VMs run (the rig's host,
# or this one). Run as root.
#   service.sh start RAMETD [FLAG…]   starts it; returns at once
#   service.sh stop                   stops it; returns when it has ended
#   service.sh status                 exits with 0 if it runs
#   service.sh log                    prints the log
#   service.sh follow                 prints the log, and what is added to it
run=${RAMET_RUN_DIR:-/run/ramet}
pidfile=$run/dev.pid
log=${RAMET_LOG:-/var/log/ramet.log}

# Mounts the run directory, as run-ramet.mount does. A mount would hide the sockets of running
# VMs, so nothing is mounted over a directory that is not empty.
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
		[ "$i" -lt 300 ] || { echo "the service did not stop within 30 s: killing it" >&2; kill -KILL "$pid"; }
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
