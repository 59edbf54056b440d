// SPDX-License-Identifier: Apache-2.0
/*
 * Lists over all hosts of a fleet: the entries of the host with the lowest number, then those of
 * the next one. This host gathers its own entries and asks the others for theirs, a part at a time.
 * It asks some of the hosts that come next, too, so that it does not wait for one after another. A
 * page is gathered before it is sent, because its head has the cursor and the hosts that are
 * missing, so it ends at PAGE_SIZE; a whole list is sent in chunks.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "orchestrator/api/fleet-list.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/page-key.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/json/cursor.h"
#include "orchestrator/json/query.h"
#include "orchestrator/peers/peers.h"

#define PAGE_SIZE  (256u << 10)
#define CHUNK_SIZE (64u << 10) /* bytes of a whole list that are sent at a time */
#define PARTS_MAX  64	       /* maximum of parts in a page */
#define PAGE_MS	   5000	       /* time to gather a page, which then ends where it is */
#define SILENT_MS  5000	       /* time that a whole list may wait for hosts that don't answer */
#define PAGE_HOSTS 4	       /* hosts asked ahead, as long as a page has entries of one host */
#define EMPTY_MAX  1000	       /* most parts without entries that one host may send in a row */
#define EMPTY_MS   3000	       /* time to wait for these parts; less than PAGE_MS */

struct fleet_pages {
	struct fleet_list list;
	size_t limit;		    /* SIZE_MAX: the whole list is sent */
	uint32_t host;		    /* the host whose entries after `after` come next */
	struct list_position after; /* zeroed: before the host's first entry */
	unsigned parts, empty;	    /* empty: parts in a row without entries, from this host */
	uint64_t empty_ms;	    /* time waited for them */
	bool passed;		    /* the present host is not the first one */
	bool waiting;		    /* for the present host, since waits_ms */
	/* `silent_ms`: time waited for hosts that were then left out. */
	uint64_t began_ms, waits_ms, silent_ms;
	bool sending; /* a chunk that the client has not taken yet */
};

static struct fleet_pages *fleet_of(const struct request *r)
{
	return pages_of(r)->fleet;
}

static const struct fleet_table *table_of(const struct request *r)
{
	return member_table(service_member(r->service));
}

static bool is_whole(const struct request *r)
{
	return fleet_of(r)->limit == SIZE_MAX;
}

static void move_to(struct fleet_pages *w, uint32_t host)
{
	w->host = host;
	w->after = (struct list_position){0};
	w->empty = 0;
	w->empty_ms = 0;
}

static void move_on(struct fleet_pages *w)
{
	w->passed = true;
	move_to(w, w->host + 1);
}

static void go_on(struct request *r);

/* --- cursors -------------------------------------------------------------------------------- */

static bool ask_place(struct request *r, struct fleet_pages *w)
{
	const enum list_kind kind = pages_of(r)->list.kind;
	uint8_t key[FLEET_PAGE_KEY_LEN];
	struct fleet_place place;
	int len = ask_cursor(r, page_letter(kind, true), key, sizeof(key), sizeof(key));

	if (len <= 0)
		return len == 0;
	if (!fleet_page_key_read(&place, &w->after, kind, member_keys(service_member(r->service)),
				 key) ||
	    place.cell != table_of(r)->cell)
		return bad_request(r, BAD_FLEET_CURSOR);
	w->host = place.host;
	return true;
}

static void answer_place(struct request *r)
{
	const struct fleet_pages *w = fleet_of(r);
	const struct fleet_place place = {table_of(r)->cell, w->host};
	uint8_t key[FLEET_PAGE_KEY_LEN];

	fleet_page_key_write(key, member_keys(service_member(r->service)), place, &w->after);
	answer_next(r, page_letter(pages_of(r)->list.kind, true), key, sizeof(key));
}

/* --- hosts that are left out ---------------------------------------------------------------- */

/* Leaves the present host out, and goes on with the next one. */
static void leave_out(struct request *r)
{
	struct fleet_pages *w = fleet_of(r);

	peers_forget(r, w->host);
	if (r->started) /* too late to name the host to the client */
		stream_end(r, true);
	else
		fleet_list_miss(&w->list, w->host);
	move_on(w);
}

/* Names the hosts that will not be asked, before the head of a whole list is sent. */
static void leave_out_silent(struct request *r)
{
	const struct fleet_table *t = table_of(r);

	for (size_t i = 0; i < t->n; i++)
		if (t->hosts[i].number >= fleet_of(r)->host && &t->hosts[i] != t->self &&
		    peers_is_silent(r->api->peers, r, t->hosts[i].number))
			fleet_list_miss(&fleet_of(r)->list, t->hosts[i].number);
}

