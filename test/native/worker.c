// SPDX-License-Identifier: Apache-2.0
/* The guest of worker.h. It takes no interrupts and never halts. */
#include "test/native/worker.h"

#include "proto/net.h"
#include "test/native/ring3.h"

#define PAGE	     4096u
#define DISK_REGS    0xd0000000u
#define NET_REGS     0xd0004000u
#define BALLOON_REGS 0xd0005000u
#define QUEUE	     8u

enum { NEXT = 1, WRITE = 2 };
enum { DISK_IN = 0, DISK_OUT = 1, DISK_FLUSH = 4 };

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

struct queue {
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
	uint32_t regs, number; /* address of the device's registers; index of the queue */
} __attribute__((aligned(16)));

static struct queue disk_queue, rx, tx, reports;

static struct {
	uint32_t type, reserved;
	uint64_t sector;
	uint8_t status;
} request;

static uint64_t buffer[64];

/* --- What the program says --- */

static void put(char c)
{
	out8(0x3f8, (uint8_t)c);
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

/* --- Devices: polled, without interrupts --- */

static volatile uint32_t *reg(uint32_t device, uint32_t offset)
{
	return (volatile uint32_t *)(uint64_t)(device + offset);
}

static void set_address(const struct queue *q, uint32_t offset, const void *p)
{
	*reg(q->regs, offset) = (uint32_t)(uint64_t)p;
	*reg(q->regs, offset + 4) = 0;
}

static void start_device(uint32_t device, uint32_t features)
{
	*reg(device, 0x70) = 0;
	*reg(device, 0x70) = 1;
	*reg(device, 0x70) = 3;
	*reg(device, 0x24) = 0;
	*reg(device, 0x20) = features;
	*reg(device, 0x24) = 1;
	*reg(device, 0x20) = 1; /* VERSION_1 */
	*reg(device, 0x70) = 11;
}

static void start_queue(struct queue *q, uint32_t device, uint32_t number)
{
	q->regs = device;
	q->number = number;
	q->avail.flags = 1;
	*reg(device, 0x30) = number;
	*reg(device, 0x38) = QUEUE;
	set_address(q, 0x80, q->desc);
	set_address(q, 0x90, &q->avail);
	set_address(q, 0xa0, &q->used);
	*reg(device, 0x44) = 1;
}

static void device_runs(uint32_t device)
{
	*reg(device, 0x70) = 15;
}

static void offer(struct queue *q, uint16_t head)
{
	q->avail.ring[q->avail.idx % QUEUE] = head;
	__atomic_store_n(&q->avail.idx, q->avail.idx + 1, __ATOMIC_SEQ_CST);
	*reg(q->regs, 0x50) = q->number;
}

static void wait_for_used(struct queue *q, uint16_t before)
{
	while (__atomic_load_n(&q->used.idx, __ATOMIC_SEQ_CST) == before)
		;
}

/* Offers the chain that begins at descriptor 0, and waits until the device has used it. */
static void ask(struct queue *q)
{
	uint16_t before = q->used.idx;

	offer(q, 0);
	wait_for_used(q, before);
}

/* --- The disk --- */

static void start_disk(void)
{
	start_device(DISK_REGS, 1u << 9); /* FLUSH */
	start_queue(&disk_queue, DISK_REGS, 0);
	device_runs(DISK_REGS);
}

static void disk(uint32_t type, uint64_t sector)
{
	struct desc *d = disk_queue.desc;
	unsigned n = 0;

	request.type = type;
	request.sector = sector;
	request.status = 0xff;
	d[n++] = (struct desc){(uint64_t)&request, 16, NEXT, 1};
	if (type != DISK_FLUSH) {
		d[n] = (struct desc){(uint64_t)buffer, sizeof(buffer),
				     type == DISK_IN ? NEXT | WRITE : NEXT, (uint16_t)(n + 1)};
		n++;
	}
	d[n] = (struct desc){(uint64_t)&request.status, 1, WRITE, 0};
	ask(&disk_queue);
	if (request.status)
		say("bad disk\n");
}

/* --- The network --- */

#define RX_BYTES 2048u

struct packet {
	uint8_t header[12];
	struct worker_frame frame;
} __attribute__((packed));

static struct packet out;
static uint8_t in[QUEUE][RX_BYTES];

static uint16_t heard;

static void start_net(void)
{
	if (tx.regs)
		return;
	start_device(NET_REGS, 0);
	start_queue(&rx, NET_REGS, 0);
	start_queue(&tx, NET_REGS, 1);
	device_runs(NET_REGS);
	for (uint16_t i = 0; i < QUEUE; i++) {
		rx.desc[i] = (struct desc){(uint64_t)in[i], sizeof(in[i]), WRITE, 0};
		offer(&rx, i);
	}
}

static void send(uint64_t value)
{
	static const uint8_t from[] = NET_GUEST_MAC;

	start_net();
	for (unsigned i = 0; i < sizeof(from); i++) {
		out.frame.to[i] = 0xff;
		out.frame.from[i] = from[i];
	}
	out.frame.type = WORKER_ETHERTYPE;
	out.frame.value = value;
	tx.desc[0] = (struct desc){(uint64_t)&out, sizeof(out), 0, 0};
	ask(&tx);
}

static uint64_t hear(void)
{
	start_net();
	for (;;) {
		wait_for_used(&rx, heard);
		uint16_t head = (uint16_t)rx.used.ring[heard++ % QUEUE].id;
		struct worker_frame f = ((const struct packet *)in[head])->frame;

		offer(&rx, head);
		if (f.type == WORKER_ETHERTYPE)
			return f.value;
	}
}

/* --- Free memory --- */

static void report_free(uint64_t from, uint32_t bytes)
{
	if (!reports.regs) {
		start_device(BALLOON_REGS, 1u << 5); /* REPORTING */
		start_queue(&reports, BALLOON_REGS, 2);
		device_runs(BALLOON_REGS);
	}
	reports.desc[0] = (struct desc){from, bytes, WRITE, 0};
	ask(&reports);
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
	case WORKER_SEND:
		send(m->c);
		return 0;
	case WORKER_HEAR:
		return hear();
	case WORKER_FREE:
		report_free(m->a, (uint32_t)m->b);
		return 0;
	default:
		return looks;
	}
}

void ring3_run(const uint8_t *boot_params)
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
