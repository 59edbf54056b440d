// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/etcd/ring.h"
#include "orchestrator/etcd/view.h"

#define RETRY_FIRST_MS 250
#define RETRY_MOST_MS  5000
#define SAY_AGAIN_MS   60000
#define PATH_ROOM      512
#define KEY_ROOM       64
#define WRITE_MS       250 /* least time between two tables, since each host that joins is a change */
#define PUTS_MAX       64 /* keys in one turn, so that the tables are written meanwhile */
#define PUT_TRIES      8  /* attempts to put a key that other hosts change meanwhile */

/* A file that this program writes, and replaces when its text changes. */
struct table {
	const char *name;
	struct text text; /* as it is in the file */
};

/* A list that is being read, in several answers. */
struct listing {
	int64_t at;		     /* the revision; 0: the list has not begun */
	char last[ETCD_KEY_MAX + 2]; /* the last key that was read, then \x01 */
};

struct session {
	const struct fleet_settings *settings;
	struct card self;
	int dir;
	char ca[PATH_ROOM], cert[PATH_ROOM], key[PATH_ROOM];
	struct etcd *etcd;
	struct view *view;
	char own[KEY_ROOM], fleet[KEY_ROOM], from[KEY_ROOM], to[KEY_ROOM]; /* keys */
	int64_t lease;							   /* 0: none */
	bool joined; /* this host's card is in etcd, under the lease */
	/* The view has all changes up to this revision; 0: all keys must be read. */
	int64_t revision;
	struct listing listing;
	/* Changes after this revision are read as they are made. */
	int64_t live;
	uint64_t keepalive_at_ms; /* on the boot-time clock */
	bool kept;		  /* the last attempt to keep the lease alive did not fail */
	uint32_t pause_ms;	  /* after a failure of a call */
	uint32_t watch_pause_ms;  /* after a watch that soon ended */
	uint64_t watched_ms;	  /* when the last watch began */
	struct err said;	  /* the last failure that was logged; code 0: all works */
	uint64_t say_at_ms;	  /* when it is logged again */
	struct ring *ring;
	int offers;   /* an inotify, for the folder that the service writes its keys to; -1: none */
	bool offered; /* the service's file of keys may have changed */
	struct table hosts, keys;
	uint64_t write_at_ms; /* not before that */
	bool unwritten;	      /* the tables may have changed */
};

