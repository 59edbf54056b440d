# SPDX-License-Identifier: Apache-2.0
"""Is output of a hostile sandbox bounded and harmless, and can the rest be read?"""

from __future__ import annotations

import base64
import re
import tracemalloc

import pytest
from mcp.types import ImageContent

from mcp_clients import anyio_backend, ask, call, stdio, tidy, written
from ramet.errors import RametError
from ramet.mcp.errors import explain
from ramet.mcp.output import KEPT_MAX, Shown, Stream, clean, clean_output, picture
from ramet.results import Result

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tidy")]

BOUND = 40_000  # characters of one answer, besides pictures
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


async def test_long_output_is_shortened_and_saved_whole() -> None:
    async with stdio() as client:
        shown = await call(client, "run_command", command="seq 200000; seq 50000 >&2")
        assert len(shown) < BOUND
        assert shown.startswith("1\n2\n3\n") and "\n200000\n[stderr]\n1\n2\n" in shown
        for name, last in (("stdout", 200000), ("stderr", 50000)):
            found = re.search(rf"\[{name} was shortened: .* all of its \d+ bytes at (\S+)\]", shown)
            assert found, shown[-500:]
            tail = await call(client, "read_file", path=found[1], offset=-100)
            assert tail.endswith(f"\n{last - 1}\n{last}\n")
            counted = await call(client, "run_command", command=f"wc -l <{found[1]}; rm {found[1]}")
            assert counted == str(last)


async def test_endless_output_is_stopped() -> None:
    async with stdio() as client:
        shown = await call(client, "run_command", command="yes", timeout_seconds=600)
        assert len(shown) < BOUND and "it sent more than 64 MiB" in shown
        assert "the first 4 MiB" in shown
        path = shown.rpartition(" at ")[2].rstrip("]")
        size = await call(client, "run_command", command=f"stat -c %s {path}; rm {path}")
        assert size == str(KEPT_MAX)


async def test_endless_output_of_code_is_stopped() -> None:
    async with stdio() as client:
        code = "line = 'x' * 65535\nwhile True: print(line)"
        shown = await call(client, "run_code", code=code, timeout_seconds=600)
        assert len(shown) < BOUND and "it sent more than 64 MiB" in shown
        assert await call(client, "run_code", code="1 + 1") == "[result]\n2"


async def test_endless_results_are_stopped_and_not_kept() -> None:
    async with stdio() as client:
        code = "while True: display('x' * 1_500_000)"
        shown = await call(client, "run_code", code=code, timeout_seconds=600)
        assert len(shown) < BOUND and "it sent more than 64 MiB" in shown
        assert await call(client, "run_code", code="1 + 1") == "[result]\n2"


async def test_control_characters_and_bytes_that_are_not_utf8_are_harmless() -> None:
    script = r"printf 'a\033[31mred\033[0m \033]0;title\007\000\377\200b\033[2J\r\nc\rd '"
    script += r"; printf '\342\200\256x'"
    async with stdio() as client:
        shown = await call(client, "run_command", command=script)
        assert not CONTROL.search(shown)
        assert shown.startswith("ared ") and "\nc\nd" in shown
        shown = await call(client, "run_code", code="import os\nos.write(1, bytes(range(256)))")
        assert not CONTROL.search(shown)
        shown = await call(client, "run_code", code="raise ValueError('\\x1b]8;;http://x\\x07')")
        assert not CONTROL.search(shown)


