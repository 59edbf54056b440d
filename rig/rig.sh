# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The rig: an emulated machine whose nested KVM runs real guests, for machines whose
# own KVM cannot. Sourced by dev after common.sh, whose functions it uses. State is in
# build/rig.

# shellcheck disable=SC2154 # dev sets top, the root of the tree
rig_dir=$top/build/rig
# The path of a socket must be short, so it is not below the checkout.
rig_sock=/tmp/ramet-rig-$(id -u)-$(printf %s "$top" | sha256sum | cut -c1-12)
rig_mem=${RAMET_RIG_MEM_MIB:-$(awk '/^MemTotal:/ { m = int($2 / 1536); print m < 8192 ? m : 8192 }' /proc/meminfo)}
rig_cpus=${RAMET_RIG_CPUS:-$(nproc)}
rig_nice=${RAMET_RIG_NICE:-0} # of QEMU; the tests set it

rig_pid() {
	local pid
	pid=$(cat "$rig_dir/qemu.pid" 2>/dev/null) || return 1
	# The pid may have been reused by another process.
	grep -qsa "$rig_dir/" "/proc/$pid/cmdline" || return 1
	printf '%s\n' "$pid"
}

rig_is_up() { rig_pid >/dev/null; }
rig_has_booted() { grep -qs 'rig: up' "$rig_dir/console.log"; }

rig_ssh() {
	ssh -F /dev/null -i "$rig_dir/key" -p "$(cat "$rig_dir/ssh.port")" -o LogLevel=ERROR \
		-o "UserKnownHostsFile=$rig_dir/known_hosts" -o StrictHostKeyChecking=yes \
		-o "ControlPath=$rig_sock/%p" -o ControlMaster=auto -o ControlPersist=yes \
		-o KexAlgorithms=curve25519-sha256 -o HostKeyAlgorithms=ssh-ed25519 \
		-o ServerAliveInterval=15 -o "ConnectTimeout=${rig_connect_timeout:-20}" \
		"$@" 8>&-
}

rig_keys() {
	[[ -e $rig_dir/known_hosts ]] && return
	rm -f "$rig_dir"/key* "$rig_dir"/hostkey*
	ssh-keygen -q -t ed25519 -N '' -C ramet-rig -f "$rig_dir/key"
	ssh-keygen -q -t ed25519 -N '' -C ramet-rig -f "$rig_dir/hostkey"
	printf '* %s\n' "$(cut -d' ' -f1,2 "$rig_dir/hostkey.pub")" >"$rig_dir/known_hosts"
}

# Builds the second part of the initramfs, which depends on this tree and not on the
# distribution, and appends it to the first.
rig_initramfs() {
	local dir=$rig_dir/initramfs overlay=$rig_dir/initramfs/overlay
	rm -rf "$dir"
	mkdir -p "$overlay"/{usr/sbin,etc/ssh,root/.ssh}
	install -m 755 "$top/rig/init" "$dir/init"
	cc -O2 -Wall -Wextra -static -o "$overlay/usr/sbin/rig-holder" "$top/rig/holder.c"
	install -m 755 "$top/rig/rig-start.sh" "$overlay/usr/sbin/rig-start"
	install -m 755 "$top/rig/service.sh" "$overlay/usr/sbin/ramet-service"
	install -m 644 "$top/rig/sshd_config" "$overlay/etc/ssh/sshd_config"
	install -m 600 "$rig_dir/hostkey" "$overlay/etc/ssh/hostkey"
	install -m 600 "$rig_dir/key.pub" "$overlay/root/.ssh/authorized_keys"
	chmod 700 "$overlay/root" "$overlay/root/.ssh"
	(cd "$dir" && find . | cpio --quiet -o -H newc -R 0:0) >"$rig_dir/overlay.cpio"
	cat "$1/modules.cpio" "$rig_dir/overlay.cpio" >"$rig_dir/initramfs.cpio"
}

rig_tsc_khz() {
	[[ $rig_dir/tsc -nt $top/rig/tsc.c ]] || cc -O2 -Wall -Wextra -o "$rig_dir/tsc" "$top/rig/tsc.c"
	"$rig_dir/tsc"
}

# Builds the library with which clients that connect at the same moment wait for QEMU
# instead of being reset.
rig_backlog() {
	[[ $rig_dir/backlog.so -nt $top/rig/backlog.c ]] ||
		cc -O2 -Wall -Wextra -shared -fPIC -nostdlib -o "$rig_dir/backlog.so" "$top/rig/backlog.c"
}

# Checks the space for the rig's sparse data disk: tests and a few templates need some GiB.
rig_check_space() {
	local free
	free=$(df --output=avail -B1M "$rig_dir" | tail -n 1)
	((free >= 4096)) || die "the rig needs 4096 MiB of free disk space; $rig_dir has $free MiB"
}

