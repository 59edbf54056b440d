# SPDX-License-Identifier: Apache-2.0
"""Does each tool do what its description says?"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Callable

import anyio
import pytest
from mcp import Client as McpClient
from mcp.types import ImageContent

from mcp_clients import (
    ENVIRONMENT,
    NAME,
    anyio_backend,
    ask,
    call,
    mine,
    refused,
    stdio,
    tidy,
    written,
)
from ramet import Client

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tidy")]


def png() -> bytes:
    """Returns a picture of one black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + body


async def test_python_keeps_its_state_and_shows_the_last_value() -> None:
    async with stdio() as client:
        assert await call(client, "run_code", code="x = [1, 2]\nimport math") == "[no output]"
        shown = await call(client, "run_code", code="print('out')\nmath.prod(x)")
        assert shown == "out\n[result]\n2"


async def test_exception_is_shown_with_its_exit_code() -> None:
    async with stdio() as client:
        shown = await call(client, "run_code", code="1 / 0")
        assert shown.startswith("[stderr]\nTraceback") and "ZeroDivisionError" in shown
        assert shown.endswith("[exit code 1]")


async def test_bash_keeps_its_state_between_calls() -> None:
    async with stdio() as client:
        await call(client, "run_code", code="cd /tmp; word=kept", language="bash")
        shown = await call(client, "run_code", code="pwd; echo $word", language="bash")
        assert shown == "/tmp\nkept"


async def test_command_shows_both_streams_and_its_exit_code() -> None:
    async with stdio() as client:
        shown = await call(client, "run_command", command="echo out; echo err >&2; exit 3", cwd="/")
        assert shown == "out\n[stderr]\nerr\n[exit code 3]"
        assert await call(client, "run_command", command="pwd", cwd="/usr") == "/usr"
        assert "(SIGTERM)" in await call(client, "run_command", command="kill -TERM $$")


async def test_time_limit_stops_code_and_command() -> None:
    async with stdio() as client:
        code = "import time\nprint('begun')\ntime.sleep(600)"
        shown = await call(client, "run_code", code=code, timeout_seconds=1)
        assert shown.startswith("begun") and shown.endswith("[stopped at the time limit of 1 s]")
        shown = await call(client, "run_command", command="echo a; sleep 600", timeout_seconds=1)
        assert shown == "a\n[stopped at the time limit of 1 s]"


async def test_pictures_are_image_content() -> None:
    data = base64.b64encode(png()).decode()
    code = f"for _ in range(2): display({{'image/png': {data!r}}}, raw=True)\nprint('shown')"
    async with stdio() as client:
        result = await client.call_tool("run_code", {"code": code})
    assert written(result) == "shown"
    pictures = [one for one in result.content if isinstance(one, ImageContent)]
    assert [one.mime_type for one in pictures] == ["image/png"] * 2
    assert base64.b64decode(pictures[0].data) == png()


async def test_file_is_written_appended_and_read_in_parts() -> None:
    async with stdio() as client:
        path = "/tmp/ramet-mcp/a/numbers"
        text = "".join(f"{number}\n" for number in range(1000))
        assert "3890 bytes written" in await call(client, "write_file", path=path, content=text)
        await call(client, "write_file", path=path, content="Ende: ä€\n", append=True)
        assert await call(client, "read_file", path=path) == text + "Ende: ä€\n"
        read, offset = "", 0
        while True:
            result = await client.call_tool(
                "read_file", {"path": path, "offset": offset, "limit": 1000}
            )
            part, *note = [block.text for block in result.content if block.type == "text"]
            read += part
            if not note:
                break
            offset = int(note[0].rpartition("offset=")[2].rstrip("]"))
        assert read == text + "Ende: ä€\n"
        assert await call(client, "read_file", path=path, offset=-16) == "999\nEnde: ä€\n"
        assert "the file has 3902" in await call(client, "read_file", path=path, offset=5000)
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_part_of_a_file_never_splits_a_character() -> None:
    async with stdio() as client:
        await call(client, "write_file", path="/tmp/ramet-mcp/euro", content="€" * 100)
        first = await call(client, "read_file", path="/tmp/ramet-mcp/euro", limit=16)
        assert first == "€" * 5 + "\n[bytes 0 to 14 of 300: continue with offset=15]"
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_binary_file_is_read_and_written_exactly() -> None:
    async with stdio() as client:
        data = bytes(range(256)) * 3
        encoded = base64.b64encode(data).decode()
        path = "/tmp/ramet-mcp/binary"
        await call(client, "write_file", path=path, content=encoded, encoding="base64", mode="755")
        assert await call(client, "read_file", path=path, encoding="base64") == encoded
        assert "a binary file of 768 bytes" in await call(client, "read_file", path=path)
        (entry,) = (await ask(client, "list_files", path="/tmp/ramet-mcp"))["entries"]
        assert entry["name"] == "binary" and entry["mode"] == "0755" and entry["size"] == 768
        assert "base64" in await refused(
            client, "write_file", path=path, content="***", encoding="base64"
        )
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_text_that_is_json_is_written_as_it_is() -> None:
    async with stdio() as client:
        for text in ('{"a": [1, 2]}', "[1]", "null", "17"):
            await call(client, "write_file", path="/tmp/ramet-mcp/j", content=text)
            assert await call(client, "read_file", path="/tmp/ramet-mcp/j") == text
            assert await call(client, "run_command", command=f"cat <<'E'\n{text}\nE") == text
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_picture_in_a_file_is_shown() -> None:
    async with stdio() as client:
        data = base64.b64encode(png()).decode()
        path = "/tmp/ramet-mcp/dot.png"
        await call(client, "write_file", path=path, content=data, encoding="base64")
        (shown,) = (await client.call_tool("read_file", {"path": path})).content
        assert isinstance(shown, ImageContent) and shown.data == data
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_folder_is_listed_in_pages() -> None:
    async with stdio() as client:
        make = "mkdir -p /tmp/ramet-mcp/f; cd $_; touch {01..25}"
        await call(client, "run_command", command=make)
        names, after = [], ""
        while after is not None:
            page = await ask(
                client, "list_files", path="/tmp/ramet-mcp", depth=2, after=after, limit=10
            )
            names += [entry["name"] for entry in page["entries"]]
            after = page["next_after"]
        assert names == ["f"] + [f"f/{number:02}" for number in range(1, 26)]
        await call(client, "run_command", command="rm -r /tmp/ramet-mcp")


