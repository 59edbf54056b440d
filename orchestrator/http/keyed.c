// SPDX-License-Identifier: Apache-2.0
/*
 * Requests with an Idempotency-Key: a repeated request gets the answer of the first one. Only
 * answers of requests that had an effect are remembered. A create, fork or resume whose client
 * leaves is undone, which frees its key; a freeze continues, since the sandbox's state exists only
 * once.
 *
 * The service records the key in the catalogue, in the transaction that records what the request
 * made. So a restarted service knows the key exactly if the request had its effect, whenever the
 * previous instance was killed. It has only the ids; the answer is written again from them.
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/http/internal.h"

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
	if (!idem_key_valid(key->base, key->len))
		return bad_request(
			r, "Idempotency-Key must be 1 to %d printable characters without spaces",
			IDEM_KEY_MAX);
	/* A long body is refused, because it would be hashed on the loop's thread. */
	if (r->req->entity.len <= http_limits.read_here_bytes)
		return true;
	answer_error(r, 413, "body_too_large",
		     "the body has %zu bytes; with an Idempotency-Key the maximum is %zu",
		     r->req->entity.len, http_limits.read_here_bytes);
	return false;
}

/* Sets *said if the header field has the value `word`, the only valid one. Refuses any other value:
 * the client would notice too late that it was not understood. */
static bool read_word(struct request *r, const char *field, const char *name, const char *word,
		      bool *said)
{
	const h2o_iovec_t *value = request_header(r, field);

	*said = value && h2o_memis(value->base, value->len, word, strlen(word));
	if (!value || *said)
		return true;
	return bad_request(r, "%s must be \"%s\", not \"%.*s\"", name, word,
			   value->len < 40 ? (int)value->len : 40, value->base);
}

void keyed_unknown(struct request *r)
{
	answer_error(r, 404, "no_such_answer",
		     "no request with this Idempotency-Key has succeeded within the last hour");
}

static bool begin(struct request *r, struct idem_entry *e, bool only)
{
	exchange(r)->keyed = e;
	if (only && !(r->http->ops.unknown && r->http->ops.unknown(r)))
		keyed_unknown(r);
	return !only;
}

bool keyed_begin(struct request *r)
{
	const h2o_iovec_t *key = request_header(r, "idempotency-key");
	uint8_t asks[IDEM_HASH_LEN];
	struct idem_entry *e;
	bool only, first; /* `first` concerns only where a fleet makes a sandbox */

	if (!read_word(r, "idempotent-replay", "Idempotent-Replay", "only", &only) ||
	    !read_word(r, "idempotency-attempt", "Idempotency-Attempt", "first", &first))
		return false;
	if (!key && only)
		return bad_request(
			r, "Idempotent-Replay needs the Idempotency-Key of the first request");
	if (!key)
		return true;
	if (!key_admits(r, key))
		return false;
	hash_request(r, asks);
	switch (idem_begin(&r->http->idem, r->tenant, key->base, key->len, asks,
			   loop_now_ms(r->loop), &e)) {
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
	struct exchange *x = exchange(r);
	struct request_key key;

	if (!x->keyed)
		return;
	memcpy(key.key, x->keyed->key, sizeof(key.key));
	memcpy(key.asks, x->keyed->asks, sizeof(key.asks));
	op_key(r->op, &key);
}

void keyed_answered(struct request *r, int status)
{
	struct exchange *x = exchange(r);
	struct idem *idem = &r->http->idem;
	struct idem_entry *e = x->keyed;

	x->keyed = NULL;
	if (e && status >= 200 && status < 300)
		idem_answer(idem, e, status, r->out.p, r->out.len, loop_now_ms(r->loop));
	else if (e)
		idem_forget(idem, e);
}

bool keyed_continues(struct request *r)
{
	struct exchange *x = exchange(r);

	if (!x->keyed || !r->route->outlives_client)
		return false;
	if (list_empty(&x->left_link))
		list_add_tail(&r->http->left, &x->left_link);
	return true;
}

void keyed_close(struct http *h)
{
	/* A call that still goes on may record its result: then its key stays in the catalogue. */
	h->idem.forgotten = NULL;
	list_each_of_safe (x, struct exchange, left_link, &h->left) {
		list_del(&x->left_link);
		keyed_answered(&x->r, 0);
		request_leave_call(&x->r);
	}
	idem_fini(&h->idem);
}

struct idem *keyed_answers(struct http *h)
{
	return &h->idem;
}
