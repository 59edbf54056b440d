// SPDX-License-Identifier: Apache-2.0
/*
 * This host's allowances: how much of a tenant's limits it may use (orchestrator/fleet/slots.h). An
 * operation that lacks slots waits here until the tenant's keeper was asked for more. Creates and
 * forks don't wait by themselves: their requests do, and are then served again.
 */
#include "orchestrator/peers/peer-slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/num.h"
#include "orchestrator/fleet/load.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/service/service.h"

#define TICK_MS	 1000
#define RENEW_MS 15000
/* For a tenant who has only Spaces and checkpoints here, since a host has many such tenants: how
 * soon an allowance is renewed, and how soon a keeper that is away is asked again. */
#define RENEW_IDLE_MS 60000
#define RETRY_IDLE_MS 5000
/* Keepers are asked for at most this many such tenants at a tick, and for one more for each
 * IDLE_ASKS_EACH allowances. */
#define IDLE_ASKS      32
#define IDLE_ASKS_EACH 16
/* Time for the keeper's answer; the keeper may ask other hosts first. */
#define ANSWER_MS 3000
#define LEASE_MS  (BOOKS_LEASE_MS - 5000) /* clocks of two hosts differ in speed */
_Static_assert(RENEW_IDLE_MS + RETRY_IDLE_MS + 2 * (ANSWER_MS + TICK_MS) < LEASE_MS,
	       "an answer may get lost");
#define AWAY_RETRY_S 5 /* least Retry-After of a refusal while the keeper is away */
/* Attempts for one request: others may be quicker to take what was granted. */
#define TRIES	     5
#define HOMES_MAX    FLEET_HOSTS_MAX
#define REPORT_LINES 100 /* maximum in a part of a report */

/* --- the table ------------------------------------------------------------------------------ */

static uint64_t hash_of(const char *tenant)
{
	return load_hash(tenant, strlen(tenant));
}

static struct books_peer peer_before(const struct books_trust *t, uint32_t number, bool reported)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->peers[i].number == number)
			return t->peers[i];
	return (struct books_peer){.number = number, .reported = reported};
}

static void take_hosts(struct peer_slots *s)
{
	const struct fleet_table *t = member_table(s->peers->member);
	const bool first = !s->cell.peers;
	struct place cell = {.peers = must_alloc(t->n * sizeof(*cell.peers))};
	struct books_trust trust = s->trust;

	trust.peers = must_alloc(t->n * sizeof(*trust.peers));
	for (size_t i = 0; i < t->n; i++) {
		const struct fleet_host *h = &t->hosts[i];

		if (h->gone && h != t->self)
			continue;
		if (h == t->self)
			cell.self = trust.self = cell.n;
		/* A host that joins later has no allowance yet. */
		trust.peers[cell.n] = peer_before(&s->trust, h->number, true);
		cell.peers[cell.n++].number = h->number;
	}
	trust.n = cell.n;
	free(s->cell.peers);
	free(s->trust.peers);
	s->cell = cell;
	s->trust = trust;
	const uint64_t keepers = books_keepers(&cell);
	if (first || keepers != s->keepers)
		books_begin(&s->trust, !first, boottime_ms());
	s->keepers = keepers;
}

static void find_homes(struct allowance *a);

/* Takes over the table's hosts if it has changed. */
static void refresh(struct peer_slots *s)
{
	if (s->cell.peers && s->version == member_version(s->peers->member))
		return;
	s->version = member_version(s->peers->member);
	take_hosts(s);
	list_each_of (a, struct allowance, link, &s->allowances)
		find_homes(a);
	peer_books_refresh(s);
}

const struct fleet_host *peer_slots_keeper(const struct peer_slots *s, const char *tenant)
{
	const uint16_t at = books_keeper(&s->cell, hash_of(tenant));

	return fleet_table_host(member_table(s->peers->member), s->cell.peers[at].number);
}

/* --- an allowance --------------------------------------------------------------------------- */

/* Finds out whether this host is a home of the tenant. */
static void find_homes(struct allowance *a)
{
	const struct place *cell = &a->slots->cell;
	const uint32_t n = place_homes_wanted(a->limits[TENANT_SANDBOXES].cap, cell->n);
	uint16_t homes[HOMES_MAX];
	bool is_home = false;

	place_homes(cell, hash_of(a->tenant->name), homes, n);
	for (uint32_t i = 0; i < n; i++)
		is_home |= homes[i] == cell->self;
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		struct slots *one = &a->limits[i];

		one->homes = n;
		one->share = is_home ? slots_share(one->cap, n) : 0;
	}
}

