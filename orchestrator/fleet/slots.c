// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/slots.h"

#include "base/num.h"

uint32_t slots_free(const struct slots *s)
{
	return s->held > s->used ? s->held - s->used : 0;
}

static bool tight(const struct slots *s)
{
	return s->left < s->homes;
}

/* Returns how many slots this host asks for beyond those that it needs. A home of the tenant asks
 * for a fair part of what is left: with more, the homes would keep taking slots from each other.
 * Any other host asks for none. */
static uint32_t block(const struct slots *s)
{
	return tight(s) || !s->share ? 0 : min_u32(s->left / s->homes, SLOTS_BLOCK_MAX);
}

uint32_t slots_overdraft(uint32_t cap, uint32_t homes)
{
	return (cap + 5 * homes - 1) / (5 * homes);
}

uint32_t slots_share(uint32_t cap, uint32_t homes)
{
	return min_u32(max_u32(9ull * cap / 10 / homes, 1), cap);
}

uint32_t slots_allowed(const struct slots *s, bool away)
{
	const uint32_t over = away && s->share ? slots_overdraft(s->cap, s->homes) : 0;

	return (uint32_t)min_u64((uint64_t)s->held + over, UINT32_MAX);
}

void slots_use(struct slots *s, uint32_t used)
{
	s->used = used;
	s->low = min_u32(s->low, slots_free(s));
}

/* Starts again to watch for slots that nobody needs. */
static void watch(struct slots *s, uint64_t now_ms)
{
	s->low = slots_free(s);
	s->low_ms = now_ms;
}

static bool write_record(struct slots *s, uint32_t value, uint32_t *want)
{
	s->busy = true;
	*want = s->want = value;
	/* At once, since others may take the slots as soon as the record is written. */
	if (value < s->held)
		s->held = value;
	return true;
}

static bool needs_more(const struct slots *s, uint32_t waiting, uint64_t now_ms)
{
	if (waiting)
		return s->used + (uint64_t)waiting > s->held;
	if (now_ms < s->refused_ms)
		return false;
	if (s->used > s->held)
		return true;
	return s->used && slots_free(s) <= block(s) / 4 && block(s);
}

static uint32_t most_wanted(const struct slots *s, uint32_t waiting)
{
	const uint64_t more = max_u32(max_u32(block(s), waiting), 1);

	return max_u32(min_u32(s->used + more, s->cap), s->share);
}

/* Returns what is left of the allowance without the slots that nobody needed for a while. */
static uint32_t kept(const struct slots *s, uint64_t now_ms)
{
	const uint32_t needed = s->held - min_u32(s->low, slots_free(s));

	if (!s->used)
		return now_ms - s->used_ms < SLOTS_KEEP_MS ? s->share : 0;
	return max_u32(needed + block(s), s->share);
}

bool slots_due(struct slots *s, uint32_t waiting, uint64_t now_ms, uint32_t *want)
{
	if (s->busy)
		return false;
	if (s->want != s->held) /* the last write's fate is unknown */
		return write_record(s, waiting ? most_wanted(s, waiting) : s->want, want);
	if (s->used)
		s->used_ms = now_ms;
	if (needs_more(s, waiting, now_ms))
		return write_record(s, most_wanted(s, waiting), want);
	if (now_ms - s->low_ms < (tight(s) ? SLOTS_IDLE_TIGHT_MS : SLOTS_IDLE_MS))
		return false;
	const uint32_t keep = kept(s, now_ms);

	watch(s, now_ms);
	return keep < s->held && write_record(s, keep, want);
}

bool slots_renew(struct slots *s, uint32_t *want)
{
	return !s->busy && (s->held || s->used) && write_record(s, s->want, want);
}

uint32_t slots_yield(struct slots *s, uint32_t needed)
{
	const uint32_t spare = slots_free(s);

	if (s->busy ||
	    s->want != s->held) /* the keeper may read the write and this answer in any order */
		return 0;
	const uint32_t yielded = min_u32(max_u32((spare + 1) / 2, needed), spare);

	s->held = s->want = s->held - yielded;
	return yielded;
}

void slots_written(struct slots *s, uint32_t record, uint32_t left, uint64_t now_ms)
{
	if (!s->busy) /* the answer to a write before slots_lapsed */
		return;
	if (record < s->want)
		s->refused_ms = now_ms + SLOTS_REFUSED_MS;
	s->busy = false;
	s->held = s->want = record;
	s->left = left;
	watch(s, now_ms);
}

void slots_lost(struct slots *s)
{
	s->busy = false;
}

void slots_lapsed(struct slots *s)
{
	s->held = s->want = s->low = 0;
	s->busy = false;
}

uint32_t slots_grant(uint32_t cap, uint32_t others, uint32_t record, uint32_t want)
{
	const uint32_t room = cap > others ? cap - others : 0;

	return want <= record ? want : max_u32(min_u32(want, room), record);
}
