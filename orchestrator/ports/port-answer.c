// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/ports/port-answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"

/* --- the head ------------------------------------------------------------------------------- */

static void to_lower(char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] >= 'A' && p[i] <= 'Z')
			p[i] = (char)(p[i] - 'A' + 'a');
}

/* Returns false for a field that continues the line before, which is obsolete. */
static bool take_fields(struct port_answer *a, const struct phr_header *headers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!headers[i].name_len)
			return false;
		to_lower((char *)(uintptr_t)headers[i].name, headers[i].name_len);
		a->fields[i] = (struct port_field){headers[i].name, headers[i].value,
						   headers[i].name_len, headers[i].value_len};
	}
	a->n_fields = n;
	return true;
}

/* Reads the digits of a length. Returns SIZE_MAX when it is malformed or too large. */
static size_t read_length(const char *p, size_t len)
{
	size_t n = 0;

	if (!len || len > 18)
		return SIZE_MAX;
	for (size_t i = 0; i < len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return SIZE_MAX;
		n = n * 10 + (size_t)(p[i] - '0');
	}
	return n;
}

/* Finds out how long the body is. Returns NULL, or why that is not clear. */
static const char *find_body(struct port_answer *a, bool is_head)
{
	bool chunked = false;

	a->length = SIZE_MAX;
	for (size_t i = 0; i < a->n_fields; i++) {
		const struct port_field *f = &a->fields[i];

		if (port_name_is(f->name, f->name_len, "transfer-encoding")) {
			if (chunked || f->value_len != 7 || strncasecmp(f->value, "chunked", 7))
				return "has a Transfer-Encoding other than chunked";
			chunked = true;
		} else if (port_name_is(f->name, f->name_len, "content-length")) {
			size_t length = read_length(f->value, f->value_len);

			if (length == SIZE_MAX || (a->length != SIZE_MAX && a->length != length))
				return "has an invalid Content-Length";
			a->length = length;
		}
	}
	/* A client or proxy might wait for the bytes that a 204 announces. */
	if (chunked || a->status == 204)
		a->length = SIZE_MAX;
	if (is_head || a->status < 200 || a->status == 204 || a->status == 304)
		a->body = PORT_EMPTY;
	else if (chunked)
		a->body = PORT_CHUNKED;
	else
		a->body = a->length == SIZE_MAX ? PORT_UNTIL_END : PORT_LENGTH;
	a->left = a->body == PORT_LENGTH ? a->length : 0;
	a->over = a->body == PORT_EMPTY || (a->body == PORT_LENGTH && !a->left);
	return NULL;
}

static bool is_closed(const struct port_answer *a)
{
	for (size_t i = 0; i < a->n_fields; i++) {
		const struct port_field *f = &a->fields[i];

		if (port_name_is(f->name, f->name_len, "connection") &&
		    port_has_token(f->value, f->value_len, "close", strlen("close")))
			return true;
	}
	return false;
}

ssize_t port_answer_head(struct port_answer *a, char *p, size_t len, size_t checked, bool is_head,
			 const char **why)
{
	struct phr_header headers[PORT_FIELDS_MAX];
	size_t n = PORT_FIELDS_MAX;
	int minor;

	memset(a, 0, sizeof(*a));
	a->chunks.consume_trailer = 1;
	*why = "is not HTTP/1, or has more than 100 header fields";
	int took = phr_parse_response(p, len, &minor, &a->status, &a->reason, &a->reason_len,
				      headers, &n, checked);
	if (took == -2 && len < PORT_HEAD_MAX)
		return 0;
	if (took == -2 || took > PORT_HEAD_MAX)
		*why = "has a head of more than 64 KiB";
	if (took < 0 || took > PORT_HEAD_MAX)
		return -EPROTO;
	if (a->status < 100 || a->status > 599 || !take_fields(a, headers, n)) {
		*why = "has a malformed head";
		return -EPROTO;
	}
	a->keeps = minor == 1 && !is_closed(a);
	const char *unclear = find_body(a, is_head);
	if (!unclear)
		return took;
	*why = unclear;
	return -EPROTO;
}

/* --- the body ------------------------------------------------------------------------------- */

ssize_t port_answer_body(struct port_answer *a, char *p, size_t len)
{
	if (a->over) {
		a->extra += len;
		return 0;
	}
	if (a->body == PORT_LENGTH) {
		if (len > a->left) {
			a->extra = len - a->left;
			len = a->left;
		}
		a->left -= len;
		a->over = !a->left;
	} else if (a->body == PORT_CHUNKED) {
		ssize_t rest = phr_decode_chunked(&a->chunks, p, &len);

		if (rest == -1)
			return -EPROTO;
		a->over = rest >= 0;
		a->extra = rest > 0 ? (size_t)rest : 0;
	}
	return (ssize_t)len;
}

bool port_answer_ended(const struct port_answer *a)
{
	return a->over || a->body == PORT_UNTIL_END;
}

/* --- what the client gets ------------------------------------------------------------------- */

/* Fields that a browser applies to the whole origin: to later requests, or to what it asks the user
 * and stores. A server that is reached by a path prefix shares the API's origin, so it must not
 * send them. */
