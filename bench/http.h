// SPDX-License-Identifier: Apache-2.0
/*
 * A minimal client of the service on the same host, over one keep-alive HTTP/1.1 connection. An
 * error ends the program with a message.
 */
#ifndef RAMET_BENCH_HTTP_H
#define RAMET_BENCH_HTTP_H

#include <stddef.h>
#include <stdint.h>

#define ANSWER_MAX   65536
#define MS(ns)	     ((double)(ns) / 1e6)
#define SANDBOX_PATH 64 /* room for /v1/sandboxes/ID */

struct answer {
	char text[ANSWER_MAX]; /* head and body, NUL-terminated */
	size_t len;
	int status;
	const char *body;
};

/* Returns a connection once the service is ready. Ends the program after `wait_s`. */
int http_connect(uint16_t port, unsigned wait_s);
/* Sends a request and returns the status. Ends the program if the connection breaks. */
int http_ask(int fd, const char *method, const char *path, const char *body, struct answer *a);
/* Sends a request. Ends the program if the status is 300 or more. */
void http_call(int fd, const char *method, const char *path, const char *body, struct answer *a);
/* Sets `path` to that of the `nth` sandbox in the body, counted from 0. */
void http_sandbox_path(const struct answer *a, unsigned nth, char path[SANDBOX_PATH]);
/* Returns the number after `name` in the body, which is JSON or that of /metrics. */
double http_number(const struct answer *a, const char *name);

#endif
