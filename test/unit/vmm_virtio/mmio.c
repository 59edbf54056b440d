// SPDX-License-Identifier: Apache-2.0
/* The transport with the entropy and console devices, tested through its registers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static int setup_rng(void **state)
{
	struct drv *v = malloc(sizeof(*v));
	struct vio_dev *dev;

	drv_init(v, 1 << 20);
	assert_int_equal(vio_rng_new(&dev, &v->mem, v->loop, NULL), 0);
	drv_attach(v, dev);
	*state = v;
	return 0;
}

static int teardown(void **state)
{
	drv_fini(*state);
	free(*state);
	return 0;
}

static void test_identity_registers_are_readable(void **state)
{
	struct drv *v = *state;

	assert_int_equal(drv_read(v, 0x00), 0x74726976);
	assert_int_equal(drv_read(v, 0x04), 2);
	assert_int_equal(drv_read(v, 0x08), 4);
	assert_int_equal(drv_read(v, 0xb0), UINT32_MAX);
	assert_int_equal(drv_read(v, DRV_STATUS), 0);
}

static void test_only_valid_status_changes_are_accepted(void **state)
{
	struct drv *v = *state;
	static const uint32_t wrong[] = {2, 4, 8, 15, 11, 7, 16, 32, 0xffffff00u};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		drv_write(v, DRV_STATUS, 0);
		drv_write(v, DRV_STATUS, wrong[i] & ~128u);
		assert_int_equal(drv_read(v, DRV_STATUS), 0);
	}
	drv_write(v, DRV_STATUS, 1);
	drv_write(v, DRV_STATUS, 15);
	assert_int_equal(drv_read(v, DRV_STATUS), 1);
	drv_write(v, DRV_STATUS, 3);
	drv_write(v, DRV_STATUS, 11); /* VERSION_1 was not accepted */
	assert_int_equal(drv_read(v, DRV_STATUS), 3);
	drv_write(v, DRV_STATUS, 3 | 128);
	assert_int_equal(drv_read(v, DRV_STATUS), 3 | 128);
	drv_write(v, DRV_STATUS, 15);
	assert_int_equal(drv_read(v, DRV_STATUS), 3 | 128);
	drv_write(v, DRV_STATUS, 0);
	assert_int_equal(drv_read(v, DRV_STATUS), 0);
}

static void test_unoffered_feature_is_refused(void **state)
{
	struct drv *v = *state;

	drv_write(v, DRV_STATUS, 1);
	drv_write(v, DRV_STATUS, 3);
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 1);
	drv_write(v, DRV_DRIVER_FEATURES, 1);
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 0);
	drv_write(v, DRV_DRIVER_FEATURES, 1u << 5);
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 2);
	drv_write(v, DRV_DRIVER_FEATURES, UINT32_MAX); /* no such feature word */
	drv_write(v, DRV_STATUS, 11);
	assert_int_equal(drv_read(v, DRV_STATUS), 3);
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 0);
	drv_write(v, DRV_DRIVER_FEATURES, 0);
	drv_write(v, DRV_STATUS, 11);
	assert_int_equal(drv_read(v, DRV_STATUS), 11);
}

static void test_queue_registers_change_only_before_ready(void **state)
{
	struct drv *v = *state;

	drv_write(v, DRV_QUEUE_READY, 1); /* before negotiation */
	assert_int_equal(drv_read(v, DRV_QUEUE_READY), 0);
	drv_negotiate(v, 0);
	drv_setup_queue(v, 0, 8);
	assert_int_equal(drv_read(v, DRV_QUEUE_READY), 1);
	drv_write(v, DRV_QUEUE_NUM, 4); /* while ready */
	drv_write(v, DRV_QUEUE_DESC, 0xdead0000);
	assert_int_equal(v->dev->vq[0].size, 8);
	assert_int_equal(v->dev->vq[0].desc_addr, v->q[0].desc);
	drv_write(v, DRV_QUEUE_SEL, 1);
	assert_int_equal(drv_read(v, DRV_QUEUE_MAX), 0);
	drv_write(v, DRV_QUEUE_NUM, 4);
	drv_write(v, DRV_QUEUE_READY, 1);
	assert_int_equal(drv_read(v, DRV_QUEUE_READY), 0);
	drv_write(v, DRV_QUEUE_SEL, UINT32_MAX);
	drv_write(v, DRV_QUEUE_NUM, 4);
	assert_int_equal(drv_read(v, DRV_QUEUE_MAX), 0);
}

static void test_invalid_queue_requires_a_reset(void **state)
{
	struct drv *v = *state;

	drv_negotiate(v, 0);
	drv_write(v, DRV_QUEUE_NUM, 8);
	drv_write(v, DRV_QUEUE_DESC + 4, 0xffffffff);
	drv_write(v, DRV_QUEUE_READY, 1);
	assert_int_equal(drv_read(v, DRV_QUEUE_READY), 0);
	assert_int_equal(drv_read(v, DRV_STATUS), 11 | DRV_NEEDS_RESET);
	drv_write(v, DRV_STATUS, 15);
	drv_run(v);
	assert_false(v->dev->active);
	drv_start(v, 0, 8);
	assert_true(v->dev->active);
	assert_int_equal(drv_read(v, DRV_STATUS), 15);
}