async def test_session_makes_one_sandbox_for_many_first_calls(mine: Callable[[], set[str]]) -> None:
    async with stdio() as client:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(_prints, client, number)
        assert len(mine()) == 1


async def _prints(client: McpClient, number: int) -> None:
    assert await call(client, "run_command", command=f"echo {number}") == str(number)


async def test_sandboxes_are_created_listed_and_deleted(mine: Callable[[], set[str]]) -> None:
    async with stdio() as client:
        made = await ask(client, "create_sandbox", name=NAME, lifetime_seconds=600)
        assert {made["sandbox"]} == mine()
        items = (await ask(client, "list"))["items"]
        (item,) = (one for one in items if one["id"] == made["sandbox"])
        assert item["name"] == NAME and item["state"] == "ready"
        await call(client, "delete", id=made["sandbox"])
        assert not mine()
        error = await refused(client, "run_code", code="1", sandbox=made["sandbox"])
        assert ": not_found: " in error or ": deleted: " in error


async def test_list_has_pages() -> None:
    async with stdio() as client:
        made = {(await ask(client, "create_sandbox"))["sandbox"] for _ in range(3)}
        seen, offset = [], 0
        while offset is not None:
            page = await ask(client, "list", offset=offset, limit=1)
            assert len(page["items"]) == 1
            seen += [page["items"][0]["id"]]
            offset = page["next_offset"]
        assert made <= set(seen)


@pytest.mark.smoke
@pytest.mark.vm
async def test_fork_diff_and_merge(mine: Callable[[], set[str]]) -> None:
    async with stdio() as client:
        await call(client, "run_code", code="x = 1")
        (parent,) = mine()
        first, second = (await ask(client, "fork", n=2))["children"]
        assert mine() == {parent, first, second}
        write = "open('/root/answer', 'w').write(str(x + {}))"
        await call(client, "run_code", code=write.format(10), sandbox=first)
        await call(client, "run_code", code="x = 7", sandbox=second)
        found = await ask(client, "diff", other=first, paths=["/root"])
        assert {"change": "added", "path": "/root/answer"} in found["changes"]
        assert await call(client, "merge", winner=first) == (
            f"{parent} continues with the state of {first}"
        )
        assert await call(client, "read_file", path="/root/answer") == "11"
        assert await call(client, "run_code", code="x", sandbox=second) == "[result]\n7"
        assert mine() == {parent, second}


@pytest.mark.vm
async def test_files_of_forks_are_merged() -> None:
    async with stdio() as client:
        await call(client, "run_code", code="x = 1")
        base, *forks = (await ask(client, "fork", n=3))["children"]
        for fork, name in zip(forks, "ab", strict=True):
            await call(client, "write_file", path=f"/root/{name}", content=name, sandbox=fork)
        got = await ask(client, "merge_files", branches=forks, base=base, paths=["/root"])
        assert got["applied"] and got["total"] == 2 and got["next_offset"] is None
        assert [one["path"] for one in got["paths"]] == ["/root/a", "/root/b"]
        assert await call(client, "read_file", path="/root/b") == "b"
        assert await call(client, "run_code", code="x") == "[result]\n1"


