// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/store/keys.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/events/line.h"

#define BUCKETS	       256
#define TENANT_BUCKETS 4096

struct entry {
	struct key key;
	uint8_t hash[KEY_HASH_LEN];
	struct list link;      /* oldest first */
	struct list bucket;    /* by the hash's first byte */
	struct list of_tenant; /* by the tenant, oldest first */
};

struct keys {
	struct store *store;
	struct list all;
	struct list buckets[BUCKETS];
	struct list tenants[TENANT_BUCKETS];
	void (*on_revoked)(void *arg);
	void *arg;
};

/* --- the table ------------------------------------------------------------------------------ */

static unsigned tenant_bucket(const char *tenant)
{
	uint32_t hash = 2166136261u;

	for (; *tenant; tenant++)
		hash = (hash ^ (uint8_t)*tenant) * 16777619u;
	return hash % TENANT_BUCKETS;
}

static void insert(struct keys *k, struct entry *entry)
{
	list_add_tail(&k->all, &entry->link);
	list_add_tail(&k->buckets[entry->hash[0]], &entry->bucket);
	list_add_tail(&k->tenants[tenant_bucket(entry->key.tenant)], &entry->of_tenant);
}

/* Sets the key's end on the boot-time clock from the time left until `at_ms`. Never postpones an
 * earlier end. */
static void set_end(struct key *key, int64_t at_ms)
{
	int64_t left = at_ms - realtime_ms();
	uint64_t ends = boottime_ms() + (uint64_t)(left > 0 ? left : 0);

	key->revoked_at_ms = at_ms;
	key->ends_ms = key->ends_ms ? min_u64(key->ends_ms, ends) : ends;
}

static void take_row(void *arg, const struct key *key, const uint8_t *hash)
{
	struct entry *entry = must_alloc(sizeof(*entry));

	entry->key = *key;
	if (key->revoked_at_ms)
		set_end(&entry->key, key->revoked_at_ms);
	memcpy(entry->hash, hash, sizeof(entry->hash));
	insert(arg, entry);
}

int keys_new(struct keys **out, struct store *store, struct err *e)
{
	struct keys *k = must_alloc(sizeof(*k));

	k->store = store;
	for (size_t i = 0; i < TENANT_BUCKETS; i++)
		list_init(&k->tenants[i]);
	int ret = store_keys(store, take_row, k, e);
	if (ret < 0) {
		keys_free(k);
		return ret;
	}
	if (keys_end_graces(k, e) < 0)
		log_warn("%s", e->text);
	*out = k;
	return 0;
}

void keys_free(struct keys *k)
{
	if (!k)
		return;
	list_each_safe (pos, &k->all)
		free(container_of(pos, struct entry, link));
	free(k);
}

bool keys_any(const struct keys *k)
{
	return !list_empty(&k->all);
}

/* The duration of a check reveals at most whether the hash of some key has the same first byte. */
enum key_verdict keys_check(const struct keys *k, const char *text, size_t len,
			    const struct key **out)
{
	uint8_t hash[KEY_HASH_LEN];

	if (!key_text_is_whole(text, len))
		return KEY_MALFORMED;
	key_text_hash(text, len, hash);
	list_each (pos, &k->buckets[hash[0]]) {
		const struct entry *entry = container_of(pos, struct entry, bucket);

		if (CRYPTO_memcmp(entry->hash, hash, sizeof(hash)) != 0)
			continue;
		*out = &entry->key;
		return key_is_good(&entry->key) ? KEY_GOOD : KEY_REVOKED;
	}
	return KEY_UNKNOWN;
}

const char *keys_tier(const struct keys *k, const char *tenant)
{
	const struct list *bucket = &k->tenants[tenant_bucket(tenant)];
	const struct key *last = NULL;

	for (const struct list *pos = bucket->prev; pos != bucket; pos = pos->prev) {
		const struct key *key = &container_of(pos, struct entry, of_tenant)->key;

		if (strcmp(key->tenant, tenant) != 0)
			continue;
		if (key_is_good(key))
			return key->tier;
		if (!last || key->revoked_at_ms >= last->revoked_at_ms)
			last = key;
	}
	return last ? last->tier : NULL;
}

