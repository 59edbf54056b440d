# SPDX-License-Identifier: Apache-2.0
"""What an agent does in its machine: processes, results, servers, forks of loaded data; each compared
with what it replaces, in turns.

The client runs on the host of the VMs, as for `files`. This program is called there as
`machine.py [--quick]`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

from files import call, run
from measure import BENCH_DIR, BenchError, Figure, Figures, create, figure, host_json, opened

PORT = 8000
PROCESSES = 20

# A picture of some KiB without the cost of drawing it.
PICTURE = """
import os, struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\\0' + os.urandom(96) for _ in range(96))
png = (b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 96, 96, 8, 0, 0, 0, 0))
       + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
class Picture:
    def _repr_png_(self):
        return png
"""

# A server that costs the guest as little as possible: / is two bytes, any other path is the file.
SERVER = f"""
import os, socket, threading
def serve(line):
    asked = b''
    while True:
        while b'\\r\\n\\r\\n' not in asked:
            more = line.recv(65536)
            if not more:
                return
            asked += more
        head, _, asked = asked.partition(b'\\r\\n\\r\\n')
        if head.split(b' ')[1] == b'/':
            line.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok')
            continue
        with open('/root/bench', 'rb') as file:
            size = os.fstat(file.fileno()).st_size
            line.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n' % size)
            line.sendfile(file)
server = socket.create_server(('127.0.0.1', {PORT}), backlog=64)
while True:
    threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""

# Counts in its own file for as long as it lives.
COUNT = """
import sys
n, file = 0, open(sys.argv[1], 'w')
while True:
    n += 1
    if n % 1000 == 0:
        file.seek(0)
        file.write(f'{n:015}')
        file.flush()
"""
READ_COUNTS = (
    "import os\nfor i in range({n}):\n    path = f'/tmp/count-{{i}}'\n"
    "    print(int(open(path).read() or 0) if os.path.exists(path) else 0)"
)

FRAME = "import numpy as np, pandas as pd\ndf = pd.DataFrame(np.random.rand(1_250_000, 10))"
FRAME_BYTES = "print(int(df.memory_usage(deep=True).sum()))"


def post(path: str, body: dict[str, object]) -> bytes:
    return call("POST", path, json.dumps(body).encode())


def events(answer: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in answer.split(b"\n") if line]


def timed(work: Callable[[], None]) -> float:
    """Returns the milliseconds that the work took."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def in_turns(works: dict[str, Callable[[], None]], runs: int) -> dict[str, list[float]]:
    """Runs the works alternately, after one run of each that is not counted."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for i in range(runs + 1):
        for name, work in works.items():
            ms = timed(work)
            if i:
                took[name].append(ms)
    return took


def ratio(above: list[float], below: list[float]) -> Figure:
    return figure([statistics.median(above) / statistics.median(below)], "times")


def check_exit(answer: bytes, what: str) -> None:
    last = events(answer)[-1]
    if last.get("type") != "exit" or last.get("data") != 0:
        raise BenchError(f"{what} ended with {last}")


# --- processes --------------------------------------------------------------------------------


def process_starts(box: str, runs: int) -> Figures:
    """A program from its start to its exit, compared with a bash call."""

    def process() -> None:
        check_exit(post(f"{box}/processes", {"command": "true"}), "the process")

    def bash() -> None:
        check_exit(post(f"{box}/exec", {"language": "bash", "code": "true"}), "the call")

    took = in_turns({"process": process, "bash": bash}, runs)
    return {
        "process_ms": figure(took["process"], "ms"),
        "exec_bash_ms": figure(took["bash"], "ms"),
        "process_over_bash": ratio(took["process"], took["bash"]),
    }


def counts(box: str) -> list[int]:
    return [int(n) for n in run(box, READ_COUNTS.format(n=PROCESSES)).split()]


def many_processes(box: str, seconds: float) -> Figures:
    """Busy processes at the same time: how far the slowest is behind the median."""
    ids = []
    for i in range(PROCESSES):
        argv = ["python3", "-c", COUNT, f"/tmp/count-{i}"]
        ids.append(json.loads(post(f"{box}/processes", {"argv": argv, "detach": True}))["id"])
    while min(counts(box)) == 0:
        time.sleep(0.5)
    before = counts(box)
    time.sleep(seconds)
    done = [after - n for after, n in zip(counts(box), before)]
    for one in ids:
        call("DELETE", f"{box}/processes/{one}")
    if min(done) == 0:
        raise BenchError(f"a process made no progress in {seconds} s: {done}")
    return {"processes_20_slowest_share": figure([min(done) / statistics.median(done)], "times")}


# --- results ----------------------------------------------------------------------------------


