// SPDX-License-Identifier: Apache-2.0
#include "vmm/arch/x86/boot.h"

#include <string.h>

#include "vmm/arch/x86/layout.h"
#include "vmm/kvm/msrs.h"

#define CR0_PE	 (1ull << 0)
#define CR0_ET	 (1ull << 4)
#define CR0_NE	 (1ull << 5)
#define CR0_PG	 (1ull << 31)
#define CR4_PAE	 (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)

#define LAPIC_LINT0  0x350
#define LAPIC_LINT1  0x360
#define LVT_NMI	     0x400u
#define LVT_EXTINT   0x700u
#define FAST_STRINGS 1u /* in MISC_ENABLE */

static const struct kvm_segment code_segment = {
	.limit = 0xffffffff,
	.selector = 0x10,
	.type = 0xb,
	.present = 1,
	.s = 1,
	.l = 1,
	.g = 1,
};
static const struct kvm_segment data_segment = {
	.limit = 0xffffffff,
	.selector = 0x18,
	.type = 0x3,
	.present = 1,
	.s = 1,
	.db = 1,
	.g = 1,
};
static const struct kvm_segment task_segment = {
	.limit = 0xffff,
	.selector = 0x20,
	.type = 0xb,
	.present = 1,
};

static void enter_long_mode(struct kvm_sregs *s)
{
	s->cs = code_segment;
	s->ds = s->es = s->fs = s->gs = s->ss = data_segment;
	s->tr = task_segment;
	s->gdt = (struct kvm_dtable){.base = GDT_ADDR, .limit = 6 * 8 - 1};
	s->idt = (struct kvm_dtable){0};
	s->cr0 = CR0_PE | CR0_ET | CR0_NE | CR0_PG;
	s->cr3 = PML4_ADDR;
	s->cr4 = CR4_PAE;
	s->efer = EFER_LME | EFER_LMA;
}

static void set_lvt(struct kvm_lapic_state *lapic, unsigned reg, uint32_t value)
{
	memcpy(lapic->regs + reg, &value, sizeof(value));
}

void boot_vcpu_state(struct vcpu_state *s, unsigned index, uint64_t entry)
{
	/*
	 * Sets the local APIC as firmware does: the PICs reach the CPU through LINT0 until the
	 * kernel changes it.
	 */
	set_lvt(&s->lapic, LAPIC_LINT0, LVT_EXTINT);
	set_lvt(&s->lapic, LAPIC_LINT1, LVT_NMI);
	s->msrs.nmsrs = 1;
	s->msrs.entries[0] = (struct kvm_msr_entry){.index = MSR_MISC_ENABLE, .data = FAST_STRINGS};
	if (index)
		return;
	enter_long_mode(&s->sregs);
	s->regs = (struct kvm_regs){
		.rip = entry,
		.rsp = BOOT_STACK_TOP,
		.rsi = BOOT_PARAMS_ADDR,
		.rflags = 0x2,
	};
}
