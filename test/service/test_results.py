# SPDX-License-Identifier: Apache-2.0
"""Results of Python calls through service and agent, with the SDK and with the published client."""

from __future__ import annotations

import base64
import json
from typing import Any, Iterator

import httpx
import podflare
import pytest
import ramet

PNG = b"\x89PNG\r\n\x1a\n"
PICTURE = PNG + bytes(range(256)) * 300  # more than one frame


def events(http: httpx.Client, path: str, **request: Any) -> list[dict[str, Any]]:
    answer = http.post(path + "/exec", json=request)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.split("\n") if line]


def shown(found: list[dict[str, Any]]) -> list[Any]:
    """Returns text of output and parts of results, in order."""
    kept = {"stdout": "data", "stderr": "data", "result": "mime", "exit": "data"}
    return [event[kept[event["type"]]] for event in found if event["type"] in kept]


@pytest.fixture
def box(base: str) -> Iterator[ramet.Sandbox]:
    with ramet.Sandbox(host=base) as made:
        yield made


PICTURE_CLASS = """
class Picture:
    def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n" + bytes(range(256)) * 300
    def __repr__(self): return "a picture"
"""


def test_results_come_in_order_with_output(http: httpx.Client, sandbox: str) -> None:
    code = "print('a'); display(1); print('b'); display({'k': [1, None]})\nprint('c')\n2 + 2"
    found = events(http, sandbox, code=code, results=True)
    assert shown(found) == [
        "a",
        {"text/plain": "1"},
        "b",
        {"text/plain": "{'k': [1, None]}", "application/json": {"k": [1, None]}},
        "c",
        {"text/plain": "4"},
        0,
    ]
    assert [event["main"] for event in found if event["type"] == "result"] == [False, False, True]
    assert [event["seq"] for event in found] == list(range(found[0]["seq"], found[0]["seq"] + 7))


def test_pictures_are_base64_and_are_in_the_replay(http: httpx.Client, sandbox: str) -> None:
    found = events(http, sandbox, code=PICTURE_CLASS + "Picture()", results=True)
    (result, end) = found
    assert base64.b64decode(result["mime"]["image/png"]) == PICTURE
    assert result["mime"]["text/plain"] == "a picture" and end["data"] == 0
    replay = http.get(sandbox + f"/replay?since={result['seq'] - 1}").text
    assert [json.loads(line) for line in replay.split("\n") if line] == found


def test_results_are_sent_on_request_only(http: httpx.Client, sandbox: str) -> None:
    code = "class C:\n    def __repr__(self): print('asked')\nC()"
    assert shown(events(http, sandbox, code=code)) == [0]
    assert shown(events(http, sandbox, code="display(5)")) == ["5", 0]
    assert shown(events(http, sandbox, code="echo 1", language="bash", results=True)) == ["1", 0]


def test_an_exception_is_an_event(http: httpx.Client, sandbox: str) -> None:
    found = events(http, sandbox, code="raise ValueError('no \\u2028')", results=True)
    (error,) = [event for event in found if event["type"] == "error"]
    assert (error["name"], error["value"], error["data"]) == ("ValueError", "no \u2028", "")
    assert error["traceback"].startswith("Traceback (most recent call last):\n  File \"<call ")
    assert found.index(error) < len(found) - 1 and found[-1]["data"] == 1
    text = "".join(event["data"] + "\n" for event in found if event["type"] == "stderr")
    assert text == error["traceback"].replace("\u2028", "\u2028")


def test_a_result_of_the_maximum_size(box: ramet.Sandbox) -> None:
    size = (8 << 20) - 200
    code = f"class C:\n    def _repr_png_(self): return {PNG!r} + b'x' * {size}\n"
    (result,) = box.run_code(code + "    __repr__ = lambda s: 'c'\nC()").results
    assert result.png == PNG + b"x" * size
    (again,) = [event.result for event in box.replay() if event.result]
    assert again == result


def test_too_large_a_result_is_replaced(box: ramet.Sandbox) -> None:
    code = f"class C:\n    def _repr_png_(self): return {PNG!r} + b'x' * 9000000\nC()"
    answer = box.run_code(code)
    (result,) = answer.results
    assert result.png is None and "dropped" in (result.text or "") and answer.ok