bool keys_serve(const struct keys *k, const char *tenant)
{
	list_each (pos, &k->tenants[tenant_bucket(tenant)]) {
		const struct key *key = &container_of(pos, struct entry, of_tenant)->key;

		if (strcmp(key->tenant, tenant) == 0 && key_is_good(key))
			return true;
	}
	return !keys_any(k);
}

const char *key_state(const struct key *key)
{
	if (!key_is_good(key))
		return "revoked";
	return key->revoked_at_ms ? "ending" : "good";
}

static struct entry *find(const struct keys *k, const char *id)
{
	list_each (pos, &k->all) {
		struct entry *entry = container_of(pos, struct entry, link);

		if (strcmp(entry->key.id, id) == 0)
			return entry;
	}
	return NULL;
}

const struct key *keys_find(const struct keys *k, const char *id)
{
	const struct entry *entry = find(k, id);

	return entry ? &entry->key : NULL;
}

const struct key *keys_next(const struct keys *k, const struct key *previous)
{
	const struct list *pos = &k->all;

	if (previous)
		pos = &container_of(previous, struct entry, key)->link;
	pos = list_next(pos);
	return pos == &k->all ? NULL : &container_of(pos, struct entry, link)->key;
}

/* --- changes -------------------------------------------------------------------------------- */

static int check_name(const char *name, struct err *e)
{
	size_t len = strlen(name);

	if (len < 1 || len > KEY_NAME_MAX)
		return err_say(e, EINVAL, "the name must have 1 to %d bytes, not %zu", KEY_NAME_MAX,
			       len);
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_say(e, EINVAL, "the name contains a control character (0x%02x)",
				       (unsigned char)*p);
	return 0;
}

static struct entry *entry_new(const char *name, const char *tier, const char *tenant,
			       char text[static KEY_TEXT_LEN + 1])
{
	struct entry *entry = must_alloc(sizeof(*entry));

	random_id(entry->key.id, sizeof(entry->key.id), "key_");
	random_id(entry->key.tenant, sizeof(entry->key.tenant), "tnt_");
	if (tenant)
		snprintf(entry->key.tenant, sizeof(entry->key.tenant), "%s", tenant);
	snprintf(entry->key.name, sizeof(entry->key.name), "%s", name);
	snprintf(entry->key.tier, sizeof(entry->key.tier), "%s", tier);
	entry->key.created_at_ms = realtime_ms();
	key_text_make(text);
	key_text_hash(text, KEY_TEXT_LEN, entry->hash);
	return entry;
}

/* Ends the making of a key. `ret` is the result of adding it to the catalogue: on success inserts
 * the entry, on failure erases the key's text and frees the entry. */
static int finish_entry(struct keys *k, struct entry *entry, int ret, char *text,
			const struct key **out)
{
	if (ret < 0) {
		explicit_bzero(text, KEY_TEXT_LEN + 1);
		free(entry);
		return ret;
	}
	insert(k, entry);
	*out = &entry->key;
	return 0;
}

static void note_text(struct keys *k, const char *event, const struct key *key,
		      const char *previous, const char *text)
{
	store_event(k->store, &(struct audit_event){.name = event,
						    .at_ms = realtime_ms(),
						    .tenant = key->tenant,
						    .key = key->id,
						    .previous = previous,
						    .text = text});
}

/* Adds an event to the next change of the catalogue. `previous`: NULL, or the id of the key that
 * this one replaces, which is valid for at most `grace_s`; negative: until it is revoked. */
static void note(struct keys *k, const char *event, const struct key *key, const char *previous,
		 int64_t grace_s)
{
	char text[KEY_NAME_MAX + 128], until[64] = "until it is revoked";

	if (grace_s >= 0)
		snprintf(until, sizeof(until), "for at most %lld s", (long long)grace_s);
	snprintf(text, sizeof(text), "tier %s, name %s%s%s", key->tier, key->name,
		 previous ? "; the previous key is valid " : "", previous ? until : "");
	note_text(k, event, key, previous, text);
}

int keys_create(struct keys *k, const char *name, const char *tier, const char *tenant,
		char text[static KEY_TEXT_LEN + 1], const struct key **out, struct err *e)
{
	if (check_name(name, e) < 0)
		return -EINVAL;
	/* A key of the local tenant gives access to what was made without keys. */
	if (tenant && strcmp(tenant, TENANT_LOCAL) != 0 && !keys_tier(k, tenant))
		return err_say(e, ENOENT,
			       "there is no tenant \"%.40s\": the list of keys shows the tenants",
			       tenant);
	struct entry *entry = entry_new(name, tier, tenant, text);

	note(k, "key.created", &entry->key, NULL, 0);
	int ret = store_key_add(k->store, &entry->key, entry->hash, e);

	return finish_entry(k, entry, ret, text, out);
}

