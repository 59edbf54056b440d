// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/virtio/queue.h"

#define SIZE	  8
#define DESC_AT	  0x1000u
#define AVAIL_AT  0x2000u
#define USED_AT	  0x3000u
#define TABLE_AT  0x4000u
#define DATA_AT	  0x8000u
#define MEM_BYTES 0x10000u

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};
enum { NEXT = 1, WRITE = 2, INDIRECT = 4 };

struct world {
	struct gm mem;
	struct vq q;
	struct vq_chain c;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->mem = (struct gm){.base = aligned_alloc(4096, MEM_BYTES), .bytes = MEM_BYTES};
	memset(w->mem.base, 0, MEM_BYTES);
	w->q = (struct vq){.mem = &w->mem,
			   .size_max = SIZE,
			   .size = SIZE,
			   .desc_addr = DESC_AT,
			   .avail_addr = AVAIL_AT,
			   .used_addr = USED_AT,
			   .indirect = true};
	assert_int_equal(vq_enable(&w->q), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	free(w->mem.base);
	free(w);
	return 0;
}

static void set_desc(struct world *w, uint32_t table, uint16_t i, struct desc d)
{
	memcpy(w->mem.base + table + 16u * i, &d, sizeof(d));
}

static uint16_t *half(struct world *w, uint32_t addr)
{
	return (uint16_t *)(void *)(w->mem.base + addr);
}

static void offer(struct world *w, uint16_t head)
{
	uint16_t *idx = half(w, AVAIL_AT + 2);

	*half(w, AVAIL_AT + 4 + 2u * (*idx % SIZE)) = head;
	(*idx)++;
}

static void assert_fault(struct world *w)
{
	uint16_t before = w->q.next_avail;

	w->q.fault = NULL;
	assert_int_equal(vq_pop(&w->q, &w->c), -EPROTO);
	assert_non_null(w->q.fault);
	assert_int_equal(w->q.next_avail, before);
}

static void test_chain_is_returned_as_host_addresses(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 3, (struct desc){DATA_AT, 16, NEXT, 5});
	set_desc(w, DESC_AT, 5, (struct desc){DATA_AT + 64, 8, NEXT, 1});
	set_desc(w, DESC_AT, 1, (struct desc){DATA_AT + 128, 32, WRITE, 7});
	offer(w, 3);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_int_equal(w->c.head, 3);
	assert_int_equal(w->c.nout, 2);
	assert_int_equal(w->c.nin, 1);
	assert_int_equal(w->c.out_bytes, 24);
	assert_int_equal(w->c.in_bytes, 32);
	assert_ptr_equal(vq_out(&w->c)[1].iov_base, w->mem.base + DATA_AT + 64);
	assert_ptr_equal(vq_in(&w->c)[0].iov_base, w->mem.base + DATA_AT + 128);
	assert_int_equal(vq_pop(&w->q, &w->c), 0);
}

static void test_empty_queue_returns_no_chain(void **state)
{
	struct world *w = *state;

	assert_int_equal(vq_pop(&w->q, &w->c), 0);
	w->q.ready = false;
	offer(w, 0);
	assert_int_equal(vq_pop(&w->q, &w->c), 0);
}

static void test_looped_chain_is_a_fault(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 16, NEXT, 1});
	set_desc(w, DESC_AT, 1, (struct desc){DATA_AT, 16, NEXT, 0});
	offer(w, 0);
	assert_fault(w);
	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 0, NEXT, 0}); /* empty, links to itself */
	assert_fault(w);
}

static void test_indices_out_of_range_are_faults(void **state)
{
	struct world *w = *state;

	offer(w, SIZE);
	assert_fault(w);
	*half(w, AVAIL_AT + 4) = 0;
	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 16, NEXT, SIZE});
	assert_fault(w);
	*half(w, AVAIL_AT + 2) = SIZE + 1; /* available index too far ahead */
	assert_fault(w);
}

static void test_buffers_outside_of_memory_are_faults(void **state)
{
	static const struct desc bad[] = {
		{MEM_BYTES, 1, 0, 0},	    {MEM_BYTES - 1, 2, 0, 0},	 {UINT64_MAX, 1, 0, 0},
		{UINT64_MAX - 7, 16, 0, 0}, {DATA_AT, UINT32_MAX, 0, 0}, {1ull << 63, 16, WRITE, 0},
	};
	struct world *w = *state;

	offer(w, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set_desc(w, DESC_AT, 0, bad[i]);
		assert_fault(w);
	}
	set_desc(w, DESC_AT, 0, (struct desc){MEM_BYTES - 1, 1, 0, 0});
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
}

