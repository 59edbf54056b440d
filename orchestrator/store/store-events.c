// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue's table of events: the audit log, and the queue of the webhooks. An event waits
 * here until the change that it reports is made, and is written in the transaction of that change.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/events/line.h"
#include "orchestrator/store/store-internal.h"

/* A change removes at most so many rows, besides one for each event that it adds. */
#define TRIM_ROWS 64

#define LIST	  "SELECT n, at_ms, line FROM events WHERE n > ?1 AND n < ?2 "
#define OF_TENANT "AND tenant = ?4 "

const struct store_sql store_event_sql[] = {
	{EVENT_ADD, "INSERT INTO events (n, at_ms, tenant, line) VALUES (?,?,?,?)"},
	/* Removes the oldest event of the tenant with the most events, if there are more than ?2 in
	 * all. Keeps the last event, ?1, from which the next event's number follows. Chooses the
	 * same event in each copy of the catalogue. */
	{EVENT_TRIM, "DELETE FROM events WHERE n = (SELECT n FROM events WHERE tenant = "
		     "(SELECT tenant FROM event_counts ORDER BY events DESC, tenant DESC LIMIT 1) "
		     "ORDER BY n LIMIT 1) AND n < ?1 AND "
		     "(SELECT events FROM event_total) > ?2"},
	/* Also keeps the last event. Compares the time in each event (2440587.5: the Julian day of
	 * 1970), so that one event from a clock that was far ahead does not keep all later ones. */
	{EVENT_PURGE, "DELETE FROM events WHERE n IN (SELECT n FROM events ORDER BY n LIMIT ?2) "
		      "AND round((julianday(substr(line, instr(line, '\"time\":\"') + 8, 24)) - "
		      "2440587.5) * 86400000) < ?1 AND n < (SELECT max(n) FROM events)"},
	{EVENT_LIST, LIST "ORDER BY n LIMIT ?3"},
	{EVENT_LIST_BACK, LIST "ORDER BY n DESC LIMIT ?3"},
	{EVENT_LIST_TENANT, LIST OF_TENANT "ORDER BY n LIMIT ?3"},
	{EVENT_LIST_TENANT_BACK, LIST OF_TENANT "ORDER BY n DESC LIMIT ?3"},
	{EVENT_LAST, "SELECT n, at_ms FROM events ORDER BY n DESC LIMIT 1"},
	{EVENT_FROM, "SELECT n, at_ms FROM events WHERE n >= ?1 ORDER BY n LIMIT 1"},
	{WEBHOOKS_SET, "INSERT OR REPLACE INTO webhooks (only, done) VALUES (1, ?1)"},
	{WEBHOOKS_DONE, "SELECT done, 0 FROM webhooks"},
	{0},
};

void store_event(struct store *s, const struct audit_event *event)
{
	struct events *all = &s->events;
	char line[AUDIT_LINE_MAX];
	const int64_t last_ms =
		all->n_waiting ? all->waiting[all->n_waiting - 1].at_ms : all->last_ms;

	all->waiting = must_realloc(all->waiting, (all->n_waiting + 1) * sizeof(*all->waiting));
	size_t len = audit_line_new(line, all->last + all->n_waiting + 1, event);
	line[len - 1] = '\0'; /* the newline */
	all->waiting[all->n_waiting++] = (struct waiting_event){
		.at_ms = event->at_ms > last_ms ? event->at_ms : last_ms,
		.tenant = must_copy(event->tenant ? event->tenant : ""),
		.line = must_copy(line),
	};
}

static int add(struct store *s, const struct waiting_event *event, uint64_t n, struct err *e)
{
	return store_do(s, e, EVENT_ADD, NUMBER(n), NUMBER(event->at_ms), TEXT(event->tenant),
			TEXT(event->line));
}

/* Removes events above the bound. `last`: number of the last one. */
static int trim(struct store *s, uint64_t last, struct err *e)
{
	int ret = 0;

	if (last <= s->events.most) /* numbers begin at 1, so there are no more events than this */
		return 0;
	for (size_t i = 0; i < TRIM_ROWS + s->events.n_waiting && ret == 0; i++) {
		ret = store_do(s, e, EVENT_TRIM, NUMBER(last), NUMBER(s->events.most));
		if (!sqlite3_changes(s->db))
			break;
	}
	return ret;
}

int store_events_add(struct store *s, struct err *e)
{
	int ret = 0;

	for (size_t i = 0; i < s->events.n_waiting && ret == 0; i++)
		ret = add(s, &s->events.waiting[i], s->events.last + i + 1, e);
	if (ret == 0)
		ret = trim(s, s->events.last + s->events.n_waiting, e);
	return ret;
}

