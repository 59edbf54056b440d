// SPDX-License-Identifier: Apache-2.0
/* Compares lists of CPUID leaves. A vCPU has exactly the leaves of the list that was set for it. */
#ifndef RAMET_VMM_KVM_CPUID_H
#define RAMET_VMM_KVM_CPUID_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/kvm.h>

#include "base/err.h"

#define KVM_CPUID_MAX 256 /* as in the kernel: KVM_MAX_CPUID_ENTRIES */

/* A list of CPUID leaves: a struct kvm_cpuid2 with room for the maximum that KVM accepts. */
struct cpuid_list {
	uint32_t nent;
	uint32_t padding;
	struct kvm_cpuid_entry2 entries[KVM_CPUID_MAX];
};

bool cpuid_same(const struct cpuid_list *a, const struct cpuid_list *b);

/*
 * Fails with -ENOTSUP and a message unless a vCPU with the leaves `offered` provides everything
 * that `asked` promises to a guest: every leaf of `asked` exists, no feature bit is missing and no
 * level is lower.
 */
int cpuid_check_within(const struct cpuid_list *asked, const struct cpuid_list *offered,
		       struct err *e);

#endif
