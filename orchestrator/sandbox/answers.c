// SPDX-License-Identifier: Apache-2.0
/* Records of requests with an Idempotency-Key in the catalogue. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"

_Static_assert(REQUEST_HASH_LEN == STORE_HASH_LEN, "the catalogue stores the hashes as they are");

void op_key(struct op *op, const struct request_key *key)
{
	op->key = must_alloc(sizeof(*op->key));
	*op->key = *key;
}

const struct store_answer *op_answer(const struct op *op, const char *tenant, enum made_kind kind,
				     const char *ids, struct store_answer *out)
{
	if (!op->key)
		return NULL;
	*out = (struct store_answer){.key = op->key->key,
				     .asks = op->key->asks,
				     .tenant = tenant,
				     .answered_at_ms = realtime_ms(),
				     .kind = kind,
				     .ids = ids};
	return out;
}

struct reader {
	service_made_fn *each;
	void *arg;
	int64_t now_ms;
};

static void on_row(void *arg, const struct store_answer *row)
{
	const struct reader *reader = arg;
	int64_t age_ms = reader->now_ms - row->answered_at_ms;
	struct request_made made = {
		.tenant = row->tenant,
		.age_ms = age_ms > 0 ? (uint64_t)age_ms : 0, /* the wall clock may go back */
		.kind = (enum made_kind)row->kind,
		.ids = row->ids,
		.pause_us = row->pause_us,
		.ready_us = row->ready_us,
		.copied_bytes = row->copied_bytes,
	};

	memcpy(made.key.key, row->key, sizeof(made.key.key));
	memcpy(made.key.asks, row->asks, sizeof(made.key.asks));
	reader->each(reader->arg, &made);
}

int service_requests_made(struct service *c, uint64_t max_age_ms, service_made_fn *each, void *arg,
			  struct err *e)
{
	struct reader reader = {each, arg, realtime_ms()};
	int ret = store_answers_purge(c->store, reader.now_ms - (int64_t)max_age_ms, e);

	return ret < 0 ? ret : store_answers(c->store, on_row, &reader, e);
}

/* The record of a key that cannot be removed is harmless until the next start: the API no longer
 * knows the key. */
void service_key_forget(struct service *c, const uint8_t key[static REQUEST_HASH_LEN])
{
	struct err e;

	if (store_answer_forget(c->store, key, &e) < 0)
		log_warn("an idempotency key can't be removed from the catalogue: %s", e.text);
}
