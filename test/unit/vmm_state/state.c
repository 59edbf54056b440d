// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "proto/versions.h"
#include "vmm/state/state.h"

#define VCPUS	2
#define DEVICES 3
#define ROOM	(1u << 20)

static uint8_t file[ROOM];
static size_t file_len;

static void put_section(struct wire *w, uint32_t id, const char *body)
{
	size_t mark = state_section_begin(w, id);

	wire_put_bytes(w, body, strlen(body));
	state_section_end(w, mark);
}

static void write_file(void)
{
	struct err e = {0};
	struct wire w;

	state_begin(&w, file, sizeof(file), VCPUS, 256);
	put_section(&w, STATE_VM, "vm");
	put_section(&w, STATE_CMOS, "");
	put_section(&w, STATE_GENERATION, "g");
	put_section(&w, STATE_WORKING_SET, "w");
	for (unsigned i = 0; i < VCPUS; i++)
		put_section(&w, STATE_VCPU + i, "a vcpu");
	for (unsigned i = 0; i < DEVICES; i++)
		put_section(&w, STATE_DEVICE + i, "dev");
	file_len = (size_t)state_finish(&w, &e);
	assert_true(file_len > 0 && file_len < ROOM);
}

static void fix_checksum(uint8_t *f, size_t len)
{
	struct wire h = wire_on(f + 12, 8);

	wire_put_u32(&h, (uint32_t)(len - 24));
	wire_put_u32(&h, crc32c(0, f + 24, len - 24));
}

static void test_valid_file_is_parsed(void **state)
{
	struct state_file img;
	struct err e = {0};
	char body[6];

	write_file();
	assert_int_equal(state_parse(&img, file, file_len, DEVICES, &e), 0);
	assert_int_equal(img.vcpus, VCPUS);
	assert_int_equal(img.ram_mib, 256);
	wire_get_bytes(&state_find(&img, STATE_VCPU + 1)->body, body, 6);
	assert_memory_equal(body, "a vcpu", 6);
}

static void test_any_flipped_bit_is_refused(void **state)
{
	struct state_file img;

	write_file();
	for (size_t i = 0; i < file_len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			struct err e = {0};

			file[i] ^= 1 << bit;
			assert_true(state_parse(&img, file, file_len, DEVICES, &e) < 0);
			assert_true(e.text[0]);
			file[i] ^= 1 << bit;
		}
	}
}

static void test_truncated_file_is_refused(void **state)
{
	struct state_file img;

	write_file();
	for (size_t len = 0; len < file_len; len++) {
		scoped_free uint8_t *cut = malloc(len + 1);
		struct err e = {0};

		memcpy(cut, file, len);
		assert_true(state_parse(&img, cut, len, DEVICES, &e) < 0);
		/* It is refused even if its header has the length and checksum of what is left. */
		if (len >= 24) {
			fix_checksum(cut, len);
			assert_true(state_parse(&img, cut, len, DEVICES, &e) < 0);
		}
	}
}

/* Sets each byte of the body to 0xff, and corrects the checksum. */
static void test_hostile_body_is_refused_or_harmless(void **state)
{
	static uint8_t copy[ROOM];
	struct state_file img;

	write_file();
	for (size_t i = 24; i < file_len; i++) {
		struct err e = {0};

		memcpy(copy, file, file_len);
		copy[i] = 0xff;
		fix_checksum(copy, file_len);
		if (state_parse(&img, copy, file_len, DEVICES, &e) < 0)
			assert_true(e.text[0]);
		else
			assert_int_equal(img.nsections, 4 + VCPUS + DEVICES);
	}
}

static void test_other_devices_are_refused(void **state)
{
	struct state_file img;
	struct err e = {0};

	write_file();
	assert_int_equal(state_parse(&img, file, file_len, DEVICES + 1, &e), -EINVAL);
	assert_non_null(strstr(e.text, "0x203"));
	assert_int_equal(state_parse(&img, file, file_len, DEVICES - 1, &e), -EINVAL);
	assert_non_null(strstr(e.text, "9 sections, expected 8"));
}

static void test_other_versions_are_refused(void **state)
{
	struct state_file img;
	struct err e = {0};

	write_file();
	file[8] = IMAGE_STATE_VERSION + 1;
	assert_int_equal(state_parse(&img, file, file_len, DEVICES, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "of a newer Ramet"));
	file[8] = IMAGE_STATE_VERSION_OLDEST - 1;
	assert_int_equal(state_parse(&img, file, file_len, DEVICES, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "of an older Ramet"));
}

static void test_state_that_does_not_fit_is_an_error(void **state)
{
	uint8_t small[40];
	struct err e = {0};
	struct wire w;

	state_begin(&w, small, sizeof(small), 1, 128);
	put_section(&w, STATE_VM, "more than fits into it");
	assert_int_equal(state_finish(&w, &e), -E2BIG);
}

