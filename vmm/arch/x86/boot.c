// SPDX-License-Identifier: Apache-2.0
/* Linux's 64-bit boot protocol (Documentation/x86/boot.rst, "64-bit BOOT PROTOCOL"). */
#include "vmm/arch/x86/boot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <asm/bootparam.h>

#include "base/file.h"
#include "vmm/arch/x86/layout.h"

#define PAGE	      4096ull
#define PTE_PRESENT   0x1ull
#define PTE_WRITE     0x2ull
#define PTE_LARGE     0x80ull
#define E820_USABLE   1
#define E820_RESERVED 2

/*
 * reboot=k: reboots through port 0x64, which the VMM serves. no_timer_check: skips a test of the
 * timer's interrupt, which takes long when each port access is an exit. tsc=reliable: no watchdog
 * for the TSC. io_delay=none: skips pauses between accesses, which old chips needed and which would
 * be exits here.
 */
#define MACHINE_CMDLINE "reboot=k no_timer_check tsc=reliable io_delay=none"

int boot_cmdline(char *out, const char *client, const struct boot_device *devices, unsigned count,
		 struct err *e)
{
	int len = snprintf(out, CMDLINE_SIZE, "%s", MACHINE_CMDLINE);

	for (unsigned i = 0; i < count && len < (int)CMDLINE_SIZE; i++)
		len += snprintf(out + len, CMDLINE_SIZE - len, " virtio_mmio.device=4K@0x%llx:%u",
				(unsigned long long)devices[i].addr, devices[i].irq);
	if (len < (int)CMDLINE_SIZE)
		len += snprintf(out + len, CMDLINE_SIZE - len, "%s%s", *client ? " " : "", client);
	if (len >= (int)CMDLINE_SIZE)
		return err_say(e, E2BIG,
			       "the kernel's command line is too long: %zu bytes were given, "
			       "the limit with the VMM's own options is %u",
			       strlen(client), CMDLINE_SIZE - 1);
	return 0;
}

/* Maps the first 4 GiB one to one. */
static void write_page_tables(const struct gm *m)
{
	const uint64_t flags = PTE_PRESENT | PTE_WRITE;
	uint64_t entry = PDPT_ADDR | flags;

	gm_write(m, PML4_ADDR, &entry, sizeof(entry));
	for (uint64_t i = 0; i < 4; i++) {
		entry = (PD_ADDR + i * PAGE) | flags;
		gm_write(m, PDPT_ADDR + i * sizeof(entry), &entry, sizeof(entry));
	}
	for (uint64_t i = 0; i < 4 * 512; i++) {
		entry = (i << 21) | flags | PTE_LARGE;
		gm_write(m, PD_ADDR + i * sizeof(entry), &entry, sizeof(entry));
	}
}

/* The protocol defines the selectors: code at 0x10, data at 0x18. A task segment must exist. */
static void write_gdt(const struct gm *m)
{
	static const uint64_t gdt[] = {
		0, 0, 0x00af9b000000ffffull, 0x00cf93000000ffffull, 0x00008b000000ffffull, 0,
	};

	gm_write(m, GDT_ADDR, gdt, sizeof(gdt));
}

static void add_range(struct boot_params *bp, uint64_t start, uint64_t end, uint32_t type)
{
	bp->e820_table[bp->e820_entries++] =
		(struct boot_e820_entry){.addr = start, .size = end - start, .type = type};
}

static void fill_memory_map(struct boot_params *bp, const struct gm *m)
{
	uint64_t low_end = m->bytes < GM_HOLE_START ? m->bytes : GM_HOLE_START;

	add_range(bp, 0, LOW_RAM_END, E820_USABLE);
	add_range(bp, LOW_RAM_END, KERNEL_MIN_ADDR, E820_RESERVED);
	add_range(bp, KERNEL_MIN_ADDR, low_end, E820_USABLE);
	if (m->bytes > low_end)
		add_range(bp, GM_HIGH_START, GM_HIGH_START + m->bytes - low_end, E820_USABLE);
}

/*
 * Loads the initramfs as high as possible below the hole, away from the area into which the kernel
 * grows.
 */
static int load_initrd(const struct gm *m, int fd, uint64_t kernel_end, struct boot_params *bp,
		       struct err *e)
{
	uint64_t top = m->bytes < GM_HOLE_START ? m->bytes : GM_HOLE_START;
	uint64_t bytes, addr;
	int r = file_size(fd, &bytes, e);

	if (r)
		return r;
	if (bytes > top || ((top - bytes) & ~(PAGE - 1)) < kernel_end)
		return err_say(e, ENOMEM, "%llu bytes don't fit into guest memory above the kernel",
			       (unsigned long long)bytes);
	addr = (top - bytes) & ~(PAGE - 1);
	r = file_read(fd, 0, m->base + addr, bytes, e);
	bp->hdr.ramdisk_image = (uint32_t)addr;
	bp->hdr.ramdisk_size = (uint32_t)bytes;
	return r;
}

static void fill_header(struct boot_params *bp, uint32_t cmdline_len)
{
	bp->hdr.type_of_loader = 0xff; /* not a registered boot loader */
	bp->hdr.boot_flag = 0xaa55;
	bp->hdr.header = 0x53726448; /* "HdrS" */
	bp->hdr.kernel_alignment = 0x1000000;
	bp->hdr.cmd_line_ptr = CMDLINE_ADDR;
	bp->hdr.cmdline_size = cmdline_len;
}

int boot_load(const struct gm *m, const struct boot_source *src, uint64_t *entry, struct err *e)
{
	struct boot_params bp = {0};
	size_t cmdline_len = strlen(src->cmdline);
	uint64_t end;
	int r;

	if (cmdline_len >= CMDLINE_SIZE)
		return err_say(e, E2BIG, "the kernel's command line is longer than %u bytes",
			       CMDLINE_SIZE - 1);
	r = elf_load(m, src->kernel_fd, entry, &end, e);
	if (r)
		return r;
	if (src->initrd_fd >= 0 && load_initrd(m, src->initrd_fd, end, &bp, e))
		return err_context(e, "the initramfs");
	fill_header(&bp, (uint32_t)cmdline_len);
	fill_memory_map(&bp, m);
	write_page_tables(m);
	write_gdt(m);
	if (!gm_write(m, CMDLINE_ADDR, src->cmdline, cmdline_len + 1) ||
	    !gm_write(m, BOOT_PARAMS_ADDR, &bp, sizeof(bp)))
		return err_say(e, ENOMEM, "guest memory is too small to boot a kernel in");
	return mptable_write(m, src->vcpus, e);
}