static int unknown(const char *id, struct err *e)
{
	return err_say(e, ENOENT, "there is no key %.60s (an id is key_ and 16 hexadecimal digits)",
		       id);
}

static void notify_revoked(struct keys *k)
{
	if (k->on_revoked)
		k->on_revoked(k->arg);
}

static int revoke(struct keys *k, struct key *key, int64_t at_ms, struct err *e)
{
	const struct store_revocation now = {.at_ms = at_ms, .done = true};
	int ret = store_key_revoke(k->store, key->id, &now, e);

	if (ret < 0)
		return ret;
	key->revoked_at_ms = at_ms;
	key->revoked = true;
	return 0;
}

int keys_revoke(struct keys *k, const char *id, struct err *e)
{
	struct entry *entry = find(k, id);

	if (!entry)
		return unknown(id, e);
	if (entry->key.revoked)
		return 0;
	bool was_good = key_is_good(&entry->key);
	if (was_good)
		note(k, "key.revoked", &entry->key, NULL, 0);
	int ret = revoke(k, &entry->key, was_good ? realtime_ms() : entry->key.revoked_at_ms, e);
	if (ret == 0 && was_good)
		notify_revoked(k);
	return ret;
}

int keys_end_graces(struct keys *k, struct err *e)
{
	const int64_t now = realtime_ms();
	int n = 0;

	list_each (pos, &k->all) {
		struct key *key = &container_of(pos, struct entry, link)->key;

		if (key->revoked || !key->revoked_at_ms)
			continue;
		if (now >= key->revoked_at_ms)
			set_end(key, key->revoked_at_ms);
		if (key_is_good(key))
			continue;
		int ret = revoke(k, key, key->revoked_at_ms, e);
		if (ret < 0)
			return err_context(e, "revoke key %s, whose grace period ended", key->id);
		n++;
	}
	return n;
}

int keys_set_tier(struct keys *k, const char *id, const char *tier, struct err *e)
{
	struct entry *entry = find(k, id);
	char text[2 * KEY_TIER_MAX + sizeof("tier , was ")];

	if (!entry)
		return unknown(id, e);
	struct key *key = &entry->key;
	if (!key_is_good(key))
		return err_say(e, EKEYREVOKED, "key %s is revoked: make a new one instead", id);
	if (strcmp(key->tier, tier) == 0)
		return 0;
	snprintf(text, sizeof(text), "tier %s, was %s", tier, key->tier);
	note_text(k, "key.changed", key, NULL, text);
	int ret = store_key_set_tier(k->store, id, tier, e);
	if (ret < 0)
		return ret;
	snprintf(key->tier, sizeof(key->tier), "%s", tier);
	notify_revoked(k);
	return 0;
}

int keys_rotate(struct keys *k, const char *id, int64_t grace_s, char text[static KEY_TEXT_LEN + 1],
		const struct key **out, struct err *e)
{
	struct entry *old = find(k, id);

	if (!old)
		return unknown(id, e);
	if (!key_is_good(&old->key))
		return err_say(e, EKEYREVOKED, "key %s is revoked: make a new one instead", id);
	struct entry *entry = entry_new(old->key.name, old->key.tier, old->key.tenant, text);
	struct store_revocation end = {.at_ms = old->key.revoked_at_ms, .done = grace_s == 0};
	int64_t until = realtime_ms() + grace_s * 1000;
	if (grace_s >= 0 && (!end.at_ms || until < end.at_ms))
		end.at_ms = until;
	note(k, "key.rotated", &entry->key, id, grace_s);
	int ret = store_key_rotate(k->store, &entry->key, entry->hash, id, &end, e);
	ret = finish_entry(k, entry, ret, text, out);
	if (ret < 0)
		return ret;
	if (end.at_ms)
		set_end(&old->key, end.at_ms);
	old->key.revoked = end.done;
	if (end.done)
		notify_revoked(k);
	return 0;
}

void keys_watch(struct keys *k, void (*fn)(void *arg), void *arg)
{
	k->on_revoked = fn;
	k->arg = arg;
}
