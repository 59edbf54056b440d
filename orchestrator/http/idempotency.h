// SPDX-License-Identifier: Apache-2.0
/*
 * Remembers answers by the client's Idempotency-Key, so that a repeated request has no further
 * effect. Independent of h2o. Each tenant has its own keys. The memory for the answers of one
 * tenant and of all tenants is bounded: the oldest answers are evicted first. Answers are also
 * dropped after IDEM_KEPT_MS. The catalogue has the keys too, so that they survive a restart of the
 * service: see keyed.c.
 */
#ifndef RAMET_ORCHESTRATOR_HTTP_IDEMPOTENCY_H
#define RAMET_ORCHESTRATOR_HTTP_IDEMPOTENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define IDEM_KEY_MAX	  255
#define IDEM_KEPT_MS	  3600000
#define IDEM_BUCKETS	  4096
#define IDEM_TENANT_BYTES (4u << 20)
#define IDEM_TOTAL_BYTES  (64u << 20)
#define IDEM_HASH_LEN	  32

struct idem {
	struct list entries[IDEM_BUCKETS];
	struct list tenants[IDEM_BUCKETS];
	struct list answered; /* oldest first */
	size_t bytes;	      /* of all answers */
	/* Called for each key that idem_forget removes; NULL: none. */
	void (*forgotten)(void *arg, const uint8_t key[static IDEM_HASH_LEN]);
	void *arg;
};

/* A request with a key: first in flight, then answered. */
struct idem_entry {
	struct list link;      /* in its bucket */
	struct list in_all;    /* in the list of all answers */
	struct list in_tenant; /* in the list of its tenant's answers */
	struct idem_tenant *tenant;
	uint8_t key[IDEM_HASH_LEN];  /* hash of the tenant and the client's key */
	uint8_t asks[IDEM_HASH_LEN]; /* hash of the whole request */
	uint64_t answered_ms;
	int status; /* 0: in flight */
	size_t len;
	char *body;
};

enum idem_found {
	IDEM_NEW,	/* *e belongs to the request, until idem_answer or idem_forget */
	IDEM_UNDER_WAY, /* the first request with this key is not answered yet */
	IDEM_ANSWERED,	/* *e has the answer, until the next call */
	IDEM_OTHER	/* the key was used for a different request */
};

void idem_fini(struct idem *t);
/* Returns whether a header's value is a valid key: 1 to IDEM_KEY_MAX printable ASCII characters
 * without spaces. */
bool idem_key_valid(const char *key, size_t len);
/* Looks up a valid key. `asks` is a hash of the request. `now_ms` must not decrease. */
enum idem_found idem_begin(struct idem *t, const char *tenant, const char *key, size_t len,
			   const uint8_t asks[static IDEM_HASH_LEN], uint64_t now_ms,
			   struct idem_entry **e);
/* Stores a copy of the answer. The table owns the entry from then on. */
void idem_answer(struct idem *t, struct idem_entry *e, int status, const void *body, size_t len,
		 uint64_t now_ms);
/* Stores a copy of an answer that a previous instance of the service gave. `answered_ms` is by the
 * clock of idem_begin, and wraps for an answer from before that clock began. Call it before any
 * idem_begin, for the oldest answer first. */
void idem_restore(struct idem *t, const char *tenant, const uint8_t key[static IDEM_HASH_LEN],
		  const uint8_t asks[static IDEM_HASH_LEN], int status, const void *body,
		  size_t len, uint64_t answered_ms);
/* Removes a request that was not answered or had no effect: its key can be used again. */
void idem_forget(struct idem *t, struct idem_entry *e);

#endif
