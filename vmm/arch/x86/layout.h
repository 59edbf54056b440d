// SPDX-License-Identifier: Apache-2.0
/* The layout of guest physical memory. */
#ifndef RAMET_VMM_ARCH_X86_LAYOUT_H
#define RAMET_VMM_ARCH_X86_LAYOUT_H

/* Below 1 MiB: what the boot protocol needs until the kernel has its own tables. */
#define GDT_ADDR	 0x500ull
#define BOOT_PARAMS_ADDR 0x7000ull
#define BOOT_STACK_TOP	 0x8ff0ull
#define PML4_ADDR	 0x9000ull
#define PDPT_ADDR	 0xa000ull
#define PD_ADDR		 0xb000ull /* four pages: 4 GiB in pages of 2 MiB */
#define CMDLINE_ADDR	 0x20000ull
#define CMDLINE_SIZE	 2048u /* Linux: COMMAND_LINE_SIZE, with the final NUL */
#define LOW_RAM_END	 0x9fc00ull
#define MPTABLE_ADDR	 0xf0000ull /* in the BIOS area, where kernels search for it */
#define MPTABLE_END	 0x100000ull
#define KERNEL_MIN_ADDR	 0x100000ull

/* The hole between 3 and 4 GiB. */
#define VIRTIO_ADDR   0xd0000000ull /* device i at VIRTIO_ADDR + i * VIRTIO_STRIDE */
#define VIRTIO_STRIDE 0x1000ull
#define IOAPIC_ADDR   0xfec00000u
#define LAPIC_ADDR    0xfee00000u

#endif
