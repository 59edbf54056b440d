// SPDX-License-Identifier: Apache-2.0
/*
 * A cell as a queue of events. Its hosts run place.c, slots.c and books.c as a service would;
 * messages between hosts take no time, since they are far shorter than anything that is counted
 * here, but for a write that no create waits for: a ms.
 */
#include "bench/fleet-cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "orchestrator/fleet/books.h"
#include "orchestrator/fleet/place.h"
#include "orchestrator/fleet/slots.h"

#define ROOM	     100 /* of a host, in default sandboxes */
#define TENANTS_RUN  47	 /* sandboxes on each host, in the mean */
#define KINDS	     2
#define REFILL_MS    600
#define LEASE_MS     30000
#define TICK_MS	     10000
#define FORK_SHARE   0.05
#define MEAN_LIFE_MS 152000.0
#define UNKNOWN	     0.0001 /* share of writes whose answer is lost */
#define NOBODY	     UINT16_MAX
#define LOTS	     65536

static const uint32_t kind_size[KINDS] = {1, 2}, kind_warm[KINDS] = {2, 1};

enum event_kind {
	EV_END,	    /* of sandbox a in its life b */
	EV_REFILL,  /* a warm sandbox of kind b is ready on host a, in the host's life b >> 8 */
	EV_COLLECT, /* keeper a asks again for the allowances that it does not know */
	EV_CREATE,  /* of a burst; a: its tenant or NOBODY, b: whether it is counted as a burst */
	EV_BURST,   /* a: whether by one tenant */
	EV_DIE,	    /* host a, for b seconds */
	EV_GONE,    /* the lease of host a ended */
	EV_RETURN,  /* host a works again */
	EV_RANDOM_DEATH,
	EV_RACK, /* 40 hosts die */
	EV_AWAY, /* the database, for a seconds */
	EV_BACK,
	EV_UPGRADE,  /* host a restarts its service; then the next one */
	EV_UPGRADED, /* host a serves again */
	EV_DRAIN,    /* host a, for b seconds; then the next one */
	EV_DRAINED,
	EV_TICK, /* slots that nobody needs are returned */
	EV_SAMPLE,
};

struct event {
	double at; /* ms */
	enum event_kind kind;
	uint32_t a, b;
};

struct sandbox {
	uint16_t host, tenant;
	uint8_t size;
	bool alive;
	uint32_t life;
};

struct holding { /* of one tenant on one host */
	struct slots s;
	double until_ms; /* when its lease ends */
	bool away;	 /* the keeper did not answer, or was not sure */
	bool listed;
};

struct tenant {
	uint32_t cap, running, n_homes;
	uint64_t hash;
	struct books books; /* its keeper's */
	bool drew;	    /* some overdraft */
	double demand;
	uint16_t *homes;
};

struct host {
	struct place place;
	uint32_t used, warm[KINDS], life;
	bool alive, restarting, draining, refilling, registered;
	bool sure; /* as a keeper, since: */
	double begun_ms;
	uint16_t *active; /* tenants with a holding */
	uint32_t n_active;
};

struct cell {
	const struct cell_options *o;
	struct cell_figures *f;
	double now, end, start;
	uint64_t random;
	struct host *hosts;
	struct tenant *tenants;
	struct holding *holdings; /* [host][tenant] */
	struct sandbox *sandboxes;
	uint32_t n_tenants, n_sandboxes, room_sandboxes, *idle, n_idle;
	struct event *events;
	size_t n_events, room_events;
	uint16_t lot[LOTS];		   /* tenants by their share of the creates */
	double per_ms;			   /* mean creates */
	bool away, in_burst, tenant_burst; /* away: the database */
	struct place keepers;
	double changed_ms; /* when they were last others */
	uint64_t at;	   /* number of the last message */
};