static void test_invalid_accesses_change_nothing(void **state)
{
	struct drv *v = *state;
	uint8_t data[8] = {1};

	bus_write(&v->bus, BUS_MMIO, DRV_ADDR + DRV_STATUS, data, 1);
	bus_write(&v->bus, BUS_MMIO, DRV_ADDR + DRV_STATUS, data, 8);
	bus_write(&v->bus, BUS_MMIO, DRV_ADDR + DRV_STATUS + 1, data, 4);
	assert_int_equal(drv_read(v, DRV_STATUS), 0);
	bus_read(&v->bus, BUS_MMIO, DRV_ADDR + DRV_STATUS, data, 2);
	bus_read(&v->bus, BUS_MMIO, DRV_ADDR + VIO_MMIO_SIZE - 8, data, 8);
	assert_memory_equal(data, "\0\0\0\0\0\0\0\0", 8);
	drv_write(v, DRV_NOTIFY, 77);
	drv_run(v);
}

static uint32_t ask_entropy(struct drv *v, uint64_t addr, uint32_t len)
{
	uint16_t head;
	uint32_t got = 0;

	drv_add(v, 0, &(struct drv_buf){addr, len, true}, 1);
	drv_kick(v, 0);
	drv_run(v);
	assert_true(drv_used(v, 0, &head, &got));
	return got;
}

static void test_entropy_fills_buffers(void **state)
{
	struct drv *v = *state;
	uint8_t zero[64] = {0};

	drv_start(v, DRV_F_EVENT_IDX, 8);
	uint64_t at = drv_alloc(v, 65536, 64);
	assert_int_equal(ask_entropy(v, at, 64), 64);
	assert_memory_not_equal(drv_ptr(v, at), zero, 64);
	assert_int_equal(drv_interrupts(v), 1);
	assert_int_equal(drv_read(v, DRV_INT_STATUS), 1);
	drv_write(v, DRV_INT_ACK, 1);
	assert_int_equal(drv_read(v, DRV_INT_STATUS), 0);
	assert_int_equal(ask_entropy(v, at, 65536), 4096); /* bounded per request */
	memcpy(zero, drv_ptr(v, at), 32);
	assert_int_equal(ask_entropy(v, at, 32), 32);
	assert_memory_not_equal(drv_ptr(v, at), zero, 32);
}

static void test_buffers_offered_before_driver_ok_are_served(void **state)
{
	struct drv *v = *state;
	uint16_t head;
	uint32_t len;

	drv_negotiate(v, 0);
	drv_setup_queue(v, 0, 8);
	uint64_t at = drv_alloc(v, 64, 64);
	drv_add(v, 0, &(struct drv_buf){at, 64, true}, 1);
	drv_kick(v, 0);
	drv_run(v);
	assert_false(drv_used(v, 0, &head, &len));
	drv_write(v, DRV_STATUS, 15);
	drv_run(v);
	assert_true(drv_used(v, 0, &head, &len));
}

static void test_driver_fault_stops_the_device_until_a_reset(void **state)
{
	struct drv *v = *state;
	uint16_t head;
	uint32_t len;

	drv_start(v, 0, 8);
	drv_set_desc(v, 0, 0, (struct drv_desc){UINT64_MAX, 64, DRV_WRITE, 0});
	drv_offer(v, 0, 0);
	drv_kick(v, 0);
	drv_run(v);
	assert_int_equal(drv_read(v, DRV_STATUS), 15 | DRV_NEEDS_RESET);
	assert_int_equal(drv_read(v, DRV_INT_STATUS) & 2, 2);
	drv_set_desc(v, 0, 0, (struct drv_desc){64, 64, DRV_WRITE, 0});
	drv_kick(v, 0);
	drv_run(v);
	assert_false(drv_used(v, 0, &head, &len));
	drv_start(v, 0, 8);
	assert_int_equal(ask_entropy(v, drv_alloc(v, 8, 8), 8), 8);
}

static void test_drained_device_takes_no_buffers_until_continue(void **state)
{
	struct drv *v = *state;
	uint16_t head;
	uint32_t len;

	drv_start(v, 0, 8);
	uint64_t at = drv_alloc(v, 64, 64);
	assert_true(vio_mmio_drain(v->mmio));
	drv_add(v, 0, &(struct drv_buf){at, 64, true}, 1);
	drv_kick(v, 0);
	drv_run(v);
	assert_false(drv_used(v, 0, &head, &len));
	vio_mmio_continue(v->mmio);
	assert_true(drv_used(v, 0, &head, &len));
}

static size_t save(struct drv *v, uint8_t *buf, size_t size)
{
	struct wire w = wire_on(buf, size);

	assert_true(vio_mmio_drain(v->mmio));
	vio_mmio_save(v->mmio, &w);
	assert_false(w.bad);
	return w.pos;
}

