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
	/* The warden ended or broke the protocol. No more replies come. */
	void (*lost)(void *arg, const char *reason);
};

/* `error` is 0 or -errno, with its description in `text`. `value` is the requested value. */
typedef void warden_reply_fn(void *arg, int error, uint64_t value, const char *text);

/* Makes a client on the socket `fd`, which it owns on success. Returns 0, or -ENOMEM with *e
 * filled. */
int warden_client_new(struct warden_client **out, struct loop *loop, int fd,
		      const struct warden_events *events, void *arg, struct err *e);
/* Frees the client. Requests without an answer are forgotten: their `fn` is not called. NULL is
 * fine. */
void warden_client_free(struct warden_client *w);

/*
 * Sends a request, whose version and seq are filled in here. Calls `fn` once, from the loop, unless
 * the warden is lost first. Returns -EPIPE when the warden is already lost. There is no other
 * error, because a dropped VM is only freed after its last answer.
 */
int warden_client_call(struct warden_client *w, const struct warden_msg *msg, warden_reply_fn *fn,
		       void *arg);

/* Returns the number of answered requests: while it grows, later requests only have to wait. */
uint64_t warden_client_answers(const struct warden_client *w);

#endif
