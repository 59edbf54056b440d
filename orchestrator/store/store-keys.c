// SPDX-License-Identifier: Apache-2.0
/* The catalogue's table of API keys. */
#include <stdio.h>

#include "orchestrator/store/keys.h"
#include "orchestrator/store/store-internal.h"

#define COLUMNS "id, tenant, name, tier, hash, created_at_ms, revoked_at_ms, revoked"

const struct store_sql store_key_sql[] = {
	{KEY_ADD, "INSERT INTO keys (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?)"},
	{KEY_REVOKE, "UPDATE keys SET revoked_at_ms = ?2, revoked = ?3 WHERE id = ?1"},
	{KEY_SET_TIER, "UPDATE keys SET tier = ?2 WHERE id = ?1"},
	{KEY_ALL, "SELECT " COLUMNS " FROM keys ORDER BY created_at_ms, id"},
	{0},
};

int store_key_add(struct store *s, const struct key *key,
		  const uint8_t hash[static STORE_KEY_HASH_LEN], struct err *e)
{
	return store_do(s, e, KEY_ADD, TEXT(key->id), TEXT(key->tenant), TEXT(key->name),
			TEXT(key->tier), BYTES(hash, STORE_KEY_HASH_LEN),
			NUMBER(key->created_at_ms), NUMBER(key->revoked_at_ms),
			NUMBER(key->revoked));
}

int store_key_revoke(struct store *s, const char *id, const struct store_revocation *r,
		     struct err *e)
{
	return store_do(s, e, KEY_REVOKE, TEXT(id), NUMBER(r->at_ms), NUMBER(r->done));
}

int store_key_set_tier(struct store *s, const char *id, const char *tier, struct err *e)
{
	return store_do(s, e, KEY_SET_TIER, TEXT(id), TEXT(tier));
}

int store_key_rotate(struct store *s, const struct key *key,
		     const uint8_t hash[static STORE_KEY_HASH_LEN], const char *old,
		     const struct store_revocation *r, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = store_key_add(s, key, hash, e);
	if (ret == 0)
		ret = store_key_revoke(s, old, r, e);
	return store_end(s, ret, e);
}

int store_keys(struct store *s, void (*each)(void *arg, const struct key *key, const uint8_t *hash),
	       void *arg, struct err *e)
{
	static const uint8_t none[STORE_KEY_HASH_LEN]; /* matches no key */
	sqlite3_stmt *st = s->statements[KEY_ALL];
	int ret;

	while ((ret = store_next(s, st, e)) > 0) {
		bool complete = sqlite3_column_bytes(st, 4) == STORE_KEY_HASH_LEN;
		struct key key = {
			.created_at_ms = sqlite3_column_int64(st, 5),
			.revoked_at_ms = sqlite3_column_int64(st, 6),
			.revoked = sqlite3_column_int(st, 7) != 0,
		};

		snprintf(key.id, sizeof(key.id), "%s", text_at(st, 0));
		snprintf(key.tenant, sizeof(key.tenant), "%s", text_at(st, 1));
		snprintf(key.name, sizeof(key.name), "%s", text_at(st, 2));
		snprintf(key.tier, sizeof(key.tier), "%s", text_at(st, 3));
		each(arg, &key, complete ? sqlite3_column_blob(st, 4) : none);
	}
	return ret;
}