static void test_readable_after_writable_is_a_fault(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 16, NEXT | WRITE, 1});
	set_desc(w, DESC_AT, 1, (struct desc){DATA_AT, 16, 0, 0});
	offer(w, 0);
	assert_fault(w);
}

static void test_empty_descriptors_are_left_out(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 0, (struct desc){UINT64_MAX, 0, NEXT, 1});
	set_desc(w, DESC_AT, 1, (struct desc){DATA_AT, 4, WRITE, 0});
	offer(w, 0);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_int_equal(w->c.nout, 0);
	assert_int_equal(w->c.nin, 1);
}

static void test_indirect_table_is_followed(void **state)
{
	struct world *w = *state;

	for (uint16_t i = 0; i < VQ_SIZE_MAX - 1; i++)
		set_desc(w, TABLE_AT, i, (struct desc){DATA_AT + i, 1, NEXT, (uint16_t)(i + 1)});
	set_desc(w, TABLE_AT, VQ_SIZE_MAX - 2, (struct desc){DATA_AT, 1, WRITE, 0});
	set_desc(w, DESC_AT, 2, (struct desc){TABLE_AT, 16 * (VQ_SIZE_MAX - 1), INDIRECT, 0});
	offer(w, 2);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_int_equal(w->c.nout, VQ_SIZE_MAX - 2);
	assert_int_equal(w->c.nin, 1);
	assert_int_equal(w->c.head, 2);
}

static void test_invalid_indirect_table_is_a_fault(void **state)
{
	static const struct desc bad[] = {
		{TABLE_AT, 0, INDIRECT, 0},	    {TABLE_AT, 17, INDIRECT, 0},
		{TABLE_AT, 1u << 30, INDIRECT, 0},  {TABLE_AT, 16, INDIRECT | NEXT, 1},
		{TABLE_AT + 4, 16, INDIRECT, 0},    {MEM_BYTES, 16, INDIRECT, 0},
		{UINT64_MAX - 15, 16, INDIRECT, 0}, {TABLE_AT, 0xfffffff0u, INDIRECT, 0},
	};
	struct world *w = *state;

	set_desc(w, TABLE_AT, 0, (struct desc){DATA_AT, 1, 0, 0});
	offer(w, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set_desc(w, DESC_AT, 0, bad[i]);
		assert_fault(w);
	}
	set_desc(w, DESC_AT, 0, (struct desc){TABLE_AT, 16, INDIRECT, 0});
	set_desc(w, TABLE_AT, 0, (struct desc){TABLE_AT, 16, INDIRECT, 0}); /* nested */
	assert_fault(w);
	set_desc(w, TABLE_AT, 0, (struct desc){DATA_AT, 1, NEXT, 1}); /* past the table */
	assert_fault(w);
	set_desc(w, TABLE_AT, 0, (struct desc){DATA_AT, 1, 0, 0});
	w->q.indirect = false;
	assert_fault(w);
	w->q.indirect = true;
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
}

static void test_indices_wrap_at_65536(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 4, WRITE, 0});
	for (unsigned i = 0; i < 65536 + 2 * SIZE + 3; i++) {
		offer(w, 0);
		assert_int_equal(vq_pop(&w->q, &w->c), 1);
		vq_push(&w->q, w->c.head, i);
		uint32_t *slot = (uint32_t *)(void *)(w->mem.base + USED_AT + 4 + 8 * (i % SIZE));
		assert_int_equal(slot[1], i);
		assert_int_equal(*half(w, USED_AT + 2), (uint16_t)(i + 1));
	}
	assert_int_equal(vq_pop(&w->q, &w->c), 0);
}

static void test_driver_flag_suppresses_interrupts_without_event_index(void **state)
{
	struct world *w = *state;

	vq_push(&w->q, 0, 0);
	assert_true(vq_should_notify(&w->q));
	*half(w, AVAIL_AT) = 1; /* VIRTQ_AVAIL_F_NO_INTERRUPT */
	vq_push(&w->q, 0, 0);
	assert_false(vq_should_notify(&w->q));
}

