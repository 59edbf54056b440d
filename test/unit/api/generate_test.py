# SPDX-License-Identifier: Apache-2.0
"""orchestrator/api/generate.py makes C of a small description, and refuses what it does not understand."""

from __future__ import annotations

import copy
import json
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "orchestrator/api"))

import generate  # noqa: E402
import reference  # noqa: E402
from generate import Refused  # noqa: E402

KEY = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
SMALL: dict[str, Any] = {
    "paths": {
        "/v1/things/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "post": {
                "operationId": "make",
                "tags": ["Things"],
                "summary": "Make a thing",
                "x-ramet-handler": "serve_make",
                "x-ramet-access": "operators",
                "x-ramet-timed": "create",
                "parameters": [{"$ref": "#/components/parameters/key"}],
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ThingMake"}}}
                },
                "responses": {"201": {"description": "Made"}},
            },
        }
    },
    "tags": [{"name": "Things"}],
    "components": {
        "parameters": {"key": KEY},
        "schemas": {
            "ThingMake": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "maxLength": "NAME_MAX", "description": "Its name"},
                    "size": {"type": "integer", "minimum": 1, "x-ramet-reduce-to": 32, "default": 2},
                    "oldSize": {"type": "integer", "x-ramet-reduce-to": 32, "x-ramet-alias": "size"},
                    "round": {"type": "boolean", "default": True},
                    "square": {"type": "boolean"},
                    "wait_seconds": {"type": "number", "minimum": 0.5, "maximum": 10},
                },
                "examples": [{"name": "a"}],
            }
        },
    },
}
KNOWN = {"NAME_MAX": "(2u * PART)", "PART": "(1u << 5) ", "ODD": "sizeof(x)"}


def changed(path: str, value: Any) -> Any:
    """Returns SMALL with a value at the path, whose parts spaces separate."""
    spec = copy.deepcopy(SMALL)
    *parts, last = path.split()
    node = spec
    for part in parts:
        node = node[part]
    node[last] = value
    return spec


def code(spec: Any) -> tuple[str, str]:
    return generate.code(generate.resolved(spec, KNOWN, set()))


ROUTE = "paths /v1/things/{id} post"
FIELD = "components schemas ThingMake properties name"


class Generate(unittest.TestCase):
    def test_route_has_handler_and_flags(self) -> None:
        header, source = code(SMALL)
        self.assertIn("void serve_make(struct request *r, const struct thing_make_body *b);", header)
        self.assertIn(
            '{"POST", "/v1/things/{id}", .body = &thing_make_json, .serve_body = serve_make_values, .keyed = true, .for_operators = true, '
            ".timed = TIMED_CREATE},",
            source,
        )

    def test_setting_can_be_a_maximum(self) -> None:
        _, source = code(changed("components schemas ThingMake properties size x-ramet-max-setting", "sizes_max"))
        self.assertIn(".min = 1, .max = 32, .max_at = offsetof(struct config, sizes_max)),", source)

    def test_body_has_members_limits_and_defaults(self) -> None:
        header, source = code(SMALL)
        members = header[header.index("struct thing_make_body {") :].splitlines()[1:6]
        self.assertEqual(
            [member.strip() for member in members],
            [
                "struct json_text name;",
                "uint32_t size;",
                "bool round;",
                "uint8_t square; /* a bool, or NOT_SAID */",
                "uint32_t wait_ms;",
            ],
        )
        for row in (
            'name, "name", JSON_TEXT, .min = 0, .max = 64, .required = true)',
            'size, "size", JSON_CUT, .min = 1, .max = 32)',
            'size, "oldSize", JSON_CUT, .min = 0, .max = 32)',
            'wait_ms, "wait_seconds", JSON_MILLIS, .min = 0.5, .max = 10)',
            "{.size = 2, .round = true, .square = NOT_SAID, }",
        ):
            self.assertIn(row, source)

    def test_what_is_not_understood_is_refused(self) -> None:
        for path, value, names in (
            (f"{ROUTE} x-ramet-handel", "serve_make", "x-ramet-handel"),
            (f"{FIELD} x-ramet-min", 1, "x-ramet-min"),
            (f"{FIELD} maxLength", "MISSING", "MISSING"),
            (f"{FIELD} maxLength", "ODD", "ODD"),
            (FIELD, {"type": "string"}, "ThingMake.name needs a limit"),
            (FIELD, {"type": "null"}, "ThingMake.name"),
            (f"{ROUTE} requestBody content application/json schema", {"type": "object"}, "no name"),
            (f"{ROUTE} x-ramet-access", "anyone", "security"),
            (f"{ROUTE} security", [], "security"),
            ("paths /v1/other", {"get": {"operationId": "other"}}, "GET /v1/other"),
            ("tags", [{"name": "Thing"}], "has the tag Things"),
            ("paths /v1/other", {"get": SMALL["paths"]["/v1/things/{id}"]["post"]}, "operationId make"),
        ):
            with self.subTest(names), self.assertRaisesRegex(Refused, names):
                code(changed(path, value))

    def test_served_description_has_null_for_what_may_be_absent(self) -> None:
        fields = generate.served(SMALL, KNOWN)["components"]["schemas"]["ThingMake"]["properties"]
        self.assertEqual(fields["name"]["type"], "string")
        self.assertEqual(fields["size"]["type"], ["integer", "null"])
        self.assertEqual(generate.or_null({"enum": ["a"]}), {"enum": ["a", None]})
        self.assertEqual(generate.or_null({"oneOf": [{}]}), {"oneOf": [{}, {"type": "null"}]})
        self.assertEqual(generate.or_null({"$ref": "#/x"}), {"oneOf": [{"$ref": "#/x"}, {"type": "null"}]})

    def test_reference_has_parameters_fields_and_an_example(self) -> None:
        page = reference.page(generate.resolved(SMALL, KNOWN, set()))
        for text in (
            "## Things",
            "### `POST /v1/things/{id}`\nMake a thing. Needs an operator's key, once keys exist. Accepts an",
            "| `name` | string, up to 64 bytes | required | Its name |",
            "| `size` | 1 to 32; more counts as 32 | `2` | |",
            "| 201 | Made |",
            '```text\nPOST /v1/things/{id}\n{"name": "a"}\n```',
        ):
            self.assertIn(text, page)

    def test_every_reference_in_openapi_json_resolves(self) -> None:
        spec = json.loads(generate.SOURCE.read_text())
        waiting, refs = [spec], 0
        for node in waiting:
            waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
            if isinstance(node, dict) and "$ref" in node:
                generate.target(spec, node)
                refs += 1
        self.assertGreater(refs, 100)


if __name__ == "__main__":
    unittest.main()
