// SPDX-License-Identifier: Apache-2.0
/* The contract of exec/: calls in a sandbox, and the stream of its events. */
#ifndef RAMET_ORCHESTRATOR_EXEC_EXEC_H
#define RAMET_ORCHESTRATOR_EXEC_EXEC_H

#include "orchestrator/exec/event.h"
#include "orchestrator/sandbox/sandboxes.h"

struct exec_spec {
	const char *context; /* id of a context; NULL: the default interpreter */
	bool bash;	     /* runs bash instead of Python; in the default interpreter only */
	bool results;	     /* Python only: deliver values and exceptions as events, too */
	bool chunks;	     /* deliver output in chunks as they come; else by line */
	const char *code;    /* copied */
	size_t code_len;
	uint32_t timeout_ms; /* 0: none */
	const char *cwd;     /* working directory; NULL: unchanged */
	const char *const *env;
	const char *traceparent; /* NULL: none; kept for replay */
};

/*
 * Receives the events of one call, in order; the last is EVENT_EXIT. `started` comes first, once
 * the call was accepted (the answer is then 200). `failed` comes alone if the call was not
 * accepted, else in place of EVENT_EXIT; for a stream that has begun, it carries the failure as an
 * event too. Event data is valid during the callback only.
 */
struct exec_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev);
	void (*failed)(void *arg, const struct failure *f, const struct event *ev);
};

struct op *service_exec(struct service *c, const char *tenant, const char *id,
			const struct exec_spec *spec, const struct exec_sink *sink, void *arg);
/* Interrupts the running exec of a context, or of the default interpreter (`context` NULL). */
struct op *service_interrupt(struct service *c, const char *tenant, const char *id,
			     const char *context, service_done_fn *fn, void *arg);
/* Reports the events with a number above `since`, oldest first. Only the last 1,000 events are
 * kept, or fewer if they are long. Returns false, with *f filled, when the tenant has no such
 * sandbox. */
bool service_replay(struct service *c, const char *tenant, const char *id, uint64_t since,
		    void (*each)(void *arg, const struct event *ev, const char *traceparent),
		    void *arg, struct failure *f);

/* `started` comes first. `ended` comes last, with f NULL once no call runs or is queued. */
struct follow_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev, const char *traceparent);
	void (*ended)(void *arg, const struct failure *f);
};
/* Reports the same events as service_replay, then new ones until no call runs or is queued in the
 * sandbox. A follower that is paused for long misses events that service_replay no longer reports.
 */
struct op *service_follow(struct service *c, const char *tenant, const char *id, uint64_t since,
			  const struct follow_sink *sink, void *arg);

#endif
