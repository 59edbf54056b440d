// SPDX-License-Identifier: Apache-2.0
/* Rules for single messages; sequences of messages are tested in test/native. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/ctl.h"

static struct ctl_msg message(enum ctl_type type, unsigned nfds)
{
	struct ctl_msg m = {.version = CTL_VERSION, .type = type, .seq = 1, .nfds = nfds};

	if (type == CTL_FILL) {
		m.fill.kind = CTL_BOOT;
		m.fill.ram_mib = 128;
		m.fill.disk_bytes = 1 << 20;
		m.fill.instance[CTL_INSTANCE_LEN - 1] = 1;
	}
	return m;
}

static void test_valid_requests_are_accepted(void **state)
{
	static const struct {
		enum ctl_type type;
		unsigned nfds;
	} good[] = {{CTL_FILL, 3}, {CTL_CONNECT, 1}, {CTL_PAUSE, 0},
		    {CTL_RUN, 0},  {CTL_STATS, 0},   {CTL_QUIT, 0},
		    {CTL_FORK, 1}, {CTL_INSPECT, 1}, {CTL_RECORD, 0}};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ctl_msg m = message(good[i].type, good[i].nfds);
		struct err e = {0};

		assert_int_equal(ctl_check_request(&m, sizeof(m), good[i].nfds, &e), 0);
		assert_int_equal(ctl_check_request(&m, sizeof(m), good[i].nfds + 1, &e), -EPROTO);
		m.nfds++;
		assert_int_equal(ctl_check_request(&m, sizeof(m), good[i].nfds + 1, &e), -EPROTO);
	}
}

static void test_fill_must_have_the_right_number_of_descriptors(void **state)
{
	for (unsigned layers = 0; layers <= CTL_LAYERS_MAX; layers++) {
		struct ctl_msg boot = message(CTL_FILL, 4 + layers);
		struct ctl_msg restore = message(CTL_FILL, 4 + layers);
		struct err e = {0};

		boot.fill.has_initrd = 1;
		boot.fill.layers = restore.fill.layers = layers;
		restore.fill.kind = CTL_RESTORE;
		assert_int_equal(ctl_check_request(&boot, sizeof(boot), 4 + layers, &e), 0);
		assert_int_equal(ctl_check_request(&restore, sizeof(restore), 4 + layers, &e), 0);
		boot.nfds--;
		assert_int_equal(ctl_check_request(&boot, sizeof(boot), 3 + layers, &e), -EPROTO);
	}
}

static void test_memory_layers_of_a_restore_are_limited(void **state)
{
	for (unsigned n = 0; n <= CTL_MEMORY_MAX + 1; n++) {
		struct ctl_msg m = message(CTL_FILL, 4 + n + 3);
		struct err e = {0};

		m.fill.kind = CTL_RESTORE;
		m.fill.memory_layers = n;
		m.fill.layers = 3;
		assert_int_equal(ctl_check_request(&m, sizeof(m), 4 + n + 3, &e),
				 n <= CTL_MEMORY_MAX ? 0 : -EPROTO);
		m.nfds--;
		assert_int_equal(ctl_check_request(&m, sizeof(m), 4 + n + 2, &e), -EPROTO);
	}
}

static void test_ram_size_must_be_even_and_within_limits(void **state)
{
	static const struct {
		uint32_t ram_mib;
		int result;
	} cases[] = {{0, -EPROTO},     {126, -EPROTO},	     {128, 0}, {129, -EPROTO}, {65536, 0},
		     {65538, -EPROTO}, {UINT32_MAX, -EPROTO}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ctl_msg m = message(CTL_FILL, 3);
		struct err e = {0};

		m.fill.ram_mib = cases[i].ram_mib;
		assert_int_equal(ctl_check_request(&m, sizeof(m), 3, &e), cases[i].result);
	}
}

static void test_fill_without_an_instance_is_refused(void **state)
{
	struct ctl_msg m = message(CTL_FILL, 3);
	struct err e = {0};

	m.fill.instance[CTL_INSTANCE_LEN - 1] = 0;
	assert_int_equal(ctl_check_request(&m, sizeof(m), 3, &e), -EPROTO);
	assert_non_null(strstr(e.text, "instance"));
	m.fill.instance[0] = 1;
	assert_int_equal(ctl_check_request(&m, sizeof(m), 3, &e), 0);
}

static void test_wrong_length_is_refused(void **state)
{
	struct ctl_msg m = message(CTL_STATS, 0);

	for (size_t len = 0; len <= sizeof(m) + 8; len++) {
		struct err e = {0};

		assert_int_equal(ctl_check_request(&m, len, 0, &e), len == sizeof(m) ? 0 : -EPROTO);
	}
}

static void test_flags_must_be_0_or_1(void **state)
{
	for (uint32_t flag = 0; flag <= 2; flag++) {
		struct ctl_msg connect = message(CTL_CONNECT, 1), fork = message(CTL_FORK, 1);
		struct err e = {0};

		connect.connect.vital = fork.fork.stay_paused = flag;
		assert_int_equal(ctl_check_request(&connect, sizeof(connect), 1, &e),
				 flag <= 1 ? 0 : -EPROTO);
		assert_int_equal(ctl_check_request(&fork, sizeof(fork), 1, &e),
				 flag <= 1 ? 0 : -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_requests_are_accepted),
		cmocka_unit_test(test_fill_must_have_the_right_number_of_descriptors),
		cmocka_unit_test(test_memory_layers_of_a_restore_are_limited),
		cmocka_unit_test(test_ram_size_must_be_even_and_within_limits),
		cmocka_unit_test(test_fill_without_an_instance_is_refused),
		cmocka_unit_test(test_flags_must_be_0_or_1),
		cmocka_unit_test(test_wrong_length_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
