// SPDX-License-Identifier: Apache-2.0
/* Compares lists of CPUID leaves: KVM gives a guest whatever its list says. */
#ifndef RAMET_VMM_KVM_CPUID_H
#define RAMET_VMM_KVM_CPUID_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/kvm.h>

#include "base/err.h"

#define KVM_CPUID_MAX 256 /* as in the kernel: KVM_MAX_CPUID_ENTRIES */

/* A list of CPUID leaves: a struct kvm_cpuid2 with room for the most that KVM takes. */
struct cpuid_list {
	uint32_t nent;
	uint32_t padding;
	struct kvm_cpuid_entry2 entries[KVM_CPUID_MAX];
};

bool cpuid_same(const struct cpuid_list *a, const struct cpuid_list *b);

/*
 * Fails with -ENOTSUP and a sentence unless a vCPU with `offered` has all that `asked` promises a
 * guest: no leaf, no feature and no higher level than there.
 */
int cpuid_check_within(const struct cpuid_list *asked, const struct cpuid_list *offered,
		       struct err *e);

#endif
