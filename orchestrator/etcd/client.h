// SPDX-License-Identifier: Apache-2.0
/*
 * Speaks to the members of one etcd, with libcurl, over TLS with a client certificate. One member
 * is used for everything until it fails, then the next one: if requests work, so does the watch.
 */
#ifndef RAMET_ORCHESTRATOR_ETCD_CLIENT_H
#define RAMET_ORCHESTRATOR_ETCD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/json/text.h"

#define ETCD_CALL_MS 5000 /* most for one request to one member */

struct etcd;

struct etcd_options {
	const char *const *endpoints; /* https://HOST:PORT, NULL-terminated, at least one */
	const char *ca, *cert, *key;  /* paths of PEM files */
	/* A line of the watch. An error ends the watch: the text is logged as its reason. */
	int (*on_line)(void *arg, const char *line, size_t len, struct err *e);
	void *arg;
};

/* `options` is copied, its strings must outlive the client. Not at the same time in two threads. */
int etcd_new(struct etcd **out, const struct etcd_options *options, struct err *e);
void etcd_free(struct etcd *c);

/*
 * Posts `body` to a path such as /v3/kv/range and waits for the answer, which the caller frees; the
 * watch goes on meanwhile. Tries each member once. Returns 0, or -errno with *e filled: -ENOENT if
 * etcd says that what was asked for does not exist. After another error a change may nevertheless
 * have been made.
 */
int etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
	      struct err *e);
/* The same for a GET of each member in turn. `at`: number of the member. */
int etcd_ask(struct etcd *c, size_t at, const char *path, struct text *answer, struct err *e);

/* Starts the watch; an earlier one ends. */
int etcd_watch(struct etcd *c, const struct text *body, struct err *e);
bool etcd_watches(const struct etcd *c);
void etcd_unwatch(struct etcd *c);
/* Passes on what the watch brings, for `ms` at most or until something came, also on the descriptor
 * `wake` (-1: none). */
void etcd_wait(struct etcd *c, uint32_t ms, int wake);

/* Returns the member in use. */
const char *etcd_endpoint(const struct etcd *c);

#endif
