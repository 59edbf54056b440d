// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/otlp.h"

#include <string.h>

#include "base/num.h"
#include "base/random.h"

#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_ERROR  2

static const char *const names[SPAN_KINDS] = {
	[SPAN_CREATE] = "create", [SPAN_EXEC] = "exec",	    [SPAN_FORK] = "fork",
	[SPAN_FREEZE] = "freeze", [SPAN_RESUME] = "resume",
};

static bool is_id(const char *prefix, const char id[static SPAN_ID_MAX])
{
	return id_valid(prefix, id, SPAN_ID_MAX);
}

bool otlp_is_span(const struct span *s, size_t len)
{
	if (len < span_size(0) || s->kind == SPAN_NONE || s->kind >= SPAN_KINDS ||
	    s->n_children > SPAN_CHILDREN_MAX || len != span_size(s->n_children) ||
	    (s->sandbox[0] && !is_id("sbx_", s->sandbox)) ||
	    (s->space[0] && !is_id("spc_", s->space)))
		return false;
	for (uint32_t i = 0; i < s->n_children; i++)
		if (!is_id("sbx_", s->children[i]))
			return false;
	return true;
}

static void put_hex(FILE *out, const char *name, const uint8_t *p, size_t len)
{
	char digits[2 * sizeof(((struct span *)0)->trace) + 1];

	hex_write(digits, p, len);
	fprintf(out, "\"%s\":\"%s\"", name, digits);
}

static void put_id(FILE *out, const char *key, const char id[static SPAN_ID_MAX])
{
	if (id[0])
		fprintf(out, ",{\"key\":\"%s\",\"value\":{\"stringValue\":\"%.*s\"}}", key,
			SPAN_ID_MAX, id);
}

/* A child's span has the first digits of its sandbox's id, which are random, as its own id. */
static void put_child_id(FILE *out, const struct span *s, uint32_t i)
{
	put_hex(out, "traceId", s->trace, sizeof(s->trace));
	fprintf(out, ",\"spanId\":\"%.16s\"", s->children[i] + 4);
}

static void put_links(FILE *out, const struct span *s)
{
	fputs(",\"links\":[", out);
	for (uint32_t i = 0; i < s->n_children; i++) {
		fputs(i ? ",{" : "{", out);
		put_child_id(out, s, i);
		fputc('}', out);
	}
	fputc(']', out);
}

static void put_times(FILE *out, const struct span *s)
{
	fprintf(out, ",\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\"",
		(unsigned long long)s->begin_ns, (unsigned long long)s->end_ns);
}

static void put_request(FILE *out, const struct span *s)
{
	static const uint8_t none[sizeof(s->parent)];

	fputc('{', out);
	put_hex(out, "traceId", s->trace, sizeof(s->trace));
	fputc(',', out);
	put_hex(out, "spanId", s->id, sizeof(s->id));
	if (memcmp(s->parent, none, sizeof(none)) != 0) {
		fputc(',', out);
		put_hex(out, "parentSpanId", s->parent, sizeof(s->parent));
	}
	fprintf(out, ",\"name\":\"%s\",\"kind\":%d", names[s->kind], KIND_SERVER);
	put_times(out, s);
	fprintf(out,
		",\"attributes\":[{\"key\":\"http.response.status_code\",\"value\":{\"intValue\":"
		"\"%u\"}}",
		s->status);
	put_id(out, "ramet.sandbox", s->sandbox);
	put_id(out, "ramet.space", s->space);
	fputc(']', out);
	if (s->n_children)
		put_links(out, s);
	/* A fault of the client is not an error of the server's span. */
	if (s->status >= 500)
		fprintf(out, ",\"status\":{\"code\":%d}", STATUS_ERROR);
	fputc('}', out);
}

static void put_child(FILE *out, const struct span *s, uint32_t i)
{
	fputs(",{", out);
	put_child_id(out, s, i);
	fputc(',', out);
	put_hex(out, "parentSpanId", s->id, sizeof(s->id));
	fprintf(out, ",\"name\":\"child\",\"kind\":%d", KIND_INTERNAL);
	put_times(out, s);
	fprintf(out,
		",\"attributes\":[{\"key\":\"ramet.sandbox\",\"value\":{\"stringValue\":\"%.*s\"}}]"
		"}",
		SPAN_ID_MAX, s->children[i]);
}

void otlp_write(FILE *out, const struct span *spans, size_t n, const char *version)
{
	fprintf(out,
		"{\"resourceSpans\":[{\"resource\":{\"attributes\":["
		"{\"key\":\"service.name\",\"value\":{\"stringValue\":\"ramet\"}},"
		"{\"key\":\"service.version\",\"value\":{\"stringValue\":\"%s\"}}]},"
		"\"scopeSpans\":[{\"scope\":{\"name\":\"ramet\"},\"spans\":[",
		version);
	for (size_t i = 0; i < n; i++) {
		if (i)
			fputc(',', out);
		put_request(out, &spans[i]);
		for (uint32_t child = 0; child < spans[i].n_children; child++)
			put_child(out, &spans[i], child);
	}
	fputs("]}]}]}\n", out);
}
