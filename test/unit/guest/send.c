// SPDX-License-Identifier: Apache-2.0
/* Sending over vsock works even when the kernel has no memory for large packets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cmocka.h>

static size_t most; /* bytes that a packet may have */

static ssize_t fake_send(int fd, const void *bytes, size_t len, int flags)
{
	assert_true(flags & MSG_NOSIGNAL);
	errno = ENOMEM;
	return len <= most ? (ssize_t)len : -1;
}

#define send fake_send
#include "../../../guest/send.c"

static void test_everything_is_sent_at_once_with_enough_memory(void **state)
{
	most = 65536;
	assert_int_equal(send_some(1, "", 65536), 65536);
	assert_int_equal(send_some(1, "", 1), 1);
}

static void test_less_is_sent_when_memory_is_short(void **state)
{
	most = 16384;
	ssize_t n = send_some(1, "", 65536);
	assert_in_range(n, 1, most);
}

static void test_send_fails_without_memory(void **state)
{
	most = 0;
	assert_int_equal(send_some(1, "", 65536), -1);
	assert_int_equal(errno, ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_is_sent_at_once_with_enough_memory),
		cmocka_unit_test(test_less_is_sent_when_memory_is_short),
		cmocka_unit_test(test_send_fails_without_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
