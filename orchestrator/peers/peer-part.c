// SPDX-License-Identifier: Apache-2.0
/* Asks other hosts for parts of lists, which this host puts together. */
#include <string.h>

#include "orchestrator/peers/internal.h"

#define ASK_MS	  1000 /* time for the whole answer */
#define SILENT_MS 5000 /* how long a host that did not answer is left alone */

struct asking {
	struct op op;
	struct peers *peers;
	struct peer_call call;
	uint32_t number; /* of the host */
	peers_part_fn *fn;
};

static struct asking *asking_of(const struct op *op)
{
	return container_of(op, struct asking, op);
}

static void put_away(struct op *op)
{
	peer_call_end(&asking_of(op)->call);
}

/* Its end is reported by on_answer. */
static const struct op_methods ops = {
	.size = sizeof(struct asking),
	.passive = true,
	.put_away = put_away,
	.abandon = op_free,
};

bool peers_is_silent(const struct peers *p, uint32_t number)
{
	for (size_t i = 0; i < PEERS_SILENT_MAX; i++)
		if (p->silent[i].number == number && p->silent[i].until_ms > loop_now_ms(p->loop))
			return true;
	return false;
}

static void note_silent(struct peers *p, uint32_t number)
{
	const size_t at = p->next_silent++ % PEERS_SILENT_MAX;

	p->silent[at].number = number;
	p->silent[at].until_ms = loop_now_ms(p->loop) + SILENT_MS;
}

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
	struct request *r = a->op.arg;
	struct peers_part part = {.body = call->body.p, .len = call->body.len};

	if (f) {
		log_warn("a list goes on without host %s: %s", call->host, f->text);
		note_silent(a->peers, a->number);
	} else {
		peers_heard(a->peers, a->number, &call->answer);
	}
	bool good = !f && call->answer.status == 200 && take_next(&part, &call->answer);
	if (request_called(r))
		a->fn(r, good ? &part : NULL);
	op_free(&a->op);
}

bool peers_ask(struct peers *p, struct request *r, const struct fleet_host *host,
	       const struct text *path, peers_part_fn *fn)
{
	struct peer_asked asked = {.host = host, .what = "a part of the list", .limit_ms = ASK_MS};

	if (!peer_head_get(&asked.text, r, path)) {
		text_free(&asked.text);
		return false;
	}
	struct op *op = op_new(r->service, &ops, r);
	struct asking *a = asking_of(op);
	a->peers = p;
	a->number = host->number;
	a->fn = fn;
	request_ref(r);
	r->op = op;
	peer_call_start(p, &a->call, r->service, &asked, on_answer, a);
	return true;
}
