# SPDX-License-Identifier: Apache-2.0
"""Fork, merge and diff of real guests: what is cloned, what is separate, and what is not disturbed."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Iterator

import httpx
import pytest

import ramet
from conftest import on_host, output, run_example, until
from ramet import Client, Sandbox


@contextmanager
def forked(parent: Sandbox, n: int = 1, *, reseed: bool = False) -> Iterator[list[Sandbox]]:
    """Yields children, and closes them when the block is left."""
    with ExitStack() as stack:
        yield [stack.enter_context(child) for child in parent.fork(n, reseed=reseed)]


def ask(sbx: Sandbox, expression: str) -> str:
    """Evaluates a Python expression in the sandbox; returns the result as text."""
    return output(sbx, f"print({expression}, end='')")


# --- what is cloned ---

STATE = """
import hashlib, os, subprocess, threading, time
numbers = list(range(1000))
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.01)
threading.Thread(target=tick, daemon=True).start()
background = subprocess.Popen(['sh', '-c', 'while :; do sleep 1; done'])
half_read = open('/root/half', 'w+')
half_read.write('first second')
half_read.seek(6)
nameless = open('/root/nameless', 'w+')
os.unlink('/root/nameless')
nameless.write('still here')
nameless.flush()
os.makedirs('/run/ram', exist_ok=True)
subprocess.run(['mount', '-t', 'tmpfs', 'none', '/run/ram'], check=True)
open('/run/ram/file', 'w').write('in memory only')
noise = os.urandom(4 << 20)
with open('/root/dirty', 'wb') as f:  # in the page cache only
    f.write(noise)
digest = hashlib.sha256(noise).hexdigest()
"""

LOOK = """
before = ticks
time.sleep(0.5)
nameless.seek(0)
print(sum(numbers))
print('ticking' if ticks > before else 'stopped')
print('running' if background.poll() is None else 'gone')
print(half_read.read())
print(nameless.read())
print(open('/run/ram/file').read())
print(hashlib.sha256(open('/root/dirty', 'rb').read()).hexdigest() == digest)
"""


@pytest.mark.smoke
def test_children_inherit_the_whole_state(sbx: Sandbox) -> None:
    output(sbx, STATE)
    wanted = "499500\nticking\nrunning\nsecond\nstill here\nin memory only\nTrue\n"
    with forked(sbx, 2) as children:
        for one in (*children, sbx):
            assert output(one, LOOK) == wanted


def test_parent_and_children_have_separate_memory_and_disk(sbx: Sandbox) -> None:
    output(sbx, "whose = 'parent'\nopen('/root/whose', 'w').write('parent')")
    with forked(sbx, 2) as (a, b):
        for name, one in (("a", a), ("b", b)):
            output(one, f"whose += ' {name}'\nopen('/root/whose', 'a').write(' {name}')")
            output(one, f"sync; echo {name} > /root/{name}; sync", "bash")
        output(sbx, "whose += ' went on'\nopen('/root/whose', 'a').write(' went on')")
        for one, wanted in ((a, "parent a"), (b, "parent b"), (sbx, "parent went on")):
            assert ask(one, "whose + '|' + open('/root/whose').read()") == f"{wanted}|{wanted}"
        listed = [output(one, "cd /root; ls a b 2>&1 | sort", "bash") for one in (a, b, sbx)]
        assert ["No such file" in text for text in listed] == [True, True, True]
        assert listed[0].splitlines()[0] == "a" and "'b'" in listed[0]
        assert listed[1].splitlines()[0] == "b" and "'a'" in listed[1]


def test_five_children_serve_concurrently_and_name_their_parent(sbx: Sandbox) -> None:
    output(sbx, "base = 100")
    with forked(sbx, 5) as children:
        assert len({child.id for child in children} | {sbx.id}) == 6
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda i: ask(children[i], f"base + {i}"), range(5)))
        assert answers == ["100", "101", "102", "103", "104"]
        assert sorted(sbx.info().children) == sorted(child.id for child in children)
        assert {child.info().parent for child in children} == {sbx.id}
        children[0].close()
        assert children[0].id not in sbx.info().children
    assert sbx.info().children == []


def test_generations_of_forks_keep_their_state(client: Client) -> None:
    """Each generation writes memory and disk, and its parent is closed before the next fork."""
    generation = Sandbox(client=client)
    with ExitStack() as stack:
        stack.callback(lambda: generation.close())
        output(generation, "line = []")
        for depth in range(8):
            output(
                generation,
                f"line.append({depth})\nblock{depth} = bytes([{depth}]) * 300_000\n"
                f"open('/root/{depth}', 'w').write('{depth}' * 5000)",
            )
            (child,) = generation.fork()
            generation.close()
            generation = child
        assert ask(generation, "line") == str(list(range(8)))
        check = (
            "all(globals()[f'block{d}'] == bytes([d]) * 300_000"
            " and open(f'/root/{d}').read() == str(d) * 5000 for d in line)"
        )
        assert ask(generation, check) == "True"


def test_repeated_forks_do_not_exhaust_the_parent(sbx: Sandbox) -> None:
    sbx.run_code("held = bytearray(240 << 20)")
    with ExitStack() as children:
        for number in range(1, 6):
            sbx.run_code(f"held[::4096] = bytes([{number}]) * (len(held) // 4096)")
            (child,) = sbx.fork(1)
            children.enter_context(child)
        assert sbx.run_code("print(held[0], held[-4096])").stdout == "5 5\n"
        assert child.run_code("print(held[0], held[-4096])").stdout == "5 5\n"


# --- calls in progress during a fork ---

COUNT = """
import time
for i in range(60):
    print(i, 'x' * 200, flush=True)
    time.sleep(0.05)
