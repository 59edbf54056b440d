// SPDX-License-Identifier: Apache-2.0
/*
 * Where creates are made: does what orchestrator/fleet/place.h says. A host never passes on a
 * create that another host has sent to it. Only few hosts may make a create with an
 * Idempotency-Key. The host that a first attempt reaches decides among them, without a question.
 * Any other attempt may be a repetition: whichever host it reaches, the first of those few hosts
 * asks the others for an earlier answer.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/fleet/load.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/json/json.h"
#include "orchestrator/peers/internal.h"
#include "orchestrator/service/service.h"

#define HOMES_MAX    64
#define KEY_HOMES    8	  /* hosts that may make a create with a key */
#define ASK_MS	     1000 /* for the answer to an earlier attempt */
#define CODE_MAX     40
#define RETRY_MOST_S 60

/* --- what is known of the hosts ------------------------------------------------------------- */

/* Returns whether creates may go from this host to the other one. */
static bool is_near(const struct fleet_table *t, const struct fleet_host *h)
{
	return h == t->self || (!h->gone && strcmp(h->region, t->self->region) == 0);
}

static const struct place_peer *find(const struct place *place, uint32_t number)
{
	for (uint32_t i = 0; i < place->n; i++)
		if (place->peers[i].number == number)
			return &place->peers[i];
	return NULL;
}

/* Takes over the table's hosts, with what is known of those that were in it before. */
static void take_hosts(struct peers *p)
{
	const struct fleet_table *t = member_table(p->member);
	struct place_peer *peers = must_alloc(t->n * sizeof(*peers));
	struct place now = {.peers = peers, .mean = p->place.mean};

	for (size_t i = 0; i < t->n; i++) {
		const struct fleet_host *h = &t->hosts[i];
		const struct place_peer *before = find(&p->place, h->number);

		if (!is_near(t, h))
			continue;
		peers[now.n] = before ? *before : (struct place_peer){.number = h->number};
		peers[now.n].ready = !h->draining;
		if (h == t->self)
			now.self = now.n;
		now.n++;
	}
	free(p->place.peers);
	p->place = now;
}

static void refresh(struct peers *p)
{
	if (p->place.peers && p->version == member_version(p->member))
		return;
	p->version = member_version(p->member);
	take_hosts(p);
}

bool peer_read_load(struct place_load *load, const struct port_answer *a)
{
	for (size_t i = 0; i < a->n_fields; i++)
		if (port_name_is(a->fields[i].name, a->fields[i].name_len, "ramet-load"))
			return load_read(load, a->fields[i].value, a->fields[i].value_len);
	return false;
}

void peers_heard(struct peers *p, uint32_t number, const struct port_answer *answer)
{
	struct place_load load;

	refresh(p);
	const struct place_peer *peer = find(&p->place, number);
	if (peer && peer_read_load(&load, answer))
		place_heard(&p->place, (uint16_t)(peer - p->place.peers), &load,
			    loop_now_ms(p->loop));
}

static const struct fleet_host *host_at(const struct peers *p, uint16_t at)
{
	return fleet_table_host(member_table(p->member), p->place.peers[at].number);
}

/* Finds the hosts that may make a create with this key, the one that decides first. */
static uint32_t key_homes(const struct peers *p, const h2o_iovec_t *key, uint16_t *homes)
{
	const uint32_t n = min_u32(p->place.n, KEY_HOMES);

	place_homes(&p->place, load_hash(key->base, key->len), homes, n);
	return n;
}

/* Returns whether the client says that no earlier request with its key can have had an effect. */
static bool is_first(const h2o_req_t *req)
{
	ssize_t at = h2o_find_header_by_str(&req->headers, H2O_STRLIT("idempotency-attempt"), -1);

	if (at < 0)
		return false;
	const h2o_iovec_t *value = &req->headers.entries[at].value;
	return h2o_memis(value->base, value->len, H2O_STRLIT("first"));
}

const struct fleet_host *peers_key_host(struct peers *p, const h2o_req_t *req)
{
	ssize_t at = h2o_find_header_by_str(&req->headers, H2O_STRLIT("idempotency-key"), -1);
	uint16_t homes[KEY_HOMES];

	if (at < 0 || is_first(req))
		return NULL;
	refresh(p);
	key_homes(p, &req->headers.entries[at].value, homes);
	return homes[0] == p->place.self ? NULL : host_at(p, homes[0]);
}

