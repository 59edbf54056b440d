// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a request's JSON body. A worker thread parses a large body, so that the loop blocks only
 * for copying it. The worker gets a copy because the request may end at any time, which frees its
 * bytes.
 */
#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "orchestrator/http/internal.h"
#include "orchestrator/json/json.h"

#define FIELDS_MAX 16

struct body {
	struct request *r; /* a counted reference */
	struct json_field fields[FIELDS_MAX];
	size_t n_fields;
	body_fn *serve;
	char *copy; /* the worker's copy; NULL for a small body */
	size_t len;
	int ret;
	struct err e;
	alignas(max_align_t) unsigned char values[];
};

static struct body *body_new(struct request *r, const struct json_body *kind, body_fn *serve)
{
	struct body *b = must_alloc(sizeof(*b) + kind->size);

	b->r = r;
	request_ref(r);
	if (kind->n_fields > FIELDS_MAX)
		abort();
	memcpy(b->fields, kind->fields, kind->n_fields * sizeof(*kind->fields));
	b->n_fields = kind->n_fields;
	for (size_t i = 0; i < b->n_fields; i++)
		if (b->fields[i].max_at)
			b->fields[i].max =
				*(const uint32_t *)((const char *)r->config + b->fields[i].max_at);
	b->serve = serve;
	b->len = r->req->entity.len;
	memcpy(b->values, kind->initial, kind->size);
	return b;
}

static void body_free(struct body *b)
{
	request_unref(b->r);
	free(b->copy);
	free(b);
}

static void read_text(struct body *b, const char *text)
{
	b->ret = json_read(text, b->len, b->fields, b->n_fields, b->values, &b->e);
}

/* Answers an invalid body, or calls `serve`. Does neither if the request is gone, or was answered
 * already because its client left. */
static void finish(struct body *b)
{
	struct request *r = b->r;

	if (r->req && !r->started && b->ret < 0)
		answer_error(r, 400, "bad_request", "%s", b->e.text);
	else if (r->req && !r->started)
		b->serve(r, b->values);
	if (b->ret == 0)
		json_free(b->fields, b->n_fields, b->values);
	body_free(b);
}

/* Runs on a worker thread. */
static void work_on(void *arg)
{
	struct body *b = arg;

	if (atomic_load(&b->r->unwanted))
		b->ret = err_say(&b->e, ECANCELED, "the request has ended");
	else
		read_text(b, b->copy);
}

static void on_worked(void *arg)
{
	struct body *b = arg;
	struct request *r = b->r;

	r->http->reading_bytes -= b->len;
	request_ref(r);
	finish(b);
	request_began(r);
	request_unref(r);
}

/* Hands the body to a worker. Returns false, with 503 answered, when that is not possible now. */
static bool hand_to_worker(struct body *b)
{
	struct http *h = b->r->http;
	size_t sum = h->reading_bytes + b->len;

	if (h->reading_bytes && sum > http_limits.reading_bytes) {
		answer_retry_after(b->r, 1);
		answer_error(b->r, 503, "busy",
			     "%zu MiB of large bodies are being parsed: try again in 1 s",
			     h->reading_bytes >> 20);
		return false;
	}
	b->copy = malloc(b->len);
	if (b->copy)
		memcpy(b->copy, b->r->req->entity.base, b->len);
	if (!b->copy || loop_work(h->loop, LOOP_CPU, work_on, on_worked, b) < 0) {
		answer_retry_after(b->r, 1);
		answer_error(b->r, 503, "no_memory",
			     "the service has no memory to parse this body: try again in 1 s");
		return false;
	}
	h->reading_bytes = sum;
	request_watch(b->r);
	return true;
}

void body_read(struct request *r, const struct json_body *kind, body_fn *serve)
{
	struct body *b = body_new(r, kind, serve);

	if (b->len <= http_limits.read_here_bytes) {
		read_text(b, r->req->entity.base);
		finish(b);
	} else if (!hand_to_worker(b)) {
		body_free(b);
	}
}