/* Takes over the tenant's limits. Returns false when the tenant has none. */
static bool take_limits(struct allowance *a)
{
	struct tier tier;
	bool changed = false;

	if (!tenant_tier(a->slots->service, a->tenant->name, &tier))
		return false;
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		struct slots *one = &a->limits[i];
		const uint32_t cap = tenant_limit(&tier, i);

		changed |= one->cap != cap;
		if (!one->cap)
			one->left = cap;
		one->cap = cap;
		slots_use(one, min_u32(tenant_used(a->tenant, i), EXCHANGE_SLOTS_MAX));
	}
	if (changed)
		find_homes(a);
	return true;
}

/* Publishes the allowance, for the checks of requests. */
static void publish(struct allowance *a)
{
	a->tenant->keeper_away = a->away;
	a->tenant->allowed_until_ms = UINT64_MAX;
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		const struct slots *one = &a->limits[i];

		a->tenant->allowed[i] = slots_allowed(one, a->away);
		if (one->held)
			a->tenant->allowed_until_ms = a->until_ms;
	}
}

static struct allowance *find(const struct peer_slots *s, const char *tenant)
{
	const struct tenant *t = tenant_find(s->service, tenant);

	return t ? t->allowance : NULL;
}

/* Returns NULL if the tenant has no limits. */
static struct allowance *get(struct peer_slots *s, struct tenant *t)
{
	struct allowance *a = t->allowance;
	struct tier tier;

	if (a || !tenant_tier(s->service, t->name, &tier))
		return a;
	a = must_alloc(sizeof(*a));
	a->slots = s;
	a->tenant = tenant_hold(t);
	t->allowance = a;
	list_init(&a->waiters);
	list_add_tail(&s->allowances, &a->link);
	take_limits(a);
	publish(a);
	return a;
}

static void set_away(struct allowance *a, bool away)
{
	a->slots->service->limits_away += (size_t)away - a->away;
	a->away = away;
}

static void drop(struct allowance *a)
{
	set_away(a, false);
	list_each_safe (pos, &a->waiters) /* only when the service is freed */
		list_del(pos);
	peer_call_end(&a->call);
	if (a->settling)
		op_free(a->settling);
	list_del(&a->link);
	a->tenant->allowance = NULL;
	a->tenant->keeper_away = false;
	memset(a->tenant->allowed, 0, sizeof(a->tenant->allowed));
	tenant_put(a->tenant);
	free(a);
}

/* --- operations that wait ------------------------------------------------------------------- */

static uint32_t waiting(const struct allowance *a, unsigned limit)
{
	uint64_t n = 0;

	list_each_of (w, const struct tenant_wait, link, &a->waiters)
		n += w->lack.limit == limit ? w->lack.lacks : 0;
	return min_u32(n, EXCHANGE_SLOTS_MAX);
}

static void refuse(const struct allowance *a, struct tenant_wait *w)
{
	struct failure f = w->lack;

	f.lacks = 0;
	if (a->away)
		failure_set(&f, w->lack.code, max_u32(w->lack.retry_after, AWAY_RETRY_S),
			    "%.165s; host %s, which divides this limit among the hosts, does not "
			    "answer, or has not heard of all of them yet",
			    w->lack.text, peer_slots_keeper(a->slots, a->tenant->name)->name);
	tenant_wait_finish(w, a->slots->service, &f);
}

static void ask(struct allowance *a);

/* Ends the wait of all operations for which there are slots, or will be none. */
static void settle_waiters(struct allowance *a)
{
	uint64_t taken[TENANT_LIMITS] = {0};

	list_each_of_safe (w, struct tenant_wait, link, &a->waiters) {
		const unsigned limit = w->lack.limit;
		const uint64_t used = tenant_used(a->tenant, limit) + taken[limit] + w->lack.lacks;

		if (used <= a->tenant->allowed[limit]) {
			taken[limit] += w->lack.lacks;
			tenant_wait_finish(w, a->slots->service, NULL);
		} else if (w->asked) {
			refuse(a, w);
		}
	}
	if (!list_empty(&a->waiters)) /* these came after the question was asked */
		ask(a);
}

static bool on_lack(void *arg, struct tenant *t, struct tenant_wait *w)
{
	struct peer_slots *s = arg;

	refresh(s);
	struct allowance *a = get(s, t);
	if (!a)
		return false;
	list_add_tail(&a->waiters, &w->link);
	ask(a);
	return true;
}

