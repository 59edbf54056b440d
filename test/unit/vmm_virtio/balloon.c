// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "driver.h"

#define MIB	  (1u << 20)
#define REPORTING 2
#define REPORTS	  (1ull << 5)

struct world {
	struct drv v;
	unsigned calls;
	uint64_t bytes, largest;
	uint8_t given[64]; /* how often each MiB was returned */
	int result;
};

static int discard(void *arg, uint64_t offset, uint64_t bytes)
{
	struct world *w = arg;

	assert_true(offset + bytes <= w->v.mem.bytes);
	w->calls++;
	w->bytes += bytes;
	if (bytes > w->largest)
		w->largest = bytes;
	for (uint64_t at = offset; at < offset + bytes; at += MIB)
		w->given[at / MIB]++;
	return w->result;
}

static void start(struct world *w)
{
	struct vio_dev *dev;

	memset(w, 0, sizeof(*w));
	drv_init(&w->v, 64 * MIB);
	assert_int_equal(vio_balloon_new(&dev, &w->v.mem, w->v.loop, discard, w, NULL), 0);
	drv_attach(&w->v, dev);
	drv_start(&w->v, REPORTS, 64);
	assert_true(w->v.features & REPORTS);
	drv_interrupts(&w->v);
}

static void test_reported_pages_are_returned_to_the_host(void **state)
{
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w);
	drv_add(&w.v, REPORTING,
		(struct drv_buf[]){{8 * MIB, 2 * MIB, true}, {20 * MIB, 4 * MIB, true}}, 2);
	drv_kick(&w.v, REPORTING);
	drv_run(&w.v);
	assert_true(drv_used(&w.v, REPORTING, &head, &len));
	assert_int_equal(len, 0);
	assert_int_equal(w.bytes, 6 * MIB);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(w.given[i], (i >= 8 && i < 10) || (i >= 20 && i < 24));
	assert_true(drv_interrupts(&w.v));
	drv_fini(&w.v);
}

/*
 * The report has more pages than the device frees in one turn of the event loop: other devices get
 * their turns in between, and the driver gets its answer after the last page.
 */
static void test_long_report_takes_several_turns(void **state)
{
	struct world w;
	unsigned turns = 0;
	uint16_t head;
	uint32_t len;

	start(&w);
	drv_add(&w.v, REPORTING,
		(struct drv_buf[]){{8 * MIB, 20 * MIB, true}, {28 * MIB, 20 * MIB, true}}, 2);
	drv_add(&w.v, REPORTING, &(struct drv_buf){60 * MIB, MIB, true}, 1);
	drv_kick(&w.v, REPORTING);
	for (; !drv_used(&w.v, REPORTING, &head, &len); turns++)
		assert_true(event_loop_turn(w.v.loop, 0) > 0);
	assert_true(turns >= 20);
	assert_true(w.largest <= 2 * MIB);
	drv_run(&w.v);
	assert_true(drv_used(&w.v, REPORTING, &head, &len));
	assert_int_equal(w.bytes, 41 * MIB);
	for (unsigned i = 8; i < 48; i++)
		assert_int_equal(w.given[i], 1);
	drv_fini(&w.v);
}

/* A report in progress when the VM is paused is started again when it is resumed. */
static void test_report_interrupted_by_a_drain_starts_again(void **state)
{
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w);
	drv_add(&w.v, REPORTING, &(struct drv_buf){8 * MIB, 40 * MIB, true}, 1);
	drv_kick(&w.v, REPORTING);
	assert_true(event_loop_turn(w.v.loop, 0) > 0);
	assert_true(w.bytes && w.bytes < 40 * MIB);
	assert_true(vio_mmio_drain(w.v.mmio));
	assert_int_equal(w.v.dev->vq[REPORTING].next_avail, 0);
	w.bytes = 0;
	drv_run(&w.v);
	assert_int_equal(w.bytes, 0);
	assert_false(drv_used(&w.v, REPORTING, &head, &len));
	vio_mmio_continue(w.v.mmio);
	drv_run(&w.v);
	assert_int_equal(w.bytes, 40 * MIB);
	assert_true(drv_used(&w.v, REPORTING, &head, &len));
	drv_fini(&w.v);
}

static void test_reset_cancels_a_long_report(void **state)
{
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w);
	drv_add(&w.v, REPORTING, &(struct drv_buf){8 * MIB, 40 * MIB, true}, 1);
	drv_kick(&w.v, REPORTING);
	assert_true(event_loop_turn(w.v.loop, 0) > 0);
	drv_start(&w.v, REPORTS, 64);
	w.bytes = 0;
	drv_run(&w.v);
	assert_int_equal(w.bytes, 0);
	drv_add(&w.v, REPORTING, &(struct drv_buf){8 * MIB, MIB, true}, 1);
	drv_kick(&w.v, REPORTING);
	drv_run(&w.v);
	assert_int_equal(w.bytes, MIB);
	assert_true(drv_used(&w.v, REPORTING, &head, &len));
	drv_fini(&w.v);
}

/* Inflating is accepted and does nothing. A report is answered even if the host fails to free the
 * pages. */
static void test_inflate_and_failed_report_are_answered(void **state)
{
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w);
	for (unsigned q = 0; q < 2; q++) {
		drv_add(&w.v, q, &(struct drv_buf){MIB, 4096, false}, 1);
		drv_kick(&w.v, q);
		drv_run(&w.v);
		assert_true(drv_used(&w.v, q, &head, &len));
	}
	assert_int_equal(w.calls, 0);
	w.result = -ENOMEM;
	drv_add(&w.v, REPORTING, &(struct drv_buf){MIB, MIB, true}, 1);
	drv_kick(&w.v, REPORTING);
	drv_run(&w.v);
	assert_true(drv_used(&w.v, REPORTING, &head, &len));
	assert_int_equal(w.calls, 1);
	drv_fini(&w.v);
}

static void test_report_in_a_readable_buffer_is_a_fault(void **state)
{
	struct world w;

	start(&w);
	drv_add(&w.v, REPORTING, &(struct drv_buf){MIB, MIB, false}, 1);
	drv_kick(&w.v, REPORTING);
	drv_run(&w.v);
	assert_true(drv_read(&w.v, DRV_STATUS) & DRV_NEEDS_RESET);
	assert_int_equal(w.calls, 0);
	drv_fini(&w.v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reported_pages_are_returned_to_the_host),
		cmocka_unit_test(test_long_report_takes_several_turns),
		cmocka_unit_test(test_report_interrupted_by_a_drain_starts_again),
		cmocka_unit_test(test_reset_cancels_a_long_report),
		cmocka_unit_test(test_inflate_and_failed_report_are_answered),
		cmocka_unit_test(test_report_in_a_readable_buffer_is_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
