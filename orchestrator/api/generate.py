# SPDX-License-Identifier: Apache-2.0
"""Makes C and the served document of openapi.json, the description of the HTTP API: generate.py FOLDER

spec.h and spec.c have the routes, the declarations of their handlers, and a structure for each JSON
body: the schema "Create" becomes `struct create_body`, with a member for each field, and
`create_json`, with which body_read reads it. reference.py makes docs/api-reference.md.

In openapi.json, a limit is a number or the name of a constant of one of FILES. Keys that OpenAPI
lacks:

of a route    x-ramet-handler          the C function that serves it; it gets the body, if that is JSON
              x-ramet-access           "anyone": needs no key; "operators" or "admins": needs a key of theirs
              x-ramet-streams          its body has any size and is passed on as it arrives
              x-ramet-timed            its histogram in /metrics (enum timed)
              x-ramet-span             the kind of its requests' spans (enum span_kind)
              x-ramet-quiet            polled by machines: logged at debug level
              x-ramet-outlives-client  with an Idempotency-Key, it continues when the client leaves
of a field    x-ramet-max-bytes        length of a text in UTF-8, of base64 decoded, of an object in JSON
              x-ramet-max-setting      the setting that is its maximum, and may be below `maximum`
              x-ramet-reduce-to        a larger number counts as this one
              x-ramet-alias            the field whose former name this is
              x-ramet-hint             how the refusal of a word that is not in its enum ends

The answers of a route with the parameter Idempotency-Key are remembered.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Iterator

TOP = Path(__file__).resolve().parents[2]
SOURCE = TOP / "orchestrator/api/openapi.json"
FILES = (
    "proto/agent.h",
    "orchestrator/api/files.c",
    "orchestrator/api/page-key.h",
    "orchestrator/api/list-filter.c",
    "orchestrator/guestops/guestops.h",
    "orchestrator/config/sandbox-config.h",
    "orchestrator/sandbox/sandboxes.h",
    "orchestrator/store/keys.h",
    "orchestrator/snapshot/snapshots.h",
    "orchestrator/observe/usage.h",
)
METHODS = ("get", "put", "post", "patch", "delete", "options")
FLAGS = ("streams", "quiet", "outlives-client")
ACCESS = {"anyone": "for_anyone", "operators": "for_operators", "admins": "for_admins"}
PRIVATE = {f"x-ramet-{key}" for key in ("handler", "timed", "span", "quiet", "outlives-client", "alias", "hint", "max-setting")}
PUBLIC = {f"x-ramet-{key}" for key in ("access", "streams", "max-bytes", "reduce-to")}
LIMITS = ("maximum", "maxLength", "maxItems", "x-ramet-max-bytes", "x-ramet-reduce-to")

# For each shape of a field: its enum json_kind, and the type of its member.
KINDS = {
    "boolean": ("BOOL", "bool "),
    "optional boolean": ("BOOL", "uint8_t "),
    "number": ("MILLIS", "uint32_t "),
    "double number": ("REAL", "double "),
    "integer": ("WHOLE", "uint32_t "),
    "reduced integer": ("CUT", "uint32_t "),
    "int64 integer": ("BIG", "uint64_t "),
    "string": ("TEXT", "struct json_text "),
    "base64 string": ("BYTES", "struct json_text "),
    "integer or string": ("NAME", "struct json_text "),
    "object": ("OBJECT", "struct json_text "),
    "object of strings": ("ENV", "char **"),
    "array or object": ("PAIRS", "char **"),
    "array": ("LIST", "char **"),
}
# The limit of a field whose schema has none; other fields must have one.
UNLIMITED = {"BOOL": 0, "ENV": 0, "PAIRS": 0, "WHOLE": (1 << 32) - 1, "BIG": 1 << 53}
WORD_MAX = 64  # bytes of a field that has one of a few values


class Refused(Exception):
    """What is wrong with openapi.json."""


# --- reading openapi.json ------------------------------------------------------------------------


def constants() -> dict[str, str]:
    """Returns the text of each constant of FILES."""
    define = re.compile(r"^#define (\w+)[ \t]+([^/\n]+)", re.M)
    found = [constant for name in FILES for constant in define.findall((TOP / name).read_text())]
    if len(set(found)) > len(dict(found)):
        raise Refused(f"two of FILES define one name differently: {', '.join(FILES)}")
    return dict(found)


def number(name: str, known: dict[str, str]) -> int:
    """Returns the value of a constant that consists of numbers, other constants, (, ), * and <<."""
    text = re.sub(r"[A-Z]\w+", lambda found: str(number(found[0], known)), known.get(name, "?"))
    text = re.sub(r"(\d)u\b", r"\1", text)
    if not re.fullmatch(r"[\d()*<\s]+", text):
        raise Refused(f"{name} is not a constant with a simple value in {', '.join(FILES)}")
    return int(eval(text))


def resolved(node: Any, known: dict[str, str], dropped: set[str], where: str = "") -> Any:
    """Returns the document with numbers for constants, and without `dropped` keys. Refuses unknown ones."""
    if isinstance(node, list):
        return [resolved(item, known, dropped, where) for item in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key, value in node.items():
        if key.startswith("x-ramet-") and key not in PRIVATE | PUBLIC:
            raise Refused(f"{where} has the unknown key {key}")
        if key in LIMITS and isinstance(value, str):
            out[key] = number(value, known)
        elif key not in dropped:
            out[key] = resolved(value, known, dropped, f"{where}/{key}")
    return out


def target(spec: Any, node: Any) -> Any:
    """Returns what a $ref refers to, or another node itself."""
    found = spec if "$ref" in node else node
    for part in node.get("$ref", "").split("/")[1:]:
        found = found[part]
    return found


def name_of(node: Any) -> str:
    """Returns the name that a $ref ends with; an empty text for another node."""
    return str(node.get("$ref", "")).rpartition("/")[2]


def routes(spec: Any) -> Iterator[tuple[str, str, Any]]:
    """Yields method, path and operation of each route; `parameters` has those of the path, too."""
    seen = set()
    tags = {tag["name"] for tag in spec.get("tags", [])}
    for path, item in spec["paths"].items():
        for method in (key for key in item if key in METHODS):
            parameters = item.get("parameters", []) + item[method].get("parameters", [])
            route = {**item[method], "parameters": [target(spec, p) for p in parameters]}
            if "x-ramet-handler" not in route:
                raise Refused(f"{method.upper()} {path} has no x-ramet-handler")
            if unlisted := set(route.get("tags", [])) - tags:
                raise Refused(f"{method.upper()} {path} has the tag {min(unlisted)}, which tags does not list")
            if (route.get("x-ramet-access") == "anyone") != (route.get("security") == []):
                raise Refused(f"{method.upper()} {path}: security is [] if and only if anyone may call it")
            if route["operationId"] in seen:
                raise Refused(f"two routes have the operationId {route['operationId']}")
            seen.add(route["operationId"])
            yield method.upper(), path, route


def is_keyed(route: Any) -> bool:
    return any(p["name"] == "Idempotency-Key" for p in route["parameters"])


# --- C -------------------------------------------------------------------------------------------


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def shape(s: Any) -> str:
    """Returns the key of a field's schema in KINDS."""
    kind = "string" if "enum" in s else s.get("type", "")
    if "oneOf" in s:
        return " or ".join(sorted(one["type"] for one in s["oneOf"]))
    if kind == "boolean" and "default" not in s:
        return "optional boolean"
    if "contentEncoding" in s or "format" in s:
        return f"{s.get('contentEncoding', s.get('format'))} {kind}"
    if "x-ramet-reduce-to" in s:
        return f"reduced {kind}"
    return "object of strings" if "additionalProperties" in s else str(kind)


