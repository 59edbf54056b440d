// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/fleet/id.h"

struct entry {
	struct fleet_host host;
	bool listed; /* in the list that is being read */
};

struct ordered {
	uint32_t number; /* number of the host, which may be unknown */
	struct order order;
};

struct view {
	const struct card *self;
	uint32_t cell;
	char hosts_prefix[32];	/* "/ramet/3/hosts/" */
	char orders_prefix[32]; /* "/ramet/3/orders/" */
	bool self_listed, self_lost;
	size_t n;
	struct entry *entries; /* the other hosts, by number; FLEET_HOSTS_MAX - 1 fit */
	size_t n_orders, orders_room;
	struct ordered *orders; /* those of another kind than ORDER_SERVE: few at a time */
};

#define OTHERS_MAX (FLEET_HOSTS_MAX - 1)

struct view *view_new(const struct card *self, uint32_t cell)
{
	struct view *v = must_alloc(sizeof(*v));

	v->self = self;
	v->cell = cell;
	v->entries = must_alloc(OTHERS_MAX * sizeof(*v->entries));
	snprintf(v->hosts_prefix, sizeof(v->hosts_prefix), "/ramet/%u/hosts/", cell);
	snprintf(v->orders_prefix, sizeof(v->orders_prefix), "/ramet/%u/orders/", cell);
	return v;
}

void view_free(struct view *v)
{
	if (!v)
		return;
	free(v->entries);
	free(v->orders);
	free(v);
}

/* --- the entries ------------------------------------------------------------------------------ */

/* Returns the index of the host's entry, or the index at which it would be inserted. */
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

/* Makes room for one entry by dropping the host that has been gone longest. */
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

/* Returns whether another host has the name of `h`, with its number in *number: certificates could
 * not tell the two apart. A host that is gone gives its name up. */
