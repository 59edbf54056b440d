// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/route.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "orchestrator/json/query.h"
#include "orchestrator/ports/port-target.h"
#include "orchestrator/store/keys.h"

#define SEGMENTS_MAX 8
#define SEGMENT_MAX  64

/* How the pattern of a route to a server in a sandbox ends: {path} is the rest of the path. */
#define PORT_PATH_PATTERN "/ports/{port}/{path}"

/* The decoded parts of a path. */
struct segments {
	size_t n;
	char at[SEGMENTS_MAX][SEGMENT_MAX];
	bool slash; /* a slash at the end */
};

/* Splits the path before decoding it, so that %2F does not separate parts. Returns ROUTE_NONE for a
 * path longer than any route. */
static enum route_result split(struct segments *s, const char *p, const char *end)
{
	s->n = 0;
	s->slash = false;
	while (p < end) {
		char *out;
		size_t len = 0;

		p++; /* skips the slash */
		if (p == end) {
			s->slash = true;
			break;
		}
		if (s->n == SEGMENTS_MAX)
			return ROUTE_NONE;
		out = s->at[s->n++];
		while (p < end && *p != '/') {
			int byte = percent_byte(&p, end);

			if (byte < 0)
				return ROUTE_MALFORMED;
			if (len + 1 < SEGMENT_MAX)
				out[len] = (char)byte;
			len++;
		}
		if (len + 1 > SEGMENT_MAX)
			return ROUTE_NONE;
		out[len] = '\0';
	}
	return ROUTE_FOUND;
}

/* The ids in a path: the segments at the first two braces of a pattern. A third one is the path
 * within a port's server. */
struct ids {
	size_t n;
	const char *at[2], *braces[2];
};

/* Returns whether the pattern matches the segments from `first` on. */
static bool matches(const char *pattern, const struct segments *s, size_t first, struct ids *ids)
{
	size_t i = first;

	ids->n = 0;
	while (*pattern) {
		size_t len = strcspn(++pattern, "/");

		if (i == s->n)
			return false;
		if (*pattern == '{') {
			if (ids->n < 2) {
				ids->braces[ids->n] = pattern;
				ids->at[ids->n++] = s->at[i];
			}
		} else if (strncmp(pattern, s->at[i], len) != 0 || s->at[i][len]) {
			return false;
		}
		pattern += len;
		i++;
	}
	return i == s->n;
}

static const struct id_kind id_kinds[] = {
	{"{pty}",
	 {"pty_"},
	 "no_such_pty",
	 "terminal id",
	 "an id is pty_ and 32 hexadecimal digits"},
	/* A terminal is a process with a tty. */
	{"{process}",
	 {"prc_", "pty_"},
	 "no_such_process",
	 "process id",
	 "an id is prc_ or pty_ and 32 hexadecimal digits"},
	{"{context}",
	 {"ctx_"},
	 "no_such_context",
	 "context id",
	 "an id is ctx_ and 32 hexadecimal digits"},
	{"{space}", {"spc_"}, "not_found", "Space id", "an id is spc_ and 32 hexadecimal digits"},
	{"{checkpoint}",
	 {"chk_"},
	 "not_found",
	 "checkpoint id",
	 "an id is chk_ and 32 hexadecimal digits"},
	{"{other}",
	 {"sbx_", "chk_"},
	 "not_found",
	 "sandbox or checkpoint id",
	 "an id is sbx_ or chk_ and 32 hexadecimal digits"},
	{"{key}", {NULL}, "no_such_key", "key id", "an id is key_ and 16 hexadecimal digits"},
	{"{port}", {NULL}, "not_found", "port", "ports are numbers from 1 to 65535"},
	{"", {"sbx_"}, "not_found", "sandbox id", "an id is sbx_ and 32 hexadecimal digits"},
};

static const struct id_kind *kind_of(const char *braces)
{
	const struct id_kind *kind = id_kinds;

	while (strncmp(kind->braces, braces, strlen(kind->braces)) != 0)
		kind++;
	return kind;
}

