// SPDX-License-Identifier: Apache-2.0
/* Puts a kernel and all that it expects to find into guest memory. */
#ifndef RAMET_VMM_ARCH_X86_BOOT_H
#define RAMET_VMM_ARCH_X86_BOOT_H

#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/state.h"

struct boot_source {
	int kernel_fd;	     /* uncompressed ELF file */
	int initrd_fd;	     /* -1: none */
	const char *cmdline; /* whole */
	unsigned vcpus;
};

/* A virtio device as the kernel is told of it on its command line. */
struct boot_device {
	uint64_t addr;
	uint32_t irq;
};

/*
 * Loads the segments of an ELF file to their physical addresses. The file is hostile: whatever is
 * wrong with it is said. `*entry` is where it starts, `*end` the first address after it. Guest RAM
 * must be new, since what the file leaves out of a segment is taken to be zero already.
 */
int elf_load(const struct gm *m, int fd, uint64_t *entry, uint64_t *end, struct err *e);

/*
 * The kernel's command line into out[CMDLINE_SIZE]: first what this machine needs, then `client`,
 * so that the client has the last word.
 */
int boot_cmdline(char *out, const char *client, const struct boot_device *devices, unsigned count,
		 struct err *e);

/* Everything in memory: kernel, initramfs, boot parameters, tables. */
int boot_load(const struct gm *m, const struct boot_source *src, uint64_t *entry, struct err *e);

/* The MultiProcessor table for `vcpus` processors; it stands in for ACPI. */
int mptable_write(const struct gm *m, unsigned vcpus, struct err *e);

/*
 * Makes of a vCPU's reset state the one in which the 64-bit boot protocol starts a kernel at
 * `entry`. vCPUs other than 0 wait for it to wake them.
 */
void boot_vcpu_state(struct vcpu_state *s, unsigned index, uint64_t entry);

/*
 * The CPUID leaves of vCPU `index` of `count`: what KVM supports, less what an image does not
 * carry, as one socket of `count` cores.
 */
void cpuid_for_vcpu(struct cpuid_list *out, const struct cpuid_list *supported, unsigned index,
		    unsigned count);

#endif
