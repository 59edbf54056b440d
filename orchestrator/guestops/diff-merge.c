// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/diff-merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/elements.h"

struct diff_entry {
	struct list link;
	struct agent_entry is; /* points into `bytes` */
	uint8_t bytes[];       /* path, NUL, content */
};

static size_t cost_of(const struct diff_entry *n)
{
	return sizeof(*n) + n->is.path_len + 1 + n->is.content_len;
}

static struct diff_entry *copy(const struct agent_entry *from)
{
	struct diff_entry *n = malloc(sizeof(*n) + from->path_len + 1 + from->content_len);

	if (!n)
		return NULL;
	list_init(&n->link);
	n->is = *from;
	memcpy(n->bytes, from->path, from->path_len);
	n->bytes[from->path_len] = 0;
	n->is.path = n->bytes;
	n->is.content = n->bytes + from->path_len + 1;
	if (from->content_len)
		memcpy(n->bytes + from->path_len + 1, from->content, from->content_len);
	return n;
}

static struct diff_entry *first(const struct diff_side *s)
{
	return list_first_of(&s->ahead, struct diff_entry, link);
}

/* Removes the entry. Frees it, unless it is the last one received: the next one is compared with
 * it, and must sort after it. */
static void entry_remove(struct diff_side *s, struct diff_entry *n)
{
	s->ahead_bytes -= cost_of(n);
	list_del(&n->link);
	if (n != s->last)
		free(n);
}

static void forget_last(struct diff_side *s)
{
	if (s->last && list_empty(&s->last->link))
		free(s->last);
	s->last = NULL;
}

static void side_clear(struct diff_side *s)
{
	forget_last(s);
	while (first(s))
		entry_remove(s, first(s));
	s->ended = false;
}

void diff_merge_init(struct diff_merge *m)
{
	*m = (struct diff_merge){.found = must_alloc(sizeof(*m->found))};
}

void diff_merge_fini(struct diff_merge *m)
{
	side_clear(&m->side[0]);
	side_clear(&m->side[1]);
	service_diff_free(m->found);
	m->found = NULL;
}

void diff_merge_begin(struct diff_merge *m, const char *root)
{
	m->root = root;
	side_clear(&m->side[0]);
	side_clear(&m->side[1]);
}

/* --- comparing ------------------------------------------------------------------------------ */

static int add_difference(struct diff_merge *m, enum diff_kind kind, const struct diff_entry *n,
			  struct err *e)
{
	struct service_diff *d = m->found;

	if (d->n == DIFF_FOUND_MAX)
		return err_say(e, EFBIG, "more than %u paths differ", DIFF_FOUND_MAX);
	if (d->bytes + n->is.path_len > DIFF_FOUND_BYTES_MAX)
		return err_say(e, EFBIG, "the differing paths take more than %u MiB",
			       DIFF_FOUND_BYTES_MAX >> 20);
	if (service_diff_add(d, kind, n->is.path, n->is.path_len) < 0)
		return err_set(e, ENOMEM, "store a differing path");
	return 0;
}

/* Compares two entries. A file without a content hash (the guest could not read it) counts as
 * different. */
static bool same(const struct agent_entry *a, const struct agent_entry *b)
{
	if (S_ISREG(a->mode) && !a->content_len)
		return false;
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->size == b->size &&
	       a->content_len == b->content_len &&
	       memcmp(a->content, b->content, a->content_len) == 0;
}

static int order_of(const struct diff_entry *a, const struct diff_entry *b)
{
	if (!a || !b)
		return a ? -1 : 1;
	return agent_path_order(a->is.path, a->is.path_len, b->is.path, b->is.path_len);
}

/* Compares the entries that both sides have delivered so far. */
static int catch_up(struct diff_merge *m, struct err *e)
{
	for (;;) {
		struct diff_entry *a = first(&m->side[0]), *b = first(&m->side[1]);
		int order = order_of(a, b), ret = 0;

		if ((!a && !m->side[0].ended) || (!b && !m->side[1].ended) || (!a && !b))
			return 0;
		if (order < 0)
			ret = add_difference(m, DIFF_REMOVED, a, e);
		else if (order > 0)
			ret = add_difference(m, DIFF_ADDED, b, e);
		else if (!same(&a->is, &b->is))
			ret = add_difference(m, DIFF_MODIFIED, a, e);
		if (ret < 0)
			return ret;
		if (order <= 0)
			entry_remove(&m->side[0], a);
		if (order >= 0)
			entry_remove(&m->side[1], b);
	}
}

/* --- entries -------------------------------------------------------------------------------- */

static bool is_under(const struct agent_entry *n, const char *root)
{
	size_t len = strlen(root);

	if (strcmp(root, "/") == 0)
		return true;
	return n->path_len >= len && memcmp(n->path, root, len) == 0 &&
	       (n->path_len == len || n->path[len] == '/');
}

/* Returns whether a listing may have the path: one that is not plain could leave the root. */
static bool is_walked(const struct agent_entry *n)
{
	return n->path_len && n->path[0] == '/' &&
	       (n->path_len == 1 || agent_path_is_plain(n->path + 1, n->path_len - 1, UINT32_MAX));
}

int diff_merge_entry(struct diff_merge *m, unsigned side, const struct agent_entry *entry,
		     struct err *e)
{
	struct diff_side *s = &m->side[side];

	if (s->ended || !is_under(entry, m->root) || !is_walked(entry))
		return err_say(e, EPROTO,
			       "the guest's agent listed a path that is not under %.100s", m->root);
	if (s->last && agent_path_order(s->last->is.path, s->last->is.path_len, entry->path,
					entry->path_len) >= 0)
		return err_say(e, EPROTO, "the guest's agent listed entries of %.100s out of order",
			       m->root);
	struct diff_entry *n = copy(entry);
	if (!n)
		return err_set(e, ENOMEM, "store an entry of %.100s", m->root);
	forget_last(s);
	s->last = n;
	list_add_tail(&s->ahead, &n->link);
	s->ahead_bytes += cost_of(n);
	return catch_up(m, e);
}

int diff_merge_end(struct diff_merge *m, unsigned side, struct err *e)
{
	if (m->side[side].ended)
		return err_say(e, EPROTO, "the guest's agent ended the listing of %.100s twice",
			       m->root);
	m->side[side].ended = true;
	return catch_up(m, e);
}

bool diff_merge_complete(const struct diff_merge *m)
{
	return m->side[0].ended && m->side[1].ended && !first(&m->side[0]) && !first(&m->side[1]);
}

bool diff_merge_is_ahead(const struct diff_merge *m, unsigned side)
{
	return m->side[side].ahead_bytes > DIFF_AHEAD_MAX;
}

/* --- result --------------------------------------------------------------------------------- */

struct service_diff *diff_merge_take(struct diff_merge *m)
{
	struct service_diff *found = m->found;

	m->found = NULL;
	return found;
}
