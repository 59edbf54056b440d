// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/snapshot/space-manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/version.h"
#include "base/wire.h"
#include "proto/agent.h"
#include "proto/image.h"

#define MAGIC	     "RAMETSPC"
#define HEADER_BYTES 24u
#define PLAIN_FILES  3 /* state, memory, disk base */
#define TRACE_MAX    256u

/* The versions of other formats that the manifest records, so that a Space that cannot be restored
 * is refused before a VM reads it. */
static const struct {
	const char *what;
	uint32_t now, oldest;
} formats[] = {
	{"its state file", IMAGE_STATE_VERSION, IMAGE_STATE_VERSION_OLDEST},
	{"its memory layer", IMAGE_MEMORY_VERSION, IMAGE_MEMORY_VERSION_OLDEST},
	{"its disk layer", IMAGE_LAYER_VERSION, IMAGE_LAYER_VERSION_OLDEST},
	{"its guest's agent", AGENT_VERSION, AGENT_VERSION_OLDEST},
};

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
#define CALL_RESULTS 4u /* with results: the part of one that arrived is the last field */

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
	       (p->running && p->results ? CALL_RESULTS : 0);
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

static void put_body(struct wire *w, const struct space_manifest *m)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		wire_put_u32(w, formats[i].now);
	wire_put_str(w, m->id, strlen(m->id));
	wire_put_str(w, m->template, strlen(m->template));
	wire_put_u32(w, m->size.vcpus);
	wire_put_u32(w, m->size.ram_mib);
	wire_put_u32(w, m->size.rootfs_gb);
	wire_put_u64(w, m->disk_bytes);
	wire_put_u32(w, m->memory_layers);
	wire_put_u32(w, m->layers);
	wire_put_u8(w, m->guest_busy);
	put_calls(w, &m->call);
	for (unsigned i = 0; i < m->n_files; i++) {
		wire_put_u64(w, m->files[i].bytes);
		wire_put_u32(w, m->files[i].sum);
	}
}

int space_manifest_write(const struct space_manifest *m, uint8_t **out, size_t *len)
{
	size_t room = HEADER_BYTES + 4096;
	struct wire body, head;

	for (const struct exec_point *p = &m->call; p; p = p->next)
		room += p->out.len + p->err.len + p->bundle.len + TRACE_MAX + sizeof(*p);
	uint8_t *bytes = calloc(1, room);
	if (!bytes)
		return -ENOMEM;
	body = wire_on(bytes + HEADER_BYTES, room - HEADER_BYTES);
	put_body(&body, m);
	if (body.bad)
		abort(); /* `room` was too small */
	head = wire_on(bytes, HEADER_BYTES);
	wire_put_bytes(&head, MAGIC, 8);
	wire_put_u32(&head, SPACE_MANIFEST_VERSION);
	wire_put_u32(&head, (uint32_t)body.pos);
	wire_put_u32(&head, crc32c(0, body.p, body.pos));
	*out = bytes;
	*len = HEADER_BYTES + body.pos;
	return 0;
}

/* --- read ----------------------------------------------------------------------------------- */

static bool get_text(struct wire *w, char *out, size_t room)
{
	size_t len;
	const uint8_t *p = wire_get_str(w, &len, room - 1);

	if (!p || memchr(p, 0, len))
		return false;
	memcpy(out, p, len);
	out[len] = 0;
	return true;
}

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
	if (!get_splitter(w, &p->out) || !get_splitter(w, &p->err) ||
	    !get_text(w, trace, sizeof(trace)))
		return false;
	if (trace[0])
		p->traceparent = strdup(trace);
	return !p->results || get_bundle(w, &p->bundle);
}