/* --- requests that wait --------------------------------------------------------------------- */

struct waiter {
	struct op op;
	struct tenant_wait wait;
	void (*again)(struct request *r);
};

static struct waiter *waiter_of(struct op *op)
{
	return container_of(op, struct waiter, op);
}

static void put_away(struct op *op)
{
	tenant_wait_end(&waiter_of(op)->wait);
}

static const struct op_methods waiter_ops = {
	.size = sizeof(struct waiter),
	.passive = true,
	.put_away = put_away,
	.abandon = op_free,
};

/* Serves the request at once: op_finish would leave more time for others to take its slots. */
static void on_settled(void *arg, const struct failure *f)
{
	struct waiter *w = waiter_of(arg);
	struct request *r = w->op.arg;
	void (*again)(struct request * r) = w->again;
	const struct failure why = w->wait.lack;

	op_free(&w->op);
	if (request_called_well(r, f ? &why : NULL))
		again(r);
}

bool peers_capped(struct request *r, const struct failure *f, void (*again)(struct request *r))
{
	struct failure lack = *f;

	if (r->asked == TRIES)
		return false;
	struct tenant *t = tenant_get(r->service, r->tenant);
	struct op *op = op_new(r->service, &waiter_ops, r);
	const bool waits = tenant_wait_for(&waiter_of(op)->wait, t, &lack, on_settled, op);
	tenant_put(t);
	if (!waits) {
		op_free(op);
		return false;
	}
	waiter_of(op)->again = again;
	list_add_tail(&r->service->waits, &op->link);
	r->asked++;
	request_ref(r);
	r->op = op;
	request_began(r);
	return true;
}

/* --- questions to the keeper ---------------------------------------------------------------- */

/* Fills in what this host says of its allowance: the most that it may use once the question under
 * way is answered. */
static void say_own(struct peer_slots *s, const char *tenant, struct exchange *x)
{
	const struct allowance *a = find(s, tenant);

	*x = (struct exchange){.keepers = s->keepers,
			       .from = s->cell.peers[s->cell.self].number,
			       .at = s->at = (uint64_t)realtime_ms_after((int64_t)s->at)};
	snprintf(x->tenant, sizeof(x->tenant), "%s", tenant);
	for (unsigned i = 0; a && i < TENANT_LIMITS; i++) {
		const struct slots *one = &a->limits[i];

		x->limits[i].held = one->busy ? max_u32(one->held, one->want) : one->held;
		x->limits[i].used = min_u32(tenant_used(a->tenant, i), EXCHANGE_SLOTS_MAX);
	}
}

void peer_slots_yield(struct peer_slots *s, const struct exchange *asked, struct exchange *x)
{
	struct allowance *a = find(s, asked->tenant);

	if (a && take_limits(a)) {
		for (unsigned i = 0; i < TENANT_LIMITS; i++)
			if (asked->limits[i].lacks)
				slots_yield(&a->limits[i], asked->limits[i].lacks);
		publish(a);
	}
	say_own(s, asked->tenant, x);
}

void peer_slots_answered(struct allowance *a, const struct exchange_granted *g)
{
	const uint64_t now_ms = boottime_ms();

	refresh(a->slots); /* the table may not have the keeper any more */
	a->busy = false;
	a->settling = NULL;
	set_away(a, !g || !g->sure);
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		struct slots *one = &a->limits[i];

		/* Even a keeper that lies can give no more than was asked for. */
		if (g)
			slots_written(one,
				      min_u32(g->limits[i].held, max_u32(one->want, one->used)),
				      g->sure ? g->limits[i].left : one->left, now_ms);
		else
			slots_lost(one);
	}
	if (g)
		a->until_ms = a->sent_ms + LEASE_MS;
	publish(a);
	settle_waiters(a);
}

void peer_slots_line(char out[static EXCHANGE_LINE_MAX + 1], const struct peer_call *call,
		     const struct failure *f)
{
	memset(out, 0, EXCHANGE_LINE_MAX + 1);
	if (!f && call->answer.status == 200 && call->body.len)
		memcpy(out, call->body.p, min_u64(call->body.len, EXCHANGE_LINE_MAX));
}

static void on_answer(struct peer_call *call, const struct failure *f)
{
	char line[EXCHANGE_LINE_MAX + 1];
	struct exchange_granted g;
	const char *at = line;

	peer_slots_line(line, call, f);
	peer_slots_answered(call->arg, exchange_read_granted(&g, &at) ? &g : NULL);
}

