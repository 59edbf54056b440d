// SPDX-License-Identifier: Apache-2.0
/* The records of the tenants whose keeper this host is (orchestrator/fleet/books.h). */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/num.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/peers/peer-slots.h"
#include "orchestrator/service/service.h"

#define AGAIN_MS  5000 /* how soon a keeper is asked again whether it agrees */
#define REPORT_MS 500  /* how soon a host is asked again for a report */
#define PARTS_MAX 1024 /* maximum of parts of a report: a host that lies could go on for ever */

struct tenant_books {
	struct list link, bucket;
	struct books limits[TENANT_LIMITS];
	char tenant[EXCHANGE_TENANT_MAX + 1];
};

static struct tenant_books *books_of(struct peer_slots *s, const char *tenant)
{
	struct list *bucket = &s->book_buckets[bucket_number(tenant) % BOOK_BUCKETS];

	list_each_of (b, struct tenant_books, bucket, bucket)
		if (strcmp(b->tenant, tenant) == 0)
			return b;
	struct tenant_books *b = must_alloc(sizeof(*b));
	strcpy(b->tenant, tenant);
	list_add_tail(&s->books, &b->link);
	list_add_tail(bucket, &b->bucket);
	return b;
}

static void books_drop(struct tenant_books *b)
{
	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		free(b->limits[i].records);
	list_del(&b->link);
	list_del(&b->bucket);
	free(b);
}

static bool is_keeper_of(const struct peer_slots *s, const char *tenant)
{
	return peer_slots_keeper(s, tenant) == member_table(s->peers->member)->self;
}

static struct books_said said(const struct exchange *x, unsigned limit)
{
	return (struct books_said){x->from, x->at, x->limits[limit].held, x->limits[limit].used,
				   x->limits[limit].want};
}

/* Takes over what a host says in answer to a question. */
static void note(struct peer_slots *s, const struct exchange *x)
{
	struct tier tier;

	if (!tenant_tier(s->service, x->tenant, &tier)) /* so a peer cannot make up tenants */
		return;
	struct tenant_books *b = books_of(s, x->tenant);
	for (unsigned i = 0; i < TENANT_LIMITS; i++) {
		const struct books_said now = said(x, i);

		books_note(&b->limits[i], &now, boottime_ms());
	}
}

/* --- a write -------------------------------------------------------------------------------- */

/* A write that is being served. If too little is left for the write, other hosts are asked to
 * yield, and the write is tried again. */
struct settling {
	struct op op; /* arg: the other host's request, or the allowance of this host */
	struct peer_slots *slots;
	bool is_own;
	struct exchange x;
	struct exchange_granted granted;
	bool yielded[TENANT_LIMITS]; /* others were asked */
	uint32_t hosts[SLOTS_YIELD_HOSTS];
	struct peer_call calls[SLOTS_YIELD_HOSTS];
	uint32_t waiting; /* for their answers */
};

static struct settling *settling_of(const struct op *op)
{
	return container_of(op, struct settling, op);
}

static void put_away(struct op *op)
{
	for (int i = 0; i < SLOTS_YIELD_HOSTS; i++)
		peer_call_end(&settling_of(op)->calls[i]);
}

static void notify(struct op *op)
{
	const struct settling *w = settling_of(op);
	struct request *r = op->arg;
	char line[EXCHANGE_LINE_MAX];

	if (w->is_own) {
		peer_slots_answered(op->arg, &w->granted);
	} else if (request_called(r)) {
		exchange_print_granted(line, &w->granted);
		text_puts(&r->out, line);
		answer(r, 200, "text/plain");
	}
}

static const struct op_methods settling_ops = {
	.size = sizeof(struct settling),
	.passive = true,
	.put_away = put_away,
	.notify = notify,
	.abandon = op_free,
};

/* Grants as much as possible. Returns the limit that a waiting request needs and of which nothing
 * is left; TENANT_LIMITS if there is none. */
static unsigned grant(struct settling *w)
{
	struct peer_slots *s = w->slots;
	unsigned lacking = TENANT_LIMITS;
	struct tier tier;

	for (unsigned i = 0; i < TENANT_LIMITS; i++)
		w->granted.limits[i].held = w->x.limits[i].held;
	/* This host has not heard of the tenant's key yet. */
	if (!tenant_tier(s->service, w->x.tenant, &tier))
		return TENANT_LIMITS;
	struct tenant_books *b = books_of(s, w->x.tenant);
	w->granted.sure = books_sure(&s->trust, boottime_ms());
	for (unsigned i = TENANT_LIMITS; i-- > 0;) {
		const uint32_t cap = w->granted.sure ? tenant_limit(&tier, i) : 0;
		const struct books_said now = said(&w->x, i);
		const uint64_t needed = (uint64_t)now.used + w->x.limits[i].lacks;
		const uint32_t held =
			books_grant(&b->limits[i], cap, w->granted.sure, &now, boottime_ms());

		w->granted.limits[i].held = min_u32(held, EXCHANGE_SLOTS_MAX);
		w->granted.limits[i].left = books_left(&b->limits[i], cap, boottime_ms());
		if (w->granted.sure && w->x.limits[i].lacks && held < needed && needed <= cap &&
		    !w->yielded[i])
			lacking = i;
	}
	return lacking;
}

