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

#define ETCD_CALL_MS 5000 /* time limit of one request to one member */

struct etcd;

struct etcd_options {
	const char *const *endpoints; /* https://HOST:PORT, NULL-terminated, at least one */
	const char *ca, *cert, *key;  /* paths of PEM files */
	/* Called for each line of the watch. An error ends the watch, and its text is logged as the
	 * reason. */
	int (*on_line)(void *arg, const char *line, size_t len, struct err *e);
	void *arg;
};

/* Copies `options`; its strings must outlive the client. Must not be called by two threads at the
 * same time. */
int etcd_new(struct etcd **out, const struct etcd_options *options, struct err *e);
void etcd_free(struct etcd *c);

/*
 * Posts `body` to a path such as /v3/kv/range and waits for the answer, which the caller frees; the
 * watch goes on meanwhile. Tries each member once. Returns 0, or -errno with *e filled: -ENOENT if
 * etcd says that the requested object does not exist. After any other error, etcd may have made the
 * change nevertheless.
 */
int etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
	      struct err *e);
/* Sends a GET of `path` to the member with the index `at` only, and waits for the answer, which the
 * caller frees. Returns 0, or -errno with *e filled. */
int etcd_ask(struct etcd *c, size_t at, const char *path, struct text *answer, struct err *e);

/* Starts the watch; ends the previous watch first. */
int etcd_watch(struct etcd *c, const struct text *body, struct err *e);
bool etcd_watches(const struct etcd *c);
/* Waits for at most `ms` until the watch has received something or `wake` (-1: none) can be read.
 * Passes the watch's lines to on_line. */
void etcd_wait(struct etcd *c, uint32_t ms, int wake);

/* Returns the member in use. */
const char *etcd_endpoint(const struct etcd *c);

#endif
