// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/place.h"

#include "base/num.h"

#define NONE UINT16_MAX

/* --- what a host says of itself ------------------------------------------------------------- */

static uint64_t share(uint64_t used, uint64_t total)
{
	return total && used < total ? used * PLACE_FULL / total : PLACE_FULL;
}

uint16_t place_used(const struct place_room *room)
{
	uint64_t most = share(room->memory_used, room->memory);

	most = max_u64(most, share(room->vms_used, room->vms));
	return (uint16_t)max_u64(most, share(room->disk_used, room->disk - room->disk * 15 / 100));
}

void place_result(struct place_health *health, bool ok, uint64_t now_ms)
{
	if (ok) {
		*health = (struct place_health){0};
		return;
	}
	if (++health->failed < PLACE_FAILURES)
		return;
	health->wait_ms = backoff_next(health->wait_ms, PLACE_RETRY_MS, PLACE_RETRY_MAX);
	health->open_ms = now_ms + health->wait_ms;
}

bool place_closed(const struct place_health *health, uint64_t now_ms)
{
	return health->failed >= PLACE_FAILURES && now_ms < health->open_ms;
}

enum place_verdict place_admit(const struct place_load *load, uint32_t kind, bool warm_only)
{
	if (load->closed)
		return PLACE_IS_CLOSED;
	if (load->used >= PLACE_CREATE_FULL)
		return PLACE_NO_ROOM;
	return warm_only && !load->warm[kind] ? PLACE_NO_WARM : PLACE_OK;
}

/* --- homes ---------------------------------------------------------------------------------- */

/* The finalizer of MurmurHash3: every bit of the input changes half of the output's. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

static uint64_t score(const struct place *p, uint64_t tenant, uint32_t i)
{
	return mix(tenant ^ mix(p->peers[i].number + 1));
}

uint32_t place_homes_wanted(uint32_t cap, uint32_t n)
{
	return min_u32(max_u32(cap / 16, 3), n);
}

static void swap(uint16_t *a, uint16_t *b)
{
	uint16_t t = *a;

	*a = *b;
	*b = t;
}

/* Restores the heap of `n` homes, whose root has the lowest score, after a change at its root. */
static void sink(const struct place *p, uint64_t tenant, uint16_t *homes, uint32_t n, uint32_t at)
{
	for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n &&
		    score(p, tenant, homes[child + 1]) < score(p, tenant, homes[child]))
			child++;
		if (score(p, tenant, homes[at]) <= score(p, tenant, homes[child]))
			return;
		swap(&homes[at], &homes[child]);
	}
}

void place_homes(const struct place *p, uint64_t tenant, uint16_t *homes, uint32_t want)
{
	if (!want)
		return;
	for (uint32_t i = 0; i < want; i++)
		homes[i] = (uint16_t)i;
	for (uint32_t i = want / 2; i-- > 0;)
		sink(p, tenant, homes, want, i);
	for (uint32_t i = want; i < p->n; i++) {
		if (score(p, tenant, i) <= score(p, tenant, homes[0]))
			continue;
		homes[0] = (uint16_t)i;
		sink(p, tenant, homes, want, 0);
	}
	for (uint32_t left = want; left-- > 1;) { /* moves the lowest score to the end each time */
		swap(&homes[0], &homes[left]);
		sink(p, tenant, homes, left, 0);
	}
}

/* --- which host ----------------------------------------------------------------------------- */

static bool was_tried(const struct place_create *c, uint16_t host)
{
	for (uint32_t i = 0; i < c->n_tried; i++)
		if (c->tried[i] == host)
			return true;
	return false;
}

/* Returns whether the host is worth a question: nothing known speaks against it. */
static bool usable(const struct place *p, const struct place_create *c, uint16_t host,
		   uint64_t now_ms)
{
	const struct place_peer *peer = &p->peers[host];

	return peer->ready && now_ms >= peer->silent_ms && !was_tried(c, host);
}

