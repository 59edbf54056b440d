// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/json/json.h"

/* --- one key ---------------------------------------------------------------------------------- */

#define TIME_MAX ((double)(1ull << 53))

struct fields {
	uint32_t format;
	struct ring_key key;
};
#define FIELD(json_name, member, kind, ...)                                                        \
	JSON_FIELD(struct fields, member, json_name, kind, ##__VA_ARGS__)
#define WORD(name, most)                                                                           \
	FIELD(#name, key.name, JSON_CHARS, .min = 1, .max = (most), .required = true)

static const struct json_field key_fields[] = {
	FIELD("format", format, JSON_WHOLE, .min = 1, .max = UINT32_MAX, .required = true),
	WORD(id, RING_ID_MAX),
	WORD(tenant, RING_ID_MAX),
	WORD(hash, RING_HASH_TEXT),
	WORD(name, RING_NAME_MAX),
	WORD(tier, RING_TIER_MAX),
	FIELD("created", key.created_ms, JSON_BIG, .max = TIME_MAX, .required = true),
	FIELD("tier_at", key.tier_ms, JSON_BIG, .max = TIME_MAX, .required = true),
	FIELD("ends", key.ends_ms, JSON_BIG, .max = TIME_MAX),
	FIELD("revoked", key.revoked, JSON_BOOL),
};

static bool is_word(const char *text)
{
	return !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

int ring_key_read(struct ring_key *out, const char *text, size_t len, struct err *e)
{
	struct fields in = {0};
	uint8_t hash[RING_HASH_TEXT / 2];

	*out = (struct ring_key){0};
	if (json_read(text, len, key_fields, ARRAY_LEN(key_fields), &in, e) < 0)
		return e->code;
	if (in.format > RING_FORMAT)
		return err_say(e, EPROTONOSUPPORT,
			       "it has the format %u, and this version reads up to %d", in.format,
			       RING_FORMAT);
	if (!hex_bytes(hash, sizeof(hash), in.key.hash))
		return err_say(e, EINVAL, "hash must have %d hexadecimal digits", RING_HASH_TEXT);
	if (!is_word(in.key.id) || !is_word(in.key.tenant) || !is_word(in.key.tier))
		return err_say(e, EINVAL, "id, tenant and tier must consist of a-z, 0-9 and _");
	*out = in.key;
	return 0;
}

void ring_key_write(struct text *out, const struct ring_key *key)
{
	text_printf(out, "{\"format\":%d", RING_FORMAT);
	json_member(out, "id", key->id);
	json_member(out, "tenant", key->tenant);
	json_member(out, "hash", key->hash);
	json_member(out, "name", key->name);
	json_member(out, "tier", key->tier);
	text_printf(out, ",\"created\":%lld,\"tier_at\":%lld,\"ends\":%lld,\"revoked\":%s}",
		    (long long)key->created_ms, (long long)key->tier_ms, (long long)key->ends_ms,
		    key->revoked ? "true" : "false");
}

int ring_key_merge(struct ring_key *into, const struct ring_key *other, struct err *e)
{
	if (strcmp(into->hash, other->hash) != 0 || strcmp(into->tenant, other->tenant) != 0 ||
	    strcmp(into->name, other->name) != 0 || into->created_ms != other->created_ms)
		return err_say(e, EINVAL,
			       "there are two keys %s, of the tenants %s and %s: one is left out",
			       into->id, into->tenant, other->tenant);
	if (other->tier_ms > into->tier_ms ||
	    (other->tier_ms == into->tier_ms && strcmp(other->tier, into->tier) > 0)) {
		into->tier_ms = other->tier_ms;
		memcpy(into->tier, other->tier, sizeof(into->tier));
	}
	if (other->ends_ms && (!into->ends_ms || other->ends_ms < into->ends_ms))
		into->ends_ms = other->ends_ms;
	into->revoked |= other->revoked;
	return 0;
}

/* Returns whether a successful merge has changed the key, which was *before. */
static bool differs(const struct ring_key *key, const struct ring_key *before)
{
	return key->tier_ms != before->tier_ms || strcmp(key->tier, before->tier) != 0 ||
	       key->ends_ms != before->ends_ms || key->revoked != before->revoked;
}

/* --- the keys --------------------------------------------------------------------------------- */

struct entry {
	struct ring_key key;
	int64_t revision; /* of etcd's version of the key; 0: etcd has none */
	bool missing;	  /* etcd lacks this version of the key */
};

struct ring {
	char prefix[32]; /* "/ramet/3/keys/" */
	size_t n, room;
	struct entry *entries; /* by id */
	size_t checked;	       /* an index; etcd lacks none of the keys before it */
};

struct ring *ring_new(uint32_t cell)
{
	struct ring *r = must_alloc(sizeof(*r));

	snprintf(r->prefix, sizeof(r->prefix), "/ramet/%u/keys/", cell);
	return r;
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	free(r->entries);
	free(r);
}

static size_t position(const struct ring *r, const char *id)
{
	size_t low = 0, high = r->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (strcmp(r->entries[middle].key.id, id) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *find(const struct ring *r, const char *id)
{
	size_t i = position(r, id);

	return i < r->n && strcmp(r->entries[i].key.id, id) == 0 ? &r->entries[i] : NULL;
}

static void set_missing(struct ring *r, struct entry *entry, bool missing)
{
	size_t i = (size_t)(entry - r->entries);

	entry->missing = missing;
	if (missing && i < r->checked)
		r->checked = i;
}

/* Returns NULL if there are too many. */
static struct entry *insert(struct ring *r, const struct ring_key *key, struct err *e)
{
	size_t i = position(r, key->id);

	if (r->n == RING_KEYS_MAX ||
	    array_grow(&r->entries, &r->room, r->n + 1, sizeof(*r->entries)) < 0) {
		err_say(e, ENOSPC, "there are %d keys already", RING_KEYS_MAX);
		return NULL;
	}
	memmove(&r->entries[i + 1], &r->entries[i], (r->n++ - i) * sizeof(r->entries[0]));
	r->entries[i] = (struct entry){.key = *key};
	if (i < r->checked)
		r->checked++;
	return &r->entries[i];
}

static int take_own(struct ring *r, const char *text, struct err *e)
{
	struct ring_key key;

	if (ring_key_read(&key, text, strlen(text), e) < 0)
		return e->code;
	struct entry *entry = find(r, key.id);
	if (!entry) {
		entry = insert(r, &key, e);
		if (entry)
			set_missing(r, entry, true);
		return entry ? 0 : e->code;
	}
	const struct ring_key before = entry->key;
	if (ring_key_merge(&entry->key, &key, e) < 0)
		return e->code;
	if (differs(&entry->key, &before))
		set_missing(r, entry, true);
	return 0;
}

struct file {
	uint32_t format;
	char **keys;
};
static const struct json_field file_fields[] = {
	JSON_FIELD(struct file, format, "format", JSON_WHOLE, .min = 1, .max = RING_FORMAT,
		   .required = true),
	JSON_FIELD(struct file, keys, "keys", JSON_OBJECTS, .max = RING_KEYS_MAX, .required = true),
};

int ring_take_file(struct ring *r, const char *text, size_t len, struct err *e)
{
	struct file in = {0};
	struct err each;
	size_t failed = 0;
	int ret = json_read(text, len, file_fields, ARRAY_LEN(file_fields), &in, e);

	if (ret < 0)
		return ret;
	for (size_t i = 0; in.keys[i]; i++)
		if (take_own(r, in.keys[i], &each) < 0 && !failed++)
			log_error("a key in keys.json is left out: %s", each.text);
	if (failed > 1)
		log_error("%zu keys in keys.json are left out", failed);
	json_free(file_fields, ARRAY_LEN(file_fields), &in);
	return 0;
}

static int take_value(struct ring *r, const char *id, const struct etcd_pair *pair, struct err *e)
{
	struct ring_key key;
	struct entry *entry = find(r, id);

	/* Notes the version in etcd first: if that is damaged for this host, the host must not put
	 * its own version over it again and again. */
	if (entry) {
		entry->revision = pair->revision;
		set_missing(r, entry, false);
	}
	if (ring_key_read(&key, pair->value, pair->value_len, e) < 0)
		return e->code;
	if (strcmp(key.id, id) != 0)
		return err_say(e, EINVAL, "it says that it is key %s", key.id);
	if (!entry)
		entry = insert(r, &key, e);
	if (!entry)
		return e->code;
	entry->revision = pair->revision;
	if (ring_key_merge(&entry->key, &key, e) < 0)
		return e->code;
	set_missing(r, entry, differs(&entry->key, &key));
	return 0;
}

void ring_take(struct ring *r, const struct etcd_pair *pair)
{
	size_t len = strlen(r->prefix);
	const char *id = pair->key + len;
	struct err e;

	if (strncmp(pair->key, r->prefix, len) != 0)
		return;
	if (!pair->deleted) {
		if (take_value(r, id, pair, &e) < 0)
			log_error("key %.60s in etcd is left out: %s", id, e.text);
		return;
	}
	/* Keys are only revoked, never deleted: a key that is deleted in etcd is put again. */
	struct entry *entry = find(r, id);
	if (entry) {
		entry->revision = 0;
		set_missing(r, entry, true);
	}
}

void ring_list_begin(struct ring *r)
{
	for (size_t i = 0; i < r->n; i++) {
		r->entries[i].revision = 0;
		r->entries[i].missing = true;
	}
	r->checked = 0;
}

const struct ring_key *ring_missing(struct ring *r, int64_t *revision)
{
	for (; r->checked < r->n; r->checked++) {
		const struct entry *entry = &r->entries[r->checked];

		if (!entry->missing)
			continue;
		*revision = entry->revision;
		return &entry->key;
	}
	return NULL;
}

void ring_put(struct ring *r, const struct ring_key *key)
{
	struct entry *entry = find(r, key->id);

	if (entry)
		set_missing(r, entry, false);
}

const struct ring_key *ring_at(const struct ring *r, size_t i)
{
	return i < r->n ? &r->entries[i].key : NULL;
}

void ring_write_begin(struct text *out)
{
	text_printf(out, "{\"format\":%d,\"keys\":[\n", RING_FORMAT);
}

void ring_write_next(struct text *out, const struct ring_key *key)
{
	if (out->p[out->len - 1] != '\n')
		text_puts(out, ",\n");
	ring_key_write(out, key);
}

void ring_write_end(struct text *out)
{
	text_puts(out, "]}\n");
}

void ring_write(const struct ring *r, struct text *out)
{
	ring_write_begin(out);
	for (size_t i = 0; i < r->n; i++)
		ring_write_next(out, &r->entries[i].key);
	ring_write_end(out);
}
