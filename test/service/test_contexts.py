# SPDX-License-Identifier: Apache-2.0
"""Contexts through service and agent."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest

NEVER = "ctx_" + 32 * "e"
LANGUAGES = ["python", "bash"] + (["javascript"] if shutil.which("node") else [])
PRINT = {"python": "print({})", "bash": "echo ${}", "javascript": "console.log({})"}


@pytest.fixture(autouse=True)
def no_contexts_stay(http: httpx.Client, sandbox: str) -> Iterator[None]:
    """All sandboxes share one agent, and so its contexts."""
    yield
    for one in http.get(f"{sandbox}/contexts").json():
        http.delete(f"{sandbox}/contexts/{one['id']}")


def create(http: httpx.Client, sandbox: str, language: str, **fields: Any) -> str:
    made = http.post(f"{sandbox}/contexts", json={"language": language, **fields})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in answer.iter_lines() if line)


@contextmanager
def started(http: httpx.Client, sandbox: str, code: str, **fields: Any) -> Iterator[Iterator[dict[str, Any]]]:
    with http.stream("POST", f"{sandbox}/exec", json={"code": code, **fields}) as answer:
        assert answer.status_code == 200, answer.read()
        yield events(answer)


def run(http: httpx.Client, sandbox: str, code: str, **fields: Any) -> tuple[str, str, int]:
    """Returns stdout, stderr and exit code."""
    texts = {"stdout": "", "stderr": ""}
    with started(http, sandbox, code, **fields) as stream:
        for event in stream:
            if event["type"] == "exit":
                return texts["stdout"], texts["stderr"], int(event["data"])
            texts[event["type"]] += event["data"] + "\n"
    raise AssertionError("the stream has no end")


@pytest.mark.parametrize("language", LANGUAGES)
def test_state_stays_in_its_context(http: httpx.Client, sandbox: str, language: str) -> None:
    one = create(http, sandbox, language)
    assign = "x=1" if language == "bash" else "x = 1"
    assert run(http, sandbox, assign, context=one) == ("", "", 0)
    assert run(http, sandbox, PRINT[language].format("x"), context=one) == ("1\n", "", 0)
    assert "NameError" in run(http, sandbox, "print(x)")[1]


def test_information(http: httpx.Client, sandbox: str) -> None:
    path = f"{sandbox}/contexts"
    assert http.get(path).json() == []
    made = http.post(path, json={"language": "bash", "cwd": "/tmp"}).json()
    assert set(made) == {"id", "language", "cwd", "busy", "started_at"}
    assert (made["language"], made["cwd"], made["busy"]) == ("bash", "/tmp", False)
    other = http.post(path, json={}).json()
    assert (other["language"], other["cwd"]) == ("python", None)
    listed = http.get(path).json()
    assert [one["id"] for one in listed] == [made["id"], other["id"]]
    assert http.get(f"{path}/{made['id']}").json()["cwd"] == "/tmp"
    assert http.delete(f"{path}/{made['id']}").status_code == 204
    assert http.get(f"{path}/{made['id']}").json()["code"] == "no_such_context"
    assert run(http, sandbox, "pwd", language="bash")[2] == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_start_describes_the_context_as_later_requests_do(
    http: httpx.Client, sandbox: str, language: str
) -> None:
    path = f"{sandbox}/contexts"
    made = http.post(path, json={"language": language, "cwd": "/tmp"}).json()
    assert http.get(f"{path}/{made['id']}").json() == made
    assert http.get(path).json() == [made]


def test_variables_and_folder(http: httpx.Client, folder: str) -> None:
    sandbox = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={"env": {"OF": "sandbox"}}).json()["id"]
    one = create(http, sandbox, "bash", cwd=folder, env={"OWN": "context"})
    code = 'echo "$OF $OWN $CALL"; pwd'
    assert run(http, sandbox, code, context=one, env={"CALL": "call"})[0] == f"sandbox context call\n{folder}\n"
    assert run(http, sandbox, code, context=one, cwd="/usr")[0] == "sandbox context \n/usr\n"
    assert run(http, sandbox, "pwd", context=one)[0] == f"{folder}\n"
    http.delete(sandbox)


def test_contexts_run_side_by_side(http: httpx.Client, sandbox: str, tmp_path: Path) -> None:
    """Each waits for a file that the next one makes, so none can end unless all run at once."""
    wait = {
        "python": "import os, time\nprint('up', flush=True)\nwhile not os.path.exists({0!r}): time.sleep(.01)",
        "bash": "echo up; while [ ! -e {0} ]; do sleep .01; done",
        "javascript": "console.log('up'); while (!require('fs').existsSync({0!r})) await new Promise((r) => setTimeout(r, 9))",
    }
    last = str(tmp_path / "last")
    ids = {language: create(http, sandbox, language) for language in LANGUAGES}
    with (
        started(http, sandbox, wait["python"].format(last)) as main,
        started(http, sandbox, wait["python"].format(last), context=ids["python"]) as python,
        started(http, sandbox, wait["bash"].format(last), context=ids["bash"]) as bash,
    ):
        streams = [main, python, bash]
        for stream in streams:
            assert next(stream)["data"] == "up"
        assert http.get(sandbox).json()["state"] == "running"
        for language in LANGUAGES[2:]:
            assert run(http, sandbox, "console.log(1)", context=ids[language])[0] == "1\n"
        (tmp_path / "last").touch()
        assert [next(stream)["data"] for stream in streams] == [0, 0, 0]
    assert http.get(sandbox).json()["state"] == "ready"


def test_calls_of_a_context_queue(http: httpx.Client, sandbox: str) -> None:
    one = create(http, sandbox, "bash")
    with started(http, sandbox, "echo up; sleep .3; x=done", context=one) as first:
        assert next(first)["data"] == "up"
        # The answer to a waiting call begins at once.
        with started(http, sandbox, "echo $x", context=one) as second:
            assert next(first)["type"] == "exit"
            assert next(second)["data"] == "done"
            assert next(second)["data"] == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_interrupt(http: httpx.Client, sandbox: str, language: str) -> None:
    one = create(http, sandbox, language)
    forever = {
        "python": "print('up', flush=True)\nwhile True: pass",
        "bash": "echo up; sleep 1000; echo no",
        "javascript": "console.log('up'); while (true);",
    }
    with started(http, sandbox, forever[language], context=one) as stream:
        assert next(stream)["data"] == "up"
        assert http.post(f"{sandbox}/contexts/{one}/interrupt").status_code == 204
        last = list(stream)[-1]
        assert (last["type"], last["data"]) == ("exit", 130)


def test_time_limit(http: httpx.Client, sandbox: str) -> None:
    one = create(http, sandbox, "bash")
    run(http, sandbox, "x=1", context=one)
    out, err, code = run(http, sandbox, "sleep 1000", context=one, timeout_seconds=0.3)
    assert code == 124 and "stopped at the time limit" in err
    assert run(http, sandbox, "echo $x", context=one)[0] == "1\n"


def test_exit_and_restart_lose_the_state(http: httpx.Client, sandbox: str) -> None:
    one = create(http, sandbox, "bash")
    out, err, code = run(http, sandbox, "x=1; exit 3", context=one)
    assert code == 3 and "its state is lost" in err
    assert run(http, sandbox, "echo -$x; x=2", context=one)[0] == "-\n"
    assert http.post(f"{sandbox}/contexts/{one}/restart").status_code == 204
    assert run(http, sandbox, "echo -$x", context=one) == ("-\n", "", 0)


def test_delete_ends_the_calls(http: httpx.Client, sandbox: str) -> None:
    one = create(http, sandbox, "bash")
    with started(http, sandbox, "echo up; sleep 1000", context=one) as first:
        assert next(first)["data"] == "up"
        with started(http, sandbox, "echo no", context=one) as second:
            assert http.delete(f"{sandbox}/contexts/{one}").status_code == 204
            assert list(first)[-1]["data"] == 137
            assert next(second)["code"] == "no_such_context"
    missing = http.post(f"{sandbox}/exec", json={"code": "echo", "context": one})
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_context")


def test_unknown_context(http: httpx.Client, sandbox: str) -> None:
    for answer in (
        http.post(f"{sandbox}/exec", json={"code": "x" * 200000, "context": NEVER}),
        http.post(f"{sandbox}/exec", json={"code": "1", "context": "nonsense"}),
        http.get(f"{sandbox}/contexts/{NEVER}"),
        http.delete(f"{sandbox}/contexts/{NEVER}"),
        http.post(f"{sandbox}/contexts/{NEVER}/restart"),
        http.post(f"{sandbox}/contexts/{NEVER}/interrupt"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_context"), answer.text
        assert NEVER in answer.text or "nonsense" in answer.text
    both = http.post(f"{sandbox}/exec", json={"code": "1", "context": NEVER, "language": "bash"})
    assert both.status_code == 400 and "language and context" in both.text
    assert run(http, sandbox, "print(1)")[0] == "1\n"


def test_bad_starts(http: httpx.Client, sandbox: str) -> None:
    path = f"{sandbox}/contexts"
    for body, word in (
        ({"language": "cobol"}, "cobol"),
        ({"language": 1}, "language"),
        ({"cwd": "/nosuch"}, "/nosuch"),
        ({"env": {"": "x"}}, "env"),
        ({"env": 1}, "env"),
    ):
        refused = http.post(path, json=body)
        assert refused.status_code == 400 and word in refused.text, refused.text
    assert http.get(path).json() == []


def test_results_of_a_python_context(http: httpx.Client, sandbox: str) -> None:
    one = create(http, sandbox, "python")
    with started(http, sandbox, "6 * 7", context=one, results=True) as stream:
        result, end = list(stream)
    assert (result["type"], result["main"], result["mime"]["text/plain"]) == ("result", True, "42")
    assert (result["context"], end["data"]) == (one, 0)
    for language in LANGUAGES[1:]:
        other = create(http, sandbox, language)
        show = {"bash": "echo 1", "javascript": "console.log(1)"}
        assert run(http, sandbox, show[language], context=other, results=True)[0] == "1\n"


def test_limit(http: httpx.Client, sandbox: str) -> None:
    for _ in range(16):
        create(http, sandbox, "bash")
    refused = http.post(f"{sandbox}/contexts", json={})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many")


def test_call_continues_without_its_client_and_is_replayed(http: httpx.Client, sandbox: str, tmp_path: Path) -> None:
    one = create(http, sandbox, "bash")
    code = f"echo up; while [ ! -e {tmp_path}/go ]; do sleep .01; done; echo down"
    with started(http, sandbox, code, context=one) as stream:
        seq = next(stream)["seq"]
    (tmp_path / "go").touch()
    with http.stream("GET", f"{sandbox}/replay", params={"since": seq, "follow": "true"}) as answer:
        got = list(events(answer))
    assert [event["data"] for event in got] == ["down", 0]
    assert [event["context"] for event in got] == [one, one]


def test_output_flood_of_two_contexts(http: httpx.Client, sandbox: str) -> None:
    ids = [create(http, sandbox, "bash") for _ in range(2)]
    code = "head -c 3000000 /dev/zero | tr '\\0' x"
    with started(http, sandbox, code, context=ids[0]) as one, started(http, sandbox, code, context=ids[1]) as two:
        for stream in (two, one):
            assert sum(len(event["data"]) for event in stream if event["type"] == "stdout") == 3000000


def test_interpreter_that_ends_at_its_start_is_the_sandboxs_own_fault(
    http: httpx.Client, sandbox: str, tmp_path: Path
) -> None:
    (tmp_path / "usercustomize.py").write_text("import sys; sys.exit('no custom at all')")
    fields = {"language": "python", "env": {"PYTHONPATH": str(tmp_path)}}
    refused = http.post(f"{sandbox}/contexts", json=fields)
    assert (refused.status_code, refused.json()["code"]) == (409, "interpreter_failed")
    assert refused.json()["error"].startswith("Python did not start: ")
    assert refused.json()["error"].endswith("SystemExit: no custom at all")


def test_default_interpreter_that_does_not_start_can_be_mended(http: httpx.Client, sandbox: str) -> None:
    code = "import os, site; p = site.getusersitepackages(); os.makedirs(p, exist_ok=True); print(p)"
    (folder, _, _) = run(http, sandbox, code)
    path = {"path": folder.strip() + "/usercustomize.py"}
    http.put(f"{sandbox}/files", params=path, content=b"import os; os._exit(3)").raise_for_status()
    try:
        run(http, sandbox, "os._exit(0)")
        for _ in range(2):
            refused = http.post(f"{sandbox}/exec", json={"code": "1"})
            assert (refused.status_code, refused.json()["code"]) == (409, "interpreter_failed")
            assert refused.json()["error"].endswith("ended with exit code 3")
    finally:
        http.delete(f"{sandbox}/files", params=path).raise_for_status()
    assert run(http, sandbox, "print(1)")[0] == "1\n"