/* --- a create under way --------------------------------------------------------------------- */

struct placing {
	struct op op;
	struct peers *peers;
	struct peers_create what;
	const h2o_iovec_t *key; /* the Idempotency-Key; NULL: none */
	bool is_here;		/* this host makes it */
	unsigned version;	/* of the hosts, to which all indices below refer */
	uint32_t n_asked;	/* homes that were asked for the answer to an earlier attempt */
	struct place_create create;
	uint16_t homes[HOMES_MAX];
	uint16_t hosts[PLACE_PICKS]; /* to which `calls` are made */
	struct peer_call calls[PLACE_PICKS];
	uint32_t waiting; /* calls whose answer is missing */
	uint32_t number;  /* number of the host that the create was sent to */
};

static struct placing *placing_of(const struct op *op)
{
	return container_of(op, struct placing, op);
}

static void put_away(struct op *op)
{
	for (int i = 0; i < PLACE_PICKS; i++)
		peer_call_end(&placing_of(op)->calls[i]);
}

static void notify(struct op *op)
{
	struct request *r = op->arg;

	if (!request_called_well(r, op->failed ? &op->failure : NULL))
		return;
	if (placing_of(op)->is_here)
		placing_of(op)->what.here(r);
	else
		keyed_unknown(r);
}

static const struct op_methods ops = {
	.size = sizeof(struct placing),
	.passive = true,
	.put_away = put_away,
	.notify = notify,
	.abandon = op_free,
};

/* Returns whether the indices still mean the same hosts. */
static bool is_current(const struct placing *w)
{
	refresh(w->peers);
	return w->version == w->peers->version;
}

/* Ends the operation at once: if the client left before the next turn of the loop, nobody would
 * delete what the other host has made. */
static void end_with(struct placing *w, const struct peer_call *call)
{
	struct request *r = w->op.arg;

	if (request_called(r)) {
		text_add(&r->out, call->body.p, call->body.len);
		peer_add_headers(r, &call->answer);
		answer(r, call->answer.status, NULL);
	}
	op_free(&w->op);
}

static void begin_keyed(struct placing *w)
{
	struct place_create *c = &w->create;

	c->only_homes = true;
	c->n_homes = key_homes(w->peers, w->key, w->homes);
	c->not_here = true; /* only a home may make it, where a repetition is recognized */
	for (uint32_t i = 0; i < c->n_homes; i++)
		c->not_here &= w->homes[i] != w->peers->place.self;
}

static void begin(struct placing *w)
{
	struct peers *p = w->peers;
	struct place_create *c = &w->create;

	w->version = p->version;
	w->n_asked = 0;
	*c = (struct place_create){.homes = w->homes, .kind = w->what.kind};
	if (w->key) {
		begin_keyed(w);
		return;
	}
	c->n_homes = min_u32(place_homes_wanted(w->what.cap, p->place.n), HOMES_MAX);
	place_homes(&p->place, load_hash(w->what.tenant, strlen(w->what.tenant)), w->homes,
		    c->n_homes);
}

static void step(struct placing *w);

/* --- questions for loads -------------------------------------------------------------------- */

static void on_asked(struct peer_call *call, const struct failure *f)
{
	struct placing *w = call->arg;
	struct place *place = &w->peers->place;
	const uint16_t host = w->hosts[call - w->calls];
	const uint64_t now_ms = loop_now_ms(w->peers->loop);
	struct place_load load;

	if (!is_current(w))
		; /* the host numbers have changed: step begins again */
	else if (!f && peer_read_load(&load, &call->answer))
		place_heard(place, host, &load, now_ms);
	else
		place_silent(place, host, now_ms);
	if (!--w->waiting)
		step(w);
}