void peer_slots_ask(struct text *out, const char *path, const char *line)
{
	text_printf(out, "POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %zu\r\n\r\n%s",
		    path, strlen(line), line);
}

static void send_to(struct allowance *a, const struct fleet_host *keeper, const struct exchange *x)
{
	struct peer_asked asked = {
		.host = keeper, .what = "the tenant's limits", .limit_ms = ANSWER_MS};
	char line[EXCHANGE_LINE_MAX];

	exchange_print(line, x);
	peer_slots_ask(&asked.text, PEERS_SLOTS, line);
	peer_call_start(a->slots->peers, &a->call, a->slots->service, &asked, on_answer, a);
}

/* Returns whether the tenant has no sandbox here, and nobody waits. */
static bool is_idle(const struct allowance *a)
{
	return !a->tenant->sandboxes.n && list_empty(&a->waiters);
}

static void send_question(struct allowance *a)
{
	const struct fleet_host *keeper = peer_slots_keeper(a->slots, a->tenant->name);
	struct exchange x;

	say_own(a->slots, a->tenant->name, &x);
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		x.limits[i].held = a->limits[i].held;
		x.limits[i].want = min_u32(a->limits[i].want, EXCHANGE_SLOTS_MAX);
		x.limits[i].lacks = waiting(a, i);
	}
	list_each_of (w, struct tenant_wait, link, &a->waiters)
		w->asked = true;
	if (is_idle(a)) { /* the others are next */
		a->slots->idle_asks--;
		list_del(&a->link);
		list_add_tail(&a->slots->allowances, &a->link);
	}
	a->busy = true;
	a->sent_ms = boottime_ms();
	if (keeper == member_table(a->slots->peers->member)->self)
		peer_books_settle(a->slots, &x, a);
	else
		send_to(a, keeper, &x);
}

/* Returns whether the allowance must be renewed, or the keeper be asked again. */
static bool is_old(const struct allowance *a, uint64_t now_ms)
{
	const uint64_t age_ms = now_ms - a->sent_ms;

	if (a->tenant->sandboxes.n)
		return a->away || age_ms >= RENEW_MS;
	return age_ms >= (a->away ? RETRY_IDLE_MS : RENEW_IDLE_MS);
}

/* Asks the keeper if that is due. */
static void ask(struct allowance *a)
{
	const uint64_t now_ms = boottime_ms();
	bool due = is_old(a, now_ms) || !list_empty(&a->waiters);
	uint32_t want;

	if (a->busy || (is_idle(a) && !a->slots->idle_asks))
		return;
	if (a->until_ms <= now_ms)
		for (unsigned i = 0; i < TENANT_LIMITS; i++)
			slots_lapsed(&a->limits[i]);
	take_limits(a);
	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		due |= slots_due(&a->limits[i], waiting(a, i), now_ms, &want);
	for (unsigned i = 0; due && i < TENANT_LIMITS; i++)
		slots_renew(&a->limits[i], &want);
	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		if (a->limits[i].busy) {
			send_question(a);
			return;
		}
	list_each_of (w, struct tenant_wait, link, &a->waiters)
		w->asked = true;
	settle_waiters(a);
}

/* --- housekeeping --------------------------------------------------------------------------- */

static bool is_over(const struct allowance *a)
{
	bool over = !a->busy && list_empty(&a->waiters);

	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		over &= !a->limits[i].held && !a->limits[i].want && !a->limits[i].used;
	return over;
}

static void look_at(struct allowance *a)
{
	if (!a->busy && !take_limits(a)) { /* the key is an operator's now */
		if (list_empty(&a->waiters))
			drop(a);
		return;
	}
	ask(a);
	publish(a);
	if (is_over(a))
		drop(a);
}

/* Returns whether the tenant uses any of its limits here. Spaces do so without sandboxes, and since
 * before the service's start. */
static bool uses_any(const struct tenant *t)
{
	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		if (tenant_used(t, i))
			return true;
	return false;
}

static void on_tick(void *arg)
{
	struct peer_slots *s = arg;

	refresh(s);
	list_each_of (t, struct tenant, link, &s->service->tenants)
		if (uses_any(t))
			get(s, t);
	s->idle_asks = IDLE_ASKS + list_count(&s->allowances) / IDLE_ASKS_EACH;
	list_each_of_safe (a, struct allowance, link, &s->allowances)
		look_at(a);
	peer_books_tick(s);
	loop_timer_set(s->loop, &s->tick, TICK_MS);
}

/* --- questions of other hosts --------------------------------------------------------------- */