static void test_interrupt_is_due_when_the_event_index_is_passed(void **state)
{
	struct world *w = *state;
	uint16_t *used_event = half(w, AVAIL_AT + 4 + 2 * SIZE);

	w->q.event_idx = true;
	w->q.next_used = w->q.signalled_used = 65533;
	w->q.signalled_valid = false; /* as when a VM resumes */
	vq_push(&w->q, 0, 0);
	assert_true(vq_should_notify(&w->q)); /* always notifies then */
	*used_event = 1;
	vq_push(&w->q, 0, 0); /* writes slot 65534 */
	assert_false(vq_should_notify(&w->q));
	vq_push(&w->q, 0, 0); /* 65535 */
	vq_push(&w->q, 0, 0); /* 0 */
	assert_false(vq_should_notify(&w->q));
	vq_push(&w->q, 0, 0); /* 1: the one in used_event */
	assert_true(vq_should_notify(&w->q));
	vq_push(&w->q, 0, 0);
	assert_false(vq_should_notify(&w->q));
}

static void test_enabled_notification_asks_for_the_next_kick(void **state)
{
	struct world *w = *state;
	uint16_t *avail_event = half(w, USED_AT + 4 + 8 * SIZE);

	w->q.event_idx = true;
	set_desc(w, DESC_AT, 0, (struct desc){DATA_AT, 4, WRITE, 0});
	offer(w, 0);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_false(vq_enable_notification(&w->q));
	assert_int_equal(*avail_event, 1);
	offer(w, 0);
	assert_true(vq_enable_notification(&w->q));
}

static void test_unpopped_chain_is_popped_again(void **state)
{
	struct world *w = *state;

	set_desc(w, DESC_AT, 4, (struct desc){DATA_AT, 4, WRITE, 0});
	offer(w, 4);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	vq_unpop(&w->q);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_int_equal(w->c.head, 4);
}

static void assert_not_enabled(struct world *w, uint16_t size, uint64_t desc, uint64_t avail,
			       uint64_t used)
{
	vq_reset(&w->q);
	w->q.size = size;
	w->q.desc_addr = desc;
	w->q.avail_addr = avail;
	w->q.used_addr = used;
	assert_int_equal(vq_enable(&w->q), -EPROTO);
	assert_false(w->q.ready);
}

static const char *report_of(const struct vq *q)
{
	static char text[1024];
	struct report r = report_on(text, sizeof(text));

	vq_inspect(q, &r);
	return text;
}

static void test_report_shows_the_indices_of_both_sides(void **state)
{
	struct world *w = *state;

	w->q.event_idx = true;
	*half(w, AVAIL_AT + 4 + 2 * SIZE) = 7; /* used_event */
	*half(w, USED_AT + 4 + 8 * SIZE) = 9;  /* avail_event */
	for (uint16_t i = 0; i < 3; i++) {
		set_desc(w, DESC_AT, i, (struct desc){DATA_AT, 16, 0, 0});
		offer(w, i);
	}
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	assert_int_equal(vq_pop(&w->q, &w->c), 1);
	vq_push(&w->q, w->c.head, 0);
	assert_string_equal(
		report_of(&w->q),
		"size 8, avail 3, taken 2 (1 wait), used 1, 1 in flight, signalled up "
		"to 0 (not since it resumed); interrupt wanted after 7, kick after 9\n");
	w->q.event_idx = false;
	w->q.signalled_valid = true;
	*half(w, AVAIL_AT) = 1;
	assert_string_equal(report_of(&w->q), "size 8, avail 3, taken 2 (1 wait), used 1, 1 in "
					      "flight, signalled up to 0; flags 1\n");
}

/* The report shows an invalid index that the guest wrote, but uses it for nothing. */
static void test_report_on_invalid_indices_is_safe(void **state)
{
	struct world *w = *state;

	*half(w, AVAIL_AT + 2) = 5000;
	*half(w, USED_AT + 2) = 77;
	assert_non_null(strstr(report_of(&w->q), "avail 5000, taken 0 (5000 wait: more than there "
						 "can be), used 0 (in memory 77), "));
	vq_reset(&w->q);
	assert_string_equal(report_of(&w->q), "not ready, size 8\n");
}