static void ask(struct placing *w, const struct place_next *next)
{
	for (int i = 0; i < PLACE_PICKS; i++) {
		w->hosts[i] = next->hosts[i];
		w->waiting += w->hosts[i] != UINT16_MAX;
	}
	for (int i = 0; i < PLACE_PICKS; i++) {
		struct peer_asked asked = {.what = "its load", .limit_ms = PEER_LOAD_MS};

		if (w->hosts[i] == UINT16_MAX)
			continue;
		asked.host = host_at(w->peers, w->hosts[i]);
		text_puts(&asked.text, PEER_ASK_LOAD);
		peer_call_start(w->peers, &w->calls[i], w->op.service, &asked, on_asked, w);
	}
}

/* --- the create itself ---------------------------------------------------------------------- */

/* Sends the client's request with more header fields. */
static void send_to(struct placing *w, const struct fleet_host *host, const char *what,
		    const char *fields, uint32_t limit_ms, peer_call_fn *done)
{
	struct request *r = w->op.arg;
	struct peer_asked asked = {.host = host, .what = what, .limit_ms = limit_ms};
	struct failure f;

	if (peer_head(&asked.text, r, fields)) {
		text_add(&asked.text, r->req->entity.base, r->req->entity.len);
		peer_call_start(w->peers, &w->calls[0], w->op.service, &asked, done, w);
		return;
	}
	text_free(&asked.text);
	failure_set(&f, FAIL_BAD_PATH, 0, "the path can't be passed on");
	op_finish(&w->op, &f);
}

static bool says(const struct peer_call *call, const char *code)
{
	char member[64];
	int len = snprintf(member, sizeof(member), "\"code\":\"%s\"", code);

	return call->body.len && memmem(call->body.p, call->body.len, member, (size_t)len);
}

/* Returns why the host makes no sandbox; PLACE_OK: its answer is for the client. With any other
 * value, the host has done nothing. */
static enum place_verdict verdict(const struct peer_call *call)
{
	/* The host has not heard of the API key yet, lacks the template, or has had many requests
	 * of the tenant. */
	if (call->answer.status == 401 || says(call, failure_code_name(FAIL_UNKNOWN_TEMPLATE)) ||
	    (call->answer.status == 429 && says(call, "rate_limited")))
		return PLACE_NO_SLOT;
	if (call->answer.status != 503)
		return PLACE_OK;
	if (says(call, failure_code_name(FAIL_NO_WARM)))
		return PLACE_NO_WARM;
	return says(call, failure_code_name(FAIL_NO_CAPACITY)) ? PLACE_NO_ROOM : PLACE_IS_CLOSED;
}

static void on_sent(struct peer_call *call, const struct failure *f)
{
	struct placing *w = call->arg;
	enum place_verdict why = PLACE_UNREACHABLE;

	if (f && f->code == FAIL_HOST_FAILED) { /* it may have made the sandbox */
		op_finish(&w->op, f);
		return;
	}
	if (!f) {
		peers_heard(w->peers, w->number, &call->answer);
		why = verdict(call);
	}
	if (why == PLACE_OK) {
		end_with(w, call);
		return;
	}
	if (is_current(w))
		place_refused(&w->peers->place, &w->create, w->hosts[0], why,
			      loop_now_ms(w->peers->loop));
	step(w);
}

static void refuse(struct placing *w)
{
	const struct peers *p = w->peers;
	struct failure f;

	if (!p->place.peers[p->place.self].ready)
		failure_set(&f, FAIL_DRAINING, 5,
			    "this host is drained: it gets no new sandboxes, and no other host of "
			    "the fleet that was asked has room for one");
	else
		failure_set(&f, FAIL_NO_CAPACITY, 5,
			    "no host of the fleet that was asked has room for a sandbox: this one "
			    "is full, or makes none, and %u others refused",
			    w->create.n_tried);
	op_finish(&w->op, &f);
}

static void place(struct placing *w)
{
	struct peers *p = w->peers;
	uint64_t random;

	random_bytes(&random, sizeof(random));
	service_load(w->op.service, &p->place.peers[p->place.self].load);
	const struct place_next next =
		place_next(&p->place, &w->create, random, loop_now_ms(p->loop));
	switch (next.step) {
	case PLACE_HERE:
		w->is_here = true;
		op_finish(&w->op, NULL);
		break;
	case PLACE_ASK:
		ask(w, &next);
		break;
	case PLACE_SEND:
		w->hosts[0] = next.hosts[0];
		w->number = p->place.peers[next.hosts[0]].number;
		send_to(w, host_at(p, next.hosts[0]), "the sandbox",
			next.warm_only ? "ramet-warm: only\r\n" : "ramet-warm: any\r\n", 0,
			on_sent);
		break;
	case PLACE_REFUSED:
		refuse(w);
	}
}

