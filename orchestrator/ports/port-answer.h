// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the answer of a server in a sandbox, and trusts nothing in it. Heads and chunks are parsed
 * by picohttpparser; this decides how long the body is and which header fields the client gets.
 * Independent of h2o, so that it can be fuzzed.
 */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORT_ANSWER_H
#define RAMET_ORCHESTRATOR_PORTS_PORT_ANSWER_H

#include <picohttpparser.h>

#include "orchestrator/ports/port-ask.h"

#define PORT_HEAD_MAX	65536
#define PORT_FIELDS_MAX 100

struct port_answer {
	int status;
	const char *reason; /* into the parsed bytes, as the fields are */
	size_t reason_len;
	struct port_field fields[PORT_FIELDS_MAX]; /* names in lower case */
	size_t n_fields;
	enum { PORT_EMPTY, PORT_LENGTH, PORT_CHUNKED, PORT_UNTIL_END } body;
	size_t length; /* length that the head names; SIZE_MAX: none */
	size_t left;   /* PORT_LENGTH: bytes that are missing */
	bool over;     /* the body is complete */
	bool keeps;    /* the connection can serve another request after this answer */
	size_t extra;  /* bytes that followed the end of the body */
	struct phr_chunked_decoder chunks;
};

/*
 * Parses the head of an answer at the start of `p`, whose names it makes lower case in place.
 * `checked`: bytes at the start that are known to be incomplete. Returns its length, 0 when it is
 * incomplete, or -EPROTO with *why set. `is_head`: the request's method is HEAD.
 */
ssize_t port_answer_head(struct port_answer *a, char *p, size_t len, size_t checked, bool is_head,
			 const char **why);
/* Decodes the next bytes of the body in place. Returns how many are part of it, at `p`; -EPROTO
 * when they are malformed. What follows the end of the body is counted. */
ssize_t port_answer_body(struct port_answer *a, char *p, size_t len);
/* Returns whether the body is complete if the server now closes the connection. */
bool port_answer_ended(const struct port_answer *a);

/* How the client reaches the server, for fields that mention it. */
struct port_place {
	const char *prefix; /* empty: the server has a host of its own */
	size_t prefix_len;
	const char *authority; /* of the client's request */
	size_t authority_len;
	uint16_t port;
};

/* Returns whether the client gets the field. */
bool port_answer_passes(const struct port_answer *a, const struct port_field *f,
			const struct port_place *place);
/* Adds the value that the client gets for a field that passes. It differs from the server's for
 * Location and Set-Cookie. */
void port_answer_value(struct text *out, const struct port_field *f,
		       const struct port_place *place);

#endif