/* Sets every byte to another value, so that a missing or swapped field is detected. */
static void fill_pattern(void *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = (uint8_t)(i * 131 + 7);
}

static struct vcpu_state *full_vcpu(void)
{
	struct vcpu_state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	fill_pattern(s, sizeof(*s));
	s->cpuid.nent = KVM_CPUID_MAX;
	s->xcrs.nr_xcrs = KVM_MAX_XCRS;
	s->msrs.nmsrs = KVM_MSRS_MAX;
	s->xsave_bytes = KVM_XSAVE_MAX;
	return s;
}

/* A vCPU that is written, read and written again has the same bytes and fields. */
static void test_written_vcpu_is_read_back(void **state)
{
	static uint8_t first[ROOM], second[ROOM];
	scoped_free struct vcpu_state *in = full_vcpu(), *out = calloc(1, sizeof(*out));
	struct wire w = wire_on(first, sizeof(first)), r, again;
	struct err e = {0};

	vcpu_state_write(&w, in);
	assert_false(w.bad);
	r = wire_from(first, w.pos);
	assert_int_equal(vcpu_state_read(&r, out, &e), 0);
	again = wire_on(second, sizeof(second));
	vcpu_state_write(&again, out);
	assert_int_equal(w.pos, again.pos);
	assert_memory_equal(first, second, w.pos);
	assert_memory_equal(&in->regs, &out->regs, sizeof(in->regs));
	assert_memory_equal(in->sregs.interrupt_bitmap, out->sregs.interrupt_bitmap, 32);
	assert_memory_equal(&in->lapic, &out->lapic, sizeof(in->lapic));
	assert_memory_equal(&in->xsave, &out->xsave, sizeof(in->xsave));
	assert_int_equal(in->events.exception_payload, out->events.exception_payload);
	assert_int_equal(in->debugregs.dr7, out->debugregs.dr7);
	assert_int_equal(in->msrs.entries[KVM_MSRS_MAX - 1].data,
			 out->msrs.entries[KVM_MSRS_MAX - 1].data);
}

static void test_truncated_vcpu_is_refused(void **state)
{
	static uint8_t buf[ROOM];
	scoped_free struct vcpu_state *in = full_vcpu(), *out = calloc(1, sizeof(*out));
	struct wire w = wire_on(buf, sizeof(buf));

	vcpu_state_write(&w, in);
	for (size_t len = 0; len < w.pos; len += len < 64 ? 1 : 61) {
		struct wire r = wire_from(buf, len);
		struct err e = {0};

		assert_int_equal(vcpu_state_read(&r, out, &e), -EINVAL);
	}
}

/* Sets 4 bytes at each offset to 0xff in turn, so that each count once exceeds its array. */
static void test_counts_in_a_vcpu_are_checked(void **state)
{
	static uint8_t buf[ROOM];
	scoped_free struct vcpu_state *in = full_vcpu(), *out = calloc(1, sizeof(*out));
	struct wire w = wire_on(buf, sizeof(buf));

	vcpu_state_write(&w, in);
	for (size_t at = 0; at + 4 < w.pos; at++) {
		uint8_t saved[4];
		struct wire r = wire_from(buf, w.pos);
		struct err e = {0};

		memcpy(saved, buf + at, 4);
		memset(buf + at, 0xff, 4);
		/* If an invalid count is accepted, ASan or the checks below detect it. */
		if (!vcpu_state_read(&r, out, &e)) {
			assert_true(out->cpuid.nent <= KVM_CPUID_MAX);
			assert_true(out->msrs.nmsrs <= KVM_MSRS_MAX);
			assert_true(out->xcrs.nr_xcrs <= KVM_MAX_XCRS);
			assert_true(out->xsave_bytes <= KVM_XSAVE_MAX);
		}
		memcpy(buf + at, saved, 4);
	}
}

static void test_written_vm_is_read_back(void **state)
{
	static uint8_t first[4096], second[4096];
	struct vm_state in, out;
	struct wire w = wire_on(first, sizeof(first)), r, again;
	struct err e = {0};

	fill_pattern(&in, sizeof(in));
	vm_state_write(&w, &in);
	assert_false(w.bad);
	r = wire_from(first, w.pos);
	assert_int_equal(vm_state_read(&r, &out, &e), 0);
	again = wire_on(second, sizeof(second));
	vm_state_write(&again, &out);
	assert_int_equal(w.pos, again.pos);
	assert_memory_equal(first, second, w.pos);
	assert_int_equal(out.clock_ns, in.clock_ns);
	assert_int_equal(out.chips[2].chip_id, 2);
	assert_int_equal(out.chips[2].chip.ioapic.redirtbl[23].bits,
			 in.chips[2].chip.ioapic.redirtbl[23].bits);
	r = wire_from(first, w.pos - 1);
	assert_int_equal(vm_state_read(&r, &out, &e), -EINVAL);
}

static struct working_set a_set(void)
{
	struct working_set s = {0};

