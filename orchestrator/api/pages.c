// SPDX-License-Identifier: Apache-2.0
/*
 * Lists of sandboxes, Spaces and checkpoints: an array, whole or one page of it, sent in chunks.
 * The loop turns between chunks, and each chunk waits until the previous one is taken. So a long
 * list does not delay other requests, and takes the memory of one chunk however slow its reader is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/json/cursor.h"
#include "orchestrator/json/query.h"

#define CHUNK_SIZE    (64u << 10)
#define AT_A_TIME     8	 /* entries between checks of the chunk's size: each has up to 17 KiB */
#define REJECTED_MAX  32 /* entries that the filter rejects in one turn */
#define ID_PREFIX_LEN 4
#define ID_BYTES      ((SANDBOX_ID_LEN - ID_PREFIX_LEN) / 2)
#define KEY_LEN	      (8 + ID_BYTES)

/* --- limit and cursor ----------------------------------------------------------------------- */

bool ask_limit(struct request *r, size_t *limit)
{
	uint64_t n = UINT64_MAX;

	if (!ask_number(r, "limit", 1, &n))
		return false;
	if (n != UINT64_MAX)
		*limit = n < PAGE_MAX ? n : PAGE_MAX;
	return true;
}

int ask_cursor(struct request *r, char kind, void *key, size_t least, size_t most)
{
	h2o_iovec_t url = r->req->input.path;
	char text[CURSOR_TEXT_MAX + 1];
	struct err e;
	int len = query_text(url.base, url.len, "cursor", text, sizeof(text), &e);

	if (len == -ENOENT)
		return 0;
	if (len >= 0)
		len = cursor_read(text, kind, key, most, &e);
	if (len >= 0 && (size_t)len < least)
		len = err_say(
			&e, EINVAL,
			"cursor is too short: use the whole value of the header ramet-next-cursor");
	if (len < 0)
		answer_error(r, 400, "bad_request", "%s", e.text);
	return len;
}

void answer_next(struct request *r, char kind, const void *key, size_t len)
{
	char text[CURSOR_TEXT_MAX + 1];

	cursor_write(text, kind, key, len);
	answer_header(r, "ramet-next-cursor", text);
}

static bool ask_filter(struct request *r)
{
	h2o_iovec_t url = r->req->input.path;
	struct pages *p = pages_of(r);
	struct err e;
	int ret = 0;

	if (p->list.kind == LIST_CHECKPOINTS)
		ret = checkpoint_filter_read(&p->checkpoints, url.base, url.len, &e);
	else if (p->list.kind != LIST_SPACES)
		ret = list_filter_read(&p->filter, url.base, url.len, &e);
	if (ret == 0)
		return true;
	return bad_request(r, "%s", e.text);
}

/* --- positions as keys ---------------------------------------------------------------------- */

static void key_of(uint8_t key[static KEY_LEN], const struct list_position *position)
{
	for (int i = 0; i < 8; i++)
		key[i] = (uint8_t)((uint64_t)position->at_ms >> (56 - 8 * i));
	hex_bytes(key + 8, ID_BYTES, position->id + ID_PREFIX_LEN);
}

static void position_of(struct list_position *position, const char *prefix,
			const uint8_t key[static KEY_LEN])
{
	uint64_t at_ms = 0;

	for (int i = 0; i < 8; i++)
		at_ms = at_ms << 8 | key[i];
	position->at_ms = (int64_t)at_ms;
	memcpy(position->id, prefix, ID_PREFIX_LEN);
	hex_write(position->id + ID_PREFIX_LEN, key + 8, ID_BYTES);
}

static const char *prefix_of(const struct list_name *list)
{
	static const char *const prefixes[] = {[LIST_SANDBOXES] = "sbx_",
					       [LIST_CHILDREN] = "sbx_",
					       [LIST_SPACES] = "spc_",
					       [LIST_CHECKPOINTS] = "chk_"};

	return prefixes[list->kind];
}

static char letter_of(const struct list_name *list)
{
	static const char letters[] = {[LIST_SANDBOXES] = 's',
				       [LIST_CHILDREN] = 'c',
				       [LIST_SPACES] = 'p',
				       [LIST_CHECKPOINTS] = 'k'};

	return letters[list->kind];
}

static bool ask_position(struct request *r, const struct list_name *list,
			 struct list_position *position)
{
	uint8_t key[KEY_LEN];
	int len = ask_cursor(r, letter_of(list), key, sizeof(key), sizeof(key));

	if (len > 0)
		position_of(position, prefix_of(list), key);
	return len >= 0;
}

/* --- chunks --------------------------------------------------------------------------------- */

void pages_comma(struct request *r)
{
	text_putc(&r->out, pages_of(r)->begun ? ',' : '[');
	pages_of(r)->begun = true;
}

/* Gathers the next chunk. */
static void gather(struct request *r)
{
	struct pages *p = pages_of(r);

	p->more = true;
	p->rejected = 0;
	while (p->more && r->out.len < CHUNK_SIZE && p->rejected < REJECTED_MAX)
		p->more = p->add(r, AT_A_TIME);
	if (!p->more)
		text_puts(&r->out, p->begun ? "]\n" : "[]\n");
}

/* Sends what was gathered. The next chunk follows when the client has taken this one, or without
 * output in the next turn of the loop. */
static void send_gathered(struct request *r)
{
	if (!pages_of(r)->more)
		stream_end(r, false);
	else if (r->out.len)
		stream_touch(r);
	else
		loop_timer_set(r->loop, &pages_of(r)->turn, 0);
}

static void on_turn(void *arg)
{
	struct request *r = arg;

	if (!pages_of(r)->more || r->ended)
		return;
	gather(r);
	send_gathered(r);
}

static void gather_next(struct request *r)
{
	if (pages_of(r)->more && !r->ended)
		loop_timer_set(r->loop, &pages_of(r)->turn, 0);
}

static void stop(struct request *r)
{
	loop_timer_clear(r->loop, &pages_of(r)->turn);
	list_filter_fini(&pages_of(r)->filter);
	checkpoint_filter_fini(&pages_of(r)->checkpoints);
}

static const struct request_ops ops = {.taken = gather_next, .gone = stop};

void serve_pages(struct request *r, const struct list_name *list, pages_fn *add)
{
	size_t limit = SIZE_MAX;
	struct pages *p = must_alloc(sizeof(*p));
	uint8_t key[KEY_LEN];
	struct failure f;

	*p = (struct pages){.list = *list, .add = add, .turn = {.fn = on_turn, .arg = r}};
	r->state = p;
	r->ops = &ops;
	if (!ask_limit(r, &limit) || !ask_position(r, list, &p->page.after) || !ask_filter(r))
		return;
	if (!service_page(r->service, list, limit, &p->page, &f)) {
		answer_failure(r, &f);
		return;
	}
	if (p->page.more) {
		key_of(key, &p->page.last);
		answer_next(r, letter_of(list), key, sizeof(key));
	}
	gather(r);
	if (!p->more) {
		answer(r, 200, "application/json");
	} else if (request_is_head(r)) {
		p->more = false;
		r->out.len = 0;
		answer_head(r, 200, "application/json", SIZE_MAX);
	} else {
		stream_begin(r, 200, "application/json", SIZE_MAX);
		send_gathered(r);
	}
}
