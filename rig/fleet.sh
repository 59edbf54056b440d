# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# A fleet of hosts on one machine: run_fleet.py, on this machine or in the rig. Sourced by dev.

# shellcheck disable=SC2154 # dev sets top, the root of the tree; native.sh sets native_root
fleet_stand_ins=$top/build/fleet # the folder of a fleet without VMs
fleet_in_rig=/root/fleet         # the program and etcd, in the rig
fleet_files_in_rig=/var/lib/ramet/fleet

fleet_usage='usage: ./dev fleet [N] [--stand-ins] [--port N] | stop | kill NAME | start NAME | on NAME CMD…'

cmd_fleet() {
	local n='' port=7443 where=''
	case ${1:-} in
	stop | kill | start | on)
		fleet_obey "$@"
		return
		;;
	esac
	while [[ $# -gt 0 ]]; do
		case $1 in
		--stand-ins) where=stand_ins ;;
		--port)
			[[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] && ((${2} <= 65400)) ||
				die "fleet: --port must be a number from 1 to 65400, not '${2:-}'"
			port=$2
			shift
			;;
		-*) die "fleet: there is no option '$1'; $fleet_usage" ;;
		*)
			[[ -z $n && $1 =~ ^[1-9][0-9]?$ ]] ||
				die "fleet: there must be from 1 to 99 hosts, not '${n:+$n }$1'; $fleet_usage"
			n=$1
			;;
		esac
		shift
	done
	need_for_build
	need_etcd
	need_haproxy
	where=${where:-$(where)}
	[[ -z $(fleet_place) ]] || die "fleet: a fleet runs already; ./dev fleet stop ends it"
	trap end_fleet EXIT
	trap 'exit 130' INT TERM
	"fleet_$where" "${n:-3}" "$port"
}

# fleet_obey COMMAND [NAME …]: checks a command to the fleet that runs, and passes it on
fleet_obey() {
	case $1:$# in
	stop:1 | kill:2 | start:2 | on:[3-9] | on:??*) fleet_ask "$@" ;;
	on:*) die "fleet: on needs the name of a host and a command; $fleet_usage" ;;
	stop:*) die "fleet: stop takes no argument" ;;
	*) die "fleet: $1 needs the name of one host or member of etcd; $fleet_usage" ;;
	esac
}

# fleet_here PYTHON RAMETCTL ARG…: runs the program on this machine. Returns when the program, or a
# connection to the rig, has ended. The program is in the background, since bash does not obey a
# signal while it waits for a command.
fleet_here() {
	local program=(env RAMET_ETCD="$(etcd_dir)/etcd" RAMET_HAPROXY="$(haproxy_dir)" RAMETCTL="$2"
		RAMET_BUILD="$top/build/release" PYTHONDONTWRITEBYTECODE=1
		SERVICE_SERVER="$top/build/release/test/service/service_server"
		RAMET_INIT="$top/build/release/guest/ramet-init" "$1" "$top/rig/run_fleet.py" "${@:3}")
	as_root true # a password is asked for now
	[[ $(id -u) -eq 0 ]] || program=(sudo -E "${program[@]}")
	set -m
	"${program[@]}" </dev/null &
	set +m
	fleet_program=$!
	# shellcheck disable=SC2086 # there is one in the rig only
	wait -n "$fleet_program" ${fleet_ssh:-}
}

fleet_boots_rig=no
end_fleet() {
	[[ -z ${fleet_program:-} ]] || as_root kill "$fleet_program" 2>/dev/null || true
	stop_groups
	# shellcheck disable=SC2086 # either may not have been started
	kill ${fleet_ssh:-} ${fleet_forward:-} 2>/dev/null || true
	[[ $fleet_boots_rig == no ]] || rig_down
	wait
}