done = True
"""


@pytest.mark.smoke
def test_running_call_continues_in_parent_and_children(sbx: Sandbox) -> None:
    """The parent's stream has every byte once; a child's replay has the output from before and
    after the fork."""
    stream = sbx.run_code_stream(COUNT)
    text = ""
    children: list[Sandbox] = []
    for event in stream:
        if event.type == "exit":
            assert event.code == 0
            continue
        assert event.type == "stdout"
        text += str(event.data)
        if not children and text.count("\n") > 10:
            children = sbx.fork(2)
    wanted = "".join(f"{i} {'x' * 200}\n" for i in range(60))
    assert text == wanted
    with ExitStack() as stack:
        for child in children:
            stack.enter_context(child)
        for child in children:
            until(lambda: child.replay()[-1].type == "exit")
            events = child.replay()
            assert "".join(str(e.data) for e in events if e.type == "stdout") == wanted
            assert [e.seq for e in events] == list(range(1, len(events) + 1))
            assert [e.code for e in events if e.type == "exit"] == [0]
            assert ask(child, "i, done") == "59 True"


def test_output_and_connections_of_the_parent_survive_forks(sbx: Sandbox) -> None:
    """Sends 2 MiB over TCP inside the guest, and from there to the client, across five forks."""
    code = (
        "import hashlib, os, socket, sys, threading\n"
        "a, b = socket.socketpair()\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "a = socket.create_connection(server.getsockname())\n"
        "b, _ = server.accept()\n"
        "h, n = hashlib.sha256(), 0\n"
        "for i in range(32):\n"
        "    block = os.urandom(32768).hex()\n"
        "    threading.Thread(target=a.sendall, args=(block.encode(),)).start()\n"
        "    got = b''\n"
        "    while len(got) < len(block):\n"
        "        got += b.recv(65536)\n"
        "    h.update(got)\n"
        "    sys.stdout.write(got.decode())\n"
        "sys.stdout.write('\\n' + h.hexdigest())\n"
    )
    forks = 0
    received = bytearray()
    for event in sbx.run_code_stream(code):
        received += event.raw
        if event.type == "stdout" and forks < 5 and len(received) > (forks + 1) << 18:
            forks += 1
            for child in sbx.fork():
                child.close()
        assert event.type != "exit" or event.code == 0
    assert forks == 5
    text, digest = bytes(received).split(b"\n")
    assert len(text) == 2 << 20
    assert hashlib.sha256(text).hexdigest() == digest.decode()


# --- uniqueness ---

KERNEL_DRAW = (
    "import os, socket, ssl, uuid\n"
    "print(os.urandom(16).hex(), uuid.uuid4(), socket.gethostname(), ssl.RAND_bytes(16).hex(),"
    " open('/proc/sys/kernel/random/boot_id').read().strip(),"
    " open('/proc/sys/kernel/random/uuid').read().strip())"
)


@pytest.mark.smoke
def test_random_sources_identities_and_clocks_are_right(sbx: Sandbox) -> None:
    """OpenSSL's generator, which makes keys, is cloned and was used before the fork."""
    output(sbx, "import ssl, time\nssl.RAND_bytes(16)\nat = time.monotonic()")
    with forked(sbx, 3) as children:
        draws = [output(one, KERNEL_DRAW).split() for one in (sbx, *children)]
        for column in zip(*draws, strict=True):
            assert len(set(column)) == 4, f"shared: {column}"
        assert [draw[2] for draw in draws[1:]] == [f"ramet-{c.id[4:12]}" for c in children]
        before = float(on_host("date +%s.%N"))
        guest, later = json.loads(ask(children[0], "[time.time(), int(time.monotonic() > at)]"))
        assert before - 0.1 <= guest <= float(on_host("date +%s.%N")) + 0.1
        assert later


