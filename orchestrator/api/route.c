// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/route.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/random.h"
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

/* Returns the decoded byte at *p and moves *p behind it; -1 for an invalid % and for NUL. */
static int next_byte(const char **p, const char *end)
{
	const char *at = (*p)++;

	if (*at != '%')
		return (unsigned char)*at ? (unsigned char)*at : -1;
	if (end - at < 3 || hex_digit(at[1]) < 0 || hex_digit(at[2]) < 0)
		return -1;
	*p = at + 3;
	int byte = hex_digit(at[1]) << 4 | hex_digit(at[2]);
	return byte ? byte : -1;
}

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
			int byte = next_byte(&p, end);

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

/* Returns whether the pattern matches the segments from `first` on. `ids` receives the segments at
 * the pattern's first two braces, or NULL; a third one is the path within a port's server. */
static bool matches(const char *pattern, const struct segments *s, size_t first, const char *ids[2])
{
	size_t i = first, n_ids = 0;

	ids[0] = ids[1] = NULL;
	while (*pattern) {
		size_t len = strcspn(++pattern, "/");

		if (i == s->n)
			return false;
		if (*pattern == '{') {
			if (n_ids < 2)
				ids[n_ids++] = s->at[i];
		} else if (strncmp(pattern, s->at[i], len) != 0 || s->at[i][len]) {
			return false;
		}
		pattern += len;
		i++;
	}
	return i == s->n;
}

/* The kinds of second ids in patterns; any other word is a sandbox. */
static const struct id_kind {
	const char *braces;
	const char *prefixes[2];
	enum route_result invalid;
} id_kinds[] = {
	{"{pty}", {"pty_", "pty_"}, ROUTE_PTY},
	/* A terminal is a process with a tty. */
	{"{process}", {"prc_", "pty_"}, ROUTE_PROCESS},
	{"{context}", {"ctx_", "ctx_"}, ROUTE_CONTEXT},
	{"", {"sbx_", "sbx_"}, ROUTE_ID},
};

static enum route_result check_key(struct route_match *m, const char *id)
{
	if (strlen(id) != KEY_ID_LEN || strncmp(id, "key_", 4) != 0)
		return ROUTE_KEY;
	strcpy(m->id[0], id);
	return ROUTE_FOUND;
}

/* The kinds of first ids; any other word is a sandbox. */
static const struct id_kind first_kinds[] = {
	{"{space}", {"spc_"}, ROUTE_SPACE},
	{"{checkpoint}", {"chk_"}, ROUTE_CHECKPOINT},
	{"", {"sbx_"}, ROUTE_ID},
};

static enum route_result check_second(const char *pattern, const char *id)
{
	const struct id_kind *kind = id_kinds;
	size_t len = strlen(id);

	if (strstr(pattern, "{port}"))
		return port_number(id, len) ? ROUTE_FOUND : ROUTE_PORT;
	while (!strstr(pattern, kind->braces))
		kind++;
	return id_valid(kind->prefixes[0], id, len) || id_valid(kind->prefixes[1], id, len)
		       ? ROUTE_FOUND
		       : kind->invalid;
}

static enum route_result check_ids(struct route_match *m, const char *const ids[2])
{
	const struct id_kind *kind = first_kinds;
	enum route_result found = ROUTE_FOUND;

	if (!ids[0])
		return ROUTE_FOUND;
	if (strstr(m->route->pattern, "{key}"))
		return check_key(m, ids[0]);
	while (!strstr(m->route->pattern, kind->braces))
		kind++;
	if (!id_valid(kind->prefixes[0], ids[0], strlen(ids[0])))
		return kind->invalid;
	if (ids[1])
		found = check_second(m->route->pattern, ids[1]);
	for (int i = 0; found == ROUTE_FOUND && i < 2 && ids[i]; i++)
		strcpy(m->id[i], ids[i]);
	return found;
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
	const char *ids[2] = {0}, *found_ids[2];

	for (size_t i = 0; i < n_routes; i++) {
		if (!matches(routes[i].pattern, s, first, found_ids))
			continue;
		/* Of two patterns that match, the first is meant: the other one has an id where
		 * this one has a word. */
		if (pattern && strcmp(routes[i].pattern, pattern) != 0)
			continue;
		pattern = routes[i].pattern;
		allow_add(m->allow, sizeof(m->allow), routes[i].method);
		if (!method_is(routes[i].method, method, method_len) &&
		    !(head && strcmp(routes[i].method, "GET") == 0))
			continue;
		m->route = &routes[i];
		memcpy(ids, found_ids, sizeof(ids));
	}
	if (!pattern)
		return ROUTE_NONE;
	if (s->slash)
		return ROUTE_SLASH;
	if (!m->route)
		return ROUTE_METHOD;
	return check_ids(m, ids);
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