HOSTILE = """
import struct, os
def send(kind, payload): os.write(1000, struct.pack("<IBBH", len(payload), kind, 0, 0) + payload)
def text(data): return struct.pack("<I", len(data)) + data
"""


def test_malformed_bundles_hurt_nobody(box: ramet.Sandbox) -> None:
    bundles = (
        b"\xff",
        b"\xff" * 100,
        struct_text(b"a") + b"\x07" + struct_text(b"x"),  # an unknown kind
        struct_text(b"a\nb") + b"\x00" + struct_text(b"x"),  # a name with a newline
        (struct_text(b"a") + b"\x00" + struct_text(b"x")) * 65,  # too many
    )
    for bundle in bundles:
        answer = box.run_code(HOSTILE + f"send(86, {bundle!r}); send(84, b'\\0')")
        assert answer.ok and ["malformed" in (r.text or "") for r in answer.results] == [True]
    long_number = b"1" * 5000  # Python's parser refuses it
    json_text = b'{"a": [1,\n 2]}', b"{", b'"\xff"', b"[" * 200, long_number
    for text in json_text:
        bundle = struct_text(b"x/json") + b"\x02" + struct_text(text)
        (result,) = box.run_code(HOSTILE + f"send(86, {bundle!r}); send(84, b'\\1')").results
        expected = {"a": [1, 2]} if text == json_text[0] else text.decode(errors="replace")
        assert result.main and result.mime == {"x/json": expected}


def test_json_may_have_any_character(box: ramet.Sandbox) -> None:
    assert box.run_code("{'a\\0': '\\0\\x1f\\u2028'}").results[0].json == {"a\0": "\0\x1f\u2028"}


def struct_text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def test_protocol_violations_end_the_interpreter_only(box: ramet.Sandbox) -> None:
    for frames in ("send(84, b'\\0')", "send(86, b'x'); send(84, b'')", "send(86, b'')",
                   "[send(86, b'x' * 65536) for _ in range(129)]"):
        answer = box.run_code(HOSTILE + frames + "\nimport time; time.sleep(60)")
        assert answer.exit_code == 137 and "its state is lost" in answer.stderr, frames
    assert box.run_code("1").text == "1"


def test_the_sdk(box: ramet.Sandbox) -> None:
    parts: list[Any] = []
    answer = box.run_code(
        PICTURE_CLASS + "print('out'); display(Picture()); display({'a': 1})\n1/0",
        on_stdout=parts.append,
        on_result=parts.append,
        on_error=parts.append,
    )
    assert answer.error and answer.error.name == "ZeroDivisionError"
    assert answer.error.value == "division by zero" and answer.error.traceback in answer.stderr
    assert answer.text is None and answer.png == PICTURE and answer.results[1].json == {"a": 1}
    assert parts == ["out\n", *answer.results, answer.error]
    assert box.run_code("'x' * 3").text == "'xxx'"
    assert box.run_code("'x' * 3", results=False).results == []


def test_shell_commands_and_await(box: ramet.Sandbox) -> None:
    answer = box.run_code("n = 3\n!seq {n}\nlines = !echo a; echo b\nlines")
    assert (answer.stdout, answer.text) == ("1\n2\n3\n", "['a', 'b']")
    answer = box.run_code("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'done')")
    assert answer.text == "'done'"


def test_the_published_client_sees_no_difference(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODFLARE_HOSTD_URL", base)
    monkeypatch.setenv("PODFLARE_HOST", base)
    with podflare.Sandbox(client=podflare.Client(timeout=120.0)) as box:
        assert [event.type for event in box.run_code_stream("print(1)\n2")] == ["stdout", "exit"]
        answer = box.run_code("1/0")
        assert answer.exit_code == 1 and answer.stderr.endswith("division by zero")
        # It can also read the events of calls that the SDK made.
        other = ramet.Sandbox.connect(box.id, host=base)
        assert other.run_code("display(1)\n2\n").text == "2"
        assert other.run_code("1/0").error
        assert {str(event.type) for event in box.replay()} >= {"result", "error", "exit"}
