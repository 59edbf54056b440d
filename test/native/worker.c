// SPDX-License-Identifier: Apache-2.0
/* The guest of worker.h: freestanding, linked to where the boot protocol's kernel lies. */
#include "test/native/worker.h"

#define PAGE	  4096u
#define DISK_REGS 0xd0000000u
#define QUEUE	  8u

enum { PRESENT = 1, WRITABLE = 2, USER = 4, LARGE = 0x80 };
enum { NEXT = 1, WRITE = 2 };
enum { DISK_IN = 0, DISK_OUT = 1, DISK_FLUSH = 4 };

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

static struct {
	struct desc desc[QUEUE];
	struct {
		uint16_t flags, idx, ring[QUEUE];
	} avail;
	struct {
		uint16_t flags, idx;
		struct {
			uint32_t id, len;
		} ring[QUEUE];
	} used __attribute__((aligned(4)));
} queue __attribute__((aligned(4096)));

static struct {
	uint32_t type, reserved;
	uint64_t sector;
	uint8_t status;
} request;

static uint64_t buffer[64];

/* --- Ring 0: everything below 4 GiB is the program's --- */

static uint64_t pml4[512] __attribute__((aligned(4096)));
static uint64_t pdpt[512] __attribute__((aligned(4096)));
static uint64_t pd[4][512] __attribute__((aligned(4096)));
static const uint64_t gdt[] = {
	0,
	0,
	0x00af9b000000ffff, /* 0x10: code */
	0x00cf93000000ffff, /* 0x18: data */
	0x00cff3000000ffff, /* 0x20: data of ring 3 */
	0x00affb000000ffff, /* 0x28: code of ring 3 */
};
static uint8_t stack[16384] __attribute__((aligned(16)));

void worker_start(void);
void worker_run(void);

__attribute__((noreturn)) void worker_start(void)
{
	struct {
		uint16_t limit;
		uint64_t base;
	} __attribute__((packed)) gdtr = {sizeof(gdt) - 1, (uint64_t)gdt};

	pml4[0] = (uint64_t)pdpt | PRESENT | WRITABLE | USER;
	for (unsigned i = 0; i < 4; i++) {
		pdpt[i] = (uint64_t)pd[i] | PRESENT | WRITABLE | USER;
		for (unsigned j = 0; j < 512; j++)
			pd[i][j] = ((uint64_t)i << 30 | (uint64_t)j << 21) | PRESENT | WRITABLE |
				   USER | LARGE;
	}
	/* rflags: I/O ports for all rings, interrupts off. */
	asm volatile("mov %0, %%cr3\n"
		     "lgdt %1\n"
		     "pushq $0x23\n"
		     "pushq %2\n"
		     "pushq $0x3002\n"
		     "pushq $0x2b\n"
		     "pushq %3\n"
		     "iretq\n"
		     :
		     : "r"(pml4), "m"(gdtr), "r"(stack + sizeof(stack) - 8), "r"(worker_run)
		     : "memory");
	__builtin_unreachable();
}

/* --- What the program says --- */

static void put(char c)
{
	asm volatile("outb %%al, %%dx" : : "a"(c), "d"((uint16_t)0x3f8));
}

static void say(const char *text)
{
	while (*text)
		put(*text++);
}

static void say_hex(uint64_t v)
{
	put(' ');
	for (int shift = 60; shift >= 0; shift -= 4)
		put("0123456789abcdef"[v >> shift & 15]);
}

/* --- The disk --- */

static volatile uint32_t *reg(uint32_t offset)
{
	return (volatile uint32_t *)(uint64_t)(DISK_REGS + offset);
}

static void set_address(uint32_t offset, const void *p)
{
	*reg(offset) = (uint32_t)(uint64_t)p;
	*reg(offset + 4) = 0;
}

static void start_disk(void)
{
	*reg(0x70) = 0;
	*reg(0x70) = 1;
	*reg(0x70) = 3;
	*reg(0x24) = 0;
	*reg(0x20) = 1u << 9; /* FLUSH */
	*reg(0x24) = 1;
	*reg(0x20) = 1; /* VERSION_1 */
	*reg(0x70) = 11;
	*reg(0x30) = 0;
	*reg(0x38) = QUEUE;
	set_address(0x80, queue.desc);
	set_address(0x90, &queue.avail);
	set_address(0xa0, &queue.used);
	*reg(0x44) = 1;
	queue.avail.flags = 1; /* no interrupts: we look */
	*reg(0x70) = 15;
}

static void disk(uint32_t type, uint64_t sector)
{
	uint16_t before = queue.used.idx;
	unsigned n = 0;

	request.type = type;
	request.sector = sector;
	request.status = 0xff;
	queue.desc[n++] = (struct desc){(uint64_t)&request, 16, NEXT, 1};
	if (type != DISK_FLUSH) {
		queue.desc[n] =
			(struct desc){(uint64_t)buffer, sizeof(buffer),
				      type == DISK_IN ? NEXT | WRITE : NEXT, (uint16_t)(n + 1)};
		n++;
	}
	queue.desc[n] = (struct desc){(uint64_t)&request.status, 1, WRITE, 0};
	queue.avail.ring[queue.avail.idx % QUEUE] = 0;
	__atomic_store_n(&queue.avail.idx, queue.avail.idx + 1, __ATOMIC_SEQ_CST);
	*reg(0x50) = 0;
	while (__atomic_load_n(&queue.used.idx, __ATOMIC_SEQ_CST) == before)
		;
	if (request.status)
		say("bad disk\n");
}

/* --- Orders --- */

static uint64_t looks;
static struct worker_mail hammer;

static void fill(const struct worker_mail *m)
{
	for (uint64_t i = 0; i < m->b / PAGE; i++)
		*(volatile uint64_t *)(m->a + i * PAGE) = m->c + i;
}

static uint64_t sum(const struct worker_mail *m)
{
	uint64_t s = 0;

	for (uint64_t i = 0; i < m->b / PAGE; i++)
		s += *(volatile uint64_t *)(m->a + i * PAGE);
	return s;
}

static uint64_t obey(const struct worker_mail *m)
{
	switch (m->order) {
	case WORKER_FILL:
		fill(m);
		return 0;
	case WORKER_SUM:
		return sum(m);
	case WORKER_WRITE:
		for (unsigned i = 0; i < 64; i++)
			buffer[i] = m->c;
		disk(DISK_OUT, m->a);
		return 0;
	case WORKER_READ:
		disk(DISK_IN, m->a);
		return buffer[0];
	case WORKER_HAMMER:
		hammer = *m;
		return 0;
	case WORKER_FLUSH:
		disk(DISK_FLUSH, 0);
		return 0;
	default:
		return looks;
	}
}

void worker_run(void)
{
	uint32_t last = 0;

	start_disk();
	say("ready\n");
	for (;;) {
		struct worker_mail m;

		looks++;
		if (hammer.b) {
			hammer.c++;
			fill(&hammer);
		}
		disk(DISK_IN, 0);
		m = *(struct worker_mail *)buffer;
		if (m.seq == last)
			continue;
		last = m.seq;
		uint64_t value = obey(&m);
		say("done");
		say_hex(m.seq);
		say_hex(value);
		say("\n");
	}
}

asm(".section .text.start, \"ax\"\n"
    ".globl _start\n"
    "_start:\n"
    "	and $-16, %rsp\n"
    "	call worker_start\n");
