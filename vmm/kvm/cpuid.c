// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/cpuid.h"

#include <errno.h>

#include "base/fd.h"

/* How a register of a leaf is compared. */
enum kind {
	BITS,  /* each bit is a feature that must be offered; default for leaves not in the table */
	LEVEL, /* a number, like the last leaf or a size: must not exceed the offered one */
	BYTES, /* four numbers, like the widths of addresses: none may exceed the offered one */
	SAME,  /* a name, id, count or offset, such as this vCPU's APIC id: must be equal */
	ANY,   /* describes a CPU and enables nothing: model, brand, caches, clock rates */
};

#define ALL_INDEXES UINT32_MAX

struct leaf_kinds {
	uint32_t function, index;
	enum kind eax, ebx, ecx, edx;
};

/* The first matching entry applies. */
static const struct leaf_kinds leaves[] = {
	{0x0, ALL_INDEXES, LEVEL, SAME, SAME, SAME},
	{0x1, ALL_INDEXES, ANY, SAME, BITS, BITS},
	{0x2, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x4, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x7, 0, LEVEL, BITS, BITS, BITS},
	{0xb, ALL_INDEXES, SAME, SAME, SAME, SAME},
	{0xd, 0, BITS, LEVEL, LEVEL, BITS},
	{0xd, 1, BITS, LEVEL, BITS, BITS},
	{0xd, ALL_INDEXES, SAME, SAME, SAME, SAME},
	{0x15, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x16, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x40000000, ALL_INDEXES, LEVEL, SAME, SAME, SAME},
	{0x80000000, ALL_INDEXES, LEVEL, SAME, SAME, SAME},
	{0x80000002, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x80000003, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x80000004, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x80000005, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x80000006, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x80000008, ALL_INDEXES, BYTES, BITS, SAME, BITS},
	{0x8000001d, ALL_INDEXES, ANY, ANY, ANY, ANY},
	{0x8000001e, ALL_INDEXES, SAME, SAME, SAME, SAME},
};

static const struct leaf_kinds *kinds_of(const struct kvm_cpuid_entry2 *l)
{
	static const struct leaf_kinds other = {.eax = BITS, .ebx = BITS, .ecx = BITS, .edx = BITS};

	for (size_t i = 0; i < ARRAY_LEN(leaves); i++)
		if (leaves[i].function == l->function &&
		    (leaves[i].index == ALL_INDEXES || leaves[i].index == l->index))
			return &leaves[i];
	return &other;
}

static bool same_leaf(const struct kvm_cpuid_entry2 *x, const struct kvm_cpuid_entry2 *y)
{
	return x->function == y->function && x->index == y->index && x->flags == y->flags &&
	       x->eax == y->eax && x->ebx == y->ebx && x->ecx == y->ecx && x->edx == y->edx;
}

bool cpuid_same(const struct cpuid_list *a, const struct cpuid_list *b)
{
	if (a->nent != b->nent)
		return false;
	for (uint32_t i = 0; i < a->nent; i++)
		if (!same_leaf(&a->entries[i], &b->entries[i]))
			return false;
	return true;
}

/*
 * Returns the leaf of `list` with the function, index and flags of `like`, or NULL. The flags say
 * whether the index is significant.
 */
static const struct kvm_cpuid_entry2 *find(const struct cpuid_list *list,
					   const struct kvm_cpuid_entry2 *like)
{
	for (uint32_t i = 0; i < list->nent; i++) {
		const struct kvm_cpuid_entry2 *l = &list->entries[i];

		if (l->function == like->function && l->index == like->index &&
		    l->flags == like->flags)
			return l;
	}
	return NULL;
}

static bool bytes_within(uint32_t asked, uint32_t offered)
{
	for (unsigned shift = 0; shift < 32; shift += 8)
		if ((asked >> shift & 0xff) > (offered >> shift & 0xff))
			return false;
	return true;
}

static bool within(enum kind kind, uint32_t asked, uint32_t offered)
{
	switch (kind) {
	case BITS:
		return !(asked & ~offered);
	case LEVEL:
		return asked <= offered;
	case BYTES:
		return bytes_within(asked, offered);
	case SAME:
		return asked == offered;
	default:
		return true;
	}
}

static int check_leaf(const struct kvm_cpuid_entry2 *asked, const struct kvm_cpuid_entry2 *offered,
		      struct err *e)
{
	const struct leaf_kinds *k = kinds_of(asked);
	const struct {
		const char *name;
		enum kind kind;
		uint32_t asked, offered;
	} registers[] = {
		{"eax", k->eax, asked->eax, offered->eax},
		{"ebx", k->ebx, asked->ebx, offered->ebx},
		{"ecx", k->ecx, asked->ecx, offered->ecx},
		{"edx", k->edx, asked->edx, offered->edx},
	};

	for (size_t i = 0; i < ARRAY_LEN(registers); i++)
		if (!within(registers[i].kind, registers[i].asked, registers[i].offered))
			return err_say(e, ENOTSUP,
				       "the snapshot needs a CPU that this host does not offer: "
				       "CPUID leaf 0x%x.%u has 0x%x in %s, here 0x%x",
				       asked->function, asked->index, registers[i].asked,
				       registers[i].name, registers[i].offered);
	return 0;
}

int cpuid_check_within(const struct cpuid_list *asked, const struct cpuid_list *offered,
		       struct err *e)
{
	for (uint32_t i = 0; i < asked->nent; i++) {
		const struct kvm_cpuid_entry2 *l = find(offered, &asked->entries[i]);
		int r;

		if (!l)
			return err_say(e, ENOTSUP,
				       "the snapshot needs a CPU that this host does not offer: "
				       "CPUID leaf 0x%x.%u is missing here",
				       asked->entries[i].function, asked->entries[i].index);
		r = check_leaf(&asked->entries[i], l, e);
		if (r)
			return r;
	}
	return 0;
}
