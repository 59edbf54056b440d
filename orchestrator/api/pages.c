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
#include "orchestrator/api/fleet-list.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/page-key.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/json/cursor.h"
#include "orchestrator/json/query.h"

#define CHUNK_SIZE   (64u << 10)
#define AT_A_TIME    8	/* entries between checks of the chunk's size: each has up to 17 KiB */
#define REJECTED_MAX 32 /* entries that the filter rejects in one turn */
#define PART_SIZE    (32u << 10) /* what another host of the fleet gets at once */

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
		ret = checkpoint_filter_read(&p->filter, url.base, url.len, &e);
	else if (p->list.kind != LIST_SPACES)
		ret = list_filter_read(&p->filter, url.base, url.len, &e);
	if (ret == 0)
		return true;
	return bad_request(r, "%s", e.text);
}

/* --- positions as keys ---------------------------------------------------------------------- */

static bool ask_position(struct request *r, const struct list_name *list,
			 struct list_position *position)
{
	uint8_t key[PAGE_KEY_LEN];
	int len = ask_cursor(r, page_letter(list->kind, false), key, sizeof(key), sizeof(key));

	if (len > 0)
		page_key_read(position, list->kind, key);
	return len >= 0;
}

static void answer_position(struct request *r, const struct list_position *position)
{
	uint8_t key[PAGE_KEY_LEN];

	page_key_write(key, position);
	answer_next(r, page_letter(pages_of(r)->list.kind, false), key, sizeof(key));
}

/* --- chunks --------------------------------------------------------------------------------- */

void pages_comma(struct request *r)
{
	text_putc(&r->out, pages_of(r)->n++ ? ',' : '[');
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
		text_puts(&r->out, p->n ? "]\n" : "[]\n");
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
	if (pages_of(r)->fleet)
		fleet_pages_taken(r);
	else if (pages_of(r)->more && !r->ended)
		loop_timer_set(r->loop, &pages_of(r)->turn, 0);
}

static void stop(struct request *r)
{
	loop_timer_clear(r->loop, &pages_of(r)->turn);
	list_filter_fini(&pages_of(r)->filter);
}

static const struct request_ops ops = {
	.taken = gather_next, .gone = stop, .free = fleet_pages_free};

/* --- parts ---------------------------------------------------------------------------------- */

static void on_part_turn(void *arg)
{
	struct request *r = arg;
	struct pages *p = pages_of(r);

	if (r->ended)
		return;
	p->more = true;
	p->rejected = 0;
	while (p->more && r->out.len - p->part_at < PART_SIZE && p->rejected < REJECTED_MAX)
		p->more = p->add(r, 1);
	if (p->more && r->out.len - p->part_at < PART_SIZE)
		loop_timer_set(r->loop, &p->turn, 0);
	else
		p->gathered(r);
}

void pages_part(struct request *r, void (*gathered)(struct request *r))
{
	struct pages *p = pages_of(r);

	p->turn.fn = on_part_turn;
	p->part_at = r->out.len;
	p->gathered = gathered;
	on_part_turn(r);
}

bool pages_part_end(const struct request *r, struct list_position *at)
{
	const struct pages *p = pages_of(r);

	*at = p->more ? p->page.after : p->page.last;
	return p->more || p->page.more;
}

/* Answers another host, which puts a list together. */
static void answer_part(struct request *r)
{
	struct list_position at;

	if (pages_part_end(r, &at))
		answer_position(r, &at);
	text_puts(&r->out, pages_of(r)->n ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

/* --- start ---------------------------------------------------------------------------------- */

void serve_pages(struct request *r, const struct list_name *list, pages_fn *add)
{
	size_t limit = SIZE_MAX;
	struct pages *p = must_alloc(sizeof(*p));
	const bool over_fleet = r->api->peers && list->kind != LIST_CHILDREN;
	struct failure f;

	*p = (struct pages){.list = *list, .add = add, .turn = {.fn = on_turn, .arg = r}};
	r->state = p;
	r->ops = &ops;
	if (!ask_limit(r, &limit) || !ask_filter(r))
		return;
	if (over_fleet && !http_is_from_peer(r->req)) {
		fleet_pages_serve(r, limit);
		return;
	}
	if (!ask_position(r, list, &p->page.after))
		return;
	if (!service_page(r->service, list, limit, &p->page, &f)) {
		answer_failure(r, &f);
		return;
	}
	if (over_fleet) {
		pages_part(r, answer_part);
		return;
	}
	if (p->page.more)
		answer_position(r, &p->page.last);
	gather(r);
	if (!p->more) {
		answer(r, 200, "application/json");
	} else if (request_is_head(r)) {
		p->more = false;
		r->out.len = 0;
		answer_head(r, 200, "application/json", SIZE_MAX);
	} else {
		answer_begin(r, 200, "application/json", SIZE_MAX);
		send_gathered(r);
	}
}