static void settle(struct settling *w);

static void on_yielded(struct peer_call *call, const struct failure *f)
{
	struct settling *w = call->arg;
	char line[EXCHANGE_LINE_MAX + 1];
	const char *at = line;
	struct exchange x;

	peer_slots_line(line, call, f);
	if (exchange_read(&x, &at) && x.from == w->hosts[call - w->calls] &&
	    strcmp(x.tenant, w->x.tenant) == 0)
		note(w->slots, &x);
	if (!--w->waiting)
		settle(w);
}

static void ask_to_yield(struct settling *w, unsigned limit)
{
	struct peer_slots *s = w->slots;
	const struct fleet_table *t = member_table(s->peers->member);
	struct exchange x = {.keepers = s->keepers, .from = t->self->number};
	char line[EXCHANGE_LINE_MAX];
	const size_t n = books_spare(&books_of(s, w->x.tenant)->limits[limit], w->x.from,
				     boottime_ms(), w->hosts);

	w->yielded[limit] = true;
	x.limits[limit].lacks =
		w->x.limits[limit].used + w->x.limits[limit].lacks - w->granted.limits[limit].held;
	memcpy(x.tenant, w->x.tenant, sizeof(x.tenant));
	exchange_print(line, &x);
	w->waiting = 1;
	for (size_t i = 0; i < n; i++) {
		struct peer_asked asked = {.host = fleet_table_host(t, w->hosts[i]),
					   .what = "slots to spare",
					   .limit_ms = SLOTS_ASK_MS};

		if (asked.host == t->self) {
			struct exchange own;

			peer_slots_yield(s, &x, &own);
			note(s, &own);
		}
		if (!asked.host || asked.host == t->self)
			continue;
		peer_slots_ask(&asked.text, PEERS_SLOTS_YIELD, line);
		w->waiting++;
		peer_call_start(s->peers, &w->calls[i], s->service, &asked, on_yielded, w);
	}
	if (!--w->waiting)
		settle(w);
}

static void settle(struct settling *w)
{
	const unsigned lacking = grant(w);

	if (lacking < TENANT_LIMITS)
		ask_to_yield(w, lacking);
	else
		op_finish(&w->op, NULL);
}

static struct settling *settling_new(struct peer_slots *s, const struct exchange *x, void *arg)
{
	struct settling *w = settling_of(op_new(s->service, &settling_ops, arg));

	w->slots = s;
	w->x = *x;
	return w;
}

void peer_books_settle(struct peer_slots *s, const struct exchange *x, struct allowance *a)
{
	struct settling *w = settling_new(s, x, a);

	w->is_own = true;
	a->settling = &w->op;
	settle(w);
}

void peer_books_serve(struct peer_slots *s, const struct exchange *x, struct request *r)
{
	if (!is_keeper_of(s, x->tenant)) {
		answer_error(r, 409, "other_keepers", "this host is not the tenant's keeper");
		return;
	}
	struct settling *w = settling_new(s, x, r);
	request_ref(r);
	r->op = &w->op;
	settle(w);
}

/* --- reports of other hosts ----------------------------------------------------------------- */

struct poll {
	struct list link;
	struct peer_slots *slots;
	uint64_t keepers; /* the keepers that the question was about */
	uint64_t begun_ms;
	uint32_t number;
	unsigned parts;			    /* that were asked for */
	char last[EXCHANGE_TENANT_MAX + 1]; /* the last tenant that was reported */
	struct peer_call call;
};

static struct books_peer *peer_of(struct peer_slots *s, uint32_t number)
{
	for (uint32_t i = 0; i < s->trust.n; i++)
		if (s->trust.peers[i].number == number)
			return &s->trust.peers[i];
	return NULL;
}

static void poll_end(struct poll *p)
{
	peer_call_end(&p->call);
	list_del(&p->link);
	free(p);
}

static void ask_part(struct poll *p);

/* What follows a part of a report. */
enum report { REPORT_BAD, REPORT_MORE, REPORT_LAST };

static enum report take_part(struct poll *p)
{
	const struct text *body = &p->call.body;
	char *text = must_alloc(body->len + 1), before[sizeof(p->last)];
	const char *at = text;
	struct exchange x;

