// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/fleet-list.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "orchestrator/fleet/member.h"

#define MISSING_NAMES 50  /* maximum of missing hosts that the answer names */
#define LISTS_MAX     128 /* lists at a time: each has connections to other hosts */

bool fleet_list_begin(struct fleet_list *l, struct request *r)
{
	struct failure f;
	size_t n = 0, own = 0;

	list_each (pos, &r->api->lists) {
		n++;
		own += !strcmp(container_of(pos, struct fleet_list, link)->r->tenant, r->tenant);
	}
	if (fair_share(n, own, LISTS_MAX)) {
		l->r = r;
		list_add_tail(&r->api->lists, &l->link);
		return true;
	}
	failure_set(&f, FAIL_TOO_MANY, 1,
		    "%zu lists over several hosts are in progress at this host, %zu of them of "
		    "this tenant; above half of the limit of %d, a tenant may have an eighth of it",
		    n, own, LISTS_MAX);
	answer_failure(r, &f);
	return false;
}

void fleet_list_end(struct fleet_list *l)
{
	list_del(&l->link);
	text_free(&l->missing);
}

/* --- hosts that are left out ---------------------------------------------------------------- */

static size_t n_missing(const struct fleet_list *l)
{
	return l->missing.len / sizeof(uint32_t);
}

static uint32_t missing_at(const struct fleet_list *l, size_t i)
{
	uint32_t number;

	memcpy(&number, l->missing.p + i * sizeof(number), sizeof(number));
	return number;
}

bool fleet_list_misses(const struct fleet_list *l, uint32_t number)
{
	for (size_t i = 0; i < n_missing(l); i++)
		if (missing_at(l, i) == number)
			return true;
	return false;
}

void fleet_list_miss(struct fleet_list *l, uint32_t number)
{
	text_add(&l->missing, &number, sizeof(number));
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *one = a, *other = b;

	return *one < *other ? -1 : *one > *other;
}

void fleet_list_answer(struct fleet_list *l)
{
	const struct fleet_table *t = member_table(service_member(l->r->service));
	struct text names = {0};

	if (!n_missing(l))
		return;
	qsort(l->missing.p, n_missing(l), sizeof(uint32_t), by_number);
	for (size_t i = 0; i < n_missing(l) && i < MISSING_NAMES; i++) {
		const struct fleet_host *host = fleet_table_host(t, missing_at(l, i));

		text_printf(&names, "%s%s", i ? ", " : "", host ? host->name : "?");
	}
	if (n_missing(l) > MISSING_NAMES)
		text_printf(&names, ", and %zu more", n_missing(l) - MISSING_NAMES);
	text_putc(&names, '\0');
	answer_header(l->r, "ramet-missing-hosts", names.p);
	text_free(&names);
}

const struct fleet_host *fleet_list_host(const struct fleet_table *t, uint32_t number)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->hosts[i].number >= number &&
		    (&t->hosts[i] == t->self || !fleet_is_lost(&t->hosts[i], realtime_ms() / 1000)))
			return &t->hosts[i];
	return NULL;
}

/* --- rounds --------------------------------------------------------------------------------- */

static void leave_out(struct fleet_list *l, uint32_t number)
{
	if (l->r->started) /* too late to name the host to the client */
		stream_end(l->r, true);
	else
		fleet_list_miss(l, number);
}

/* Returns the next host to ask; NULL: none. Leaves out those that did not answer a moment ago. */
static const struct fleet_host *next_host(struct fleet_list *l, struct fleet_round *round)
{
	struct request *r = l->r;
	const struct fleet_table *t = member_table(service_member(r->service));
	const struct fleet_host *host;

	while (!r->ended && (host = fleet_list_host(t, round->next))) {
		round->next = host->number + 1;
		if (host == t->self || fleet_list_misses(l, host->number))
			continue;
		if (!peers_is_silent(r->api->peers, r, host->number) &&
		    loop_now_ms(r->loop) - round->began_ms < round->limit_ms)
			return host;
		leave_out(l, host->number);
	}
	return NULL;
}

/* Takes the answer at this place, if one was asked for. Returns false while it is missing. */
static bool take_answer(struct fleet_list *l, struct fleet_round *round, int i)
{
	const uint32_t number = round->asked[i].number;
	const struct peers_part *part;

	if (!round->asked[i].used)
		return true;
	if (!peers_part(l->r, number, &part))
		return false;
	if (!part || !round->take(l->r, number, part))
		leave_out(l, number);
	peers_forget(l->r, number);
	round->asked[i].used = false;
	return true;
}

/* Asks the next host at this place, which is free. Leaves out those that can't be asked. */
static void ask_next(struct fleet_list *l, struct fleet_round *round, int i)
{
	const struct fleet_host *host;

	while (!round->asked[i].used && (host = next_host(l, round))) {
		round->asked[i].number = host->number;
		round->asked[i].used = round->ask(l->r, host);
		if (!round->asked[i].used)
			leave_out(l, host->number);
	}
}

void fleet_round_go_on(struct fleet_list *l, struct fleet_round *round)
{
	bool waiting = false;

	for (int i = 0; i < PEERS_PARTS && !l->r->ended; i++) {
		if (take_answer(l, round, i))
			ask_next(l, round, i);
		waiting |= round->asked[i].used;
	}
	if (!waiting && !l->r->ended)
		round->over(l->r);
}

void fleet_round_begin(struct fleet_list *l, struct fleet_round *round)
{
	round->next = 0;
	round->began_ms = loop_now_ms(l->r->loop);
	fleet_round_go_on(l, round);
}
