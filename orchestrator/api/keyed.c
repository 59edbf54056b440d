// SPDX-License-Identifier: Apache-2.0
/*
 * Requests with an Idempotency-Key: a repeated request gets the answer of the first one. Only
 * answers of requests that had an effect are remembered. A create, fork or resume whose client
 * leaves is undone, which frees its key; a freeze continues, since the sandbox's state exists only
 * once.
 *
 * The core records the key in the catalogue, in the transaction that records what the request made.
 * So a restarted service knows the key exactly if the request had its effect, whenever the previous
 * instance was killed. It has only the ids; the answer is written again from them.
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/api/internal.h"

/* Hashes the whole request: its route, its id and its body as received. */
static void hash_request(const struct request *r, uint8_t out[static IDEM_HASH_LEN])
{
	const h2o_iovec_t body = r->req->entity;
	char head[256];
	int len = snprintf(head, sizeof(head), "%s %s %s ", r->route->method, r->route->pattern,
			   r->id);

	SHA256((const unsigned char *)body.base, body.len, out);
	memcpy(head + len, out, IDEM_HASH_LEN);
	SHA256((const unsigned char *)head, (size_t)len + IDEM_HASH_LEN, out);
}

static void answer_again(struct request *r, const struct idem_entry *e)
{
	text_add(&r->out, e->body, e->len);
	answer_header(r, "idempotent-replayed", "true");
	answer(r, e->status, "application/json");
}

static bool key_admits(struct request *r, const h2o_iovec_t *key)
{
	if (!idem_key_valid(key->base, key->len)) {
		answer_error(r, 400, "bad_request",
			     "Idempotency-Key must be 1 to %d printable characters without spaces",
			     IDEM_KEY_MAX);
		return false;
	}
	/* A long body is refused, because it would be hashed on the loop's thread. */
	if (r->req->entity.len <= api_limits.read_here_bytes)
		return true;
	answer_error(r, 413, "body_too_large",
		     "the body has %zu bytes; with an Idempotency-Key the maximum is %zu",
		     r->req->entity.len, api_limits.read_here_bytes);
	return false;
}

/* Sets *only if the client only asks for the answer, and the request is not to be performed.
 * Another value is refused: the client would learn too late that the request was performed. */
static bool read_replay(struct request *r, bool *only)
{
	const h2o_iovec_t *value = request_header(r, "idempotent-replay");

	*only = value && h2o_memis(value->base, value->len, H2O_STRLIT("only"));
	if (!value || *only)
		return true;
	answer_error(r, 400, "bad_request", "Idempotent-Replay must be \"only\", not \"%.*s\"",
		     value->len < 40 ? (int)value->len : 40, value->base);
	return false;
}

static bool begin(struct request *r, struct idem_entry *e, bool only)
{
	r->keyed = e;
	if (!only)
		return true;
	answer_error(r, 404, "no_such_answer",
		     "no request with this Idempotency-Key has succeeded within the last hour");
	return false;
}

bool keyed_begin(struct request *r)
{
	const h2o_iovec_t *key = request_header(r, "idempotency-key");
	uint8_t asks[IDEM_HASH_LEN];
	struct idem_entry *e;
	bool only;

	if (!read_replay(r, &only))
		return false;
	if (!key && only) {
		answer_error(r, 400, "bad_request",
			     "Idempotent-Replay needs the Idempotency-Key of the first request");
		return false;
	}
	if (!key)
		return true;
	if (!key_admits(r, key))
		return false;
	hash_request(r, asks);
	switch (idem_begin(&r->api->idem, r->tenant, key->base, key->len, asks,
			   loop_now_ms(r->api->loop), &e)) {
	case IDEM_NEW:
		return begin(r, e, only);
	case IDEM_ANSWERED:
		answer_again(r, e);
		return false;
	case IDEM_UNDER_WAY:
		answer_retry_after(r, 1);
		answer_error(
			r, 409, "idempotency_key_in_use",
			"the first request with this Idempotency-Key is still running: repeat it "
			"later for its answer");
		return false;
	default:
		answer_error(r, 422, "idempotency_key_reused",
			     "this Idempotency-Key was used for another request: use a new key for "
			     "each request");
		return false;
	}
}

void keyed_called(struct request *r)
{
	struct request_key key;

	if (!r->keyed)
		return;
	memcpy(key.key, r->keyed->key, sizeof(key.key));
	memcpy(key.asks, r->keyed->asks, sizeof(key.asks));
	core_call_key(r->call, &key);
}

void keyed_answered(struct request *r, int status)
{
	struct idem *idem = &r->api->idem;
	struct idem_entry *e = r->keyed;

	r->keyed = NULL;
	if (e && status >= 200 && status < 300)
		idem_answer(idem, e, status, r->out.p, r->out.len, loop_now_ms(r->api->loop));
	else if (e)
		idem_forget(idem, e);
}

bool keyed_continues(struct request *r)
{
	if (!r->keyed || !r->route->outlives_client)
		return false;
	if (list_empty(&r->left_link))
		list_add_tail(&r->api->left, &r->left_link);
	return true;
}

void keyed_close(struct api *a)
{
	/* What the calls make is recorded with their keys, if they still make it. */
	a->idem.forgotten = NULL;
	list_each_safe (pos, &a->left) {
		struct request *r = container_of(pos, struct request, left_link);

		list_del(&r->left_link);
		keyed_answered(r, 0);
		request_leave_call(r);
	}
	idem_fini(&a->idem);
}

/* --- keys from before a restart ------------------------------------------------------------- */

_Static_assert(REQUEST_HASH_LEN == IDEM_HASH_LEN, "core gets the hashes as they are");

static void add_sandbox(struct text *out, struct api *a, const struct request_made *made)
{
	struct sandbox_view view;
	struct failure f;

	/* The answer is the same as before if the sandbox has ended since. */
	if (!core_view(a->core, made->tenant, made->ids, &view, &f))
		view = (struct sandbox_view){.state = "ready"};
	text_created(out, a->config, made->ids, view.state);
}

static void add_children(struct text *out, const struct request_made *made)
{
	scoped_free const char **ids = must_alloc(FORK_MAX * sizeof(*ids));
	scoped_free char *copy = must_alloc(strlen(made->ids) + 1);
	struct core_forked forked = {.ids = ids,
				     .pause_us = made->pause_us,
				     .ready_us = made->ready_us,
				     .copied_bytes = made->copied_bytes};
	char *rest = strcpy(copy, made->ids), *id;

	while (forked.n < FORK_MAX && (id = strsep(&rest, " ")))
		ids[forked.n++] = id;
	text_forked(out, &forked);
}

static void restore(void *arg, const struct request_made *made)
{
	struct api *a = arg;
	struct text body = {0};
	int status = 200;

	if (made->kind == MADE_SANDBOX) {
		status = 201;
		add_sandbox(&body, a, made);
	} else if (made->kind == MADE_CHILDREN) {
		add_children(&body, made);
	} else {
		text_frozen(&body, made->ids);
	}
	idem_restore(&a->idem, made->tenant, made->key.key, made->key.asks, status, body.p,
		     body.len, loop_now_ms(a->loop) - made->age_ms);
	text_free(&body);
}

static void forgotten(void *arg, const uint8_t key[static IDEM_HASH_LEN])
{
	struct api *a = arg;

	core_key_forget(a->core, key);
}

int keyed_load(struct api *a, struct err *e)
{
	idem_init(&a->idem);
	int ret = core_requests_made(a->core, IDEM_KEPT_MS, restore, a, e);
	a->idem.forgotten = forgotten;
	a->idem.arg = a;
	return ret;
}
