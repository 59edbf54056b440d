# SPDX-License-Identifier: Apache-2.0
"""A sandbox is a complete Linux machine: mounts, namespaces, cgroups, firewalls, containers.

Tests of containers use the template `containers` (Podman), the others the default template.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from conftest import bash
from ramet import Client, Sandbox

PROGRAMS = Path(__file__).with_name("box")


def program(sbx: Sandbox, name: str) -> str:
    """Runs one of the Python programs in box/ as a separate process; returns its output."""
    sbx.files.upload(PROGRAMS / name, f"/tmp/{name}")
    return bash(sbx, f"python3 /tmp/{name}")


# --- file systems --------------------------------------------------------------------------------


def test_tmpfs_keeps_attributes(shared: Sandbox) -> None:
    script = """
        mkdir -p /tmp/t && mount -t tmpfs -o size=8m t /tmp/t
        python3 -c 'import os; os.setxattr("/tmp/t", "trusted.box", b"yes")
print(os.getxattr("/tmp/t", "trusted.box").decode(), os.statvfs("/tmp/t").f_blocks * 4)'
        umount /tmp/t"""
    assert bash(shared, script) == "yes 8192\n"


@pytest.mark.smoke
def test_overlayfs_leaves_the_lower_layer_unchanged(shared: Sandbox) -> None:
    script = """
        mkdir -p /tmp/o/{lower,upper,work,all} && cd /tmp/o && echo old >lower/file
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work o all
        echo new >all/file && rm -f all/none && cat all/file lower/file upper/file
        umount all"""
    assert bash(shared, script) == "new\nold\nnew\n"


def test_file_system_on_a_loop_device_grows(shared: Sandbox) -> None:
    script = """
        cd /tmp && truncate -s 16M disk && mkfs.ext4 -q disk && mkdir -p disk.d
        mount -o loop disk disk.d && device=$(findmnt -no SOURCE disk.d)
        before=$(stat -fc %b disk.d)
        truncate -s 64M disk && losetup -c "$device" && resize2fs "$device" >/dev/null 2>&1
        after=$(stat -fc %b disk.d)
        echo kept >disk.d/file && umount disk.d && mount -o loop disk disk.d && cat disk.d/file
        ((after > 3 * before)) && echo grown
        umount disk.d"""
    assert bash(shared, script) == "kept\ngrown\n"


def test_fuse_file_system_is_served(shared: Sandbox) -> None:
    assert program(shared, "fuse.py") == "['hello'] served from user space\n"


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.smoke
def test_namespaces_of_every_kind_work(shared: Sandbox) -> None:
    script = """
        unshare --mount --uts --ipc --net --pid --cgroup --time --fork --mount-proc bash -c '
            hostname inner; echo $(hostname) $$ $(ip -br link | cut -d" " -f1)'
        hostname | grep -vq inner"""
    assert bash(shared, script) == "inner 1 lo\n"


def test_unprivileged_user_becomes_root_in_a_user_namespace(shared: Sandbox) -> None:
    script = """
        setpriv --reuid 65534 --regid 65534 --clear-groups \
            unshare --user --map-root-user --net sh -c 'id -u; ip link add v0 type veth && echo made'"""
    assert bash(shared, script) == "0\nmade\n"


@pytest.mark.smoke
def test_nested_control_groups_limit_memory_processes_and_time(shared: Sandbox) -> None:
    script = """
        cd /sys/fs/cgroup && mkdir -p box && echo '+memory +pids +cpu +io +cpuset' >box/cgroup.subtree_control
        mkdir -p box/{memory,pids,cpu}
        echo 32M >box/memory/memory.max && echo 0 >box/memory/memory.swap.max
        echo 1 >box/pids/pids.max && echo '1000 100000' >box/cpu/cpu.max
        in_group() { local g=$1; shift; bash -c 'echo $$ >/sys/fs/cgroup/box/'$g'/cgroup.procs; exec "$@"' - "$@"; }
        in_group memory python3 -c 'x = bytearray(64 << 20)' || echo memory $?
        { in_group pids python3 -c 'import os; os.fork()' 2>&1 || true; } | grep -o BlockingIOError
        in_group cpu bash -c 'until grep -q "nr_throttled [1-9]" /sys/fs/cgroup/box/cpu/cpu.stat; do :; done'
        echo throttled
        rmdir box/{memory,pids,cpu} box"""
    assert bash(shared, script) == "memory 137\nBlockingIOError\nthrottled\n"


def test_seccomp_filter_is_enforced(shared: Sandbox) -> None:
    assert program(shared, "seccomp.py") == "mkdir: Operation not permitted\n"


@pytest.mark.smoke
def test_io_uring_completes_a_request(shared: Sandbox) -> None:
    assert program(shared, "uring.py") == "completed 1234 with 0\n"


def test_bpf_program_denies_devices_to_a_control_group(shared: Sandbox) -> None:
    assert program(shared, "device_bpf.py") == "before: opened\nafter: Operation not permitted\n"


def test_keyrings_message_queues_and_tunnels_work(shared: Sandbox) -> None:
    assert program(shared, "calls.py") == "key kept\nqueue message\ntunnel tun7\n"


# --- networks ------------------------------------------------------------------------------------

# Two network namespaces on a bridge, and one behind NAT that they reach through the sandbox.
NETWORKS = """
    sysctl -qw net.ipv4.ip_forward=1
    ip link add br7 type bridge && ip addr add 10.77.0.1/24 dev br7 && ip link set br7 up
    for n in 1 2; do
        ip netns add in$n && ip link add in$n type veth peer name eth0 netns in$n
        ip link set in$n master br7 up
        ip -n in$n addr add 10.77.0.1$n/24 dev eth0 && ip -n in$n link set eth0 up
        ip -n in$n route add default via 10.77.0.1
    done
    ip netns add out && ip link add out type veth peer name eth0 netns out
    ip addr add 10.78.0.1/24 dev out && ip link set out up
    ip -n out addr add 10.78.0.2/24 dev eth0 && ip -n out link set eth0 up
    cat >/tmp/serve.py <<'.'