def results(box: str, runs: int) -> Figures:
    """A call whose result is a picture, compared with one that prints its length."""
    run(box, PICTURE)

    def picture() -> None:
        answer = post(f"{box}/exec", {"code": "Picture()", "results": True})
        check_exit(answer, "the call")
        shown = [e["mime"] for e in events(answer) if e.get("type") == "result"]
        if len(shown) != 1 or "image/png" not in str(shown[0]):
            raise BenchError(f"the call has no picture as its result: {answer[:200]!r}")

    def length() -> None:
        check_exit(post(f"{box}/exec", {"code": "print(len(Picture()._repr_png_()))"}), "the call")

    took = in_turns({"picture": picture, "length": length}, runs)
    return {
        "result_png_ms": figure(took["picture"], "ms"),
        "print_length_ms": figure(took["length"], "ms"),
        "result_png_over_print": ratio(took["picture"], took["length"]),
    }


# --- ports ------------------------------------------------------------------------------------


def start_server(box: str) -> None:
    post(f"{box}/processes", {"argv": ["python3", "-c", SERVER], "detach": True})
    give_up = time.monotonic() + 120
    while True:
        try:
            call("GET", f"{box}/ports/{PORT}/")
            return
        except BenchError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def ports(box: str, runs: int, size: int) -> Figures:
    """A request to a server in the sandbox and a large answer, compared with a call and a download."""
    data = os.urandom(size)
    call("PUT", f"{box}/files?path=/root/bench", data)
    start_server(box)

    def request() -> None:
        if call("GET", f"{box}/ports/{PORT}/") != b"ok":
            raise BenchError("the server gave another answer")

    def nothing() -> None:
        check_exit(post(f"{box}/exec", {"code": "pass"}), "the call")

    def through_port() -> None:
        if call("GET", f"{box}/ports/{PORT}/bench") != data:
            raise BenchError("the bytes from the port differ")

    def download() -> None:
        if call("GET", f"{box}/files?path=/root/bench") != data:
            raise BenchError("the downloaded bytes differ")

    short = in_turns({"port": request, "pass": nothing}, runs)
    large = in_turns({"port": through_port, "file": download}, max(runs // 10, 3))
    speeds = {name: [size / 1e3 / ms for ms in took] for name, took in large.items()}
    return {
        "port_ms": figure(short["port"], "ms"),
        "exec_pass_ms": figure(short["pass"], "ms"),
        "port_over_pass": ratio(short["port"], short["pass"]),
        "port_download": figure(speeds["port"], "MB/s"),
        "file_download": figure(speeds["file"], "MB/s"),
        "port_over_file": ratio(speeds["port"], speeds["file"]),
    }


# --- forks ------------------------------------------------------------------------------------


def fork_of(box: str, children: int, code: str) -> tuple[float, float]:
    """Forks; returns the milliseconds of the fork, and of the first call in a child."""
    with opened() as paths:
        answer = b""

        def fork() -> None:
            nonlocal answer
            answer = post(f"{box}/fork", {"n": children})

        took = timed(fork)
        paths += [f"/v1/sandboxes/{child}" for child in json.loads(answer)["children"]]
        return took, timed(lambda: check_exit(post(f"{paths[0]}/exec", {"code": code}), "the call"))


def frame_forks(box: str, runs: int) -> Figures:
    """Forks of a sandbox with 100 MB of data in a DataFrame, compared with an empty sandbox's."""
    took: dict[str, list[float]] = {}
    with opened() as paths:
        create(paths)
        empty = paths[0]
        check_exit(post(f"{box}/exec", {"code": FRAME}), "loading pandas (is it in the template?)")
        size = int(run(box, FRAME_BYTES))
        if not 95e6 < size < 105e6:
            raise BenchError(f"the frame has {size} bytes")
        for i in range(runs + 1):
            for name, parent, code in (("frame", box, "df[0].sum()"), ("empty", empty, "pass")):
                for children in (1, 4):
                    ms, first_ms = fork_of(parent, children, code)
                    if i:
                        took.setdefault(f"fork_{name}_n{children}_ms", []).append(ms)
                        took.setdefault(f"fork_{name}_n{children}_first_call_ms", []).append(first_ms)
    figures = {name: figure(ms, "ms") for name, ms in took.items()}
    figures["fork_frame_over_empty"] = ratio(took["fork_frame_n4_ms"], took["fork_empty_n4_ms"])
    return figures


def measure_machine(quick: bool) -> Figures:
    runs, size = (5, 8 << 20) if quick else (40, 64 << 20)
    figures: Figures = {}
    with opened() as paths:
        create(paths)
        box = paths[0]
        figures |= process_starts(box, runs)
        figures |= results(box, runs)
        figures |= ports(box, runs, size)
        figures |= many_processes(box, 5 if quick else 20)
    with opened() as paths:
        create(paths)
        figures |= frame_forks(paths[0], 2 if quick else 7)
    return figures


def machine(quick: bool) -> Figures:
    """Processes, results, servers and forks of loaded data, each compared with what it replaces."""
    return host_json(f"python3 {BENCH_DIR}/machine.py{' --quick' if quick else ''}", timeout_s=7200)


if __name__ == "__main__":
    print(json.dumps(measure_machine("--quick" in sys.argv)))