static int64_t now_s(void)
{
	return realtime_ms() / 1000;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Calls etcd, empties the request, and returns the answer, which the caller frees. */
static int exchange(struct session *s, const char *path, struct text *request, struct text *answer,
		    struct err *e)
{
	int ret = etcd_call(s->etcd, path, request, answer, e);

	text_free(request);
	return ret;
}

/* --- the lease -------------------------------------------------------------------------------- */

static void lose_lease(struct session *s)
{
	s->lease = 0;
	s->joined = false;
}

static int take_lease(struct session *s, const struct etcd_lease *lease, struct err *e)
{
	if (lease->ttl_s != LEASE_TTL_S)
		return err_say(e, EPROTO,
			       "etcd at %s gave a lease of %" PRId64 " s, and %d s were asked for",
			       etcd_endpoint(s->etcd), lease->ttl_s, LEASE_TTL_S);
	s->lease = lease->id;
	s->keepalive_at_ms = boottime_ms() + KEEPALIVE_MS;
	s->kept = true;
	return 0;
}

/* Returns a random time of less than `ms`, so that hosts do not act in step. */
static uint32_t random_ms(uint32_t ms)
{
	uint32_t chance;

	random_bytes(&chance, sizeof(chance));
	return chance % ms;
}

static int grant(struct session *s, struct err *e)
{
	struct text request = {0}, answer;
	struct etcd_lease lease;

	etcd_grant_request(&request, LEASE_TTL_S);
	int ret = exchange(s, "/v3/lease/grant", &request, &answer, e);
	if (ret < 0)
		return ret;
	ret = etcd_grant_read(&lease, answer.p, answer.len, e);
	text_free(&answer);
	if (ret == 0)
		ret = take_lease(s, &lease, e);
	if (ret == 0)
		s->keepalive_at_ms -= random_ms(KEEPALIVE_MS);
	return ret;
}

/* Renews the lease. Gives up a lease that has ended, or whose time to live has changed. */
static int keep_alive(struct session *s, struct err *e)
{
	struct text request = {0}, answer;
	struct etcd_lease lease;

	s->kept = false;
	etcd_keepalive_request(&request, s->lease);
	int ret = exchange(s, "/v3/lease/keepalive", &request, &answer, e);
	if (ret < 0)
		return ret;
	ret = etcd_keepalive_read(&lease, answer.p, answer.len, e);
	text_free(&answer);
	if (ret < 0)
		return ret;
	if (!lease.ttl_s)
		ret = err_say(e, ENOENT,
			      "the lease of this host in etcd has ended: it joins again");
	else if (lease.id != s->lease)
		ret = err_say(e, EPROTO, "etcd at %s kept another lease than this host's alive",
			      etcd_endpoint(s->etcd));
	else
		ret = take_lease(s, &lease, e);
	if (ret < 0)
		lose_lease(s);
	return ret;
}

/* --- calls beside it -------------------------------------------------------------------------- */

/* As exchange. A few slow calls in a row may take longer than the lease lives, so it is kept alive
 * between them. */
static int call(struct session *s, const char *path, struct text *request, struct text *answer,
		struct err *e)
{
	if (s->lease && boottime_ms() >= s->keepalive_at_ms && keep_alive(s, e) < 0) {
		text_free(request);
		return e->code;
	}
	return exchange(s, path, request, answer, e);
}

/* The present value of a key, from the answer to etcd_put_request. */
struct present {
	struct text value;
	int64_t revision; /* 0: there is no such key */
};

static void on_present(void *arg, const struct etcd_pair *pair)
{
	struct present *p = arg;

	p->value.len = 0;
	text_add(&p->value, pair->value, pair->value_len);
	p->revision = pair->revision;
}

/* Sets the key as etcd_put_request does. The caller frees the present value, after failures too. */
static int put(struct session *s, const char *key, const struct text *value, int64_t lease,
	       int64_t revision, bool *done, struct present *present, struct err *e)
{
	struct text request = {0}, answer;

	*present = (struct present){0};
	etcd_put_request(&request, key, value, lease, revision);
	int ret = call(s, "/v3/kv/txn", &request, &answer, e);
	if (ret < 0)
		return ret;
	ret = etcd_put_read(done, answer.p, answer.len, on_present, present, e);
	text_free(&answer);
	return ret;
}

/* --- joining ---------------------------------------------------------------------------------- */

/* The first host that joins writes the fleet's id; the others compare. */
static int check_fleet(struct session *s, struct err *e)
{
	struct text value = {0};
	struct present present;
	bool done;

	text_puts(&value, s->self.fleet);
	int ret = put(s, s->fleet, &value, 0, 0, &done, &present, e);
	if (ret == 0 && !done &&
	    (present.value.len != value.len || memcmp(present.value.p, value.p, value.len) != 0))
		ret = err_say(
			e, EINVAL,
			"cell %u in etcd at %s belongs to the fleet %.*s, and this host to %s: "
			"it does not join",
			s->settings->cell, etcd_endpoint(s->etcd),
			(int)min_u64(present.value.len, 60), present.value.p, s->self.fleet);
	text_free(&value);
	text_free(&present.value);
	return ret;
}

/* Checks that the card that etcd has for this host's number is of an earlier session of this
 * machine. Fails if it is another machine's. */
static int check_own(const struct session *s, const struct present *present, struct err *e)
{
	struct card other;
	struct err reason;

	if (!present->revision)
		return err_say(e, EAGAIN, "the card of this host changed at the same time");
	int ret = card_read(&other, present->value.p, present->value.len, &reason);
	if (strcmp(other.instance, s->self.instance) == 0)
		return 0;
	if (ret < 0 && !other.host.name[0])
		return err_say(e, EEXIST, "the card of host %u in etcd is damaged: %.100s",
			       s->self.host.number, reason.text);
	return err_say(
		e, EEXIST,
		"host number %u is taken by %s at %s: this machine, %s at %s, does not join. "
		"Give it a token of its own, or stop the other one",
		s->self.host.number, other.host.name, other.host.address, s->self.host.name,
		s->self.host.address);
}

static int put_card(struct session *s, const struct text *card, struct err *e)
{
	struct present present;
	int64_t revision = 0;
	bool done = false;
	int ret = 0;

	for (int i = 0; i < 2 && !done && ret == 0; i++) {
		ret = put(s, s->own, card, s->lease, revision, &done, &present, e);
		if (ret == 0 && !done)
			ret = check_own(s, &present, e);
		revision = present.revision;
		text_free(&present.value);
	}
	if (ret == 0 && !done)
		ret = err_say(e, EAGAIN, "the card of this host changed at the same time");
	return ret;
}

static int join(struct session *s, struct err *e)
{
	struct text card = {0};

	if (check_fleet(s, e) < 0)
		return e->code;
	s->self.host.seen = now_s();
	card_write(&card, &s->self);
	int ret = put_card(s, &card, e);
	text_free(&card);
	/* etcd has lost the lease. */
	if (ret == -ENOENT)
		lose_lease(s);
	if (ret < 0)
		return ret;
	s->joined = true;
	view_self_lost(s->view);
	log_info("joined cell %u of the fleet %s as host %u (%s)", s->settings->cell, s->self.fleet,
		 s->self.host.number, s->self.host.name);
	return 0;
}

/* --- the view --------------------------------------------------------------------------------- */

static void take(struct session *s, const struct etcd_pair *pair, bool live)
{
	if (pair->odd) {
		log_error("the key %.100s in etcd is ignored: it or its value is too long, or it "
			  "has a NUL",
			  pair->key);
		return;
	}
	view_take(s->view, pair, live, now_s());
	ring_take(s->ring, pair);
}

static void on_listed(void *arg, const struct etcd_pair *pair)
{
	struct session *s = arg;

	take(s, pair, false);
	snprintf(s->listing.last, sizeof(s->listing.last), "%s\x01", pair->key);
}

static int read_page(struct session *s, struct etcd_range *range, struct err *e)
{
	struct text request = {0}, answer;
	char from[sizeof(s->listing.last)];

	memcpy(from, s->listing.last, sizeof(from));
	etcd_range_request(&request, from, s->to, s->listing.at);
	int ret = call(s, "/v3/kv/range", &request, &answer, e);
	if (ret < 0)
		return ret;
	ret = etcd_range_read(range, answer.p, answer.len, on_listed, s, e);
	text_free(&answer);
	if (ret == 0 && range->more && strcmp(s->listing.last, from) <= 0)
		ret = err_say(e, EPROTO, "the keys that etcd lists are not in order");
	return ret;
}

static void begin_list(struct session *s)
{
	s->listing.at = 0;
	snprintf(s->listing.last, sizeof(s->listing.last), "%s", s->from);
	view_list_begin(s->view);
	ring_list_begin(s->ring);
}

/* Reads all keys, as of one revision. If no member answers, the next call goes on with the keys
 * that are missing, so that an etcd that is busy with many hosts need not answer twice. */
static int list(struct session *s, struct err *e)
{
	struct etcd_range range;

	if (!s->listing.at)
		begin_list(s);
	do {
		int ret = read_page(s, &range, e);
		if (ret < 0) {
			if (ret != -EAGAIN)
				s->listing.at = 0;
			return ret;
		}
		s->listing.at = s->listing.at ? s->listing.at : range.revision;
	} while (range.more);
	view_list_end(s->view, now_s());
	s->revision = s->listing.at;
	s->listing.at = 0;
	return 0;
}

/* Starts to follow the changes that the view does not have yet. */
static int follow(struct session *s, struct err *e)
{
	struct text request = {0};

	if (!s->revision && list(s, e) < 0)
		return e->code;
	s->live = INT64_MAX;
	etcd_watch_request(&request, s->from, s->to, s->revision + 1);
	s->watched_ms = boottime_ms();
	int ret = etcd_watch(s->etcd, &request, e);
	text_free(&request);
	return ret;
}

static void on_changed(void *arg, const struct etcd_pair *pair)
{
	struct session *s = arg;

	take(s, pair, pair->revision > s->live);
	s->revision = pair->revision;
}

static int on_line(void *arg, const char *line, size_t len, struct err *e)
{
	struct session *s = arg;
	struct etcd_change change;
	int ret = etcd_watch_read(&change, line, len, on_changed, s, e);

	if (ret < 0)
		return ret;
	if (change.began)
		s->live = change.began;
	/* The etcd was restored from a backup, or replaced by another one. */
	if (change.began && change.began < s->revision)
		change.over = change.compacted = true;
	if (change.compacted)
		s->revision = 0;
	return change.over ? err_say(e, ESTALE, "%s",
				     change.compacted ? "the list of hosts has to be read again"
						      : "etcd ended it")
			   : 0;
}

/* --- the tables ------------------------------------------------------------------------------- */

/* Takes ownership of the text, and writes it to the file if the file has another text. */
static int write_table(int dir, struct table *t, struct text *text, struct err *e)
{
	int ret = 0;

	if (text->len != t->text.len || memcmp(text->p, t->text.p, text->len) != 0) {
		const struct text before = t->text;

		ret = file_replace(dir, t->name, text->p, text->len, 0640, 0, e);
		if (ret == 0) {
			t->text = *text;
			*text = before;
		}
	}
	text_free(text);
	return ret;
}

static int write_tables(struct session *s, struct err *e)
{
	struct text hosts = {0}, keys = {0};

	s->unwritten = boottime_ms() < s->write_at_ms;
	if (s->unwritten)
		return 0;
	s->write_at_ms = boottime_ms() + WRITE_MS;
	view_hosts(s->view, &hosts);
	int ret = write_table(s->dir, &s->hosts, &hosts, e);
	if (ret < 0)
		return ret;
	ring_write(s->ring, &keys);
	return write_table(s->dir, &s->keys, &keys, e);
}

/* Returns the text of a file, which the caller frees; NULL if there is none of at most `most`
 * bytes. */
static char *read_file(int dir, const char *name, size_t most, size_t *len)
{
	scoped_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	return file_text(fd, most, len, NULL);
}

/* Takes over the table that an earlier process wrote; ignores a file that another host wrote. */
static void load_hosts(struct session *s)
{
	size_t len;
	scoped_free char *hosts = read_file(s->dir, s->hosts.name, FLEET_TABLE_BYTES, &len);

	if (hosts && view_load(s->view, hosts, len))
		text_add(&s->hosts.text, hosts, len);
}

static void load_keys(struct session *s)
{
	struct err e;
	size_t len;
	scoped_free char *keys = read_file(s->dir, s->keys.name, RING_FILE_MAX, &len);
	if (keys && ring_take_file(s->ring, keys, len, &e) < 0)
		log_warn("keys.json of an earlier run is not used: %s", e.text);
}

/* --- keys of this host's service -------------------------------------------------------------- */

/* The service replaces OFFERS/keys.json. */
#define OFFERS	   "out"
#define OFFER_FILE OFFERS "/keys.json"

static void watch_offers(struct session *s, const char *tables)
{
	char path[PATH_ROOM];

	snprintf(path, sizeof(path), "%s/" OFFERS, tables);
	s->offers = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (s->offers < 0 || inotify_add_watch(s->offers, path, IN_MOVED_TO | IN_ONLYDIR) < 0) {
		log_warn("changes of this host's keys will not reach the fleet: watch %s: %s", path,
			 strerror(errno));
		close_fd(&s->offers);
	}
	s->offered = true;
}

/* Reads the keys that the service offers, if they may have changed. */
static void take_offers(struct session *s)
{
	char events[4096];
	struct err e;
	size_t len;

	while (s->offers >= 0 && read(s->offers, events, sizeof(events)) > 0)
		s->offered = true;
	if (!s->offered)
		return;
	s->offered = false;
	scoped_free char *text = read_file(s->dir, OFFER_FILE, RING_FILE_MAX, &len);
	if (text && ring_take_file(s->ring, text, len, &e) < 0)
		log_error("cannot read the keys that this host's service offers to the fleet: %s",
			  e.text);
}

/* Puts the key. If another host has put a version of it meanwhile, merges that version; the key may
 * then count as missing again. */
static int put_key(struct session *s, const struct ring_key *key, int64_t revision, struct err *e)
{
	char name[KEY_ROOM];
	struct present present;
	struct text text = {0};
	bool done;

	snprintf(name, sizeof(name), "/ramet/%u/keys/%s", s->settings->cell, key->id);
	ring_key_write(&text, key);
	int ret = put(s, name, &text, 0, revision, &done, &present, e);
	if (ret == 0 && done)
		ring_put(s->ring, key);
	else if (ret == 0)
		ring_take(s->ring, &(struct etcd_pair){.key = name,
						       .value = present.value.p,
						       .value_len = present.value.len,
						       .deleted = !present.revision,
						       .revision = present.revision});
	text_free(&text);
	text_free(&present.value);
	return ret;
}

/* Puts the keys that etcd lacks. */
static int put_keys(struct session *s, struct err *e)
{
	const struct ring_key *missing;
	int64_t revision;

	for (int i = 0; i < PUTS_MAX && (missing = ring_missing(s->ring, &revision)); i++) {
		/* A copy, since the watch goes on during the call and may move the ring's
		 * entries. */
		const struct ring_key key = *missing;
		int ret = put_key(s, &key, revision, e);

		if (ret < 0)
			return ret;
	}
	return 0;
}

/* --- orders ----------------------------------------------------------------------------------- */

/* Sets the key, whatever its present value is. */
static int put_over(struct session *s, const char *key, const struct text *value, struct err *e)
{
	struct present present;
	int64_t revision = 0;
	bool done = false;
	int ret = 0;

	for (int i = 0; i < PUT_TRIES && !done && ret == 0; i++) {
		ret = put(s, key, value, 0, revision, &done, &present, e);
		revision = present.revision;
		text_free(&present.value);
	}
	if (ret == 0 && !done)
		ret = err_say(e, EAGAIN, "%s changes all the time", key);
	return ret;
}

static int put_order(struct session *s, uint32_t number, const struct order *order, struct err *e)
{
	char key[KEY_ROOM];
	struct text value = {0};

	snprintf(key, sizeof(key), "/ramet/%u/orders/%u", s->settings->cell, number);
	order_write(&value, order);
	int ret = put_over(s, key, &value, e);
	text_free(&value);
	return ret;
}

/* Withdraws the order to forget this host, since it has come back. */
static int be_known(struct session *s, struct err *e)
{
	const uint32_t number = s->self.host.number;

	if (view_order(s->view, number).kind != ORDER_FORGET)
		return 0;
	return put_order(s, number, &(struct order){ORDER_SERVE, .at = now_s()}, e);
}

/* --- turns ------------------------------------------------------------------------------------ */

static int do_due(struct session *s, struct err *e)
{
	if (view_self_lost(s->view) && s->joined) {
		s->joined = false;
		log_warn("the card of this host is not in etcd any more: it joins again");
	}
	if (!s->lease && grant(s, e) < 0)
		return e->code;
	if (boottime_ms() >= s->keepalive_at_ms && keep_alive(s, e) < 0)
		return e->code;
	if (!s->joined && join(s, e) < 0)
		return e->code;
	if (!etcd_watches(s->etcd) && follow(s, e) < 0)
		return e->code;
	if (be_known(s, e) < 0)
		return e->code;
	take_offers(s);
	return put_keys(s, e) < 0 ? e->code : write_tables(s, e);
}

/* Logs a failure. One that lasts is logged only once in a while; it is recognized by its code,
 * since texts of libcurl contain times. */
static void say(struct session *s, const struct err *e)
{
	const uint64_t now = boottime_ms();

	if (s->said.code == e->code && now < s->say_at_ms)
		return;
	log_error("%s; %s", e->text,
		  s->hosts.text.len ? "the last table of hosts stays in use"
				    : "there is no table of hosts yet");
	s->said = *e;
	s->say_at_ms = now + SAY_AGAIN_MS;
}

static uint32_t ms_until(uint64_t at_ms)
{
	uint64_t now = boottime_ms();

	return at_ms > now ? min_u32(at_ms - now, KEEPALIVE_MS) : 0;
}

/* Waits after a failure. A keepalive that is due waits only if it failed itself. */
static void rest(struct session *s, uint32_t *pause_ms)
{
	*pause_ms = backoff_next(*pause_ms, RETRY_FIRST_MS, RETRY_MOST_MS);
	uint32_t ms = *pause_ms / 2 + random_ms(*pause_ms / 2 + 1);
	if (s->lease && s->kept)
		ms = min_u32(ms, ms_until(s->keepalive_at_ms));
	etcd_wait(s->etcd, ms, -1);
}

/* Waits until something is due or has changed. */
static void await(struct session *s)
{
	int64_t revision;
	uint32_t ms = ms_until(s->keepalive_at_ms);

	if (s->unwritten)
		ms = min_u32(ms, ms_until(s->write_at_ms));
	if (ring_missing(s->ring, &revision) || !etcd_watches(s->etcd))
		ms = 0;
	etcd_wait(s->etcd, ms, s->offers);
	if (etcd_watches(s->etcd))
		return;
	/* The watch has ended. Waits, so that the hosts of a member that was killed don't all come
	 * to the other members at the same time. The waits grow, since each watch may end soon, for
	 * example because its answer cannot be read. Before the next watch, the keepalive finds out
	 * whether this member works. */
	if (boottime_ms() - s->watched_ms >= RETRY_MOST_MS)
		s->watch_pause_ms = 0;
	rest(s, &s->watch_pause_ms);
	s->keepalive_at_ms = 0;
}

bool session_has_table(const struct session *s)
{
	return s->hosts.text.len > 0;
}

void session_turn(struct session *s)
{
	struct err e;

	if (do_due(s, &e) < 0) {
		say(s, &e);
		rest(s, &s->pause_ms);
		return;
	}
	if (s->said.code)
		log_info("etcd at %s works again", etcd_endpoint(s->etcd));
	s->said.code = 0;
	s->pause_ms = 0;
	await(s);
}

/* --- life ------------------------------------------------------------------------------------- */

static void name_files(struct session *s, const char *dir)
{
	snprintf(s->ca, sizeof(s->ca), "%s/etcd-ca.pem", dir);
	snprintf(s->cert, sizeof(s->cert), "%s/etcd-cert.pem", dir);
	snprintf(s->key, sizeof(s->key), "%s/etcd-key.pem", dir);
}

static int connect_to(struct session *s, struct err *e)
{
	const struct etcd_options options = {
		.endpoints = (const char *const *)s->settings->etcd,
		.ca = s->ca,
		.cert = s->cert,
		.key = s->key,
		.on_line = on_line,
		.arg = s,
	};

	return etcd_new(&s->etcd, &options, e);
}

static void session_free(struct session *s)
{
	if (!s)
		return;
	etcd_free(s->etcd);
	view_free(s->view);
	ring_free(s->ring);
	close_fd(&s->offers);
	close_fd(&s->dir);
	text_free(&s->hosts.text);
	text_free(&s->keys.text);
	free(s);
}

static int make(struct session **out, const struct fleet_settings *settings, int dir,
		const char *certificates, const char *tables, struct err *e)
{
	struct session *s = must_alloc(sizeof(*s));
	const uint32_t cell = settings->cell;

	*s = (struct session){.settings = settings,
			      .self = settings->self,
			      .dir = dir,
			      .offers = -1,
			      .hosts.name = "hosts.json",
			      .keys.name = "keys.json"};
	name_files(s, certificates);
	snprintf(s->self.host.version, sizeof(s->self.host.version), "%s", RAMET_VERSION);
	snprintf(s->own, sizeof(s->own), "/ramet/%u/hosts/%u", cell, s->self.host.number);
	snprintf(s->fleet, sizeof(s->fleet), "/ramet/%u/fleet", cell);
	snprintf(s->from, sizeof(s->from), "/ramet/%u/hosts/", cell);
	/* This range has hosts/, keys/ and orders/, and nothing else. '0' is the character after
	 * '/'. */
	snprintf(s->to, sizeof(s->to), "/ramet/%u/orders0", cell);
	s->view = view_new(&s->self, cell);
	s->ring = ring_new(cell);
	if (tables) {
		load_hosts(s);
		load_keys(s);
		watch_offers(s, tables);
	}
	int ret = connect_to(s, e);
	if (ret < 0) {
		session_free(s);
		return ret;
	}
	*out = s;
	return 0;
}

static int open_tables(const char *tables, struct err *e)
{
	int dir = open(tables, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? err_set(e, errno, "open %s", tables) : dir;
}

int session_new(struct session **out, const struct fleet_settings *settings,
		const char *certificates, const char *tables, struct err *e)
{
	int dir = open_tables(tables, e);

	return dir < 0 ? dir : make(out, settings, dir, certificates, tables, e);
}

/* --- check ------------------------------------------------------------------------------------ */

static int check_member(struct session *s, size_t i, struct err *e)
{
	char version[ETCD_VERSION_MAX + 1];
	struct text answer;

	if (etcd_ask(s->etcd, i, "/version", &answer, e) < 0)
		return e->code;
	int ret = etcd_version_read(version, answer.p, answer.len, e);
	text_free(&answer);
	if (ret < 0)
		return ret;
	const char *advice = etcd_version_advice(version);
	printf("%s: etcd %s%s%s\n", etcd_endpoint(s->etcd), version, advice ? ": " : "",
	       advice ? advice : "");
	return 0;
}

/* Reads a key in a way that needs a majority of the members. */
static int check_quorum(struct session *s, struct err *e)
{
	struct etcd_range range;

	begin_list(s);
	int ret = read_page(s, &range, e);
	if (ret < 0)
		return err_context(e, "etcd has no quorum");
	printf("etcd has a quorum; its revision is %" PRId64 "\n", range.revision);
	return 0;
}

int session_check(const struct fleet_settings *settings, const char *certificates, struct err *e)
{
	struct session *s;
	struct err each;
	size_t failed = 0, n = 0;
	int ret = make(&s, settings, -1, certificates, NULL, e);

	if (ret < 0)
		return ret;
	for (; settings->etcd[n]; n++)
		if (check_member(s, n, &each) < 0) {
			printf("%s\n", each.text);
			failed++;
		}
	ret = check_quorum(s, e);
	session_free(s);
	if (ret == 0 && failed)
		ret = err_say(e, EIO, "%zu of the %zu members of etcd: no answer", failed, n);
	return ret;
}

/* --- an operator's order ---------------------------------------------------------------------- */

static void print_ordered(const struct fleet_host *host, const struct order *order)
{
	static const char *const results[] = {
		[ORDER_SERVE] = "gets new sandboxes",
		[ORDER_DRAIN] = "gets no new sandboxes",
		[ORDER_FORGET] = "is forgotten",
	};
	char until[64] = "";
	struct tm tm;

	if (order->deadline && gmtime_r(&(time_t){order->deadline}, &tm))
		strftime(until, sizeof(until), "; what is left ends at %Y-%m-%dT%H:%M:%SZ", &tm);
	printf("host %u (%s) %s%s\n", host->number, host->name, results[order->kind], until);
}

static int order(struct session *s, const char *name, const struct order *order, struct err *e)
{
	load_hosts(s);
	if (list(s, e) < 0)
		return err_context(e,
				   "nothing is ordered (`rametctl fleet check` asks all members)");
	const struct fleet_host *host = view_find(s->view, name);
	if (!host)
		return err_say(e, ENOENT, "cell %u has no host \"%.60s\": see `rametctl host list`",
			       s->settings->cell, name);
	if (order->kind == ORDER_FORGET && !host->gone)
		return err_say(
			e, EBUSY,
			"host %u (%s) is alive: stop its ramet-fleet first, and wait until it "
			"is gone",
			host->number, host->name);
	int ret = put_order(s, host->number, order, e);
	if (ret == 0)
		print_ordered(host, order);
	return ret;
}

int session_order(const struct fleet_settings *settings, const char *certificates,
		  const char *tables, const char *name, const struct order *what, struct err *e)
{
	struct session *s;
	int dir = open_tables(tables, e);
	int ret = dir < 0 ? dir : make(&s, settings, dir, certificates, NULL, e);

	if (ret < 0)
		return ret;
	ret = order(s, name, what, e);
	session_free(s);
	return ret;
}
