// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/snapshot/space-manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "proto/agent.h"
#include "proto/image.h"

#define PLAIN_FILES 3 /* state, memory, disk base */
#define TRACE_MAX   256u

unsigned space_base_index(const struct space_manifest *m)
{
	return 2 + m->memory_layers;
}

void space_file_name(const struct space_manifest *m, unsigned i, char out[SPACE_FILE_NAME_MAX])
{
	unsigned base = space_base_index(m);

	if (i < 2)
		snprintf(out, SPACE_FILE_NAME_MAX, "%s", i ? "memory" : "state");
	else if (i < base)
		snprintf(out, SPACE_FILE_NAME_MAX, "memory-%u", i - 1);
	else if (i == base)
		snprintf(out, SPACE_FILE_NAME_MAX, "base");
	else
		snprintf(out, SPACE_FILE_NAME_MAX, "disk-%u", i - base);
}

/* --- write ---------------------------------------------------------------------------------- */

static void put_splitter(struct wire *w, const struct splitter *s)
{
	wire_put_u8(w, s->chunks);
	wire_put_str(w, s->held, s->len);
}

/* The first byte of a call. */
#define CALL_RUNS    1u /* the rest of the call follows */
#define CALL_CONTEXT 2u /* then a context's id and its call */
#define CALL_RESULTS 4u /* the last field is the part of a result that has arrived */
#define CALL_HUNG_UP 8u /* its client has hung up: the call is to be interrupted */
#define CALL_FLAGS   (CALL_RUNS | CALL_CONTEXT | CALL_RESULTS | CALL_HUNG_UP)

static void put_point(struct wire *w, const struct exec_point *p)
{
	if (!p->running)
		return;
	wire_put_u8(w, p->at_guest);
	wire_put_u64(w, p->number);
	wire_put_u64(w, p->have);
	wire_put_u32(w, p->timeout_ms);
	put_splitter(w, &p->out);
	put_splitter(w, &p->err);
	wire_put_str(w, p->traceparent, p->traceparent ? strlen(p->traceparent) : 0);
	if (p->results)
		wire_put_str(w, p->bundle.held, p->bundle.len);
}

static uint8_t call_flags(const struct exec_point *p)
{
	return (p->running ? CALL_RUNS : 0) | (p->next ? CALL_CONTEXT : 0) |
	       (p->running && p->results ? CALL_RESULTS : 0) |
	       (p->running && p->hung_up ? CALL_HUNG_UP : 0);
}

static void put_calls(struct wire *w, const struct exec_point *p)
{
	for (; p; p = p->next) {
		wire_put_u8(w, call_flags(p));
		put_point(w, p);
		if (p->next)
			wire_put_str(w, p->next->context, strlen(p->next->context));
	}
}

static size_t room_for_calls(const struct exec_point *p)
{
	size_t room = 0;

	do {
		room += p->out.len + p->err.len + p->bundle.len + TRACE_MAX + sizeof(*p);
		p = p->next;
	} while (p);
	return room;
}

int space_manifest_write(const struct space_manifest *m, uint8_t **out, size_t *len)
{
	size_t room = 4096 + room_for_calls(&m->call);

	scoped_free uint8_t *extra = calloc(1, room);
	uint8_t *bytes = calloc(1, IMAGE_MANIFEST_OVERHEAD + room);
	if (!extra || !bytes) {
		free(bytes);
		return -ENOMEM;
	}
	struct wire w = wire_on(extra, room);
	wire_put_str(&w, m->template, strlen(m->template));
	wire_put_u32(&w, m->size.vcpus);
	wire_put_u32(&w, m->size.ram_mib);
	wire_put_u32(&w, m->size.rootfs_gb);
	wire_put_u64(&w, m->disk_bytes);
	wire_put_u32(&w, m->memory_layers);
	wire_put_u32(&w, m->layers);
	wire_put_u8(&w, m->guest_busy);
	put_calls(&w, &m->call);
	if (w.bad)
		abort(); /* `room` was too small */
	*out = bytes;
	*len = image_manifest_write(&m->image, extra, w.pos, bytes);
	return 0;
}

