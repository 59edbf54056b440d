// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/list-filter.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/json/json.h"
#include "orchestrator/json/query.h"

#define METADATA_MAX 4096 /* bytes of JSON */

/* Reads a text; leaves it empty when it is absent. */
static int read_text(const char *url, size_t url_len, const char *name, char *out, size_t room,
		     struct err *e)
{
	int len = query_text(url, url_len, name, out, room, e);

	return len == -ENOENT ? 0 : len;
}

static int read_state(struct list_filter *f, const char *url, size_t url_len, struct err *e)
{
	static const char *const states[] = {"", "ready", "running", "freezing"};
	int ret = read_text(url, url_len, "state", f->state, sizeof(f->state), e);

	for (size_t i = 0; ret >= 0 && i < ARRAY_LEN(states); i++)
		if (strcmp(f->state, states[i]) == 0)
			return 0;
	return ret < 0 ? ret
		       : err_say(e, EINVAL, "state must be ready, running or freezing, not \"%s\"",
				 f->state);
}

static int read_flat(struct json_flat *flat, const char *url, size_t url_len, const char *name,
		     struct err *e)
{
	char text[METADATA_MAX + 1];
	int len = read_text(url, url_len, name, text, sizeof(text), e);

	return len > 0 ? json_flat_read(flat, name, text, (size_t)len, e) : len;
}

/* Leaves the id empty when it is absent. */
static int read_sandbox(const char *url, size_t url_len, const char *name,
			char out[static SANDBOX_ID_LEN + 1], struct err *e)
{
	int len = query_text(url, url_len, name, out, SANDBOX_ID_LEN + 1, e);

	if (len == -ENOENT)
		return 0;
	return len < 0 || id_valid("sbx_", out, (size_t)len)
		       ? len
		       : err_say(e, EINVAL, "%s must be the id of a sandbox, not \"%s\"", name,
				 out);
}

int list_filter_read(struct list_filter *f, const char *url, size_t url_len, struct err *e)
{
	*f = (struct list_filter){0};
	if (read_state(f, url, url_len, e) >= 0 &&
	    read_text(url, url_len, "template", f->template, sizeof(f->template), e) >= 0 &&
	    query_time(url, url_len, "created_after", &f->after_ms, e) >= 0 &&
	    query_time(url, url_len, "created_before", &f->before_ms, e) >= 0 &&
	    read_sandbox(url, url_len, "root", f->root, e) >= 0 &&
	    read_flat(&f->metadata, url, url_len, "metadata", e) >= 0 &&
	    read_flat(&f->labels, url, url_len, "labels", e) >= 0)
		return 0;
	list_filter_fini(f);
	return -EINVAL;
}

void list_filter_fini(struct list_filter *f)
{
	json_flat_free(&f->metadata);
	json_flat_free(&f->labels);
}

bool list_filter_fits(const struct list_filter *f, const struct sandbox_view *view)
{
	const char *metadata = view->metadata ? view->metadata : "{}";

	if (f->state[0] && strcmp(f->state, view->state) != 0)
		return false;
	if (f->template[0] && strcmp(f->template, view->config.template) != 0)
		return false;
	if (f->root[0] && strcmp(f->root, view->root) != 0)
		return false;
	if (f->after_ms && view->created_at_ms <= f->after_ms)
		return false;
	if (f->before_ms && view->created_at_ms >= f->before_ms)
		return false;
	if (f->labels.n && !json_has(view->labels, strlen(view->labels), &f->labels))
		return false;
	return !f->metadata.n || json_has(metadata, strlen(metadata), &f->metadata);
}

/* --- checkpoints ---------------------------------------------------------------------------- */

int checkpoint_filter_read(struct list_filter *f, const char *url, size_t url_len, struct err *e)
{
	*f = (struct list_filter){0};
	return read_text(url, url_len, "name", f->name, sizeof(f->name), e) >= 0 &&
			       read_sandbox(url, url_len, "sandbox", f->sandbox, e) >= 0 &&
			       read_sandbox(url, url_len, "ancestor", f->ancestor, e) >= 0 &&
			       read_flat(&f->labels, url, url_len, "labels", e) >= 0
		       ? 0
		       : -EINVAL;
}

bool checkpoint_filter_fits(const struct list_filter *f, const struct checkpoint_view *view)
{
	if (f->name[0] && (!view->name || strcmp(f->name, view->name) != 0))
		return false;
	if (f->sandbox[0] && strcmp(f->sandbox, view->sandbox) != 0)
		return false;
	if (f->ancestor[0] && !strstr(view->ancestors, f->ancestor))
		return false;
	return !f->labels.n || json_has(view->labels, strlen(view->labels), &f->labels);
}
