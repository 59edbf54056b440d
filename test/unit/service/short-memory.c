// SPDX-License-Identifier: Apache-2.0
/* Requests to VM processes on a host that is short of memory: the ring has retried them and given
 * up. The VMs survive. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "orchestrator/io/loop.h"
#include "test/unit/service/world.h"

/* How many of the next operations fail, and with which error. */
static struct {
	unsigned sends, receives;
	int error;
} failing;

struct failed_op {
	loop_fn *fn;
	void *arg;
};

static void notify(void *arg, int result)
{
	struct failed_op s = *(struct failed_op *)arg;

	free(arg);
	s.fn(s.arg, result < 0 ? result : failing.error);
}

static struct loop_op *fail_when(struct loop *l, int fd, unsigned ready, loop_fn *fn, void *arg)
{
	struct failed_op *s = malloc(sizeof(*s));

	*s = (struct failed_op){fn, arg};
	return loop_poll(l, fd, ready, notify, s);
}

struct loop_op *__real_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
				    void *arg)
{
	if (!failing.sends)
		return __real_loop_sendmsg(l, fd, msg, fn, arg);
	failing.sends--;
	return fail_when(l, fd, POLLOUT, fn, arg);
}

struct loop_op *__real_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg);
struct loop_op *__wrap_loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn,
				    void *arg)
{
	if (!failing.receives)
		return __real_loop_recvmsg(l, fd, msg, fn, arg);
	failing.receives--;
	return fail_when(l, fd, POLLIN, fn, arg);
}

static int setup(void **state)
{
	memset(&failing, 0, sizeof(failing));
	failing.error = -ENOMEM;
	return world_setup(state);
}

/* Creates a sandbox and waits until nothing else sends to VM processes. */
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

static void test_vm_messages_are_received_again(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	create(w, &m);
	failing.receives = 3; /* fail after the answer to this fork was received */
	world_fork(w, &k, m.view.id, 1);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(failing.receives, 0);
	expect_alive(w, m.view.id);
}

static void test_guest_is_reached_again(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	create(w, &m);
	failing.sends = 3;
	world_exec(w, &r, m.view.id, "hang-up");
	assert_true(r.failed);
	expect_alive(w, m.view.id);
	assert_int_equal(failing.sends, 0);
}

static void test_failed_fork_leaves_the_sandbox(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	create(w, &m);
	failing.error = -ENOBUFS;
	failing.sends = 1;
	world_fork(w, &k, m.view.id, 1);
	assert_false(k.ok);
	assert_non_null(strstr(k.failure.text, "the host has no memory for a request"));
	expect_alive(w, m.view.id);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
}

static void test_failed_freeze_leaves_the_sandbox(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;

	create(w, &m);
	failing.sends = 1;
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
		TEST(test_vm_messages_are_received_again),
		TEST(test_guest_is_reached_again),
		TEST(test_failed_fork_leaves_the_sandbox),
		TEST(test_failed_freeze_leaves_the_sandbox),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