static void *must(void *p)
{
	if (!p) {
		fputs("fleet-sim: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* --- random numbers ------------------------------------------------------------------------- */

static uint64_t draw(struct cell *c) /* splitmix64 */
{
	uint64_t x = c->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static double uniform(struct cell *c)
{
	return (double)(draw(c) >> 11) * 0x1p-53;
}

static uint32_t below(struct cell *c, uint32_t n)
{
	return (uint32_t)((draw(c) >> 32) * n >> 32);
}

static double exponential(struct cell *c, double mean)
{
	return -mean * log(1 - uniform(c));
}

/* Most sandboxes live for seconds, few for long; `old`: drawn among those that run. */
static double life_ms(struct cell *c, bool old)
{
	static const double mean[] = {15e3, 150e3, 2080e3};
	const double u = uniform(c);
	const int i = old ? (u > 0.07) + (u > 0.316) : (u > 0.7) + (u > 0.95);

	return exponential(c, mean[i]);
}

/* --- events --------------------------------------------------------------------------------- */

static void post(struct cell *c, double in_ms, enum event_kind kind, uint32_t a, uint32_t b)
{
	if (c->n_events == c->room_events) {
		c->room_events = c->room_events ? 2 * c->room_events : 1024;
		c->events = must(realloc(c->events, c->room_events * sizeof(*c->events)));
	}
	const struct event e = {c->now + in_ms, kind, a, b};
	size_t i = c->n_events++;
	for (size_t up; i && c->events[up = (i - 1) / 4].at > e.at; i = up)
		c->events[i] = c->events[up];
	c->events[i] = e;
}

static struct event pop(struct cell *c)
{
	struct event *v = c->events, first = v[0], last = v[--c->n_events];
	size_t i = 0;

	for (size_t child; (child = 4 * i + 1) < c->n_events;) {
		size_t least = child;

		for (size_t k = child + 1; k < child + 4 && k < c->n_events; k++)
			if (v[k].at < v[least].at)
				least = k;
		if (v[least].at >= last.at)
			break;
		v[i] = v[least];
		i = least;
	}
	v[i] = last;
	return first;
}

/* --- hosts ---------------------------------------------------------------------------------- */

static uint64_t now_ms(const struct cell *c)
{
	return (uint64_t)c->now;
}

static bool serves(const struct host *h)
{
	return h->alive && !h->restarting;
}

static struct place_load load_of(const struct host *h)
{
	struct place_load load = {.used = (uint16_t)(h->used * PLACE_FULL / ROOM),
				  .closed = h->draining};

	for (int k = 0; k < KINDS; k++)
		load.warm[k] = (uint8_t)h->warm[k];
	return load;
}

static void refresh(struct host *h)
{
	h->place.peers[h->place.self].load = load_of(h);
}

/* Makes missing warm sandboxes, one after the other. */
static void refill(struct cell *c, uint32_t i)
{
	struct host *h = &c->hosts[i];

	if (h->refilling || !serves(h) || h->draining)
		return;
	for (uint32_t k = 0; k < KINDS; k++)
		if (h->warm[k] < kind_warm[k]) {
			h->refilling = true;
			post(c, REFILL_MS, EV_REFILL, i, h->life << 8 | k);
			return;
		}
}

/* Tells all hosts whether a host may be used: what the watched table does. */
static void register_host(struct cell *c, uint32_t i, bool ready)
{
	c->hosts[i].registered = ready;
	for (uint32_t k = 0; k < c->o->hosts; k++)
		c->hosts[k].place.peers[i].ready = ready;
}

/* --- slots ---------------------------------------------------------------------------------- */

static struct holding *holding(struct cell *c, uint32_t host, uint32_t tenant)
{
	return &c->holdings[(size_t)host * c->o->tenants + tenant];
}

static void list_active(struct cell *c, uint32_t host, uint32_t tenant)
{
	struct holding *x = holding(c, host, tenant);
	struct host *h = &c->hosts[host];

	if (!x->listed)
		h->active[h->n_active++] = (uint16_t)tenant;
	x->listed = true;
}

static uint32_t keeper_of(const struct cell *c, const struct tenant *t)
{
	return c->keepers.peers[books_keeper(&c->keepers, t->hash)].number;
}

/* Whether the tenant's keeper answers, and is sure of its records. */
static bool keeper_is_sure(const struct cell *c, const struct tenant *t)
{
	const uint32_t keeper = keeper_of(c, t);

	return serves(&c->hosts[keeper]) && c->now >= c->changed_ms + BOOKS_AGREE_MS &&
	       c->hosts[keeper].sure;
}

static struct books_said said(struct cell *c, uint32_t host, uint32_t tenant)
{
	const struct slots *s = &holding(c, host, tenant)->s;

	return (struct books_said){host, ++c->at, s->held, s->used, s->want};
}

/* A keeper that began anew asks all hosts for their allowances. Until they have answered, or all
 * leases have ended, it grants nothing. */
static void collect(struct cell *c, uint32_t keeper)
{
	struct host *k = &c->hosts[keeper];

	if (!serves(k))
		return;
	k->sure = true;
	for (uint32_t i = 0; i < c->o->hosts; i++) {
		struct host *h = &c->hosts[i];

		if (h->registered && !serves(h))
			k->sure = c->now >= k->begun_ms + BOOKS_LEASE_MS;
		for (uint32_t n = 0; serves(h) && n < h->n_active; n++) {
			struct tenant *t = &c->tenants[h->active[n]];
			const struct books_said now = said(c, i, h->active[n]);

			if (keeper_of(c, t) == keeper)
				books_note(&t->books, &now, now_ms(c));
		}
		if (!k->sure)
			break;
	}
	if (!k->sure)
		post(c, 1000, EV_COLLECT, keeper, 0);
}

static void begin_books(struct cell *c, uint32_t keeper)
{
	c->hosts[keeper].sure = false;
	c->hosts[keeper].begun_ms = c->now;
	for (uint32_t i = 0; i < c->n_tenants; i++)
		if (keeper_of(c, &c->tenants[i]) == keeper)
			c->tenants[i].books.n = c->tenants[i].books.total = 0;
	collect(c, keeper);
}

/* Finds the keepers after the table changed. */
static void find_keepers(struct cell *c)
{
	const uint64_t before = books_keepers(&c->keepers);
	const uint32_t n = c->keepers.n;

	c->keepers.n = 0;
	for (uint32_t i = 0; i < c->o->hosts && c->keepers.n < BOOKS_KEEPERS; i++)
		if (c->hosts[i].registered)
			c->keepers.peers[c->keepers.n++].number = i;
	if (n && before == books_keepers(&c->keepers))
		return;
	c->changed_ms = n ? c->now : -BOOKS_AGREE_MS;
	for (uint32_t i = 0; i < c->keepers.n; i++)
		begin_books(c, c->keepers.peers[i].number);
}

/* Nothing is left for a host: some others return what they have to spare. */
static void ask_to_yield(struct cell *c, uint32_t host, uint32_t tenant)
{
	struct tenant *t = &c->tenants[tenant];
	uint32_t hosts[SLOTS_YIELD_HOSTS];
	const size_t n = books_spare(&t->books, host, now_ms(c), hosts);

	for (size_t i = 0; i < n; i++) {
		c->f->yields++;
		if (!serves(&c->hosts[hosts[i]]))
			continue;
		slots_yield(&holding(c, hosts[i], tenant)->s, 1);
		const struct books_said now = said(c, hosts[i], tenant);
		books_note(&t->books, &now, now_ms(c));
	}
}

/* The keeper is asked for what slots_due says; `lacks`: somebody waits for a slot. */
static void write_record(struct cell *c, uint32_t host, uint32_t tenant, bool lacks)
{
	struct holding *x = holding(c, host, tenant);
	struct tenant *t = &c->tenants[tenant];
	const bool sure = keeper_is_sure(c, t);
	const struct books_said now = said(c, host, tenant);

	list_active(c, host, tenant);
	c->f->writes++;
	if (!serves(&c->hosts[keeper_of(c, t)])) {
		x->away = true;
		slots_lost(&x->s);
		return;
	}
	uint32_t held = books_grant(&t->books, t->cap, sure, &now, now_ms(c));
	if (sure && lacks && held <= x->s.used && x->s.used < t->cap) {
		ask_to_yield(c, host, tenant);
		held = books_grant(&t->books, t->cap, sure, &now, now_ms(c));
	}
	x->away = !sure;
	if (uniform(c) < UNKNOWN) {
		slots_lost(&x->s);
		return;
	}
	x->until_ms = c->now + BOOKS_LEASE_MS - 5000;
	slots_written(&x->s, held, books_left(&t->books, t->cap, now_ms(c)), now_ms(c));
	c->f->wrong += x->s.held > held;
}

static void lapse(struct cell *c, struct holding *x)
{
	if (c->now >= x->until_ms)
		slots_lapsed(&x->s);
}

/* To be called every few seconds; `renew`: the record would lapse. */
static void slots_look(struct cell *c, uint32_t host, uint32_t tenant, bool renew)
{
	struct holding *x = holding(c, host, tenant);
	uint32_t want;

	lapse(c, x);
	if (slots_due(&x->s, 0, now_ms(c), &want) || (renew && slots_renew(&x->s, &want)))
		write_record(c, host, tenant, false);
}

static bool draw_slot(struct cell *c, uint32_t tenant, struct holding *x)
{
	struct tenant *t = &c->tenants[tenant];

	if (x->s.used >= slots_allowed(&x->s, x->away))
		return false;
	slots_use(&x->s, x->s.used + 1);
	t->drew |= x->s.used > x->s.held;
	return true;
}

static bool take_slot(struct cell *c, uint32_t host, uint32_t tenant)
{
	struct holding *x = holding(c, host, tenant);
	uint32_t want;

	if (!c->o->limits)
		return true;
	lapse(c, x);
	if (draw_slot(c, tenant, x)) {
		list_active(c, host, tenant);
		return true;
	}
	if (!slots_due(&x->s, 1, now_ms(c), &want))
		return false;
	c->f->waits++;
	write_record(c, host, tenant, true);
	return draw_slot(c, tenant, x);
}

/* --- sandboxes ------------------------------------------------------------------------------ */

static void check_limit(struct cell *c, uint32_t tenant)
{
	const struct tenant *t = &c->tenants[tenant];

	if (t->running <= t->cap || !c->o->limits)
		return;
	const uint32_t over = t->running - t->cap;
	const bool explained = t->drew && over <= t->n_homes * slots_overdraft(t->cap, t->n_homes);

	c->f->above_limit += !explained;
	c->f->overdrawn += explained;
	c->f->most_over = max_u32(c->f->most_over, over * 1000 / t->cap);
}

static void start_sandbox(struct cell *c, uint32_t host, uint32_t tenant, uint32_t size)
{
	if (!c->n_idle && c->n_sandboxes == c->room_sandboxes) {
		const uint32_t room = c->room_sandboxes ? 2 * c->room_sandboxes : 4096;

		c->sandboxes = must(realloc(c->sandboxes, room * sizeof(*c->sandboxes)));
		c->idle = must(realloc(c->idle, room * sizeof(*c->idle)));
		c->room_sandboxes = room;
		memset(&c->sandboxes[c->n_sandboxes], 0,
		       (room - c->n_sandboxes) * sizeof(*c->sandboxes));
	}
	const uint32_t i = c->n_idle ? c->idle[--c->n_idle] : c->n_sandboxes++;
	struct sandbox *s = &c->sandboxes[i];
	*s = (struct sandbox){(uint16_t)host, (uint16_t)tenant, (uint8_t)size, true, s->life + 1};
	c->hosts[host].used += size;
	refresh(&c->hosts[host]);
	c->tenants[tenant].running++;
	check_limit(c, tenant);
	post(c, life_ms(c, c->now < c->start && c->f->creates % 6 == 0), EV_END, i, s->life);
}

static void end_sandbox(struct cell *c, uint32_t i, bool host_lives)
{
	struct sandbox *s = &c->sandboxes[i];

	s->alive = false;
	c->idle[c->n_idle++] = i;
	c->hosts[s->host].used -= s->size;
	c->tenants[s->tenant].running--;
	if (!host_lives)
		return;
	refresh(&c->hosts[s->host]);
	if (c->o->limits) {
		struct slots *slots = &holding(c, s->host, s->tenant)->s;

		slots_use(slots, slots->used - 1);
	}
}

/* --- creates -------------------------------------------------------------------------------- */

static uint32_t entry_host(struct cell *c)
{
	for (;;) {
		const uint32_t i = below(c, c->o->hosts);

		if (serves(&c->hosts[i]) && !c->hosts[i].draining)
			return i;
	}
}

/* Counts a create that was served on the host. */
static void count_served(struct cell *c, uint32_t host, uint32_t kind)
{
	struct cell_figures *f = c->f;
	struct host *h = &c->hosts[host];
	const bool cold = !h->warm[kind];

	f->served++;
	f->cold += cold;
	f->burst_served += c->in_burst && !c->tenant_burst;
	f->burst_cold += cold && c->in_burst && !c->tenant_burst;
	f->tenant_served += c->in_burst && c->tenant_burst;
	f->tenant_cold += cold && c->in_burst && c->tenant_burst;
	if (!cold)
		h->warm[kind]--;
	refill(c, host);
}

static enum place_verdict host_create(struct cell *c, uint32_t host, uint32_t tenant, uint32_t kind,
				      bool warm_only)
{
	struct host *h = &c->hosts[host];
	const struct place_load load = load_of(h);
	const enum place_verdict verdict =
		serves(h) ? place_admit(&load, kind, warm_only) : PLACE_UNREACHABLE;

	if (verdict != PLACE_OK)
		return verdict;
	if (!take_slot(c, host, tenant))
		return PLACE_NO_SLOT;
	count_served(c, host, kind);
	start_sandbox(c, host, tenant, kind_size[kind]);
	return PLACE_OK;
}

static void hear(struct cell *c, uint32_t entry, uint32_t host)
{
	struct place *p = &c->hosts[entry].place;

	if (!serves(&c->hosts[host])) {
		place_silent(p, (uint16_t)host, now_ms(c));
		return;
	}
	const struct place_load load = load_of(&c->hosts[host]);
	place_heard(p, (uint16_t)host, &load, now_ms(c));
}

static enum place_verdict create_by_place(struct cell *c, uint32_t entry, uint32_t tenant,
					  uint32_t kind)
{
	struct place *p = &c->hosts[entry].place;
	const struct tenant *t = &c->tenants[tenant];
	struct place_create create = {.homes = t->homes, .n_homes = t->n_homes, .kind = kind};
	enum place_verdict verdict = PLACE_NO_ROOM;

	for (;;) {
		const struct place_next next = place_next(p, &create, draw(c), now_ms(c));

		if (next.step == PLACE_REFUSED)
			return verdict;
		if (next.step == PLACE_ASK) {
			for (int i = 0; i < PLACE_PICKS; i++)
				if (next.hosts[i] != NOBODY) {
					c->f->asks++;
					hear(c, entry, next.hosts[i]);
				}
			continue;
		}
		c->f->hops += next.step == PLACE_SEND;
		verdict = host_create(c, next.hosts[0], tenant, kind, next.warm_only);
		if (next.step == PLACE_SEND)
			hear(c, entry, next.hosts[0]);
		if (verdict == PLACE_OK || verdict == PLACE_NO_SLOT)
			return verdict;
		place_refused(p, &create, next.hosts[0], verdict, now_ms(c));
	}
}

static enum place_verdict create_by_better(struct cell *c, uint32_t entry, uint32_t tenant,
					   uint32_t kind)
{
	const struct host *own = &c->hosts[entry];
	uint32_t a = entry_host(c), b = entry_host(c);

	if (own->warm[kind] && own->used * PLACE_FULL < PLACE_CREATE_FULL * ROOM)
		return host_create(c, entry, tenant, kind, false);
	const struct host *x = &c->hosts[a], *y = &c->hosts[b];
	if (!x->warm[kind] != !y->warm[kind] ? y->warm[kind] > 0 : y->used < x->used)
		a = b;
	c->f->hops++;
	return host_create(c, a, tenant, kind, false);
}

/* Returns whether the tenant runs less than nine tenths of its limit. */
static bool below_limit(const struct tenant *t)
{
	return t->running < t->cap - t->cap / 10;
}

static void count_refused(struct cell *c, uint32_t tenant, enum place_verdict why)
{
	const struct tenant *t = &c->tenants[tenant];

	if (c->o->limits && t->running >= t->cap) {
		c->f->refused_limit++;
		return;
	}
	if (why == PLACE_NO_SLOT) {
		const bool away = !keeper_is_sure(c, t);

		c->f->refused_away += away;
		c->f->refused_near += !away && !below_limit(t);
		c->f->refused_below += !away && below_limit(t);
		return;
	}
	for (uint32_t i = 0; i < c->o->hosts; i++) {
		const struct host *h = &c->hosts[i];

		if (serves(h) && !h->draining && h->used * PLACE_FULL < PLACE_CREATE_FULL * ROOM) {
			c->f->refused_room++;
			return;
		}
	}
	c->f->refused_full++;
}

static void create(struct cell *c, uint32_t tenant)
{
	const uint32_t entry = entry_host(c), kind = uniform(c) < 0.15;
	enum place_verdict verdict;

	c->f->creates++;
	if (c->o->policy == POLICY_LANDS)
		verdict = host_create(c, entry, tenant, kind, false);
	else if (c->o->policy == POLICY_BETTER)
		verdict = create_by_better(c, entry, tenant, kind);
	else
		verdict = create_by_place(c, entry, tenant, kind);
	if (verdict != PLACE_OK)
		count_refused(c, tenant, verdict);
}

static void count_fork_refused(struct cell *c, const struct tenant *t)
{
	const bool away = !keeper_is_sure(c, t);

	c->f->forks_no_slot += below_limit(t) && !away;
	c->f->forks_away += below_limit(t) && away;
}

/* A running sandbox forks one to four children, on its host. */
static void fork_some(struct cell *c)
{
	const struct sandbox parent = c->sandboxes[below(c, c->n_sandboxes)];

	if (!parent.alive || !serves(&c->hosts[parent.host]))
		return;
	for (uint32_t n = 1 + below(c, 4); n > 0; n--) {
		c->f->forks++;
		if (load_of(&c->hosts[parent.host]).used >= PLACE_FULL)
			c->f->forks_no_room++;
		else if (!take_slot(c, parent.host, parent.tenant))
			count_fork_refused(c, &c->tenants[parent.tenant]);
		else
			start_sandbox(c, parent.host, parent.tenant, parent.size);
	}
}

static void arrive(struct cell *c)
{
	if (c->n_sandboxes && uniform(c) < FORK_SHARE)
		fork_some(c);
	else
		create(c, c->lot[draw(c) >> 48]);
}

/* Three quarters of all warm sandboxes are taken within a second. */
static void burst(struct cell *c, bool one)
{
	uint32_t n = 0, tenant = NOBODY;

	for (uint32_t i = 0; i < c->o->hosts; i++)
		for (int k = 0; k < KINDS; k++)
			n += c->hosts[i].warm[k];
	if (one)
		tenant = 250 * below(c, (c->n_tenants + 249) / 250); /* a large one */
	n = n * 3 / 4;
	for (uint32_t i = 0; i < n; i++)
		post(c, uniform(c) * 1000, EV_CREATE, tenant, 0);
	post(c, min_u64((uint64_t)((c->end - c->start) / 4), 3600000), EV_BURST, !one, 0);
}

static void burst_create(struct cell *c, uint32_t tenant)
{
	c->in_burst = true;
	c->tenant_burst = tenant != NOBODY;
	create(c, tenant != NOBODY ? tenant : c->lot[draw(c) >> 48]);
	c->in_burst = false;
}

/* --- what goes wrong ------------------------------------------------------------------------ */

static void drop_holdings(struct cell *c, uint32_t host)
{
	struct host *h = &c->hosts[host];

	for (uint32_t i = 0; i < h->n_active; i++) {
		struct holding *x = holding(c, host, h->active[i]);

		x->s = (struct slots){.cap = x->s.cap,
				      .homes = x->s.homes,
				      .share = x->s.share,
				      .left = x->s.cap};
		x->until_ms = 0;
		x->listed = false;
	}
	h->n_active = 0;
}

static void die(struct cell *c, uint32_t i, uint32_t for_s)
{
	struct host *h = &c->hosts[i];

	if (!h->alive)
		return;
	h->alive = h->refilling = false;
	h->life++;
	memset(h->warm, 0, sizeof(h->warm));
	for (uint32_t k = 0; k < c->n_sandboxes; k++)
		if (c->sandboxes[k].alive && c->sandboxes[k].host == i) {
			c->f->lost++;
			end_sandbox(c, k, false);
		}
	drop_holdings(c, i);
	post(c, LEASE_MS, EV_GONE, i, 0);
	post(c, for_s * 1000.0, EV_RETURN, i, 0);
}

static void gone(struct cell *c, uint32_t i)
{
	if (c->away) { /* no lease ends without the database */
		post(c, LEASE_MS, EV_GONE, i, 0);
		return;
	}
	register_host(c, i, false);
	find_keepers(c);
}

static void come_back(struct cell *c, uint32_t i)
{
	if (c->away || c->hosts[i].registered) { /* the old lease first */
		post(c, 2 * LEASE_MS, EV_RETURN, i, 0);
		return;
	}
	c->hosts[i].alive = true;
	register_host(c, i, true);
	find_keepers(c);
	refresh(&c->hosts[i]);
	refill(c, i);
}

static void upgrade(struct cell *c, uint32_t i)
{
	struct host *h = &c->hosts[i];

	if (i + 1 < c->o->hosts) /* all of them within a seventh of the time */
		post(c, (c->end - c->start) / 7 / c->o->hosts, EV_UPGRADE, i + 1, 0);
	if (!h->alive)
		return;
	h->restarting = true;
	h->refilling = false;
	h->life++;
	memset(h->warm, 0, sizeof(h->warm));
	refresh(h);
	for (uint32_t k = 0; k < h->n_active; k++) /* what it held is in memory only */
		slots_lapsed(&holding(c, i, h->active[k])->s);
	post(c, 2000, EV_UPGRADED, i, 0);
}

static bool is_keeper(const struct cell *c, uint32_t host)
{
	for (uint32_t i = 0; i < c->keepers.n; i++)
		if (c->keepers.peers[i].number == host)
			return true;
	return false;
}

static void upgraded(struct cell *c, uint32_t i)
{
	struct host *h = &c->hosts[i];

	h->restarting = false;
	refill(c, i);
	if (is_keeper(c, i))
		begin_books(c, i);
	for (uint32_t k = 0; k < h->n_active; k++)
		slots_look(c, i, h->active[k], true);
}

static void drain(struct cell *c, uint32_t i, uint32_t for_s)
{
	if (i + 1 < c->o->hosts / 10)
		post(c, 180e3, EV_DRAIN, i + 1, for_s);
	c->hosts[i].draining = true;
	refresh(&c->hosts[i]);
	post(c, for_s * 1000.0, EV_DRAINED, i, 0);
}

static void tick(struct cell *c)
{
	for (uint32_t i = 0; i < c->o->hosts; i++) {
		struct host *h = &c->hosts[i];

		for (uint32_t k = serves(h) ? h->n_active : 0; k-- > 0;) {
			const uint16_t tenant = h->active[k];
			struct holding *x = holding(c, i, tenant);

			if (x->s.held || x->s.used || x->s.want) {
				slots_look(c, i, tenant, true);
				continue;
			}
			x->listed = false;
			h->active[k] = h->active[--h->n_active];
		}
	}
	post(c, TICK_MS, EV_TICK, 0, 0);
}

static void sample(struct cell *c)
{
	uint32_t most = 0, n = 0;
	uint64_t sum = 0;

	post(c, 60000, EV_SAMPLE, 0, 0);
	for (uint32_t i = 0; i < c->o->hosts; i++) {
		const struct host *h = &c->hosts[i];

		if (!h->alive || h->draining)
			continue;
		most = max_u32(most, h->used);
		sum += h->used;
		n++;
	}
	if (c->now < c->start || !sum)
		return;
	const double mean = (double)sum / n;
	c->f->spread[c->f->n_spread++] = (float)(most / mean);
	c->f->mean_used += mean / ROOM;
}

static void on_event(struct cell *c, const struct event *e)
{
	struct host *h = &c->hosts[e->a < c->o->hosts ? e->a : 0];

	switch (e->kind) {
	case EV_END:
		if (c->sandboxes[e->a].alive && c->sandboxes[e->a].life == e->b)
			end_sandbox(c, e->a, true);
		break;
	case EV_REFILL:
		if (h->life != e->b >> 8 || !h->refilling)
			break;
		h->refilling = false;
		h->warm[e->b & 0xff]++;
		refresh(h);
		refill(c, e->a);
		break;
	case EV_COLLECT:
		if (!h->sure && is_keeper(c, e->a))
			collect(c, e->a);
		break;
	case EV_CREATE:
		burst_create(c, e->a);
		break;
	case EV_BURST:
		burst(c, e->a);
		break;
	case EV_DIE:
		die(c, e->a, e->b);
		break;
	case EV_GONE:
		gone(c, e->a);
		break;
	case EV_RETURN:
		come_back(c, e->a);
		break;
	case EV_RANDOM_DEATH:
		die(c, below(c, c->o->hosts), 600);
		post(c, exponential(c, 30 * 86400e3 / c->o->hosts), EV_RANDOM_DEATH, 0, 0);
		break;
	case EV_RACK:
		for (uint32_t i = 0, first = below(c, c->o->hosts);
		     i < min_u32(40, c->o->hosts / 25 + 1); i++)
			die(c, (first + i) % c->o->hosts, e->a);
		break;
	case EV_AWAY:
		c->away = true;
		post(c, e->a * 1000.0, EV_BACK, 0, 0);
		break;
	case EV_BACK:
		c->away = false;
		break;
	case EV_UPGRADE:
		upgrade(c, e->a);
		break;
	case EV_UPGRADED:
		upgraded(c, e->a);
		break;
	case EV_DRAIN:
		drain(c, e->a, e->b);
		break;
	case EV_DRAINED:
		h->draining = false;
		refresh(h);
		refill(c, e->a);
		break;
	case EV_TICK:
		tick(c);
		break;
	case EV_SAMPLE:
		sample(c);
		break;
	}
}

/* --- a run ---------------------------------------------------------------------------------- */

/* Limits as the tiers have them. */
static uint32_t tenant_cap(const struct cell_options *o, uint32_t i)
{
	if (i % 250 == 0)
		return min_u32(10ull * o->hosts, 10000);
	if (i % 12 == 1)
		return 500;
	return i % 5 < 2 ? 50 : 10;
}

static void make_tenants(struct cell *c)
{
	double sum = 0, sofar = 0;
	uint32_t n = 0, at = 0;

	for (; n < c->o->tenants && sum < TENANTS_RUN * c->o->hosts; n++) {
		const uint32_t i = n;
		struct tenant *t = &c->tenants[i];

		t->cap = tenant_cap(c->o, i);
		t->demand = t->cap * (0.05 + 0.75 * uniform(c));
		sum += t->demand;
		t->n_homes = c->o->limits ? place_homes_wanted(t->cap, c->o->hosts) : c->o->hosts;
		t->homes = must(calloc(t->n_homes, sizeof(*t->homes)));
		t->hash = draw(c);
		place_homes(&c->hosts[0].place, t->hash, t->homes, t->n_homes);
		for (uint32_t h = 0; h < c->o->hosts; h++)
			holding(c, h, i)->s =
				(struct slots){.cap = t->cap, .homes = t->n_homes, .left = t->cap};
		for (uint32_t h = 0; h < t->n_homes; h++)
			holding(c, t->homes[h], i)->s.share = slots_share(t->cap, t->n_homes);
	}
	c->n_tenants = n;
	for (uint32_t i = 0; i < n; i++) {
		sofar += c->tenants[i].demand;
		while (at < LOTS && at < sofar / sum * LOTS)
			c->lot[at++] = (uint16_t)i;
	}
}

static void make_hosts(struct cell *c)
{
	const uint32_t n = c->o->hosts;

	for (uint32_t i = 0; i < n; i++) {
		struct host *h = &c->hosts[i];

		h->place = (struct place){must(calloc(n, sizeof(struct place_peer))), n, i, 0};
		h->active = must(calloc(c->o->tenants, sizeof(*h->active)));
		h->alive = h->registered = true;
		for (uint32_t k = 0; k < n; k++)
			h->place.peers[k] = (struct place_peer){.number = k, .ready = true};
		memcpy(h->warm, kind_warm, sizeof(h->warm));
		refresh(h);
	}
}

static void post_faults(struct cell *c)
{
	const double all = c->end - c->start, at = c->start;
	const uint32_t away_s = (uint32_t)fmin(1800, all / 8000);

	post(c, at + exponential(c, 30 * 86400e3 / c->o->hosts), EV_RANDOM_DEATH, 0, 0);
	post(c, at + 0.15 * all, EV_RACK, (uint32_t)fmin(1200, all / 8000), 0);
	post(c, at + 0.35 * all, EV_AWAY, away_s, 0);
	post(c, at + 0.36 * all, EV_DIE, below(c, c->o->hosts), 600);
	post(c, at + 0.55 * all, EV_UPGRADE, 0, 0);
	post(c, at + 0.75 * all, EV_DRAIN, 0, (uint32_t)fmin(1800, all / 8000));
}

/* Creates in a ms: more by day than by night. Before the start the cell fills. */
static double rate(const struct cell *c)
{
	if (c->now < c->start)
		return c->per_ms + 0.7 * c->per_ms * MEAN_LIFE_MS / c->start;
	return c->per_ms * (1 + 0.25 * sin(2 * M_PI * (c->now - c->start) / 86400e3));
}

static void play(struct cell *c, double until)
{
	double next = c->now + exponential(c, 1 / rate(c));

	while (fmin(next, c->events[0].at) < until) {
		if (next <= c->events[0].at) {
			c->now = next;
			arrive(c);
			next = c->now + exponential(c, 1 / rate(c));
			continue;
		}
		const struct event e = pop(c);
		c->now = e.at;
		on_event(c, &e);
	}
	c->now = until;
}

static void free_cell(struct cell *c)
{
	for (uint32_t i = 0; i < c->o->hosts; i++) {
		free(c->hosts[i].place.peers);
		free(c->hosts[i].active);
	}
	for (uint32_t i = 0; i < c->o->tenants; i++) {
		free(c->tenants[i].homes);
		free(c->tenants[i].books.records);
	}
	free(c->keepers.peers);
	free(c->hosts);
	free(c->tenants);
	free(c->holdings);
	free(c->sandboxes);
	free(c->idle);
	free(c->events);
}

void cell_run(const struct cell_options *o, struct cell_figures *f)
{
	struct cell *c = must(calloc(1, sizeof(*c)));

	*c = (struct cell){.o = o, .f = f, .random = o->seed};
	*f = (struct cell_figures){
		.spread = must(calloc((size_t)(o->hours * 60) + 2, sizeof(*f->spread)))};
	c->start = fmin(600e3, o->hours * 3600e3 / 2);
	c->end = c->start + o->hours * 3600e3;
	c->hosts = must(calloc(o->hosts, sizeof(*c->hosts)));
	c->tenants = must(calloc(o->tenants, sizeof(*c->tenants)));
	c->holdings = must(calloc((size_t)o->hosts * o->tenants, sizeof(*c->holdings)));
	c->per_ms = 0.33e-3 * o->hosts;
	make_hosts(c);
	make_tenants(c);
	c->keepers.peers = must(calloc(BOOKS_KEEPERS, sizeof(*c->keepers.peers)));
	find_keepers(c);
	post(c, 0, EV_TICK, 0, 0);
	post(c, 60000, EV_SAMPLE, 0, 0);
	post(c, c->start + (c->end - c->start) / 48, EV_BURST, 0, 0);
	if (o->faults)
		post_faults(c);
	play(c, c->start);
	float *spread = f->spread;
	*f = (struct cell_figures){
		.spread = spread, .above_limit = f->above_limit, .wrong = f->wrong};
	play(c, c->end);
	f->seconds = (c->end - c->start) / 1000;
	f->mean_used = f->n_spread ? f->mean_used / f->n_spread : 0;
	free_cell(c);
	free(c);
}