rig_data_disk() {
	[[ -e $rig_dir/data.ext4 ]] && return
	mke2fs -q -t ext4 -m 0 -L data -E lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0 \
		"$rig_dir/data.tmp" "${RAMET_RIG_DISK:-32G}" >/dev/null
	mv "$rig_dir/data.tmp" "$rig_dir/data.ext4"
}

# Prints QEMU's cache mode of the data disk. Data whose flush was acknowledged must survive a
# power cut, so it is never "writeback".
rig_data_cache() {
	if dd if="$rig_dir/data.ext4" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>/dev/null; then
		echo none
	else
		echo writethrough
	fi
}

port_is_taken() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
	local port
	for _ in {1..50}; do
		port=$((20000 + RANDOM % 12000))
		port_is_taken "$port" || { echo "$port"; return; }
	done
	die "no free TCP port was found for ssh into the rig"
}

# rig_start QEMU HOST_IMAGE_DIR ASSETS_FILE PRODUCT_TAR API_PORT: returns once ssh answers
rig_start() {
	local qemu=$1 image=$2 assets=$3 product=$4 port=$5 ssh_port data_cache
	! port_is_taken "$port" ||
		die "port $port of 127.0.0.1 is taken by another program: choose another one with ./dev up --port N"
	mkdir -p "$rig_dir" "$rig_sock"
	chmod 700 "$rig_sock"
	rm -f "$rig_sock"/*
	rig_check_space
	rig_keys
	rig_data_disk
	rig_backlog
	truncate -s 16G "$rig_dir/inbox"
	rig_initramfs "$image"
	data_cache=$(rig_data_cache)
	ssh_port=$(free_port)
	echo "$ssh_port" >"$rig_dir/ssh.port"
	[[ ! -s $rig_dir/console.log ]] || mv "$rig_dir/console.log" "$rig_dir/console.old.log"

	local cmdline="console=ttyS0 quiet mitigations=off nokaslr panic=-1 reboot=t"
	# No guest may run on QEMU's first CPU (README.md), so it has one CPU more, and the first is
	# isolated.
	cmdline+=" isolcpus=0"
	# The clock watchdog would take late emulated ticks for an unstable TSC, and replace it
	# by jiffies of 4 ms.
	cmdline+=" tsc=reliable tsc_early_khz=$(rig_tsc_khz)"
	# shellcheck disable=SC2054 # the commas are part of QEMU's options
	local -a disks=(
		-drive "if=none,id=root,format=raw,readonly=on,file=$image/root.ext4"
		-device virtio-blk-device,drive=root,serial=root
		-drive "if=none,id=assets,format=raw,readonly=on,file=$assets"
		-device virtio-blk-device,drive=assets,serial=assets
		-drive "if=none,id=product,format=raw,readonly=on,file=$product"
		-device virtio-blk-device,drive=product,serial=product
		-drive "if=none,id=data,format=raw,discard=unmap,cache=$data_cache,werror=report,file=$rig_dir/data.ext4"
		-device virtio-blk-device,drive=data,serial=data
		-drive "if=none,id=inbox,format=raw,readonly=on,file=$rig_dir/inbox"
		-device virtio-blk-device,drive=inbox,serial=inbox
	)
	# werror=report: if this machine's disk is full, the rig gets an I/O error. By default QEMU
	# would pause it.
	# phys-bits=40: with more, an inner guest hangs at its first instruction.
	# cx16=off: QEMU 7.2 computes the flags after an unlocked cmpxchg16b from stale
	# state; an interrupt right after one saves garbage (TF, NT) and the kernel dies.
	# erms=off, fsrm=off: QEMU runs "fast" byte copies byte by byte.
	LD_PRELOAD=$rig_dir/backlog.so nice -n "$rig_nice" "$qemu" -daemonize -pidfile "$rig_dir/qemu.pid" \
		-accel tcg,thread=multi -cpu max,phys-bits=40,cx16=off,erms=off,fsrm=off \
		-smp "$((rig_cpus + 1))" -m "$rig_mem" -no-reboot -nodefaults -no-user-config -display none \
		-M microvm,x-option-roms=on,pit=on,pic=on,rtc=on,isa-serial=on,acpi=on \
		-kernel "$image/vmlinuz" -initrd "$rig_dir/initramfs.cpio" -append "$cmdline" \
		"${disks[@]}" -serial "file:$rig_dir/console.log" \
		-netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:7070,hostfwd=tcp:127.0.0.1:$ssh_port-:22" \
		-device virtio-net-device,netdev=net -device virtio-rng-device \
		</dev/null 2>"$rig_dir/qemu.log" 8>&- ||
		die "QEMU could not start the rig: $(tail -n 1 "$rig_dir/qemu.log")"
	# Between sessions, a kernel with autogroups compares the niceness of the groups only.
	echo "$rig_nice" 2>/dev/null >"/proc/$(cat "$rig_dir/qemu.pid")/autogroup" || true
	rig_wait
}

rig_wait() {
	local deadline=$((SECONDS + 90))
	until rig_has_booted && rig_connect_timeout=3 rig_ssh root@127.0.0.1 true 2>/dev/null; do
		if ! rig_is_up; then
			tail -n 5 "$rig_dir/qemu.log" "$rig_dir/console.log" >&2
			die "the rig's QEMU ended before its host could be reached"
		fi
		((SECONDS < deadline)) || die "the rig's host did not answer ssh within 90 s; see $rig_dir/console.log"
		sleep 0.1
	done
}

# rig_host CMD...: runs a command on the rig's host, with the input, output and exit
# status of this function
rig_host() {
	local tty=()
	[[ ! (-t 0 && -t 1) ]] || tty=(-t)
	rig_ssh "${tty[@]}" root@127.0.0.1 "$(printf '%q ' "$@")"
}

rig_service() { rig_host ramet-service "$@"; }

rig_boot() {
	local product=$top/build/product.tar
	[[ -e $product ]] || tar -cf "$product" --files-from /dev/null
	say "starting the rig"
	rig_start "$(qemu_dir)/run" "$(host_image_dir)" "$(assets_dir)/assets.ext4" "$product" "$(api_port)"
	cp "$product" "$rig_dir/product.tar"
	say "the rig is up"
}

# Copies the templates that were built to the data disk. They are large and ssh is slow
# under emulation, so the rig reads them from a disk, with O_DIRECT since the disk's
# content changes.
rig_templates() {
	local built name into=/var/lib/ramet/rig/templates inbox=$rig_dir/inbox
	for built in "$top"/build/templates/*; do
		name=${built##*/}
		[[ -d $built && $(rig_host cat "$into/$name/of" 2>/dev/null) != "$(readlink "$built")" ]] || continue
		say "bringing template $name into the rig"
		tar -C "$built/" --sparse -cf "$inbox" .
		rig_host sh -ec "rm -rf $into/.$name $into/.old-$name; mkdir $into/.$name
			dd if=/dev/inbox iflag=direct bs=1M count=$(($(stat -c %s "$inbox") / 1048576 + 1)) status=none |
				tar -x -C $into/.$name
			echo $(readlink "$built") >$into/.$name/of
			[ ! -e $into/$name ] || mv $into/$name $into/.old-$name
			mv $into/.$name $into/$name; rm -rf $into/.old-$name"
		truncate -s 0 "$inbox" # frees its space
		truncate -s 16G "$inbox"
	done
}

