// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <asm/bootparam.h>

#include <cmocka.h>

#include "vmm/arch/x86/boot.h"
#include "vmm/arch/x86/layout.h"

#define RAM_BYTES (16u << 20)
#define CODE_AT	  4096

struct kernel {
	Elf64_Ehdr h;
	Elf64_Phdr p[3];
};

static struct gm mem;

static int set_up(void **state)
{
	mem.bytes = RAM_BYTES;
	mem.base = calloc(1, RAM_BYTES);
	return mem.base ? 0 : -1;
}

static int tear_down(void **state)
{
	free(mem.base);
	return 0;
}

static struct kernel good_kernel(void)
{
	return (struct kernel){
		.h = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
		      .e_type = ET_EXEC,
		      .e_machine = EM_X86_64,
		      .e_entry = 0x200000,
		      .e_phoff = offsetof(struct kernel, p),
		      .e_phentsize = sizeof(Elf64_Phdr),
		      .e_phnum = 3},
		.p = {{.p_type = PT_NOTE, .p_offset = UINT64_MAX},
		      {.p_type = PT_LOAD,
		       .p_offset = CODE_AT,
		       .p_paddr = 0x200000,
		       .p_filesz = 4,
		       .p_memsz = 0x3000},
		      {.p_type = PT_LOAD,
		       .p_offset = CODE_AT + 4,
		       .p_paddr = 0x400000,
		       .p_filesz = 4,
		       .p_memsz = 4}},
	};
}

