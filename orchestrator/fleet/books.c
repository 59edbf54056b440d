// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/books.h"

#include "base/alloc.h"
#include "base/num.h"

/* --- records -------------------------------------------------------------------------------- */

void books_tidy(struct books *b, uint64_t now_ms)
{
	size_t n = 0;

	if (now_ms < b->soonest_ms)
		return;
	b->total = 0;
	b->soonest_ms = UINT64_MAX;
	for (size_t i = 0; i < b->n; i++) {
		const struct books_record *r = &b->records[i];

		if (now_ms >= r->until_ms)
			continue;
		b->total += r->record;
		b->soonest_ms = min_u64(b->soonest_ms, r->until_ms);
		b->records[n++] = *r;
	}
	b->n = n;
}

static void grow(struct books *b)
{
	const size_t room = 2 * b->room + 4;
	struct books_record *more = must_alloc(room * sizeof(*more));

	if (b->n)
		memcpy(more, b->records, b->n * sizeof(*more));
	free(b->records);
	b->records = more;
	b->room = room;
}

/* Returns the index of the first record whose host has this number or a higher one. */
static size_t find(const struct books *b, uint32_t host)
{
	size_t low = 0, high = b->n;

	while (low < high) {
		const size_t mid = (low + high) / 2;

		if (b->records[mid].host < host)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Returns the host's record, which is empty if it is new or has lapsed. */
static struct books_record *record_of(struct books *b, uint32_t host, uint64_t now_ms)
{
	books_tidy(b, now_ms);
	const size_t at = find(b, host);

	if (at < b->n && b->records[at].host == host)
		return &b->records[at];
	if (b->n == b->room)
		grow(b);
	memmove(&b->records[at + 1], &b->records[at], (b->n - at) * sizeof(*b->records));
	b->n++;
	b->records[at] = (struct books_record){.host = host};
	return &b->records[at];
}

/* Renews the record. Returns false if the host has sent a later message already. */
static bool renew(struct books *b, struct books_record *r, const struct books_said *said,
		  uint64_t now_ms)
{
	if (said->at < r->at) /* the keeper may look at one message twice */
		return false;
	r->at = said->at;
	r->used = said->used;
	r->until_ms = now_ms + BOOKS_LEASE_MS;
	b->soonest_ms = min_u64(b->soonest_ms, r->until_ms);
	return true;
}

static void set(struct books *b, struct books_record *r, uint32_t record)
{
	b->total += (uint64_t)record - r->record;
	r->record = record;
}

void books_note(struct books *b, const struct books_said *said, uint64_t now_ms)
{
	struct books_record *r = record_of(b, said->host, now_ms);

	if (renew(b, r, said, now_ms))
		set(b, r, max_u32(said->held, said->used));
}

uint32_t books_grant(struct books *b, uint32_t cap, bool sure, const struct books_said *said,
		     uint64_t now_ms)
{
	struct books_record *r = record_of(b, said->host, now_ms);
	const uint32_t others = min_u32(b->total - r->record, UINT32_MAX);
	const uint32_t granted = slots_grant(sure ? cap : 0, others, said->held, said->want);

	if (!renew(b, r, said, now_ms))
		return said->held;
	set(b, r, max_u32(granted, said->used)); /* these sandboxes run, whatever the limit is */
	return granted;
}

uint32_t books_left(struct books *b, uint32_t cap, uint64_t now_ms)
{
	books_tidy(b, now_ms);
	return cap - min_u32(b->total, cap);
}

static uint32_t spare(const struct books_record *r)
{
	return r->record - min_u32(r->used, r->record);
}

size_t books_spare(struct books *b, uint32_t host, uint64_t now_ms,
		   uint32_t hosts[static SLOTS_YIELD_HOSTS])
{
	const struct books_record *best[SLOTS_YIELD_HOSTS];
	size_t n = 0;

	books_tidy(b, now_ms);
	for (size_t i = 0; i < b->n; i++) {
		const struct books_record *r = &b->records[i];
		size_t at = n;

		/* Includes hosts that used all of their slots when they last reported: they may
		 * have some to spare by now. */
		if (r->host == host || !r->record)
			continue;
		for (; at && spare(best[at - 1]) < spare(r); at--)
			if (at < SLOTS_YIELD_HOSTS)
				best[at] = best[at - 1];
		if (at < SLOTS_YIELD_HOSTS)
			best[at] = r;
		n = min_u64(n + 1, SLOTS_YIELD_HOSTS);
	}
	for (size_t i = 0; i < n; i++)
		hosts[i] = best[i]->host;
	return n;
}

/* --- keepers -------------------------------------------------------------------------------- */

uint64_t books_keepers(const struct place *hosts)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, of numbers instead of bytes */

	for (uint32_t i = 0; i < min_u32(hosts->n, BOOKS_KEEPERS); i++)
		hash = (hash ^ hosts->peers[i].number) * 0x100000001b3u;
	return hash;
}

uint16_t books_keeper(const struct place *hosts, uint64_t tenant)
{
	const struct place keepers = {.peers = hosts->peers, .n = min_u32(hosts->n, BOOKS_KEEPERS)};
	uint16_t first;

	place_homes(&keepers, tenant, &first, 1);
	return first;
}

bool books_agreed(const struct books_trust *t, uint64_t now_ms)
{
	const uint32_t n = min_u32(t->n, BOOKS_KEEPERS);
	uint32_t agree = 0;

	for (uint32_t i = 0; i < n; i++)
		agree += i == t->self ||
			 (t->peers[i].agreed_ms && now_ms - t->peers[i].agreed_ms < BOOKS_AGREE_MS);
	return 2 * agree > n;
}

static bool all_reported(const struct books_trust *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (i != t->self && !t->peers[i].reported)
			return false;
	return true;
}

bool books_sure(const struct books_trust *t, uint64_t now_ms)
{
	if (!books_agreed(t, now_ms))
		return false;
	/* The previous keeper may still grant slots, until it notices that the hosts have stopped
	 * agreeing. */
	if (t->changed_ms && now_ms - t->changed_ms < BOOKS_AGREE_MS)
		return false;
	return all_reported(t) || now_ms - t->begun_ms >= BOOKS_LEASE_MS;
}

void books_begin(struct books_trust *t, bool changed, uint64_t now_ms)
{
	t->begun_ms = now_ms;
	if (changed)
		t->changed_ms = now_ms;
	for (uint32_t i = 0; i < t->n; i++) {
		t->peers[i].reported = false;
		if (changed)
			t->peers[i].agreed_ms = 0;
	}
}
