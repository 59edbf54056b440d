// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/ports/port-ask.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/ports/port-target.h"

/* Bytes of Connection headers that are read for each other field. Reading all would take too long
 * if there are many. */
#define CONNECTION_MAX 1024

/* --- header fields -------------------------------------------------------------------------- */

bool port_has_token(const char *list, size_t len, const char *token, size_t token_len)
{
	const char *p = list, *end = list + len;

	while (p < end) {
		const char *stop = memchr(p, ',', (size_t)(end - p));
		const char *last = stop ? stop : end;

		while (p < last && (*p == ' ' || *p == '\t'))
			p++;
		const char *next = last + 1;
		while (last > p && (last[-1] == ' ' || last[-1] == '\t'))
			last--;
		if ((size_t)(last - p) == token_len && strncasecmp(p, token, token_len) == 0)
			return true;
		p = next;
	}
	return false;
}

bool port_is_hop(const char *name, size_t len, const struct port_field *fields, size_t n_fields)
{
	static const char *const hops[] = {
		"connection",
		"keep-alive",
		"proxy-connection",
		"proxy-authenticate",
		"proxy-authorization",
		"te",
		"trailer",
		"transfer-encoding",
		"upgrade",
		"http2-settings",
	};

	for (size_t i = 0; i < ARRAY_LEN(hops); i++)
		if (port_name_is(name, len, hops[i]))
			return true;
	for (size_t i = 0, read = 0; i < n_fields; i++) {
		if (!port_name_is(fields[i].name, fields[i].name_len, "connection"))
			continue;
		read += fields[i].value_len;
		if (read > CONNECTION_MAX)
			break;
		if (port_has_token(fields[i].value, fields[i].value_len, name, len))
			return true;
	}
	return false;
}

bool port_is_value(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f)
			return false;
	return true;
}

bool port_is_name(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] <= 0x20 || p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", p[i]))
			return false;
	return len;
}

static bool is_path(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)p[i] <= 0x20 || p[i] == 0x7f)
			return false;
	return len && p[0] == '/';
}

void port_ask_field(struct text *out, const char *name, const char *value, size_t len)
{
	text_puts(out, name);
	text_puts(out, ": ");
	text_add(out, value, len);
	text_puts(out, "\r\n");
}

/* --- cookies -------------------------------------------------------------------------------- */

/* Takes the next cookie of a Cookie header; returns false at the end. */
static bool next_cookie(const char **p, const char *end, const char **cookie, size_t *len)
{
	while (*p < end && (**p == ' ' || **p == ';'))
		++*p;
	if (*p == end)
		return false;
	const char *stop = memchr(*p, ';', (size_t)(end - *p));
	if (!stop)
		stop = end;
	*cookie = *p;
	*len = (size_t)(stop - *p);
	*p = stop;
	return true;
}

static bool is_token_cookie(const char *cookie, size_t len)
{
	size_t name = strlen(PORT_COOKIE);

	return len > name && memcmp(cookie, PORT_COOKIE, name) == 0 && cookie[name] == '=';
}

const char *port_cookie_token(const char *value, size_t len, size_t *token_len)
{
	const char *p = value, *cookie;
	size_t cookie_len;

	while (next_cookie(&p, value + len, &cookie, &cookie_len))
		if (is_token_cookie(cookie, cookie_len)) {
			*token_len = cookie_len - strlen(PORT_COOKIE) - 1;
			return cookie + strlen(PORT_COOKIE) + 1;
		}
	return NULL;
}

/* --- the head ------------------------------------------------------------------------------- */

