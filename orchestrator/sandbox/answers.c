// SPDX-License-Identifier: Apache-2.0
/* Records of requests with an Idempotency-Key in the catalogue. */
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

int service_requests_made(struct service *c, uint64_t max_age_ms, service_made_fn *each, void *arg,
			  struct err *e)
{
	int ret = store_answers_purge(c->store, realtime_ms() - (int64_t)max_age_ms, e);

	return ret < 0 ? ret : store_answers(c->store, each, arg, e);
}

/* The record of a key that cannot be removed is harmless until the next start: the API no longer
 * knows the key. */
void service_key_forget(struct service *c, const uint8_t key[static REQUEST_HASH_LEN])
{
	struct err e;

	if (store_answer_forget(c->store, key, &e) < 0)
		log_warn("an idempotency key can't be removed from the catalogue: %s", e.text);
}
