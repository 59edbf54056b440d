// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/msrs.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/bits.h"
#include "base/fd.h"
#include "base/log.h"

/*
 * The registers that a snapshot carries, in the order in which they are restored: the TSC comes
 * before the deadline that is compared with it. All other registers are out of the guest's reach,
 * since their CPUID features are masked (performance counters, nested virtualization, machine
 * checks, memory type ranges, paravirtual page faults).
 */
static const uint32_t wanted[] = {
	MSR_TSC,
	MSR_TSC_ADJUST,
	MSR_SPEC_CTRL,
	MSR_VIRT_SPEC_CTRL,
	MSR_MISC_FEATURES,
	MSR_SYSENTER_CS,
	MSR_SYSENTER_ESP,
	MSR_SYSENTER_EIP,
	MSR_MISC_ENABLE,
	MSR_PAT,
	MSR_TSX_CTRL,
	MSR_XSS,
	MSR_XFD,
	MSR_XFD_ERR,
	MSR_STAR,
	MSR_LSTAR,
	MSR_CSTAR,
	MSR_SYSCALL_MASK,
	MSR_KERNEL_GS_BASE,
	MSR_TSC_AUX,
	MSR_HWCR,
	MSR_KVM_WALL_CLOCK,
	MSR_KVM_SYSTEM_TIME,
	MSR_KVM_STEAL_TIME,
	MSR_KVM_PV_EOI,
	MSR_KVM_POLL_CONTROL,
	MSR_TSC_DEADLINE,
};

/*
 * Also writable: registers that a snapshot carries in kvm_sregs, and registers without state
 * (commands, and a revision that kernels clear before they read it).
 */
static const uint32_t writable_too[] = {
	MSR_APIC_BASE, MSR_EFER,      MSR_FS_BASE,   MSR_GS_BASE,
	MSR_PRED_CMD,  MSR_FLUSH_CMD, MSR_UCODE_REV,
};

bool msr_is_ours(uint32_t msr)
{
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (wanted[i] == msr)
			return true;
	return false;
}

/* True for registers that are always supported although some kernels leave them out of the list. */
static bool always_known(uint32_t msr)
{
	return msr == MSR_TSC || msr == MSR_PAT || msr == MSR_MISC_ENABLE;
}

static bool is_known(const struct kvm_msr_list *list, uint32_t msr)
{
	for (uint32_t i = 0; i < list->nmsrs; i++)
		if (list->indices[i] == msr)
			return true;
	return always_known(msr);
}

int msrs_choose(int kvm_fd, uint32_t out[static KVM_MSRS_MAX], unsigned *n, struct err *e)
{
	struct kvm_msr_list probe = {.nmsrs = 0};
	scoped_free struct kvm_msr_list *list = NULL;

	/* Without room, KVM fails with E2BIG and returns the number of registers. */
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, &probe) == 0 || errno != E2BIG)
		return err_set(e, errno, "query the number of registers that KVM saves");
	list = calloc(1, sizeof(*list) + probe.nmsrs * sizeof(list->indices[0]));
	if (!list)
		return err_set(e, ENOMEM, "list KVM's registers");
	list->nmsrs = probe.nmsrs;
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, list) < 0)
		return err_set(e, errno, "query the registers that KVM saves");
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (is_known(list, wanted[i]))
			out[(*n)++] = wanted[i];
	return 0;
}

/*
 * These ranges contain all registers that KVM knows. Outside of them the filter denies reads and
 * writes.
 */
#define WINDOW 0x2000u
static const uint32_t windows[] = {0, 0xc0000000u, 0xc0010000u, 0x4b564d00u};

static void allow(uint8_t *bitmap, uint32_t base, const uint32_t *msrs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (msrs[i] >= base && msrs[i] - base < WINDOW)
			bit_set(bitmap, msrs[i] - base, true);
}

/*
 * Disables the guest's performance counters. On kernels that are too old for this, they stay
 * enabled.
 */
static void disable_counters(int kvm_fd, int vm_fd)
{
	struct kvm_enable_cap cap = {.cap = KVM_CAP_PMU_CAPABILITY, .args = {KVM_PMU_CAP_DISABLE}};

	if (!(ioctl(kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_PMU_CAPABILITY) & KVM_PMU_CAP_DISABLE))
		return;
	if (ioctl(vm_fd, KVM_ENABLE_CAP, &cap) < 0)
		log_warn("can't disable the guest's performance counters: %s", strerror(errno));
}

static int set_filter(int vm_fd, struct err *e)
{
	static uint8_t every[WINDOW / 8];
	uint8_t writes[ARRAY_LEN(windows)][WINDOW / 8] = {{0}};
	struct kvm_msr_filter filter = {.flags = KVM_MSR_FILTER_DEFAULT_DENY};
	unsigned n = 0;

	memset(every, 0xff, sizeof(every));
	for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
		allow(writes[i], windows[i], wanted, ARRAY_LEN(wanted));
		allow(writes[i], windows[i], writable_too, ARRAY_LEN(writable_too));
		filter.ranges[n++] = (struct kvm_msr_filter_range){.flags = KVM_MSR_FILTER_READ,
								   .nmsrs = WINDOW,
								   .base = windows[i],
								   .bitmap = every};
		filter.ranges[n++] = (struct kvm_msr_filter_range){.flags = KVM_MSR_FILTER_WRITE,
								   .nmsrs = WINDOW,
								   .base = windows[i],
								   .bitmap = writes[i]};
	}
	if (ioctl(vm_fd, KVM_X86_SET_MSR_FILTER, &filter) < 0)
		return err_set(e, errno, "filter the guest's model-specific registers");
	return 0;
}

int msrs_filter(int kvm_fd, int vm_fd, struct err *e)
{
	disable_counters(kvm_fd, vm_fd);
	if (ioctl(kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_X86_MSR_FILTER) > 0)
		return set_filter(vm_fd, e);
	log_warn("this host's KVM can't filter model-specific registers: values that a guest "
		 "writes to registers outside the snapshot are lost in its forks");
	return 0;
}
