// SPDX-License-Identifier: Apache-2.0
/*
 * Answers that are remembered by the client's Idempotency-Key, so that a request that is sent again
 * does nothing a second time. Knows nothing of h2o. Each tenant has keys of its own. Memory is
 * bounded: by a tenant's share and in all, the oldest answers going first, and by time.
 */
#ifndef RAMET_ORCHESTRATOR_API_IDEMPOTENCY_H
#define RAMET_ORCHESTRATOR_API_IDEMPOTENCY_H

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
	size_t bytes;	      /* of all that are answered */
};

/* A request with a key: under way at first, then answered. */
struct idem_entry {
	struct list link;      /* of its bucket */
	struct list in_all;    /* of all that are answered */
	struct list in_tenant; /* of its tenant's that are answered */
	struct idem_tenant *tenant;
	uint8_t key[IDEM_HASH_LEN];  /* of the tenant and its key */
	uint8_t asks[IDEM_HASH_LEN]; /* of all that the request asks for */
	uint64_t answered_ms;
	int status; /* 0: it is under way */
	size_t len;
	char *body;
};

enum idem_found {
	IDEM_NEW,	/* *e is the request's, until idem_answer or idem_forget */
	IDEM_UNDER_WAY, /* the first with this key is not answered yet */
	IDEM_ANSWERED,	/* *e has the answer, until the next call */
	IDEM_OTHER	/* the key came with something else */
};

void idem_init(struct idem *t);
void idem_fini(struct idem *t);
/* Returns whether a header's value can be a key: 1 to IDEM_KEY_MAX printable characters of ASCII,
 * without spaces. */
bool idem_key_valid(const char *key, size_t len);
/* Looks up a valid key; `asks` is a hash of the request. `now_ms` never goes back. */
enum idem_found idem_begin(struct idem *t, const char *tenant, const char *key, size_t len,
			   const uint8_t asks[static IDEM_HASH_LEN], uint64_t now_ms,
			   struct idem_entry **e);
/* Copies the answer. The entry is the table's from here on. */
void idem_answer(struct idem *t, struct idem_entry *e, int status, const void *body, size_t len,
		 uint64_t now_ms);
/* Forgets a request that was not answered, or did nothing: its key is as good as new. */
void idem_forget(struct idem *t, struct idem_entry *e);

#endif
