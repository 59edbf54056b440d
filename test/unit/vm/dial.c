// SPDX-License-Identifier: Apache-2.0
/* Whether a connection that fails is tried again, by what the VM process does meanwhile. The VM and
 * its progress are the test's; the loop is the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/io/loop.h"

static int few_descriptors(int domain, int type, int protocol, int pair[2]);
#define socketpair few_descriptors
#include "orchestrator/vm/dial.c"
#undef socketpair

static struct {
	struct loop *loop;
	struct loop_timer answer;
	vmproc_reply_fn *fn;
	void *arg;
	int error;	  /* of each connect */
	bool unasked;	  /* the VM process was not even asked */
	unsigned works;	  /* looks that still find the VM process at work */
	unsigned looks;	  /* at what it does */
	unsigned tries;	  /* connects */
	unsigned refused; /* of which that many fail; then one succeeds */
	unsigned dry;	  /* tries for which no descriptors are left */
	bool over;
	int fd;
	char text[128];
} t;

static int few_descriptors(int domain, int type, int protocol, int pair[2])
{
	if (!t.dry)
		return socketpair(domain, type, protocol, pair);
	t.dry--;
	errno = EMFILE;
	return -1;
}

struct loop *vmproc_loop(const struct vmproc *vm)
{
	return t.loop;
}

uint32_t vmproc_pid(const struct vmproc *vm)
{
	return 1;
}

void vmproc_progress_begin(struct vmproc_progress *p, uint32_t pid)
{
}

bool vmproc_progressed(struct vmproc_progress *p, uint32_t pid, uint64_t least_ms)
{
	t.looks++;
	return t.works && t.works--;
}

void vmproc_request_cancel(struct vmproc_request *r)
{
}

static void answer(void *arg)
{
	const struct ctl_msg reply = {0};
	bool fails = t.tries <= t.refused;

	t.fn(t.arg, fails ? t.error : 0, fails ? "refused" : "",
	     fails && t.unasked ? NULL : &reply);
}

struct vmproc_request *vmproc_connect(struct vmproc *vm, uint32_t port, int fd, vmproc_reply_fn *fn,
				      void *arg)
{
	close(fd);
	t.fn = fn;
	t.arg = arg;
	t.tries++;
	t.answer = (struct loop_timer){.fn = answer};
	loop_timer_set(t.loop, &t.answer, 1);
	return NULL;
}

static void on_end(void *arg, int fd, const char *text)
{
	t.over = true;
	t.fd = fd;
	snprintf(t.text, sizeof(t.text), "%s", text ? text : "");
	loop_stop(t.loop);
}

static void dial(uint32_t limit_ms, bool while_working)
{
	struct err e;

	assert_int_equal(loop_new(&t.loop, &e), 0);
	if (while_working)
		dial_while_working(NULL, limit_ms, on_end, NULL);
	else
		dial_start(NULL, limit_ms, on_end, NULL);
	while (!t.over)
		loop_run(t.loop);
	loop_free(t.loop);
	close_fd(&t.fd);
}

static void begin(unsigned refused, unsigned works)
{
	memset(&t, 0, sizeof(t));
	t.error = -ECONNREFUSED;
	t.refused = refused;
	t.works = works;
}

static void test_working_vm_is_tried_until_it_answers(void **state)
{
	begin(12, 100);
	dial(1, true);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 13);
	assert_true(t.looks > 0);
}

static void test_vm_that_stands_still_is_given_up(void **state)
{
	begin(UINT32_MAX, 3);
	dial(20, true);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.looks, 4);
}

static void test_limit_holds_for_a_working_vm(void **state)
{
	begin(UINT32_MAX, UINT32_MAX);
	dial(20, false);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.looks, 0);
}

static void test_other_errors_are_not_tried_again(void **state)
{
	begin(UINT32_MAX, UINT32_MAX);
	t.error = -EBADFD;
	dial(1000, true);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.tries, 1);
}

static void test_descriptors_are_waited_for(void **state)
{
	begin(0, 0);
	t.dry = 5;
	dial(1000, false);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 1);
}

static void test_descriptors_are_not_waited_for_without_end(void **state)
{
	begin(0, 0);
	t.dry = UINT32_MAX;
	dial(20, false);
	assert_non_null(strstr(t.text, "no descriptors left"));
	assert_int_equal(t.tries, 0);
}

static void test_want_of_memory_is_waited_for(void **state)
{
	begin(5, UINT32_MAX);
	t.error = -ENOMEM;
	t.unasked = true;
	dial(1000, true);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 6);
}

static void test_vm_that_is_gone_is_not_tried_again(void **state)
{
	begin(UINT32_MAX, UINT32_MAX);
	t.error = -ECONNRESET;
	t.unasked = true;
	dial(1000, true);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.tries, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_working_vm_is_tried_until_it_answers),
		cmocka_unit_test(test_vm_that_stands_still_is_given_up),
		cmocka_unit_test(test_limit_holds_for_a_working_vm),
		cmocka_unit_test(test_other_errors_are_not_tried_again),
		cmocka_unit_test(test_descriptors_are_waited_for),
		cmocka_unit_test(test_descriptors_are_not_waited_for_without_end),
		cmocka_unit_test(test_want_of_memory_is_waited_for),
		cmocka_unit_test(test_vm_that_is_gone_is_not_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
