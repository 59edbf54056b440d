// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/msrs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "vmm/kvm/vm.h"

/*
 * In the order they are restored: the TSC before the deadline that is compared with it. What is not
 * here is out of the guest's reach (its CPUID leaf is masked: performance counters, nested
 * virtualization, machine checks, memory type ranges, paravirtual page faults).
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
	MSR_KVM_WALL_CLOCK,
	MSR_KVM_SYSTEM_TIME,
	MSR_KVM_STEAL_TIME,
	MSR_KVM_PV_EOI,
	MSR_KVM_POLL_CONTROL,
	MSR_TSC_DEADLINE,
};

bool msr_is_ours(uint32_t msr)
{
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (wanted[i] == msr)
			return true;
	return false;
}

/* These are always there although some kernels leave them out of the list. */
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

int msrs_choose(struct kvm_host *h, struct err *e)
{
	struct kvm_msr_list probe = {.nmsrs = 0};
	scoped_free struct kvm_msr_list *list = NULL;

	/* Asked with no room, KVM says E2BIG and how much room it needs. */
	if (ioctl(h->fd, KVM_GET_MSR_INDEX_LIST, &probe) == 0 || errno != E2BIG)
		return err_set(e, errno, "ask KVM how many registers it saves");
	list = calloc(1, sizeof(*list) + probe.nmsrs * sizeof(list->indices[0]));
	if (!list)
		return err_set(e, ENOMEM, "list KVM's registers");
	list->nmsrs = probe.nmsrs;
	if (ioctl(h->fd, KVM_GET_MSR_INDEX_LIST, list) < 0)
		return err_set(e, errno, "ask KVM which registers it saves");
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (is_known(list, wanted[i]))
			h->msrs[h->nmsrs++] = wanted[i];
	return 0;
}
