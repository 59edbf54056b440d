# SPDX-License-Identifier: Apache-2.0
"""Common uses of a machine with a network: package managers, git, downloads.

The servers run on the host, in a network namespace behind its NAT. This file makes their content.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Iterator

import pytest

from conftest import REPO, bash, on_host, until
from ramet import Client, Sandbox

OUTSIDE = "198.51.100.1"
HOST = "198.51.100.254"
WHERE = "/var/lib/ramet/rig/real-use"  # on the host's disk, as its root may be a tmpfs
DOWNLOAD_MIB = 200

SERVER = f"""
import functools, http.server, os, ssl, threading
class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a):
        pass
serve = functools.partial(Quiet, directory="{WHERE}/www")
plain = http.server.ThreadingHTTPServer(("", 80), serve)
secure = http.server.ThreadingHTTPServer(("", 443), serve)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("{WHERE}/cert.pem", "{WHERE}/key.pem")
secure.socket = tls.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
open("{WHERE}/ready", "w").close()
secure.serve_forever()
"""


# --- content of the servers ----------------------------------------------------------------------


def run(command: str, where: Path) -> None:
    subprocess.run(["bash", "-ec", command], cwd=where, check=True, capture_output=True)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def python_index(www: Path) -> None:
    """Writes a simple package index with two packages, one of which depends on the other."""
    for name, needs in (("outer-box", "Requires-Dist: inner-box\n"), ("inner-box", "")):
        module = name.replace("-", "_")
        folder = www / "simple" / name
        folder.mkdir(parents=True)
        wheel = f"{module}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(folder / wheel, "w") as z:
            z.writestr(f"{module}.py", f"name = {name!r}\n")
            info = f"{module}-1.0.dist-info"
            z.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
            )
            z.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            z.writestr(f"{info}/RECORD", "")
        write(folder / "index.html", f'<!DOCTYPE html><a href="{wheel}">{wheel}</a>\n')


def npm_registry(www: Path) -> None:
    """Writes one package in the form of a registry: a document and an archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path, text in (
            ("package/package.json", json.dumps({"name": "box-pad", "version": "1.0.0"})),
            ("package/index.js", "module.exports = s => s.padStart(8, '.')\n"),
        ):
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    data = archive.getvalue()
    (www / "npm").mkdir()
    (www / "npm" / "box-pad-1.0.0.tgz").write_bytes(data)
    version = {
        "name": "box-pad",
        "version": "1.0.0",
        "dist": {
            "tarball": f"http://{OUTSIDE}/npm/box-pad-1.0.0.tgz",
            "shasum": hashlib.sha1(data).hexdigest(),
        },
    }
    document = {
        "name": "box-pad",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": version},
    }
    write(www / "npm" / "box-pad", json.dumps(document))


def git_repository(www: Path) -> None:
    write(www / "work" / "hello.txt", "cloned\n")
    run(
        """
        git init -q work && cd work && git add . &&
        git -c user.name=box -c user.email=box@example.com commit -qm first && cd .. &&
        git clone -q --bare work project.git && git -C project.git update-server-info && rm -rf work""",
        www,
    )


def apt_repository(www: Path) -> None:
    write(
        www / "d" / "DEBIAN" / "control",
        "Package: box-tool\nVersion: 1\nArchitecture: all\nMaintainer: box <box@example.com>\n"
        "Description: a tool of the test\n",
    )
    write(www / "d" / "usr" / "bin" / "box-tool", "#!/bin/sh\necho installed\n", 0o755)
    run(
        """
        mkdir apt && dpkg-deb --root-owner-group -b d apt/box-tool.deb && rm -r d && cd apt &&
        { dpkg-deb -f box-tool.deb; echo "Filename: ./box-tool.deb"
          echo "Size: $(stat -c %s box-tool.deb)"
          echo "SHA256: $(sha256sum box-tool.deb | cut -d' ' -f1)"; } >Packages""",
        www,
    )


