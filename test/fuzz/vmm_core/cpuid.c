// SPDX-License-Identifier: Apache-2.0
/*
 * Checks lists of CPUID leaves from a hostile image. The first byte is the number of the host's
 * leaves; the host's and the image's leaves follow, 28 bytes each. An accepted list must have no
 * leaf that the host lacks, and no feature bit that the host lacks.
 */
#include <stdlib.h>

#include "base/wire.h"
#include "vmm/kvm/cpuid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static void read_list(struct wire *r, struct cpuid_list *list, uint32_t most)
{
	list->nent = 0;
	while (list->nent < most && wire_left(r) >= 28) {
		struct kvm_cpuid_entry2 *l = &list->entries[list->nent++];

		l->function = wire_get_u32(r);
		l->index = wire_get_u32(r);
		l->flags = wire_get_u32(r);
		l->eax = wire_get_u32(r);
		l->ebx = wire_get_u32(r);
		l->ecx = wire_get_u32(r);
		l->edx = wire_get_u32(r);
	}
}

static const struct kvm_cpuid_entry2 *find(const struct cpuid_list *list,
					   const struct kvm_cpuid_entry2 *like)
{
	for (uint32_t i = 0; i < list->nent; i++)
		if (list->entries[i].function == like->function &&
		    list->entries[i].index == like->index && list->entries[i].flags == like->flags)
			return &list->entries[i];
	return NULL;
}

static void check(const struct kvm_cpuid_entry2 *asked, const struct kvm_cpuid_entry2 *has)
{
	expect(has);
	if (asked->function == 1)
		expect(!(asked->ecx & ~has->ecx) && !(asked->edx & ~has->edx));
	if (asked->function == 7)
		expect(!(asked->ebx & ~has->ebx) && !(asked->ecx & ~has->ecx));
	if (asked->function == 0x40000001 || asked->function == 0x80000001)
		expect(!(asked->eax & ~has->eax) && !(asked->ecx & ~has->ecx));
	if (asked->function == 0)
		expect(asked->eax <= has->eax && asked->ebx == has->ebx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cpuid_list host, image;
	struct wire r = wire_from(data, size);
	struct err e = {0};
	uint32_t n = wire_get_u8(&r);

	read_list(&r, &host, n);
	read_list(&r, &image, KVM_CPUID_MAX);
	expect(cpuid_check_within(&host, &host, &e) == 0 || host.nent > 1);
	if (cpuid_check_within(&image, &host, &e)) {
		expect(e.text[0]);
		expect(!cpuid_same(&image, &host) || host.nent > 1);
		return 0;
	}
	for (uint32_t i = 0; i < image.nent; i++)
		check(&image.entries[i], find(&host, &image.entries[i]));
	return 0;
}
