// SPDX-License-Identifier: Apache-2.0
/* Loads an arbitrary kernel file: it succeeds or fails with a message, and writes only to RAM. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/arch/x86/boot.h"
#include "vmm/arch/x86/layout.h"

#define RAM_BYTES (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static struct gm mem;
	uint64_t entry, end;
	struct err e = {0};

	if (fd < 0) {
		fd = memfd_create("kernel", MFD_CLOEXEC);
		/* on the heap, so that ASan guards its ends */
		mem.bytes = RAM_BYTES;
		mem.base = malloc(RAM_BYTES);
	}
	if (fd < 0 || !mem.base || ftruncate(fd, 0) < 0 ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	if (elf_load(&mem, fd, &entry, &end, &e)) {
		if (!e.code || !e.text[0])
			abort();
	} else if (entry < KERNEL_MIN_ADDR || entry >= RAM_BYTES || end > RAM_BYTES) {
		abort();
	}
	return 0;
}
