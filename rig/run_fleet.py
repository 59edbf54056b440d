#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet on one machine, for `./dev fleet`: hosts, the members of etcd, and HAProxy for each region.

Each host and each member of etcd has namespaces of its own (processes, mounts, network), so that it has an
address, its own /var/lib/ramet and /etc/ramet, and can be killed as by a power cut. They are connected by a
bridge in one more network namespace, to which this machine has a cable, too: nothing of the machine's own
network is changed, and all of it is gone when this program ends, by whatever signal.

The hosts run rametd with real guests, or with --stand-ins the test's service (test/service/server.c), whose
sandboxes are all the same agent on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Iterable

from cell import BUILD, Authority, Etcd, Front, Member, rametctl, until, write_secret

REGIONS = ("fsn", "hel")
API_PORT, PEER_PORT, FLEET_CELL = 7070, 7443, 1
START_S = 3600  # under emulation, a template takes minutes to boot on each host
VM_UIDS = 10000  # of each host

# Arguments: the machine's name, a process in the switch's network, an address, a command.
CONNECT = """
switch=/proc/$2/ns/net
nsenter --net=$switch ip link del dev "$1" 2>/dev/null || true # of a machine that was killed
ip link add dev eth0 type veth peer name "$1" netns "$2"
nsenter --net=$switch ip link set dev "$1" master switch up
ip addr add "$3/24" dev eth0
ip link set dev eth0 up
ip link set dev lo up
shift 3
exec "$@"
"""
# Arguments: the cable's name, a process in this machine's network.
SWITCH = """
ip link add dev switch type bridge
ip link set dev switch up
ip link add dev up type veth peer name "$1" netns "$2"
ip link set dev up master switch up
echo ready
exec sleep infinity
"""
# A host's processes see its own folders in the usual places. ramet-fleet is restarted, and waited for, as by systemd.
# Arguments: the host's folder, the program's /usr (or nothing), the command of the service.
HOST = """
home=$1
mount -t overlay -o "lowerdir=$home/etc:/etc" none /etc
[ -z "$2" ] || mount -t overlay -o "lowerdir=$2:/usr" none /usr
mount --bind "$home/lib" /var/lib
mount -t tmpfs -o size=4%,mode=0755,nosuid,nodev,noexec none /run
mkdir /run/ramet
key=/var/lib/ramet/key
[ "${home##*/}" != h1 ] || [ -s $key ] || (umask 077; rametctl key create --tier enterprise --name first >$key)
ulimit -n "$(ulimit -Hn)"
while :; do /usr/lib/ramet/ramet-fleet || sleep 1; done &
until [ -e /var/lib/ramet-fleet/hosts.json ]; do sleep 0.1; done
shift 2
exec "$@"
"""
AS_INIT = ["sh", "-c", '"$@"; exit $?', "init"]  # sh reaps processes that have lost their parent
IN_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *AS_INIT]
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


class Network:
    """The switch, in 198.18.0.0/15, which no network but those of tests uses."""

    def __init__(self, folder: Path) -> None:
        net = int(hashlib.sha256(str(folder).encode()).hexdigest(), 16) % 512
        self.prefix, self.cable = f"198.{18 + net // 256}.{net % 256}.", f"ramet{net}"
        self.machine = self.prefix + "254"
        command = [*WITH_PARENT, "unshare", "--net", "sh", "-ec", SWITCH, "sh", self.cable, str(os.getpid())]
        self.switch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.switch.stdout
        if self.switch.stdout.readline() != "ready\n":
            raise SystemExit(
                f"fleet: the network {self.prefix}0/24 cannot be made (the error is above): if a fleet of this"
                " checkout runs, end it first with ./dev fleet stop"
            )
        run("ip", "addr", "add", f"{self.machine}/24", "dev", self.cable)
        run("ip", "link", "set", "dev", self.cable, "up")

    def on(self, name: str, address: str, command: Iterable[object]) -> list[str]:
        """Returns the command that runs `command` as a machine of its own."""
        place = ["sh", "-ec", CONNECT, "sh", name, str(self.switch.pid), address]
        return [*WITH_PARENT, "unshare", "--net", *place, *IN_NAMESPACES, *map(str, command)]