/* Compares like servers that see no difference between "_" and "-" in names (CGI, WSGI). */
static bool begins_with(const struct port_field *f, const char *start)
{
	size_t len = strlen(start);

	if (f->name_len < len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (f->name[i] != start[i] && !(f->name[i] == '_' && start[i] == '-'))
			return false;
	return true;
}

static bool is_named(const struct port_field *f, const char *name)
{
	return f->name_len == strlen(name) && begins_with(f, name);
}

/* Returns whether the value of an Authorization header has the form of the service's own keys. */
static bool has_service_key(const char *p, size_t len)
{
	const char *end = p + len;

	if (len < 7 || strncasecmp(p, "Bearer", 6) != 0)
		return false;
	for (p += 6; p < end && (*p == ' ' || *p == '\t');)
		p++;
	return end - p >= 4 && memcmp(p, "rmt_", 4) == 0;
}

/* Returns whether the field is left out because the service writes it itself, or it is not the
 * server's business. */
static bool is_dropped(const struct port_ask *ask, const struct port_field *f)
{
	static const char *const ours[] = {
		"host",
		"content-length",
		"expect",
		"forwarded",
		"transfer-encoding",
		PORT_HEADER,
		/* Other names for the client's address, which servers believe from a proxy. */
		"forwarded-for",
		"x-original-forwarded-for",
		"x-real-ip",
		"x-client-ip",
		"client-ip",
		"true-client-ip",
		"x-cluster-client-ip",
		"x-remote-ip",
		"x-remote-addr",
		"x-originating-ip",
		"x-envoy-external-address",
		"cf-connecting-ip",
		"cf-connecting-ipv6",
		"cf-pseudo-ipv4",
		"fastly-client-ip",
		"fly-client-ip",
		"x-azure-clientip",
		"x-azure-socketip",
		"x-appengine-user-ip",
	};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (is_named(f, ours[i]))
			return true;
	if (begins_with(f, "x-forwarded"))
		return true;
	if (port_name_is(f->name, f->name_len, "authorization") &&
	    (ask->key_used || has_service_key(f->value, f->value_len)))
		return true;
	return port_is_hop(f->name, f->name_len, ask->fields, ask->n_fields) ||
	       !port_is_name(f->name, f->name_len) || !port_is_value(f->value, f->value_len);
}

/* Returns whether an Origin header names the address at which the client sees the server. */
static bool is_own_origin(const struct port_ask *ask, const struct port_field *f)
{
	const char *host = memmem(f->value, f->value_len, "://", 3);

	if (!host)
		return false;
	host += 3;
	return (size_t)(f->value + f->value_len - host) == ask->authority_len &&
	       strncasecmp(host, ask->authority, ask->authority_len) == 0;
}

static bool is_cookie(const struct port_ask *ask, const struct port_field *f)
{
	return port_name_is(f->name, f->name_len, "cookie") && !is_dropped(ask, f);
}

/* Adds one Cookie header, without the service's own cookie. HTTP/2 clients may send each cookie in
 * a field of its own, but servers expect one field (RFC 9113 8.2.3). */
static void add_cookies(struct text *out, const struct port_ask *ask)
{
	bool any = false;

	for (size_t i = 0; i < ask->n_fields; i++) {
		const struct port_field *f = &ask->fields[i];
		const char *p = f->value, *cookie;
		size_t len;

		while (is_cookie(ask, f) &&
		       next_cookie(&p, f->value + f->value_len, &cookie, &len)) {
			if (is_token_cookie(cookie, len))
				continue;
			text_puts(out, any ? "; " : "cookie: ");
			text_add(out, cookie, len);
			any = true;
		}
	}
	if (any)
		text_puts(out, "\r\n");
}

/* Adds the address of the page that a request comes from, without the token that it may have. */
static void add_referer(struct text *out, const struct port_field *f)
{
	char *value = must_alloc(f->value_len + 1);

	port_ask_field(out, "referer", value, port_query_strip(value, f->value, f->value_len));
	free(value);
}

static void add_client_field(struct text *out, const struct port_ask *ask,
			     const struct port_field *f)
{
	if (is_dropped(ask, f) || is_cookie(ask, f))
		return;
	if (port_name_is(f->name, f->name_len, "referer")) {
		add_referer(out, f);
	} else if (port_name_is(f->name, f->name_len, "origin") && is_own_origin(ask, f)) {
		text_printf(out, "origin: http://localhost:%u\r\n", ask->port);
	} else {
		text_printf(out, "%.*s: %.*s\r\n", (int)f->name_len, f->name, (int)f->value_len,
			    f->value);
	}
}

bool port_ask_line(struct text *out, const struct port_ask *ask)
{
	if (!port_is_name(ask->method, ask->method_len) || !is_path(ask->path, ask->path_len))
		return false;
	text_add(out, ask->method, ask->method_len);
	text_putc(out, ' ');
	text_add(out, ask->path, ask->path_len);
	text_puts(out, " HTTP/1.1\r\n");
	return true;
}

void port_ask_end(struct text *out, const struct port_ask *ask, const char *connection)
{
	if (ask->body == PORT_BODY_LENGTH)
		text_printf(out, "content-length: %zu\r\n", ask->body_len);
	else if (ask->body == PORT_BODY_CHUNKED)
		text_puts(out, "transfer-encoding: chunked\r\n");
	if (ask->upgrade_len && port_is_value(ask->upgrade, ask->upgrade_len)) {
		port_ask_field(out, "upgrade", ask->upgrade, ask->upgrade_len);
		connection = "upgrade";
	}
	text_printf(out, "connection: %s\r\n\r\n", connection);
}

bool port_ask_write(struct text *out, const struct port_ask *ask)
{
	if (!port_ask_line(out, ask))
		return false;
	/* Servers for development refuse hosts and origins that they do not know. */
	text_printf(out, "host: localhost:%u\r\n", ask->port);
	for (size_t i = 0; i < ask->n_fields; i++)
		add_client_field(out, ask, &ask->fields[i]);
	add_cookies(out, ask);
	port_ask_field(out, "x-forwarded-for", ask->client, strlen(ask->client));
	port_ask_field(out, "x-forwarded-proto", ask->scheme, strlen(ask->scheme));
	if (ask->authority_len && port_is_value(ask->authority, ask->authority_len))
		port_ask_field(out, "x-forwarded-host", ask->authority, ask->authority_len);
	if (ask->prefix_len)
		port_ask_field(out, "x-forwarded-prefix", ask->prefix, ask->prefix_len);
	port_ask_end(out, ask, "close");
	return true;
}
