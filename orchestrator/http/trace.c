// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/events/span.h"
#include "orchestrator/http/internal.h"

/* --- traceparent ---------------------------------------------------------------------------- */

/* Reads lower-case digits. Returns false for others, and when all are zero unless that is valid. */
static bool read_hex(uint8_t *out, const char *text, size_t bytes, bool zero_is_valid)
{
	bool any = zero_is_valid;

	for (size_t i = 0; i < 2 * bytes; i++) {
		int digit = text[i] >= 'A' && text[i] <= 'F' ? -1 : hex_digit(text[i]);

		if (digit < 0)
			return false;
		any = any || digit;
		out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
	}
	return any;
}

bool trace_parse(struct trace_parent *out, const char *value, size_t len)
{
	uint8_t version, flags;

	/* version-trace-span-flags; a later version may continue after another dash */
	if (len < TRACEPARENT_LEN || value[2] != '-' || value[35] != '-' || value[52] != '-' ||
	    !read_hex(&version, value, 1, true) ||
	    !read_hex(out->trace, value + 3, sizeof(out->trace), false) ||
	    !read_hex(out->span, value + 36, sizeof(out->span), false) ||
	    !read_hex(&flags, value + 53, 1, true))
		return false;
	out->sampled = flags & 1;
	if (len > TRACEPARENT_LEN)
		return version != 0 && version != 0xff && value[TRACEPARENT_LEN] == '-';
	return version != 0xff;
}

void trace_read(struct request *r)
{
	const h2o_iovec_t *value = request_header(r, "traceparent");

	if (!value || !trace_parse(&exchange(r)->parent, value->base, value->len))
		return;
	memcpy(r->traceparent, value->base, TRACEPARENT_LEN);
	memcpy(r->traceparent, "00", 2); /* the version that the rest conforms to */
}

/* --- spans ---------------------------------------------------------------------------------- */

static void set_id(char out[static SPAN_ID_MAX], const char *id)
{
	memcpy(out, id, strnlen(id, SPAN_ID_MAX));
}

void trace_begin(struct request *r)
{
	bool joins = r->traceparent[0];

	if (r->http->spans < 0 || r->route->span == SPAN_NONE ||
	    (joins && !exchange(r)->parent.sampled))
		return;
	struct span *s = calloc(1, sizeof(*s));
	if (!s)
		return;
	random_bytes(s->id, sizeof(s->id));
	if (joins) {
		memcpy(s->trace, exchange(r)->parent.trace, sizeof(s->trace));
		memcpy(s->parent, exchange(r)->parent.span, sizeof(s->parent));
	} else {
		random_bytes(s->trace, sizeof(s->trace));
	}
	s->kind = r->route->span;
	s->begin_ns = (uint64_t)realtime_ms() * 1000000;
	set_id(r->route->span == SPAN_RESUME ? s->space : s->sandbox, r->id);
	exchange(r)->span = s;
}

void trace_sandbox(struct request *r, const char *id)
{
	if (exchange(r)->span)
		set_id(exchange(r)->span->sandbox, id);
}

void trace_space(struct request *r, const char *id)
{
	if (exchange(r)->span)
		set_id(exchange(r)->span->space, id);
}

void trace_child(struct request *r, const char *id)
{
	if (exchange(r)->span && exchange(r)->span->n_children < SPAN_CHILDREN_MAX)
		set_id(exchange(r)->span->children[exchange(r)->span->n_children++], id);
}

void trace_end(struct request *r, int status)
{
	struct span *s = exchange(r)->span;

	if (!s)
		return;
	s->status = (uint32_t)status;
	s->end_ns = s->begin_ns + (now_us() - r->began_us) * 1000;
	if (send(r->http->spans, s, span_size(s->n_children), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		r->http->counters.spans_dropped++;
	free(s);
	exchange(r)->span = NULL;
}