/* --- parts ---------------------------------------------------------------------------------- */

/* Returns how many entries a part may have. */
static size_t part_limit(const struct request *r)
{
	return min_u64(fleet_of(r)->limit - pages_of(r)->n, PAGE_MAX);
}

static void on_gathered_here(struct request *r)
{
	struct fleet_pages *w = fleet_of(r);

	if (!pages_part_end(r, &w->after))
		move_on(w);
	go_on(r);
}

static void gather_here(struct request *r)
{
	struct pages *p = pages_of(r);
	struct failure f;

	p->page.after = fleet_of(r)->after;
	service_page(r->service, &p->list, part_limit(r), &p->page, &f);
	pages_part(r, on_gathered_here);
}

struct part {
	char **entries;
};
static const struct json_field part_field =
	JSON_FIELD(struct part, entries, "entries", JSON_OBJECTS, .max = PAGE_MAX);

enum taken { TAKEN, MALFORMED, TOO_MANY };

/* Adds the entries of another host: all or none. */
static enum taken add_entries(struct request *r, const struct peers_part *part)
{
	struct part read = {0};
	struct text text = {0};
	struct err e;
	size_t n = 0;

	text_puts(&text, "{\"entries\":");
	text_add(&text, part->body, part->len);
	text_putc(&text, '}');
	int ret = json_read(text.p, text.len, &part_field, 1, &read, &e);
	text_free(&text);
	if (ret < 0)
		return MALFORMED;
	while (read.entries && read.entries[n])
		n++;
	const bool fits = n <= part_limit(r);
	for (size_t i = 0; fits && i < n; i++) {
		pages_comma(r);
		text_puts(&r->out, read.entries[i]);
	}
	json_free(&part_field, 1, &read);
	fleet_of(r)->empty = n ? 0 : fleet_of(r)->empty + 1;
	return fits ? TAKEN : n <= part->limit ? TOO_MANY : MALFORMED;
}

/* TOO_MANY: the host was asked when the page had room for more. */
static enum taken take(struct request *r, const struct peers_part *part)
{
	const enum list_kind kind = pages_of(r)->list.kind;
	struct fleet_pages *w = fleet_of(r);
	struct list_position next;
	uint8_t key[PAGE_KEY_LEN], before[PAGE_KEY_LEN];
	struct err e;

	if (part->next[0]) {
		if (cursor_read(part->next, page_letter(kind, false), key, sizeof(key), &e) !=
		    (int)sizeof(key))
			return MALFORMED;
		page_key_write(before, &w->after);
		if (memcmp(key, before, sizeof(key)) <= 0)
			return MALFORMED; /* the list would never end */
		page_key_read(&next, kind, key);
	}
	const enum taken taken = add_entries(r, part);
	if (taken != TAKEN || w->empty > EMPTY_MAX)
		return taken == TOO_MANY ? TOO_MANY : MALFORMED;
	const bool more = part->next[0];
	peers_forget(r, w->host);
	if (more)
		w->after = next;
	else
		move_on(w);
	return TAKEN;
}

static void on_part(struct request *r)
{
	if (fleet_of(r)->waiting)
		go_on(r);
}

/* Asks for the host's entries after the position `after`. */
static void ask(struct request *r, const struct fleet_host *host, const struct list_position *after)
{
	static const char *const own[] = {"limit", "cursor"};
	const enum list_kind kind = pages_of(r)->list.kind;
	const h2o_iovec_t url = r->req->input.path;
	char cursor[CURSOR_TEXT_MAX + 1];
	uint8_t key[PAGE_KEY_LEN];
	struct text path = {0};

	page_key_write(key, after);
	cursor_write(cursor, page_letter(kind, false), key, sizeof(key));
	text_printf(&path, "%s?limit=%zu&cursor=%s", r->route->pattern, part_limit(r), cursor);
	query_without(&path, url.base, url.len, own, 2);
	peers_ask(r->api->peers, r, host, &path, part_limit(r), on_part);
	text_free(&path);
}

/* --- the answer ----------------------------------------------------------------------------- */

/* Ends the answer. `more`: entries may follow the page. */
static void end(struct request *r, bool more)
{
	request_leave_call(r); /* more hosts may be asked */
	if (!r->started && !answer_has_room(r, r->out.len))
		return;
	text_puts(&r->out, pages_of(r)->n ? "]\n" : "[]\n");
	if (r->started) {
		stream_end(r, false);
		return;
	}
	if (more)
		answer_place(r);
	fleet_list_answer(&fleet_of(r)->list);
	answer(r, 200, "application/json");
}

