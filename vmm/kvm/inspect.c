// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/kvm/msrs.h"
#include "vmm/kvm/state.h"

#define EFLAGS_IF (1u << 9)

/* Layout of the steal time: Linux, Documentation/virt/kvm/x86/msr.rst. */
#define STEAL_ENABLED	1u
#define STEAL_ADDR	(~63ull)
#define STEAL_PREEMPTED 1u
struct steal_time {
	uint64_t steal;
	uint32_t version, flags;
	uint8_t preempted, pad[7];
};

static const char *name_of(const char *const *names, size_t n, uint64_t value)
{
	return value < n && names[value] ? names[value] : "?";
}

/* --- the thread ----------------------------------------------------------------------------- */

static void add_exit(const struct vcpu_activity *a, struct report *r)
{
	static const char *const names[] = {
		[KVM_EXIT_UNKNOWN] = "unknown",
		[KVM_EXIT_IO] = "port",
		[KVM_EXIT_DEBUG] = "debug",
		[KVM_EXIT_HLT] = "hlt",
		[KVM_EXIT_MMIO] = "MMIO",
		[KVM_EXIT_SHUTDOWN] = "triple fault",
		[KVM_EXIT_FAIL_ENTRY] = "entry failed",
		[KVM_EXIT_INTR] = "signal",
		[KVM_EXIT_INTERNAL_ERROR] = "internal error",
		[KVM_EXIT_SYSTEM_EVENT] = "system event",
	};
	int64_t reason = a->exit_reason;

	if (reason < 0)
		report_add(r, "%s", reason == -EINTR ? "signal" : strerror((int)-reason));
	else
		report_add(r, "%s (%" PRId64 ")",
			   name_of(names, ARRAY_LEN(names), (uint64_t)reason), reason);
	if (reason == KVM_EXIT_IO || reason == KVM_EXIT_MMIO)
		report_add(r, " at 0x%" PRIx64, a->exit_addr);
}

void vcpu_inspect_thread(unsigned i, const struct vcpu_activity *a, struct report *r)
{
	report_add(r, "vCPU %u: %s; %" PRIu64 " exits", i,
		   a->parked	 ? "stopped"
		   : a->in_guest ? "in KVM_RUN"
				 : "in the device model",
		   a->exits);
	if (a->exits) {
		report_add(r, ", the last %.3f ms ago: ", (double)a->exit_ns / 1e6);
		add_exit(a, r);
	}
	report_add(r, "\n");
}

/* --- the vCPU ------------------------------------------------------------------------------- */

static void add_registers(const struct vcpu_state *s, struct report *r)
{
	const struct kvm_regs *g = &s->regs;
	const struct kvm_sregs *x = &s->sregs;

	report_add(r, "  rip %llx rsp %llx rflags %llx (interrupts %s) cs %x:%llx cpl %u\n", g->rip,
		   g->rsp, g->rflags, g->rflags & EFLAGS_IF ? "on" : "off", x->cs.selector,
		   x->cs.base, x->ss.dpl);
	report_add(r, "  cr0 %llx cr2 %llx cr3 %llx cr4 %llx cr8 %llx efer %llx\n", x->cr0, x->cr2,
		   x->cr3, x->cr4, x->cr8, x->efer);
	report_add(r, "  rax %llx rbx %llx rcx %llx rdx %llx rsi %llx rdi %llx rbp %llx\n", g->rax,
		   g->rbx, g->rcx, g->rdx, g->rsi, g->rdi, g->rbp);
	report_add(r, "  r8 %llx r9 %llx r10 %llx r11 %llx r12 %llx r13 %llx r14 %llx r15 %llx\n",
		   g->r8, g->r9, g->r10, g->r11, g->r12, g->r13, g->r14, g->r15);
	report_add(r, "  fs base %llx gs base %llx idt %llx\n", x->fs.base, x->gs.base,
		   x->idt.base);
}

