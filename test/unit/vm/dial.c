// SPDX-License-Identifier: Apache-2.0
/* When a failed connection is retried, which depends on what the VM process does. The VM and its
 * progress are simulated; the loop is the real one. */
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
	int error;	  /* result of each connect */
	bool unasked;	  /* the VM process received no request */
	unsigned works;	  /* checks that find the VM process working */
	unsigned looks;	  /* checks of its progress */
	unsigned tries;	  /* connects */
	unsigned refused; /* how many connects fail before one succeeds */
	unsigned dry;	  /* attempts for which descriptors are lacking */
	bool vital;	  /* the last connect was */
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

const struct vmproc_id *vmproc_id(const struct vmproc *vm)
{
	static const struct vmproc_id id = {.pid = 1};

	return &id;
}

uint32_t vmproc_progress_begin(struct vmproc_progress *p, uint32_t period_ms)
{
	return period_ms;
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

struct vmproc_request *vmproc_connect(struct vmproc *vm, uint32_t port, bool vital, int fd,
				      vmproc_reply_fn *fn, void *arg)
{
	close(fd);
	t.fn = fn;
	t.arg = arg;
	t.tries++;
	t.vital = vital;
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

static void dial(uint32_t ms, bool while_working)
{
	struct err e;

	assert_int_equal(loop_new(&t.loop, &e), 0);
	dial_start(NULL, ms, while_working, on_end, NULL);
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

static void working_vm_is_retried_until_it_answers(void **state)
{
	begin(12, 100);
	dial(1, true);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 13);
	assert_true(t.looks > 0);
}

static void stuck_vm_is_given_up(void **state)
{
	begin(UINT32_MAX, 3);
	dial(20, true);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.looks, 4);
}

static void limit_applies_to_a_working_vm(void **state)
{
	begin(UINT32_MAX, UINT32_MAX);
	dial(20, false);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.looks, 0);
}

static void permanent_error_is_not_retried(void **state)
{
	begin(UINT32_MAX, UINT32_MAX);
	t.error = -EBADFD;
	dial(1000, true);
	assert_string_equal(t.text, "refused");
	assert_int_equal(t.tries, 1);
}

static void lack_of_descriptors_is_retried(void **state)
{
	begin(0, 0);
	t.dry = 5;
	dial(1000, false);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 1);
}

static void lack_of_descriptors_is_given_up_after_the_limit(void **state)
{
	begin(0, 0);
	t.dry = UINT32_MAX;
	dial(20, false);
	assert_non_null(strstr(t.text, "no descriptors left"));
	assert_int_equal(t.tries, 0);
}

static void lack_of_memory_is_retried(void **state)
{
	begin(5, UINT32_MAX);
	t.error = -ENOMEM;
	t.unasked = true;
	dial(1000, true);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 6);
}

static void vm_with_too_many_connections_is_retried(void **state)
{
	begin(5, UINT32_MAX);
	t.error = -EMFILE;
	dial(1000, true);
	assert_string_equal(t.text, "");
	assert_int_equal(t.tries, 6);
}

static void only_a_connection_that_a_vm_needs_is_vital(void **state)
{
	begin(0, 0);
	dial(1000, true);
	assert_true(t.vital);
	begin(0, 0);
	dial(1000, false);
	assert_false(t.vital);
}

static void dead_vm_is_not_retried(void **state)
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
		cmocka_unit_test(working_vm_is_retried_until_it_answers),
		cmocka_unit_test(stuck_vm_is_given_up),
		cmocka_unit_test(limit_applies_to_a_working_vm),
		cmocka_unit_test(permanent_error_is_not_retried),
		cmocka_unit_test(lack_of_descriptors_is_retried),
		cmocka_unit_test(lack_of_descriptors_is_given_up_after_the_limit),
		cmocka_unit_test(lack_of_memory_is_retried),
		cmocka_unit_test(vm_with_too_many_connections_is_retried),
		cmocka_unit_test(only_a_connection_that_a_vm_needs_is_vital),
		cmocka_unit_test(dead_vm_is_not_retried),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
