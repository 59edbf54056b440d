// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/history.h"

#include "base/fd.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/api/page-key.h"

#define KEY_LEN 4 /* of a cursor: the number of the last entry */

/* The page, while entries are added to it. */
struct page {
	struct request *r;
	size_t left;
	uint32_t last; /* number of the entry that was added last */
	bool more;
};

static const char *const kinds[] = {
	[HISTORY_CREATED] = "created",	     [HISTORY_FORKED] = "forked",
	[HISTORY_RESUMED] = "resumed",	     [HISTORY_CALL] = "call",
	[HISTORY_CHECKPOINT] = "checkpoint", [HISTORY_FORK] = "fork",
	[HISTORY_MERGE] = "merge",	     [HISTORY_ROLLBACK] = "rollback",
};
static const char *const results[] = {
	[HISTORY_OK] = "ok",	     [HISTORY_ERROR] = "error",
	[HISTORY_FAILED] = "failed", [HISTORY_ROLLED_BACK] = "rolled_back",
	[HISTORY_MERGED] = "merged",
};
_Static_assert(ARRAY_LEN(kinds) == HISTORY_NKINDS && ARRAY_LEN(results) == HISTORY_NRESULTS,
	       "each has a word");

static void add_text(struct text *t, const char *name, const struct history_entry *e)
{
	json_member(t, name, e->text[0] ? e->text : NULL);
}

static void add_call(struct text *t, const struct history_entry *e)
{
	const int64_t ms = e->at_ms > e->began_ms ? e->at_ms - e->began_ms : 0;

	add_text(t, "code", e);
	text_printf(t, ",\"result\":\"%s\",\"seq\":%llu,\"seconds\":", results[e->result],
		    (unsigned long long)e->seq);
	if (e->began_ms)
		text_printf(t, "%lld.%03d", (long long)ms / 1000, (int)(ms % 1000));
	else
		text_puts(t, "null");
}

static void add_fork(struct text *t, const struct history_view *view)
{
	text_printf(t, ",\"n_children\":%u,\"children\":[", view->entry->children);
	for (size_t i = 0; i < view->n_children; i++)
		text_printf(t, "%s\"%s\"", i ? "," : "", view->children[i]);
	text_puts(t, "]");
}

static void add_entry(struct text *t, const struct history_view *view)
{
	const struct history_entry *e = view->entry;

	text_printf(t, "{\"n\":%u,\"kind\":\"%s\",\"time\":", e->n, kinds[e->kind]);
	json_time(t, e->at_ms);
	if (e->kind == HISTORY_CALL)
		add_call(t, e);
	else if (e->kind == HISTORY_FORK)
		add_fork(t, view);
	else
		add_text(t, e->kind == HISTORY_CHECKPOINT ? "name" : "source", e);
	json_member(t, "checkpoint", view->checkpoint);
	text_printf(t, ",\"undone\":%s}", view->undone ? "true" : "false");
}

static bool add(void *arg, const struct history_view *view)
{
	struct page *page = arg;

	page->more = !page->left;
	if (page->more)
		return false;
	page->left--;
	page->last = view->entry->n;
	text_putc(&page->r->out, page->r->out.len ? ',' : '[');
	add_entry(&page->r->out, view);
	return true;
}

static bool ask_last(struct request *r, uint32_t *last)
{
	uint8_t key[KEY_LEN];
	int len = ask_cursor(r, 'h', key, sizeof(key), sizeof(key));

	if (len > 0)
		memcpy(last, key, sizeof(*last));
	return len >= 0;
}

void serve_history(struct request *r)
{
	struct page page = {.r = r, .left = PAGE_MAX};
	struct failure f;

	if (!ask_limit(r, &page.left) || !ask_last(r, &page.last) || !answer_may_be_long(r))
		return;
	if (!service_history(r->service, r->tenant, r->id, page.last, add, &page, &f)) {
		answer_failure(r, &f);
		return;
	}
	if (page.more)
		answer_next(r, 'h', &page.last, sizeof(page.last));
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}
