// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/platform.h"
#include "vmm/dev/generation.h"

#define PORT  PLATFORM_GENERATION_PORT
#define WORDS (PLATFORM_GENERATION_BYTES / 4)

struct world {
	struct bus bus;
	struct generation g;
	unsigned heard;
};

static void on_unique(void *arg, unsigned who)
{
	((struct world *)arg)->heard |= who;
}

static void make(struct world *w)
{
	struct err e = {0};

	*w = (struct world){0};
	assert_int_equal(generation_add(&w->g, &w->bus, on_unique, w, &e), 0);
}

static uint32_t in(struct world *w, uint16_t port)
{
	uint32_t v = 0;

	bus_read(&w->bus, BUS_PORT, port, (uint8_t *)&v, 4);
	return v;
}

static void out(struct world *w, uint16_t port, uint8_t v)
{
	bus_write(&w->bus, BUS_PORT, port, &v, 1);
}

static void read_id(struct world *w, uint32_t id[WORDS])
{
	for (unsigned i = 0; i < WORDS; i++)
		id[i] = in(w, (uint16_t)(PORT + PLATFORM_GENERATION_ID + 4 * i));
}

/* Saves `from` and restores it as `to`. Returns whether the state was valid. */
static bool copy(const struct world *from, struct world *to)
{
	uint8_t saved[8];
	struct wire w = wire_on(saved, sizeof(saved)), r;

	generation_save(&from->g, &w);
	r = wire_from(saved, w.pos);
	generation_restore(&to->g, &r);
	return !r.bad && !wire_left(&r);
}

static void test_device_is_found_by_its_magic(void **state)
{
	struct world w;
	uint8_t beyond[4];

	make(&w);
	assert_int_equal(in(&w, PORT), PLATFORM_GENERATION_MAGIC);
	bus_read(&w.bus, BUS_PORT, PORT + PLATFORM_GENERATION_LEN - 1, beyond, 4);
	assert_int_equal(beyond[1] & beyond[2] & beyond[3], 0xff);
}

static void test_each_copy_has_a_new_id(void **state)
{
	uint32_t id[3][WORDS], again[WORDS];
	struct world parent, child;

	make(&parent);
	make(&child);
	read_id(&parent, id[0]);
	assert_true(copy(&parent, &child));
	read_id(&child, id[1]);
	assert_true(copy(&child, &child));
	read_id(&child, id[2]);
	assert_memory_not_equal(id[0], id[1], sizeof(id[0]));
	assert_memory_not_equal(id[1], id[2], sizeof(id[0]));
	read_id(&parent, again);
	assert_memory_equal(id[0], again, sizeof(again));
}

static void test_copy_keeps_the_promises(void **state)
{
	struct world parent, child;

	make(&parent);
	make(&child);
	assert_int_equal(generation_promised(&parent.g), 0);
	out(&parent, PORT, PLATFORM_GENERATION_KERNEL);
	assert_int_equal(parent.heard, PLATFORM_GENERATION_KERNEL);
	assert_true(copy(&parent, &child));
	assert_int_equal(generation_promised(&child.g), PLATFORM_GENERATION_KERNEL);
	assert_int_equal(child.heard, 0);
	out(&parent, PORT, PLATFORM_GENERATION_AGENT);
	assert_true(copy(&parent, &child));
	assert_int_equal(generation_promised(&child.g),
			 PLATFORM_GENERATION_KERNEL | PLATFORM_GENERATION_AGENT);
}

static void test_other_writes_are_ignored(void **state)
{
	uint32_t before[WORDS], after[WORDS];
	struct world w;

	make(&w);
	read_id(&w, before);
	for (unsigned v = 0; v < 256; v++)
		for (uint16_t i = 0; i < PLATFORM_GENERATION_LEN; i++)
			if (i ||
			    (v != PLATFORM_GENERATION_KERNEL && v != PLATFORM_GENERATION_AGENT))
				out(&w, PORT + i, (uint8_t)v);
	assert_int_equal(w.heard, 0);
	assert_int_equal(generation_promised(&w.g), 0);
	read_id(&w, after);
	assert_memory_equal(before, after, sizeof(before));
}

static void test_invalid_saved_state_is_refused(void **state)
{
	struct world w;

	make(&w);
	for (unsigned v = 0; v < 256; v++) {
		uint8_t byte = (uint8_t)v;
		struct wire r = wire_from(&byte, 1), empty = wire_from(&byte, 0);

		generation_restore(&w.g, &r);
		assert_int_equal(r.bad, v > 3);
		assert_true(generation_promised(&w.g) <= 3);
		generation_restore(&w.g, &empty);
		assert_true(empty.bad);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device_is_found_by_its_magic),
		cmocka_unit_test(test_each_copy_has_a_new_id),
		cmocka_unit_test(test_copy_keeps_the_promises),
		cmocka_unit_test(test_other_writes_are_ignored),
		cmocka_unit_test(test_invalid_saved_state_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