static bool fresh(const struct place *p, uint16_t host, uint64_t now_ms)
{
	const struct place_peer *peer = &p->peers[host];

	return peer->heard_ms && now_ms - peer->heard_ms < PLACE_FRESH_MS;
}

static bool has_room(const struct place_load *load)
{
	return !load->closed && load->used < PLACE_CREATE_FULL;
}

/* Returns whether this host can make the sandbox, warm or not. */
static bool can_be_here(const struct place *p, const struct place_create *c)
{
	const struct place_peer *self = &p->peers[p->self];

	return !c->not_here && self->ready && has_room(&self->load);
}

/* Picks two hosts for this turn: homes, then any. */
static void draw(const struct place *p, struct place_create *c, uint64_t random, uint64_t now_ms)
{
	const bool anywhere =
		!c->only_homes && (c->n_homes < PLACE_PICKS || c->turn >= PLACE_HOME_TURNS);
	const uint32_t n = anywhere ? p->n : c->n_homes;

	for (uint32_t i = 0; i < PLACE_PICKS; i++) {
		c->picks[i] = NONE;
		for (uint32_t tries = 0; tries < 4 && c->picks[i] == NONE; tries++) {
			const uint32_t at = (uint32_t)((random & 0xffffffff) * n >> 32);
			const uint16_t host = anywhere ? (uint16_t)at : c->homes[at];

			random = mix(random + 1);
			if (host != p->self && (!i || host != c->picks[0]) &&
			    usable(p, c, host, now_ms))
				c->picks[i] = host;
		}
	}
	c->drawn = true;
}

/* Returns whether host x is better than y: it has a warm sandbox, or more room. */
static bool better(const struct place *p, const struct place_create *c, uint16_t x, uint16_t y)
{
	const struct place_load *a = &p->peers[x].load, *b = &p->peers[y].load;

	if (!a->warm[c->kind] != !b->warm[c->kind])
		return a->warm[c->kind] > 0;
	return a->used < b->used;
}

/* Returns the best host of this turn, or NONE. This host is preferred: its load is exact, and
 * nothing has to be sent. */
static uint16_t best(const struct place *p, const struct place_create *c, uint64_t now_ms)
{
	const struct place_load *own = &p->peers[p->self].load;
	uint16_t found = NONE;

	for (uint32_t i = 0; i < PLACE_PICKS; i++) {
		const uint16_t host = c->picks[i];

		if (host == NONE || !usable(p, c, host, now_ms) || !fresh(p, host, now_ms) ||
		    !has_room(&p->peers[host].load))
			continue;
		if (found == NONE || better(p, c, host, found))
			found = host;
	}
	if (!can_be_here(p, c))
		return found;
	if (found == NONE)
		return (uint16_t)p->self;
	const struct place_load *other = &p->peers[found].load;
	const bool warmer = other->warm[c->kind] && !own->warm[c->kind];

	return warmer || (own->used > other->used + PLACE_SLACK && other->warm[c->kind])
		       ? found
		       : (uint16_t)p->self;
}

/* Returns whether this host takes the create without a look at others. */
static bool here_at_once(const struct place *p, const struct place_create *c)
{
	const struct place_peer *self = &p->peers[p->self];

	return c->turn == 0 && can_be_here(p, c) && self->load.warm[c->kind] &&
	       (!p->mean || self->load.used <= p->mean / 256 + PLACE_SLACK);
}

static bool can_fall_back(const struct place *p, const struct place_create *c, uint64_t now_ms)
{
	if (!c->found || !has_room(&p->peers[c->fallback].load))
		return false;
	return c->fallback == p->self ? !c->not_here : usable(p, c, c->fallback, now_ms);
}

static struct place_next ask(const struct place *p, struct place_create *c, uint64_t now_ms)
{
	struct place_next next = {.step = PLACE_ASK, .hosts = {NONE, NONE}};

