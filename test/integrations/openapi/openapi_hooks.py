# SPDX-License-Identifier: Apache-2.0
"""What schemathesis cannot know of Ramet's description; schemathesis.toml names this module."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import requests
import schemathesis

LINES = "application/x-ndjson"

# How refusals of valid requests begin, for reasons that a schema cannot express.
CONDITIONS = (
    "Idempotent-Replay needs the Idempotency-Key",  # a header that needs another one
    "limit cannot be combined with follow",  # parameters that exclude each other
    "follow and newest_first cannot be combined",
    "offset cannot be combined with append",
    "the query changes nothing: add mode, uid or gid",  # one of these parameters is needed
    "cursor must be a value of",  # what an earlier answer had
    "cursor is for the events of all hosts of a fleet",  # this host is in none
    "a prune needs keep, older_than_seconds or both",
    "branches has ",  # an id twice
    "labels must be a JSON object of up to 8",  # what the text of a query contains
    "metadata must be a JSON object of up to 8",
    "template 0 is not known",  # a name that this host does not have
    "as requested",  # the agent has less output than the offset
)
_numbers = itertools.count()


@schemathesis.hook
def before_load_schema(context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    raw_schema["security"] = [{"key": []}]  # this service has keys
    for path, item in raw_schema["paths"].items():
        for route in item.values() if path.endswith("/ports/{port}/{path}") else ():
            if "responses" in route:  # the port's token replaces the key; a public port needs none
                route["security"] = [{}, {"key": []}]
    for parameter in raw_schema["components"]["parameters"].values():
        if parameter["in"] == "path":
            del parameter["example"]  # ids of earlier answers are better
    for item in raw_schema["paths"].values():
        for answers in (route["responses"] for route in item.values() if "responses" in route):
            for content in (answer.get("content", {}) for answer in answers.values()):
                if LINES in content:  # the schema of one line
                    content[LINES]["schema"] = {"type": "array", "items": content[LINES]["schema"]}


@schemathesis.deserializer(LINES)
def events(context: Any, response: Any) -> Any:
    return [json.loads(line) for line in response.content.splitlines() if line]


@schemathesis.serializer("application/x-tar")
def archive(context: Any, value: Any) -> Any:
    return value


def first_line(response: requests.Response, **_: Any) -> requests.Response:
    """Closes a stream of events, which may be endless, after its first line."""
    if response.headers.get("content-type") == LINES:
        line = b""
        while not line.endswith(b"\n") and (byte := response.raw.read(1)):
            line += byte
        response._content = line
        response.close()
    return response


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Any, kwargs: dict[str, Any]) -> None:
    kwargs["hooks"] = {"response": first_line}
    if re.fullmatch("[!-~]{1,255}", case.headers.get("Idempotency-Key", "")):
        case.headers["Idempotency-Key"] = f"key-{next(_numbers)}"  # another one for each request


@schemathesis.hook
def filter_failure(context: schemathesis.HookContext, failure: Any, case: Any, response: Any) -> bool:
    error = response.json().get("error", "") if response.status_code == 400 else ""
    return not error.startswith(CONDITIONS)
