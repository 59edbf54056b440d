// SPDX-License-Identifier: Apache-2.0
/* Loads a kernel and everything it expects into guest memory. */
#ifndef RAMET_VMM_ARCH_X86_BOOT_H
#define RAMET_VMM_ARCH_X86_BOOT_H

#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/state.h"

struct boot_source {
	int kernel_fd;	     /* uncompressed ELF file */
	int initrd_fd;	     /* -1: none */
	const char *cmdline; /* the complete command line */
	unsigned vcpus;
};

/* A virtio device as described on the kernel's command line. */
struct boot_device {
	uint64_t addr;
	uint32_t irq;
};

/*
 * Loads the segments of an ELF file to their physical addresses. The file is hostile; every defect
 * is reported. `*entry` is its entry point, `*end` the first address after the kernel. Guest RAM
 * must be new: the parts of a segment that are not in the file are assumed to be zero.
 */
int elf_load(const struct gm *m, int fd, uint64_t *entry, uint64_t *end, struct err *e);

/*
 * Writes the kernel's command line to out[CMDLINE_SIZE]: first what this machine needs, then the
 * options in `client`, which therefore win.
 */
int boot_cmdline(char *out, const char *client, const struct boot_device *devices, unsigned count,
		 struct err *e);

/* Writes kernel, initramfs, boot parameters and tables into guest memory. */
int boot_load(const struct gm *m, const struct boot_source *src, uint64_t *entry, struct err *e);

/* Writes the MultiProcessor table for `vcpus` processors, which replaces ACPI. */
int mptable_write(const struct gm *m, unsigned vcpus, struct err *e);

/*
 * Turns the reset state of a vCPU into the state in which the 64-bit boot protocol starts a kernel
 * at `entry`. vCPUs other than 0 wait until the kernel starts them.
 */
void boot_vcpu_state(struct vcpu_state *s, unsigned index, uint64_t entry);

/*
 * Makes the CPUID leaves of vCPU `index` of `count`: what KVM supports, minus what a snapshot does
 * not carry, as one socket of `count` cores.
 */
void cpuid_for_vcpu(struct cpuid_list *out, const struct cpuid_list *supported, unsigned index,
		    unsigned count);

#endif
