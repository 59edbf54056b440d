// SPDX-License-Identifier: Apache-2.0
/* The guest of bench native-service (bench/tiny-guest.c) in the real ramet-vmm: it must do what it
 * is measured for. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/wire.h"
#include "proto/agent.h"
#include "test/native/vmm-client.h"

#define RAM_MIB	   128
#define DISK_BYTES (1u << 20)
#define FILE_BYTES 20000 /* several packets */

static const struct vmm_options options = {
	.exe = RAMET_VMM, .vcpus = 1, .ram_mib = RAM_MIB, .log_here = true};

static void boot(struct vmm *v)
{
	scoped_fd int kernel = open(TINY_GUEST, O_RDONLY | O_CLOEXEC);
	struct vmm_snapshot disk = {.base = vmm_file(NULL, 0, DISK_BYTES),
				    .disk_bytes = DISK_BYTES};

	assert_true(vmm_start(v, &options));
	assert_int_equal(vmm_boot(v, kernel, -1, "", &disk), 0);
	close_fd(&disk.base);
	close_fd(&disk.writable);
}

static int dial(struct vmm *v)
{
	struct ctl_msg m = {.type = CTL_CONNECT, .connect.port = AGENT_PORT};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(vmm_call(v, &m, &pair[1], 1), 0);
	close(pair[1]);
	return pair[0];
}

/* --- frames --- */

static uint8_t payload[AGENT_PAYLOAD_MAX + 1]; /* of the last answer, NUL-terminated */
static uint32_t payload_len;

static void send_frame(int fd, enum agent_request type, const void *data, size_t len)
{
	uint8_t head[AGENT_HEADER_SIZE];
	struct wire w = wire_on(head, sizeof(head));

	wire_put_u32(&w, (uint32_t)len);
	wire_put_u32(&w, type);
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
	assert_int_equal(write(fd, data, len), len);
}

static void read_all(int fd, void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (uint8_t *)to + done, len - done);

		assert_true(n > 0);
		done += (size_t)n;
	}
}

/* Receives a frame into `payload`; returns its type. */
static unsigned receive(int fd)
{
	uint8_t head[AGENT_HEADER_SIZE];
	struct wire r = wire_from(head, sizeof(head));

	read_all(fd, head, sizeof(head));
	payload_len = wire_get_u32(&r);
	assert_true(payload_len < sizeof(payload));
	read_all(fd, payload, payload_len);
	payload[payload_len] = '\0';
	return wire_get_u8(&r);
}

/* Runs code; returns its output, which is valid until the next call. */
static const char *run(int fd, const char *code)
{
	static char text[AGENT_PAYLOAD_MAX + 1];
	uint8_t raw[64];
	struct wire w = wire_on(raw, sizeof(raw));
	size_t len = 0;

	wire_put_u8(&w, AGENT_BASH);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, 0);
	wire_put_u32(&w, (uint32_t)strlen(code));
	wire_put_u64(&w, 7);
	wire_put_u32(&w, 0);
	wire_put_u32(&w, 0);
	send_frame(fd, AGENT_EXEC, raw, w.pos);
	send_frame(fd, AGENT_CODE, code, strlen(code));
	text[0] = '\0';
	for (unsigned type; (type = receive(fd)) != AGENT_EXIT;) {
		assert_int_equal(type, AGENT_STDOUT);
		assert_true(len + payload_len < sizeof(text));
		memcpy(text + len, payload, payload_len + 1);
		len += payload_len;
	}
	assert_int_equal(payload[0], 0);
	return text;
}

static void put_path(struct wire *w, const char *path)
{
	wire_put_str(w, path, strlen(path));
}

/* --- tests --- */

static void test_calls_are_answered_after_a_halt(void **state)
{
	struct vmm v;

	boot(&v);
	scoped_fd int fd = dial(&v);
	for (unsigned i = 0; i < 3; i++) {
		assert_string_equal(run(fd, "echo hi\necho there"), "hi\nthere\n");
		usleep(20000); /* the guest halts */
	}
	assert_string_equal(run(fd, "true"), "");
	send_frame(fd, AGENT_HELLO, "", 0);
	assert_int_equal(receive(fd), AGENT_PONG);
	assert_int_equal(payload[0], AGENT_VERSION);
	vmm_stop(&v);
}

