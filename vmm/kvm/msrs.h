// SPDX-License-Identifier: Apache-2.0
/* The model-specific registers that are part of a vCPU's snapshot. */
#ifndef RAMET_VMM_KVM_MSRS_H
#define RAMET_VMM_KVM_MSRS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define KVM_MSRS_MAX 64 /* maximum number of registers per vCPU in a snapshot */

#define MSR_TSC		     0x00000010u
#define MSR_TSC_ADJUST	     0x0000003bu
#define MSR_APIC_BASE	     0x0000001bu
#define MSR_SPEC_CTRL	     0x00000048u
#define MSR_PRED_CMD	     0x00000049u
#define MSR_UCODE_REV	     0x0000008bu
#define MSR_FLUSH_CMD	     0x0000010bu
#define MSR_TSX_CTRL	     0x00000122u
#define MSR_MISC_FEATURES    0x00000140u
#define MSR_SYSENTER_CS	     0x00000174u
#define MSR_SYSENTER_ESP     0x00000175u
#define MSR_SYSENTER_EIP     0x00000176u
#define MSR_MISC_ENABLE	     0x000001a0u
#define MSR_XFD		     0x000001c4u
#define MSR_XFD_ERR	     0x000001c5u
#define MSR_PAT		     0x00000277u
#define MSR_TSC_DEADLINE     0x000006e0u
#define MSR_XSS		     0x00000da0u
#define MSR_EFER	     0xc0000080u
#define MSR_STAR	     0xc0000081u
#define MSR_LSTAR	     0xc0000082u
#define MSR_CSTAR	     0xc0000083u
#define MSR_SYSCALL_MASK     0xc0000084u
#define MSR_FS_BASE	     0xc0000100u
#define MSR_GS_BASE	     0xc0000101u
#define MSR_KERNEL_GS_BASE   0xc0000102u
#define MSR_TSC_AUX	     0xc0000103u
#define MSR_HWCR	     0xc0010015u
#define MSR_VIRT_SPEC_CTRL   0xc001011fu
#define MSR_KVM_WALL_CLOCK   0x4b564d00u
#define MSR_KVM_SYSTEM_TIME  0x4b564d01u
#define MSR_KVM_STEAL_TIME   0x4b564d03u
#define MSR_KVM_PV_EOI	     0x4b564d04u
#define MSR_KVM_POLL_CONTROL 0x4b564d05u

/*
 * True when a snapshot may carry the register. A restore checks this, since KVM lets this process
 * write any register.
 */
bool msr_is_ours(uint32_t msr);

/*
 * Denies the guest writes to all registers except those that a snapshot carries and those that hold
 * no state; other writes fault. Call it before the VM's first vCPU is created. On a KVM without
 * filters it logs a warning, and values that the guest writes to other registers are lost in a
 * fork.
 */
int msrs_filter(int kvm_fd, int vm_fd, struct err *e);

/* Writes the registers of our list that this host's KVM knows to `out`, and their number to *n. */
int msrs_choose(int kvm_fd, uint32_t out[static KVM_MSRS_MAX], unsigned *n, struct err *e);

#endif