import socket, sys
s = socket.create_server(("", 80))
open(sys.argv[1], "w").close()
while True:
    c, peer = s.accept()
    c.sendall(peer[0].encode())
    c.close()
.
    serve() { ip netns exec $1 setsid python3 /tmp/serve.py /tmp/up.$1 >/dev/null 2>&1 & }
    serve out; serve in1
    until [[ -e /tmp/up.out && -e /tmp/up.in1 ]]; do sleep 0.1; done
"""
ASK = """
    ask() { ip netns exec $1 python3 -c 'import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 20).recv(99).decode())' $2 $3; }
"""
NFT = """
    nft -f - <<'.'
table inet box {
    chain post { type nat hook postrouting priority srcnat; oifname "out" masquerade; }
    chain pre { type nat hook prerouting priority dstnat; iifname "out" tcp dport 8080 dnat ip to 10.77.0.11:80; }
    chain forward { type filter hook forward priority filter; ct state invalid drop; }
}
.
"""
IPTABLES = """
    iptables -t nat -A POSTROUTING -s 10.77.0.0/24 -o out -m comment --comment box -j MASQUERADE
    iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp --dport 8080 -j DNAT --to-destination 10.77.0.11:80
    iptables -t mangle -A FORWARD -j MARK --set-mark 7
    iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    iptables -A FORWARD -m mark ! --mark 7 -j REJECT
    ip6tables -t nat -A POSTROUTING -s fd77::/64 -j MASQUERADE
"""


@pytest.mark.parametrize("rules", [NFT, IPTABLES], ids=["nftables", "iptables"])
def test_bridge_with_nat_works_before_and_after_fork(sbx: Sandbox, rules: str) -> None:
    bash(sbx, NETWORKS + rules)
    answers = "ask in2 10.77.0.11 80; ask in2 10.78.0.2 80; ask out 10.78.0.1 8080"
    expected = "10.77.0.12\n10.78.0.1\n10.78.0.2\n"  # bridged, masqueraded, DNAT
    assert bash(sbx, ASK + answers) == expected
    (child,) = sbx.fork()
    with child:
        assert bash(child, ASK + answers) == expected
    assert bash(sbx, ASK + answers) == expected


# --- containers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def podman(client: Client) -> Iterator[Sandbox]:
    """A sandbox with Podman and an image that was built in it from local files."""
    dev = Path(__file__).resolve().parents[2] / "dev"
    subprocess.run([dev, "template", "containers"], check=True)
    with Sandbox(template="containers", client=client) as sandbox:
        bash(
            sandbox,
            """
            mkdir /root/image && cd /root/image && cp /bin/busybox .
            cat >Containerfile <<'.'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN echo built >/etc-built
CMD ["cat", "/etc-built"]
.
            podman build -q -t box . >/dev/null""",
        )
        yield sandbox


def test_container_is_built_and_run_from_local_files(podman: Sandbox) -> None:
    assert bash(podman, "podman run --rm box") == "built\n"


def test_container_has_limits_and_a_volume(podman: Sandbox) -> None:
    script = """
        mkdir -p /root/data
        podman run --rm --memory 64m --pids-limit 20 --cpus 0.5 -v /root/data:/data box sh -c '
            cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max; hostname >/data/name; echo $$'
        test -s /root/data/name"""
    assert bash(podman, script) == "67108864\n20\n1\n"


def test_container_has_a_network_and_a_published_port(podman: Sandbox) -> None:
    script = """
        podman run -d --name web -p 8099:80 box sh -c 'mkdir /w && echo served >/w/index.html && httpd -f -p 80 -h /w' >/dev/null
        for _ in $(seq 100); do curl -fsS http://127.0.0.1:8099/ 2>/dev/null && break; sleep 0.2; done"""
    assert bash(podman, script) == "served\n"
    (child,) = podman.fork()
    with child:
        assert bash(child, "curl -fsS http://127.0.0.1:8099/") == "served\n"
        assert bash(child, "podman exec web cat /etc-built") == "built\n"
    bash(podman, "podman rm -f -t 0 web >/dev/null")