	assert_int_equal(extents_add(&s.used, 0, 3 * RAM_PAGE), 0);
	assert_int_equal(extents_add(&s.used, (128ull << 20) - RAM_PAGE, RAM_PAGE), 0);
	assert_int_equal(extents_add(&s.written, RAM_PAGE, RAM_PAGE), 0);
	return s;
}

static void test_written_working_set_is_read_back(void **state)
{
	struct working_set in = a_set(), out = {0};
	uint8_t buf[256];
	struct wire w = wire_on(buf, sizeof(buf)), r;
	struct err e = {0};

	working_set_write(&w, &in);
	assert_false(w.bad);
	r = wire_from(buf, w.pos);
	assert_int_equal(working_set_read(&r, &out, 128, &e), 0);
	assert_int_equal(out.used.n, 2);
	assert_int_equal(out.written.n, 1);
	assert_memory_equal(out.used.extent, in.used.extent, 2 * sizeof(*in.used.extent));
	assert_memory_equal(out.written.extent, in.written.extent, sizeof(*in.written.extent));
	working_set_free(&out);
	for (size_t len = 0; len < w.pos; len++) {
		r = wire_from(buf, len);
		assert_int_equal(working_set_read(&r, &out, 128, &e), -EINVAL);
		working_set_free(&out);
	}
	r = wire_from(buf, w.pos);
	assert_int_equal(working_set_read(&r, &out, 127, &e), -EINVAL); /* beyond the RAM */
	working_set_free(&out);
	working_set_free(&in);
}

static void test_hostile_working_set_is_refused(void **state)
{
	static const struct {
		const char *what;
		uint32_t n, first, pages, second, more;
	} bad[] = {
		{"no pages", 1, 0, 0, 0, 0},
		{"overlap", 2, 0, 2, 1, 1},
		{"descending", 2, 5, 1, 3, 1},
		{"beyond the RAM", 1, 1u << 18, 1, 0, 0},
		{"past the end of the RAM", 1, (1u << 18) - 1, 2, 0, 0},
		{"largest numbers", 1, UINT32_MAX, UINT32_MAX, 0, 0},
		{"too many pages", 1, 0, WORKING_SET_BYTES_MAX / RAM_PAGE + 1, 0, 0},
		{"too many pages in all", 2, 0, WORKING_SET_BYTES_MAX / RAM_PAGE, 9000, 1},
		{"more extents than bytes", UINT32_MAX, 0, 1, 2, 1},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct working_set out = {0};
		uint8_t buf[64];
		struct wire w = wire_on(buf, sizeof(buf)), r;
		struct err e = {0};

		wire_put_u32(&w, bad[i].n);
		wire_put_u32(&w, bad[i].first);
		wire_put_u32(&w, bad[i].pages);
		if (bad[i].n > 1) {
			wire_put_u32(&w, bad[i].second);
			wire_put_u32(&w, bad[i].more);
		}
		wire_put_u32(&w, 0);
		r = wire_from(buf, w.pos);
		if (working_set_read(&r, &out, 1024, &e) != -EINVAL)
			fail_msg("%s: accepted", bad[i].what);
		working_set_free(&out);
	}
}

static void test_working_set_has_a_limited_number_of_extents(void **state)
{
	static uint8_t buf[8 * (WORKING_SET_EXTENTS_MAX + 2)];

	for (uint32_t n = WORKING_SET_EXTENTS_MAX; n <= WORKING_SET_EXTENTS_MAX + 1; n++) {
		struct working_set in = {0}, out = {0};
		struct wire w = wire_on(buf, sizeof(buf)), r;
		struct err e = {0};

		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(extents_add(&in.used, 2ull * i * RAM_PAGE, RAM_PAGE), 0);
		working_set_write(&w, &in);
		assert_false(w.bad);
		r = wire_from(buf, w.pos);
		assert_int_equal(working_set_read(&r, &out, 1024, &e),
				 n > WORKING_SET_EXTENTS_MAX ? -EINVAL : 0);
		working_set_free(&out);
		working_set_free(&in);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_file_is_parsed),
		cmocka_unit_test(test_any_flipped_bit_is_refused),
		cmocka_unit_test(test_truncated_file_is_refused),
		cmocka_unit_test(test_hostile_body_is_refused_or_harmless),
		cmocka_unit_test(test_other_devices_are_refused),
		cmocka_unit_test(test_other_versions_are_refused),
		cmocka_unit_test(test_state_that_does_not_fit_is_an_error),
		cmocka_unit_test(test_written_vcpu_is_read_back),
		cmocka_unit_test(test_truncated_vcpu_is_refused),
		cmocka_unit_test(test_counts_in_a_vcpu_are_checked),
		cmocka_unit_test(test_written_vm_is_read_back),
		cmocka_unit_test(test_written_working_set_is_read_back),
		cmocka_unit_test(test_hostile_working_set_is_refused),
		cmocka_unit_test(test_working_set_has_a_limited_number_of_extents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
