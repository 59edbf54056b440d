// SPDX-License-Identifier: Apache-2.0
/*
 * The TSCs of a restored VM, on a fake of KVM's rules for TSC writes: the offsets of all vCPUs are
 * equal, however long the restore takes, and KVM can derive the guest's clock from them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "vmm/kvm/msrs.h"
#include "vmm/kvm/state.h"

#define SECOND 1000000000ull /* of the fake's TSC */
#define VCPUS  3
#define FD(i)  (1000 + (int)(i))

/* --- KVM: arch/x86/kvm/x86.c, kvm_synchronize_tsc and kvm_arch_tsc_set_attr ------------------- */

static struct {
	bool has_attribute;
	uint64_t now; /* the host's TSC */
	uint64_t offset[VCPUS], deadline_at[VCPUS];
	uint64_t last_offset, last_write, last_write_at;
	unsigned matched;
} kvm;

static void set_offset(unsigned i, uint64_t offset, bool matched)
{
	kvm.matched = matched ? kvm.matched + 1 : 0;
	kvm.offset[i] = kvm.last_offset = offset;
	kvm.last_write = kvm.now + offset;
	kvm.last_write_at = kvm.now;
}

static void write_tsc(unsigned i, uint64_t value)
{
	uint64_t expected = kvm.last_write + (kvm.now - kvm.last_write_at);
	bool matched = value < expected + SECOND && value + SECOND > expected;

	set_offset(i, matched ? kvm.last_offset : value - kvm.now, matched);
}

static int set_msrs(unsigned i, const struct kvm_msrs *m)
{
	for (unsigned n = 0; n < m->nmsrs; n++) {
		if (m->entries[n].index == MSR_TSC)
			write_tsc(i, m->entries[n].data);
		if (m->entries[n].index == MSR_TSC_DEADLINE)
			kvm.deadline_at[i] = m->entries[n].data - kvm.offset[i];
	}
	return (int)m->nmsrs;
}

static int attribute(unsigned i, bool write, const struct kvm_device_attr *attr)
{
	uint64_t *offset =
		(uint64_t *)(uintptr_t)attr->addr; /* NOLINT(performance-no-int-to-ptr) */

	if (!kvm.has_attribute) {
		errno = ENXIO;
		return -1;
	}
	assert_int_equal(attr->group, KVM_VCPU_TSC_CTRL);
	assert_int_equal(attr->attr, KVM_VCPU_TSC_OFFSET);
	if (write)
		set_offset(i, *offset, *offset == kvm.last_offset);
	else
		*offset = kvm.offset[i];
	return 0;
}

int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	unsigned i = (unsigned)(fd - FD(0));

	assert_true(i < VCPUS);
	switch (request) {
	case KVM_SET_MSRS:
		return set_msrs(i, arg);
	case KVM_GET_DEVICE_ATTR:
	case KVM_SET_DEVICE_ATTR:
		return attribute(i, request == KVM_SET_DEVICE_ATTR, arg);
	default:
		assert_int_equal(request, KVM_SET_VCPU_EVENTS);
		return 0;
	}
}

/* --- a restore -------------------------------------------------------------------------------- */

#define SAVED	 (500 * SECOND) /* the TSC of vCPU 0 in the snapshot */
#define DEADLINE (501 * SECOND)

/* Finishes one vCPU after another; `slow` passes between two of them. */
static void restore(uint64_t slow)
{
	static const struct kvm_vm new_vm = {.nvcpus = VCPUS};
	struct kvm_vm *vm = malloc(sizeof(*vm));
	struct vcpu_state *s = calloc(1, sizeof(*s));

	assert_true(vm && s);
	*vm = new_vm;
	for (unsigned i = 0; i < VCPUS; i++) {
		vm->vcpu[i].fd = FD(i);
		s->msrs.nmsrs = 2;
		s->msrs.entries[0].index = MSR_TSC;
		s->msrs.entries[0].data = SAVED + i; /* they were read one after another */
		s->msrs.entries[1].index = MSR_TSC_DEADLINE;
		s->msrs.entries[1].data = DEADLINE;
		assert_int_equal(vcpu_state_finish(vm, i, s, NULL), 0);
		kvm.now += slow;
	}
	free(s);
	free(vm);
}

/* KVM_GET_CLOCK reports KVM_CLOCK_TSC_STABLE when all vCPUs have matched. */
static void expect_equal(uint64_t offset)
{
	for (unsigned i = 0; i < VCPUS; i++) {
		assert_int_equal(kvm.offset[i], offset);
		assert_int_equal(kvm.deadline_at[i], DEADLINE - offset);
	}
	assert_int_equal(kvm.matched, VCPUS - 1);
}

static int new_kvm(void **state)
{
	memset(&kvm, 0, sizeof(kvm));
	kvm.has_attribute = true;
	kvm.now = 40000 * SECOND;
	return 0;
}

static void test_tscs_are_equal_after_a_restore(void **state)
{
	uint64_t began = kvm.now;

	restore(1000);
	expect_equal(SAVED - began);
}

static void test_tscs_are_equal_after_a_slow_restore(void **state)
{
	uint64_t began = kvm.now;

	restore(5 * SECOND);
	expect_equal(SAVED - began);
}

static void test_tscs_are_equal_if_the_blank_vm_had_nearly_the_same(void **state)
{
	uint64_t began = kvm.now;

	set_offset(0, SAVED + SECOND / 2 - began, false);
	restore(1000);
	expect_equal(SAVED - began);
}

static void test_kernel_without_the_attribute_matches_writes(void **state)
{
	uint64_t began = kvm.now;

	kvm.has_attribute = false;
	restore(1000);
	expect_equal(SAVED - began);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_tscs_are_equal_after_a_restore, new_kvm),
		cmocka_unit_test_setup(test_tscs_are_equal_after_a_slow_restore, new_kvm),
		cmocka_unit_test_setup(test_tscs_are_equal_if_the_blank_vm_had_nearly_the_same,
				       new_kvm),
		cmocka_unit_test_setup(test_kernel_without_the_attribute_matches_writes, new_kvm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
