// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/fleet/id.h"

struct entry {
	struct fleet_host host;
	bool listed; /* in the list that is being read */
};

struct view {
	const struct card *self;
	uint32_t cell;
	char hosts_prefix[32]; /* "/ramet/3/hosts/" */
	bool self_listed, self_lost;
	size_t n;
	struct entry *entries; /* the other hosts, by number; FLEET_HOSTS_MAX - 1 fit */
};

#define OTHERS_MAX (FLEET_HOSTS_MAX - 1)

struct view *view_new(const struct card *self, uint32_t cell)
{
	struct view *v = must_alloc(sizeof(*v));

	v->self = self;
	v->cell = cell;
	v->entries = must_alloc(OTHERS_MAX * sizeof(*v->entries));
	snprintf(v->hosts_prefix, sizeof(v->hosts_prefix), "/ramet/%u/hosts/", cell);
	return v;
}

void view_free(struct view *v)
{
	if (!v)
		return;
	free(v->entries);
	free(v);
}

/* --- the entries ------------------------------------------------------------------------------ */

/* Returns the position of the host, or where it belongs. */
static size_t position(const struct view *v, uint32_t number)
{
	size_t low = 0, high = v->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (v->entries[middle].host.number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *find(const struct view *v, uint32_t number)
{
	size_t i = position(v, number);

	return i < v->n && v->entries[i].host.number == number ? &v->entries[i] : NULL;
}

static void drop(struct view *v, const struct entry *entry)
{
	size_t i = (size_t)(entry - v->entries);

	memmove(&v->entries[i], &v->entries[i + 1], (--v->n - i) * sizeof(*entry));
}

static struct entry *named(const struct view *v, const char *name)
{
	for (size_t i = 0; i < v->n; i++)
		if (strcmp(v->entries[i].host.name, name) == 0)
			return &v->entries[i];
	return NULL;
}

/* Makes room for one more by forgetting the host that is gone for longest. */
static bool make_room(struct view *v)
{
	const struct entry *oldest = NULL;

	if (v->n < OTHERS_MAX)
		return true;
	for (size_t i = 0; i < v->n; i++) {
		const struct entry *each = &v->entries[i];

		if (each->host.gone && (!oldest || each->host.gone < oldest->host.gone))
			oldest = each;
	}
	if (oldest)
		drop(v, oldest);
	return oldest != NULL;
}

/* Two hosts with one name cannot be told apart by their certificates. Returns the one that has it
 * already; a host that is gone gives its name up. */
static const char *name_taken_by(struct view *v, const struct fleet_host *h, uint32_t *number)
{
	struct entry *other = named(v, h->name);

	*number = v->self->host.number;
	if (strcmp(v->self->host.name, h->name) == 0)
		return h->name;
	if (!other || other->host.number == h->number)
		return NULL;
	if (other->host.gone) {
		drop(v, other);
		return NULL;
	}
	*number = other->host.number;
	return h->name;
}

static void set(struct view *v, const struct fleet_host *h)
{
	struct entry *entry = find(v, h->number);

	if (!entry) {
		if (!make_room(v)) {
			log_error("host %u (%s) is left out of the table: it has %d hosts already",
				  h->number, h->name, FLEET_HOSTS_MAX);
			return;
		}
		entry = &v->entries[position(v, h->number)];
		memmove(entry + 1, entry, (size_t)(&v->entries[v->n++] - entry) * sizeof(*entry));
	}
	*entry = (struct entry){.host = *h, .listed = true};
}

static void set_gone(struct entry *entry, int64_t now)
{
	if (entry->host.gone)
		return;
	log_warn("host %u (%s) is gone: its lease in etcd ended", entry->host.number,
		 entry->host.name);
	entry->host.gone = entry->host.seen = now;
}

bool view_load(struct view *v, const char *text, size_t len)
{
	struct fleet_table *t;
	struct err e;

	if (fleet_table_read(&t, text, len, &e) < 0)
		return false;
	bool ours = strcmp(t->fleet, v->self->fleet) == 0 && t->cell == v->cell &&
		    t->self->number == v->self->host.number;
	for (size_t i = 0; ours && i < t->n; i++)
		if (&t->hosts[i] != t->self && strcmp(t->hosts[i].name, v->self->host.name) != 0)
			set(v, &t->hosts[i]);
	free(t);
	return ours;
}

/* --- cards ------------------------------------------------------------------------------------ */

static void check_clock(const struct fleet_host *h, int64_t now)
{
	if (llabs(h->seen - now) > VIEW_CLOCK_S)
		log_warn("the clock of host %u (%s) differs from this host's by %lld s, and %d s "
			 "are allowed: set both by NTP",
			 h->number, h->name, (long long)(h->seen - now), VIEW_CLOCK_S);
}

/* Returns why the host of this card cannot be in the table, or 0. */
static int check_card(struct view *v, const struct card *card, uint32_t number, struct err *e)
{
	uint32_t other;

	if (card->host.number != number)
		return err_say(e, EINVAL, "it says that it is host %u", card->host.number);
	if (strcmp(card->fleet, v->self->fleet) != 0)
		return err_say(e, EINVAL, "it belongs to the fleet %.60s, and this host to %.60s",
			       card->fleet, v->self->fleet);
	if (name_taken_by(v, &card->host, &other))
		return err_say(e, EEXIST, "host %u has the same name", other);
	return 0;
}

static void take_own(struct view *v, const struct card *card)
{
	v->self_listed = strcmp(card->instance, v->self->instance) == 0;
	v->self_lost |= !v->self_listed;
}

static void take_card(struct view *v, uint32_t number, const struct etcd_pair *pair, bool live,
		      int64_t now)
{
	struct card card;
	struct err e;
	int ret = card_read(&card, pair->value, pair->value_len, &e);

	if (number == v->self->host.number) {
		take_own(v, &card);
		return;
	}
	if (ret == 0)
		ret = check_card(v, &card, number, &e);
	if (ret < 0) {
		log_error("host %u (%s) is left out of the table: %s", number,
			  card.host.name[0] ? card.host.name : "its card is damaged", e.text);
		return;
	}
	if (live)
		check_clock(&card.host, now);
	card.host.gone = 0;
	set(v, &card.host);
}

void view_take(struct view *v, const struct etcd_pair *pair, bool live, int64_t now)
{
	size_t len = strlen(v->hosts_prefix);
	uint32_t number;

	if (strncmp(pair->key, v->hosts_prefix, len) != 0)
		return;
	if (!number_parse(pair->key + len, 0, FLEET_NUMBER_MAX, &number)) {
		log_error("the key %.100s in etcd is not that of a host: it is ignored", pair->key);
		return;
	}
	if (!pair->deleted) {
		take_card(v, number, pair, live, now);
		return;
	}
	struct entry *entry = find(v, number);
	if (entry)
		set_gone(entry, now);
	v->self_lost |= number == v->self->host.number;
}

/* --- lists ------------------------------------------------------------------------------------ */

void view_list_begin(struct view *v)
{
	for (size_t i = 0; i < v->n; i++)
		v->entries[i].listed = false;
	v->self_listed = false;
}

void view_list_end(struct view *v, int64_t now)
{
	v->self_lost |= !v->self_listed;
	for (size_t i = v->n; i-- > 0;) {
		struct entry *entry = &v->entries[i];

		if (!entry->listed)
			set_gone(entry, now);
		if (entry->host.gone && now - entry->host.gone > VIEW_GONE_KEEP_S)
			drop(v, entry);
	}
}

bool view_self_lost(struct view *v)
{
	bool lost = v->self_lost;

	v->self_lost = false;
	return lost;
}

/* --- the table -------------------------------------------------------------------------------- */

void view_hosts(const struct view *v, struct text *out)
{
	size_t self = position(v, v->self->host.number);

	text_puts(out, "{\"format\":1");
	json_member(out, "fleet", v->self->fleet);
	text_printf(out, ",\"cell\":%u,\"self\":%u,\"hosts\":[\n", v->cell, v->self->host.number);
	for (size_t i = 0; i <= v->n; i++) {
		if (i)
			text_puts(out, ",\n");
		host_write(out, i == self  ? &v->self->host
				: i < self ? &v->entries[i].host
					   : &v->entries[i - 1].host);
	}
	text_puts(out, "]}\n");
}
