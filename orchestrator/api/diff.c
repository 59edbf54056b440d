// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/json.h"
#include "orchestrator/guestops/guestops.h"

struct diff_body {
	char **paths;
};

static const struct json_field diff_fields[] = {
	{"paths", JSON_LIST, offsetof(struct diff_body, paths), 0, DIFF_PATHS_MAX, false},
};

/* The paths to compare when the request names none, as documented for the Python client. */
static const char *const default_paths[] = {"/root", "/tmp", NULL};

/* Adds an array of paths. Names need not be UTF-8. If one is not, a second array, NAME_b64, has the
 * exact bytes of such paths at the same indices, and null for the others. */
static void add_paths(struct text *t, const char *name, const char *const *paths, size_t n)
{
	bool exact = true;

	text_printf(t, "\"%s\":[", name);
	for (size_t i = 0; i < n; i++) {
		if (i)
			text_putc(t, ',');
		exact &= json_string(t, paths[i], strlen(paths[i]));
	}
	text_putc(t, ']');
	if (exact)
		return;
	text_printf(t, ",\"%s_b64\":[", name);
	for (size_t i = 0; i < n; i++) {
		if (i)
			text_putc(t, ',');
		if (utf8_valid(paths[i], strlen(paths[i])))
			text_puts(t, "null");
		else
			json_base64(t, (const uint8_t *)paths[i], strlen(paths[i]));
	}
	text_putc(t, ']');
}

static void on_diff(void *arg, const struct core_diff *diff, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_putc(&r->out, '{');
	add_paths(&r->out, "added", diff->added, diff->n_added);
	text_putc(&r->out, ',');
	add_paths(&r->out, "removed", diff->removed, diff->n_removed);
	text_putc(&r->out, ',');
	add_paths(&r->out, "modified", diff->modified, diff->n_modified);
	text_puts(&r->out, "}\n");
	answer(r, 200, "application/json");
}

static bool has_dot_dot(const char *path)
{
	for (; *path; path += strcspn(path, "/")) {
		path += strspn(path, "/");
		if (strcspn(path, "/") == 2 && path[0] == '.' && path[1] == '.')
			return true;
	}
	return false;
}

/* Returns false, with an answer given, for paths that cannot be compared. */
static bool paths_are_good(struct request *r, char **paths)
{
	if (paths && !*paths) {
		answer_error(r, 400, "bad_request", "paths must have 1 to %u strings, not 0",
			     DIFF_PATHS_MAX);
		return false;
	}
	for (char **path = paths; path && *path; path++) {
		if (**path != '/') {
			answer_error(r, 400, "bad_request",
				     "each path must be absolute, \"%.100s\" is not", *path);
			return false;
		}
		if (has_dot_dot(*path)) {
			answer_error(r, 400, "bad_request",
				     "each path must be without .., \"%.100s\" is not", *path);
			return false;
		}
		if (strlen(*path) > AGENT_PATH_MAX) {
			answer_error(r, 400, "bad_request",
				     "each path must be at most %u bytes long, not %zu",
				     AGENT_PATH_MAX, strlen(*path));
			return false;
		}
	}
	return true;
}

static void start(struct request *r, const void *values)
{
	const struct diff_body *b = values;

	if (!paths_are_good(r, b->paths))
		return;
	request_ref(r);
	r->call = core_diff(r->api->core, r->tenant, r->id, r->other,
			    b->paths ? (const char *const *)b->paths : default_paths, on_diff, r);
}

void serve_diff(struct request *r)
{
	const struct diff_body b = {0};

	if (answer_may_be_long(r))
		body_read(r, diff_fields, ARRAY_LEN(diff_fields), &b, sizeof(b), start);
}
