# SPDX-License-Identifier: Apache-2.0
"""Common uses of a root file system: package managers, git, downloads.

The servers run in the sandbox itself. This file makes their content.
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

from conftest import bash
from ramet import Client, Sandbox

HERE = "127.0.0.1"

SERVER = """
import functools, http.server, ssl, threading
class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a):
        pass
serve = functools.partial(Quiet, directory="/srv/use/www")
plain = http.server.ThreadingHTTPServer(("127.0.0.1", 80), serve)
secure = http.server.ThreadingHTTPServer(("127.0.0.1", 443), serve)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("/srv/use/cert.pem", "/srv/use/key.pem")
secure.socket = tls.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
print("ready", flush=True)
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
            "tarball": f"http://{HERE}/npm/box-pad-1.0.0.tgz",
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
        f"-subj /CN=box -addext subjectAltName=IP:{HERE} -keyout key.pem -out cert.pem",
        where,
    )
    write(where / "server.py", SERVER)


@pytest.fixture(scope="module")
def box(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox in which the servers run."""
    where = tmp_path_factory.mktemp("use")
    contents(where)
    with Sandbox(client=client) as sandbox:
        sandbox.files.upload_folder(where, "/srv/use")
        servers = sandbox.processes.start(["python3", "/srv/use/server.py"])
        assert next(iter(servers)).data == "ready\n"
        yield sandbox
        servers.kill()


# --- uses ----------------------------------------------------------------------------------------

PIP = f"pip install -q --index-url http://{HERE}/simple"


def test_pip_installs_a_package_with_its_dependency(box: Sandbox) -> None:
    bash(box, f"{PIP} outer-box")
    found = box.run_code("import outer_box, inner_box\nprint(outer_box.name, inner_box.name)")
    assert found.stdout == "outer-box inner-box\n"


def test_pip_installs_globally_and_into_a_venv(box: Sandbox) -> None:
    script = """
        mkdir -p /tmp/p/greet && cd /tmp/p
        echo 'def hello(): return "hello"' >greet/__init__.py
        printf '[build-system]\\nrequires=[]\\nbuild-backend="b"\\nbackend-path=["."]\\n' >pyproject.toml
        cat >b.py <<'.'
import zipfile
def build_wheel(to, config_settings=None, metadata_directory=None):
    name = "greet-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{to}/{name}", "w") as z:
        z.write("greet/__init__.py")
        z.writestr("greet-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: greet\\nVersion: 1\\n")
        z.writestr("greet-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("greet-1.dist-info/RECORD", "")
    return name
.
        pip install -q --no-index . && cd / && python3 -c 'import greet; print(greet.hello())'
        pip uninstall -qy greet
        python3 -m venv /tmp/env && /tmp/env/bin/pip install -q --no-index /tmp/p
        /tmp/env/bin/python -c 'import greet; print(greet.hello(), greet.__file__)'"""
    first, second = bash(box, script).splitlines()
    assert first == "hello"
    assert second.startswith("hello /tmp/env/lib/python3.")


def test_npm_installs_a_package(box: Sandbox) -> None:
    script = f"""
        mkdir /root/app && cd /root/app
        npm install --no-audit --no-fund --registry http://{HERE}/npm box-pad >/dev/null
        node -e 'console.log(require("box-pad")("box"))'"""
    assert bash(box, script) == ".....box\n"


def test_user_installs_packages_and_becomes_root_without_a_password(box: Sandbox) -> None:
    script = f"""
        su user -c "
            cd && pwd && {PIP} --ignore-installed outer-box && python3 -c 'import outer_box; print(outer_box.__file__)'
            sudo -n {PIP} --ignore-installed inner-box && sudo -n id -u" 2>&1"""
    home, user_path, uid = bash(box, script).splitlines()
    assert (home, uid) == ("/home/user", "0")
    assert user_path.startswith("/home/user/.local/lib/python3")


def test_git_clones_commits_and_pushes(box: Sandbox) -> None:
    script = f"""
        git clone -q http://{HERE}/project.git /tmp/work && cd /tmp/work && cat hello.txt
        git config user.name box && git config user.email box@example.com
        git init -q --bare /tmp/origin.git && git remote set-url origin /tmp/origin.git
        echo content >file && git add file && git commit -qm second && git push -q origin HEAD
        git clone -q /tmp/origin.git /tmp/again && curl -fsS file:///tmp/again/file"""
    assert bash(box, script) == "cloned\ncontent\n"


def test_apt_updates_installs_and_removes(box: Sandbox) -> None:
    script = f"""
        grep -hE '^(deb|URIs)' -r /etc/apt/sources.list* | grep -c http
        rm -rf /etc/apt/sources.list*
        echo 'deb [trusted=yes] http://{HERE}/apt ./' >/etc/apt/sources.list
        apt-get update -qq && apt-get install -qq -y box-tool >/dev/null 2>&1 && box-tool
        apt-get remove -qq -y box-tool >/dev/null 2>&1 && [[ ! -e /usr/bin/box-tool ]]"""
    sources, said = bash(box, script).splitlines()
    assert int(sources) > 0 and said == "installed"


def test_curl_verifies_tls_certificates(box: Sandbox) -> None:
    script = f"""
        test -s /etc/ssl/certs/ca-certificates.crt
        curl -fsS --cacert /srv/use/cert.pem https://{HERE}/page.txt
        curl -fsS https://{HERE}/page.txt 2>/dev/null || echo $?"""
    assert bash(box, script) == "a page\n60\n"


PACKAGES = "numpy pandas matplotlib scipy sklearn PIL requests httpx bs4 openpyxl sympy pyarrow"


def test_packages_for_data_and_tools_are_there(box: Sandbox) -> None:
    find = f"import importlib.util as u\nprint([n for n in '{PACKAGES}'.split() if not u.find_spec(n)])"
    assert box.run_code(find).stdout == "[]\n"
    tools = "type git curl rg jq unzip gcc make node npm uv >/dev/null && sudo -u user id -un"
    assert bash(box, tools) == "user\n"


def test_javascript_runs_in_a_context(box: Sandbox) -> None:
    node = box.contexts.create("javascript")
    node.run_code("const one = 1")
    assert node.run_code("console.log(await Promise.resolve(one))").stdout == "1\n"
