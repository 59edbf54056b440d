// SPDX-License-Identifier: Apache-2.0
/*
 * The fields of KVM's structures that are part of a snapshot. One list of fields serves writing and
 * reading, so the two can't differ. A change to a list needs a new version in state.h.
 */
#include "vmm/state/state.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"

struct fields {
	struct wire *w;
	bool reading;
};

static void f_u8(struct fields *f, uint8_t *v)
{
	if (f->reading)
		*v = wire_get_u8(f->w);
	else
		wire_put_u8(f->w, *v);
}

static void f_u16(struct fields *f, uint16_t *v)
{
	if (f->reading)
		*v = wire_get_u16(f->w);
	else
		wire_put_u16(f->w, *v);
}

static void f_u32(struct fields *f, uint32_t *v)
{
	if (f->reading)
		*v = wire_get_u32(f->w);
	else
		wire_put_u32(f->w, *v);
}

/*
 * `v` points to a uint64_t or to KVM's __u64, which is unsigned long long instead of unsigned long.
 */
static void f_u64(struct fields *f, void *v)
{
	uint64_t n;

	memcpy(&n, v, sizeof(n));
	if (f->reading)
		n = wire_get_u64(f->w);
	else
		wire_put_u64(f->w, n);
	memcpy(v, &n, sizeof(n));
}

static void f_bytes(struct fields *f, void *p, size_t len)
{
	if (f->reading)
		wire_get_bytes(f->w, p, len);
	else
		wire_put_bytes(f->w, p, len);
}

/* A field with the number of items that follow. A number above `max` is an error. */
static void f_count(struct fields *f, uint32_t *n, uint32_t max)
{
	f_u32(f, n);
	if (*n > max) {
		f->w->bad = true;
		*n = 0;
	}
}

static void f_regs(struct fields *f, struct kvm_regs *r)
{
	f_u64(f, &r->rax);
	f_u64(f, &r->rbx);
	f_u64(f, &r->rcx);
	f_u64(f, &r->rdx);
	f_u64(f, &r->rsi);
	f_u64(f, &r->rdi);
	f_u64(f, &r->rsp);
	f_u64(f, &r->rbp);
	f_u64(f, &r->r8);
	f_u64(f, &r->r9);
	f_u64(f, &r->r10);
	f_u64(f, &r->r11);
	f_u64(f, &r->r12);
	f_u64(f, &r->r13);
	f_u64(f, &r->r14);
	f_u64(f, &r->r15);
	f_u64(f, &r->rip);
	f_u64(f, &r->rflags);
}

static void f_segment(struct fields *f, struct kvm_segment *s)
{
	f_u64(f, &s->base);
	f_u32(f, &s->limit);
	f_u16(f, &s->selector);
	f_u8(f, &s->type);
	f_u8(f, &s->present);
	f_u8(f, &s->dpl);
	f_u8(f, &s->db);
	f_u8(f, &s->s);
	f_u8(f, &s->l);
	f_u8(f, &s->g);
	f_u8(f, &s->avl);
	f_u8(f, &s->unusable);
}

static void f_dtable(struct fields *f, struct kvm_dtable *t)
{
	f_u64(f, &t->base);
	f_u16(f, &t->limit);
}

static void f_sregs(struct fields *f, struct kvm_sregs *s)
{
	f_segment(f, &s->cs);
	f_segment(f, &s->ds);
	f_segment(f, &s->es);
	f_segment(f, &s->fs);
	f_segment(f, &s->gs);
	f_segment(f, &s->ss);
	f_segment(f, &s->tr);
	f_segment(f, &s->ldt);
	f_dtable(f, &s->gdt);
	f_dtable(f, &s->idt);
	f_u64(f, &s->cr0);
	f_u64(f, &s->cr2);
	f_u64(f, &s->cr3);
	f_u64(f, &s->cr4);
	f_u64(f, &s->cr8);
	f_u64(f, &s->efer);
	f_u64(f, &s->apic_base);
	for (size_t i = 0; i < ARRAY_LEN(s->interrupt_bitmap); i++)
		f_u64(f, &s->interrupt_bitmap[i]);
}

