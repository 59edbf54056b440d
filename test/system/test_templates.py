# SPDX-License-Identifier: Apache-2.0
"""Templates that are added to the running service's folder of templates, in real guests."""

from __future__ import annotations

import shlex
import time
from typing import Any, Iterator

import httpx
import pytest

import ramet
from conftest import on_host
from ramet import Client, Sandbox

WARMUP = """
import decimal, random
warmed = random.random()
open('/root/warmed', 'w').write('by the warm-up')
"""
CONF = "description = Made by a test\nram_mib = 640\n"


def templates_dir() -> str:
    """Returns the folder of templates that the running service uses."""
    given = on_host(
        "tr '\\0' '\\n' < /proc/$(pidof -s rametd)/cmdline | sed -n 's/--templates_dir=//p'"
    )
    return given.strip() or "/usr/share/ramet/templates"


def put_template(name: str, warmup: str, conf: str) -> None:
    """Writes a template that uses the root file system of the default one."""
    folder = f"{templates_dir()}/{name}"
    on_host(
        f"mkdir -p {folder} && printf %s {shlex.quote(conf)} > {folder}/template.conf &&"
        f" printf %s {shlex.quote(warmup)} > {folder}/warmup.new &&"
        f" mv {folder}/warmup.new {folder}/warmup.py"
    )


def remove_template(name: str) -> None:
    on_host(f"rm -rf {templates_dir()}/{name}")


@pytest.fixture(scope="module")
def warmed(client: Client) -> Iterator[str]:
    put_template("test-warmed", WARMUP, CONF)
    yield "test-warmed"
    remove_template("test-warmed")


def listed(http: httpx.Client, name: str) -> dict[str, Any]:
    (found,) = [t for t in http.get("/v1/templates").json() if t["name"] == name]
    return dict(found)


@pytest.mark.smoke
def test_sandbox_starts_with_the_state_of_the_warm_up(warmed: str, client: Client, http: httpx.Client) -> None:
    assert listed(http, warmed)["description"] == "Made by a test"
    with Sandbox(client=client, template=warmed) as sandbox:
        assert sandbox.run_code("print(decimal.Decimal('1.5') * 2)").stdout == "3.0\n"
        assert sandbox.run_code("cat /root/warmed", "bash").stdout == "by the warm-up"
        info = http.get(f"/v1/sandboxes/{sandbox.id}").json()
        assert (info["template"], info["ram_mib"]) == (warmed, 640)
    view = listed(http, warmed)
    assert view["state"] == "ready"
    assert view["ram_mib"] == 640
    assert {"vcpus": view["vcpus"], "ram_mib": 640, "rootfs_gb": view["rootfs_gb"]} in view["sizes"]


def test_only_numbers_drawn_in_the_warm_up_are_shared(
    warmed: str, client: Client
) -> None:
    drawn, own = set(), set()
    for _ in range(3):
        with Sandbox(client=client, template=warmed) as sandbox:
            text = sandbox.run_code("print(warmed, random.random())").stdout
            drawn.add(text.split()[0])
            own.add(text.split()[1])
    assert len(drawn) == 1
    assert len(own) == 3


def test_children_keep_the_template_name(warmed: str, client: Client, http: httpx.Client) -> None:
    with Sandbox(client=client, template=warmed) as sandbox:
        (child,) = sandbox.fork(1)
        assert http.get(f"/v1/sandboxes/{child.id}").json()["template"] == warmed
        assert child.run_code("print(decimal.Decimal(1) / 4)").stdout == "0.25\n"
        child.close()


def test_template_works_with_other_sizes(warmed: str, client: Client) -> None:
    with Sandbox(client=client, template=warmed, ram_mib=1024) as sandbox:
        text = sandbox.run_code(
            "ram = int(open('/proc/meminfo').readline().split()[1]) >> 10\nprint(ram, warmed > 0)"
        ).stdout
        ram, is_warm = text.split()
        assert int(ram) > 800
        assert is_warm == "True"