static void add_events(const struct vcpu_state *s, struct report *r)
{
	static const char *const states[] = {
		[KVM_MP_STATE_RUNNABLE] = "runnable",
		[KVM_MP_STATE_UNINITIALIZED] = "waiting for INIT",
		[KVM_MP_STATE_INIT_RECEIVED] = "INIT received",
		[KVM_MP_STATE_HALTED] = "halted",
		[KVM_MP_STATE_SIPI_RECEIVED] = "SIPI received",
	};
	const struct kvm_vcpu_events *v = &s->events;
	size_t before;

	report_add(r, "  mp_state %u (%s); pending:", s->mp_state.mp_state,
		   name_of(states, ARRAY_LEN(states), s->mp_state.mp_state));
	before = r->len;
	if (v->exception.injected || v->exception.pending)
		report_add(r, " exception %u (error code %x%s)", v->exception.nr,
			   v->exception.error_code, v->exception.injected ? ", injected" : "");
	if (v->interrupt.injected)
		report_add(r, " interrupt 0x%x (injected)", v->interrupt.nr);
	if (v->interrupt.shadow)
		report_add(r, " interrupts shadowed");
	if (v->nmi.injected || v->nmi.pending || v->nmi.masked)
		report_add(r, " NMI%s%s%s", v->nmi.pending ? " pending" : "",
			   v->nmi.injected ? " injected" : "", v->nmi.masked ? " masked" : "");
	if (v->smi.smm || v->smi.pending || v->smi.latched_init)
		report_add(r, " SMI (in SMM %u, pending %u, INIT latched %u)", v->smi.smm,
			   v->smi.pending, v->smi.latched_init);
	report_add(r, "%s\n", r->len == before ? " nothing" : "");
}

/* --- its local APIC and clocks -------------------------------------------------------------- */

enum apic_reg {
	APIC_ID = 0x20,
	APIC_TPR = 0x80,
	APIC_SVR = 0xf0,
	APIC_ISR = 0x100,
	APIC_IRR = 0x200,
	APIC_ESR = 0x280,
	APIC_ICR = 0x300,
	APIC_LVTT = 0x320,
	APIC_TMICT = 0x380,
	APIC_TMCCT = 0x390,
};

static uint32_t apic_reg(const struct vcpu_state *s, unsigned reg)
{
	uint32_t value;

	memcpy(&value, s->lapic.regs + reg, sizeof(value));
	return value;
}

/*
 * Adds the vectors whose bits are set. There are 256 bits, 32 in each register; registers are 16
 * bytes apart.
 */
static void add_vectors(const struct vcpu_state *s, unsigned first_reg, struct report *r)
{
	unsigned n = 0;

	for (unsigned vector = 0; vector < 256; vector++) {
		if (!(apic_reg(s, first_reg + vector / 32 * 16) >> vector % 32 & 1))
			continue;
		report_add(r, " %02x", vector);
		n++;
	}
	report_add(r, "%s", n ? "" : " none");
}

static void add_lapic(const struct vcpu_state *s, struct report *r)
{
	static const char *const modes[] = {"one shot", "periodic", "TSC deadline"};
	uint32_t lvtt = apic_reg(s, APIC_LVTT);

	report_add(r, "  LAPIC: IRR");
	add_vectors(s, APIC_IRR, r);
	report_add(r, ", ISR");
	add_vectors(s, APIC_ISR, r);
	report_add(r, ", id %x, TPR %x, SVR %x, ESR %x, ICR %x, base %llx\n", apic_reg(s, APIC_ID),
		   apic_reg(s, APIC_TPR), apic_reg(s, APIC_SVR), apic_reg(s, APIC_ESR),
		   apic_reg(s, APIC_ICR), s->sregs.apic_base);
	report_add(r, "  LAPIC timer: LVTT %x (%s, vector %x%s), count %u of %u\n", lvtt,
		   name_of(modes, ARRAY_LEN(modes), lvtt >> 17 & 3), lvtt & 0xff,
		   lvtt & 1u << 16 ? ", masked" : "", apic_reg(s, APIC_TMCCT),
		   apic_reg(s, APIC_TMICT));
}