def contents(where: Path) -> None:
    www = where / "www"
    www.mkdir()
    for make in (python_index, npm_registry, git_repository, apt_repository):
        make(www)
    write(www / "page.txt", "a page\n")
    run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=box -addext subjectAltName=IP:{OUTSIDE} -keyout key.pem -out cert.pem",
        where,
    )
    write(where / "server.py", SERVER)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Starts the servers; yields the local folder with their content."""
    where = tmp_path_factory.mktemp("real-use")
    contents(where)
    on_host(
        "kill -9 $(ip netns pids ramet-use 2>/dev/null) 2>/dev/null; ip netns del ramet-use 2>/dev/null; "
        f"ip link del ramet-use 2>/dev/null; rm -rf {WHERE}; mkdir -p {WHERE} && "
        "ip netns add ramet-use && ip link add ramet-use type veth peer name use1 netns ramet-use && "
        f"ip addr add {HOST}/24 dev ramet-use && ip link set ramet-use up && "
        f"ip -n ramet-use addr add {OUTSIDE}/24 dev use1 && "
        "ip -n ramet-use link set lo up && ip -n ramet-use link set use1 up"
    )
    tar = subprocess.Popen(["tar", "-C", where, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(
        [REPO / "dev", "host", "tar", "-x", "--no-same-owner", "-C", WHERE],
        stdin=tar.stdout,
        check=True,
    )
    assert tar.wait() == 0
    on_host(
        f"cd {WHERE} && head -c {DOWNLOAD_MIB}M /dev/urandom >www/large && "
        "sha256sum <www/large >www/large.sum && "
        "{ setsid ip netns exec ramet-use python3 server.py </dev/null >log 2>&1 & }"
    )
    until(lambda: "ready" in on_host(f"ls {WHERE}"))
    yield where
    on_host(
        "kill $(ip netns pids ramet-use); ip netns del ramet-use; ip link del ramet-use; "
        f"rm -rf {WHERE}"
    )


@pytest.fixture
def box(world: Path, client: Client) -> Iterator[Sandbox]:
    with Sandbox(client=client) as sandbox:
        yield sandbox


# --- uses ----------------------------------------------------------------------------------------


def test_pip_installs_a_package_with_its_dependency(box: Sandbox) -> None:
    install = f"pip install -q --index-url http://{OUTSIDE}/simple --trusted-host {OUTSIDE} outer-box"
    bash(box, install)
    found = box.run_code("import outer_box, inner_box\nprint(outer_box.name, inner_box.name)")
    assert found.stdout == "outer-box inner-box\n"
    (child,) = box.fork()
    with child:
        bash(child, f"pip uninstall -qy inner-box && {install}")


def test_npm_installs_a_package(box: Sandbox) -> None:
    script = f"""
        mkdir /root/app && cd /root/app
        npm install --no-audit --no-fund --registry http://{OUTSIDE}/npm box-pad >/dev/null
        node -e 'console.log(require("box-pad")("box"))'"""
    assert bash(box, script) == ".....box\n"


def test_user_installs_packages_and_becomes_root_without_a_password(box: Sandbox) -> None:
    script = f"""
        pip="pip install -q --index-url http://{OUTSIDE}/simple --trusted-host {OUTSIDE}"
        su user -c "
            cd && pwd && $pip --ignore-installed outer-box && python3 -c 'import outer_box; print(outer_box.__file__)'
            sudo -n $pip --ignore-installed inner-box && sudo -n id -u" 2>&1"""
    home, user_path, uid = bash(box, script).splitlines()
    assert (home, uid) == ("/home/user", "0")
    assert user_path.startswith("/home/user/.local/lib/python3")


def test_git_clones_over_http(box: Sandbox) -> None:
    script = f"git clone -q http://{OUTSIDE}/project.git /root/project && cat /root/project/hello.txt"
    assert bash(box, script) == "cloned\n"


def test_apt_updates_and_installs(box: Sandbox) -> None:
    script = f"""
        rm -rf /etc/apt/sources.list*
        echo 'deb [trusted=yes] http://{OUTSIDE}/apt ./' >/etc/apt/sources.list
        apt-get update -qq && apt-get install -qq -y box-tool >/dev/null 2>&1 && box-tool"""
    assert bash(box, script) == "installed\n"


def test_curl_verifies_tls_certificates(world: Path, box: Sandbox) -> None:
    box.files.upload(world / "cert.pem", "/root/cert.pem")
    script = f"""
        curl -fsS --cacert /root/cert.pem https://{OUTSIDE}/page.txt
        curl -fsS https://{OUTSIDE}/page.txt 2>/dev/null || echo $?"""
    assert bash(box, script) == "a page\n60\n"


def test_large_download_is_complete(box: Sandbox) -> None:
    script = f"""
        curl -fsS http://{OUTSIDE}/large | tee >(sha256sum >/tmp/sum) | wc -c
        curl -fsS http://{OUTSIDE}/large.sum; until [[ -s /tmp/sum ]]; do sleep 0.1; done; cat /tmp/sum"""
    size, expected, found = bash(box, script).splitlines()
    assert int(size) == DOWNLOAD_MIB << 20
    assert found == expected