static void test_last_call_is_replayed(void **state)
{
	struct vmm v;
	uint8_t raw[16];

	boot(&v);
	scoped_fd int fd = dial(&v);
	run(fd, "echo hello");
	for (unsigned call = 7; call <= 8; call++) {
		struct wire w = wire_on(raw, sizeof(raw));

		wire_put_u64(&w, call);
		wire_put_u64(&w, 2);
		send_frame(fd, AGENT_ATTACH, raw, w.pos);
		assert_int_equal(receive(fd), call == 7 ? AGENT_STDOUT : AGENT_ERROR);
		if (call == 8)
			break;
		assert_string_equal(payload, "llo\n");
		assert_int_equal(receive(fd), AGENT_EXIT);
	}
	assert_int_equal(payload[0], ENOENT);
	vmm_stop(&v);
}

static void test_file_is_kept(void **state)
{
	static uint8_t data[FILE_BYTES];
	uint8_t raw[64];
	struct wire w = wire_on(raw, sizeof(raw));
	struct vmm v;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	boot(&v);
	scoped_fd int fd = dial(&v);
	wire_put_u64(&w, sizeof(data));
	wire_put_u32(&w, 0600);
	put_path(&w, "/a");
	send_frame(fd, AGENT_PUT, raw, w.pos);
	send_frame(fd, AGENT_DATA, data, sizeof(data));
	assert_int_equal(receive(fd), AGENT_DONE);
	w = wire_on(raw, sizeof(raw));
	wire_put_u64(&w, 0);
	wire_put_u64(&w, 0);
	put_path(&w, "/a");
	send_frame(fd, AGENT_GET, raw, w.pos);
	assert_int_equal(receive(fd), AGENT_FILE);
	assert_int_equal(receive(fd), AGENT_BYTES);
	assert_int_equal(payload_len, sizeof(data));
	assert_memory_equal(payload, data, sizeof(data));
	assert_int_equal(receive(fd), AGENT_DONE);
	vmm_stop(&v);
}

static void test_copy_has_the_memory_and_its_own_random_numbers(void **state)
{
	struct vmm parent, child;
	struct vmm_snapshot image;
	struct ctl_msg reply;
	char number[2][32], total[32];

	boot(&parent);
	scoped_fd int fd = dial(&parent);
	run(fd, "touch 4\ntouch 8");
	snprintf(total, sizeof(total), "%s", run(fd, "sum half"));
	assert_string_equal(total, "4096\n"); /* 2048 pages, each with a 2 */
	assert_int_equal(vmm_fork(&parent, &image, &reply), 0);
	assert_true(vmm_start(&child, &options));
	assert_int_equal(vmm_restore(&child, &image), 0);
	scoped_fd int in_child = dial(&child);
	assert_string_equal(run(in_child, "sum half"), total);
	/* The interrupt by which a copy learns that it is one may come after its first calls. */
	do {
		snprintf(number[0], sizeof(number[0]), "%s", run(fd, "random"));
		snprintf(number[1], sizeof(number[1]), "%s", run(in_child, "random"));
	} while (strcmp(number[0], number[1]) == 0);
	run(in_child, "write 2");
	assert_string_equal(run(in_child, "echo while it writes"), "while it writes\n");
	run(in_child, "rest");
	assert_string_equal(run(fd, "sum half"), total);
	vmm_snapshot_close(&image);
	vmm_stop(&child);
	vmm_stop(&parent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_are_answered_after_a_halt),
		cmocka_unit_test(test_last_call_is_replayed),
		cmocka_unit_test(test_file_is_kept),
		cmocka_unit_test(test_copy_has_the_memory_and_its_own_random_numbers),
	};

	if (!vmm_kvm_usable()) {
		fprintf(stderr, "skipped: /dev/kvm can't be used here: %s\n", strerror(errno));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
