// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue's table of events: the audit log, and the queue of the webhooks. An event waits
 * here until the change that it tells of is made, and is written in the transaction of that change.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/events/line.h"
#include "orchestrator/store/store-internal.h"

#define TRIM_ROWS 64 /* removed at most with each event that is added */

const char *const store_event_sql[EVENT_STATEMENTS] = {
	[EVENT_ADD] = "INSERT INTO events (n, at_ms, tenant, line) VALUES (?,?,?,?)",
	[EVENT_TRIM] = "DELETE FROM events WHERE n IN "
		       "(SELECT n FROM events WHERE n <= ?1 ORDER BY n LIMIT ?2)",
	/* Keeps the last one, whose number the next one follows. */
	[EVENT_PURGE] = "DELETE FROM events WHERE n IN (SELECT n FROM events ORDER BY n LIMIT ?2) "
			"AND at_ms < ?1 AND n < (SELECT max(n) FROM events)",
	[EVENT_AFTER] = "SELECT n, tenant, line FROM events WHERE n > ?1 ORDER BY n LIMIT ?2",
	[EVENT_LAST] = "SELECT max(n) FROM events",
	[WEBHOOKS_SET] = "INSERT OR REPLACE INTO webhooks (only, done) VALUES (1, ?1)",
	[WEBHOOKS_DONE] = "SELECT done FROM webhooks",
};

void store_event(struct store *s, const struct audit_event *event)
{
	struct events *all = &s->events;
	char line[AUDIT_LINE_MAX];

	all->waiting = realloc(all->waiting, (all->n_waiting + 1) * sizeof(*all->waiting));
	if (!all->waiting)
		abort();
	size_t len = audit_line_new(line, all->last + all->n_waiting + 1, event);
	line[len - 1] = '\0'; /* the newline */
	all->waiting[all->n_waiting++] = (struct waiting_event){
		.at_ms = event->at_ms,
		.tenant = must_copy(event->tenant ? event->tenant : ""),
		.line = must_copy(line),
	};
}

static int add(struct store *s, const struct waiting_event *event, uint64_t n, struct err *e)
{
	sqlite3_stmt *st = s->events.statements[EVENT_ADD];

	sqlite3_bind_int64(st, 1, (int64_t)n);
	sqlite3_bind_int64(st, 2, event->at_ms);
	bind_text(st, 3, event->tenant);
	bind_text(st, 4, event->line);
	int ret = store_run(s, st, e);
	if (ret < 0 || n <= s->events.most)
		return ret;
	st = s->events.statements[EVENT_TRIM];
	sqlite3_bind_int64(st, 1, (int64_t)(n - s->events.most));
	sqlite3_bind_int(st, 2, TRIM_ROWS);
	return store_run(s, st, e);
}

int store_events_add(struct store *s, struct err *e)
{
	int ret = 0;

	for (size_t i = 0; i < s->events.n_waiting && ret == 0; i++)
		ret = add(s, &s->events.waiting[i], s->events.last + i + 1, e);
	return ret;
}

void store_events_end(struct store *s, bool committed)
{
	struct events *all = &s->events;
	size_t n = all->n_waiting;

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

struct reader {
	store_event_fn *each;
	void *arg;
};

static void on_row(void *arg, sqlite3_stmt *st)
{
	const struct reader *reader = arg;
	const char *line = text_at(st, 2);

	reader->each(reader->arg, (uint64_t)sqlite3_column_int64(st, 0), text_at(st, 1), line,
		     (size_t)sqlite3_column_bytes(st, 2));
}

int store_events(struct store *s, uint64_t after, unsigned most, store_event_fn *each, void *arg,
		 struct err *e)
{
	sqlite3_stmt *st = s->events.statements[EVENT_AFTER];
	struct reader reader = {each, arg};

	sqlite3_bind_int64(st, 1, after < INT64_MAX ? (int64_t)after : INT64_MAX);
	sqlite3_bind_int64(st, 2, most);
	return store_rows(s, st, on_row, &reader, e);
}

int store_events_purge(struct store *s, int64_t before_ms, unsigned most, struct err *e)
{
	sqlite3_stmt *st = s->events.statements[EVENT_PURGE];

	sqlite3_bind_int64(st, 1, before_ms);
	sqlite3_bind_int64(st, 2, most);
	int ret = store_run(s, st, e);
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

static void take_number(void *arg, sqlite3_stmt *st)
{
	*(uint64_t *)arg = (uint64_t)sqlite3_column_int64(st, 0);
}

int store_webhooks_done(struct store *s, uint64_t *n, struct err *e)
{
	*n = UINT64_MAX;
	int ret = store_rows(s, s->events.statements[WEBHOOKS_DONE], take_number, n, e);
	return ret < 0 ? ret : *n != UINT64_MAX;
}

int store_webhooks_set(struct store *s, uint64_t n, struct err *e)
{
	sqlite3_stmt *st = s->events.statements[WEBHOOKS_SET];

	sqlite3_bind_int64(st, 1, (int64_t)n);
	return store_run(s, st, e);
}

/* --- life ------------------------------------------------------------------------------------ */

int store_events_open(struct store *s, struct err *e)
{
	struct events *all = &s->events;

	all->most = UINT64_MAX;
	return store_rows(s, all->statements[EVENT_LAST], take_number, &all->last, e);
}