static bool is_valid(const struct id_kind *kind, const char *id)
{
	size_t len = strlen(id);

	if (!strcmp(kind->braces, "{key}"))
		return len == KEY_ID_LEN && strncmp(id, "key_", 4) == 0;
	if (!strcmp(kind->braces, "{port}"))
		return port_number(id, len) != 0;
	return id_valid(kind->prefixes[0], id, len) ||
	       (kind->prefixes[1] && id_valid(kind->prefixes[1], id, len));
}

static enum route_result check_ids(struct route_match *m, const struct ids *ids)
{
	for (size_t i = 0; i < ids->n; i++) {
		m->invalid = kind_of(ids->braces[i]);
		if (!is_valid(m->invalid, ids->at[i]))
			return ROUTE_ID;
	}
	for (size_t i = 0; i < ids->n; i++)
		strcpy(m->id[i], ids->at[i]);
	return ROUTE_FOUND;
}

static bool method_is(const char *name, const char *method, size_t len)
{
	return strlen(name) == len && memcmp(name, method, len) == 0;
}

static void allow_add(char *allow, size_t size, const char *method)
{
	size_t used = strlen(allow);

	if (used + strlen(method) + 3 > size)
		return;
	if (used)
		strcat(allow, ", ");
	strcat(allow, method);
	if (strcmp(method, "GET") == 0)
		allow_add(allow, size, "HEAD");
}

/* Sets *first to the index of the first segment after /r/REGION/, with which a path may begin.
 * Returns false when that is another region. */
static bool region_fits(const struct segments *s, const char *region, size_t *first)
{
	*first = 0;
	if (s->n < 2 || strcmp(s->at[0], "r") != 0)
		return true;
	*first = 2;
	return region[0] && strcmp(s->at[1], region) == 0;
}

static enum route_result find(struct route_match *m, const struct segments *s, size_t first,
			      const char *method, size_t method_len)
{
	bool head = method_is("HEAD", method, method_len);
	const char *pattern = NULL;
	struct ids ids = {0}, found;

	for (size_t i = 0; i < n_routes; i++) {
		if (!matches(routes[i].pattern, s, first, &found))
			continue;
		/* If two patterns match, the first is meant: it has a word where the second has an
		 * id. */
		if (pattern && strcmp(routes[i].pattern, pattern) != 0)
			continue;
		pattern = routes[i].pattern;
		allow_add(m->allow, sizeof(m->allow), routes[i].method);
		if (!method_is(routes[i].method, method, method_len) &&
		    !(head && strcmp(routes[i].method, "GET") == 0))
			continue;
		m->route = &routes[i];
		ids = found;
	}
	if (!pattern)
		return ROUTE_NONE;
	if (s->slash)
		return ROUTE_SLASH;
	if (!m->route)
		return ROUTE_METHOD;
	return check_ids(m, &ids);
}

const struct route *route_of_port(const char *method, size_t len)
{
	const struct route *found = NULL;

	for (size_t i = 0; i < n_routes; i++) {
		if (!strstr(routes[i].pattern, PORT_PATH_PATTERN))
			continue;
		if (!found || method_is(routes[i].method, method, len))
			found = &routes[i];
	}
	return found;
}

enum route_result route_find(struct route_match *m, const char *method, size_t method_len,
			     const char *path, size_t path_len, const char *region)
{
	const char *end = path + path_len;
	const char *query = memchr(path, '?', path_len), *authority;
	struct segments s;
	size_t first, len;

	memset(m, 0, sizeof(*m));
	if (query)
		end = query;
	authority = route_authority(path, (size_t)(end - path), &len);
	if (authority)
		path = authority + len;
	if (path == end || *path != '/')
		return ROUTE_MALFORMED;
	struct port_target port;
	if (port_target_path(&port, path, (size_t)(end - path), region)) {
		m->route = route_of_port(method, method_len);
		strcpy(m->id[0], port.id);
		snprintf(m->id[1], sizeof(m->id[1]), "%u", port.port);
		return ROUTE_FOUND;
	}
	enum route_result result = split(&s, path, end);
	if (result != ROUTE_FOUND)
		return result;
	if (!region_fits(&s, region, &first))
		return ROUTE_REGION;
	return find(m, &s, first, method, method_len);
}
