// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "guest/system/system.h"

static struct {
	int entropy, boot_id, clock, hostname, tcp, unique; /* the result of each step */
	char done[32];					    /* one letter per step taken */
	int64_t now, host_now, set_to;
} fake;

static void took(char step)
{
	fake.done[strlen(fake.done)] = step;
}

static int add_entropy(const void *bytes, size_t len)
{
	assert_int_equal(len, AGENT_ENTROPY_LEN);
	took('e');
	return fake.entropy;
}

static int64_t realtime_ns(void)
{
	return fake.now;
}

static int64_t host_realtime_ns(void)
{
	return fake.host_now;
}

static int set_realtime(int64_t ns)
{
	took('c');
	fake.set_to = ns;
	return fake.clock;
}

static int set_hostname(const char *name)
{
	took('h');
	return fake.hostname;
}

static int renew_boot_id(void)
{
	took('b');
	return fake.boot_id;
}

static int reset_tcp(void)
{
	took('t');
	return fake.tcp;
}

static int confirm_unique(void)
{
	took('u');
	return fake.unique;
}

static const struct system_ops ops = {
	.add_entropy = add_entropy,
	.realtime_ns = realtime_ns,
	.host_realtime_ns = host_realtime_ns,
	.set_realtime = set_realtime,
	.set_hostname = set_hostname,
	.renew_boot_id = renew_boot_id,
	.reset_tcp = reset_tcp,
	.confirm_unique = confirm_unique,
};

static const struct reseed_request request = {.realtime_ns = 5000000000, .hostname = "one"};

static int setup(void **state)
{
	memset(&fake, 0, sizeof(fake));
	fake.host_now = -ENOENT;
	return 0;
}

static void test_all_steps_are_taken(void **state)
{
	struct err e;

	assert_int_equal(reseed_apply(&request, &ops, &e), 0);
	assert_string_equal(fake.done, "ebchtu");
	assert_int_equal(fake.set_to, request.realtime_ns);
}

static void test_clock_is_stepped_only_when_it_is_off(void **state)
{
	const struct {
		int64_t off;
		const char *done;
	} cases[] = {
		{0, "ebhtu"},	     {1000000, "ebhtu"},   {-1000000, "ebhtu"},
		{1000001, "ebchtu"}, {-1000001, "ebchtu"}, {-4999999999, "ebchtu"},
	};
	struct err e;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setup(NULL);
		fake.now = request.realtime_ns + cases[i].off;
		assert_int_equal(reseed_apply(&request, &ops, &e), 0);
		assert_string_equal(fake.done, cases[i].done);
	}
}

static void test_host_time_of_the_kernel_wins_over_the_message(void **state)
{
	struct err e;

	fake.host_now = request.realtime_ns + 900000000;
	assert_int_equal(reseed_apply(&request, &ops, &e), 0);
	assert_int_equal(fake.set_to, fake.host_now);
}

static void test_no_name_keeps_the_host_name(void **state)
{
	const struct reseed_request unnamed = {.realtime_ns = 5000000000};
	struct err e;

	assert_int_equal(reseed_apply(&unnamed, &ops, &e), 0);
	assert_string_equal(fake.done, "ebctu");
}

static void test_error_names_the_failed_step(void **state)
{
	struct err e;

	fake.unique = -EIO;
	assert_int_equal(reseed_apply(&request, &ops, &e), -EIO);
	assert_string_equal(e.text, "open the network: Input/output error");
	fake.tcp = -ENOMEM;
	assert_int_equal(reseed_apply(&request, &ops, &e), -ENOMEM);
	assert_string_equal(e.text, "reset connections: Cannot allocate memory");
	fake.hostname = -EPERM;
	assert_int_equal(reseed_apply(&request, &ops, &e), -EPERM);
	assert_string_equal(e.text, "set the host name: Operation not permitted");
	fake.clock = -EINVAL;
	assert_int_equal(reseed_apply(&request, &ops, &e), -EINVAL);
	assert_string_equal(e.text, "set the clock: Invalid argument");
	fake.boot_id = -EACCES;
	assert_int_equal(reseed_apply(&request, &ops, &e), -EACCES);
	assert_string_equal(e.text, "renew the boot id: Permission denied");
	fake.entropy = -ENOENT;
	assert_int_equal(reseed_apply(&request, &ops, &e), -ENOENT);
	assert_string_equal(
		e.text, "reseed the kernel's random number generator: No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_all_steps_are_taken, setup),
		cmocka_unit_test_setup(test_clock_is_stepped_only_when_it_is_off, setup),
		cmocka_unit_test_setup(test_host_time_of_the_kernel_wins_over_the_message, setup),
		cmocka_unit_test_setup(test_no_name_keeps_the_host_name, setup),
		cmocka_unit_test_setup(test_error_names_the_failed_step, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