static void f_xcrs(struct fields *f, struct kvm_xcrs *x)
{
	f_count(f, &x->nr_xcrs, KVM_MAX_XCRS);
	f_u32(f, &x->flags);
	for (uint32_t i = 0; i < x->nr_xcrs; i++) {
		f_u32(f, &x->xcrs[i].xcr);
		f_u64(f, &x->xcrs[i].value);
	}
}

static void f_debugregs(struct fields *f, struct kvm_debugregs *d)
{
	for (size_t i = 0; i < ARRAY_LEN(d->db); i++)
		f_u64(f, &d->db[i]);
	f_u64(f, &d->dr6);
	f_u64(f, &d->dr7);
	f_u64(f, &d->flags);
}

static void f_events(struct fields *f, struct kvm_vcpu_events *v)
{
	f_u8(f, &v->exception.injected);
	f_u8(f, &v->exception.nr);
	f_u8(f, &v->exception.has_error_code);
	f_u8(f, &v->exception.pending);
	f_u32(f, &v->exception.error_code);
	f_u8(f, &v->interrupt.injected);
	f_u8(f, &v->interrupt.nr);
	f_u8(f, &v->interrupt.soft);
	f_u8(f, &v->interrupt.shadow);
	f_u8(f, &v->nmi.injected);
	f_u8(f, &v->nmi.pending);
	f_u8(f, &v->nmi.masked);
	f_u32(f, &v->sipi_vector);
	f_u32(f, &v->flags);
	f_u8(f, &v->smi.smm);
	f_u8(f, &v->smi.pending);
	f_u8(f, &v->smi.smm_inside_nmi);
	f_u8(f, &v->smi.latched_init);
	f_u8(f, &v->triple_fault.pending);
	f_u8(f, &v->exception_has_payload);
	f_u64(f, &v->exception_payload);
}

static void f_cpuid(struct fields *f, struct cpuid_list *c)
{
	f_count(f, &c->nent, KVM_CPUID_MAX);
	for (uint32_t i = 0; i < c->nent; i++) {
		struct kvm_cpuid_entry2 *l = &c->entries[i];

		f_u32(f, &l->function);
		f_u32(f, &l->index);
		f_u32(f, &l->flags);
		f_u32(f, &l->eax);
		f_u32(f, &l->ebx);
		f_u32(f, &l->ecx);
		f_u32(f, &l->edx);
	}
}

static void f_msrs(struct fields *f, struct kvm_msr_values *m)
{
	f_count(f, &m->nmsrs, KVM_MSRS_MAX);
	for (uint32_t i = 0; i < m->nmsrs; i++) {
		f_u32(f, &m->entries[i].index);
		f_u64(f, &m->entries[i].data);
	}
}

static void f_vcpu(struct fields *f, struct vcpu_state *s)
{
	f_cpuid(f, &s->cpuid);
	f_u32(f, &s->tsc_khz);
	f_u32(f, &s->mp_state.mp_state);
	f_sregs(f, &s->sregs);
	f_regs(f, &s->regs);
	f_xcrs(f, &s->xcrs);
	f_debugregs(f, &s->debugregs);
	f_bytes(f, s->lapic.regs, sizeof(s->lapic.regs));
	f_msrs(f, &s->msrs);
	f_events(f, &s->events);
	f_count(f, &s->xsave_bytes, KVM_XSAVE_MAX);
	f_bytes(f, s->xsave.bytes, s->xsave_bytes);
}

static void f_pic(struct fields *f, struct kvm_pic_state *p)
{
	f_u8(f, &p->last_irr);
	f_u8(f, &p->irr);
	f_u8(f, &p->imr);
	f_u8(f, &p->isr);
	f_u8(f, &p->priority_add);
	f_u8(f, &p->irq_base);
	f_u8(f, &p->read_reg_select);
	f_u8(f, &p->poll);
	f_u8(f, &p->special_mask);
	f_u8(f, &p->init_state);
	f_u8(f, &p->auto_eoi);
	f_u8(f, &p->rotate_on_auto_eoi);
	f_u8(f, &p->special_fully_nested_mode);
	f_u8(f, &p->init4);
	f_u8(f, &p->elcr);
	f_u8(f, &p->elcr_mask);
}

static void f_ioapic(struct fields *f, struct kvm_ioapic_state *a)
{
	f_u64(f, &a->base_address);
	f_u32(f, &a->ioregsel);
	f_u32(f, &a->id);
	f_u32(f, &a->irr);
	for (size_t i = 0; i < ARRAY_LEN(a->redirtbl); i++)
		f_u64(f, &a->redirtbl[i].bits);
}