/* --- answers to earlier attempts ------------------------------------------------------------ */

struct refusal {
	char code[CODE_MAX + 1];
};
static const struct json_field refusal_field =
	JSON_FIELD(struct refusal, code, "code", JSON_CHARS, .max = CODE_MAX);

/* Returns the seconds after which the host wants to be asked again. */
static unsigned retry_after(const struct port_answer *a)
{
	char text[8] = "";
	uint32_t s;

	for (size_t i = 0; i < a->n_fields; i++) {
		const struct port_field *f = &a->fields[i];

		if (port_name_is(f->name, f->name_len, "retry-after") &&
		    f->value_len < sizeof(text)) {
			memcpy(text, f->value, f->value_len);
			text[f->value_len] = '\0';
		}
	}
	return number_parse(text, 1, RETRY_MOST_S, &s) ? s : 1;
}

/* Fills in the failure of a host that refuses to say whether it has the answer, for a reason that
 * is its own, and not the client's. */
static void set_refusal(struct failure *f, const struct peer_call *call)
{
	struct refusal said = {""};
	struct err e;

	json_read(call->body.p, call->body.len, &refusal_field, 1, &said, &e);
	failure_set(f, FAIL_HOST_UNREACHABLE, retry_after(&call->answer),
		    "host %s, which may have answered an earlier request with this "
		    "Idempotency-Key, refuses to say so (%d %s): try again",
		    call->host, call->answer.status, said.code);
}

static void on_replayed(struct peer_call *call, const struct failure *f)
{
	struct placing *w = call->arg;
	struct failure refusal;

	if (f) {
		op_finish(&w->op, f);
	} else if (says(call, "no_such_answer") ||
		   (call->answer.status == 401 && says(call, "key_unknown"))) {
		/* A host that has not heard of the API key has answered no request with it. */
		step(w);
	} else if (call->answer.status == 429 || call->answer.status >= 500) {
		set_refusal(&refusal, call);
		op_finish(&w->op, &refusal);
	} else {
		end_with(w, call);
	}
}

/* Returns whether another host may have the answer. */
static bool may_have_been_made(const struct placing *w)
{
	const struct request *r = w->op.arg;

	return w->what.only_asks || (w->key && !is_first(r->req));
}

static void step(struct placing *w)
{
	if (!is_current(w))
		begin(w);
	while (may_have_been_made(w) && w->n_asked < w->create.n_homes) {
		const uint16_t home = w->homes[w->n_asked++];

		if (home == w->peers->place.self)
			continue;
		send_to(w, host_at(w->peers, home), "the answer to the Idempotency-Key",
			"ramet-warm: only\r\nidempotent-replay: only\r\n", ASK_MS, on_replayed);
		return;
	}
	if (w->what.only_asks)
		op_finish(&w->op, NULL);
	else
		place(w);
}

/* --- start ---------------------------------------------------------------------------------- */

static struct placing *placing_new(struct peers *p, struct request *r)
{
	struct op *op = op_new(r->service, &ops, r);
	struct placing *w = placing_of(op);

	w->peers = p;
	w->key = request_header(r, "idempotency-key");
	request_ref(r);
	r->op = op;
	return w;
}

bool peers_place(struct peers *p, struct request *r, const struct peers_create *what)
{
	struct placing *w = placing_new(p, r);

	w->what = *what;
	refresh(p);
	begin(w);
	step(w);
	if (!w->is_here)
		return false;
	request_called(r);
	op_free(&w->op);
	return true;
}

static void on_only_host(struct peer_call *call, const struct failure *f)
{
	struct placing *w = call->arg;

	if (f)
		op_finish(&w->op, f);
	else
		end_with(w, call);
}

void peers_send(struct peers *p, struct request *r, const char *id, const struct fleet_host *host)
{
	if (!host) {
		peers_serve(p, r, id, NULL);
		return;
	}
	send_to(placing_new(p, r), host, id, "ramet-warm: any\r\n", 0, on_only_host);
}