def test_failing_warm_up_is_reported_with_its_traceback(
    client: Client, http: httpx.Client
) -> None:
    put_template("test-broken", "import json\nimport no_such_module\n", "")
    try:
        with pytest.raises(ramet.RametError) as failed:
            Sandbox(client=client, template="test-broken")
        assert "ModuleNotFoundError: No module named 'no_such_module'" in str(failed.value)
        view = listed(http, "test-broken")
        assert view["state"] == "failed"
        assert "Traceback (most recent call last):" in view["why"]
        assert "import no_such_module" in view["why"]
        # Once corrected, it works without a restart; the old failure is returned for a while.
        put_template("test-broken", "import json", "")
        deadline = time.monotonic() + 600
        while True:
            try:
                with Sandbox(client=client, template="test-broken") as sandbox:
                    assert sandbox.run_code("print(json.dumps([1]))").stdout == "[1]\n"
                return
            except ramet.RametError:
                assert time.monotonic() < deadline
                time.sleep(1)
    finally:
        remove_template("test-broken")


def test_unknown_template_lists_the_known_ones(warmed: str, http: httpx.Client) -> None:
    answer = http.post("/v1/sandboxes", json={"template": "test-wormed"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "unknown_template"
    assert "test-wormed is not known; this host has: default" in answer.json()["error"]
    assert warmed in answer.json()["error"]


# --- templates that come with Ramet ---


def test_slim_has_the_same_root_file_system_and_less_ram(client: Client) -> None:
    with Sandbox(client=client, template="slim") as sandbox:
        assert sandbox.info().raw["ram_mib"] == 512
        found = sandbox.run_code("import importlib.util as u\nprint(u.find_spec('pandas') is not None)")
        assert found.stdout == "True\n"


@pytest.fixture(scope="module")
def datasci(client: Client) -> Iterator[Sandbox]:
    with Sandbox(client=client, template="python-datasci") as sandbox:
        yield sandbox


def test_datasci_packages_are_already_imported(datasci: Sandbox) -> None:
    code = "print(np.arange(4).sum(), pd.Series([1, 2]).mean(), sklearn.__name__, plt.__name__)"
    assert datasci.run_code(code).stdout == "6 1.5 sklearn matplotlib.pyplot\n"


def test_datasci_packages_are_imported_when_a_context_names_them(datasci: Sandbox) -> None:
    assert datasci.contexts.create().run_code("print(np.arange(4).sum())").stdout == "6\n"


def test_figures_of_datasci_are_results(datasci: Sandbox) -> None:
    shown = datasci.run_code("_ = plt.plot([1, 2])\nplt.show()")
    assert [result.png is not None for result in shown.results] == [True]
    assert shown.stderr == ""


def test_interrupt_arrives_between_numpy_c_loops(datasci: Sandbox) -> None:
    """numpy's loops do not check for signals, so the interrupt arrives when the current one ends."""
    loop = "kept = np.arange(3.0)\nx = np.random.random(200_000)\nprint('on')\nwhile True: np.sort(x)"
    stream = datasci.run_code_stream(loop)
    assert next(stream).data == "on\n"
    datasci.interrupt()
    events = list(stream)
    assert events[-1].code == 130
    assert "KeyboardInterrupt" in "".join(str(event.data) for event in events)
    assert datasci.run_code("print(kept.sum())").stdout == "3.0\n"


def test_time_limit_kills_an_endless_numpy_c_loop(datasci: Sandbox) -> None:
    with datasci.fork()[0] as child:
        deaf = "x = np.ones(10**6)\nprint('on')\nnp.einsum('i,j,k->', x, x, x)"
        late = child.run_code(deaf, timeout_seconds=5)
        assert late.exit_code == 124
        assert "time limit of 5.000 s" in late.stderr and "state is lost" in late.stderr
        assert child.run_code("print('x' in globals())").stdout == "False\n"
    assert datasci.run_code("print(np.ones(3).sum())").stdout == "3.0\n"