static void test_queue_with_invalid_address_or_size_is_not_enabled(void **state)
{
	struct world *w = *state;

	assert_not_enabled(w, 0, DESC_AT, AVAIL_AT, USED_AT);
	assert_not_enabled(w, 3, DESC_AT, AVAIL_AT, USED_AT);
	assert_not_enabled(w, 2 * SIZE, DESC_AT, AVAIL_AT, USED_AT);
	assert_not_enabled(w, SIZE, DESC_AT + 8, AVAIL_AT, USED_AT);
	assert_not_enabled(w, SIZE, DESC_AT, AVAIL_AT + 1, USED_AT);
	assert_not_enabled(w, SIZE, DESC_AT, AVAIL_AT, USED_AT + 2);
	assert_not_enabled(w, SIZE, MEM_BYTES - 16, AVAIL_AT, USED_AT);
	assert_not_enabled(w, SIZE, DESC_AT, MEM_BYTES - 4, USED_AT);
	assert_not_enabled(w, SIZE, DESC_AT, AVAIL_AT,
			   MEM_BYTES - 4 - 8 * SIZE); /* no room for avail_event */
	assert_not_enabled(w, SIZE, UINT64_MAX - 15, AVAIL_AT, USED_AT);
}

static void test_saved_fields_are_restored_and_checked(void **state)
{
	struct world *w = *state;
	uint8_t buf[128];
	struct wire out = wire_on(buf, sizeof(buf));
	struct vq copy = {.mem = &w->mem, .size_max = SIZE};

	w->q.next_avail = 7;
	w->q.next_used = 5;
	vq_save(&w->q, &out);
	assert_false(out.bad);
	for (size_t cut = 0; cut < out.pos; cut++) {
		struct wire in = wire_from(buf, cut);

		assert_true(vq_restore(&copy, &in, NULL) < 0);
	}
	struct wire in = wire_from(buf, out.pos);
	assert_int_equal(vq_restore(&copy, &in, NULL), 0);
	assert_true(copy.ready);
	assert_int_equal(copy.next_avail, 7);
	assert_ptr_equal(copy.desc, w->q.desc);

	struct err e = {0};
	buf[0] = 5; /* size */
	in = wire_from(buf, out.pos);
	assert_int_equal(vq_restore(&copy, &in, &e), -EINVAL);
	assert_non_null(strstr(e.text, "size"));
	buf[0] = SIZE;
	buf[out.pos - 1] = 0x80; /* next_used */
	in = wire_from(buf, out.pos);
	assert_int_equal(vq_restore(&copy, &in, &e), -EINVAL);
}

static void test_iovecs_are_copied_and_cut_at_any_offset(void **state)
{
	uint8_t a[3], b[1], c[4], out[8];
	struct iovec iov[] = {{a, 3}, {b, 1}, {c, 4}}, cut[3];

	for (size_t from = 0; from <= 8; from++) {
		for (size_t len = 0; len <= 8; len++) {
			size_t want = len < 8 - from ? len : 8 - from, sum = 0;

			iov_zero(iov, 3, 0, 8);
			assert_int_equal(iov_write(iov, 3, from, "abcdefgh", len), want);
			assert_int_equal(iov_read(iov, 3, from, out, len), want);
			assert_memory_equal(out, "abcdefgh", want);
			unsigned n = iov_slice(iov, 3, from, len, cut);
			for (unsigned i = 0; i < n; i++)
				sum += cut[i].iov_len;
			assert_int_equal(sum, want);
			if (want)
				assert_int_equal(*(char *)cut[0].iov_base, 'a');
			assert_int_equal(iov_read(iov, 3, 0, out, from), from);
			for (size_t i = 0; i < from; i++)
				assert_int_equal(out[i], 0);
		}
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_chain_is_returned_as_host_addresses),
		T(test_empty_queue_returns_no_chain),
		T(test_looped_chain_is_a_fault),
		T(test_indices_out_of_range_are_faults),
		T(test_buffers_outside_of_memory_are_faults),
		T(test_readable_after_writable_is_a_fault),
		T(test_empty_descriptors_are_left_out),
		T(test_indirect_table_is_followed),
		T(test_invalid_indirect_table_is_a_fault),
		T(test_indices_wrap_at_65536),
		T(test_driver_flag_suppresses_interrupts_without_event_index),
		T(test_interrupt_is_due_when_the_event_index_is_passed),
		T(test_enabled_notification_asks_for_the_next_kick),
		T(test_unpopped_chain_is_popped_again),
		T(test_report_shows_the_indices_of_both_sides),
		T(test_report_on_invalid_indices_is_safe),
		T(test_queue_with_invalid_address_or_size_is_not_enabled),
		T(test_saved_fields_are_restored_and_checked),
		T(test_iovecs_are_copied_and_cut_at_any_offset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