static bool name_is_taken(struct view *v, const struct fleet_host *h, uint32_t *number)
{
	struct entry *other = named(v, h->name);

	*number = v->self->host.number;
	if (strcmp(v->self->host.name, h->name) == 0)
		return true;
	if (!other || other->host.number == h->number)
		return false;
	if (other->host.gone) {
		drop(v, other);
		return false;
	}
	*number = other->host.number;
	return true;
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

/* --- orders ----------------------------------------------------------------------------------- */

static struct ordered *order_of(const struct view *v, uint32_t number)
{
	for (size_t i = 0; i < v->n_orders; i++)
		if (v->orders[i].number == number)
			return &v->orders[i];
	return NULL;
}

struct order view_order(const struct view *v, uint32_t number)
{
	const struct ordered *ordered = order_of(v, number);

	return ordered ? ordered->order : (struct order){.kind = ORDER_SERVE};
}

/* Drops the entry of a host that is gone, if an operator has ordered to forget the host. */
static void drop_forgotten(struct view *v, struct entry *entry)
{
	if (entry->host.gone && view_order(v, entry->host.number).kind == ORDER_FORGET) {
		log_info("host %u (%s) is forgotten", entry->host.number, entry->host.name);
		drop(v, entry);
	}
}

static void set_order(struct view *v, uint32_t number, const struct order *order)
{
	struct ordered *ordered = order_of(v, number);
	struct entry *entry = find(v, number);

	if (!ordered) {
		if (order->kind == ORDER_SERVE)
			return;
		if (v->n_orders == FLEET_HOSTS_MAX ||
		    array_grow(&v->orders, &v->orders_room, v->n_orders + 1, sizeof(*ordered)) <
			    0) {
			log_error("an order for host %u is ignored: there are %zu already", number,
				  v->n_orders);
			return;
		}
		ordered = &v->orders[v->n_orders++];
	}
	*ordered = (struct ordered){number, *order};
	if (order->kind == ORDER_SERVE)
		*ordered = v->orders[--v->n_orders];
	if (entry)
		drop_forgotten(v, entry);
}

static void take_order(struct view *v, const struct etcd_pair *pair, const char *number_text)
{
	struct order order = {.kind = ORDER_SERVE};
	uint32_t number;
	struct err e;

	if (!number_parse(number_text, 0, FLEET_NUMBER_MAX, &number))
		log_error("the key %.100s in etcd is not that of a host: it is ignored", pair->key);
	else if (!pair->deleted && order_read(&order, pair->value, pair->value_len, &e) < 0)
		log_error("an order for host %u is ignored: %s", number, e.text);
	else
		set_order(v, number, &order);
}

/* Returns the host as the table shows it. */
static struct fleet_host ordered_host(const struct view *v, const struct fleet_host *h)
{
	const struct order order = view_order(v, h->number);
	struct fleet_host out = *h;

	out.draining |= order.kind == ORDER_DRAIN;
	out.deadline = order.deadline;
	return out;
}

/* Takes over the order that an earlier table shows. */
static void load_order(struct view *v, const struct fleet_host *h)
{
	if (h->draining)
		set_order(v, h->number, &(struct order){ORDER_DRAIN, .deadline = h->deadline});
}

/* --- an earlier table ------------------------------------------------------------------------- */

static void load_host(struct view *v, const struct fleet_host *h)
{
	struct fleet_host plain = *h;

	plain.draining = false; /* kept as an order instead */
	set(v, &plain);
}

bool view_load(struct view *v, const char *text, size_t len)
{
	struct fleet_table *t;
	struct err e;

	if (fleet_table_read(&t, text, len, &e) < 0)
		return false;
	bool ours = strcmp(t->fleet, v->self->fleet) == 0 && t->cell == v->cell &&
		    t->self->number == v->self->host.number;
	for (size_t i = 0; ours && i < t->n; i++) {
		load_order(v, &t->hosts[i]);
		if (&t->hosts[i] != t->self && strcmp(t->hosts[i].name, v->self->host.name) != 0)
			load_host(v, &t->hosts[i]);
	}
	free(t);
	return ours;
}

/* --- cards ------------------------------------------------------------------------------------ */

/* Warns of a host whose clock is wrong. Tolerates a clock that seems late, because etcd is slow
 * while many hosts join at once. If a clock really is a little late, its own host warns: to it, the
 * others are ahead. */
static void check_clock(const struct fleet_host *h, int64_t now)
{
	const int64_t ahead = h->seen - now;

	if (ahead > VIEW_CLOCK_S || ahead < -VIEW_LATE_S)
		log_warn("the clock of host %u (%s) differs from this host's by %lld s: set both "
			 "by NTP",
			 h->number, h->name, (long long)ahead);
}

/* Returns 0 if the host of this card may be in the table, else -errno with the reason in *e. */
static int check_card(struct view *v, const struct card *card, uint32_t number, struct err *e)
{
	uint32_t other;

	if (card->host.number != number)
		return err_say(e, EINVAL, "its card is that of host %u", card->host.number);
	if (strcmp(card->fleet, v->self->fleet) != 0)
		return err_say(e, EINVAL, "it belongs to the fleet %.60s, and this host to %.60s",
			       card->fleet, v->self->fleet);
	if (name_is_taken(v, &card->host, &other))
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
	size_t len = strlen(v->hosts_prefix), orders = strlen(v->orders_prefix);
	uint32_t number;

	if (strncmp(pair->key, v->orders_prefix, orders) == 0)
		take_order(v, pair, pair->key + orders);
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
	v->n_orders = 0;
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
		else
			drop_forgotten(v, entry);
	}
}

bool view_self_lost(struct view *v)
{
	bool lost = v->self_lost;

	v->self_lost = false;
	return lost;
}

/* --- the table -------------------------------------------------------------------------------- */

const struct fleet_host *view_find(const struct view *v, const char *host)
{
	const struct fleet_host *self = &v->self->host;
	uint32_t number;
	const struct entry *entry = named(v, host);

	if (!entry && number_parse(host, 0, FLEET_NUMBER_MAX, &number)) {
		if (number == self->number)
			return self;
		entry = find(v, number);
	}
	if (entry)
		return &entry->host;
	return strcmp(self->name, host) == 0 ? self : NULL;
}

void view_hosts(const struct view *v, struct text *out)
{
	size_t self = position(v, v->self->host.number);

	text_puts(out, "{\"format\":1");
	json_member(out, "fleet", v->self->fleet);
	text_printf(out, ",\"cell\":%u,\"self\":%u,\"hosts\":[\n", v->cell, v->self->host.number);
	for (size_t i = 0; i <= v->n; i++) {
		if (i)
			text_puts(out, ",\n");
		const struct fleet_host h = ordered_host(v, i == self  ? &v->self->host
							    : i < self ? &v->entries[i].host
								       : &v->entries[i - 1].host);
		host_write(out, &h);
	}
	text_puts(out, "]}\n");
}
