// SPDX-License-Identifier: Apache-2.0
/* A device served by its loop on one thread while a vCPU's thread starts, uses and resets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "driver.h"

static atomic_bool ended;

static void *run_loop(void *arg)
{
	while (!ended)
		event_loop_turn(arg, 1);
	return NULL;
}

/* Does the same as drv_start, but does not run the loop, which another thread runs. */
static void start(struct drv *v)
{
	drv_negotiate(v, DRV_F_EVENT_IDX);
	for (unsigned q = 0; q < v->dev->ops->queues; q++)
		drv_setup_queue(v, q, 8);
	drv_write(v, DRV_STATUS, 15);
}

static void ask(struct drv *v, uint64_t at)
{
	uint16_t head;
	uint32_t len;

	drv_add(v, 0, &(struct drv_buf){at, 64, true}, 1);
	drv_kick(v, 0);
	while (!drv_used(v, 0, &head, &len))
		sched_yield();
	assert_int_equal(len, 64);
	drv_write(v, DRV_INT_ACK, drv_read(v, DRV_INT_STATUS));
}

static void test_vcpu_thread_can_kick_and_reset_a_device_in_use(void **state)
{
	struct vio_dev *dev;
	struct drv v;
	pthread_t t;

	drv_init(&v, 1 << 20);
	assert_int_equal(vio_rng_new(&dev, &v.mem, v.loop, NULL), 0);
	drv_attach(&v, dev);
	uint64_t at = drv_alloc(&v, 64, 64);
	assert_int_equal(pthread_create(&t, NULL, run_loop, v.loop), 0);
	for (int life = 0; life < 200; life++) {
		start(&v);
		for (int i = 0; i < 10; i++)
			ask(&v, at);
		drv_add(&v, 0, &(struct drv_buf){at, 64, true}, 1);
		drv_kick(&v, 0); /* the next start resets the device before or after the answer */
	}
	drv_write(&v, DRV_STATUS, 0);
	ended = true;
	pthread_join(t, NULL);
	drv_fini(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vcpu_thread_can_kick_and_reset_a_device_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