static uint64_t msr_of(const struct vcpu_state *s, uint32_t msr)
{
	for (uint32_t i = 0; i < s->msrs.nmsrs && i < KVM_MSRS_MAX; i++)
		if (s->msrs.entries[i].index == msr)
			return s->msrs.entries[i].data;
	return 0;
}

static void add_tsc(const struct vcpu_state *s, struct report *r)
{
	uint64_t tsc = msr_of(s, MSR_TSC), deadline = msr_of(s, MSR_TSC_DEADLINE);
	double khz = s->tsc_khz ? s->tsc_khz : 1;

	report_add(r, "  TSC %" PRIx64 " at %u kHz, deadline ", tsc, s->tsc_khz);
	if (deadline)
		report_add(r, "%" PRIx64 " (%s%.3f ms)\n", deadline,
			   deadline > tsc ? "in " : "passed by ",
			   (double)(deadline > tsc ? deadline - tsc : tsc - deadline) / khz);
	else
		report_add(r, "none\n");
}

static void add_steal(const struct vcpu_state *s, const struct gm *mem, struct report *r)
{
	uint64_t at = msr_of(s, MSR_KVM_STEAL_TIME);
	struct steal_time t;

	if (!(at & STEAL_ENABLED))
		report_add(r, "  steal time: not used by the guest\n");
	else if (!gm_read(mem, at & STEAL_ADDR, &t, sizeof(t)))
		report_add(r, "  steal time: 0x%" PRIx64 " is not RAM\n", at);
	else
		report_add(r, "  steal time: %.3f ms%s\n", (double)t.steal / 1e6,
			   t.preempted & STEAL_PREEMPTED ? ", preempted now" : "");
}

void vcpu_inspect_state(const struct kvm_vm *vm, unsigned i, const struct gm *mem, struct report *r)
{
	scoped_free struct vcpu_state *s = calloc(1, sizeof(*s));
	struct err e;

	if (!s || vcpu_state_get(vm, i, s, &e) < 0) {
		report_add(r, "  state unavailable: %s\n", s ? e.text : "no memory");
		return;
	}
	add_registers(s, r);
	add_events(s, r);
	add_lapic(s, r);
	add_tsc(s, r);
	add_steal(s, mem, r);
}

/* --- the chips ------------------------------------------------------------------------------ */

static void add_ioapic(const struct kvm_ioapic_state *io, struct report *r)
{
	for (unsigned pin = 0; pin < KVM_IOAPIC_NUM_PINS; pin++) {
		bool pending = io->irr >> pin & 1;

		if (io->redirtbl[pin].fields.mask && !pending)
			continue;
		report_add(r, "  pin %u: vector %x to %x (%s), mode %u, %s%s%s%s\n", pin,
			   io->redirtbl[pin].fields.vector, io->redirtbl[pin].fields.dest_id,
			   io->redirtbl[pin].fields.dest_mode ? "logical" : "physical",
			   io->redirtbl[pin].fields.delivery_mode,
			   io->redirtbl[pin].fields.trig_mode ? "level" : "edge",
			   io->redirtbl[pin].fields.mask ? ", masked" : "",
			   pending ? ", pending" : "",
			   io->redirtbl[pin].fields.remote_irr ? ", not acknowledged" : "");
	}
}

void chips_inspect(const struct kvm_vm *vm, struct report *r)
{
	struct vm_state s;
	struct err e;

	if (vm_state_get(vm, &s, &e) < 0) {
		report_add(r, "interrupt controllers: %s\n", e.text);
		return;
	}
	report_add(r, "I/O APIC: id %x, pending %x; KVM's clock %.3f ms, %s\n",
		   s.chips[2].chip.ioapic.id, s.chips[2].chip.ioapic.irr, (double)s.clock_ns / 1e6,
		   s.tsc_stable ? "from equal TSCs" : "not from the TSC");
	add_ioapic(&s.chips[2].chip.ioapic, r);
	for (unsigned i = 0; i < 2; i++)
		report_add(r, "i8259 %u: IRR %02x ISR %02x mask %02x\n", i, s.chips[i].chip.pic.irr,
			   s.chips[i].chip.pic.isr, s.chips[i].chip.pic.imr);
}