@pytest.mark.vm
async def test_a_sandbox_starts_from_a_checkpoint(mine: Callable[[], set[str]]) -> None:
    async with stdio() as client:
        await call(client, "run_code", code="x = 1")
        kept = await ask(client, "checkpoint", name="one")
        point = kept["checkpoint"]
        assert point in kept["note"]
        await call(client, "run_code", code="x = 2")
        made = (await ask(client, "create_sandbox", checkpoint=point))["sandbox"]
        assert made in mine()
        assert await call(client, "run_code", code="x", sandbox=made) == "[result]\n1"
        listed = (await ask(client, "list", what="checkpoints"))["items"]
        assert [one["name"] for one in listed if one["id"] == point] == ["one"]
        (own,) = mine() - {made}
        assert await call(client, "rollback", checkpoint=point) == f"{own} is in the state of {point}"
        assert await call(client, "run_code", code="x") == "[result]\n1"
        assert await call(client, "delete", id=point) == f"{point} is deleted"


async def test_history_has_the_code_of_calls() -> None:
    async with stdio() as client:
        await call(client, "run_code", code="x = 1\nx")
        await call(client, "checkpoint", name="one")
        listed = await call(client, "history")
        assert listed.splitlines() == ["1 created", "2 call ok x = 1", "3 checkpoint one"]


@pytest.mark.vm
async def test_diff_has_pages() -> None:
    async with stdio() as client:
        await call(client, "run_code", code="1")
        (child,) = (await ask(client, "fork"))["children"]
        await call(
            client, "run_command", command="mkdir -p /root/d; touch /root/d/{1..9}", sandbox=child
        )
        page = await ask(client, "diff", other=child, paths=["/root"], limit=4)
        assert page["total"] == 10 and page["next_offset"] == 4
        rest = await ask(client, "diff", other=child, paths=["/root"], offset=4)
        paths = [one["path"] for one in page["changes"] + rest["changes"]]
        assert rest["next_offset"] is None
        assert sorted(paths) == ["/root/d"] + [f"/root/d/{number}" for number in range(1, 10)]


@pytest.mark.smoke
@pytest.mark.vm
async def test_freeze_and_resume_keep_memory(mine: Callable[[], set[str]], client: Client) -> None:
    async with stdio() as agent:
        await call(agent, "run_code", code="x = 'kept'")
        space = (await ask(agent, "freeze"))["space"]
        assert not mine()
        items = (await ask(agent, "list", what="spaces"))["items"]
        assert space in [one["id"] for one in items]
        sandbox = (await ask(agent, "resume", space=space))["sandbox"]
        assert await call(agent, "run_code", code="x", sandbox=sandbox) == "[result]\n'kept'"
        assert await call(agent, "run_code", code="x") == "[result]\n'kept'"
    client.delete_sandbox(sandbox)  # what was in a Space is not deleted with the session


async def test_space_is_deleted(mine: Callable[[], set[str]], client: Client) -> None:
    async with stdio() as agent:
        made = await ask(agent, "create_sandbox", name=NAME)
        space = (await ask(agent, "freeze", sandbox=made["sandbox"]))["space"]
        assert await call(agent, "delete", id=space) == f"{space} is deleted"
    assert space not in [one.id for one in client.list_spaces()]


@pytest.mark.vm
async def test_call_after_the_end_of_the_sessions_sandbox_says_so_once(
    mine: Callable[[], set[str]], client: Client
) -> None:
    async with stdio() as agent:
        await call(agent, "run_code", code="x = 1")
        (old,) = mine()
        client.delete_sandbox(old)
        assert "without sandbox makes another" in await refused(agent, "run_code", code="x")
        assert "NameError" in await call(agent, "run_code", code="x")
        assert mine() and old not in mine()


@pytest.mark.parametrize(
    "name, arguments, code, remedy",
    [
        ("read_file", {"path": "/nowhere"}, "no_such_file", "list_files"),
        ("read_file", {"path": "/etc"}, "is_a_directory", "list_files"),
        ("read_file", {"path": "etc/passwd"}, "bad_path", "absolute path"),
        ("list_files", {"path": "/etc/passwd"}, "not_a_directory", "folder"),
        ("create_sandbox", {"template": "nope"}, "unknown_template", "what='templates'"),
        ("delete", {"id": "sbx_" + 32 * "0"}, "not_found", "list"),
        ("resume", {"space": "spc_" + 32 * "0"}, "not_found", "list"),
        ("merge", {"winner": "sbx_" + 32 * "0"}, "not_found", "list"),
    ],
)
async def test_error_has_code_and_remedy(
    name: str, arguments: dict[str, str], code: str, remedy: str
) -> None:
    async with stdio() as client:
        error = await refused(client, name, **arguments)
    assert f": {code}: " in error
    assert remedy in error


async def test_service_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "RAMET_HOST", "http://127.0.0.1:9")
    async with stdio() as client:
        error = await refused(client, "run_code", code="1")
    assert "127.0.0.1:9" in error and "RAMET_HOST" in error


async def test_progress_is_reported_while_a_command_runs() -> None:
    seen: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with stdio() as client:
        await client.call_tool(
            "run_command",
            {"command": "for i in 1 2 3 4; do echo line $i; sleep 0.7; done"},
            progress_callback=on_progress,
        )
    assert seen and all(message and message.startswith("line ") for message in seen)
