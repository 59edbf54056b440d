// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/service/shared-keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/etcd/ring.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/json/text.h"

#define KEYS_FILE    "keys.json"
#define OFFERS	     "out"
#define OFFER_FILE   OFFERS "/" KEYS_FILE
#define TAKE_AT_ONCE 256 /* keys in one turn of the loop */
#define PATH_ROOM    (CONFIG_PATH_MAX + 32)

struct shared_keys {
	struct loop *loop;
	const struct config *config;
	struct member *member;
	struct keys *keys;
	struct disk_job *reading, *writing;
	bool changed;	   /* keys.json has changed since it was read */
	struct ring *ring; /* what is being taken over; NULL: nothing */
	size_t taken;	   /* of the ring */
	bool offering;	   /* the catalogue has changed since its keys were written */
	struct loop_timer take, offer;
};

/* --- one key ---------------------------------------------------------------------------------- */

static void to_ring(struct ring_key *out, const struct key *key)
{
	*out = (struct ring_key){.created_ms = key->created_at_ms,
				 .tier_ms = key->tier_at_ms,
				 .ends_ms = key->revoked_at_ms,
				 .revoked = key->revoked};
	snprintf(out->id, sizeof(out->id), "%s", key->id);
	snprintf(out->tenant, sizeof(out->tenant), "%s", key->tenant);
	snprintf(out->name, sizeof(out->name), "%s", key->name);
	snprintf(out->tier, sizeof(out->tier), "%s", key->tier);
	hex_write(out->hash, keys_hash(key), KEY_HASH_LEN);
}

/* Makes a key of the catalogue. Sets the end of a revoked key that has none. */
static struct key from_ring(const struct ring_key *in, uint8_t hash[static KEY_HASH_LEN])
{
	struct key out = {.created_at_ms = in->created_ms,
			  .tier_at_ms = in->tier_ms,
			  .revoked_at_ms = in->ends_ms,
			  .revoked = in->revoked};

	snprintf(out.id, sizeof(out.id), "%s", in->id);
	snprintf(out.tenant, sizeof(out.tenant), "%s", in->tenant);
	snprintf(out.name, sizeof(out.name), "%s", in->name);
	snprintf(out.tier, sizeof(out.tier), "%s", in->tier);
	if (out.revoked && !out.revoked_at_ms)
		out.revoked_at_ms = realtime_ms();
	hex_bytes(hash, KEY_HASH_LEN, in->hash);
	return out;
}

static bool is_id(const char *text, const char *prefix)
{
	uint8_t bytes[8];

	return strncmp(text, prefix, 4) == 0 && strlen(text) == KEY_ID_LEN &&
	       hex_bytes(bytes, sizeof(bytes), text + 4);
}

static int check(const struct shared_keys *s, const struct ring_key *key, struct err *e)
{
	if (!is_id(key->id, "key_"))
		return err_say(e, EINVAL, "%s is not the id of a key", key->id);
	if (strcmp(key->tenant, TENANT_LOCAL) != 0 && !is_id(key->tenant, "tnt_"))
		return err_say(e, EINVAL, "%s is not the id of a tenant", key->tenant);
	return tier_check(s->config, key->tier, e);
}

/* Merges the key with the catalogue's version of it. Returns as keys_take does. */
static int take_key(struct shared_keys *s, const struct ring_key *in, struct err *e)
{
	const struct key *own = keys_find(s->keys, in->id);
	struct ring_key merged = *in;
	uint8_t hash[KEY_HASH_LEN];

	if (check(s, in, e) < 0)
		return err_context(e, "key %s", in->id);
	if (own) {
		to_ring(&merged, own);
		if (ring_key_merge(&merged, in, e) < 0)
			return e->code;
	}
	const struct key key = from_ring(&merged, hash);
	int ret = keys_take(s->keys, &key, hash, e);
	if (ret > 0)
		log_info("key %s %s on another host: tenant %s, tier %s, %s", key.id,
			 own ? "was changed" : "was made", key.tenant, key.tier,
			 key_state(keys_find(s->keys, key.id)));
	return ret;
}

/* --- files ------------------------------------------------------------------------------------ */

struct file {
	char path[PATH_ROOM]; /* of the file to read, or of the folder to write to */
	struct ring *ring;    /* what was read; NULL: nothing */
	struct text text;     /* to write */
};

static struct file *file_new(const struct shared_keys *s, const char *name)
{
	struct file *f = must_alloc(sizeof(*f));

	snprintf(f->path, sizeof(f->path), "%s/%s", s->config->fleet_dir, name);
	return f;
}

static void file_free(void *at)
{
	struct file *f = at;

	ring_free(f->ring);
	text_free(&f->text);
	free(f);
}

static int load(struct file *f, struct err *e)
{
	scoped_fd int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len;

	if (fd < 0 && errno == ENOENT)
		return 0;
	scoped_free char *text = file_text(fd, RING_FILE_MAX, &len, e);
	if (text)
		f->ring = ring_new(0);
	return text && ring_take_file(f->ring, text, len, e) == 0 ? 0
								  : err_context(e, "%s", f->path);
}

bool shared_keys_any(const struct config *config)
{
	const struct shared_keys s = {.config = config};
	struct file *f = file_new(&s, KEYS_FILE);
	struct err e;

	const bool any = load(f, &e) == 0 && f->ring && ring_at(f->ring, 0) != NULL;
	file_free(f);
	return any;
}

/* ramet-fleet is in none of the service's groups: only the folder keeps others out. */
static int save(struct disk_job *job)
{
	const struct file *f = job->what;
	struct err *e = &job->job.err;
	scoped_fd int dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? err_set(e, errno, "open %s", f->path)
		       : file_replace(dir, KEYS_FILE, f->text.p, f->text.len, 0644, 0, e);
}

