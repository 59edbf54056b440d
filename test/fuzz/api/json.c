// SPDX-License-Identifier: Apache-2.0
/* The input is a JSON body. Accepted values must be those of the text. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/json/json.h"
#include "orchestrator/json/text.h"

struct body {
	struct json_text text, object;
	uint32_t whole, cut, millis;
	bool flag;
	char **env, **list, **pairs;
	uint64_t big;
	double real;
	struct json_text bytes, name;
};

static const struct json_field fields[] = {
	{"t", JSON_TEXT, offsetof(struct body, text), 0, 64, false, NULL, NULL, 0},
	{"o", JSON_OBJECT, offsetof(struct body, object), 0, 64, false, NULL, NULL, 0},
	{"w", JSON_WHOLE, offsetof(struct body, whole), 1, 1000, false, NULL, NULL, 0},
	{"c", JSON_CUT, offsetof(struct body, cut), 1, 1000, false, NULL, NULL, 0},
	{"m", JSON_MILLIS, offsetof(struct body, millis), .001, 1000, false, NULL, NULL, 0},
	{"r", JSON_REAL, offsetof(struct body, real), -1e15, 1e15, false, NULL, NULL, 0},
	{"b", JSON_BOOL, offsetof(struct body, flag), 0, 0, false, NULL, NULL, 0},
	{"e", JSON_ENV, offsetof(struct body, env), 0, 0, false, NULL, NULL, 0},
	{"p", JSON_PAIRS, offsetof(struct body, pairs), 0, 0, false, NULL, NULL, 0},
	{"g", JSON_BIG, offsetof(struct body, big), 0, 1000, false, NULL, NULL, 0},
	{"y", JSON_BYTES, offsetof(struct body, bytes), 0, 8, false, NULL, NULL, 0},
	{"l", JSON_LIST, offsetof(struct body, list), 0, 3, false, NULL, NULL, 0},
	{"n", JSON_NAME, offsetof(struct body, name), 0, 8, false, NULL, NULL, 0},
};

static void check(const struct body *b)
{
	if (b->text.p && (strlen(b->text.p) != b->text.len || b->text.len > 64))
		abort();
	if (b->object.p && (b->object.p[0] != '{' || b->object.p[b->object.len - 1] != '}'))
		abort();
	if (b->whole > 1000 || b->cut > 1000 || b->millis > 1000000)
		abort();
	if (!(b->real >= -1e15 && b->real <= 1e15))
		abort();
	if (b->big > 1000 || b->bytes.len > 8)
		abort();
	if (b->name.p && (strlen(b->name.p) != b->name.len || b->name.len > 10))
		abort();
	for (char **v = b->pairs; v && *v; v++)
		if (!strchr(*v, '=') || **v == '=')
			abort();
	for (char **v = b->list; v && *v; v++)
		if (v == b->list + 3)
			abort();
	for (char **v = b->env; v && *v; v++)
		if (!strchr(*v, '=') || **v == '=')
			abort();
}

/* A written string must be read back unchanged. */
static void round_trip(const struct json_text *text)
{
	struct text out = {0};
	struct body again = {0};
	struct err e;

	text_puts(&out, "{\"t\":");
	if (!json_string(&out, text->p, text->len))
		abort();
	text_puts(&out, "}");
	if (json_read(out.p, out.len, fields, ARRAY_LEN(fields), &again, &e) < 0 ||
	    again.text.len != text->len || memcmp(again.text.p, text->p, text->len) != 0)
		abort();
	json_free(fields, ARRAY_LEN(fields), &again);
	text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct body b = {0};
	struct text out = {0};
	struct err e = {0};

	if (json_read((const char *)data, size, fields, ARRAY_LEN(fields), &b, &e) == 0) {
		check(&b);
		if (b.text.p)
			round_trip(&b.text);
		json_free(fields, ARRAY_LEN(fields), &b);
	} else if (!e.text[0] || b.text.p || b.object.p || b.env || b.pairs || b.bytes.p) {
		abort();
	}
	json_string(&out, data, size);
	json_base64(&out, data, size);
	text_free(&out);
	return 0;
}