void store_events_end(struct store *s, bool committed)
{
	struct events *all = &s->events;
	size_t n = all->n_waiting;

	if (committed && n)
		all->last_ms = all->waiting[n - 1].at_ms;
	for (size_t i = 0; i < n; i++) {
		free(all->waiting[i].tenant);
		free(all->waiting[i].line);
	}
	all->n_waiting = 0;
	if (!committed || !n)
		return;
	all->last += n;
	all->added += n;
	if (all->fn)
		all->fn(all->arg);
}

int store_events(struct store *s, const struct store_events_range *range, unsigned most,
		 store_event_fn *each, void *arg, struct err *e)
{
	enum statement which = range->newest_first ? EVENT_LIST_BACK : EVENT_LIST;
	const uint64_t before = range->before ? range->before : INT64_MAX;
	const struct store_value values[] = {NUMBER(min_u64(range->after, INT64_MAX)),
					     NUMBER(min_u64(before, INT64_MAX)), NUMBER(most),
					     TEXT(range->tenant)};
	int ret;

	if (range->tenant)
		which += EVENT_LIST_TENANT - EVENT_LIST;
	sqlite3_stmt *st = s->statements[which];
	store_bind_values(st, values, range->tenant ? 4 : 3);
	while ((ret = store_next(s, st, e)) > 0)
		if (!each(arg, &(struct logged_event){.n = (uint64_t)sqlite3_column_int64(st, 0),
						      .at_ms = sqlite3_column_int64(st, 1),
						      .line = text_at(st, 2),
						      .len = (size_t)sqlite3_column_bytes(st, 2)}))
			break;
	store_reset(st);
	return ret < 0 ? ret : 0;
}

/* Reads number and time of the event that the statement finds. Returns 1, 0 if there is none, or
 * -errno. */
static int read_event(struct store *s, sqlite3_stmt *st, uint64_t *n, int64_t *at_ms, struct err *e)
{
	int ret = store_next(s, st, e);
	if (ret > 0) {
		*n = (uint64_t)sqlite3_column_int64(st, 0);
		*at_ms = sqlite3_column_int64(st, 1);
	}
	store_reset(st);
	return ret;
}

int store_events_later(struct store *s, int64_t at_ms, uint64_t *n, struct err *e)
{
	sqlite3_stmt *st = s->statements[EVENT_FROM];
	uint64_t low = 0,
		 high = s->events.last + 1; /* the event `low` is not later than at_ms, `high` is */

	while (low + 1 < high) {
		const uint64_t middle = low + (high - low) / 2;
		uint64_t found;
		int64_t its_ms;

		store_bind(st, NUMBER(middle));
		int ret = read_event(s, st, &found, &its_ms, e);
		if (ret < 0)
			return ret;
		if (ret && found < high && its_ms <= at_ms)
			low = found;
		else
			high = middle;
	}
	*n = high;
	return 0;
}

int store_events_purge(struct store *s, int64_t before_ms, unsigned most, struct err *e)
{
	int ret = store_do(s, e, EVENT_PURGE, NUMBER(before_ms), NUMBER(most));

	return ret < 0 ? ret : sqlite3_changes(s->db);
}

void store_events_keep(struct store *s, uint64_t most)
{
	s->events.most = most ? most : 1; /* the next number follows the last one */
}

void store_events_watch(struct store *s, void (*added)(void *arg), void *arg)
{
	s->events.fn = added;
	s->events.arg = arg;
}

struct store_events_count store_events_count(const struct store *s)
{
	return (struct store_events_count){.added = s->events.added, .last = s->events.last};
}

/* --- webhooks -------------------------------------------------------------------------------- */

int store_webhooks_done(struct store *s, uint64_t *n, struct err *e)
{
	int64_t no_time;

	return read_event(s, s->statements[WEBHOOKS_DONE], n, &no_time, e);
}

int store_webhooks_set(struct store *s, uint64_t n, struct err *e)
{
	return store_do(s, e, WEBHOOKS_SET, NUMBER(n));
}

/* --- life ------------------------------------------------------------------------------------ */

int store_events_open(struct store *s, struct err *e)
{
	struct events *all = &s->events;

	all->most = INT64_MAX;
	int ret = read_event(s, s->statements[EVENT_LAST], &all->last, &all->last_ms, e);
	return ret < 0 ? ret : 0;
}