static int file_of(const void *data, size_t len, off_t bytes)
{
	int fd = memfd_create("kernel", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(pwrite(fd, data, len, 0), (ssize_t)len);
	return fd;
}

static int kernel_file(const struct kernel *k)
{
	int fd = file_of(k, sizeof(*k), CODE_AT + 8);

	assert_int_equal(pwrite(fd, "codedata", 8, CODE_AT), 8);
	return fd;
}

static int load(const struct kernel *k, struct err *e)
{
	int fd = kernel_file(k), r;
	uint64_t entry, end;

	r = elf_load(&mem, fd, &entry, &end, e);
	close(fd);
	return r;
}

static void test_valid_kernel_is_loaded(void **state)
{
	struct kernel k = good_kernel();
	int fd = kernel_file(&k);
	uint64_t entry, end;
	struct err e = {0};

	assert_int_equal(elf_load(&mem, fd, &entry, &end, &e), 0);
	assert_int_equal(entry, 0x200000);
	assert_int_equal(end, 0x400004);
	assert_memory_equal(mem.base + 0x200000, "code\0", 5);
	assert_memory_equal(mem.base + 0x400000, "data", 4);
	close(fd);
}

/* Each function makes one number of a valid kernel invalid, which the error must name. */
static void bad_magic(struct kernel *k)
{
	k->h.e_ident[1] = 'X';
}
static void bad_class(struct kernel *k)
{
	k->h.e_ident[EI_CLASS] = ELFCLASS32;
}
static void bad_machine(struct kernel *k)
{
	k->h.e_machine = EM_AARCH64;
}
static void bad_type(struct kernel *k)
{
	k->h.e_type = ET_REL;
}
static void bad_phentsize(struct kernel *k)
{
	k->h.e_phentsize = 1;
}
static void no_segments(struct kernel *k)
{
	k->h.e_phnum = 0;
}
static void many_segments(struct kernel *k)
{
	k->h.e_phnum = 65;
}
static void headers_past_end(struct kernel *k)
{
	k->h.e_phoff = 1 << 20;
}
static void headers_wrap(struct kernel *k)
{
	k->h.e_phoff = UINT64_MAX - 8;
}
static void nothing_to_load(struct kernel *k)
{
	k->p[1].p_type = k->p[2].p_type = PT_NOTE;
}
static void file_over_memory(struct kernel *k)
{
	k->p[1].p_filesz = k->p[1].p_memsz + 1;
}
static void offset_past_end(struct kernel *k)
{
	k->p[1].p_offset = CODE_AT + 6;
}
static void offset_wraps(struct kernel *k)
{
	k->p[1].p_offset = UINT64_MAX - 2;
}
static void over_low_memory(struct kernel *k)
{
	k->p[1].p_paddr = BOOT_PARAMS_ADDR;
}
static void past_ram(struct kernel *k)
{
	k->p[1].p_paddr = RAM_BYTES - 0x2fff;
}
static void address_wraps(struct kernel *k)
{
	k->p[1].p_paddr = UINT64_MAX - 2;
}
static void size_wraps(struct kernel *k)
{
	k->p[1].p_memsz = UINT64_MAX;
}
static void entry_nowhere(struct kernel *k)
{
	k->h.e_entry = RAM_BYTES;
}
static void entry_in_tables(struct kernel *k)
{
	k->h.e_entry = PML4_ADDR;
}

static const struct {
	void (*turn)(struct kernel *k);
	const char *says;
} bad_kernels[] = {
	{bad_magic, "not an ELF file"},
	{bad_class, "64-bit"},
	{bad_machine, "64-bit"},
	{bad_type, "type 1"},
	{bad_phentsize, "1 bytes"},
	{no_segments, "0 program headers"},
	{many_segments, "65 program headers"},
	{headers_past_end, "too short"},
	{headers_wrap, "beyond the maximum size"},
	{nothing_to_load, "nothing to load"},
	{file_over_memory, "more bytes in the file"},
	{offset_past_end, "past the end of the file"},
	{offset_wraps, "past the end of the file"},
	{over_low_memory, "below 1 MiB"},
	{past_ram, "not in guest memory"},
	{address_wraps, "not in guest memory"},
	{size_wraps, "not in guest memory"},
	{entry_nowhere, "below 1 MiB or outside"},
	{entry_in_tables, "below 1 MiB or outside"},
};

static void test_invalid_kernels_are_refused(void **state)
{
	for (size_t i = 0; i < sizeof(bad_kernels) / sizeof(bad_kernels[0]); i++) {
		struct kernel k = good_kernel();
		struct err e = {0};

		bad_kernels[i].turn(&k);
		assert_true(load(&k, &e) < 0);
		if (!strstr(e.text, bad_kernels[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, bad_kernels[i].says);
	}
}

static void test_truncated_kernel_is_refused(void **state)
{
	struct kernel k = good_kernel();
	uint64_t entry, end;

	for (off_t len = 0; len < CODE_AT + 8; len += len < (off_t)sizeof(k) ? 1 : 509) {
		int fd = kernel_file(&k);
		struct err e = {0};

		assert_int_equal(ftruncate(fd, len), 0);
		assert_true(elf_load(&mem, fd, &entry, &end, &e) < 0);
		assert_true(e.text[0]);
		close(fd);
	}
}

static void test_cmdline_lists_devices_and_is_limited(void **state)
{
	const struct boot_device devices[] = {{0xd0000000, 5}, {0xd0001000, 6}};
	char out[CMDLINE_SIZE], client[CMDLINE_SIZE];
	struct err e = {0};

	assert_int_equal(boot_cmdline(out, "console=hvc0", devices, 2, &e), 0);
	assert_non_null(strstr(out, " virtio_mmio.device=4K@0xd0000000:5 "));
	assert_non_null(strstr(out, " virtio_mmio.device=4K@0xd0001000:6 console=hvc0"));

	memset(client, 'x', sizeof(client));
	client[sizeof(client) - 1] = '\0';
	assert_int_equal(boot_cmdline(out, client, devices, 2, &e), -E2BIG);
	assert_non_null(strstr(e.text, "2047"));
	/* The longest command line that fits is not truncated. */
	for (size_t n = sizeof(client) - 1; boot_cmdline(out, client, devices, 2, &e); n--)
		client[n] = '\0';
	assert_int_equal(strlen(out), CMDLINE_SIZE - 1);
}

static void test_boot_parameters_describe_memory_and_initrd(void **state)
{
	struct kernel k = good_kernel();
	struct boot_source src = {.initrd_fd = file_of("initrd", 6, 5000), .vcpus = 2};
	const struct boot_params *bp = (void *)(mem.base + BOOT_PARAMS_ADDR);
	struct err e = {0};
	uint64_t entry;

	src.kernel_fd = kernel_file(&k);
	src.cmdline = "quiet";
	assert_int_equal(boot_load(&mem, &src, &entry, &e), 0);
	assert_int_equal(bp->hdr.header, 0x53726448);
	assert_string_equal((char *)mem.base + bp->hdr.cmd_line_ptr, "quiet");
	assert_int_equal(bp->hdr.ramdisk_size, 5000);
	assert_int_equal(bp->hdr.ramdisk_image % 4096, 0);
	assert_true(bp->hdr.ramdisk_image + bp->hdr.ramdisk_size <= RAM_BYTES);
	assert_memory_equal(mem.base + bp->hdr.ramdisk_image, "initrd", 6);
	assert_int_equal(bp->e820_entries, 3);
	assert_int_equal(bp->e820_table[2].addr, 0x100000);
	assert_int_equal(bp->e820_table[2].size, RAM_BYTES - 0x100000);
	close(src.kernel_fd);
	close(src.initrd_fd);
}

static void test_initrd_that_does_not_fit_is_refused(void **state)
{
	struct kernel k = good_kernel();
	struct boot_source src = {
		.initrd_fd = file_of("", 1, RAM_BYTES - 0x400000 + 1), .cmdline = "", .vcpus = 1};
	struct err e = {0};
	uint64_t entry;

	src.kernel_fd = kernel_file(&k);
	assert_int_equal(boot_load(&mem, &src, &entry, &e), -ENOMEM);
	assert_non_null(strstr(e.text, "initramfs"));
	close(src.kernel_fd);
	close(src.initrd_fd);
}

static uint8_t sum(const uint8_t *p, size_t len)
{
	uint8_t s = 0;

	while (len--)
		s += *p++;
	return s;
}

static void test_mptable_lists_every_vcpu(void **state)
{
	for (unsigned vcpus = 1; vcpus <= 32; vcpus++) {
		const uint8_t *floating = mem.base + MPTABLE_ADDR, *table;
		unsigned len, entries, at = 44, cpus = 0, boot_cpus = 0;
		struct err e = {0};

		assert_int_equal(mptable_write(&mem, vcpus, &e), 0);
		assert_memory_equal(floating, "_MP_", 4);
		assert_int_equal(sum(floating, 16), 0);
		table = mem.base + (floating[4] | floating[5] << 8 | floating[6] << 16);
		assert_memory_equal(table, "PCMP", 4);
		len = table[4] | table[5] << 8;
		entries = table[34] | table[35] << 8;
		assert_true(MPTABLE_ADDR + 16 + len <= MPTABLE_END);
		assert_int_equal(sum(table, len), 0);
		for (; entries; entries--) {
			if (table[at] == 0) {
				assert_int_equal(table[at + 1], cpus++);
				boot_cpus += table[at + 3] >> 1 & 1;
			}
			at += table[at] == 0 ? 20 : 8;
		}
		assert_int_equal(at, len);
		assert_int_equal(cpus, vcpus);
		assert_int_equal(boot_cpus, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_valid_kernel_is_loaded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_invalid_kernels_are_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_truncated_kernel_is_refused, set_up,
						tear_down),
		cmocka_unit_test(test_cmdline_lists_devices_and_is_limited),
		cmocka_unit_test_setup_teardown(test_boot_parameters_describe_memory_and_initrd,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_initrd_that_does_not_fit_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_mptable_lists_every_vcpu, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
