// SPDX-License-Identifier: Apache-2.0
/* The service's end of proto/warden.h. */
#ifndef RAMET_ORCHESTRATOR_VM_WARDEN_CLIENT_H
#define RAMET_ORCHESTRATOR_VM_WARDEN_CLIENT_H

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "proto/warden.h"

struct warden_client;

struct warden_events {
	/* The VM process in `slot` died; `status` as from waitpid(2). */
	void (*exited)(void *arg, uint32_t slot, int status);
	/* The warden is gone or breaks the protocol. No reply comes any more. */
	void (*lost)(void *arg, const char *reason);
};

/* `error` is 0 or -errno; `value` is what the request asks for; `text` says what went wrong. */
typedef void warden_reply_fn(void *arg, int error, uint64_t value, const char *text);

/* Takes `fd` over when it succeeds. */
int warden_client_new(struct warden_client **out, struct loop *loop, int fd,
		      const struct warden_events *events, void *arg, struct err *e);
/* Replies that are still to come are not told. */
void warden_client_free(struct warden_client *w);

/*
 * Sends a request; version and seq are filled in here. `fn` comes once, from the loop, unless the
 * warden is lost before. -EPIPE: it is already, and nothing else fails: a VM that is dropped is not
 * freed before its last answer.
 */
int warden_client_call(struct warden_client *w, const struct warden_msg *msg, warden_reply_fn *fn,
		       void *arg);

/* How many requests it has answered: while this grows, those behind them only have to wait. */
uint64_t warden_client_answers(const struct warden_client *w);

#endif
