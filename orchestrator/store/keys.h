// SPDX-License-Identifier: Apache-2.0
/*
 * API keys and their owners: the catalogue's table in memory, and the operators' changes to it. The
 * text of a key is shown once, when it is made; only its hash is stored.
 */
#ifndef RAMET_ORCHESTRATOR_STORE_KEYS_H
#define RAMET_ORCHESTRATOR_STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "orchestrator/store/key-text.h"
#include "orchestrator/store/store.h"

#define KEY_ID_LEN	20 /* "key_" + 16 hex digits: names a key in lists and logs */
#define TENANT_ID_LEN	20 /* "tnt_" + 16 hex digits */
#define KEY_NAME_MAX	63
#define KEY_TIER_MAX	15
#define KEY_GRACE_MAX_S 31536000

/* The tenant of requests without a key, and of everything made while there were no keys. */
#define TENANT_LOCAL "local"

/* A key. Its address is valid until keys_free; only its tier and the fields about its end change.
 */
struct key {
	char id[KEY_ID_LEN + 1];
	char tenant[TENANT_ID_LEN + 1];
	char name[KEY_NAME_MAX + 1];
	char tier[KEY_TIER_MAX + 1];
	int64_t created_at_ms;
	int64_t tier_at_ms;    /* when its tier was set, wall clock; not in the catalogue */
	int64_t revoked_at_ms; /* past or future revocation, wall clock; 0: none */
	bool revoked;	       /* permanently, and recorded in the catalogue */
	uint64_t ends_ms;      /* end of a grace period, boot-time clock; 0: none */
};

struct keys;

/* Reads the keys from `store`, which must outlive *out. */
int keys_new(struct keys **out, struct store *store, struct err *e);
void keys_free(struct keys *k);

/* Returns whether a key was ever made. From then on each request needs a key, even if all
 * are revoked. */
bool keys_any(const struct keys *k);
/* Returns whether the key is valid. Once false, it stays false: neither `revoked` nor the boot-time
 * clock ever goes back. */
static inline bool key_is_good(const struct key *key)
{
	return !key->revoked && (!key->ends_ms || boottime_ms() < key->ends_ms);
}

/* Returns "good", "ending" or "revoked". */
const char *key_state(const struct key *key);

enum key_verdict {
	KEY_GOOD,
	KEY_MALFORMED, /* mistyped, truncated, or not a key */
	KEY_UNKNOWN,
	KEY_REVOKED,
};
/* Looks a key up by its text. *out is set for KEY_GOOD and KEY_REVOKED. */
enum key_verdict keys_check(const struct keys *k, const char *text, size_t len,
			    const struct key **out);
/* Returns the tier of the tenant's newest valid key or, if none is valid, of the key that was
 * revoked last; NULL: the tenant never had a key. */
const char *keys_tier(const struct keys *k, const char *tenant);
/* Returns whether requests of the tenant are served: it has a valid key, or no key was ever made.
 */
bool keys_serve(const struct keys *k, const char *tenant);
/* Returns the key with that id, or NULL. */
const struct key *keys_find(const struct keys *k, const char *id);
/* Returns the key made after `previous` (NULL: the oldest), or NULL if there is none. */
const struct key *keys_next(const struct keys *k, const struct key *previous);

/* Makes a key for `tenant`, or for a new tenant if that is NULL, and writes the key itself to
 * `text`. `name` is printable UTF-8 of up to KEY_NAME_MAX bytes; the caller checks `tier`. Fails
 * with -ENOENT for a tenant that never had a key, other than TENANT_LOCAL. Here and below, a caller
 * that confirms a change must wait until the catalogue is on the disk. */
int keys_create(struct keys *k, const char *name, const char *tier, const char *tenant,
		char text[static KEY_TEXT_LEN + 1], const struct key **out, struct err *e);
/* Revokes a key at once, also during a grace period. Does nothing if it is revoked already. */
int keys_revoke(struct keys *k, const char *id, struct err *e);
/* Changes the tier of a key that is valid; the caller checks `tier`. */
int keys_set_tier(struct keys *k, const char *id, const char *tier, struct err *e);
/* Makes a new key with the same tenant, name and tier. The old one stays valid for `grace_s`
 * seconds; negative: until it is revoked. */
int keys_rotate(struct keys *k, const char *id, int64_t grace_s, char text[static KEY_TEXT_LEN + 1],
		const struct key **out, struct err *e);

/* Adds a key that was made elsewhere, or gives the key with its id the tier, end and revocation
 * that *key has. No key becomes valid again by that. Returns 1 if something changed, 0 if not, or
 * -errno with *e filled; a revocation is in force even if the catalogue could not record it. */
int keys_take(struct keys *k, const struct key *key, const uint8_t hash[static KEY_HASH_LEN],
	      struct err *e);
/* Returns the hash of a key that was found or listed. */
const uint8_t *keys_hash(const struct key *key);

/* Permanently revokes the keys whose grace period ended by the boot-time clock or the wall clock.
 * Call it periodically, so that a restart with a clock that was set back finds them revoked.
 * Returns their number, or -errno if the catalogue could not record all of them: they are invalid
 * anyway, and the next call tries again. */
int keys_end_graces(struct keys *k, struct err *e);

/* Sets the one function that is called after a key was revoked at once, or its tier changed. */
void keys_watch(struct keys *k, void (*fn)(void *arg), void *arg);
/* Sets the one function that is called after a key was made or changed in any way. */
void keys_follow(struct keys *k, void (*fn)(void *arg), void *arg);

#endif
