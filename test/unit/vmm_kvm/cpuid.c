// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/kvm/cpuid.h"

#define INDEXED KVM_CPUID_FLAG_SIGNIFCANT_INDEX

static const struct cpuid_list host = {
	.nent = 8,
	.entries =
		{
			{.function = 0, .eax = 0x16, .ebx = 0x756e6547},
			{.function = 1, .eax = 0x806f8, .ebx = 0x20800, .ecx = 0xf7, .edx = 0x1783},
			{.function = 4, .flags = INDEXED, .eax = 0x121},
			{.function = 7, .flags = INDEXED, .eax = 1, .ebx = 0xf0f0, .edx = 0x400},
			{.function = 0xd, .flags = INDEXED, .eax = 7, .ebx = 832, .ecx = 832},
			{.function = 0xd, .index = 2, .flags = INDEXED, .eax = 256, .ebx = 576},
			{.function = 0x40000001, .eax = 0xfe},
			{.function = 0x80000008, .eax = 0x3034, .ebx = 0x200},
		},
};

static struct cpuid_list list;

static struct kvm_cpuid_entry2 *leaf(uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < list.nent; i++)
		if (list.entries[i].function == function && list.entries[i].index == index)
			return &list.entries[i];
	fail();
	return NULL;
}

static int setup(void **state)
{
	list = host;
	return 0;
}

static void expect_taken(void)
{
	struct err e = {0};

	assert_int_equal(cpuid_check_within(&list, &host, &e), 0);
}

static void expect_refused(const char *part)
{
	struct err e = {0};

	assert_int_equal(cpuid_check_within(&list, &host, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, part));
	list = host;
}

static void test_equal_and_lesser_lists_are_accepted(void **state)
{
	expect_taken();
	assert_true(cpuid_same(&list, &host));
	leaf(0, 0)->eax = 0xd;
	leaf(1, 0)->eax = 0x50654;
	leaf(1, 0)->ecx &= ~0x10u;
	leaf(4, 0)->eax = 0x163;
	leaf(7, 0)->eax = 0;
	leaf(7, 0)->edx = 0;
	leaf(0xd, 0)->eax = 3;
	leaf(0xd, 0)->ebx = 576;
	leaf(0x40000001, 0)->eax = 8;
	leaf(0x80000008, 0)->eax = 0x302e;
	expect_taken();
	assert_false(cpuid_same(&list, &host));
	list.nent = 0;
	expect_taken();
}

static void test_each_additional_feature_is_refused(void **state)
{
	const struct {
		uint32_t function;
		size_t reg;
		const char *text;
	} features[] = {
		{1, offsetof(struct kvm_cpuid_entry2, ecx), "leaf 0x1.0 has"},
		{1, offsetof(struct kvm_cpuid_entry2, edx), "in edx"},
		{7, offsetof(struct kvm_cpuid_entry2, ebx), "leaf 0x7.0"},
		{7, offsetof(struct kvm_cpuid_entry2, ecx), "leaf 0x7.0"},
		{0xd, offsetof(struct kvm_cpuid_entry2, eax), "leaf 0xd.0"},
		{0x40000001, offsetof(struct kvm_cpuid_entry2, eax), "leaf 0x40000001.0"},
		{0x80000008, offsetof(struct kvm_cpuid_entry2, ebx), "leaf 0x80000008.0"},
	};

	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		for (unsigned bit = 0; bit < 32; bit++) {
			uint32_t *reg = (uint32_t *)((char *)leaf(features[i].function, 0) +
						     features[i].reg);

			if (*reg & 1u << bit)
				continue;
			*reg |= 1u << bit;
			expect_refused(features[i].text);
		}
	}
}

static void test_higher_level_or_other_name_is_refused(void **state)
{
	leaf(0, 0)->eax = 0x17;
	expect_refused("leaf 0x0.0 has 0x17 in eax, here 0x16");
	leaf(0, 0)->ebx = 0x68747541;
	expect_refused("in ebx");
	leaf(1, 0)->ebx = 0x1020800; /* APIC id of another vCPU */
	expect_refused("leaf 0x1.0");
	leaf(0xd, 0)->ecx = 8192;
	expect_refused("leaf 0xd.0");
	leaf(0x80000008, 0)->eax = 0x2f35; /* physical addresses of 53 bits, not 52 */
	expect_refused("leaf 0x80000008.0");
	leaf(0x80000008, 0)->eax = 0x3930;
	expect_refused("leaf 0x80000008.0");
	leaf(0x80000008, 0)->eax = 0x302e30;
	expect_refused("leaf 0x80000008.0");
	leaf(0xd, 2)->ebx = 640; /* this state is saved at another offset */
	expect_refused("leaf 0xd.2");
}

static void test_additional_leaf_is_refused(void **state)
{
	list.entries[list.nent++] = (struct kvm_cpuid_entry2){.function = 0xa, .eax = 7};
	expect_refused("leaf 0xa.0 is missing here");
	/* KVM would use this leaf for every index. */
	leaf(7, 0)->flags = 0;
	expect_refused("leaf 0x7.0 is missing here");
	/* A second entry for the same leaf is checked too. */
	list.entries[list.nent] = *leaf(1, 0);
	list.entries[list.nent++].ecx |= 1u << 31;
	expect_refused("leaf 0x1.0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_equal_and_lesser_lists_are_accepted, setup),
		cmocka_unit_test_setup(test_each_additional_feature_is_refused, setup),
		cmocka_unit_test_setup(test_higher_level_or_other_name_is_refused, setup),
		cmocka_unit_test_setup(test_additional_leaf_is_refused, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
