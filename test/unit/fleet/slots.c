// SPDX-License-Identifier: Apache-2.0
/* Allowances of a tenant: all hosts together stay within its limit, whatever happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/fleet/slots.h"

#define NOW 1000000

static struct slots home_of(uint32_t cap, uint32_t homes)
{
	return (struct slots){
		.cap = cap, .homes = homes, .share = slots_share(cap, homes), .left = cap};
}

static bool take(struct slots *s, bool away)
{
	if (s->used >= slots_allowed(s, away))
		return false;
	slots_use(s, s->used + 1);
	return true;
}

static void put(struct slots *s)
{
	slots_use(s, s->used - 1);
}

static uint32_t due(struct slots *s, uint32_t waiting, uint64_t now)
{
	uint32_t want;

	assert_true(slots_due(s, waiting, now, &want));
	return want;
}

static void home_asks_once_and_serves_from_memory(void **state)
{
	struct slots s = home_of(480, 30);
	uint32_t want;

	assert_false(take(&s, false));
	want = due(&s, true, NOW);
	assert_true(want >= slots_share(480, 30));
	assert_false(take(&s, false)); /* not before it is written */
	slots_written(&s, want, 480 - want, NOW);
	for (int i = 0; i < 10000; i++) { /* creates and ends: no write */
		assert_true(take(&s, false));
		assert_false(slots_due(&s, false, NOW + (uint64_t)i * 50, &want));
		put(&s);
		assert_false(slots_due(&s, false, NOW + (uint64_t)i * 50, &want));
	}
}

static void refused_host_asks_again_after_a_while(void **state)
{
	struct slots s = home_of(50, 3);
	uint32_t want = due(&s, true, NOW);

	assert_true(want > 1);
	slots_written(&s, 0, 0, NOW);
	slots_use(&s, 1);
	assert_false(slots_due(&s, 0, NOW + SLOTS_REFUSED_MS - 1, &want));
	assert_int_equal(due(&s, 0, NOW + SLOTS_REFUSED_MS), slots_share(50, 3));
	slots_written(&s, 0, 0, NOW);
	due(&s, 1, NOW); /* at once for somebody who waits */
}

static void many_slots_are_asked_for_at_once(void **state)
{
	struct slots s = {.cap = 50, .homes = 3, .left = 50};

	assert_int_equal(due(&s, 7, NOW), 7);
	slots_written(&s, 7, 43, NOW);
	slots_use(&s, 5);
	assert_false(slots_due(&s, 2, NOW, &s.want));
	assert_int_equal(due(&s, 3, NOW), 8);
	slots_lost(&s);
	assert_int_equal(due(&s, 9, NOW), 14); /* more than the write whose fate is unknown */
	slots_lost(&s);
	assert_int_equal(due(&s, 99, NOW), 50);
}

static void renewal_changes_nothing(void **state)
{
	struct slots s = home_of(50, 3);
	uint32_t want;

	assert_false(slots_renew(&s, &want));
	due(&s, 1, NOW);
	assert_false(slots_renew(&s, &want)); /* a write is under way */
	slots_written(&s, 15, 35, NOW);
	assert_true(slots_renew(&s, &want));
	assert_int_equal(want, 15);
	assert_int_equal(slots_free(&s), 15);
}

static void idle_slots_are_returned(void **state)
{
	struct slots s = home_of(50, 3);
	uint32_t want = due(&s, true, NOW);

	slots_written(&s, 40, 10, NOW);
	assert_true(take(&s, false));
	assert_false(slots_due(&s, false, NOW + SLOTS_IDLE_MS - 1, &want));
	want = due(&s, false, NOW + SLOTS_IDLE_MS);
	assert_in_range(want, slots_share(50, 3), 39);
	assert_int_equal(slots_free(&s), want - 1); /* returned before it is written */
	slots_written(&s, want, 50 - want, NOW + SLOTS_IDLE_MS);
	put(&s);
	assert_int_equal(due(&s, false, NOW + SLOTS_IDLE_MS + SLOTS_KEEP_MS), 0);
}

static void yielding_returns_half_of_the_spare_or_what_is_needed(void **state)
{
	struct slots s = home_of(50, 3);

	assert_int_equal(slots_yield(&s, 1), 0);
	due(&s, 1, NOW);
	assert_int_equal(slots_yield(&s, 1), 0); /* a write is under way */
	slots_written(&s, 8, 0, NOW);
	assert_true(take(&s, false));
	assert_int_equal(slots_yield(&s, 1), 4);
	assert_int_equal(slots_free(&s), 3);
	assert_int_equal(slots_yield(&s, 9), 3);
	assert_int_equal(slots_yield(&s, 9), 0);
	assert_int_equal(s.held, 1);
}

static void lost_answer_is_written_again(void **state)
{
	struct slots s = home_of(50, 3);
	const uint32_t want = due(&s, true, NOW);

	slots_lost(&s);
	assert_false(take(&s, false));
	assert_int_equal(due(&s, false, NOW), want);
	slots_written(&s, want, 50 - want, NOW);
	assert_true(take(&s, false));
}