static bool get_calls(struct wire *w, struct exec_point *first)
{
	for (struct exec_point *p = first;;) {
		char context[AGENT_ID_LEN + 1];
		uint8_t flags = wire_get_u8(w);

		p->running = flags & CALL_RUNS;
		p->results = flags & CALL_RESULTS;
		if (w->bad || flags > (CALL_RUNS | CALL_CONTEXT | CALL_RESULTS) ||
		    (!p->running && (p != first || p->results)) || !get_point(w, p))
			return false;
		if (!(flags & CALL_CONTEXT))
			return true;
		if (!get_text(w, context, sizeof(context)) || !context[0])
			return false;
		struct exec_point *next = exec_point_of(first, context);
		if (!next || next->running || next == p)
			return false;
		p = next;
	}
}

static int check_formats(struct wire *w, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		uint32_t version = wire_get_u32(w);

		if (!w->bad && version_check(formats[i].what, version, formats[i].oldest,
					     formats[i].now, e) < 0)
			return -ENOTSUP;
	}
	return 0;
}

static bool get_files(struct wire *w, struct space_manifest *m)
{
	if (m->memory_layers > CTL_MEMORY_MAX || m->layers > CTL_LAYERS_MAX)
		return false;
	m->n_files = PLAIN_FILES + m->memory_layers + m->layers;
	for (unsigned i = 0; i < m->n_files; i++) {
		m->files[i].bytes = wire_get_u64(w);
		m->files[i].sum = wire_get_u32(w);
	}
	return !w->bad && !wire_left(w) && m->disk_bytes && m->disk_bytes % IMAGE_CLUSTER == 0 &&
	       m->files[0].bytes <= IMAGE_STATE_MAX &&
	       m->files[1].bytes == (uint64_t)m->size.ram_mib << 20;
}

static int get_body(struct wire *w, struct space_manifest *m, struct err *e)
{
	int ret = check_formats(w, e);

	if (ret < 0)
		return ret;
	if (!get_text(w, m->id, sizeof(m->id)) || !get_text(w, m->template, sizeof(m->template)))
		return err_say(e, EINVAL, "the manifest's names are malformed");
	m->size.vcpus = wire_get_u32(w);
	m->size.ram_mib = wire_get_u32(w);
	m->size.rootfs_gb = wire_get_u32(w);
	m->disk_bytes = wire_get_u64(w);
	m->memory_layers = wire_get_u32(w);
	m->layers = wire_get_u32(w);
	m->guest_busy = wire_get_u8(w);
	if (!get_calls(w, &m->call))
		return err_say(e, EINVAL, "the manifest's call is malformed");
	if (!get_files(w, m))
		return err_say(e, EINVAL, "the manifest's list of files is malformed");
	return 0;
}

int space_manifest_read(const void *bytes, size_t len, struct space_manifest *out, struct err *e)
{
	struct wire head = wire_from(bytes, len < HEADER_BYTES ? len : HEADER_BYTES), body;
	char magic[8];

	memset(out, 0, sizeof(*out));
	wire_get_bytes(&head, magic, sizeof(magic));
	uint32_t version = wire_get_u32(&head), body_bytes = wire_get_u32(&head);
	uint32_t crc = wire_get_u32(&head), zero = wire_get_u32(&head);
	if (head.bad || memcmp(magic, MAGIC, sizeof(magic)) != 0)
		return err_say(e, EINVAL, "it is not the manifest of a Space");
	if (version_check("its manifest", version, SPACE_MANIFEST_VERSION_OLDEST,
			  SPACE_MANIFEST_VERSION, e) < 0)
		return -ENOTSUP;
	if (body_bytes != len - HEADER_BYTES || zero)
		return err_say(e, EINVAL,
			       "its header is malformed: it says %u bytes, and %zu follow",
			       body_bytes, len - HEADER_BYTES);
	body = wire_from((const uint8_t *)bytes + HEADER_BYTES, body_bytes);
	if (crc32c(0, body.p, body.size) != crc)
		return err_say(e, EINVAL, "its checksum does not match");
	return get_body(&body, out, e);
}

void space_manifest_fini(struct space_manifest *m)
{
	exec_point_fini(&m->call);
}
