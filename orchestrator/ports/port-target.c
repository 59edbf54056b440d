// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/ports/port-target.h"

#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "base/random.h"
#include "base/text-part.h"
#include "orchestrator/http/route.h"

#define ID_DIGITS (SANDBOX_ID_LEN - 4)

uint16_t port_number(const char *text, size_t len)
{
	unsigned port = 0;

	if (!len || len > 5 || text[0] == '0')
		return 0;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		port = port * 10 + (unsigned)(text[i] - '0');
	}
	return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* Takes a port and the character after it. */
static bool take_port(struct text_part *in, uint16_t *port, char behind)
{
	const char *stop = memchr(in->p, behind, (size_t)(in->end - in->p));

	*port = stop ? port_number(in->p, (size_t)(stop - in->p)) : 0;
	if (!*port)
		return false;
	in->p = stop + 1;
	return true;
}

/* --- by host -------------------------------------------------------------------------------- */

/* Names are compared without case, and a browser may send them with a final dot. */
static bool is_domain(const struct text_part *in, const char *domain)
{
	const char *scheme = strstr(domain, "://");
	size_t len;

	if (scheme)
		domain = scheme + 3;
	len = strcspn(domain, ":");
	if (!len || (size_t)(in->end - in->p) < len || strncasecmp(in->p, domain, len) != 0)
		return false;
	const char *rest = in->p + len;
	if (rest < in->end && *rest == '.')
		rest++;
	return rest == in->end || *rest == ':';
}

bool port_target_host(struct port_target *t, const char *host, size_t len, const char *domain)
{
	if (!len) /* then `host` may be NULL: a request of HTTP/1.0 without the header */
		return false;
	struct text_part in = {host, host + len};
	if (!take_port(&in, &t->port, '-') || in.end - in.p <= ID_DIGITS)
		return false;
	memcpy(t->id, "sbx_", 4);
	for (int i = 0; i < ID_DIGITS; i++) {
		char c = in.p[i];

		t->id[4 + i] = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
	}
	t->id[SANDBOX_ID_LEN] = '\0';
	in.p += ID_DIGITS;
	return id_valid("sbx_", t->id, SANDBOX_ID_LEN) && text_part_take(&in, ".") &&
	       is_domain(&in, domain);
}

/* --- by path -------------------------------------------------------------------------------- */

bool port_target_path(struct port_target *t, const char *path, size_t len, const char *region)
{
	struct text_part in = {path, path + len};

	if (text_part_take(&in, "/r/") && !(region[0] && text_part_take(&in, region)))
		return false;
	if (!text_part_take(&in, "/v1/sandboxes/") || in.end - in.p < SANDBOX_ID_LEN ||
	    !id_valid("sbx_", in.p, SANDBOX_ID_LEN))
		return false;
	memcpy(t->id, in.p, SANDBOX_ID_LEN);
	t->id[SANDBOX_ID_LEN] = '\0';
	in.p += SANDBOX_ID_LEN;
	if (!text_part_take(&in, "/ports/") || !take_port(&in, &t->port, '/'))
		return false;
	t->prefix = path;
	t->path = in.p - 1;
	t->prefix_len = (size_t)(t->path - path);
	t->path_len = (size_t)(in.end - t->path);
	return true;
}

bool port_target_find(struct port_target *t, const char *authority, size_t authority_len,
		      const char *path, size_t path_len, const char *domain, const char *region)
{
	size_t len;
	const char *target = route_authority(path, path_len, &len);

	memset(t, 0, sizeof(*t));
	if (target) {
		path_len -= (size_t)(target + len - path);
		path = target + len;
		authority = target;
		authority_len = len;
	}
	t->by_host = domain[0] && port_target_host(t, authority, authority_len, domain);
	if (!t->by_host)
		return port_target_path(t, path, path_len, region);
	t->prefix = "";
	t->path = path_len ? path : "/";
	t->path_len = path_len ? path_len : 1;
	return true;
}

/* --- tokens in queries ---------------------------------------------------------------------- */

static bool is_parameter(const char *p, size_t len)
{
	size_t name = strlen(PORT_PARAMETER);

	return len > name && memcmp(p, PORT_PARAMETER, name) == 0 && p[name] == '=';
}

const char *port_query_token(const char *path, size_t path_len, size_t *len)
{
	const char *end = path + path_len, *p = memchr(path, '?', path_len);

	while (p && ++p <= end) {
		const char *stop = memchr(p, '&', (size_t)(end - p));
		size_t part = (size_t)((stop ? stop : end) - p);

		if (is_parameter(p, part)) {
			*len = part - strlen(PORT_PARAMETER) - 1;
			return p + strlen(PORT_PARAMETER) + 1;
		}
		p = stop;
	}
	return NULL;
}

size_t port_query_strip(char *out, const char *path, size_t path_len)
{
	const char *end = path + path_len, *p = memchr(path, '?', path_len);
	size_t len = p ? (size_t)(p - path) : path_len;
	char before = '?';

	memcpy(out, path, len);
	while (p && ++p <= end) {
		const char *stop = memchr(p, '&', (size_t)(end - p));
		size_t part = (size_t)((stop ? stop : end) - p);

		if (!is_parameter(p, part)) {
			out[len++] = before;
			memcpy(out + len, p, part);
			len += part;
			before = '&';
		}
		p = stop;
	}
	return len;
}