async def test_names_of_files_that_are_not_utf8_can_be_listed() -> None:
    make = "mkdir -p /tmp/ramet-mcp && cd /tmp/ramet-mcp && "
    make += "touch $'a\\xff' $'b\\x1b[31m' && ln -s $'\\xfe' l"
    async with stdio() as client:
        await call(client, "run_command", command=make)
        entries = (await ask(client, "list_files", path="/tmp/ramet-mcp"))["entries"]
        names = [entry["name"] for entry in entries]
        assert names == ["a\ufffd", "b\u241b[31m", "l"]
        assert not CONTROL.search("".join(names)) and entries[2]["target"] == "\ufffd"
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_pictures_that_are_none_are_left_out() -> None:
    code = """
import base64
def show(raw, mime="image/png"): display({mime: base64.b64encode(raw).decode()}, raw=True)
show(b"GIF? no: <script>")
show(b"\\x89PNG\\r\\n\\x1a\\n" + bytes(4 << 20))
display({"image/png": "not base64 !"}, raw=True)
for _ in range(12): show(b"\\xff\\xd8\\xff", "image/jpeg")
"""
    async with stdio() as client:
        result = await client.call_tool("run_code", {"code": code})
    text = written(result)
    pictures = [one for one in result.content if isinstance(one, ImageContent)]
    assert len(pictures) == 8 and "up to 8" in text and len(text) < BOUND
    assert "a result has no image/png: ValueError: its bytes are those of something else" in text
    assert "smaller figure" in text


async def test_huge_values_and_many_results_are_bounded() -> None:
    async with stdio() as client:
        shown = await call(client, "run_code", code="'x' * 5_000_000")
        assert len(shown) < BOUND and "bytes left out" in shown
        shown = await call(client, "run_code", code="for n in range(2000): display('y' * 100)")
        assert len(shown) < BOUND


async def test_file_without_an_end_is_read_in_part() -> None:
    async with stdio() as client:
        shown = await call(client, "read_file", path="/proc/self/status")
        assert shown.startswith("Name:")


def test_stream_keeps_memory_bounded() -> None:
    stream = Stream(1000)
    for _ in range(200):
        stream.add(b"\xf0\x9f\x98\x80" * (1 << 18))  # 1 MiB of smileys
    assert stream.size == 200 << 20 and stream.cut
    assert len(stream.kept) == KEPT_MAX
    assert len(stream.text()) < 1200


def test_short_stream_is_whole() -> None:
    stream = Stream(10)
    stream.add(b"0123456")
    stream.add(b"789")
    assert stream.text() == "0123456789" and not stream.cut
    stream.add(b"!")
    assert stream.cut


def test_clean_keeps_text_of_all_languages() -> None:
    for text in ("日本語", "ελληνικά", "שלום", "😀👩👧", "a\tb\nc", "x\r\ny"):
        assert clean(text) == text


def test_clean_shows_what_would_hide_text() -> None:
    assert clean("user\u202etxt.exe") == "user\ufffdtxt.exe"
    assert clean("a\U000e0041b") == "a\ufffdb"
    assert clean("a\u200db") == "a\ufffdb"
    assert clean("\x1b[2J\0") == "\u241b[2J\u2400"
    assert clean_output("50%\r100%\r\ndone\x1b[0m") == "50%\n100%\ndone"
    clean("\udcff").encode()


def test_picture_needs_the_first_bytes_of_one() -> None:
    assert picture(b"<svg>") is None
    assert picture(b"RIFF....WAVE") is None
    shown = picture(b"RIFF....WEBP")
    assert shown and shown.mime_type == "image/webp"


def text_of(*results: Result) -> str:
    shown = Shown(100)
    for one in results:
        shown.add(one)
    assert not shown.pictures
    return shown.text()


def test_result_without_text_names_its_types() -> None:
    assert text_of(Result({"image/svg+xml": "<svg/>"})) == "[a result of type image/svg+xml]\n"
    assert text_of(Result({"application/json": {"a": [1]}})) == '{"a": [1]}\n'


def test_only_results_that_can_be_shown_are_kept() -> None:
    shown = Shown(1000)
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(2_900_000)).decode()
    tracemalloc.start()
    for number in range(60):
        shown.add(Result({"text/plain": f"{number} " + "x" * 1_500_000}))
        shown.add(Result({"image/png": png}))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10 << 20  # two pictures as base64
    assert len(shown.pictures) == 2 and shown.text().count("up to 8388608 bytes together") >= 1
    assert shown.text().startswith("0 xxx") and len(shown.text()) < 1100


def test_error_message_of_a_sandbox_is_bounded() -> None:
    shown = explain(RametError("\x1b[31m" + "x" * 100_000, code="no_such_file"))
    assert len(shown) < 3000 and not CONTROL.search(shown)
