// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vmm/config.h"

static char device[16], listener[16], file[16], tap[16];

static int set_up(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a.sun_family)) < 0 || listen(s, 1) < 0)
		return -1;
	snprintf(listener, sizeof(listener), "%d", s);
	snprintf(device, sizeof(device), "%d", open("/dev/null", O_RDWR));
	snprintf(tap, sizeof(tap), "%d", open("/dev/null", O_RDWR | O_NONBLOCK));
	snprintf(file, sizeof(file), "%d", open("/proc/self/exe", O_RDONLY));
	return 0;
}

static int parse(struct vm_config *out, struct err *e, char *const *extra)
{
	char *argv[32] = {"ramet-vmm", "--kvm-fd", device, "--ctl-fd", listener};
	int argc = 5;

	while (*extra)
		argv[argc++] = *extra++;
	return vm_config_parse(out, argc, argv, e);
}

#define PARSE(c, e, ...) parse(c, e, (char *[]){__VA_ARGS__, NULL})

static void test_all_options_are_parsed(void **state)
{
	struct vm_config c;
	struct err e = {0};

	assert_int_equal(PARSE(&c, &e, "--vcpus", "4", "--ram-mib", "512", "--slot", "7", "--cid",
			       "9", "--debug-serial", "--tap-fd", tap, "--ipv6", "--disk-bytes-s",
			       "4294967295", "--disk-ops-s", "5000"),
			 0);
	assert_int_equal(c.vcpus, 4);
	assert_int_equal(c.ram_mib, 512);
	assert_int_equal(c.slot, 7);
	assert_int_equal(c.cid, 9);
	assert_true(c.debug_serial);
	assert_int_equal(c.disk_bytes_s, UINT32_MAX);
	assert_int_equal(c.disk_ops_s, 5000);
	assert_true(c.tap_fd > 2);
	assert_true(c.ipv6);
}

static void test_omitted_options_get_defaults(void **state)
{
	struct vm_config c;
	struct err e = {0};

	assert_int_equal(PARSE(&c, &e, "--vcpus", "1", "--ram-mib", "128", "--slot", "0"), 0);
	assert_int_equal(c.cid, 3);
	assert_int_equal(c.proc_fd, -1);
	assert_false(c.debug_serial);
	assert_int_equal(c.tap_fd, -1);
	assert_false(c.ipv6);
}

static const struct {
	char *args[8];
	const char *says;
} refused[] = {
	{{"--vcpus", "0", "--ram-mib", "128", "--slot", "0"},
	 "--vcpus takes a number from 1 to 32"},
	{{"--vcpus", "33", "--ram-mib", "128", "--slot", "0"}, "not \"33\""},
	{{"--vcpus", "-1", "--ram-mib", "128", "--slot", "0"}, "not \"-1\""},
	{{"--vcpus", "", "--ram-mib", "128", "--slot", "0"}, "not \"\""},
	{{"--vcpus", "2x", "--ram-mib", "128", "--slot", "0"}, "not \"2x\""},
	{{"--vcpus", " 2", "--ram-mib", "128", "--slot", "0"}, "not \" 2\""},
	{{"--vcpus", "2", "--ram-mib", "127", "--slot", "0"}, "128 to 65536"},
	{{"--vcpus", "2", "--ram-mib", "65537", "--slot", "0"}, "128 to 65536"},
	{{"--vcpus", "2", "--ram-mib", "129", "--slot", "0"}, "even number"},
	{{"--vcpus", "2", "--ram-mib", "128", "--slot", "99999999999999999999"}, "--slot takes"},
	{{"--vcpus", "2", "--ram-mib", "128", "--slot", "0", "--cid", "2"}, "--cid takes"},
	{{"--vcpus", "2", "--ram-mib", "128", "--slot"}, "--slot needs a number"},
	{{"--vcpus", "2", "--ram-mib", "128"}, "--slot is missing"},
	{{"--vcpus", "2", "--slot", "0"}, "--ram-mib is missing"},
	{{"--vcpus", "2", "--vcpus", "2"}, "--vcpus is given twice"},
	{{"--help"}, "\"--help\" is not an option"},
};

static void test_invalid_options_are_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct vm_config c;
		struct err e = {0};

		assert_int_equal(parse(&c, &e, refused[i].args), -EINVAL);
		if (!strstr(e.text, refused[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, refused[i].says);
	}
}

static void test_invalid_taps_are_refused(void **state)
{
	struct vm_config c;
	struct err e = {0};

	assert_int_equal(
		PARSE(&c, &e, "--vcpus", "1", "--ram-mib", "128", "--slot", "0", "--tap-fd", file),
		-EBADF);
	assert_non_null(strstr(e.text, "is not a tap"));
	/* A blocking tap would block the event loop. */
	assert_int_equal(PARSE(&c, &e, "--vcpus", "1", "--ram-mib", "128", "--slot", "0",
			       "--tap-fd", device),
			 -EBADF);
	assert_non_null(strstr(e.text, "must be non-blocking"));
}

static void test_invalid_descriptors_are_refused(void **state)
{
	char *swapped[] = {"x", "--kvm-fd",  listener, "--ctl-fd", device, "--vcpus",
			   "1", "--ram-mib", "128",    "--slot",   "0"};
	char *plain[] = {"x", "--kvm-fd",  device, "--ctl-fd", file, "--vcpus",
			 "1", "--ram-mib", "128",  "--slot",   "0"};
	char *closed[] = {"x", "--kvm-fd",  "999", "--ctl-fd", listener, "--vcpus",
			  "1", "--ram-mib", "128", "--slot",   "0"};
	struct vm_config c;
	struct err e = {0};

	assert_int_equal(vm_config_parse(&c, 11, swapped, &e), -EBADF);
	assert_int_equal(vm_config_parse(&c, 11, plain, &e), -EBADF);
	assert_non_null(strstr(e.text, "not a socket"));
	assert_int_equal(vm_config_parse(&c, 11, closed, &e), -EBADF);
	assert_non_null(strstr(e.text, "not an open device"));
}

static void test_proc_fd_must_be_on_a_procfs(void **state)
{
	scoped_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct vm_config c;
	struct err e = {0};
	char number[16];

	snprintf(number, sizeof(number), "%d", proc);
	assert_int_equal(PARSE(&c, &e, "--vcpus", "1", "--ram-mib", "128", "--slot", "0",
			       "--proc-fd", number),
			 0);
	assert_int_equal(c.proc_fd, proc);
	assert_int_equal(PARSE(&c, &e, "--vcpus", "1", "--ram-mib", "128", "--slot", "0",
			       "--proc-fd", listener),
			 -EBADF);
	assert_non_null(strstr(e.text, "not on a procfs"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_options_are_parsed),
		cmocka_unit_test(test_omitted_options_get_defaults),
		cmocka_unit_test(test_invalid_options_are_refused),
		cmocka_unit_test(test_invalid_descriptors_are_refused),
		cmocka_unit_test(test_proc_fd_must_be_on_a_procfs),
		cmocka_unit_test(test_invalid_taps_are_refused),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
