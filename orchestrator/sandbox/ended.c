// SPDX-License-Identifier: Apache-2.0
/*
 * Sandboxes that have ended. The write of an end to the catalogue is retried until it succeeds. The
 * most recently ended ones stay in memory, so that requests for them can be answered with the
 * reason of the end. Their rows are removed KEPT_MS after the end.
 */
#include "orchestrator/sandbox/ended.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/life.h"

#define KEPT_MS	    (3600 * 1000)
#define KEPT_MAX    1000
#define RECORD_ROWS 64
/* Between two attempts to record an end; the delay doubles. */
#define RECORD_FIRST_MS 100
#define RECORD_MAX_MS	10000

/* --- in memory ------------------------------------------------------------------------------ */

static void free_oldest(struct service *c)
{
	c->ended.n_kept--;
	sandbox_free(container_of(c->ended.kept.next, struct sandbox, link));
}

/* Frees one ended sandbox: the oldest of this tenant when it has more than an eighth of KEPT_MAX,
 * so that it can't displace those of other tenants; else the oldest of all. */
static void make_room(struct service *c, const char *tenant)
{
	struct sandbox *own = NULL;
	size_t n = 0;

	list_each_of (s, struct sandbox, link, &c->ended.kept) {
		if (strcmp(s->tenant, tenant) != 0)
			continue;
		own = own ? own : s;
		n++;
	}
	if (n <= KEPT_MAX / 8) {
		free_oldest(c);
		return;
	}
	c->ended.n_kept--;
	sandbox_free(own);
}

void ended_keep(struct sandbox *s)
{
	struct service *c = s->service;

	s->state = SBX_ENDED;
	free(s->metadata);
	s->metadata = NULL;
	free(s->labels);
	s->labels = NULL;
	sandbox_set_env(s, "", 0);
	list_del(&s->link);
	list_add_tail(&c->ended.kept, &s->link);
	if (++c->ended.n_kept > KEPT_MAX)
		make_room(c, s->tenant);
}

static void forget_old(struct service *c, int64_t before_ms)
{
	while (!list_empty(&c->ended.kept) &&
	       container_of(c->ended.kept.next, struct sandbox, link)->ended_at_ms < before_ms)
		free_oldest(c);
}

int ended_load(struct service *c, store_sandbox_fn *each, struct err *e)
{
	return store_sandboxes_ended(c->store, realtime_ms() - KEPT_MS, KEPT_MAX, each, c, e);
}

/* --- in the catalogue ----------------------------------------------------------------------- */

int ended_purge(struct service *c, unsigned most)
{
	const int64_t before_ms = realtime_ms() - KEPT_MS;
	struct err e;

	forget_old(c, before_ms);
	int n = store_purge_ended(c->store, before_ms, most, &e);
	if (n < 0)
		log_error("ended sandboxes can't be removed from the catalogue: %s", e.text);
	return n;
}

/* --- recording the end in the catalogue ----------------------------------------------------- */

static int write_end(struct sandbox *s, struct err *e)
{
	struct store *store = s->service->store;

	if (s->off_catalogue)
		return 0;
	life_note_end(s);
	if (s->forget)
		return store_sandbox_forget(store, s->id, e);
	return store_sandbox_end(store, s->id, s->ended_at_ms, s->ended_code, s->ended_text, e);
}

/* Keeps or frees the sandbox once its VM is gone and its end is recorded. */
static void finish_ended(struct sandbox *s)
{
	if (s->forget)
		sandbox_free(s);
	else
		ended_keep(s);
}

void ended_vm_gone(struct sandbox *s)
{
	if (list_empty(&s->unrecorded))
		finish_ended(s);
}

static void on_recorded(struct sandbox *s)
{
	struct vmproc *vm = s->kept_vm;

	list_del(&s->unrecorded);
	s->service->ended.n_unrecorded--;
	s->kept_vm = NULL;
	if (vm)
		vmproc_give_back(vm);
	if (s->state == SBX_ENDED)
		finish_ended(s);
}

static void wait_to_record(struct service *c);

static void record_again(void *arg)
{
	struct service *c = arg;
	struct err e;

	for (unsigned i = 0; i < RECORD_ROWS && !list_empty(&c->ended.unrecorded); i++) {
		struct sandbox *s =
			container_of(c->ended.unrecorded.next, struct sandbox, unrecorded);

		if (write_end(s, &e) < 0) {
			list_del(&s->unrecorded);
			list_add_tail(&c->ended.unrecorded, &s->unrecorded);
			wait_to_record(c);
			return;
		}
		log_info("the end of sandbox %s is now recorded in the catalogue", s->id);
		on_recorded(s);
	}
	c->ended.record_ms = 0;
	if (!list_empty(&c->ended.unrecorded))
		loop_timer_set(c->loop, &c->ended.record, 0);
}

static void wait_to_record(struct service *c)
{
	c->ended.record.fn = record_again;
	c->ended.record.arg = c;
	c->ended.record_ms = backoff_next(c->ended.record_ms, RECORD_FIRST_MS, RECORD_MAX_MS);
	loop_timer_set(c->loop, &c->ended.record, c->ended.record_ms);
}

void ended_record(struct sandbox *s)
{
	struct service *c = s->service;
	bool first = list_empty(&c->ended.unrecorded);
	struct err e;

	if (write_end(s, &e) == 0)
		return;
	log_error("the end of sandbox %s is not recorded in the catalogue yet: %s", s->id, e.text);
	if (c->closing) /* the next start checks the slot before another VM gets it */
		return;
	list_add_tail(&c->ended.unrecorded, &s->unrecorded);
	c->ended.n_unrecorded++;
	if (first)
		wait_to_record(c);
}

void ended_drop_vm(struct sandbox *s, void (*gone)(void *arg))
{
	struct vmproc *vm = s->vm;

	s->vm = NULL;
	if (!list_empty(&s->unrecorded)) {
		s->kept_vm = vm;
		vmproc_keep_slot(vm);
	}
	vmproc_drop(vm, gone, s);
}

void ended_close(struct service *c)
{
	struct err e;

	loop_timer_clear(c->loop, &c->ended.record);
	list_each_of_safe (s, struct sandbox, unrecorded, &c->ended.unrecorded) {
		if (write_end(s, &e) < 0)
			log_error("the end of sandbox %s is not recorded in the catalogue: %s",
				  s->id, e.text);
		on_recorded(s);
	}
}
