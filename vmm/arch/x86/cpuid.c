// SPDX-License-Identifier: Apache-2.0
/* CPUID leaves: Intel SDM volume 2 "CPUID", AMD APM volume 3 appendix E, Documentation/virt/kvm. */
#include "vmm/arch/x86/boot.h"

#include <string.h>

#define BIT(n) (1u << (n))

struct cpuid_build {
	struct cpuid_list *out;
	unsigned index, count; /* index of this vCPU, number of vCPUs */
	unsigned id_bits;      /* bits of an APIC id that identify the core */
	bool amd;
	uint32_t max_leaf;
};

static bool is_amd(const struct kvm_cpuid_entry2 *leaf0)
{
	return leaf0->ebx == 0x68747541 /* "Auth" */ || leaf0->ebx == 0x6f677948 /* "Hygo" */;
}

static void leaf_features(const struct cpuid_build *b, struct kvm_cpuid_entry2 *l)
{
	l->ebx = (l->ebx & 0xff00) | b->index << 24 | (1u << b->id_bits) << 16;
	/* No performance counters or nested virtualization; KVM does not implement MONITOR. */
	l->ecx &= ~(BIT(2) | BIT(3) | BIT(5) | BIT(15));
	/* x2APIC, TSC deadline timer and hypervisor: provided by KVM on every CPU. */
	l->ecx |= BIT(21) | BIT(24) | BIT(31);
	/* No machine checks and no memory type ranges: a snapshot does not carry their state. */
	l->edx &= ~(BIT(7) | BIT(12) | BIT(14) | BIT(28));
	if (b->count > 1)
		l->edx |= BIT(28);
}

static void leaf_extended_features(struct kvm_cpuid_entry2 *l)
{
	if (l->index == 0) {
		l->ebx &= ~(BIT(2) | BIT(4) | BIT(11) | BIT(25)); /* SGX, HLE, RTM, PT */
		/* WAITPKG, shadow stacks, key locker, bus lock, SGX launch, supervisor keys */
		l->ecx &= ~(BIT(5) | BIT(7) | BIT(23) | BIT(24) | BIT(30) | BIT(31));
		/* User interrupts, branch records, branch tracking, tiles, core capabilities */
		l->edx &= ~(BIT(5) | BIT(19) | BIT(20) | BIT(22) | BIT(24) | BIT(25) | BIT(30));
	} else if (l->index == 1) {
		l->eax &= ~(BIT(17) | BIT(21)); /* FRED, tiles */
		l->ecx = 0;
		l->edx &= ~(BIT(8) | BIT(18)); /* tiles, shadow stacks in supervisor mode */
	}
}

/* Levels 1 and 2 belong to one core, level 3 to all. Intel and AMD use the same layout. */
static void leaf_caches(const struct cpuid_build *b, struct kvm_cpuid_entry2 *l)
{
	unsigned level = (l->eax >> 5) & 7;

	if (!(l->eax & 0x1f))
		return;
	l->eax &= 0x3fff;
	if (level >= 3)
		l->eax |= (b->count - 1) << 14;
	if (l->function == 4)
		l->eax |= ((1u << b->id_bits) - 1) << 26;
}

/* Returns false for a sub-leaf to omit: a supervisor state component. */
static bool leaf_xsave(struct kvm_cpuid_entry2 *l)
{
	if (l->index == 1)
		l->ecx = l->edx = 0;
	return l->index < 2 || !(l->ecx & BIT(0));
}

static void leaf_kvm(struct kvm_cpuid_entry2 *l)
{
	/*
	 * No paravirtual page faults and no migration control (a snapshot does not carry their
	 * state), and no old KVM clock, which is the same clock with other register numbers.
	 */
	l->eax &= ~(BIT(0) | BIT(4) | BIT(10) | BIT(14) | BIT(17));
}

static void leaf_amd_features(const struct cpuid_build *b, struct kvm_cpuid_entry2 *l)
{
	/* SVM, OSVW, IBS, SKINIT, watchdog, LWP, node ids, performance counters */
	l->ecx &= ~(BIT(1) | BIT(2) | BIT(9) | BIT(10) | BIT(12) | BIT(13) | BIT(15) | BIT(19) |
		    BIT(23) | BIT(24) | BIT(28));
	if (b->amd && b->count > 1)
		l->ecx |= BIT(1); /* the "hyper-threads" of leaf 1 are cores */
}

/* Returns false for a leaf to omit. */
static bool edit_leaf(const struct cpuid_build *b, struct kvm_cpuid_entry2 *l)
{
	switch (l->function) {
	case 0x1:
		leaf_features(b, l);
		return true;
	case 0x4:
	case 0x8000001d:
		leaf_caches(b, l);
		return true;
	case 0x7:
		leaf_extended_features(l);
		return true;
	case 0xd:
		return leaf_xsave(l);
	case 0x40000001:
		leaf_kvm(l);
		return true;
	case 0x80000001:
		leaf_amd_features(b, l);
		return true;
	case 0x80000008:
		if (b->amd)
			l->ecx = b->id_bits << 12 | (b->count - 1);
		return true;
	case 0x8000001e:
		l->eax = l->ebx = b->index;
		l->ecx = 0;
		return true;
	case 0xa:  /* performance counters */
	case 0xb:  /* topology: replaced below */
	case 0x12: /* SGX */
	case 0x14: /* processor trace */
	case 0x19: /* key locker */
	case 0x1c: /* branch records */
	case 0x1d: /* tiles */
	case 0x1e:
	case 0x1f:	 /* topology */
	case 0x23:	 /* performance counters */
	case 0x8000000a: /* SVM */
	case 0x8000001b: /* instruction sampling */
	case 0x8000001f: /* memory encryption */
	case 0x80000022: /* performance counters */
	case 0x80000026: /* topology */
		return false;
	default:
		return true;
	}
}

static void add_leaf(struct cpuid_list *out, const struct kvm_cpuid_entry2 *l)
{
	if (out->nent < KVM_CPUID_MAX)
		out->entries[out->nent++] = *l;
}

/* Adds leaf 0xb: one thread per core, `count` cores in the package. */
static void add_topology(const struct cpuid_build *b)
{
	const struct kvm_cpuid_entry2 levels[] = {
		{.eax = 0, .ebx = 1, .ecx = 1 << 8},
		{.eax = b->id_bits, .ebx = b->count, .ecx = 2 << 8},
		{0},
	};

	for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		struct kvm_cpuid_entry2 l = levels[i];

		l.function = 0xb;
		l.index = i;
		l.ecx |= i;
		l.edx = b->index;
		l.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
		add_leaf(b->out, &l);
	}
}

void cpuid_for_vcpu(struct cpuid_list *out, const struct cpuid_list *supported, unsigned index,
		    unsigned count)
{
	struct cpuid_build b = {.out = out, .index = index, .count = count};

	while (1u << b.id_bits < count)
		b.id_bits++;
	out->nent = 0;
	out->padding = 0;
	for (uint32_t i = 0; i < supported->nent && i < KVM_CPUID_MAX; i++) {
		struct kvm_cpuid_entry2 l = supported->entries[i];

		if (l.function == 0) {
			b.amd = is_amd(&l);
			b.max_leaf = l.eax;
		}
		if (edit_leaf(&b, &l))
			add_leaf(out, &l);
	}
	if (b.max_leaf >= 0xb)
		add_topology(&b);
}