/* --- read ----------------------------------------------------------------------------------- */

static bool get_splitter(struct wire *w, struct splitter *s)
{
	size_t len;

	s->chunks = wire_get_u8(w);
	const uint8_t *p = wire_get_str(w, &len, LINE_MAX_BYTES);
	const struct splitter from = {
		.chunks = s->chunks, .held = (uint8_t *)(uintptr_t)p, .len = len};
	return !w->bad && splitter_copy(s, &from) == 0;
}

static bool get_bundle(struct wire *w, struct splitter *s)
{
	size_t len;
	const uint8_t *p = wire_get_str(w, &len, AGENT_BUNDLE_MAX);

	return !w->bad && splitter_hold(s, p, len) == 0;
}

static bool get_point(struct wire *w, struct exec_point *p)
{
	char trace[TRACE_MAX];

	if (!p->running)
		return true;
	p->at_guest = wire_get_u8(w);
	p->number = wire_get_u64(w);
	p->have = wire_get_u64(w);
	p->timeout_ms = wire_get_u32(w);
	if (!get_splitter(w, &p->out) || !get_splitter(w, &p->err))
		return false;
	wire_get_text(w, trace, sizeof(trace));
	if (trace[0])
		p->traceparent = strdup(trace);
	return !w->bad && (!p->results || get_bundle(w, &p->bundle));
}

static bool get_calls(struct wire *w, struct exec_point *first)
{
	for (struct exec_point *p = first;;) {
		char context[AGENT_ID_LEN + 1];
		uint8_t flags = wire_get_u8(w);

		p->running = flags & CALL_RUNS;
		p->results = flags & CALL_RESULTS;
		p->hung_up = flags & CALL_HUNG_UP;
		if (w->bad || flags > CALL_FLAGS ||
		    (!p->running && (p != first || p->results || p->hung_up)) || !get_point(w, p))
			return false;
		if (!(flags & CALL_CONTEXT))
			return true;
		wire_get_text(w, context, sizeof(context));
		if (w->bad || !context[0])
			return false;
		struct exec_point *next = exec_point_of(first, context);
		if (!next || next->running || next == p)
			return false;
		p = next;
	}
}

static bool is_sound(const struct space_manifest *m)
{
	const struct image_file *files = m->image.files;

	return m->memory_layers <= CTL_MEMORY_MAX && m->layers <= CTL_LAYERS_MAX &&
	       m->image.n_files == PLAIN_FILES + m->memory_layers + m->layers && m->disk_bytes &&
	       m->disk_bytes % IMAGE_CLUSTER == 0 && files[0].bytes <= IMAGE_STATE_MAX &&
	       files[1].bytes == (uint64_t)m->size.ram_mib << 20;
}

int space_manifest_read(struct wire *w, struct space_manifest *m, struct err *e)
{
	wire_get_text(w, m->template, sizeof(m->template));
	if (w->bad)
		return err_say(e, EINVAL, "its manifest's template is malformed");
	m->size.vcpus = wire_get_u32(w);
	m->size.ram_mib = wire_get_u32(w);
	m->size.rootfs_gb = wire_get_u32(w);
	m->disk_bytes = wire_get_u64(w);
	m->memory_layers = wire_get_u32(w);
	m->layers = wire_get_u32(w);
	m->guest_busy = wire_get_u8(w);
	if (!get_calls(w, &m->call) || wire_left(w))
		return err_say(e, EINVAL, "its manifest's call is malformed");
	if (!is_sound(m))
		return err_say(e, EINVAL, "its manifest's list of files does not fit its size");
	return 0;
}

void space_manifest_fini(struct space_manifest *m)
{
	exec_point_fini(&m->call);
}