# rig_up FLAG…: starts the current build of the service in the rig
rig_up() {
	rig_is_up || rig_boot
	rig_templates
	if ! cmp -s "$top/build/product.tar" "$rig_dir/product.tar"; then
		say "bringing the new build into the running rig"
		rig_service stop
		rig_host tar -x -C / <"$top/build/product.tar"
		cp "$top/build/product.tar" "$rig_dir/product.tar"
	elif [[ $# -eq 0 ]] && rig_service status; then
		return
	else
		rig_service stop
	fi
	# Under emulation, a warm-up with many imports takes minutes on a busy machine.
	[[ " $* " == *" --boot_timeout_s="* ]] || set -- --boot_timeout_s=900 "$@"
	rig_service start /usr/lib/ramet/rametd "$@"
}

rig_down() {
	rig_is_up || { rig_forget; return 0; }
	if rig_has_booted; then
		rig_service stop || true
		mkdir -p "$log_dir"
		rig_service log >"$log_dir/rametd.log" 2>/dev/null || true
	fi
	rig_stop
	say "the rig is off"
}

rig_stop() {
	local pid
	pid=$(rig_pid) || { rig_forget; return 0; }
	if rig_has_booted; then
		# sysrq-b after a sync and a read-only remount leaves the disk clean, and is quick.
		rig_connect_timeout=3 rig_ssh root@127.0.0.1 \
			'sync; umount /var/lib/ramet || mount -o remount,ro /var/lib/ramet; echo b >/proc/sysrq-trigger' \
			>/dev/null 2>&1 || true
		local deadline=$((SECONDS + 10))
		while [[ -e /proc/$pid ]] && ((SECONDS < deadline)); do sleep 0.05; done
	fi
	[[ ! -e /proc/$pid ]] || kill -9 "$pid"
	while [[ -e /proc/$pid ]]; do sleep 0.05; done
	rig_forget
}

rig_forget() {
	local sock
	for sock in "$rig_sock"/*; do
		[[ ! -S $sock ]] || ssh -F /dev/null -o "ControlPath=$sock" -O exit rig 2>/dev/null || true
	done
	rm -rf "$rig_sock"
	rm -f "$rig_dir"/{qemu.pid,ssh.port}
}
