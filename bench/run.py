# SPDX-License-Identifier: Apache-2.0
"""Runs one benchmark and shows its figures as a table, an SVG and JSON.

Usage: run.py NAME [--quick] [--json FILE] [--svg FILE], called by `./dev bench`, which sets
RAMET_DEV to the dev script. The measured programs run on the host of the VMs (`dev host`). This uses
only the standard library.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable
from xml.sax.saxutils import escape

from checkpoint_guests import checkpoint_guests
from checkpoints import checkpoints
from command import command
from contention import contention
from files import files
from guests import guests
from hostile import fsync_flood, hostile
from machine import machine as agent_machine
from measure import BENCH_DIR, BenchError, Figures, api, create, figure, host, host_json, opened
from native_service import native_service
from net import net
from output import output
from restart import restart
from routed import routed
from sizes import during_preparation, freed_memory, sized_creates
from soak import soak
from spaces import spaces
from swarm import swarm
from templates import templates
from thousand import thousand
from watch import watch


def kvm_floor(quick: bool) -> Figures:
    """The cost of KVM alone, without a VMM."""
    runs = 30 if quick else 200
    return host_json(f"{BENCH_DIR}/kvm-floor --vcpus 2 --ram-mib 1024 --runs {runs}")


def service(quick: bool) -> Figures:
    """Create from the pool and a bash call, against the running service."""
    runs, creates = (10, 10) if quick else (100, 60)
    return host_json(f"{BENCH_DIR}/http-latency --port 7070 --runs {runs} --creates {creates}")


def call(quick: bool) -> Figures:
    """A call layer by layer, in turns.

    The layers range from an answer of the service without a guest, and a ping of the guest's agent,
    to a call over HTTP.
    """
    return host_json(f"{BENCH_DIR}/call-latency --port 7070 --runs {40 if quick else 400}")


def empty_pool(quick: bool) -> Figures:
    """Create in a second service that keeps no pool."""
    creates = 5 if quick else 30
    settings = "--pool_warm=0 --pool_blank_vms=0"
    return host_json(f"{BENCH_DIR}/second-service.sh '{settings}' http-latency --empty --creates {creates}")


def fork(quick: bool) -> Figures:
    """Forks in a second service, whose pool holds a blank VM for each child."""
    most, what = 5, "--runs 5 --children 1,5 --pauses 10 --dirty 7 --depth 8"
    if not quick:
        most = 100
        what = (
            "--runs 20 --children 1,2,5,10,32,100 --pauses 300"
            " --dirty 1,7,64,256 --touched 512 --depth 1,8,64"
        )
    settings = f"--pool_warm=1 --pool_blank_vms={most} --fork_max={most}"
    what = f"--pool {most + 1} {what}"
    return host_json(f"{BENCH_DIR}/second-service.sh '{settings}' fork-latency {what}", timeout_s=7200)


def density(quick: bool) -> Figures:
    """Children of one sandbox, until the host's memory is low or the maximum is reached."""
    most = 16 if quick else 250
    settings = f"--pool_warm=1 --pool_blank_vms=8 --fork_max=8 --max_vms={most + 20}"
    return host_json(
        f"{BENCH_DIR}/second-service.sh '{settings}' fork-latency --pool 9 --density {most}", timeout_s=7200
    )


def firecracker(quick: bool) -> Figures:
    """Firecracker's snapshot and load of the same guest, if FIRECRACKER names its binary."""
    binary = os.environ.get("FIRECRACKER")
    if not binary:
        return {}
    copy = "/var/lib/ramet/bench-firecracker"
    put = ["sh", "-c", f"cat > {copy} && chmod 755 {copy}"]
    try:
        with Path(binary).open("rb") as file:
            subprocess.run([os.environ["RAMET_DEV"], "host", *put], stdin=file, check=True)
        return host_json(
            f"{BENCH_DIR}/firecracker.py {copy} --runs {5 if quick else 20} --children 1,5",
            timeout_s=3600,
        )
    except (OSError, subprocess.CalledProcessError) as failed:
        raise BenchError(f"FIRECRACKER={binary}: {failed}") from failed
    finally:
        host(f"rm -f {copy}")


# Prints for each VM process the kernel memory of its cgroup in KiB.
KERNEL_KIB = """
for pid in $(pidof ramet-vmm); do
  group=$(cut -d: -f3 /proc/$pid/cgroup)
  awk '$1 == "kernel" {print int($2 / 1024)}' /sys/fs/cgroup$group/memory.stat
done
"""