static const char *const of_origin[] = {
	"strict-transport-security",
	"www-authenticate", /* the password that the user enters would be sent to the API, too */
	"accept-ch",
	"accept-ch-lifetime",
	"critical-ch",
	"use-as-dictionary",
	"set-login",
	"secure-session-registration",
	"sec-session-registration",
	"activate-storage-access",
	"observe-browsing-topics",
	"public-key-pins",
	"public-key-pins-report-only",
	"service-worker-allowed",
	"report-to",
	"reporting-endpoints",
	"nel",
	"expect-ct",
	"origin-agent-cluster",
};

bool port_answer_passes(const struct port_answer *a, const struct port_field *f,
			const struct port_place *place)
{
	if (port_is_hop(f->name, f->name_len, a->fields, a->n_fields) ||
	    port_name_is(f->name, f->name_len, "content-length") ||
	    port_name_is(f->name, f->name_len, "date") ||
	    port_name_is(f->name, f->name_len, "alt-svc") ||
	    /* This field would clear the cookies of all servers below sandbox_domain. */
	    port_name_is(f->name, f->name_len, "clear-site-data") ||
	    !port_is_value(f->value, f->value_len))
		return false;
	for (size_t i = 0; place->prefix_len && i < ARRAY_LEN(of_origin); i++)
		if (port_name_is(f->name, f->name_len, of_origin[i]))
			return false;
	return true;
}

/* Returns the path of an URL at the server itself, as the server or the client names it; NULL for
 * one elsewhere. */
static const char *own_path(const char *p, size_t len, const struct port_place *place)
{
	char own[3][32];
	const char *end = p + len, *host = memmem(p, len, "://", 3);

	if (len && p[0] == '/')
		return len > 1 && p[1] == '/' ? NULL : p;
	if (!host || host - p > 5 || strncasecmp(p, "http", 4) != 0)
		return NULL;
	host += 3;
	const char *path = memchr(host, '/', (size_t)(end - host));
	size_t host_len = (size_t)((path ? path : end) - host);
	snprintf(own[0], sizeof(own[0]), "localhost:%u", place->port);
	snprintf(own[1], sizeof(own[1]), "127.0.0.1:%u", place->port);
	snprintf(own[2], sizeof(own[2]), "[::1]:%u", place->port);
	bool is_own = host_len == place->authority_len &&
		      strncasecmp(host, place->authority, host_len) == 0;
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		is_own = is_own ||
			 (host_len == strlen(own[i]) && strncasecmp(host, own[i], host_len) == 0);
	return is_own ? (path ? path : end) : NULL;
}

static void add_location(struct text *out, const struct port_field *f,
			 const struct port_place *place)
{
	const char *path = own_path(f->value, f->value_len, place);

	if (!path) {
		text_add(out, f->value, f->value_len);
		return;
	}
	size_t len = (size_t)(f->value + f->value_len - path);
	/* A server that knows its prefix (X-Forwarded-Prefix) has added it already. */
	if (place->prefix_len &&
	    !(len >= place->prefix_len && memcmp(path, place->prefix, place->prefix_len) == 0))
		text_add(out, place->prefix, place->prefix_len);
	if (!len)
		text_putc(out, '/');
	text_add(out, path, len);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Takes the next attribute, without blanks around it; returns false at the end. */
static bool next_attribute(const char **p, const char *end, const char **at, size_t *len)
{
	if (*p >= end)
		return false;
	const char *stop = memchr(*p, ';', (size_t)(end - *p));
	if (!stop)
		stop = end;
	while (*p < stop && is_blank(**p))
		++*p;
	*at = *p;
	*p = stop + 1;
	while (stop > *at && is_blank(stop[-1]))
		stop--;
	*len = (size_t)(stop - *at);
	return true;
}

static bool is_attribute(const char *p, size_t len, const char *name)
{
	size_t n = strlen(name);

	return len >= n && strncasecmp(p, name, n) == 0 &&
	       (len == n || p[n] == '=' || is_blank(p[n]));
}

/* Limits a cookie to this server: without a domain it belongs to one host, and below a prefix its
 * path begins with that. */
static void add_cookie(struct text *out, const struct port_field *f, const struct port_place *place)
{
	const char *p = f->value, *end = p + f->value_len, *at;
	bool first = true;
	size_t len;

	while (next_attribute(&p, end, &at, &len)) {
		bool domain = !first && is_attribute(at, len, "domain");
		bool path = !first && place->prefix_len && is_attribute(at, len, "path");

		if (!domain && !path) {
			text_puts(out, first ? "" : "; ");
			text_add(out, at, len);
		}
		first = false;
	}
	if (place->prefix_len) {
		text_puts(out, "; Path=");
		text_add(out, place->prefix, place->prefix_len);
		text_putc(out, '/');
	}
}

void port_answer_value(struct text *out, const struct port_field *f, const struct port_place *place)
{
	if (port_name_is(f->name, f->name_len, "location") ||
	    port_name_is(f->name, f->name_len, "content-location"))
		add_location(out, f, place);
	else if (port_name_is(f->name, f->name_len, "set-cookie"))
		add_cookie(out, f, place);
	else
		text_add(out, f->value, f->value_len);
}