def draws_of(sandboxes: list[Sandbox], expression: str) -> list[str]:
    return [ask(one, expression) for one in sandboxes]


def test_python_random_is_inherited_unless_reseeded(sbx: Sandbox) -> None:
    output(sbx, "import random\nrandom.random()")
    with forked(sbx, 2) as children:
        assert len(set(draws_of([sbx, *children], "random.random()"))) == 1
    with forked(sbx, 2, reseed=True) as children:
        assert len(set(draws_of([sbx, *children], "random.random()"))) == 3


def test_numpy_generator_is_reseeded_if_imported(sbx: Sandbox) -> None:
    output(sbx, "import numpy\nnumpy.random.seed(1)")
    with forked(sbx, 2, reseed=True) as children:
        drawn = draws_of([sbx, *children], "numpy.random.random()")
        assert len(set(drawn)) == 3
        assert drawn[0].startswith("0.417022")  # the parent's generator keeps its seed


# --- merge ---


@pytest.mark.smoke
def test_merge_replaces_the_parent_by_the_winner(sbx: Sandbox, client: Client, http: httpx.Client) -> None:
    output(sbx, "x = 1\nopen('/root/f', 'w').write('old')")
    with forked(sbx, 2) as (winner, loser):
        output(winner, "x = 2\nopen('/root/f', 'w').write('new')")
        sbx.merge_into(winner)
        assert ask(sbx, "x, open('/root/f').read()") == "2 new"
        with pytest.raises(ramet.NotFound):
            client.get_sandbox(winner.id)
        with pytest.raises(ramet.NotFound):
            winner.run_code("1")
        winner.close()
        assert http.delete(f"/v1/sandboxes/{winner.id}").status_code == 204
        assert ask(sbx, "x") == "2"
        assert ask(loser, "x, open('/root/f').read()") == "1 old"
        assert sbx.info().children == [loser.id]
        (child,) = sbx.fork()  # a merged sandbox can be forked and merged again
        with child:
            output(child, "x = 3")
            sbx.merge_into(child)
    assert ask(sbx, "x") == "3"


# --- diff ---

