// SPDX-License-Identifier: Apache-2.0
/* The system call filters. Each attempt runs in a separate process, which the kernel kills if a
 * call is not allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmm/confine.h"

typedef int confine_fn(struct confine *c, struct err *e);

/* The filters to set, in order, and the call to attempt afterwards. */
struct attempt {
	confine_fn *filters[2];
	long call, args[3];
};

static void attempt(const struct attempt *a)
{
	struct confine *c;
	struct err e;

	if (confine_new(&c, &e))
		_exit(1);
	for (unsigned i = 0; i < 2 && a->filters[i]; i++)
		if (a->filters[i](c, &e))
			_exit(2);
	syscall(a->call, a->args[0], a->args[1], a->args[2]);
	syscall(SYS_exit_group, 0); /* not _exit, for which a sanitizer makes more calls */
}

static bool is_allowed(struct attempt a)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		attempt(&a);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGSYS);
		return false;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return true;
}

static bool set_flags(long flags)
{
	return is_allowed((struct attempt){{confine_loop}, SYS_fcntl, {-1, F_SETFL, flags}});
}

/* All VMs of an image share its open files, so a flag that one of them sets affects all. */
static void test_flags_of_files_cannot_be_changed(void **state)
{
	assert_false(set_flags(O_RDWR));
	assert_false(set_flags(O_RDWR | O_NONBLOCK));
	assert_false(set_flags(O_RDWR | O_DIRECT));
	assert_false(set_flags(O_RDWR | O_APPEND));
}

static bool request(confine_fn *first, confine_fn *second, long nr)
{
	return is_allowed((struct attempt){{first, second}, SYS_ioctl, {-1, nr, 0}});
}

static void test_running_vcpu_thread_can_only_run(void **state)
{
	assert_true(request(confine_vcpu, NULL, KVM_SET_REGS));
	assert_false(request(confine_vcpu, confine_running, KVM_SET_REGS));
	assert_false(request(confine_vcpu, confine_running, KVM_SET_MSRS));
	assert_false(request(confine_vcpu, confine_running, KVM_SET_IRQCHIP));
	assert_true(request(confine_vcpu, confine_running, KVM_RUN));
	assert_false(is_allowed((struct attempt){{confine_vcpu}, SYS_exit, {0}}));
}

static void test_loop_thread_can_only_read_running_vcpus(void **state)
{
	assert_true(request(confine_loop, NULL, KVM_SET_SREGS));
	assert_false(request(confine_loop, confine_running, KVM_SET_SREGS));
	/* The kernel ignores the upper half of the request. */
	assert_false(request(confine_loop, confine_running, KVM_SET_SREGS | 1ll << 32));
	assert_false(request(confine_loop, confine_running, KVM_RUN));
	assert_true(request(confine_loop, confine_running, KVM_GET_SREGS));
	assert_true(request(confine_loop, confine_running, KVM_KVMCLOCK_CTRL));
	assert_true(request(confine_loop, confine_running, KVM_IRQ_LINE));
	assert_true(request(confine_loop, confine_running, FIONREAD));
	assert_true(request(confine_loop, confine_running, SIOCOUTQ));
	assert_false(request(confine_loop, confine_running, FIONBIO));
}

static void test_no_filter_can_be_added_to_the_last(void **state)
{
	const long set = SECCOMP_SET_MODE_FILTER, log = SECCOMP_FILTER_FLAG_LOG;

	assert_false(is_allowed(
		(struct attempt){{confine_vcpu, confine_running}, SYS_seccomp, {set, log, 0}}));
	assert_false(is_allowed(
		(struct attempt){{confine_loop, confine_running}, SYS_seccomp, {set, log, 0}}));
	/* Before the last filter, only filters with SECCOMP_FILTER_FLAG_LOG can be set. */
	assert_true(is_allowed((struct attempt){{confine_loop}, SYS_seccomp, {set, log, 0}}));
	assert_false(is_allowed((struct attempt){{confine_loop}, SYS_seccomp, {1, 0, 0}}));
	assert_false(is_allowed((struct attempt){{confine_loop}, SYS_prctl, {22, 1, 0}}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags_of_files_cannot_be_changed),
		cmocka_unit_test(test_running_vcpu_thread_can_only_run),
		cmocka_unit_test(test_loop_thread_can_only_read_running_vcpus),
		cmocka_unit_test(test_no_filter_can_be_added_to_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
