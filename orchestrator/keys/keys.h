// SPDX-License-Identifier: Apache-2.0
/*
 * API keys and whose they are: the catalogue's table in memory, with what operators do to it. The
 * text of a key is told once, when it is made; what is kept is its hash.
 */
#ifndef RAMET_ORCHESTRATOR_KEYS_KEYS_H
#define RAMET_ORCHESTRATOR_KEYS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "orchestrator/keys/key-text.h"
#include "orchestrator/store/store.h"

#define KEY_ID_LEN    20 /* "key_" + 16 hex digits: what lists and logs call a key */
#define TENANT_ID_LEN 20 /* "tnt_" + 16 hex digits */
#define KEY_NAME_MAX  63
#define KEY_TIER_MAX  15

/* The tenant of requests without a key, and of whatever was made while there were no keys. */
#define TENANT_LOCAL "local"

/* Stays where it is until keys_free; only what says when it ends changes. */
struct key {
	char id[KEY_ID_LEN + 1];
	char tenant[TENANT_ID_LEN + 1];
	char name[KEY_NAME_MAX + 1];
	char tier[KEY_TIER_MAX + 1];
	int64_t created_at_ms;
	int64_t revoked_at_ms; /* by the wall clock: when it was revoked, or is to be; 0: neither */
	bool revoked;	       /* for good, and the catalogue says so */
	uint64_t ends_ms;      /* by the boot-time clock; 0: it does not end by itself */
};

struct keys;

/* Reads them from `store`, which outlives it. */
int keys_new(struct keys **out, struct store *store, struct err *e);
void keys_free(struct keys *k);

/* A key was made, ever: from then on each request needs one, were they all revoked. */
bool keys_any(const struct keys *k);
/* Once false, it stays false: neither the state nor the boot-time clock ever goes back. */
static inline bool key_is_good(const struct key *key)
{
	return !key->revoked && (!key->ends_ms || boottime_ms() < key->ends_ms);
}

enum key_verdict {
	KEY_GOOD,
	KEY_MALFORMED, /* mistyped, cut off, or no key at all */
	KEY_UNKNOWN,
	KEY_REVOKED,
};
/* *out is set for KEY_GOOD and KEY_REVOKED. */
enum key_verdict keys_check(const struct keys *k, const char *text, size_t len,
			    const struct key **out);
/* The tier of the tenant's newest good key, else of the one that was good last; NULL: it never had
 * any. */
const char *keys_tier(const struct keys *k, const char *tenant);
/* NULL: there is none of that id. */
const struct key *keys_find(const struct keys *k, const char *id);
/* Returns the one made after `previous` (NULL: the oldest); NULL: there is none. */
const struct key *keys_next(const struct keys *k, const struct key *previous);

/* A new key; `tenant` NULL: of a new tenant. `name` is printable UTF-8 of up to KEY_NAME_MAX bytes;
 * `tier` is one that the caller knows. `text` is the key itself. */
int keys_create(struct keys *k, const char *name, const char *tier, const char *tenant,
		char text[static KEY_TEXT_LEN + 1], const struct key **out, struct err *e);
/* At once, or earlier than was said before. Of one that is revoked already: nothing. Whoever
 * answers for it waits until the catalogue is on the disk, here and below. */
int keys_revoke(struct keys *k, const char *id, struct err *e);
/* A new key of the same tenant, name and tier. The old one is good for `grace_s` more seconds;
 * negative: until it is revoked. */
int keys_rotate(struct keys *k, const char *id, int64_t grace_s, char text[static KEY_TEXT_LEN + 1],
		const struct key **out, struct err *e);

/* Revokes for good the keys whose grace is over, by the boot-time clock or by the wall clock: to be
 * called every now and then, so that a restart with a clock that was set back finds them revoked.
 * Returns how many; -errno when the catalogue took not all of them: the next call tries again, and
 * none of them is good meanwhile. */
int keys_end_graces(struct keys *k, struct err *e);

/* `fn` is called after a key was revoked at once. One listener only. */
void keys_watch(struct keys *k, void (*fn)(void *arg), void *arg);

#endif