/* --- to other hosts --------------------------------------------------------------------------- */

static void begin_offer(void *arg);

static void on_saved(void *arg, struct disk_job *job)
{
	struct shared_keys *s = arg;

	s->writing = NULL;
	if (job->job.ret < 0)
		log_error("other hosts do not learn of changes to this host's keys: %s",
			  job->job.err.text);
	begin_offer(s);
}

/* Writes the catalogue's keys, unless something else is under way: then this is called again. */
static void begin_offer(void *arg)
{
	struct shared_keys *s = arg;
	struct ring_key each;

	if (!s->offering || s->writing || s->ring)
		return;
	s->offering = false;
	struct file *f = file_new(s, OFFERS);
	ring_write_begin(&f->text);
	for (const struct key *key = NULL; (key = keys_next(s->keys, key));) {
		to_ring(&each, key);
		ring_write_next(&f->text, &each);
	}
	ring_write_end(&f->text);
	s->writing = disk_job_start(s->loop, save, f, 0, on_saved, s);
	s->writing->free_what = file_free;
}

static void on_key_changed(void *arg)
{
	struct shared_keys *s = arg;

	s->offering = true;
	loop_timer_start(s->loop, &s->offer, begin_offer, s, 0);
}

/* --- from other hosts ------------------------------------------------------------------------- */

static void begin_reading(void *arg);

/* Takes up to `most` keys of the ring. Returns whether there are more. */
static bool take_some(struct shared_keys *s, size_t most)
{
	const struct ring_key *key;
	struct err e;

	for (; most-- && (key = ring_at(s->ring, s->taken)); s->taken++)
		if (take_key(s, key, &e) < 0)
			log_error("a key in keys.json is not used: %s", e.text);
	return ring_at(s->ring, s->taken);
}

static void end_taking(struct shared_keys *s)
{
	ring_free(s->ring);
	s->ring = NULL;
	s->taken = 0;
}

static void on_take(void *arg)
{
	struct shared_keys *s = arg;

	if (take_some(s, TAKE_AT_ONCE)) {
		loop_timer_start(s->loop, &s->take, on_take, s, 0);
		return;
	}
	end_taking(s);
	begin_offer(s);
	if (s->changed)
		begin_reading(s);
}

static int load_work(struct disk_job *job)
{
	return load(job->what, &job->job.err);
}

static void on_loaded(void *arg, struct disk_job *job)
{
	struct shared_keys *s = arg;
	struct file *f = job->what;

	s->reading = NULL;
	if (job->job.ret < 0) {
		log_error("cannot read the fleet's keys, the previous ones stay in use: %s",
			  job->job.err.text);
	} else if (f->ring) {
		s->ring = f->ring;
		f->ring = NULL;
		on_take(s);
		return;
	}
	if (s->changed)
		begin_reading(s);
}

static void begin_reading(void *arg)
{
	struct shared_keys *s = arg;

	s->changed = s->reading || s->ring;
	if (s->changed)
		return;
	s->reading = disk_job_start(s->loop, load_work, file_new(s, KEYS_FILE), 0, on_loaded, s);
	s->reading->free_what = file_free;
}

/* --- start and end ---------------------------------------------------------------------------- */

/* Sets the times at which tiers were set, which the catalogue does not have, from the keys that
 * were last written. If a key's tier differs from the written one, it was set since, by rametctl
 * without the service. */
static void recall(struct shared_keys *s, const struct ring_key *last)
{
	const struct key *own = keys_find(s->keys, last->id);
	struct err e;

	if (!own)
		return;
	struct key key = *own;
	key.tier_at_ms = last->tier_ms;
	if (strcmp(own->tier, last->tier) != 0)
		key.tier_at_ms = realtime_ms_after(last->tier_ms);
	/* Changes only tier_at_ms, which is in memory. */
	keys_take(s->keys, &key, keys_hash(own), &e);
}

/* Waits for the disk: a key that was revoked elsewhere must not be valid for a moment. */
static struct ring *load_now(struct shared_keys *s, const char *name)
{
	struct file *f = file_new(s, name);
	struct ring *ring = NULL;
	struct err e;

	if (load(f, &e) < 0)
		log_error("cannot read the fleet's keys: %s", e.text);
	else
		ring = f->ring;
	if (ring)
		f->ring = NULL;
	file_free(f);
	return ring;
}

static void take_now(struct shared_keys *s)
{
	struct ring *last = load_now(s, OFFER_FILE);

	for (size_t i = 0; last && ring_at(last, i); i++)
		recall(s, ring_at(last, i));
	ring_free(last);
	s->ring = load_now(s, KEYS_FILE);
	if (s->ring)
		take_some(s, SIZE_MAX);
	end_taking(s);
}

struct shared_keys *shared_keys_new(struct loop *loop, const struct config *config,
				    struct member *member, struct keys *keys)
{
	struct shared_keys *s = must_alloc(sizeof(*s));

	s->loop = loop;
	s->config = config;
	s->member = member;
	s->keys = keys;
	member_follow(member, KEYS_FILE, begin_reading, s);
	take_now(s);
	keys_follow(keys, on_key_changed, s);
	on_key_changed(s);
	return s;
}

void shared_keys_free(struct shared_keys *s)
{
	if (!s)
		return;
	member_follow(s->member, NULL, NULL, NULL);
	keys_follow(s->keys, NULL, NULL);
	loop_timer_clear(s->loop, &s->take);
	loop_timer_clear(s->loop, &s->offer);
	disk_job_cancel(s->reading);
	disk_job_cancel(s->writing);
	end_taking(s);
	free(s);
}