/* Omits count_load_time, a host time: KVM sets its own when the state is set. */
static void f_pit_channel(struct fields *f, struct kvm_pit_channel_state *c)
{
	f_u32(f, &c->count);
	f_u16(f, &c->latched_count);
	f_u8(f, &c->count_latched);
	f_u8(f, &c->status_latched);
	f_u8(f, &c->status);
	f_u8(f, &c->read_state);
	f_u8(f, &c->write_state);
	f_u8(f, &c->write_latch);
	f_u8(f, &c->rw_mode);
	f_u8(f, &c->mode);
	f_u8(f, &c->bcd);
	f_u8(f, &c->gate);
}

static void f_vm(struct fields *f, struct vm_state *s)
{
	for (uint32_t i = 0; i < ARRAY_LEN(s->chips); i++)
		s->chips[i].chip_id = i;
	f_pic(f, &s->chips[KVM_IRQCHIP_PIC_MASTER].chip.pic);
	f_pic(f, &s->chips[KVM_IRQCHIP_PIC_SLAVE].chip.pic);
	f_ioapic(f, &s->chips[KVM_IRQCHIP_IOAPIC].chip.ioapic);
	for (size_t i = 0; i < ARRAY_LEN(s->pit.channels); i++)
		f_pit_channel(f, &s->pit.channels[i]);
	f_u32(f, &s->pit.flags);
	f_u64(f, &s->clock_ns);
}

void vcpu_state_write(struct wire *w, const struct vcpu_state *s)
{
	struct fields f = {.w = w};

	f_vcpu(&f, (struct vcpu_state *)(uintptr_t)s);
}

int vcpu_state_read(struct wire *r, struct vcpu_state *s, struct err *e)
{
	struct fields f = {.w = r, .reading = true};

	/*
	 * Clears everything except the two big arrays, of which only the parts that were read are
	 * used.
	 */
	memset(&s->mp_state, 0,
	       offsetof(struct vcpu_state, xsave) - offsetof(struct vcpu_state, mp_state));
	f_vcpu(&f, s);
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the state of the vCPU is malformed");
	return 0;
}

static void put_extents(struct wire *w, const struct extents *x)
{
	wire_put_u32(w, x->n);
	for (uint32_t i = 0; i < x->n; i++) {
		wire_put_u32(w, (uint32_t)(x->extent[i].offset / RAM_PAGE));
		wire_put_u32(w, (uint32_t)(x->extent[i].bytes / RAM_PAGE));
	}
}

static int get_extents(struct wire *r, struct extents *x, uint32_t ram_mib)
{
	uint64_t ram = (uint64_t)ram_mib << 20, end = 0, sum = 0;
	uint32_t n = wire_get_u32(r);
	int result = 0;

	for (uint32_t i = 0; i < n && !r->bad && !result; i++) {
		uint64_t offset = (uint64_t)wire_get_u32(r) * RAM_PAGE;
		uint64_t bytes = (uint64_t)wire_get_u32(r) * RAM_PAGE;

		sum += bytes;
		if (offset < end || !bytes || offset + bytes > ram || sum > WORKING_SET_BYTES_MAX ||
		    i == WORKING_SET_EXTENTS_MAX)
			r->bad = true;
		else
			result = extents_add(x, offset, bytes);
		end = offset + bytes;
	}
	return result;
}

void working_set_write(struct wire *w, const struct working_set *s)
{
	put_extents(w, &s->used);
	put_extents(w, &s->written);
}

int working_set_read(struct wire *r, struct working_set *s, uint32_t ram_mib, struct err *e)
{
	if (get_extents(r, &s->used, ram_mib) || get_extents(r, &s->written, ram_mib))
		return err_set(e, ENOMEM, "read the working set");
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the working set is malformed");
	return 0;
}

void vm_state_write(struct wire *w, const struct vm_state *s)
{
	struct vm_state copy = *s;
	struct fields f = {.w = w};

	f_vm(&f, &copy);
}

int vm_state_read(struct wire *r, struct vm_state *s, struct err *e)
{
	struct fields f = {.w = r, .reading = true};

	*s = (struct vm_state){0};
	f_vm(&f, s);
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the state of the VM's chips is malformed");
	return 0;
}