/* Makes another VM with a copy of the memory. */
static void clone_rng(struct drv *to, const struct drv *from)
{
	struct vio_dev *dev;

	drv_init(to, from->mem.bytes);
	memcpy(to->mem.base, from->mem.base, from->mem.bytes);
	memcpy(to->q, from->q, sizeof(to->q));
	to->next_free = from->next_free;
	assert_int_equal(vio_rng_new(&dev, &to->mem, to->loop, NULL), 0);
	drv_attach(to, dev);
}

static void test_saved_device_continues_in_another_vm(void **state)
{
	struct drv *v = *state, child;
	uint8_t buf[1024];

	drv_start(v, DRV_F_EVENT_IDX | DRV_F_INDIRECT, 8);
	uint64_t at = drv_alloc(v, 64, 64);
	for (int i = 0; i < 11; i++)
		ask_entropy(v, at, 64);
	drv_add(v, 0, &(struct drv_buf){at, 64, true}, 1); /* not served before the save */
	drv_kick(v, 0);
	size_t len = save(v, buf, sizeof(buf));

	clone_rng(&child, v);
	struct wire r = wire_from(buf, len);
	assert_int_equal(vio_mmio_restore(child.mmio, &r, NULL), 0);
	assert_int_equal(wire_left(&r), 0);
	uint16_t head;
	uint32_t got;
	drv_kick(&child, 0);
	drv_run(&child);
	assert_false(drv_used(&child, 0, &head, &got)); /* the child is still quiesced */
	vio_mmio_resumed(child.mmio);
	assert_true(drv_used(&child, 0, &head, &got));
	/* One interrupt serves both this request and the one that was pending. */
	assert_int_equal(drv_interrupts(&child), 1);
	assert_int_equal(ask_entropy(&child, at, 64), 64);
	assert_int_equal(drv_read(&child, DRV_STATUS), 15);
	drv_fini(&child);
}

static void test_hostile_image_is_refused_or_harmless(void **state)
{
	struct drv *v = *state, child;
	uint8_t buf[1024], bent[1024];

	drv_start(v, DRV_F_EVENT_IDX, 8);
	size_t len = save(v, buf, sizeof(buf));
	clone_rng(&child, v);
	for (size_t cut = 0; cut < len; cut++) {
		struct err e = {0};
		struct wire r = wire_from(buf, cut);

		assert_true(vio_mmio_restore(child.mmio, &r, &e) < 0);
		assert_true(strlen(e.text) > 10);
	}
	for (size_t bit = 0; bit < len * 8; bit++) {
		memcpy(bent, buf, len);
		bent[bit / 8] ^= (uint8_t)(1u << bit % 8);
		struct wire r = wire_from(bent, len);
		if (vio_mmio_restore(child.mmio, &r, NULL) == 0)
			vio_mmio_resumed(child.mmio);
		drv_kick(&child, 0);
		drv_run(&child);
	}
	drv_fini(&child);
}

static struct err expect_refused(struct drv *child, uint8_t *buf, size_t len, size_t at, uint8_t v)
{
	struct wire r = wire_from(buf, len);
	uint8_t was = buf[at];
	struct err e = {0};

	buf[at] = v;
	assert_true(vio_mmio_restore(child->mmio, &r, &e) < 0);
	buf[at] = was;
	return e;
}

static void test_restore_error_names_the_invalid_field(void **state)
{
	struct drv *v = *state, child;
	uint8_t buf[1024];

	drv_start(v, DRV_F_EVENT_IDX, 8);
	size_t len = save(v, buf, sizeof(buf));
	clone_rng(&child, v);
	assert_non_null(strstr(expect_refused(&child, buf, len, 0, 9).text, "version 9"));
	assert_non_null(strstr(expect_refused(&child, buf, len, 4, 3).text, "device 3"));
	assert_non_null(strstr(expect_refused(&child, buf, len, 8, 4).text, "status 0x4"));
	assert_non_null(strstr(expect_refused(&child, buf, len, 16, 1).text, "never offered"));
	assert_non_null(strstr(expect_refused(&child, buf, len, 40, 2).text, "2 queues"));
	drv_fini(&child);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup_rng, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_identity_registers_are_readable),
		T(test_only_valid_status_changes_are_accepted),
		T(test_unoffered_feature_is_refused),
		T(test_queue_registers_change_only_before_ready),
		T(test_invalid_queue_requires_a_reset),
		T(test_invalid_accesses_change_nothing),
		T(test_entropy_fills_buffers),
		T(test_buffers_offered_before_driver_ok_are_served),
		T(test_driver_fault_stops_the_device_until_a_reset),
		T(test_drained_device_takes_no_buffers_until_continue),
		T(test_saved_device_continues_in_another_vm),
		T(test_hostile_image_is_refused_or_harmless),
		T(test_restore_error_names_the_invalid_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