PLANT = r"""
import os
root = b'/root/tree'
os.makedirs(root + b'/deep/er/still')
def put(name, data=b'same'):
    with open(root + b'/' + name, 'wb') as f:
        f.write(data)
for name in (b'plain', b'with space', b'new\nline', 'ünïcode'.encode(), b'not \xff utf-8', b'a.b',
             b'gone', b'hidden', b'chmod', b'chown', b'grown', b'empty', b'now a folder',
             b'deep/er/file', b'deep/er/still/there'):
    put(name)
os.mkdir(root + b'/a')
put(b'a/b')
os.symlink(b'nowhere', root + b'/link')
os.mkfifo(root + b'/pipe')
os.link(root + b'/plain', root + b'/hard')
put(b'big', os.urandom(1 << 20))
"""

CHANGE = r"""
os.unlink(root + b'/gone')
os.chmod(root + b'/chmod', 0o600)
os.chown(root + b'/chown', 1, 1)
put(b'grown', b'same and more')
at = os.stat(root + b'/hidden')
put(b'hidden', b'SAME')  # same size, and the old mtime below
os.utime(root + b'/hidden', ns=(at.st_atime_ns, at.st_mtime_ns))
os.unlink(root + b'/now a folder')
os.mkdir(root + b'/now a folder')
put(b'now a folder/file')
os.unlink(root + b'/link')
os.symlink(b'elsewhere', root + b'/link')
put(b'added \xfe\n')
os.chmod(root + b'/deep/er', 0o700)
with open(root + b'/big', 'r+b') as f:
    f.seek(777_777)
    byte = f.read(1)
    f.seek(777_777)
    f.write(bytes([byte[0] ^ 1]))
os.utime(root + b'/plain')  # not compared
"""

WALK = r"""
import hashlib, os, stat
def look(path):
    s = os.lstat(path)
    kind = stat.S_IFMT(s.st_mode)
    content = b''
    if kind == stat.S_IFREG:
        content = hashlib.sha256(open(path, 'rb').read()).digest()
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    size = s.st_size if kind == stat.S_IFREG else s.st_rdev
    seen[path.hex()] = repr((s.st_mode, s.st_uid, s.st_gid, size, content))
    if kind == stat.S_IFDIR:
        for name in os.listdir(path):
            look(path + b'/' + name)
seen = {}
look(b'/root/tree')
import json
print(json.dumps(seen))
"""


def walked(one: Sandbox, other: Sandbox) -> ramet.Diff:
    """Returns the diff that a walk of both trees gives."""
    mine, its = (json.loads(output(s, WALK)) for s in (one, other))

    def names(keys: set[str]) -> list[str]:
        paths = sorted(bytes.fromhex(key) for key in keys)
        return [path.decode("utf-8", "surrogateescape") for path in paths]

    both = mine.keys() & its.keys()
    return ramet.Diff(
        added=names(its.keys() - mine.keys()),
        removed=names(mine.keys() - its.keys()),
        modified=names({key for key in both if mine[key] != its[key]}),
    )


def test_diff_equals_a_walk_of_both_trees(sbx: Sandbox) -> None:
    output(sbx, PLANT)
    with forked(sbx) as (child,):
        assert not sbx.diff(child, ["/root/tree"])
        output(child, CHANGE)
        wanted = walked(sbx, child)
        assert len(wanted.added) == 2 and len(wanted.removed) == 1
        assert len(wanted.modified) == 8
        assert sbx.diff(child, ["/root/tree"]) == wanted
        assert child.diff(sbx, ["/root/tree/"]) == ramet.Diff(
            added=wanted.removed, removed=wanted.added, modified=wanted.modified
        )
        default = sbx.diff(child)
        assert set(default.added) >= set(wanted.added)
        assert not sbx.diff(sbx, ["/root/tree"])
        narrow = sbx.diff(child, ["/root/tree/deep", "/root/tree/gone", "/root/nothing"])
        assert narrow == ramet.Diff([], ["/root/tree/gone"], ["/root/tree/deep/er"])


def test_example_runs() -> None:
    text = run_example("tree_search.py")
    assert "the mean of each hour of the week, and a trend: 72.0 at noon tomorrow" in text
