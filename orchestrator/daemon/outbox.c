// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/outbox.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "orchestrator/events/line.h"
#include "orchestrator/events/notify.h"
#include "orchestrator/events/rules.h"

#define LOOK_ROWS    64	  /* at most in each turn of the loop, which waits for them */
#define SKIPPED_SAVE 1000 /* records the position after this many events that are not sent */

struct outbox {
	struct loop *loop;
	struct store *store;
	int fd;
	const char *wanted;
	uint64_t done;	  /* number of the last event that ramet-notify is done with */
	uint64_t seen;	  /* number of the last event that was looked at */
	uint64_t sent;	  /* number of the last event that was sent; 0: none yet */
	uint64_t dropped; /* events */
	bool asked;	  /* ramet-notify waits for an event */
	/* Being received, all the time. */
	struct notify_request request;
	bool sending;
	size_t len;
	char line[AUDIT_LINE_MAX]; /* being sent, or to be sent */
	struct loop_timer turn;
};

/* --- the next event ------------------------------------------------------------------------- */

/* Looks for an event that is wanted. */
static bool on_row(void *arg, const struct logged_event *event)
{
	struct outbox *o = arg;
	struct audit_line head;

	o->dropped += event->n - o->seen - 1;
	o->seen = event->n;
	if (event->len > sizeof(o->line) || !audit_line_parse(&head, event->line, event->len) ||
	    !rules_want(o->wanted, head.name))
		return true;
	memcpy(o->line, event->line, event->len);
	o->len = event->len;
	o->sent = event->n;
	return false;
}

static void look(struct outbox *o);

static void on_sent(void *arg, int result)
{
	struct outbox *o = arg;

	o->sending = false;
	o->len = 0;
	if (result >= 0) /* else ramet-notify asks again */
		look(o);
}

static void note_done(struct outbox *o, uint64_t n)
{
	struct err e;

	o->done = n;
	if (store_webhooks_set(o->store, n, &e) < 0)
		log_error("webhooks that were sent can't be recorded, so they may be sent again "
			  "after a restart: %s",
			  e.text);
}

static void look(struct outbox *o)
{
	const struct store_events_range unseen = {.after = o->seen};
	uint64_t dropped = o->dropped;
	struct err e;

	if (!o->asked || o->sending)
		return;
	if (store_events(o->store, &unseen, LOOK_ROWS, on_row, o, &e) < 0)
		log_error("webhooks wait: %s", e.text);
	if (o->dropped != dropped)
		log_error("%llu events were removed from the audit log before they could be sent",
			  (unsigned long long)(o->dropped - dropped));
	if (o->len) {
		o->asked = false;
		o->sending = loop_send(o->loop, o->fd, o->line, o->len, on_sent, o) != NULL;
		return;
	}
	if (o->seen - o->done >= SKIPPED_SAVE)
		note_done(o, o->seen);
	if (o->seen < store_events_count(o->store).last)
		outbox_look(o);
}

static void on_turn(void *arg)
{
	look(arg);
}

void outbox_look(struct outbox *o)
{
	if (o)
		loop_timer_set(o->loop, &o->turn, 0);
}

/* --- requests of ramet-notify ---------------------------------------------------------------- */

static void receive(struct outbox *o);

/* ramet-notify is done with the event that was sent, or asks for it again: the line was lost, or
 * ramet-notify has restarted. It asks again from time to time while it waits. */
static void on_ask(struct outbox *o, uint64_t done)
{
	if (!o->asked && done == o->sent && done > o->done)
		note_done(o, done);
	else if (!o->asked && o->sent > o->done)
		o->seen = o->sent - 1;
	o->asked = true;
	look(o);
}

static void on_request(void *arg, int result)
{
	struct outbox *o = arg;

	if (result < 0) {
		if (result != -ECANCELED)
			log_error("webhooks stop: their socket failed: %s", strerror(-result));
		return;
	}
	if (result == (int)sizeof(o->request))
		on_ask(o, o->request.done);
	receive(o);
}

static void receive(struct outbox *o)
{
	loop_recv(o->loop, o->fd, &o->request, sizeof(o->request), on_request, o);
}

/* --- life ------------------------------------------------------------------------------------ */

int outbox_new(struct outbox **out, struct loop *loop, struct store *store, int fd,
	       const char *wanted, struct err *e)
{
	struct outbox *o = must_alloc(sizeof(*o));

	*o = (struct outbox){.loop = loop, .store = store, .fd = fd, .wanted = wanted};
	o->turn = (struct loop_timer){.fn = on_turn, .arg = o};
	int ret = store_webhooks_done(store, &o->done, e);
	if (ret == 0) {
		o->done = store_events_count(store).last;
		ret = store_webhooks_set(store, o->done, e);
	}
	if (ret < 0) {
		free(o);
		return ret;
	}
	o->seen = o->done;
	receive(o);
	*out = o;
	return 0;
}

void outbox_free(struct outbox *o)
{
	free(o);
}

void outbox_stats(const struct outbox *o, struct outbox_stats *out)
{
	*out = (struct outbox_stats){0};
	if (!o)
		return;
	uint64_t last = store_events_count(o->store).last;
	out->behind = last - (o->asked || !o->sent ? o->seen : o->sent - 1);
	out->dropped = o->dropped;
}
