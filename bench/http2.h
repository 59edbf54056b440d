// SPDX-License-Identifier: Apache-2.0
/*
 * A minimal client of HTTP/2 without TLS (RFC 9113), with one request at a time. An error ends the
 * program with a message.
 */
#ifndef RAMET_BENCH_HTTP2_H
#define RAMET_BENCH_HTTP2_H

#include <stddef.h>
#include <stdint.h>

#define HTTP2_BODY_MAX 65536

struct http2 {
	int fd;
	uint32_t stream; /* the next request's */
	char body[HTTP2_BODY_MAX];
	size_t len;
};

/* Connects to the service on this host. */
void http2_connect(struct http2 *h, uint16_t port);
/* Sends a POST with a JSON body and fills h->body with the answer's, NUL-terminated. Ends the
 * program if the status is not 200. */
void http2_post(struct http2 *h, const char *path, const char *json);

#endif