	for (uint32_t i = 0; i < PLACE_PICKS; i++)
		if (c->picks[i] != NONE && !fresh(p, c->picks[i], now_ms))
			next.hosts[i] = c->picks[i];
	c->asked = true;
	return next;
}

static bool knows_picks(const struct place *p, const struct place_create *c, uint64_t now_ms)
{
	for (uint32_t i = 0; i < PLACE_PICKS; i++)
		if (c->picks[i] != NONE && !fresh(p, c->picks[i], now_ms))
			return false;
	return true;
}

static void next_turn(struct place_create *c)
{
	c->turn++;
	c->drawn = c->asked = false;
}

/* Returns whether no other host is asked after this one. Then a cold sandbox is better than
 * none. */
static bool is_last_try(const struct place_create *c)
{
	return c->turn == PLACE_TURNS - 1 || c->n_tried == PLACE_SENDS - 1;
}

/* Sends the create to the host, and counts on its success until the host says otherwise. */
static struct place_next send_to(struct place *p, struct place_create *c, uint16_t host)
{
	struct place_load *load = &p->peers[host].load;
	const bool here = host == p->self;

	if (!here && load->warm[c->kind])
		load->warm[c->kind]--;
	return (struct place_next){.step = here ? PLACE_HERE : PLACE_SEND,
				   .warm_only = !is_last_try(c),
				   .hosts = {host, NONE}};
}

struct place_next place_next(struct place *p, struct place_create *c, uint64_t random,
			     uint64_t now_ms)
{
	if (here_at_once(p, c))
		return send_to(p, c, (uint16_t)p->self);
	for (; c->turn < PLACE_TURNS && c->n_tried < PLACE_SENDS; next_turn(c)) {
		if (c->turn == PLACE_TURNS - 1 && can_fall_back(p, c, now_ms))
			return send_to(p, c, c->fallback);
		if (!c->drawn)
			draw(p, c, mix(random + c->turn), now_ms);
		if (!c->asked && !knows_picks(p, c, now_ms))
			return ask(p, c, now_ms);
		const uint16_t host = best(p, c, now_ms);
		if (host == NONE)
			continue;
		if (c->turn == PLACE_TURNS - 1 || p->peers[host].load.warm[c->kind])
			return send_to(p, c, host);
		if (!c->found)
			c->fallback = host;
		c->found = true;
	}
	if (can_be_here(p, c)) {
		c->turn = PLACE_TURNS - 1;
		return send_to(p, c, (uint16_t)p->self);
	}
	return (struct place_next){.step = PLACE_REFUSED, .hosts = {NONE, NONE}};
}

void place_refused(struct place *p, struct place_create *c, uint16_t host, enum place_verdict why,
		   uint64_t now_ms)
{
	struct place_load *load = &p->peers[host].load;

	if (why == PLACE_UNREACHABLE)
		place_silent(p, host, now_ms);
	else if (why == PLACE_NO_WARM)
		load->warm[c->kind] = 0;
	else if (why == PLACE_NO_ROOM)
		load->used = (uint16_t)max_u32(load->used, PLACE_CREATE_FULL);
	else if (why == PLACE_IS_CLOSED)
		load->closed = true;
	if (host == p->self)
		c->not_here = true;
	else if (c->n_tried < PLACE_SENDS)
		c->tried[c->n_tried++] = host;
	next_turn(c);
}

void place_heard(struct place *p, uint16_t host, const struct place_load *load, uint64_t now_ms)
{
	struct place_peer *peer = &p->peers[host];

	peer->load = *load;
	peer->heard_ms = max_u64(now_ms, 1);
	peer->silent_ms = 0;
	p->mean = p->mean ? p->mean - p->mean / 16 + load->used * 16u : load->used * 256u;
}

void place_silent(struct place *p, uint16_t host, uint64_t now_ms)
{
	p->peers[host].silent_ms = now_ms + PLACE_SILENT_MS;
	p->peers[host].heard_ms = 0;
}
