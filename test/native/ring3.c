// SPDX-License-Identifier: Apache-2.0
#include "test/native/ring3.h"

#include "proto/platform.h"

#define BREAKPOINT 3
#define IRQ_BASE   0x20 /* vector of interrupt 0 */

void ring3_start(const uint8_t *boot_params);
void ring3_on_halt(void);
void ring3_on_irq(void);
void ring3_on_generation(void);

/* The compiler may call these. */
void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;

	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return start;
}

void *memset(void *to, int byte, size_t n)
{
	void *start = to;

	asm volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
	return start;
}

/* --- Ring 0: everything below 4 GiB is the program's --- */

enum { PRESENT = 1, WRITABLE = 2, USER = 4, LARGE = 0x80 };

static uint64_t pml4[512] __attribute__((aligned(4096)));
static uint64_t pdpt[512] __attribute__((aligned(4096)));
static uint64_t pd[4][512] __attribute__((aligned(4096)));

static uint64_t gdt[] = {
	0,
	0,
	0x00af9b000000ffff, /* 0x10: code */
	0x00cf93000000ffff, /* 0x18: data */
	0x00cff3000000ffff, /* 0x20: data of ring 3 */
	0x00affb000000ffff, /* 0x28: code of ring 3 */
	0x0000890000000000, /* 0x30: task segment; its base is filled in */
	0,
};

/* The task segment. Its bitmap lets ring 3 use all I/O ports below 0x800. */
static struct {
	uint32_t reserved;
	uint64_t rsp0;
	uint8_t unused[90];
	uint16_t bitmap_at;
	uint8_t bitmap[0x100], end;
} __attribute__((packed)) task = {.bitmap_at = 104, .end = 0xff};

struct gate {
	uint16_t low, selector;
	uint8_t stack, type;
	uint16_t middle;
	uint32_t high, reserved;
};

static struct gate idt[256] __attribute__((aligned(16)));
static uint8_t stack[32768] __attribute__((aligned(16)));
uint8_t ring0_stack[1024] __attribute__((aligned(16)));
volatile uint8_t ring3_is_copy;

/*
 * The handlers of the breakpoint, by which ring 3 halts until an interrupt arrives, and of the
 * interrupts. Those are enabled nowhere else, so their handler returns to ring 3 at once, to the
 * frame that the breakpoint has left at the top of the stack. The interrupt controllers acknowledge
 * interrupts by themselves. A system call or INT n would not do: a KVM that emulates ring 0 may not
 * know them.
 */
asm(".pushsection .text\n"
    "ring3_on_halt:\n"
    "	sti\n"
    "	hlt\n"
    "ring3_on_generation:\n"
    "	movb $1, ring3_is_copy\n"
    "ring3_on_irq:\n"
    "	mov $ring0_stack + 1024 - 40, %rsp\n"
    "	iretq\n"
    ".popsection\n");

__attribute__((noreturn)) void ring3_start(const uint8_t *boot_params)
{
	struct {
		uint16_t limit;
		uint64_t base;
	} __attribute__((packed)) gdtr = {sizeof(gdt) - 1, (uint64_t)gdt},
				  idtr = {sizeof(idt) - 1, (uint64_t)idt};
	uint64_t base = (uint64_t)&task;

	pml4[0] = (uint64_t)pdpt | PRESENT | WRITABLE | USER;
	for (unsigned i = 0; i < 4; i++) {
		pdpt[i] = (uint64_t)pd[i] | PRESENT | WRITABLE | USER;
		for (unsigned j = 0; j < 512; j++)
			pd[i][j] = ((uint64_t)i << 30 | (uint64_t)j << 21) | PRESENT | WRITABLE |
				   USER | LARGE;
	}
	gdt[6] |=
		(uint64_t)(sizeof(task) - 1) | (base & 0xffffff) << 16 | (base >> 24 & 0xff) << 56;
	task.rsp0 = (uint64_t)ring0_stack + sizeof(ring0_stack);
	/* rflags of ring 3: interrupts off. */
	asm volatile("mov %0, %%cr3\n"
		     "lgdt %1\n"
		     "lidt %2\n"
		     "mov $0x30, %%eax\n"
		     "ltr %%ax\n"
		     "pushq $0x23\n"
		     "pushq %3\n"
		     "pushq $2\n"
		     "pushq $0x2b\n"
		     "pushq %4\n"
		     "iretq\n"
		     :
		     : "r"(pml4), "m"(gdtr), "m"(idtr), "r"(stack + sizeof(stack) - 8),
		       "r"(ring3_run), "D"(boot_params)
		     : "rax", "memory");
	__builtin_unreachable();
}

/* --- Ring 3: interrupts --- */

static void set_gate(unsigned vector, void (*handler)(void), unsigned ring)
{
	uint64_t at = (uint64_t)handler;

	idt[vector] = (struct gate){.low = (uint16_t)at,
				    .selector = 0x10,
				    .type = (uint8_t)(0x8e | ring << 5),
				    .middle = (uint16_t)(at >> 16),
				    .high = (uint32_t)(at >> 32)};
}

void ring3_take_interrupts(uint16_t irqs)
{
	set_gate(BREAKPOINT, ring3_on_halt, 3);
	for (unsigned i = 0; i < 16; i++)
		set_gate(IRQ_BASE + i, ring3_on_irq, 0);
	set_gate(IRQ_BASE + PLATFORM_GENERATION_IRQ, ring3_on_generation, 0);
	/* Both 8259s: edges, own vectors, automatic end of interrupt; all others masked. */
	for (uint8_t i = 0; i < 2; i++) {
		uint16_t port = i ? 0xa0 : 0x20;

		out8(port, 0x11);
		out8(port + 1, (uint8_t)(IRQ_BASE + 8 * i));
		out8(port + 1, i ? 2 : 4);
		out8(port + 1, 3);
	}
	out8(0x21, (uint8_t) ~(irqs | 1u << 2)); /* 2 is the second one */
	out8(0xa1, (uint8_t) ~(irqs >> 8));
}

void ring3_halt(void)
{
	asm volatile("int3" : : : "memory");
}

asm(".pushsection .text.start, \"ax\"\n"
    ".globl _start\n"
    "_start:\n"
    "	and $-16, %rsp\n"
    "	mov %rsi, %rdi\n"
    "	call ring3_start\n"
    ".popsection\n");
