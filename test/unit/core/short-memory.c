// SPDX-License-Identifier: Apache-2.0
/* Requests to VM processes on a host that is short of memory: the ring has tried them again and
 * given up. The VMs live on. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "orchestrator/io/loop.h"
#include "test/unit/core/world.h"

/* How many of the next operations fail. */
static struct {
	unsigned sends, receives;
	int error;
} starve;

struct starved {
	loop_fn *fn;
	void *arg;
};

static void notify(void *arg, int result)
{
	struct starved s = *(struct starved *)arg;

	free(arg);
	s.fn(s.arg, result < 0 ? result : starve.error);
}

static struct loop_op *fail_when(struct loop *l, int fd, unsigned ready, loop_fn *fn, void *arg)
{
	struct starved *s = malloc(sizeof(*s));

	*s = (struct starved){fn, arg};
	return loop_poll(l, fd, ready, notify, s);
}

struct loop_op *__real_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg)
{
	if (!starve.sends)
		return __real_loop_sendmsg(l, fd, msg, fn, arg);
	starve.sends--;
	return fail_when(l, fd, POLLOUT, fn, arg);
}

struct loop_op *__real_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg)
{
	if (!starve.receives)
		return __real_loop_recvmsg(l, fd, msg, fn, arg);
	starve.receives--;
	return fail_when(l, fd, POLLIN, fn, arg);
}

static int setup(void **state)
{
	memset(&starve, 0, sizeof(starve));
	starve.error = -ENOMEM;
	return world_setup(state);
}

/* Nothing else sends to VM processes from here on. */
static void create(struct world *w, struct made *m)
{
	world_create(w, m, NULL);
	assert_true(m->ok);
	world_wait_ready(w);
}

static void expect_alive(struct world *w, const char *id)
{
	struct run r;

	world_exec(w, &r, id, "out alive");
	assert_false(r.failed);
	assert_string_equal(r.out, "alive");
}

static void test_a_vm_is_heard_again(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	create(w, &m);
	starve.receives = 3; /* after the answer to this fork */
	world_fork(w, &k, m.view.id, 1);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(starve.receives, 0);
	expect_alive(w, m.view.id);
}

static void test_a_guest_is_reached_again(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	create(w, &m);
	starve.sends = 3;
	world_exec(w, &r, m.view.id, "hang-up");
	assert_true(r.failed);
	expect_alive(w, m.view.id);
	assert_int_equal(starve.sends, 0);
}

static void test_a_fork_fails_alone(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	create(w, &m);
	starve.error = -ENOBUFS;
	starve.sends = 1;
	world_fork(w, &k, m.view.id, 1);
	assert_false(k.ok);
	assert_non_null(strstr(k.failure.text, "the host has no memory for a request"));
	expect_alive(w, m.view.id);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
}

static void test_a_freeze_fails_alone(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;

	create(w, &m);
	starve.sends = 1;
	world_freeze(w, &z, m.view.id);
	assert_false(z.ok);
	assert_non_null(strstr(z.failure.text, "keeps running: the host has no memory"));
	expect_alive(w, m.view.id);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	world_resume(w, &m, z.id);
	assert_true(m.ok);
	expect_alive(w, m.view.id);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_vm_is_heard_again),
		TEST(test_a_guest_is_reached_again),
		TEST(test_a_fork_fails_alone),
		TEST(test_a_freeze_fails_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
