// SPDX-License-Identifier: Apache-2.0
/* Diffs of two sandboxes. */
#include "base/alloc.h"
#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/guestops/guestops.h"

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

/* --- the answer ------------------------------------------------------------------------------- */

/* An answer with many paths. A worker writes it, since that takes too long for the loop. Meanwhile
 * the request is charged for the paths alone. The answer can be eight times as large, which is
 * known only when it is written: then it must find room once more. */
struct writing {
	struct request *r; /* a counted reference */
	struct service_diff *diff;
	struct text text;
};

/* Writes the answer, and frees the diff. */
static void write_diff(struct text *t, struct service_diff *diff)
{
	static const char *const names[] = {
		[DIFF_ADDED] = "added", [DIFF_REMOVED] = "removed", [DIFF_MODIFIED] = "modified"};

	service_diff_sort(diff);
	for (int kind = 0; kind < DIFF_NKINDS; kind++) {
		const struct diff_found *f = &diff->found[kind];

		text_putc(t, kind ? ',' : '{');
		add_paths(t, names[kind], (const char *const *)f->paths, f->n);
	}
	text_puts(t, "}\n");
	service_diff_free(diff);
}

/* Runs on a worker thread. */
static void work_on(void *arg)
{
	struct writing *w = arg;

	if (atomic_load(&w->r->unwanted))
		service_diff_free(w->diff);
	else
		write_diff(&w->text, w->diff);
}

static void on_written(void *arg)
{
	struct writing *w = arg;
	struct request *r = w->r;

	r->reserved = 0;
	if (r->req && !r->started && answer_has_room(r, w->text.len)) {
		text_free(&r->out);
		r->out = w->text;
		w->text = (struct text){0};
		answer(r, 200, "application/json");
	}
	text_free(&w->text);
	request_unref(r);
	free(w);
}

static void hand_to_worker(struct request *r, struct service_diff *diff)
{
	struct writing *w = must_alloc(sizeof(*w));

	*w = (struct writing){.r = r, .diff = diff};
	request_ref(r);
	r->reserved = diff->bytes;
	if (loop_work(r->loop, LOOP_CPU, work_on, on_written, w) == 0)
		return;
	service_diff_free(diff);
	free(w);
	r->reserved = 0;
	answer_retry_after(r, 1);
	answer_error(r, 503, "no_memory",
		     "the service has no memory to write this answer: try again in 1 s");
	request_unref(r);
}

static void on_diff(void *arg, struct service_diff *diff, const struct failure *f)
{
	struct request *r = arg;

	diff_end_other(r);
	if (!request_called_well(r, f) || !answer_has_room(r, diff->bytes)) {
		service_diff_free(diff);
	} else if (diff->bytes > STREAM_PAUSE_SIZE) {
		hand_to_worker(r, diff);
	} else {
		write_diff(&r->out, diff);
		answer(r, 200, "application/json");
	}
}

/* --- a checkpoint as the other side ----------------------------------------------------------- */

/* Lifetime: longer than a diff takes, in case the service ends during the diff. */
#define OTHER_S 7200

void diff_end_other(struct request *r)
{
	if (r->mark)
		op_abandon(service_delete(r->service, r->tenant, r->other, NULL, NULL));
	r->mark = false;
}

static const struct request_ops other_ops = {.gone = diff_end_other};

static void on_other(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	memcpy(r->other, view->id, sizeof(r->other));
	r->mark = true;
	r->ops = &other_ops;
	route_serve(r);
}

bool diff_starts_other(struct request *r)
{
	const struct sandbox_spec spec = {.config.timeout_s = OTHER_S};
	const struct json_text id = {.p = r->other, .len = strlen(r->other)};

	if (!id_valid(CHECKPOINT_ID_PREFIX, id.p, id.len))
		return false;
	if (checkpoint_is_good(r, &id)) {
		request_ref(r);
		r->op = service_create_from(r->service, r->tenant, r->other, &spec, on_other, r);
	}
	return true;
}

/* --- the request ------------------------------------------------------------------------------ */

static bool has_dot_dot(const char *path)
{
	for (; *path; path += strcspn(path, "/")) {
		path += strspn(path, "/");
		if (strcspn(path, "/") == 2 && path[0] == '.' && path[1] == '.')
			return true;
	}
	return false;
}

const char *const *diff_paths(char **paths)
{
	return paths ? (const char *const *)paths : default_paths;
}

bool diff_paths_are_good(struct request *r, char **paths)
{
	if (paths && !*paths)
		return bad_request(r, "paths must have 1 to %u strings, not 0", DIFF_PATHS_MAX);
	for (char **path = paths; path && *path; path++) {
		if (**path != '/')
			return bad_request(r, "each path must be absolute, \"%.100s\" is not",
					   *path);
		if (has_dot_dot(*path))
			return bad_request(r, "each path must be without .., \"%.100s\" is not",
					   *path);
		if (strlen(*path) > AGENT_PATH_MAX)
			return bad_request(r, "each path must be at most %u bytes long, not %zu",
					   AGENT_PATH_MAX, strlen(*path));
	}
	return true;
}

void serve_diff(struct request *r, const struct diff_body *b)
{
	if (!answer_may_be_long(r) || !diff_paths_are_good(r, b->paths) || diff_starts_other(r))
		return;
	request_ref(r);
	r->op = service_diff(r->service, r->tenant, r->id, r->other, diff_paths(b->paths), on_diff,
			     r);
}