static int by_tenant(const void *a, const void *b)
{
	const struct allowance *const *one = a, *const *other = b;

	return strcmp((*one)->tenant->name, (*other)->tenant->name);
}

/* Returns the allowances whose keeper asks, of the tenants after the one that it names, in the
 * order of their names. */
static const struct allowance **find_reported(const struct peer_slots *s,
					      const struct exchange *asked, size_t *n)
{
	const struct allowance **found =
		must_alloc((list_count(&s->allowances) + 1) * sizeof(*found));

	*n = 0;
	list_each_of (a, const struct allowance, link, &s->allowances) {
		const char *tenant = a->tenant->name;

		if (strcmp(tenant, asked->tenant) > 0 &&
		    peer_slots_keeper(s, tenant)->number == asked->from)
			found[(*n)++] = a;
	}
	qsort(found, *n, sizeof(*found), by_tenant);
	return found;
}

/* Reports the allowances whose keeper asks. If there are too many for one answer, the keeper then
 * asks for those after the last one; EXCHANGE_NOBODY comes before any tenant. */
static void report(struct peer_slots *s, const struct exchange *asked, struct text *out)
{
	char line[EXCHANGE_LINE_MAX];
	size_t n;
	const struct allowance **found = find_reported(s, asked, &n);

	for (size_t i = 0; i < min_u64(n, REPORT_LINES); i++) {
		struct exchange x;

		say_own(s, found[i]->tenant->name, &x);
		exchange_print(line, &x);
		text_puts(out, line);
	}
	if (n <= REPORT_LINES)
		text_puts(out, PEER_SLOTS_END);
	free(found);
}

static void yield(struct peer_slots *s, const struct exchange *asked, struct text *out)
{
	char line[EXCHANGE_LINE_MAX];
	struct exchange x;

	peer_slots_yield(s, asked, &x);
	exchange_print(line, &x);
	text_puts(out, line);
}

static bool is_path(const struct request *r, const char *path)
{
	return h2o_memis(r->req->input.path.base, r->req->input.path.len, path, strlen(path));
}

/* Reads the body; returns false after it has answered with an error. */
static bool read_question(struct peer_slots *s, struct request *r, struct exchange *x)
{
	char text[EXCHANGE_LINE_MAX + 1] = "";
	const char *at = text;

	if (r->req->entity.len)
		memcpy(text, r->req->entity.base, min_u64(r->req->entity.len, EXCHANGE_LINE_MAX));
	if (!exchange_read(x, &at)) {
		answer_error(r, 400, "bad_request",
			     "the body must be a line on allowances, not \"%.60s\"", text);
		return false;
	}
	if (x->keepers == s->keepers && fleet_table_host(member_table(s->peers->member), x->from))
		return true;
	answer_error(r, 409, "other_keepers", "the tables of the two hosts differ");
	return false;
}

bool peers_slots_serve(struct peers *p, struct request *r)
{
	struct peer_slots *s = p->slots;
	struct exchange x;

	if (!is_path(r, PEERS_SLOTS) && !is_path(r, PEERS_SLOTS_YIELD) &&
	    !is_path(r, PEERS_SLOTS_REPORT))
		return false;
	r->quiet = true;
	refresh(s);
	if (!read_question(s, r, &x))
		return true;
	peer_books_agreed(s, x.from);
	if (is_path(r, PEERS_SLOTS)) {
		peer_books_serve(s, &x, r);
		return true;
	}
	if (is_path(r, PEERS_SLOTS_YIELD))
		yield(s, &x, &r->out);
	else
		report(s, &x, &r->out);
	answer(r, 200, "text/plain");
	return true;
}

/* --- life cycle ----------------------------------------------------------------------------- */

struct peer_slots *peer_slots_new(struct peers *p, struct service *service)
{
	struct peer_slots *s = must_alloc(sizeof(*s));

	s->peers = p;
	s->service = service;
	s->loop = p->loop;
	list_init(&s->allowances);
	list_init(&s->books);
	list_init(&s->polls);
	service->ask_keeper = on_lack;
	service->ask_keeper_arg = s;
	refresh(s);
	loop_timer_start(s->loop, &s->tick, on_tick, s, 0);
	return s;
}

void peer_slots_free(struct peer_slots *s)
{
	if (!s)
		return;
	loop_timer_clear(s->loop, &s->tick);
	s->service->ask_keeper = NULL;
	list_each_of_safe (a, struct allowance, link, &s->allowances)
		drop(a);
	peer_books_free(s);
	free(s->cell.peers);
	free(s->trust.peers);
	free(s);
}
