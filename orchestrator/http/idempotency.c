// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/idempotency.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"

#define FORGOTTEN_AT_ONCE 16 /* maximum number of old answers that one request frees */

/* A tenant that has remembered answers or requests in flight. */
struct idem_tenant {
	struct list link; /* in its bucket */
	struct list answered;
	size_t bytes;	 /* bytes of these answers */
	size_t requests; /* number of these answers and of requests in flight */
	uint8_t hash[IDEM_HASH_LEN];
};

bool idem_key_valid(const char *key, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] > '~')
			return false;
	return len > 0 && len <= IDEM_KEY_MAX;
}

/* --- tenants -------------------------------------------------------------------------------- */

static size_t bucket_of(const uint8_t hash[static IDEM_HASH_LEN])
{
	return (size_t)(hash[0] | hash[1] << 8) % IDEM_BUCKETS;
}

static struct idem_tenant *tenant_get(struct idem *t, const uint8_t hash[static IDEM_HASH_LEN])
{
	struct list *bucket = &t->tenants[bucket_of(hash)];

	list_each_of (found, struct idem_tenant, link, bucket)
		if (memcmp(found->hash, hash, IDEM_HASH_LEN) == 0)
			return found;
	struct idem_tenant *made = must_alloc(sizeof(*made));
	memcpy(made->hash, hash, IDEM_HASH_LEN);
	list_add_tail(bucket, &made->link);
	return made;
}

static void tenant_put(struct idem_tenant *tenant)
{
	if (--tenant->requests)
		return;
	list_del(&tenant->link);
	free(tenant);
}

/* --- requests ------------------------------------------------------------------------------- */

static size_t cost(const struct idem_entry *e)
{
	return sizeof(*e) + e->len;
}

void idem_forget(struct idem *t, struct idem_entry *e)
{
	if (t->forgotten)
		t->forgotten(t->arg, e->key);
	if (e->status) {
		t->bytes -= cost(e);
		e->tenant->bytes -= cost(e);
	}
	list_del(&e->link);
	list_del(&e->in_all);
	list_del(&e->in_tenant);
	tenant_put(e->tenant);
	free(e->body);
	free(e);
}

static bool is_old(const struct idem_entry *e, uint64_t now_ms)
{
	return e->status && now_ms - e->answered_ms >= IDEM_KEPT_MS;
}

static void forget_old(struct idem *t, uint64_t now_ms)
{
	for (int i = 0; i < FORGOTTEN_AT_ONCE && !list_empty(&t->answered); i++) {
		struct idem_entry *e = container_of(t->answered.next, struct idem_entry, in_all);

		if (!is_old(e, now_ms))
			return;
		idem_forget(t, e);
	}
}

static struct idem_entry *find(struct idem *t, const uint8_t key[static IDEM_HASH_LEN])
{
	list_each_of (e, struct idem_entry, link, &t->entries[bucket_of(key)])
		if (memcmp(e->key, key, IDEM_HASH_LEN) == 0)
			return e;
	return NULL;
}

static struct idem_entry *entry_new(struct idem *t, const uint8_t tenant[static IDEM_HASH_LEN],
				    const uint8_t key[static IDEM_HASH_LEN],
				    const uint8_t asks[static IDEM_HASH_LEN])
{
	struct idem_entry *e = must_alloc(sizeof(*e));

	e->tenant = tenant_get(t, tenant);
	e->tenant->requests++;
	memcpy(e->key, key, IDEM_HASH_LEN);
	memcpy(e->asks, asks, IDEM_HASH_LEN);
	list_add_tail(&t->entries[bucket_of(key)], &e->link);
	return e;
}

enum idem_found idem_begin(struct idem *t, const char *tenant, const char *key, size_t len,
			   const uint8_t asks[static IDEM_HASH_LEN], uint64_t now_ms,
			   struct idem_entry **e)
{
	/* The tenant is hashed first: with a prefix of fixed length, no two pairs of tenant and key
	 * give the same text. */
	uint8_t text[IDEM_HASH_LEN + IDEM_KEY_MAX], hash[IDEM_HASH_LEN];

	SHA256((const unsigned char *)tenant, strlen(tenant), text);
	memcpy(text + IDEM_HASH_LEN, key, len);
	SHA256(text, IDEM_HASH_LEN + len, hash);
	forget_old(t, now_ms);
	*e = find(t, hash);
	if (*e && is_old(*e, now_ms)) {
		idem_forget(t, *e);
		*e = NULL;
	}
	if (!*e) {
		*e = entry_new(t, text, hash, asks);
		return IDEM_NEW;
	}
	if (memcmp((*e)->asks, asks, IDEM_HASH_LEN) != 0)
		return IDEM_OTHER;
	return (*e)->status ? IDEM_ANSWERED : IDEM_UNDER_WAY;
}

void idem_answer(struct idem *t, struct idem_entry *e, int status, const void *body, size_t len,
		 uint64_t now_ms)
{
	struct idem_tenant *tenant = e->tenant;

	e->status = status;
	e->answered_ms = now_ms;
	e->body = must_alloc(len + 1);
	memcpy(e->body, body, len);
	e->len = len;
	list_add_tail(&t->answered, &e->in_all);
	list_add_tail(&tenant->answered, &e->in_tenant);
	t->bytes += cost(e);
	tenant->bytes += cost(e);
	tenant->requests++; /* keeps `tenant` allocated until the loop below has ended */
	while (tenant->bytes > IDEM_TENANT_BYTES)
		idem_forget(t, container_of(tenant->answered.next, struct idem_entry, in_tenant));
	tenant_put(tenant);
	while (t->bytes > IDEM_TOTAL_BYTES)
		idem_forget(t, container_of(t->answered.next, struct idem_entry, in_all));
}

void idem_restore(struct idem *t, const char *tenant, const uint8_t key[static IDEM_HASH_LEN],
		  const uint8_t asks[static IDEM_HASH_LEN], int status, const void *body,
		  size_t len, uint64_t answered_ms)
{
	uint8_t hash[IDEM_HASH_LEN];

	SHA256((const unsigned char *)tenant, strlen(tenant), hash);
	idem_answer(t, entry_new(t, hash, key, asks), status, body, len, answered_ms);
}

void idem_fini(struct idem *t)
{
	t->forgotten = NULL;
	for (size_t i = 0; i < IDEM_BUCKETS; i++)
		list_drain_of (e, struct idem_entry, link, &t->entries[i])
			idem_forget(t, e);
}