def memory(quick: bool) -> Figures:
    """Private memory of idle sandboxes.

    One figure has the user pages, the other adds the kernel's memory for a VM process: the median
    of all, since it is not known which process runs which sandbox.
    """
    with opened() as paths:
        made = [create(paths) for _ in range(3 if quick else 8)]
        infos = [json.loads(api("GET", f"/v1/sandboxes/{sandbox_id}")) for sandbox_id in made]
        kernel = statistics.median(int(line) for line in host(KERNEL_KIB).split())
    user = [info["memory_private_bytes"] / 1024 for info in infos]
    return {
        "private_kib_per_vm": figure([pages + kernel for pages in user], "KiB"),
        "private_user_kib_per_vm": figure(user, "KiB"),
    }


def scale(quick: bool) -> Figures:
    """The service with up to 10,000 sandboxes in stand-in VMs, on this machine."""
    top = os.path.dirname(os.environ.get("RAMET_DEV", "./dev"))
    program = os.path.join(top, "build/release/bench/scale-latency")
    runs = "100" if quick else "1000"
    done = subprocess.run([program, "--runs", runs], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(done.stderr.strip() or f"{program} failed")
    found: Figures = json.loads(done.stdout)
    return found


def page(quick: bool) -> Figures:
    """The page /ui/ with a thousand sandboxes in stand-in VMs, in Chromium on this machine."""
    top = Path(__file__).resolve().parent.parent
    seconds, openings = ("3", "5") if quick else ("20", "20")
    server = f"{top}/build/release/test/service/service_server"
    done = subprocess.run(
        [sys.executable, f"{top}/bench/ui/page.py", seconds, openings], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{top}/test", "SERVICE_SERVER": server},
    )  # fmt: skip
    if done.returncode:
        raise BenchError(done.stderr.strip()[-1000:] or "page.py failed")
    found: dict[str, tuple[str, list[float]]] = json.loads(done.stdout)
    return {name: figure(samples, unit) for name, (unit, samples) in found.items()}


def fleet(quick: bool, hours: float = 24) -> Figures:
    """Ten cells of 1,000 simulated hosts for a day, with the service's own placement and limits.

    With `quick` it is one cell of 100 hosts for an hour.
    """
    top = os.path.dirname(os.environ.get("RAMET_DEV", "./dev"))
    program = os.path.join(top, "build/release/bench/fleet-sim")
    size = ["--cells", "1", "--hosts", "100", "--hours", "1"] if quick else ["--hours", str(hours)]
    with tempfile.NamedTemporaryFile() as file:
        # 3: a goal was missed, which the table that the program prints shows
        done = subprocess.run([program, *size, "--json", file.name], check=False)
        if done.returncode not in (0, 3):
            raise BenchError(f"{program} failed")
        found = json.load(file)
    return {name: figure([f["value"]], f["unit"]) for name, f in found.items() if name != "seed"}


BENCHMARKS: dict[str, list[Callable[..., Figures]]] = {
    "checkpoint": [checkpoints],
    "checkpoint-guests": [checkpoint_guests],
    "command": [command],
    "contention": [contention],
    "first-light": [kvm_floor, service, call, memory, empty_pool],
    "fleet": [fleet],
    "fork": [kvm_floor, fork, density, firecracker],
    "files": [files],
    "guests": [guests],
    "hostile": [fsync_flood, hostile],
    "machine": [agent_machine],
    "native-service": [native_service],
    "net": [net],
    "output": [output],
    "page": [page],
    "restart": [restart],
    "routed": [routed],
    "scale": [scale],
    "sizes": [during_preparation, sized_creates, freed_memory],
    "soak": [soak],
    "spaces": [spaces],
    "swarm": [swarm],
    "templates": [templates],
    "thousand": [thousand],
    "watch": [watch],
}


def machine() -> Figures:
    """Returns a description of the machine on which the figures were measured."""
    cpu = host("grep -m1 'model name' /proc/cpuinfo || true").partition(":")[2].strip()
    kernel, cpus = host("uname -r; nproc").split()
    ramet = host("/usr/lib/ramet/rametd --version").strip()
    return {"machine": {"cpu": cpu, "cpus": int(cpus), "kernel": kernel, "ramet": ramet}}


def ratios(figures: Figures) -> Figures:
    """Returns the ratio of a figure's median to the sum of the medians that it is compared with.

    A ratio is left out if one of its figures was not measured.
    """
    compared = {
        "create_pool / kvm_floor": ("create_pool_ms", "kvm_floor_ms"),
        "exec_python / (http_echo + vsock_rtt)": (
            "exec_python_ms",
            "http_echo_ms",
            "vsock_rtt_ms",
        ),
        "exec / (http_echo + vsock_rtt)": ("exec_ms", "http_echo_ms", "vsock_rtt_ms"),
        "child_ready_n1 / kvm_floor": ("child_ready_n1_ms", "kvm_floor_ms"),
        "fork_in_a_row_n5 / fork_answer_n1": ("fork_in_a_row_n5_ms", "fork_answer_n1_ms"),
        "child_ready_n32 / child_ready_n1": ("child_ready_n32_ms", "child_ready_n1_ms"),
        "parent_pause_idle / warm_exit": ("parent_pause_idle_ms", "warm_exit_us"),
        "parent_pause_writing / warm_exit": ("parent_pause_writing_ms", "warm_exit_us"),
        "firecracker_ready_n1 / child_ready_n1": ("firecracker_ready_n1_ms", "child_ready_n1_ms"),
        "firecracker_ready_n5 / child_ready_n5": ("firecracker_ready_n5_ms", "child_ready_n5_ms"),
        "firecracker_full_16m / checkpoint_16m": ("firecracker_full_16m_ms", "checkpoint_16m_ms"),
        "firecracker_diff_16m / checkpoint_16m": ("firecracker_diff_16m_ms", "checkpoint_16m_ms"),
        "firecracker_ready_n1 / start_memory_n1": ("firecracker_ready_n1_ms", "start_memory_n1_ms"),
        "firecracker_ready_n5 / start_memory_n5": ("firecracker_ready_n5_ms", "start_memory_n5_ms"),
        "firecracker_ready_n32 / start_memory_n32": ("firecracker_ready_n32_ms", "start_memory_n32_ms"),
        "firecracker_ready_n1 / rollback": ("firecracker_ready_n1_ms", "rollback_ms"),
        "start_memory_n1 / fork_n1": ("start_memory_n1_ms", "fork_n1_ms"),
        "start_memory_n5 / fork_n5": ("start_memory_n5_ms", "fork_n5_ms"),
        "start_memory_n32 / fork_n32": ("start_memory_n32_ms", "fork_n32_ms"),
        "start_stored_n1 / fork_n1": ("start_stored_n1_ms", "fork_n1_ms"),
        "start_stored_n5 / fork_n5": ("start_stored_n5_ms", "fork_n5_ms"),
        "start_stored_n32 / fork_n32": ("start_stored_n32_ms", "fork_n32_ms"),
        "undo / fork_beside": ("undo_ms", "fork_beside_ms"),
        "last_100 / first_100": ("last_100_ms", "first_100_ms"),
    }
    ms = {"us": 1e-3, "ms": 1.0}
    found = {}
    for name, names in compared.items():
        if all(n in figures for n in names):
            above, *below = (figures[n]["median"] * ms[figures[n]["unit"]] for n in names)
            if sum(below) > 0:
                found[name] = above / sum(below)
    return {"ratios": found} if found else {}


def is_figure(value: Any) -> bool:
    """Returns True if the value has the form of a figure."""
    return isinstance(value, dict) and "median" in value


def table(figures: Figures) -> str:
    """Returns the figures as text, one row each."""
    head = ("figure", "median", "p90", "p99", "p99.9", "min", "max", "n", "unit")
    rows: list[tuple[str, ...]] = [head]
    for name, f in figures.items():
        if is_figure(f):
            values = (f"{f[k]:.3f}" for k in ("median", "p90", "p99", "p99.9", "min", "max"))
            rows.append((name, *values, str(f["n"]), str(f["unit"])))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def svg(figures: Figures, title: str) -> str:
    """Returns a chart of all figures in one unit, in ms if there are any.

    The medians are bars with a whisker to p99, on a logarithmic scale.
    """
    rows = [(n, f) for n, f in figures.items() if is_figure(f) and f["median"] > 0]
    units = [f["unit"] for _, f in rows]
    unit = "ms" if "ms" in units else units[0]
    rows = [(n, f) for n, f in rows if f["unit"] == unit]
    low = math.floor(math.log10(min(f["median"] for _, f in rows)))
    high = math.ceil(math.log10(max(f["p99"] for _, f in rows)))
    left, width, step = 190, 560, 34

    def x(value: float) -> float:
        return left + width * (math.log10(max(value, 10.0**low)) - low) / max(high - low, 1)

    height = 70 + step * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        at = x(10.0**power)
        out.append(f'<line x1="{at}" y1="38" x2="{at}" y2="{height - 24}" stroke="#ddd"/>')
        out.append(
            f'<text x="{at}" y="{height - 8}" text-anchor="middle" fill="#666">'
            f"{10.0**power:g} {unit}</text>"
        )
    for i, (name, f) in enumerate(rows):
        y = 44 + step * i
        end, tip = x(f["median"]), x(f["p99"])
        colour = "#9aa5b1" if "floor" in name or "echo" in name or "rtt" in name else "#2f855a"
        out.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        out.append(
            f'<rect x="{left}" y="{y}" width="{max(end - left, 1):.1f}" height="20" fill="{colour}"/>'
        )
        out.append(
            f'<line x1="{end:.1f}" y1="{y + 10}" x2="{tip:.1f}" y2="{y + 10}" stroke="#333"/>'
        )
        out.append(f'<text x="{tip + 6:.1f}" y="{y + 15}">{f["median"]:.3g}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


QUIET_S = 5
PREPARING = ("ramet_templates_building ", "ramet_warm_ready ")


def wait_until_quiet() -> None:
    """Waits until the service has prepared its images and warm sandboxes.

    It does that in the background, which would disturb the measurement.
    """
    since, before = time.monotonic(), [""]
    while time.monotonic() - since < QUIET_S:
        lines = api("GET", "/metrics").splitlines()
        now = [line for line in lines if line.startswith(PREPARING)]
        if now != before or f"{PREPARING[0]}1" in now:
            since, before = time.monotonic(), now
        time.sleep(0.5)


def main() -> int:
    """Runs one benchmark; returns 1 if a measurement failed."""
    parser = argparse.ArgumentParser(prog="dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="first-light", choices=sorted(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer runs, within a minute")
    parser.add_argument(
        "--sandboxes", type=int, metavar="N", help="restart: number of sandboxes (default 100)"
    )
    parser.add_argument("--hours", type=float, metavar="N", help="hours to run (soak: default 2; fleet: 24)")
    parser.add_argument(
        "--vms", type=int, metavar="N",
        help="number of sandboxes (thousand: default 1000; guests: at most 240) or hosts (swarm: 1000)",
    )
    parser.add_argument(
        "--idle", type=int, metavar="S",
        help="seconds to leave them idle (thousand: default 600; guests: 60)",
    )
    parser.add_argument("--minutes", type=int, metavar="M", help="swarm: minutes to run (default 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the chart to FILE")
    args = parser.parse_args()
    if args.sandboxes and args.name != "restart":
        parser.error("--sandboxes only applies to the benchmark restart")
    if args.hours and args.name not in ("fleet", "soak"):
        parser.error("--hours only applies to the benchmarks fleet and soak")
    if args.vms and args.name not in ("guests", "swarm", "thousand"):
        parser.error("--vms only applies to the benchmarks guests, swarm and thousand")
    if args.idle and args.name not in ("guests", "thousand"):
        parser.error("--idle only applies to the benchmarks guests and thousand")
    if args.minutes and args.name != "swarm":
        parser.error("--minutes only applies to the benchmark swarm")
    options = ("sandboxes", "hours", "vms", "idle", "minutes")
    more = {name: getattr(args, name) for name in options if getattr(args, name)}
    figures: Figures = {}
    try:
        own = ("checkpoint", "fleet", "native-service", "page", "routed", "scale", "swarm", "thousand")
        uses_service = args.name not in own  # they start what they measure
        if uses_service:
            wait_until_quiet()
        for measure in BENCHMARKS[args.name]:
            print(f"measuring: {(measure.__doc__ or '').splitlines()[0]}", file=sys.stderr)
            figures.update(measure(args.quick, **more))
        if uses_service:
            figures.update(machine())
        figures.update(ratios(figures))
    except (BenchError, subprocess.TimeoutExpired) as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return 1
    print(table(figures))
    for name, ratio in figures.get("ratios", {}).items():
        print(f"{name}: {ratio:.2f}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    picture = args.svg or Path("build") / f"bench-{args.name}.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg(figures, f"Ramet, {args.name}: median, line to p99"))
    print(f"picture: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
