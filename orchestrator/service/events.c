// SPDX-License-Identifier: Apache-2.0
/* The events in the catalogue, for those who read and follow them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/service/service.h"
#include "orchestrator/service/upkeep.h"

#define READ_ROWS   64	/* read in each turn of the loop, which waits for it */
#define EVENT_BYTES 512 /* of an event in the catalogue, with what SQLite adds; most take less */
#define DAY_MS	    (24ll * 3600 * 1000)

struct follow {
	struct op op;
	struct deferred turn;
	/* Events that are not reported yet; rest.tenant is `tenant`. */
	struct store_events_range rest;
	char *tenant;  /* whose events are reported; NULL: all */
	uint64_t left; /* how many events to report */
	unsigned read; /* rows that were read in the last turn */
	bool follow;
	service_event_fn *on_event;
	bool paused, over;
};

static struct follow *follow_of(struct op *op)
{
	return container_of(op, struct follow, op);
}

static bool on_row(void *arg, const struct logged_event *event)
{
	struct follow *f = arg;

	if (f->rest.newest_first)
		f->rest.before = event->n;
	else
		f->rest.after = event->n;
	f->read++;
	f->left--;
	f->on_event(f->op.arg, event);
	return f->left > 0;
}

static void look(struct follow *f);

static void end(struct follow *f, const struct failure *failure)
{
	f->over = true;
	op_finish(&f->op, failure);
}

/* Reports a batch of events. Then it waits: for the loop's next turn if there are more, else for
 * new ones. */
static void on_turn(void *arg)
{
	struct follow *f = arg;
	struct store *store = f->op.service->store;
	struct failure failure;
	struct err e;

	if (f->paused || f->over)
		return;
	f->read = 0;
	if (store_events(store, &f->rest, READ_ROWS, on_row, f, &e) < 0) {
		failure_catalogue(&failure, &e);
		end(f, &failure);
	} else if (f->left && f->read == READ_ROWS) {
		look(f);
	} else if (!f->left || !f->follow) {
		end(f, NULL);
	}
}

static void look(struct follow *f)
{
	deferred_run(&f->op.service->deferred, &f->turn, on_turn, f);
}

static void on_added(void *arg)
{
	struct service *c = arg;

	list_each_of (op, struct op, link, &upkeep_of(c)->events.follows)
		look(follow_of(op));
	if (upkeep_of(c)->events.on_added)
		upkeep_of(c)->events.on_added(upkeep_of(c)->events.arg);
}

void service_events_watch(struct service *c, void (*fn)(void *arg), void *arg)
{
	upkeep_of(c)->events.on_added = fn;
	upkeep_of(c)->events.arg = arg;
}

static void put_away(struct op *op)
{
	deferred_cancel(&follow_of(op)->turn);
	free(follow_of(op)->tenant);
	follow_of(op)->tenant = NULL;
}

static void set_paused(struct op *op, bool paused)
{
	struct follow *f = follow_of(op);

	f->paused = paused;
	if (!paused && !f->over) /* after a failure, the operation is put away already */
		look(f);
}

static const struct op_methods follow_ops = {
	.size = sizeof(struct follow),
	.passive = true,
	.put_away = put_away,
	.abandon = op_free,
	.set_paused = set_paused,
};

/* Those who read the events of all tenants count as one tenant. */
static bool has_room(const struct service *c, const char *tenant, struct failure *f)
{
	unsigned n = 0, own = 0;

	list_each (pos, &upkeep_of(c)->events.follows) {
		const char *other = follow_of(container_of(pos, struct op, link))->tenant;

		n++;
		own += tenant && other ? !strcmp(tenant, other) : tenant == other;
	}
	return tenant_may_begin(c, "readers of events", n, own, EVENT_READERS_MAX, f);
}

struct op *service_events(struct service *c, const char *tenant, const struct event_query *query,
			  service_event_fn *on_event, service_done_fn *on_end, void *arg,
			  struct failure *failure)
{
	if (!has_room(c, tenant, failure))
		return NULL;
	struct op *op = op_new(c, &follow_ops, arg);
	struct follow *f = follow_of(op);

	f->rest.newest_first = query->newest_first;
	f->rest.after = query->from_now ? store_events_count(c->store).last : query->since;
	f->rest.before = query->before;
	f->left = query->limit ? query->limit : UINT64_MAX;
	f->follow = query->follow;
	f->on_event = on_event;
	f->op.done_fn = on_end;
	if (tenant)
		f->rest.tenant = f->tenant = must_copy(tenant);
	list_add_tail(&upkeep_of(c)->events.follows, &op->link);
	look(f);
	return op;
}

bool service_events_later(struct service *c, int64_t at_ms, uint64_t *n, struct failure *f)
{
	struct err e;

	return store_events_later(c->store, at_ms, n, &e) == 0 || failure_catalogue(f, &e);
}

void service_events_end(struct service *c)
{
	list_each_of_safe (op, struct op, link, &upkeep_of(c)->events.follows)
		end(follow_of(op), NULL);
}

/* --- bounds ---------------------------------------------------------------------------------- */

int events_purge(struct service *c, unsigned most)
{
	struct err e;
	int64_t before_ms = realtime_ms() - c->config.audit_days * DAY_MS;
	int n = store_events_purge(c->store, before_ms, most, &e);

	if (n < 0)
		log_error("old events can't be removed from the catalogue: %s", e.text);
	return n;
}

void events_init(struct service *c)
{
	store_events_keep(c->store, ((uint64_t)c->config.audit_max_mib << 20) / EVENT_BYTES);
	store_events_watch(c->store, on_added, c);
}

void events_fini(struct service *c)
{
	ops_free(&upkeep_of(c)->events.follows);
}