def limit(s: Any, kind: str, where: str) -> float:
    """Returns the maximum of a field's number or length."""
    texts = [one for one in s.get("oneOf", ()) if one["type"] == "string"]
    limits = [one[key] for one in (s, *texts) for key in LIMITS if key in one]
    if limits or kind in UNLIMITED or "enum" in s:
        return float(limits[0]) if limits else UNLIMITED.get(kind, WORD_MAX)
    raise Refused(f"{where} needs a limit")


def bodies(spec: Any) -> dict[str, Any]:
    """Returns the schemas of JSON bodies, and of the objects in them, by name."""
    found: dict[str, Any] = {}
    contents = [route.get("requestBody", {}).get("content", {}) for _, _, route in routes(spec)]
    waiting = [content["application/json"]["schema"] for content in contents if "application/json" in content]
    for schema in waiting:
        if not name_of(schema):
            raise Refused(f"the schema of a body has no name: {json.dumps(schema):.60}")
        found[name_of(schema)] = body = target(spec, schema)
        waiting += [s for s in body["properties"].values() if "$ref" in s]
    return found


def body_code(spec: Any, name: str, schema: Any) -> tuple[str, str]:
    """Returns the declarations of a body for spec.h, and its definitions for spec.c."""
    c, members, rows, initial = snake(name), "", "", ""
    for key, value in schema["properties"].items():
        s = target(spec, value)
        if shape(s) not in KINDS:
            raise Refused(f"{name}.{key} has a type that json.h cannot read: {shape(s) or 'none'}")
        kind, ctype = KINDS[shape(s)]
        member = snake(s.get("x-ramet-alias", key))
        if kind == "MILLIS":
            member = member.replace("_seconds", "_ms")
        if "x-ramet-alias" not in s:
            members += f"\t{ctype}{member};{' /* a bool, or NOT_SAID */' * (ctype == 'uint8_t ')}\n"
        if kind in ("BOOL", "WHOLE", "CUT", "BIG") and ("default" in s or kind == "BOOL"):
            initial += f".{member} = {json.dumps(s['default']) if 'default' in s else 'NOT_SAID'}, "
        if kind == "REAL":
            initial += f".{member} = NAN, "
        limits = f".min = {s.get('minimum', 0)}, .max = {limit(s, kind, f'{name}.{key}'):.0f}"
        needed = ", .required = true" if key in schema.get("required", ()) else ""
        if "x-ramet-max-setting" in s:
            needed += f", .max_at = offsetof(struct config, {s['x-ramet-max-setting']})"
        if "enum" in s:
            words = "".join(f"{json.dumps(word)}, " for word in s["enum"])
            hint = json.dumps(s["x-ramet-hint"]) if "x-ramet-hint" in s else "NULL"
            needed += f", .words = (const char *const[]){{{words}NULL}}, .hint = {hint}"
        rows += f'\tJSON_FIELD(struct {c}_body, {member}, "{key}", JSON_{kind}, {limits}{needed}),\n'
    return (
        f"struct {c}_body {{\n{members}}};\nextern const struct json_body {c}_json;\n",
        f"static const struct json_field {c}_fields[] = {{\n{rows}}};\n"
        f"static const struct {c}_body {c}_initial = {{{initial or '0'}}};\n"
        f"const struct json_body {c}_json = {{{c}_fields, ARRAY_LEN({c}_fields),\n"
        f"\t&{c}_initial, sizeof({c}_initial)}};\n",
    )


