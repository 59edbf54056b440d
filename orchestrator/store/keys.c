// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/store/keys.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/log.h"
#include "base/num.h"
#include "base/random.h"
#include "base/word.h"
#include "orchestrator/events/line.h"

#define BUCKETS	     256
#define TEXT_BUCKETS 4096

struct entry {
	struct key key;
	uint8_t hash[KEY_HASH_LEN];
	struct list link;      /* oldest first */
	struct list bucket;    /* by the hash's first byte */
	struct list of_tenant; /* by the tenant, oldest first */
	struct list of_id;     /* by the id */
};

struct keys {
	struct store *store;
	struct list all;
	struct list buckets[BUCKETS];
	struct list tenants[TEXT_BUCKETS];
	struct list ids[TEXT_BUCKETS];
	void (*on_revoked)(void *arg);
	void *arg;
	void (*on_changed)(void *arg);
	void *changed_arg;
};

/* --- the table ------------------------------------------------------------------------------ */

static unsigned text_bucket(const char *text)
{
	return word_hash(text) % TEXT_BUCKETS;
}

/* Inserts the key by the time when it was made: one from another host may be older than those that
 * are here, and after a restart the same key must be the newest. */
static void insert(struct keys *k, struct entry *entry)
{
	struct list *bucket = &k->tenants[text_bucket(entry->key.tenant)];
	struct list *next = &k->all;

	while (next->prev != &k->all &&
	       entry->key.created_at_ms <
		       container_of(next->prev, struct entry, link)->key.created_at_ms)
		next = next->prev;
	list_add_tail(next, &entry->link);
	next = bucket;
	while (next->prev != bucket &&
	       entry->key.created_at_ms <
		       container_of(next->prev, struct entry, of_tenant)->key.created_at_ms)
		next = next->prev;
	list_add_tail(next, &entry->of_tenant);
	list_add_tail(&k->buckets[entry->hash[0]], &entry->bucket);
	list_add_tail(&k->ids[text_bucket(entry->key.id)], &entry->of_id);
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
	if (!key->tier_at_ms)
		entry->key.tier_at_ms = key->created_at_ms;
	if (key->revoked_at_ms)
		set_end(&entry->key, key->revoked_at_ms);
	memcpy(entry->hash, hash, sizeof(entry->hash));
	insert(arg, entry);
}

int keys_new(struct keys **out, struct store *store, struct err *e)
{
	struct keys *k = must_alloc(sizeof(*k));

	k->store = store;
	list_init(&k->all); /* these lists are walked backwards */
	for (size_t i = 0; i < TEXT_BUCKETS; i++)
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
	list_each_of_safe (entry, struct entry, link, &k->all)
		free(entry);
	free(k);
}

bool keys_any(const struct keys *k)
{
	return !list_empty(&k->all);
}

/* The duration reveals at most whether the hash of some key has the same first byte. */
static const struct key *find_hash(const struct keys *k, const uint8_t hash[static KEY_HASH_LEN])
{
	list_each_of (entry, const struct entry, bucket, &k->buckets[hash[0]])
		if (CRYPTO_memcmp(entry->hash, hash, KEY_HASH_LEN) == 0)
			return &entry->key;
	return NULL;
}

enum key_verdict keys_check(const struct keys *k, const char *text, size_t len,
			    const struct key **out)
{
	uint8_t hash[KEY_HASH_LEN];

	if (!key_text_is_whole(text, len))
		return KEY_MALFORMED;
	key_text_hash(text, len, hash);
	*out = find_hash(k, hash);
	if (!*out)
		return KEY_UNKNOWN;
	return key_is_good(*out) ? KEY_GOOD : KEY_REVOKED;
}

const char *keys_tier(const struct keys *k, const char *tenant)
{
	const struct list *bucket = &k->tenants[text_bucket(tenant)];
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
	list_each (pos, &k->tenants[text_bucket(tenant)]) {
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
	list_each_of (entry, struct entry, of_id, &k->ids[text_bucket(id)])
		if (strcmp(entry->key.id, id) == 0)
			return entry;
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

static void notify_changed(struct keys *k)
{
	if (k->on_changed)
		k->on_changed(k->changed_arg);
}

static void notify_revoked(struct keys *k)
{
	if (k->on_revoked)
		k->on_revoked(k->arg);
	notify_changed(k);
}

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
	entry->key.created_at_ms = entry->key.tier_at_ms = realtime_ms();
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
	notify_changed(k);
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
 * `key` replaces. The previous key stays valid for `grace_s` at most; negative: until it is
 * revoked. */
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
	/* Later than the last time, even if that came from a host whose clock is ahead. */
	key->tier_at_ms = realtime_ms_after(key->tier_at_ms);
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
	else
		notify_changed(k);
	return 0;
}

/* --- changes of other hosts ----------------------------------------------------------------- */

static int add_made(struct keys *k, const struct key *key, const uint8_t hash[static KEY_HASH_LEN],
		    struct err *e)
{
	const struct key *same = find_hash(k, hash);

	if (same)
		return err_say(e, EEXIST, "keys %s and %s have the same hash", key->id, same->id);
	if (check_name(key->name, e) < 0)
		return err_context(e, "key %s", key->id);
	int ret = store_key_add(k->store, key, hash, e);
	if (ret < 0)
		return ret;
	take_row(k, key, hash);
	notify_changed(k);
	return 1;
}

static int change(struct keys *k, struct key *key, const struct key *to, struct err *e)
{
	const bool other_end =
		to->revoked_at_ms != key->revoked_at_ms || to->revoked != key->revoked;
	const bool other_tier = strcmp(to->tier, key->tier) != 0;
	int ret = 0;

	if (!other_end && !other_tier && to->tier_at_ms == key->tier_at_ms)
		return 0;
	key->tier_at_ms = to->tier_at_ms;
	snprintf(key->tier, sizeof(key->tier), "%s", to->tier);
	if (to->revoked_at_ms)
		set_end(key, to->revoked_at_ms);
	key->revoked |= to->revoked;
	const struct store_revocation end = {key->revoked_at_ms, key->revoked};
	if (other_tier)
		ret = store_key_set_tier(k->store, key->id, key->tier, e);
	if (ret == 0 && other_end)
		ret = store_key_revoke(k->store, key->id, &end, e);
	notify_revoked(k);
	return ret < 0 ? ret : 1;
}

int keys_take(struct keys *k, const struct key *key, const uint8_t hash[static KEY_HASH_LEN],
	      struct err *e)
{
	struct entry *entry = find(k, key->id);

	return entry ? change(k, &entry->key, key, e) : add_made(k, key, hash, e);
}

const uint8_t *keys_hash(const struct key *key)
{
	return container_of(key, struct entry, key)->hash;
}

void keys_watch(struct keys *k, void (*fn)(void *arg), void *arg)
{
	k->on_revoked = fn;
	k->arg = arg;
}

void keys_follow(struct keys *k, void (*fn)(void *arg), void *arg)
{
	k->on_changed = fn;
	k->changed_arg = arg;
}
