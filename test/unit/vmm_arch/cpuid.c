// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/arch/x86/boot.h"

static struct cpuid_list host, guest;

static struct kvm_cpuid_entry2 *add(uint32_t function, uint32_t index)
{
	struct kvm_cpuid_entry2 *l = &host.entries[host.nent++];

	*l = (struct kvm_cpuid_entry2){.function = function, .index = index};
	return l;
}

static const struct kvm_cpuid_entry2 *find(uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < guest.nent; i++)
		if (guest.entries[i].function == function && guest.entries[i].index == index)
			return &guest.entries[i];
	return NULL;
}

/* Makes a host that offers every feature. */
static void offer_all(bool amd)
{
	struct kvm_cpuid_entry2 *l;

	host.nent = 0;
	l = add(0, 0);
	l->eax = 0x1f;
	l->ebx = amd ? 0x68747541 : 0x756e6547;
	l = add(1, 0);
	l->eax = l->ebx = l->ecx = l->edx = UINT32_MAX;
	add(4, 0)->eax = 0x121;
	add(4, 3)->eax = 0x163;
	l = add(7, 0);
	l->ebx = l->ecx = l->edx = UINT32_MAX;
	add(0xa, 0)->eax = 7;
	add(0xb, 0)->edx = 77;
	add(0x1f, 0)->edx = 77;
	l = add(0xd, 1);
	l->ecx = l->edx = UINT32_MAX;
	add(0xd, 11)->ecx = 1;
	add(0x40000001, 0)->eax = UINT32_MAX;
	add(0x80000001, 0)->ecx = UINT32_MAX;
	add(0x80000008, 0);
	add(0x8000000a, 0)->edx = UINT32_MAX;
	add(0x8000001e, 0);
}

static void test_topology_matches_the_number_of_vcpus(void **state)
{
	offer_all(false);
	for (unsigned n = 1; n <= 32; n++) {
		for (unsigned i = 0; i < n; i++) {
			const struct kvm_cpuid_entry2 *core;

			cpuid_for_vcpu(&guest, &host, i, n);
			core = find(0xb, 1);
			assert_non_null(core);
			assert_int_equal(find(1, 0)->ebx >> 24, i);
			assert_int_equal(core->edx, i);
			assert_int_equal(core->ebx, n);
			assert_true(1u << core->eax >= n);
			assert_int_equal(find(4, 3)->eax >> 14 & 0xfff, n - 1);
			assert_int_equal(find(4, 0)->eax >> 14 & 0xfff, 0);
		}
	}
	assert_null(find(0x1f, 0));
}

static void test_amd_leaves_have_the_topology(void **state)
{
	offer_all(true);
	cpuid_for_vcpu(&guest, &host, 3, 4);
	assert_int_equal(find(0x80000008, 0)->ecx, 2 << 12 | 3);
	assert_int_equal(find(0x8000001e, 0)->eax, 3);
	assert_true(find(0x80000001, 0)->ecx & 2);
	offer_all(false);
	cpuid_for_vcpu(&guest, &host, 3, 4);
	assert_false(find(0x80000001, 0)->ecx & 2);
}

/* A feature whose state a snapshot cannot hold is not offered, even if the host has it. */
static void test_features_missing_from_snapshots_are_masked(void **state)
{
	offer_all(false);
	cpuid_for_vcpu(&guest, &host, 0, 2);
	assert_int_equal(find(1, 0)->ecx & (1u << 5 | 1u << 3 | 1u << 15), 0);
	assert_int_equal(find(1, 0)->edx & (1u << 7 | 1u << 12 | 1u << 14), 0);
	assert_int_equal(find(7, 0)->ecx & (1u << 5 | 1u << 7), 0);
	assert_int_equal(find(0x80000001, 0)->ecx & 4, 0);
	assert_int_equal(find(0x40000001, 0)->eax & (1u << 4 | 1u << 14), 0);
	assert_true(find(0x40000001, 0)->eax & 1u << 3);
	assert_int_equal(find(0xd, 1)->ecx, 0);
	assert_null(find(0xd, 11));
	assert_null(find(0xa, 0));
	assert_null(find(0x8000000a, 0));
	/* x2APIC, deadline timer, hypervisor */
	assert_int_equal(find(1, 0)->ecx >> 31 & find(1, 0)->ecx >> 24 & find(1, 0)->ecx >> 21, 1);
}

/* If the host's list is full, there is no room for the topology, and it is left out. */
static void test_full_list_is_not_overrun(void **state)
{
	offer_all(false);
	while (host.nent < KVM_CPUID_MAX)
		add(2, host.nent);
	cpuid_for_vcpu(&guest, &host, 0, 1);
	assert_true(guest.nent <= KVM_CPUID_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_topology_matches_the_number_of_vcpus),
		cmocka_unit_test(test_amd_leaves_have_the_topology),
		cmocka_unit_test(test_features_missing_from_snapshots_are_masked),
		cmocka_unit_test(test_full_list_is_not_overrun),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
