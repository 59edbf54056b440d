// SPDX-License-Identifier: Apache-2.0
/*
 * A client of the service on the same host, over one keep-alive HTTP/1.1 connection: just enough
 * for taking times. What goes wrong ends the program with a sentence.
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

/* Connects once the service is there and ready; a service that starts is given `wait_s`. */
int http_connect(uint16_t port, unsigned wait_s);
/* Returns the status; ends the program when the connection breaks. */
int http_ask(int fd, const char *method, const char *path, const char *body, struct answer *a);
/* An answer of 300 or more ends the program. */
void http_call(int fd, const char *method, const char *path, const char *body, struct answer *a);
/* The path of the `nth` sandbox that the body names, from 0. */
void http_sandbox_path(const struct answer *a, unsigned nth, char path[SANDBOX_PATH]);
/* A number behind `name` in the body: of a line of /metrics, or of a JSON field. */
double http_number(const struct answer *a, const char *name);

#endif
