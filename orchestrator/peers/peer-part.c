// SPDX-License-Identifier: Apache-2.0
/* Asks other hosts for parts of lists, some at a time, which this host puts together. */
#include <string.h>

#include "orchestrator/fleet/load.h"
#include "orchestrator/peers/internal.h"

#define ASK_MS	  1000 /* time for the whole answer */
#define SILENT_MS 5000 /* how long a host that did not answer is left alone */

struct asking {
	struct parts *parts;
	bool used;	 /* false: the rest means nothing */
	uint32_t number; /* of the host */
	bool answered, good;
	struct peers_part part;
	struct peer_call call; /* with the body of `part` */
};

/* The parts of one list that were requested from other hosts. */
struct parts {
	struct op op;
	struct peers *peers;
	void (*fn)(struct request *r);
	struct asking at[PEERS_PARTS];
};

static struct parts *parts_of(const struct op *op)
{
	return container_of(op, struct parts, op);
}

static void put_away(struct op *op)
{
	for (size_t i = 0; i < PEERS_PARTS; i++)
		peer_call_end(&parts_of(op)->at[i].call);
}

/* Answers are reported by on_answer. */
static const struct op_methods ops = {
	.size = sizeof(struct parts),
	.passive = true,
	.put_away = put_away,
	.abandon = op_free,
};

/* --- hosts that did not answer -------------------------------------------------------------- */

static uint64_t tenant_hash(const struct request *r)
{
	return r->tenant ? load_hash(r->tenant, strlen(r->tenant)) : 0;
}

bool peers_is_silent(const struct peers *p, const struct request *r, uint32_t number)
{
	const uint64_t now_ms = loop_now_ms(p->loop), tenant = tenant_hash(r);

	for (size_t i = 0; i < PEERS_SILENT_MAX; i++)
		if (p->silent[i].number == number && p->silent[i].until_ms > now_ms &&
		    (p->silent[i].for_all || p->silent[i].tenant == tenant))
			return true;
	return false;
}

/* Notes that the host did not answer in time. If it took the connection, this counts for the
 * request's tenant only, whose entries may be many. */
static void note_silent(struct peers *p, const struct request *r, const struct asking *a)
{
	const size_t at = p->next_silent++ % PEERS_SILENT_MAX;

	p->silent[at].number = a->number;
	p->silent[at].tenant = tenant_hash(r);
	p->silent[at].for_all = !a->call.connected;
	p->silent[at].until_ms = loop_now_ms(p->loop) + SILENT_MS;
}

/* --- answers -------------------------------------------------------------------------------- */

/* Returns false for a cursor that is too long. */
static bool take_next(struct peers_part *part, const struct port_answer *a)
{
	for (size_t i = 0; i < a->n_fields; i++) {
		const struct port_field *f = &a->fields[i];

		if (!port_name_is(f->name, f->name_len, "ramet-next-cursor"))
			continue;
		if (f->value_len >= sizeof(part->next))
			return false;
		memcpy(part->next, f->value, f->value_len);
		part->next[f->value_len] = '\0';
	}
	return true;
}

static void on_answer(struct peer_call *call, const struct failure *f)
{
	struct asking *a = call->arg;
	struct peers *p = a->parts->peers;
	struct request *r = a->parts->op.arg;

	if (f) {
		log_warn("an answer goes on without host %s: %s", call->host, f->text);
		note_silent(p, r, a);
	} else {
		peers_heard(p, a->number, &call->answer);
	}
	a->part.body = call->body.p;
	a->part.len = call->body.len;
	a->answered = true;
	a->good = !f && call->answer.status == 200 && take_next(&a->part, &call->answer);
	a->parts->fn(r);
}

/* --- questions ------------------------------------------------------------------------------ */

static struct asking *find(const struct request *r, uint32_t number)
{
	struct asking *at = r->op ? parts_of(r->op)->at : NULL;

	for (size_t i = 0; at && i < PEERS_PARTS; i++)
		if (at[i].used && at[i].number == number)
			return &at[i];
	return NULL;
}

static struct parts *begin(struct peers *p, struct request *r, void (*fn)(struct request *r))
{
	struct parts *w = parts_of(op_new(r->service, &ops, r));

	w->peers = p;
	w->fn = fn;
	request_ref(r);
	r->op = &w->op;
	return w;
}

/* Takes ownership of the question; `written`: it is complete. */
static bool ask(struct peers *p, struct request *r, struct peer_asked *asked, bool written,
		size_t limit, void (*fn)(struct request *r))
{
	struct parts *w = r->op ? parts_of(r->op) : begin(p, r, fn);
	struct asking *a = w->at;

	while (a < w->at + PEERS_PARTS && a->used)
		a++;
	if (a == w->at + PEERS_PARTS || !written) {
		text_free(&asked->text);
		return false;
	}
	a->parts = w;
	a->used = true;
	a->answered = false;
	a->number = asked->host->number;
	a->part = (struct peers_part){.limit = limit};
	peer_call_start(p, &a->call, r->service, asked, on_answer, a);
	return true;
}

bool peers_ask(struct peers *p, struct request *r, const struct fleet_host *host,
	       const struct text *path, size_t limit, void (*fn)(struct request *r))
{
	struct peer_asked asked = {.host = host, .what = "a part of the list", .limit_ms = ASK_MS};
	const bool written = peer_head_get(&asked.text, r, path);

	return ask(p, r, &asked, written, limit, fn);
}

bool peers_ask_same(struct peers *p, struct request *r, const struct fleet_host *host,
		    uint32_t limit_ms, void (*fn)(struct request *r))
{
	struct peer_asked asked = {.host = host, .what = "a part of it", .limit_ms = limit_ms};
	const bool written = peer_head(&asked.text, r, "");

	text_add(&asked.text, r->req->entity.base, r->req->entity.len);
	return ask(p, r, &asked, written, 0, fn);
}

bool peers_is_asked(const struct request *r, uint32_t number)
{
	return find(r, number);
}

bool peers_part(const struct request *r, uint32_t number, const struct peers_part **part)
{
	const struct asking *a = find(r, number);

	*part = a && a->good ? &a->part : NULL;
	return !a || a->answered;
}

void peers_forget(const struct request *r, uint32_t number)
{
	struct asking *a = find(r, number);

	if (!a)
		return;
	peer_call_end(&a->call);
	*a = (struct asking){0};
}