def body_of(route: Any) -> str:
    """Returns the name of the body that the route's handler gets, in C; an empty text if it gets none."""
    content = route.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return ""
    return snake(name_of(content["application/json"]["schema"]))


def handler_code(handler: str, body: str) -> tuple[str, str]:
    """Returns the declaration of a handler, and the function through which a route calls one with a body."""
    if not body:
        return f"void {handler}(struct request *r);\n", ""
    return (
        f"void {handler}(struct request *r, const struct {body}_body *b);\n",
        f"static void {handler}_values(struct request *r, const void *values)\n{{\n\t{handler}(r, values);\n}}\n",
    )


def route_code(method: str, path: str, route: Any) -> str:
    handler, body = route["x-ramet-handler"], body_of(route)
    words = [f".body = &{body}_json, .serve_body = {handler}_values" if body else f".serve = {handler}"]
    words += [f".{flag.replace('-', '_')} = true" for flag in FLAGS if route.get(f"x-ramet-{flag}")]
    words += [".keyed = true"] if is_keyed(route) else []
    if "x-ramet-access" in route:
        words.append(f".{ACCESS[route['x-ramet-access']]} = true")
    if "x-ramet-timed" in route:
        words.append(f".timed = TIMED_{route['x-ramet-timed'].upper()}")
    if "x-ramet-span" in route:
        words.append(f".span = SPAN_{route['x-ramet-span'].upper()}")
    return f'\t{{"{method}", "{path}", {", ".join(words)}}},\n'


def code(spec: Any) -> tuple[str, str]:
    """Returns spec.h and spec.c."""
    made = "/* Generated from orchestrator/api/openapi.json: change that file. */\n"
    parts = [body_code(spec, name, schema) for name, schema in bodies(spec).items()]
    handlers = {route["x-ramet-handler"]: body_of(route) for _, _, route in routes(spec)}
    calls = [handler_code(*handler) for handler in handlers.items()]
    header = f"{made}#ifndef RAMET_ORCHESTRATOR_API_SPEC_H\n#define RAMET_ORCHESTRATOR_API_SPEC_H\n"
    header += '#include "orchestrator/json/json.h"\n\nstruct request;\n'
    header += "".join(declarations for declarations, _ in parts + calls) + "#endif\n"
    source = f'{made}#include <math.h>\n\n#include "base/fd.h"\n#include "orchestrator/api/handler.h"\n#include "orchestrator/config/config.h"\n#include "orchestrator/api/route.h"\n\n'
    source += "".join(call for _, call in calls)
    source += "const struct route routes[] = {\n" + "".join(route_code(*route) for route in routes(spec))
    source += "};\nconst size_t n_routes = ARRAY_LEN(routes);\n"
    return header, source + "".join(definitions for _, definitions in parts)


# --- the served document --------------------------------------------------------------------------


def or_null(s: Any) -> Any:
    """Returns a field's schema with null, which counts as absent."""
    if "$ref" in s:
        return {"oneOf": [s, {"type": "null"}]}
    for key, null in (("enum", None), ("oneOf", {"type": "null"})):
        if key in s:
            return {**s, key: [*s[key], null]}
    return {**s, "type": [s["type"], "null"]}


def served(given: Any, known: dict[str, str]) -> Any:
    """Returns the document for clients."""
    document = resolved(given, known, PRIVATE)
    for name, schema in bodies(given).items():
        properties = document["components"]["schemas"][name]["properties"]
        for key in properties.keys() - set(schema.get("required", ())):
            properties[key] = or_null(properties[key])
    return document


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        given = json.loads(SOURCE.read_text())
        known = constants()
        header, source = code(resolved(given, known, set()))
        document = served(given, known)
    except (Refused, ValueError) as error:
        raise SystemExit(f"{SOURCE}: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("spec.h", header),
        ("spec.c", source),
        ("openapi.json", json.dumps(document, ensure_ascii=False, indent=1) + "\n"),
        ("spec.d", f"{folder}/spec.c: {' '.join(str(TOP / name) for name in FILES)}\n"),
    ):
        # What includes an unchanged file is not built again.
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
