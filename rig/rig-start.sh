#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Second step of the rig's start: the part that needs the whole userland. Runs in
# parallel with sshd.

# QEMU forwards to 10.0.2.15, the service listens on the loopback address.
echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet
nft -f - <<EOF
table ip ramet_rig {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		iifname "eth0" tcp dport 7070 dnat to 127.0.0.1
	}
}
EOF
