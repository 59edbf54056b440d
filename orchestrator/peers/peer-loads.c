// SPDX-License-Identifier: Apache-2.0
/* Asks all hosts how full they are, some at a time. */
#include <string.h>

#include "orchestrator/fleet/member.h"
#include "orchestrator/peers/internal.h"
#include "orchestrator/service/service.h"

#define AT_A_TIME 16

struct loads {
	struct op op;
	struct peers *peers;
	void (*fn)(void *arg, const char *text, const struct failure *f);
	struct text text;
	uint32_t next; /* number from which on hosts have not been asked yet */
	unsigned waiting;
	uint32_t numbers[AT_A_TIME]; /* numbers of the hosts that are called */
	struct peer_call calls[AT_A_TIME];
};

static struct loads *loads_of(const struct op *op)
{
	return container_of(op, struct loads, op);
}

static void put_away(struct op *op)
{
	for (int i = 0; i < AT_A_TIME; i++)
		peer_call_end(&loads_of(op)->calls[i]);
	text_free(&loads_of(op)->text);
}

static void notify(struct op *op)
{
	struct loads *w = loads_of(op);

	text_putc(&w->text, '\0');
	w->fn(op->arg, w->text.p, NULL);
}

static const struct op_methods ops = {
	.size = sizeof(struct loads),
	.passive = true,
	.put_away = put_away,
	.notify = notify,
	.abandon = op_free,
};

static void add(struct loads *w, uint32_t number, const struct place_load *load)
{
	text_printf(&w->text, "%u %u %u\n", number, load->sandboxes, load->free_mib);
}

static const struct fleet_host *next_host(struct loads *w)
{
	const struct fleet_table *t = member_table(w->peers->member);

	for (size_t i = 0; i < t->n; i++)
		if (t->hosts[i].number >= w->next && &t->hosts[i] != t->self) {
			w->next = t->hosts[i].number + 1;
			return &t->hosts[i];
		}
	return NULL;
}

static void on_load(struct peer_call *call, const struct failure *f);

static void ask(struct loads *w, struct peer_call *call)
{
	struct peer_asked asked = {
		.host = next_host(w), .what = "its load", .limit_ms = PEER_LOAD_MS};

	if (!asked.host)
		return;
	w->numbers[call - w->calls] = asked.host->number;
	w->waiting++;
	text_puts(&asked.text, PEER_ASK_LOAD);
	peer_call_start(w->peers, call, w->op.service, &asked, on_load, w);
}

static void on_load(struct peer_call *call, const struct failure *f)
{
	struct loads *w = call->arg;
	struct place_load load;

	if (!f && peer_read_load(&load, &call->answer))
		add(w, w->numbers[call - w->calls], &load);
	w->waiting--;
	ask(w, call);
	if (!w->waiting)
		op_finish(&w->op, NULL);
}

struct op *peers_loads(struct peers *p, struct service *c,
		       void (*fn)(void *arg, const char *text, const struct failure *f), void *arg)
{
	struct loads *w = loads_of(op_new(c, &ops, arg));
	struct place_load own;

	w->peers = p;
	w->fn = fn;
	service_load(c, &own);
	add(w, member_table(p->member)->self->number, &own);
	for (int i = 0; i < AT_A_TIME; i++)
		ask(w, &w->calls[i]);
	if (!w->waiting)
		op_finish(&w->op, NULL);
	return &w->op;
}
