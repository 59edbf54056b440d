// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/warden/request.h"

#define SLOTS 8

static struct warden_msg good(void)
{
	struct warden_msg m = {
		.version = WARDEN_VERSION, .type = WARDEN_SPAWN, .seq = 7, .slot = SLOTS - 1};

	m.spawn.vcpus = 2;
	m.spawn.ram_mib = 512;
	m.spawn.memory_max = 1024ull << 20;
	m.spawn.cpu_max_pct = 200;
	m.spawn.pids_max = 64;
	return m;
}

static void valid_request_is_accepted(void **state)
{
	struct warden_msg m = good(), out;
	struct err e;
	uint32_t seq;

	assert_int_equal(request_check(&out, &seq, &m, sizeof(m), SLOTS, &e), 0);
	assert_int_equal(seq, 7);
	assert_memory_equal(&m, &out, sizeof(m));
	m.type = WARDEN_RELEASE;
	memset(&m.spawn, 0xff, sizeof(m.spawn)); /* ignored for this type */
	assert_int_equal(request_check(&out, &seq, &m, sizeof(m), SLOTS, &e), 0);
}

#define FIELD(f) offsetof(struct warden_msg, f), sizeof(((struct warden_msg *)0)->f)

static const struct {
	size_t offset, size;
	uint64_t value;
	int error; /* 0: the request is valid */
	const char *says;
} cases[] = {
	{FIELD(version), 0, ENOTSUP, "the request has version 0, of an older Ramet"},
	{FIELD(version), WARDEN_VERSION + 1, ENOTSUP, "of a newer Ramet"},
	{FIELD(type), 0, EPROTO, "0 is not a request type"},
	{FIELD(type), WARDEN_REPLY, EPROTO, "64 is not a request type"},
	{FIELD(type), WARDEN_EXITED, EPROTO, "65 is not a request type"},
	{FIELD(type), UINT32_MAX, EPROTO, "4294967295 is not a request type"},
	{FIELD(seq), 0, EPROTO, "the seq of a request must not be 0"},
	{FIELD(slot), SLOTS, ERANGE, "slot 8 does not exist; the last is 7"},
	{FIELD(slot), UINT32_MAX, ERANGE, "slot 4294967295 does not exist"},
	{FIELD(slot), 0, 0, NULL},
	{FIELD(spawn.vcpus), 0, EINVAL, "vcpus is 0; it must be from 1 to 32"},
	{FIELD(spawn.vcpus), 32, 0, NULL},
	{FIELD(spawn.vcpus), 33, EINVAL, "vcpus is 33"},
	{FIELD(spawn.vcpus), UINT32_MAX, EINVAL, "vcpus"},
	{FIELD(spawn.ram_mib), 0, EINVAL, "ram_mib is 0; it must be from 128 to 65536"},
	{FIELD(spawn.ram_mib), 127, EINVAL, "ram_mib is 127"},
	{FIELD(spawn.ram_mib), 128, 0, NULL},
	{FIELD(spawn.ram_mib), 65537, EINVAL, "ram_mib is 65537"},
	{FIELD(spawn.ram_mib), UINT32_MAX, EINVAL, "ram_mib"},
	{FIELD(spawn.memory_max), 0, EINVAL, "memory_max is 0; it must be from 134217728"},
	{FIELD(spawn.memory_max), 128ull << 20, 0, NULL},
	{FIELD(spawn.memory_max), (128ull << 20) - 1, EINVAL, "memory_max"},
	{FIELD(spawn.memory_max), 1ull << 40, 0, NULL},
	{FIELD(spawn.memory_max), UINT64_MAX, EINVAL, "memory_max"},
	{FIELD(spawn.cpu_max_pct), 0, 0, NULL},
	{FIELD(spawn.cpu_max_pct), UINT32_MAX, EINVAL, "cpu_max_pct"},
	{FIELD(spawn.pids_max), 0, EINVAL, "pids_max is 0; it must be from 3 to 4096"},
	{FIELD(spawn.pids_max), 2, EINVAL, "pids_max is 2"},
	{FIELD(spawn.pids_max), 3, 0, NULL},
	{FIELD(spawn.pids_max), UINT32_MAX, EINVAL, "pids_max"},
};

static void each_field_is_checked(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct warden_msg m = good(), out;
		struct err e = {0};
		uint32_t seq;

		memcpy((char *)&m + cases[i].offset, &cases[i].value, cases[i].size);
		int r = request_check(&out, &seq, &m, sizeof(m), SLOTS, &e);
		if (r != -cases[i].error)
			fail_msg("case %zu: returned %d, \"%s\"", i, r, e.text);
		if (cases[i].says && !strstr(e.text, cases[i].says))
			fail_msg("case %zu: \"%s\" does not say \"%s\"", i, e.text, cases[i].says);
		assert_int_equal(seq, m.seq);
	}
}

static void memory_limit_is_checked(void **state)
{
	static const struct {
		uint64_t max;
		int result;
	} limits[] = {{0, -EINVAL},    {(128ull << 20) - 1, -EINVAL}, {128ull << 20, 0},
		      {1ull << 40, 0}, {(1ull << 40) + 1, -EINVAL},   {UINT64_MAX, -EINVAL}};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct warden_msg m = good(), out;
		struct err e = {0};
		uint32_t seq;

		m.type = WARDEN_MEMORY;
		m.memory.max = limits[i].max;
		assert_int_equal(request_check(&out, &seq, &m, sizeof(m), SLOTS, &e),
				 limits[i].result);
	}
}

static void priority_and_oom_mark_are_checked(void **state)
{
	static const struct {
		enum warden_type type;
		uint32_t value;
		int result;
	} values[] = {
		{WARDEN_PRIORITY, WARDEN_BACKGROUND, 0},
		{WARDEN_PRIORITY, WARDEN_NORMAL, 0},
		{WARDEN_PRIORITY, WARDEN_PRIORITIES, -EINVAL},
		{WARDEN_PRIORITY, UINT32_MAX, -EINVAL},
		{WARDEN_OOM, 0, 0},
		{WARDEN_OOM, 1, 0},
		{WARDEN_OOM, 2, -EINVAL},
		{WARDEN_OOM, UINT32_MAX, -EINVAL},
	};

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		struct warden_msg m = good(), out;
		struct err e = {0};
		uint32_t seq;

		m.type = values[i].type;
		m.priority.priority = values[i].value;
		assert_int_equal(request_check(&out, &seq, &m, sizeof(m), SLOTS, &e),
				 values[i].result);
	}
}

/* A packet that was truncated on receipt is passed with its original length. */
static void wrong_length_is_refused(void **state)
{
	unsigned char packet[2 * sizeof(struct warden_msg)] = {0};
	struct warden_msg m = good(), out;
	struct err e;
	uint32_t seq;

	memcpy(packet, &m, sizeof(m));
	for (size_t len = 0; len <= sizeof(packet); len++) {
		if (len == sizeof(m))
			continue;
		assert_int_equal(request_check(&out, &seq, packet, len, SLOTS, &e), -EPROTO);
		assert_int_equal(seq, len >= 12 ? 7 : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_request_is_accepted),
		cmocka_unit_test(each_field_is_checked),
		cmocka_unit_test(memory_limit_is_checked),
		cmocka_unit_test(priority_and_oom_mark_are_checked),
		cmocka_unit_test(wrong_length_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