# Every command N PORT: of the hosts, and of the first region's front.
fleet_stand_ins() {
	need_venv
	build_h2o
	step "service with stand-ins" cmake_tree release ramet-fleet rametctl ramet-init service_server
	fleet_here "$(venv_dir)/bin/python" "$top/build/release/orchestrator/operator/rametctl" \
		--folder "$fleet_stand_ins" --stand-ins --port "$2" "$1"
}

fleet_native() {
	! native_service status || die "the service runs: end it with ./dev down"
	build_parts native build_product
	stage_alone pack_product
	native_unpack
	as_root ln -f "$native_root/rootfs.ext4" "$native_root/usr/share/ramet/rootfs.ext4"
	fleet_here python3 "$native_root/usr/bin/rametctl" \
		--folder "$native_root/fleet" --usr "$native_root/usr" --port "$2" "$1"
}

# HAProxy stays on this machine: it needs a CPU with cmpxchg16b, which the rig's has not (README.md).
fleet_rig() {
	local n=$1 port=$2 forwarded=$(($2 + 10)) forward=() i
	local front=$top/build/fleet-front folder=$fleet_files_in_rig
	build_parts rig build_product
	stage_alone pack_product
	if rig_is_up; then
		! rig_service status || die "the service runs: end it with ./dev down"
		rig_host tar -x -C / <"$top/build/product.tar"
	else
		fleet_boots_rig=yes
		rig_boot </dev/null
	fi
	tar -C "$(etcd_dir)" -c etcd -C "$top/rig" cell.py run_fleet.py |
		rig_host sh -c "rm -f $folder/control; mkdir -p $fleet_in_rig && tar -x -C $fleet_in_rig"
	# It ends with this connection, which is its terminal.
	set -m
	rig_ssh -tt -o ControlPath=none root@127.0.0.1 "RAMETCTL=rametctl RAMET_ETCD=$fleet_in_rig/etcd" \
		"python3 -B $fleet_in_rig/run_fleet.py --folder $folder --port $port --bare $n" </dev/null &
	set +m
	fleet_ssh=$!
	until rig_host test -S $folder/control </dev/null; do
		kill -0 "$fleet_ssh" 2>/dev/null || die "the fleet ended"
		sleep 1
	done
	rm -rf "$front"
	mkdir -p "$front"
	rig_host tar -c -C $folder/front . </dev/null | tar -x -C "$front"
	for ((i = 0; i < n; i++)); do
		forward+=(-L "$((forwarded + i)):$(rig_host cat "$folder/h$((i + 1))/address" </dev/null):7070")
	done
	rig_ssh -N -o ControlPath=none -o ExitOnForwardFailure=yes "${forward[@]}" root@127.0.0.1 </dev/null &
	fleet_forward=$!
	fleet_here python3 "" --folder "$front" --fronts "$forwarded"
}
# fleet_answers FOLDER CMD…: whether a fleet obeys there; CMD runs a command on that machine as root
fleet_answers() {
	"${@:2}" python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' \
		"$1/control" </dev/null 2>/dev/null
}
# fleet_place: prints where a fleet runs: stand_ins, native or rig; nothing if there is none
fleet_place() {
	if [[ -S $fleet_stand_ins/control ]] && fleet_answers "$fleet_stand_ins" as_root; then
		echo stand_ins
	elif [[ -e $native_root ]] && fleet_answers "$native_root/fleet" as_root; then
		echo native
	elif rig_is_up && fleet_answers "$fleet_files_in_rig" rig_host; then
		echo rig
	fi
}

# fleet_ask COMMAND [NAME …]: has the fleet that runs obey
fleet_ask() {
	case $(fleet_place) in
	stand_ins) as_root python3 -B "$top/rig/run_fleet.py" --folder "$fleet_stand_ins" "$@" ;;
	native) as_root python3 -B "$top/rig/run_fleet.py" --folder "$native_root/fleet" "$@" ;;
	rig) rig_host python3 -B "$fleet_in_rig/run_fleet.py" --folder "$fleet_files_in_rig" "$@" ;;
	*) die "no fleet runs; start one with ./dev fleet" ;;
	esac
}
