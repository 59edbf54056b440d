// SPDX-License-Identifier: Apache-2.0
/* Three-way merges of files, and diffs of a text. */
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/guestops/guestops.h"

/* --- the answer ------------------------------------------------------------------------------- */

/* By letter. An entry without a conflict has no reason. */
static const char *const reasons[UINT8_MAX + 1] = {
	[MERGE_CONTENT] = "content",	 [MERGE_BINARY] = "binary",
	[MERGE_TYPE] = "type",		 [MERGE_DELETED] = "deleted",
	[MERGE_BOTH_ADDED] = "added",	 [MERGE_ATTRIBUTES] = "attributes",
	[MERGE_NO_GIT] = "no_git",	 [MERGE_NO_FOLDER] = "no_folder",
	[MERGE_NOT_EMPTY] = "not_empty", [MERGE_UNREADABLE] = "unreadable",
};
static const char *const resolutions[UINT8_MAX + 1] = {
	[MERGE_OURS] = "ours", [MERGE_THEIRS] = "theirs", [MERGE_MARKERS] = "markers"};

static const char *change_to(const struct merge_entry *n)
{
	static const char *const names[] = {
		[DIFF_ADDED] = "added", [DIFF_REMOVED] = "removed", [DIFF_MODIFIED] = "modified"};

	return n->outcome == MERGE_MERGED ? "merged" : names[merge_entry_kind(n)];
}

/* The state of a merge's request: the ids, for the answer. */
struct merged {
	unsigned n;
	char branches[MERGE_BRANCHES_MAX][SANDBOX_ID_LEN + 1];
};

static void add_entry(struct text *t, const struct merged *m, const struct merge_entry *n)
{
	const char *reason = reasons[n->outcome], *comma = "";

	text_putc(t, '{');
	add_name(t, "path", n->path, strlen(n->path));
	text_puts(t, ",\"branches\":[");
	for (unsigned k = 0; k < m->n; k++) {
		if (!merge_entry_has(n, k))
			continue;
		text_printf(t, "%s\"%s\"", comma, m->branches[k]);
		comma = ",";
	}
	text_putc(t, ']');
	if (reason) {
		json_member(t, "reason", reason);
		json_member(t, "resolution", resolutions[n->resolution]);
	} else {
		json_member(t, "change", change_to(n));
	}
	text_putc(t, '}');
}

/* Adds the conflicts, or the paths that are taken. Returns the number of added entries. */
static size_t add_entries(struct text *t, const struct merged *m, const struct merge_plan *plan,
			  bool conflicts)
{
	size_t found = 0;

	for (size_t i = 0; i < plan->n; i++) {
		const struct merge_entry *n = &plan->entries[i];

		if (n->outcome == MERGE_SAME || (reasons[n->outcome] != NULL) != conflicts)
			continue;
		if (found++)
			text_putc(t, ',');
		add_entry(t, m, n);
	}
	return found;
}

static void add_branches(struct text *t, const struct merged *m, const struct merge_plan *plan)
{
	for (unsigned k = 0; k < m->n; k++) {
		unsigned changed = 0, conflicts = 0;

		for (size_t i = 0; i < plan->n; i++) {
			if (!merge_entry_has(&plan->entries[i], k))
				continue;
			changed++;
			conflicts += reasons[plan->entries[i].outcome] != NULL;
		}
		text_printf(t, "%s{\"id\":\"%s\",\"changed\":%u,\"conflicts\":%u}", k ? "," : "",
			    m->branches[k], changed, conflicts);
	}
}

static void on_merged(void *arg, const struct merge_plan *plan, const struct failure *f)
{
	struct request *r = arg;
	const struct merged *m = r->state;

	/* A path takes up to six times its bytes, and an entry a few hundred more. */
	if (!request_called_well(r, f) || !answer_has_room(r, 6 * plan->bytes + 256 * plan->n))
		return;
	text_puts(&r->out, "{\"taken\":[");
	add_entries(&r->out, m, plan, false);
	text_puts(&r->out, "],\"conflicts\":[");
	size_t conflicts = add_entries(&r->out, m, plan, true);
	text_puts(&r->out, "],\"branches\":[");
	add_branches(&r->out, m, plan);
	text_printf(&r->out, "],\"applied\":%s}\n", conflicts && r->mark ? "false" : "true");
	answer(r, 200, "application/json");
}

/* --- the request ------------------------------------------------------------------------------ */

static bool is_sandbox(struct request *r, const char *field, const char *id)
{
	if (id_valid("sbx_", id, strlen(id)))
		return true;
	return bad_request(r, "%s: \"%.60s\" is not the id of a sandbox", field, id);
}

/* Copies the ids. Returns false, with an answer given, for invalid ones. */
static bool take_branches(struct request *r, struct merged *m, char **ids)
{
	for (; *ids; ids++) {
		if (!is_sandbox(r, "branches", *ids))
			return false;
		for (unsigned k = 0; k < m->n; k++) {
			if (strcmp(m->branches[k], *ids) != 0)
				continue;
			return bad_request(r, "branches has %s twice", *ids);
		}
		memcpy(m->branches[m->n++], *ids, SANDBOX_ID_LEN + 1);
	}
	if (!m->n)
		answer_error(r, 400, "bad_request", "branches must have 1 to %d ids, not 0",
			     MERGE_BRANCHES_MAX);
	return m->n > 0;
}

void serve_merge_files(struct request *r, const struct merge_files_body *b)
{
	struct merged *m = r->state = must_alloc(sizeof(*m));
	struct file_merge merge = {.base = b->base.p,
				   .branches = (const char *const *)b->branches,
				   .paths = diff_paths(b->paths),
				   .conflicts = b->conflicts.p ? b->conflicts.p : "report"};

	if (!answer_may_be_long(r) || !diff_paths_are_good(r, b->paths) ||
	    !is_sandbox(r, "base", b->base.p) || !take_branches(r, m, b->branches))
		return;
	r->mark = strcmp(merge.conflicts, "report") == 0; /* a conflict: nothing was written */
	request_ref(r);
	r->op = service_merge_files(r->service, r->tenant, r->id, &merge, on_merged, r);
}

/* --- diffs of a text -------------------------------------------------------------------------- */

static void on_text(void *arg, const char *text, size_t len, const struct failure *f)
{
	struct request *r = arg;

	diff_end_other(r);
	if (!request_called_well(r, f) || !answer_has_room(r, len))
		return;
	text_add(&r->out, text, len);
	answer(r, 200, "text/x-diff");
}

void serve_text_diff(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];

	if (!ask_path(r, path) || !answer_may_be_long(r) || diff_starts_other(r))
		return;
	request_ref(r);
	r->op = service_text_diff(r->service, r->tenant, r->id, r->other, path, on_text, r);
}