class Host:
    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet, self.number, self.name = fleet, number, f"h{number}"
        self.address = f"{fleet.network.prefix}{number}"
        self.region = REGIONS[len(REGIONS) * (number - 1) // fleet.n]
        self.folder = fleet.folder / self.name
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.folder / "lib/ramet"

    def settings(self) -> dict[str, object]:
        fronts = self.fleet.endpoints
        others = [f"{region}={url}" for region, url in fronts.items() if region != self.region]
        certificates = "/etc/ramet/fleet"
        return {
            "listen_host": "0.0.0.0",
            "listen_port": API_PORT,
            "allow_open": "yes",  # between HAProxy and the host is only the switch
            "trusted_proxies": f"{self.fleet.network.machine}/32",
            "region": self.region,
            "endpoint": fronts[self.region],
            "regions": ",".join(others),
            "fleet_dir": "/var/lib/ramet-fleet",
            "fleet_id_key": f"{certificates}/id.key",
            "fleet_listen": f"{self.address}:{PEER_PORT}",
            "fleet_ca": f"{certificates}/ca.pem",
            "fleet_cert": f"{certificates}/cert.pem",
            "fleet_key": f"{certificates}/key.pem",
            **self.fleet.kind.settings(self),
        }

    def prepare(self) -> None:
        """Makes its folders, and has it join the fleet."""
        for part in ("etc/ramet", "lib/ramet-fleet/out", "lib/ramet"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        place = f"{self.address}:{PEER_PORT}"
        token = rametctl("fleet", "ca", self.fleet.etcd.ca, "host", self.number, self.name, place, self.region)
        write_secret(self.folder / "token", token)
        (self.folder / "address").write_text(self.address)
        rametctl("fleet", "join", self.folder / "token", self.folder / "etc/ramet/fleet")
        lines = [f"{name} = {value}\n" for name, value in self.settings().items()]
        (self.folder / "etc/ramet/ramet.conf").write_text("".join(lines))
        self.fleet.kind.prepare(self)

    def start(self) -> None:
        kind = self.fleet.kind
        command = ["sh", "-ec", HOST, "sh", self.folder, kind.usr or "", *kind.service(self)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.fleet.network.on(self.name, self.address, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pids(self, name: str) -> list[int]:
        """Returns its processes with a name."""
        assert self.process
        todo, found = [self.process.pid], []
        for pid in todo:
            with contextlib.suppress(FileNotFoundError):  # it has ended
                todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                if Path(f"/proc/{pid}/comm").read_text() == f"{name}\n":
                    found.append(pid)
        return found

    def run(self, *command: str) -> str:
        """Runs a command on it; returns its output."""
        assert self.process
        return subprocess.run(
            [*enter(self.process.pid), *command], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def ready(self) -> bool:
        if not self.process or self.process.poll() is not None:
            raise SystemExit(f"fleet: {self.name} ended; see {self.folder}/log")
        try:
            with urllib.request.urlopen(f"http://{self.address}:{API_PORT}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class StandIns:
    """Hosts with stand-ins of VMs, from a build folder."""

    def __init__(self, fleet: Fleet) -> None:
        self.usr = fleet.folder / "usr"
        for file, into in (("operator/rametctl", "bin"), ("etcd/ramet-fleet", "lib/ramet")):
            (self.usr / into).mkdir(parents=True)
            shutil.copy(BUILD / "orchestrator" / file, self.usr / into)

    def settings(self, host: Host) -> dict[str, object]:
        # Their VMs use no memory, so none is counted.
        place = {"state_dir": "/var/lib/ramet/service/state", "run_dir": "/run/ramet"}
        return {"user": "nobody", **place, "max_vms": 64, "memory_overcommit": 1000, "pool_warm": 2}

    def prepare(self, host: Host) -> None:
        (host.state / "service/state").mkdir(parents=True)

    def service(self, host: Host) -> list[object]:
        return [sys.executable, __file__, "--folder", host.folder, "--service"]


class Guests:
    """Hosts with real guests; Ramet is installed, or below `usr`. They need no network of their own."""

    def __init__(self, usr: Path | None) -> None:
        self.usr = usr
        root = Path("/sys/fs/cgroup")
        controllers = (root / "cgroup.controllers").read_text().split()
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))

    def settings(self, host: Host) -> dict[str, object]:
        place = {"cgroup": f"/ramet-fleet-{host.name}", "vm_uid_base": 1000000 + VM_UIDS * host.number}
        size = {"vcpus": 1, "ram_mib": 512, "pool_blank_vms": 2, "pool_warm": 1, "max_vms": 32}
        return {**place, **size, "network": "", "sizes": "", "templates_dir": "", "boot_timeout_s": 1800}

    def prepare(self, host: Host) -> None:
        Path(f"/sys/fs/cgroup/ramet-fleet-{host.name}").mkdir(exist_ok=True)
        tables = host.folder / "lib/ramet-fleet"
        for path in (host.state, tables, tables / "out"):
            shutil.chown(path, "ramet", "ramet")
        tables.chmod(0o2755)  # the service's group gets the files of ramet-fleet, which root runs here
        for name in ("key.pem", "id.key"):
            shutil.chown(host.folder / "etc/ramet/fleet" / name, group="ramet")
        # One host boots the template; the others have copies.
        images, first = host.state / "templates", host.fleet.hosts[0].state / "templates"
        if host.number > 1 and not images.exists():
            until("the first host", host.fleet.hosts[0].ready, START_S)
            run("cp", "-a", "--sparse=always", first, images)

    def service(self, host: Host) -> list[object]:
        return ["/usr/lib/ramet/rametd"]


def serve_stand_ins() -> None:
    """Runs the test's service as a host's; it keeps its catalogue when it is started again."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "test"))
    from stand_in import Service

    home = Path("/var/lib/ramet")
    shutil.rmtree(home / "agent", ignore_errors=True)
    lines = Path("/etc/ramet/ramet.conf").read_text().splitlines()
    settings = dict(line.split(" = ", 1) for line in lines)
    for name in ("user", "state_dir", "run_dir"):
        del settings[name]
    service = Service(home, *(f"{name}={value}" for name, value in settings.items()))
    service.server.wait()


class Fleet:
    """`ports`: of the front of each region. `usr`: where Ramet is, if it is not installed."""

    def __init__(self, folder: Path, n: int, ports: Iterable[int], usr: Path | None = None, stand_ins: bool = True) -> None:
        self.folder, self.n = folder, n
        self.network = Network(folder)  # fails while another fleet uses the folder
        self.forget()
        regions = REGIONS[: min(n, len(REGIONS))]
        self.endpoints = {region: f"https://127.0.0.1:{port}" for region, port in zip(regions, ports)}
        places = [(f"{self.network.prefix}{101 + i}", 2379, 2380) for i in range(3)]
        (folder / "etcd").mkdir()
        self.etcd = Etcd(folder / "etcd", places, self.on)
        path = self.etcd.ca / "fleet.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "cell": FLEET_CELL}))
        self.kind = StandIns(self) if stand_ins else Guests(usr)
        self.hosts = [Host(self, number) for number in range(1, n + 1)]
        self.fronts: list[Front] = []

    def forget(self) -> None:
        """Removes what an earlier fleet left, except templates, whose boot takes minutes."""
        for templates in self.folder.glob("h*/lib/ramet/templates"):
            templates.rename(self.folder / f"templates-{templates.parts[-4]}")
        for path in self.folder.iterdir():
            if not path.name.startswith("templates-"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for templates in self.folder.glob("templates-*"):
            home = self.folder / templates.name.removeprefix("templates-") / "lib/ramet"
            home.mkdir(parents=True)
            templates.rename(home / "templates")

    def on(self, member: Member, command: list[str]) -> list[str]:
        return self.network.on(member.name, member.address, command)

    def start(self) -> None:
        say("etcd …")
        self.etcd.start()
        for host in self.hosts:
            say(f"{host.name} in {host.region} …")
            host.prepare()
            host.start()
        for host in self.hosts:
            until(f"{host.name} is ready", host.ready, START_S)
        self.describe_fronts()

    def describe_fronts(self) -> None:
        """Writes what start_fronts needs."""
        folder = self.folder / "front"
        authority = Authority(folder)
        for region in self.endpoints:
            host = next(host for host in self.hosts if host.region == region)
            until(f"{host.name} sees all", lambda: len(json.loads(self.table(host))["hosts"]) == self.n)
            (folder / f"{region}.cfg").write_text(host.run("rametctl", "fleet", "haproxy"))
            write_secret(folder / f"{region}.pem", authority.certify(region))
        write_secret(folder / "fronts.json", json.dumps({"key": self.key, "endpoints": self.endpoints}))

    def start_fronts(self) -> None:
        self.fronts = start_fronts(self.folder / "front")
        until("all hosts in front", lambda: sum(len(front.up()) for front in self.fronts) == self.n)

    def table(self, host: Host) -> str:
        return (host.folder / "lib/ramet-fleet/hosts.json").read_text()

    @property
    def key(self) -> str:
        return (self.hosts[0].state / "key").read_text().split("\n", 1)[0]

    def stop(self) -> None:
        (self.folder / "control").unlink(missing_ok=True)
        for front in self.fronts:
            front.stop()
        self.etcd.stop()
        for host in self.hosts:
            host.kill()
        self.network.switch.kill()

    # --- commands ---

    def machines(self) -> dict[str, Host | Member]:
        return {**{host.name: host for host in self.hosts}, **{m.name: m for m in self.etcd.members}}

    def obey(self, command: str, name: str) -> str:
        """Kills or starts a machine, or says which process is its first one's parent. Returns the answer."""
        machine = self.machines().get(name)
        if not machine:
            return f"there is no machine {name!r}; there are: {' '.join(self.machines())}"
        if command == "pid":
            return str(machine.process.pid) if machine.process else f"there is no process on {name}, which is dead"
        if command == "kill":
            machine.kill()
            return f"{name} is dead"
        if not machine.process:
            machine.start()
        return f"{name} runs"

    def serve(self) -> None:
        """Obeys the commands of other processes, one at a time, until one is to stop, SIGINT or SIGTERM."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / "control"))
            listener.listen()
            while True:
                s = listener.accept()[0]
                words = s.recv(256).decode(errors="replace").split()
                if words == ["stop"]:
                    self.stopper = s  # who asked waits until the end of this process closes it
                    return
                answer = self.obey(*words) if len(words) == 2 else "there is no such command"
                with s, contextlib.suppress(OSError):  # who asked may have left
                    s.sendall(answer.encode())

    def show(self) -> None:
        hosts = [f"  {h.name}  {h.address}  {h.region}" for h in self.hosts]
        members = [f"  {m.name}  {m.address}  etcd" for m in self.etcd.members]
        say("", f"A fleet of {self.n} hosts runs:", *hosts, *members)


def check_ports(ports: Iterable[int]) -> None:
    """HAProxy would share a port with another HAProxy."""
    for port in ports:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the last fleet's connections may linger
            try:
                s.bind(("127.0.0.1", port))
            except OSError as error:
                raise SystemExit(
                    f"fleet: port {port}: {error.strerror}; --port P has a fleet use P and P + 1 instead"
                ) from None


def start_fronts(folder: Path, forwarded: int = 0) -> list[Front]:
    """Starts HAProxy for each region. `forwarded`: a port of this machine that is forwarded to h1; h2 has the next."""
    fronts, changes = [], []
    if forwarded:
        place = r"(    server h)(\d+) \S+"
        changes.append((place, lambda m: f"{m[1]}{m[2]} 127.0.0.1:{forwarded + int(m[2]) - 1}"))
    for region, url in json.loads((folder / "fronts.json").read_text())["endpoints"].items():
        (folder / region).mkdir()
        text, pem = ((folder / f"{region}{end}").read_text() for end in (".cfg", ".pem"))
        fronts.append(Front(folder / region, text, int(url.rsplit(":", 1)[1]), pem, *changes))
    return fronts


def show_fronts(folder: Path) -> None:
    made = json.loads((folder / "fronts.json").read_text())
    (_, first), *others = made["endpoints"].items()
    say("", "Paste this into another terminal to use it through HAProxy:")
    say(f"  export RAMET_HOST={first} RAMET_API_KEY={made['key']}")
    say(f"  export RAMET_CA_FILE={folder}/etcd-ca.pem")
    for region, url in others:
        say(f"  # or, for the hosts in {region}: RAMET_HOST={url}")
    say("Kill a host, start it again, look around on one:")
    say("  ./dev fleet kill h2", "  ./dev fleet start h2", "  ./dev fleet on h1 rametctl host list")


def serve_fronts(folder: Path, forwarded: int) -> None:
    """Runs the fronts of a fleet on another machine, until a signal."""
    urls = json.loads((folder / "fronts.json").read_text())["endpoints"].values()
    check_ports(int(url.rsplit(":", 1)[1]) for url in urls)
    fronts = start_fronts(folder, forwarded)
    try:
        show_fronts(folder)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        for front in fronts:
            front.stop()


def ended(*_: object) -> None:
    raise KeyboardInterrupt


def ask(folder: Path, *words: str) -> str:
    """Returns the answer of the fleet that runs to a command."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(folder / "control"))
        except OSError:
            raise SystemExit("fleet: no fleet runs here; start one with ./dev fleet") from None
        s.sendall(" ".join(words).encode())
        answer = b"".join(iter(lambda: s.recv(4096), b"")).decode()
    if answer.startswith("there is no"):
        raise SystemExit(f"fleet: {answer}")
    return answer


def enter(pid: int) -> list[str]:
    """Returns the command that runs another one on the machine that `pid` has started."""
    (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return ["nsenter", f"--target={first}", "--net", "--mount", "--pid"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="for the fleet's files")
    parser.add_argument("--stand-ins", action="store_true", help="run no VMs")
    parser.add_argument("--usr", type=Path, help="where Ramet is, if it is not installed")
    parser.add_argument("--port", type=int, default=PEER_PORT, help="of the first front")
    parser.add_argument("--bare", action="store_true", help="start no HAProxy")
    parser.add_argument("--fronts", type=int, metavar="PORT", help="start only HAProxy, with hosts forwarded from PORT")
    parser.add_argument("--service", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, help="N | stop | kill NAME | start NAME | on NAME CMD…")
    args = parser.parse_args()
    if args.service:
        serve_stand_ins()
    elif args.words[:1] == ["on"]:
        pid = int(ask(args.folder, "pid", args.words[1]))
        command = [*enter(pid), *args.words[2:]]
        os.execvp(command[0], command)
    elif args.words[:1] in (["kill"], ["start"]):
        say(ask(args.folder, *args.words))
    elif args.words == ["stop"]:
        ask(args.folder, "stop")
        say("the fleet has ended")
    else:
        args.folder.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, ended)
        if args.fronts:
            serve_fronts(args.folder, args.fronts)
            return
        ports = range(args.port, args.port + len(REGIONS))
        if not args.bare:
            check_ports(ports)
        fleet = Fleet(args.folder, int(args.words[0]), ports, args.usr, args.stand_ins)
        try:
            fleet.start()
            fleet.show()
            if not args.bare:
                fleet.start_fronts()
                show_fronts(args.folder / "front")
            fleet.serve()
        except KeyboardInterrupt:
            say("the fleet ends")
        finally:
            fleet.stop()


if __name__ == "__main__":
    main()