static void lapsed_lease_takes_all_slots(void **state)
{
	struct slots s = home_of(50, 3);
	uint32_t want = due(&s, true, NOW);

	slots_written(&s, want, 50 - want, NOW);
	assert_true(take(&s, false));
	want = slots_share(50, 3) + 5;
	slots_lapsed(&s);
	slots_written(&s, want, 0, NOW); /* of the lease before: too late */
	assert_int_equal(slots_free(&s), 0);
	assert_false(take(&s, false));
	assert_true(due(&s, false, NOW) > 1); /* its sandbox needs a slot again */
}

static void grants_keep_the_sum(void **state)
{
	assert_int_equal(slots_grant(50, 40, 5, 20), 10);
	assert_int_equal(slots_grant(50, 40, 5, 3), 3);
	assert_int_equal(slots_grant(50, 50, 0, 3), 0);
	assert_int_equal(slots_grant(10, 40, 5, 20), 5); /* the limit was lowered: nothing more */
	assert_int_equal(slots_grant(10, 40, 5, 2), 2);
	assert_int_equal(slots_grant(UINT32_MAX, 1, 0, UINT32_MAX), UINT32_MAX - 1);
}

static void overdraft_is_bounded(void **state)
{
	struct slots s = home_of(50, 3);

	for (uint32_t i = 0; i < slots_overdraft(50, 3); i++)
		assert_true(take(&s, true));
	assert_false(take(&s, true));
	s.share = 0; /* not a home */
	assert_int_equal(slots_allowed(&s, true), 0);
	assert_int_equal(slots_overdraft(50, 3), 4);
	assert_int_equal(slots_overdraft(1, 3), 1);
	assert_int_equal(slots_overdraft(500, 31), 4);
}

/* --- random histories ----------------------------------------------------------------------- */

#define HOSTS 12
#define STEPS 4000

struct world {
	uint32_t cap, homes, record[HOSTS], want[HOSTS];
	struct slots s[HOSTS];
	bool away;
	uint64_t now, random;
};

static uint32_t draw(struct world *w, uint32_t n)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((w->random >> 33) % n);
}

static void apply(struct world *w, uint32_t i)
{
	uint32_t others = 0;

	for (uint32_t k = 0; k < HOSTS; k++)
		others += k == i ? 0 : w->record[k];
	w->record[i] = slots_grant(w->cap, others, w->record[i], w->want[i]);
	assert_true(others + w->record[i] <= w->cap);
	if (draw(w, 10) == 0)
		slots_lost(&w->s[i]);
	else
		slots_written(&w->s[i], w->record[i], w->cap - others - w->record[i], w->now);
}

static void lapse(struct world *w, uint32_t i)
{
	while (w->s[i].used) /* its sandboxes end with it */
		put(&w->s[i]);
	slots_lapsed(&w->s[i]);
	w->record[i] = 0;
}

static void step(struct world *w)
{
	const uint32_t i = draw(w, HOSTS), what = draw(w, 100);
	struct slots *s = &w->s[i];

	w->now += draw(w, 2000);
	if (what < 40)
		take(s, w->away);
	else if (what < 65 && s->used)
		put(s);
	else if (what < 66 && !w->away)
		lapse(w, i);
	else if (what < 67)
		w->away = draw(w, 4) == 0;
	else if (what < 70 && !w->away)
		w->record[i] -= slots_yield(s, 1 + draw(w, 3));
	else if (!s->busy)
		slots_due(s, what < 80, w->now, &w->want[i]);
	else if (w->away)
		slots_lost(s);
	else
		apply(w, i);
}

static void check(const struct world *w, bool ever_away)
{
	uint32_t used = 0, records = 0, overdrawn = 0;

	for (uint32_t i = 0; i < HOSTS; i++) {
		const struct slots *s = &w->s[i];

		assert_true(s->held <= w->record[i]);
		used += s->used;
		records += w->record[i];
		overdrawn += s->used > s->held ? s->used - s->held : 0;
	}
	assert_true(records <= w->cap);
	assert_true(overdrawn <= w->homes * slots_overdraft(w->cap, w->homes));
	assert_true(used <= w->cap + overdrawn);
	if (!ever_away)
		assert_true(used <= w->cap);
}

static void sum_never_passes_the_limit(void **state)
{
	static const uint32_t caps[] = {1, 3, 10, 50, 160};

	for (uint64_t seed = 0; seed < 10; seed++) {
		struct world w = {.cap = caps[seed % 5], .homes = 3, .now = NOW, .random = seed};
		bool ever_away = false;

		for (uint32_t i = 0; i < HOSTS; i++) {
			w.s[i] = home_of(w.cap, w.homes);
			w.s[i].share = i < w.homes ? w.s[i].share : 0;
		}
		for (int i = 0; i < STEPS; i++) {
			step(&w);
			if (i < STEPS / 2) /* the database stays */
				w.away = false;
			ever_away |= w.away;
			check(&w, ever_away);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(home_asks_once_and_serves_from_memory),
		cmocka_unit_test(refused_host_asks_again_after_a_while),
		cmocka_unit_test(idle_slots_are_returned),
		cmocka_unit_test(many_slots_are_asked_for_at_once),
		cmocka_unit_test(renewal_changes_nothing),
		cmocka_unit_test(yielding_returns_half_of_the_spare_or_what_is_needed),
		cmocka_unit_test(lost_answer_is_written_again),
		cmocka_unit_test(lapsed_lease_takes_all_slots),
		cmocka_unit_test(grants_keep_the_sum),
		cmocka_unit_test(overdraft_is_bounded),
		cmocka_unit_test(sum_never_passes_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