	if (body->len)
		memcpy(text, body->p, body->len);
	memcpy(before, p->last, sizeof(before));
	while (exchange_read(&x, &at) && x.from == p->number) {
		note(p->slots, &x);
		strcpy(p->last, x.tenant);
	}
	const bool is_last = strcmp(at, PEER_SLOTS_END) == 0, is_part = !*at;
	free(text);
	if (is_last)
		return REPORT_LAST;
	return is_part && strcmp(p->last, before) > 0 ? REPORT_MORE : REPORT_BAD;
}

static void on_report(struct peer_call *call, const struct failure *f)
{
	struct poll *p = call->arg;
	struct peer_slots *s = p->slots;
	struct books_peer *peer = peer_of(s, p->number);
	enum report part = REPORT_BAD;

	if (!f && call->answer.status == 200 && peer && p->keepers == s->keepers) {
		part = take_part(p);
		peer->agreed_ms = boottime_ms();
		/* A report from before this host began anew does not count. */
		peer->reported |= part == REPORT_LAST && p->begun_ms >= s->trust.begun_ms;
	}
	if (part == REPORT_MORE && p->parts < PARTS_MAX)
		ask_part(p);
	else
		poll_end(p);
}

static bool is_polled(const struct peer_slots *s, uint32_t number)
{
	list_each_of (p, struct poll, link, &s->polls)
		if (p->number == number)
			return true;
	return false;
}

/* Asks for what follows the last tenant. */
static void ask_part(struct poll *p)
{
	struct peer_slots *s = p->slots;
	const struct fleet_table *t = member_table(s->peers->member);
	struct peer_asked asked = {.host = fleet_table_host(t, p->number),
				   .what = "allowances",
				   .limit_ms = SLOTS_ASK_MS};
	struct exchange x = {.keepers = s->keepers, .from = t->self->number};
	char line[EXCHANGE_LINE_MAX];

	if (!asked.host) {
		poll_end(p);
		return;
	}
	p->parts++;
	strcpy(x.tenant, p->last);
	exchange_print(line, &x);
	peer_slots_ask(&asked.text, PEERS_SLOTS_REPORT, line);
	peer_call_start(s->peers, &p->call, s->service, &asked, on_report, p);
}

static void poll_host(struct peer_slots *s, uint32_t number)
{
	if (is_polled(s, number))
		return;
	struct poll *p = must_alloc(sizeof(*p));
	p->slots = s;
	p->keepers = s->keepers;
	p->begun_ms = boottime_ms();
	p->number = number;
	strcpy(p->last, EXCHANGE_NOBODY);
	list_add_tail(&s->polls, &p->link);
	ask_part(p);
}

/* Returns whether this host has records to keep. */
static bool is_keeper(const struct peer_slots *s)
{
	return s->cell.self < BOOKS_KEEPERS && tenants_limited(s->service);
}

static void look_at(struct peer_slots *s, uint32_t i)
{
	struct books_peer *peer = &s->trust.peers[i];
	const uint64_t now_ms = boottime_ms();
	const bool asks = i < BOOKS_KEEPERS && now_ms - peer->agreed_ms >= AGAIN_MS;

	if (i == s->trust.self || (peer->reported && !asks) || now_ms - peer->asked_ms < REPORT_MS)
		return;
	peer->asked_ms = now_ms;
	poll_host(s, peer->number);
}

void peer_books_agreed(struct peer_slots *s, uint32_t host)
{
	struct books_peer *peer = peer_of(s, host);

	if (!peer || !is_keeper(s))
		return;
	peer->agreed_ms = boottime_ms();
	look_at(s, (uint32_t)(peer - s->trust.peers)); /* at once if the host's report is missing */
}

/* --- housekeeping --------------------------------------------------------------------------- */

void peer_books_tick(struct peer_slots *s)
{
	const uint64_t now_ms = boottime_ms();

	if (!is_keeper(s))
		return;
	if (!books_agreed(&s->trust, now_ms))
		books_begin(&s->trust, false, now_ms);
	for (uint32_t i = 0; i < s->trust.n; i++)
		look_at(s, i);
	list_each_of_safe (b, struct tenant_books, link, &s->books) {
		size_t n = 0;

		for (unsigned i = 0; i < TENANT_LIMITS; i++) {
			books_tidy(&b->limits[i], now_ms);
			n += b->limits[i].n;
		}
		if (!n)
			books_drop(b);
	}
}

void peer_books_refresh(struct peer_slots *s)
{
	list_each_of_safe (b, struct tenant_books, link, &s->books)
		if (!is_keeper_of(s, b->tenant))
			books_drop(b);
}

void peer_books_free(struct peer_slots *s)
{
	list_each_of_safe (p, struct poll, link, &s->polls)
		poll_end(p);
	list_each_of_safe (b, struct tenant_books, link, &s->books)
		books_drop(b);
}