static void send_chunk(struct request *r)
{
	fleet_of(r)->sending = true;
	if (r->started) {
		stream_touch(r);
		return;
	}
	leave_out_silent(r);
	fleet_list_answer(&fleet_of(r)->list);
	if (request_is_head(r)) {
		r->out.len = 0;
		answer_head(r, 200, "application/json", SIZE_MAX);
		return;
	}
	answer_begin(r, 200, "application/json", SIZE_MAX);
	stream_touch(r);
}

static void on_turn(void *arg)
{
	go_on(arg);
}

void fleet_pages_taken(struct request *r)
{
	if (!fleet_of(r)->sending || r->ended)
		return;
	fleet_of(r)->sending = false;
	loop_timer_start(r->loop, &pages_of(r)->turn, on_turn, r, 0);
}

static bool is_over(const struct request *r)
{
	const struct fleet_pages *w = fleet_of(r);

	return !is_whole(r) &&
	       (pages_of(r)->n >= w->limit || r->out.len >= PAGE_SIZE || w->parts >= PARTS_MAX ||
		loop_now_ms(r->loop) - w->began_ms >= PAGE_MS);
}

/* Asks the present host and those that come next, unless they are asked already. */
static void ask_ahead(struct request *r)
{
	static const struct list_position beginning;
	struct fleet_pages *w = fleet_of(r);
	const struct fleet_table *t = table_of(r);
	unsigned left = is_whole(r) || w->passed ? PEERS_PARTS : PAGE_HOSTS;

	for (const struct fleet_host *host = fleet_list_host(t, w->host); host && left;
	     host = fleet_list_host(t, host->number + 1)) {
		if (host == t->self || fleet_list_misses(&w->list, host->number) ||
		    peers_is_silent(r->api->peers, r, host->number))
			continue;
		left--;
		if (!peers_is_asked(r, host->number))
			ask(r, host, host->number == w->host ? &w->after : &beginning);
	}
}

/* Takes the part of the present host, which is not this host. Returns false while the part is
 * missing. */
static bool take_next(struct request *r)
{
	struct fleet_pages *w = fleet_of(r);
	const struct peers_part *part = NULL;
	const uint64_t now_ms = loop_now_ms(r->loop);

	if (peers_is_asked(r, w->host) ||
	    (w->silent_ms < SILENT_MS && !peers_is_silent(r->api->peers, r, w->host))) {
		ask_ahead(r);
		if (!peers_part(r, w->host, &part)) {
			w->waits_ms = w->waiting ? w->waits_ms : now_ms;
			w->waiting = true;
			return false;
		}
	}
	const uint64_t waited_ms = w->waiting ? now_ms - w->waits_ms : 0;
	const enum taken taken = part ? take(r, part) : MALFORMED;
	if (taken == TOO_MANY) {
		peers_forget(r, w->host);
		return true;
	}
	w->waiting = false;
	w->parts++;
	w->empty_ms = w->empty || taken == MALFORMED ? w->empty_ms + waited_ms : 0;
	if (taken == MALFORMED || w->empty_ms > EMPTY_MS) {
		w->silent_ms += w->empty_ms;
		leave_out(r);
	}
	return true;
}

/* Takes the next steps, until one has to wait or the answer is over. */
static void go_on(struct request *r)
{
	struct fleet_pages *w = fleet_of(r);
	const struct fleet_table *t = table_of(r);

	while (!r->ended) {
		const struct fleet_host *host = fleet_list_host(t, w->host);

		if (host && host->number != w->host)
			move_to(w, host->number);
		if (!host || is_over(r)) {
			end(r, host != NULL);
			return;
		}
		if (is_whole(r) && r->out.len >= CHUNK_SIZE) {
			send_chunk(r);
			return;
		}
		if (host == t->self) {
			w->parts++;
			gather_here(r);
			return;
		}
		if (fleet_list_misses(&w->list, host->number))
			move_on(w);
		else if (!take_next(r))
			return;
	}
}

void fleet_pages_serve(struct request *r, size_t limit)
{
	struct fleet_pages *w = must_alloc(sizeof(*w));

	pages_of(r)->fleet = w;
	if (!fleet_list_begin(&w->list, r))
		return;
	w->limit = limit;
	w->began_ms = loop_now_ms(r->loop);
	if (ask_place(r, w))
		go_on(r);
}

void fleet_pages_free(struct request *r)
{
	struct fleet_pages *w = fleet_of(r);

	if (!w)
		return;
	fleet_list_end(&w->list);
	free(w);
}
