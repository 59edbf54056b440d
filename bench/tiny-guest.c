// SPDX-License-Identifier: Apache-2.0
/*
 * A tiny guest that speaks the agent's protocol (proto/agent.h), so that the whole service can be
 * measured where KVM cannot run a Linux kernel (test/native/ring3.h). It makes itself unique in
 * each copy, keeps a few small files, and understands the code of calls as commands:
 *   echo TEXT    prints TEXT
 *   touch MIB    writes a word into each page of so much memory; "half": of half the RAM
 *   write MIB    the same again and again, between the requests, until `rest`
 *   rest         stops that
 *   sum MIB      prints the sum of those words
 *   random       prints a random number, which differs in each copy
 * Any other code does nothing and succeeds. There is one connection table, no process and no
 * Python; requests for those are answered with an error.
 *
 * In another VMM, which has no device where Ramet has its vsock, it takes these commands from the
 * serial port instead, one a line. After the output of each it prints "done".
 */
#include <stdbool.h>

#include "proto/agent.h"
#include "proto/platform.h"
#include "test/native/ring3.h"

#define PAGE	   4096u
#define MIB	   (1ull << 20)
#define HOLE_START (3ull << 30) /* from there to 4 GiB is no memory; above it none is used */
#define MEMORY	   (16 * MIB)	/* commands use memory from this address on */
#define DISK_REGS  0xd0000000u
#define VSOCK_REGS 0xd0001000u
#define VSOCK_IRQ  6
#define SERIAL	   0x3f8
#define SERIAL_IRQ 4

/* Numbers of errors that Linux has. */
enum { NO_ENTRY = 2, INVALID = 22, NO_SPACE = 28, OUT_OF_RANGE = 34, NOT_KNOWN = 38 };

static void fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* --- Memory --- */

static uint64_t ram_mib;

/* Finds out how much RAM there is (Documentation/x86/zero-page.rst). */
static void read_memory_map(const uint8_t *boot_params)
{
	const uint8_t *entry = boot_params + 0x2d0;
	uint64_t bytes = 0;

	for (unsigned n = boot_params[0x1e8]; n; n--, entry += 20) {
		uint64_t size;
		uint32_t type;

		memcpy(&size, entry + 8, sizeof(size));
		memcpy(&type, entry + 16, sizeof(type));
		bytes += type == 1 ? size : 0;
	}
	ram_mib = (bytes < HOLE_START ? bytes + MIB - 1 : HOLE_START) / MIB;
}

/* Returns the word of page n of the memory that commands use. */
static volatile uint64_t *page_word(uint64_t n)
{
	return (volatile uint64_t *)(MEMORY + n * PAGE);
}

static uint64_t written; /* how often memory was written */

static void touch(uint64_t mib)
{
	written++;
	for (uint64_t i = 0; i < mib * MIB / PAGE; i++)
		*page_word(i) = written;
}

static uint64_t sum(uint64_t mib)
{
	uint64_t s = 0;

	for (uint64_t i = 0; i < mib * MIB / PAGE; i++)
		s += *page_word(i);
	return s;
}

/* --- Uniqueness ------------------------------------------------------------------------------- */

static uint64_t entropy;

static void mix(uint64_t word)
{
	entropy = (entropy ^ word) * 0x9e3779b97f4a7c15u;
	entropy ^= entropy >> 29;
}

static void become_unique(void)
{
	ring3_is_copy = 0;
	for (uint16_t i = 0; i < PLATFORM_GENERATION_BYTES; i += 4)
		mix(in32((uint16_t)(PLATFORM_GENERATION_PORT + PLATFORM_GENERATION_ID + i)));
	out8(PLATFORM_GENERATION_PORT, PLATFORM_GENERATION_KERNEL);
}

/* --- Devices and their queues (virtio v1.2, 2.7 and 4.2) ----------------------------------- */

#define ENTRIES 64u

enum { DESC_NEXT = 1, DESC_WRITE = 2 };
enum { QUEUE_RX, QUEUE_TX, QUEUE_EVENT };

struct queue {
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} desc[ENTRIES];
	struct {
		uint16_t flags;
		volatile uint16_t idx;
		volatile uint16_t ring[ENTRIES + 1]; /* the entry after the last: used_event */
	} avail;
	struct {
		uint16_t flags;
		volatile uint16_t idx;
		struct {
			volatile uint32_t id, len;
		} ring[ENTRIES + 1]; /* the entry after the last: avail_event */
	} used __attribute__((aligned(4)));
	uint32_t regs, number;		/* regs: address of the device's registers */
	uint16_t entries, seen, kicked; /* seen: used entries that were taken; kicked: entries that
					   were offered at the last kick */
} __attribute__((aligned(16)));

static struct queue disk = {.regs = DISK_REGS, .number = 0, .entries = 4};
static struct queue rx = {.regs = VSOCK_REGS, .number = QUEUE_RX, .entries = 16};
static struct queue tx = {.regs = VSOCK_REGS, .number = QUEUE_TX, .entries = ENTRIES};
static struct queue events = {.regs = VSOCK_REGS, .number = QUEUE_EVENT, .entries = 1};

static volatile uint32_t *reg(uint32_t regs, uint32_t offset)
{
	return (volatile uint32_t *)(uint64_t)(regs + offset);
}

/* Negotiates EVENT_IDX and VERSION_1. device_runs is called once the queues are ready. */
static void start_device(uint32_t regs)
{
	*reg(regs, 0x70) = 0;
	*reg(regs, 0x70) = 1;
	*reg(regs, 0x70) = 3;
	*reg(regs, 0x24) = 0;
	*reg(regs, 0x20) = 1u << 29;
	*reg(regs, 0x24) = 1;
	*reg(regs, 0x20) = 1;
	*reg(regs, 0x70) = 11;
}

static void device_runs(uint32_t regs)
{
	*reg(regs, 0x70) = 15;
}

static void start_queue(struct queue *q)
{
	const void *part[] = {q->desc, &q->avail, &q->used};

	*reg(q->regs, 0x30) = q->number;
	*reg(q->regs, 0x38) = q->entries;
	for (unsigned i = 0; i < 3; i++) {
		*reg(q->regs, 0x80 + 0x10 * i) = (uint32_t)(uint64_t)part[i];
		*reg(q->regs, 0x84 + 0x10 * i) = 0;
	}
	*reg(q->regs, 0x44) = 1;
}

static void describe(struct queue *q, uint16_t i, void *p, uint32_t len, uint16_t flags)
{
	q->desc[i].addr = (uint64_t)p;
	q->desc[i].len = len;
	q->desc[i].flags = flags;
	q->desc[i].next = (uint16_t)(i + 1);
}

static void offer(struct queue *q, uint16_t id)
{
	q->avail.ring[q->avail.idx % q->entries] = id;
	fence();
	q->avail.idx++;
}

/* Notifies the device if it asked for that (2.7.10). */
static void kick(struct queue *q)
{
	uint16_t offered = q->avail.idx;

	fence();
	uint16_t event = (uint16_t)q->used.ring[q->entries].id;
	if ((uint16_t)(offered - event - 1) < (uint16_t)(offered - q->kicked))
		*reg(q->regs, 0x50) = q->number;
	q->kicked = offered;
}

/* Asks for an interrupt with the next used entry. After it there is none until the next call. */
static void enable_interrupt(struct queue *q)
{
	q->avail.ring[q->entries] = q->seen;
	fence();
}

static bool has_used(const struct queue *q)
{
	return q->used.idx != q->seen;
}

/* Writes a sector, as every guest does when it boots: a template's snapshot has a disk layer. */
static void write_disk(void)
{
	static struct {
		uint32_t type, reserved;
		uint64_t sector;
	} request = {.type = 1};
	static uint8_t sector[512], status;

	start_device(DISK_REGS);
	start_queue(&disk);
	device_runs(DISK_REGS);
	describe(&disk, 0, &request, sizeof(request), DESC_NEXT);
	describe(&disk, 1, sector, sizeof(sector), DESC_NEXT);
	describe(&disk, 2, &status, 1, DESC_WRITE);
	offer(&disk, 0);
	kick(&disk);
	while (!has_used(&disk))
		;
}

/* --- Packets (virtio v1.2, 5.10.6) ------------------------------------------------------------ */

#define HOST_CID     2u
#define CREDIT	     (256u << 10) /* bytes that the host may send ahead */
#define BUFFER_BYTES PAGE
#define CONNS	     32u

enum op { REQUEST = 1, RESPONSE, RESET, SHUTDOWN, DATA, CREDIT_UPDATE, CREDIT_REQUEST };

struct packet {
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port;
	uint32_t len;
	uint16_t type, op;
	uint32_t flags, buf_alloc, fwd_cnt;
	uint8_t data[BUFFER_BYTES - 44];
} __attribute__((packed));

#define DATA_MAX   sizeof(((struct packet *)0)->data)
#define CODE_BYTES 4096u
#define FILE_BYTES 32768u
#define PATH_BYTES 256u

/* A connection, and its request that waits for more frames. */
struct conn {
	uint32_t received, credited;
	uint32_t len; /* bytes of `frame` that have arrived */
	uint8_t frame[AGENT_HEADER_SIZE + AGENT_PAYLOAD_MAX];
	uint8_t waits; /* AGENT_EXEC, AGENT_PUT, or 0 */
	uint64_t left; /* bytes that are to come, or AGENT_UNSIZED */
	uint64_t call;
	uint32_t mode, have; /* have: bytes in `bytes` */
	char path[PATH_BYTES];
	uint8_t bytes[FILE_BYTES + 1]; /* code, or the file */
};

static struct packet rx_buffer[16] __attribute__((aligned(4096)));
static struct packet tx_buffer[ENTRIES] __attribute__((aligned(4096)));
static uint32_t event_buffer;
static uint64_t cid;
static struct conn conns[CONNS];
static uint32_t ports[CONNS]; /* of the host; 0: free. Apart, so that a search touches one page */

static void start_vsock(void)
{
	start_device(VSOCK_REGS);
	cid = *reg(VSOCK_REGS, 0x100);
	start_queue(&rx);
	start_queue(&tx);
	start_queue(&events);
	device_runs(VSOCK_REGS);
	for (uint16_t i = 0; i < rx.entries; i++) {
		describe(&rx, i, &rx_buffer[i], BUFFER_BYTES, DESC_WRITE);
		offer(&rx, i);
	}
	describe(&events, 0, &event_buffer, sizeof(event_buffer), DESC_WRITE);
	offer(&events, 0);
	kick(&rx);
	kick(&events);
}

/* Returns the next free packet. The device returns packets in batches, long before all are used. */
static struct packet *new_packet(void)
{
	while ((uint16_t)(tx.avail.idx - tx.used.idx) == tx.entries)
		;
	return &tx_buffer[tx.avail.idx % tx.entries];
}

static void send_packet(uint32_t port, enum op op, uint32_t fwd_cnt, const void *data, size_t len)
{
	uint16_t id = tx.avail.idx % tx.entries;
	struct packet *p = new_packet();

	p->src_cid = cid;
	p->dst_cid = HOST_CID;
	p->src_port = AGENT_PORT;
	p->dst_port = port;
	p->len = (uint32_t)len;
	p->type = 1;
	p->op = (uint16_t)op;
	p->buf_alloc = CREDIT;
	p->fwd_cnt = fwd_cnt;
	memcpy(p->data, data, len);
	describe(&tx, id, p, (uint32_t)(44 + len), 0);
	offer(&tx, id);
}

/* --- Answers ---------------------------------------------------------------------------------- */

static uint8_t out[2 * FILE_BYTES]; /* the frames that answer one request */
static size_t out_len;

static void put_bytes(const void *p, size_t len)
{
	memcpy(out + out_len, p, len);
	out_len += len;
}

static void put32(uint32_t v)
{
	put_bytes(&v, sizeof(v));
}

static void put64(uint64_t v)
{
	put_bytes(&v, sizeof(v));
}

static void put_str(const char *text)
{
	size_t len = 0;

	while (text[len])
		len++;
	put32((uint32_t)len);
	put_bytes(text, len);
}

/* Begins a frame; end_frame fills in its length. */
static size_t begin_frame(uint8_t type)
{
	put32(0);
	put32(type);
	return out_len;
}

static void end_frame(size_t start)
{
	uint32_t len = (uint32_t)(out_len - start);

	memcpy(out + start - AGENT_HEADER_SIZE, &len, sizeof(len));
}

static void put_frame(uint8_t type, const void *payload, size_t len)
{
	size_t start = begin_frame(type);

	put_bytes(payload, len);
	end_frame(start);
}

static void put_done(void)
{
	put_frame(AGENT_DONE, NULL, 0);
}

static void put_error(uint32_t number, const char *text)
{
	size_t start = begin_frame(AGENT_ERROR);

	put32(number);
	put_str(text);
	end_frame(start);
}

static void put_exit(uint32_t code)
{
	size_t start = begin_frame(AGENT_EXIT);

	put32(code);
	put_bytes("", 1);
	end_frame(start);
}

static void send_answers(struct conn *c)
{
	for (size_t sent = 0; sent < out_len;) {
		size_t n = out_len - sent < DATA_MAX ? out_len - sent : DATA_MAX;

		send_packet(ports[c - conns], DATA, c->received, out + sent, n);
		sent += n;
		c->credited = c->received;
	}
	out_len = 0;
}

/* --- Reading a payload ------------------------------------------------------------------------ */

struct reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static void take(struct reader *r, void *to, size_t n)
{
	memset(to, 0, n);
	if (r->left < n) {
		r->bad = true;
		return;
	}
	memcpy(to, r->p, n);
	r->p += n;
	r->left -= n;
}

static uint32_t take32(struct reader *r)
{
	uint32_t v;

	take(r, &v, sizeof(v));
	return v;
}

static uint64_t take64(struct reader *r)
{
	uint64_t v;

	take(r, &v, sizeof(v));
	return v;
}

static uint8_t take8(struct reader *r)
{
	uint8_t v;

	take(r, &v, sizeof(v));
	return v;
}

static void take_path(struct reader *r, char path[static PATH_BYTES])
{
	uint32_t len = take32(r);

	if (len >= PATH_BYTES)
		r->bad = true;
	else
		take(r, path, len);
	path[r->bad ? 0 : len] = '\0';
}

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* The last call's output, for AGENT_ATTACH. */
static struct {
	uint64_t call;
	uint8_t text[CODE_BYTES + 1];
	uint32_t len, exit_code;
} last;

static uint64_t writing; /* MiB that are written between requests; 0: none */

static void print(const void *text, size_t len)
{
	memcpy(last.text + last.len, text, len);
	last.len += (uint32_t)len;
}

static void print_number(uint64_t v)
{
	char text[21];
	unsigned at = sizeof(text);

	text[--at] = '\n';
	do {
		text[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	print(text + at, sizeof(text) - at);
}

/* If the code begins with the word, returns what follows it and a blank; else NULL. */
static const char *after(const char *code, const char *word)
{
	while (*word && *code == *word) {
		code++;
		word++;
	}
	if (*word || (*code && *code != ' '))
		return NULL;
	return *code ? code + 1 : code;
}

/* Reads an amount of memory in MiB: at most what there is. */
static uint64_t amount(const char *text)
{
	uint64_t v = 0, most = ram_mib - MEMORY / MIB;

	if (after(text, "half"))
		return ram_mib / 2 < most ? ram_mib / 2 : most;
	for (; *text >= '0' && *text <= '9' && v <= most; text++)
		v = 10 * v + (uint64_t)(*text - '0');
	return v < most ? v : most;
}

static void run_line(const char *code, size_t len)
{
	const char *rest;

	if ((rest = after(code, "echo"))) {
		print(rest, len - (size_t)(rest - code));
		print("\n", 1);
	} else if ((rest = after(code, "touch"))) {
		touch(amount(rest));
	} else if ((rest = after(code, "write"))) {
		writing = amount(rest);
	} else if (after(code, "rest")) {
		writing = 0;
	} else if ((rest = after(code, "sum"))) {
		print_number(sum(amount(rest)));
	} else if (after(code, "random")) {
		mix(1);
		print_number(entropy);
	}
}

/* Runs each line as a command. The code ends with a NUL, which its length does not count. */
static void run(char *code, size_t len)
{
	for (size_t start = 0, i = 0; i <= len; i++) {
		if (i < len && code[i] != '\n')
			continue;
		code[i] = '\0';
		run_line(code + start, i - start);
		start = i + 1;
	}
}

static void put_output(uint64_t offset)
{
	if (last.len > offset)
		put_frame(AGENT_STDOUT, last.text + offset, last.len - offset);
	put_exit(last.exit_code);
}

static void end_exec(struct conn *c)
{
	c->waits = 0;
	c->bytes[c->have] = '\0';
	last.call = c->call;
	last.len = last.exit_code = 0;
	run((char *)c->bytes, c->have);
	put_output(0);
}

static void begin_exec(struct conn *c, struct reader *r)
{
	take8(r);  /* language */
	take8(r);  /* flags */
	take32(r); /* time limit */
	c->left = take32(r);
	c->call = take64(r);
	c->have = 0;
	c->waits = AGENT_EXEC;
	if (!c->left)
		end_exec(c);
}

static void attach(struct reader *r)
{
	uint64_t call = take64(r), offset = take64(r);

	if (call != last.call)
		put_error(NO_ENTRY, "that call is not the last one");
	else if (offset > last.len)
		put_error(OUT_OF_RANGE, "the call has less output");
	else
		put_output(offset);
}

/* --- Files ------------------------------------------------------------------------------------ */

#define FILES 16u

static struct file {
	uint32_t mode, len;
	uint8_t bytes[FILE_BYTES];
} files[FILES];
static char paths[FILES][PATH_BYTES]; /* of the files; "": free */

/* Returns the file of that path; "" finds a free one. */
static struct file *find_file(const char *path)
{
	for (unsigned i = 0; i < FILES; i++)
		if (same(paths[i], path))
			return &files[i];
	return NULL;
}

static void end_put(struct conn *c)
{
	struct file *f = find_file(c->path);

	c->waits = 0;
	if (!f)
		f = find_file("");
	if (!f) {
		put_error(NO_SPACE, "the guest keeps 16 files");
		return;
	}
	memcpy(paths[f - files], c->path, PATH_BYTES);
	memcpy(f->bytes, c->bytes, c->have);
	f->len = c->have;
	f->mode = 0100000 | (c->mode ? c->mode : 0644);
	put_done();
}

static void begin_put(struct conn *c, struct reader *r)
{
	c->left = take64(r);
	c->mode = take32(r);
	take_path(r, c->path);
	c->have = 0;
	c->waits = AGENT_PUT;
	if (r->bad || !c->path[0]) {
		c->waits = 0;
		put_error(INVALID, "that path is not possible");
	} else if (!c->left) {
		end_put(c);
	}
}

static void put_file(const struct file *f)
{
	size_t start = begin_frame(AGENT_FILE);

	put_str(paths[f - files]);
	put32(f->mode);
	put32(0);
	put32(0);
	put64(f->len);
	put64(0);
	put32(0);
	end_frame(start);
}

static void read_file(const struct file *f, uint64_t offset, uint64_t most)
{
	uint64_t n = offset < f->len ? f->len - offset : 0;

	if (most && n > most)
		n = most;
	put_file(f);
	if (n)
		put_frame(AGENT_BYTES, f->bytes + offset, n);
	put_done();
}

/* Serves a request on an existing file. */
static void serve_file(uint8_t type, struct reader *r)
{
	uint64_t offset = type == AGENT_GET ? take64(r) : take8(r);
	uint64_t most = type == AGENT_GET ? take64(r) : 0;
	char path[PATH_BYTES];
	struct file *f;

	take_path(r, path);
	f = path[0] ? find_file(path) : NULL;
	if (!f) {
		put_error(NO_ENTRY, "no such file");
	} else if (type == AGENT_GET) {
		read_file(f, offset, most);
	} else {
		paths[f - files][0] = '\0';
		put_done();
	}
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Takes bytes of a request's code or file. More than there is room for is counted, not kept. */
static void take_more(struct conn *c, const uint8_t *p, size_t len)
{
	uint32_t room = (c->waits == AGENT_EXEC ? CODE_BYTES - 1 : FILE_BYTES);
	bool fits = c->have <= room && len <= room - c->have;
	bool ends = c->left == AGENT_UNSIZED ? !len : len >= c->left;

	if (fits) {
		memcpy(c->bytes + c->have, p, len);
		c->have += (uint32_t)len;
	} else {
		c->have = room + 1;
	}
	if (c->left != AGENT_UNSIZED)
		c->left -= ends ? c->left : len;
	if (!ends)
		return;
	if (c->have > room) {
		c->waits = 0;
		put_error(NO_SPACE, "this guest takes 4 KiB of code and files of 32 KiB");
	} else if (c->waits == AGENT_EXEC) {
		end_exec(c);
	} else {
		end_put(c);
	}
}

static void reseed(struct reader *r)
{
	for (unsigned i = 0; i < AGENT_ENTROPY_LEN / 8; i++)
		mix(take64(r));
	out8(PLATFORM_GENERATION_PORT, PLATFORM_GENERATION_AGENT);
	put_done();
}

static void serve(struct conn *c, uint8_t type, struct reader *r)
{
	const uint32_t version = AGENT_VERSION;

	switch (type) {
	case AGENT_HELLO:
	case AGENT_PING:
		put_frame(AGENT_PONG, &version, sizeof(version));
		break;
	case AGENT_EXEC:
		begin_exec(c, r);
		break;
	case AGENT_CODE:
	case AGENT_DATA:
		if (c->waits) /* else the request has failed */
			take_more(c, r->p, r->left);
		break;
	case AGENT_ATTACH:
		attach(r);
		break;
	case AGENT_RESEED:
		reseed(r);
		break;
	case AGENT_PUT:
		begin_put(c, r);
		break;
	case AGENT_GET:
	case AGENT_REMOVE:
		serve_file(type, r);
		break;
	case AGENT_INTERRUPT: /* no call runs, */
	case AGENT_GROW:      /* no file system fills the disk, */
	case AGENT_PROC_LIST: /* and there are no processes or contexts */
	case AGENT_CONTEXT_LIST:
		put_done();
		break;
	default:
		put_error(NOT_KNOWN, "this guest is for benchmarks and does not know the request");
	}
}

/* Takes bytes of a connection, and serves each frame that is complete. */
static void take_data(struct conn *c, const uint8_t *p, uint32_t len)
{
	c->received += len;
	while (len) {
		uint32_t size, want, n;

		memcpy(&size, c->frame, sizeof(size));
		want = c->len < AGENT_HEADER_SIZE ? AGENT_HEADER_SIZE : AGENT_HEADER_SIZE + size;
		n = want - c->len < len ? want - c->len : len;
		memcpy(c->frame + c->len, p, n);
		c->len += n;
		p += n;
		len -= n;
		memcpy(&size, c->frame, sizeof(size));
		if (c->len < AGENT_HEADER_SIZE || c->len < AGENT_HEADER_SIZE + size)
			continue;
		c->len = 0;
		serve(c, c->frame[4], &(struct reader){c->frame + AGENT_HEADER_SIZE, size, false});
	}
	send_answers(c);
	if (c->received - c->credited > CREDIT / 2) {
		send_packet(ports[c - conns], CREDIT_UPDATE, c->received, NULL, 0);
		c->credited = c->received;
	}
}

/* --- Connections ------------------------------------------------------------------------------ */

/* Returns the connection to a port of the host; 0 finds a free one. */
static struct conn *find_conn(uint32_t port)
{
	for (unsigned i = 0; i < CONNS; i++)
		if (ports[i] == port)
			return &conns[i];
	return NULL;
}

static void accept(uint32_t port, uint32_t to_port)
{
	struct conn *c = to_port == AGENT_PORT ? find_conn(0) : NULL;

	if (c) {
		ports[c - conns] = port;
		c->received = c->credited = c->len = 0;
		c->waits = 0;
	}
	send_packet(port, c ? RESPONSE : RESET, 0, NULL, 0);
}

static void take_packet(const struct packet *p)
{
	struct conn *c = find_conn(p->src_port);

	if (p->op == REQUEST) {
		accept(p->src_port, p->dst_port);
	} else if (!c) {
		if (p->op != RESET)
			send_packet(p->src_port, RESET, 0, NULL, 0);
	} else if (p->op == DATA && p->len <= DATA_MAX) {
		take_data(c, p->data, p->len);
	} else if (p->op == CREDIT_REQUEST) {
		send_packet(ports[c - conns], CREDIT_UPDATE, c->received, NULL, 0);
	} else if (p->op == SHUTDOWN || p->op == RESET) {
		if (p->op == SHUTDOWN)
			send_packet(ports[c - conns], RESET, c->received, NULL, 0);
		ports[c - conns] = 0;
	}
}

static bool take_packets(void)
{
	uint16_t sent = tx.avail.idx;
	bool any = has_used(&rx);

	while (has_used(&rx)) {
		uint16_t id = (uint16_t)rx.used.ring[rx.seen++ % rx.entries].id;

		take_packet(&rx_buffer[id]);
		offer(&rx, id);
	}
	if (any)
		kick(&rx);
	if (tx.avail.idx != sent)
		kick(&tx);
	return any;
}

/* The only event: the guest is a copy, and its connections are gone. */
static void take_events(void)
{
	if (!has_used(&events))
		return;
	events.seen++;
	for (unsigned i = 0; i < CONNS; i++)
		ports[i] = 0;
	offer(&events, 0);
	kick(&events);
}

static void wait_for_interrupt(void)
{
	enable_interrupt(&rx);
	enable_interrupt(&events);
	if (!has_used(&rx) && !has_used(&events) && !ring3_is_copy)
		ring3_halt();
}

/* --- The serial port -------------------------------------------------------------------------- */

#define VIRTIO_MAGIC 0x74726976u

/* Returns the next byte (16550: offset 5 is the line status, bit 0 of which is "data ready"). */
static char read_serial(void)
{
	while (!(in8(SERIAL + 5) & 1))
		ring3_halt();
	return (char)in8(SERIAL);
}

__attribute__((noreturn)) static void serve_serial_port(void)
{
	static char line[CODE_BYTES];
	size_t len;

	ring3_take_interrupts(1u << SERIAL_IRQ);
	out8(SERIAL + 1, 1); /* an interrupt for received data */
	for (;;) {
		for (len = 0; len < CODE_BYTES - 1; len++)
			if ((line[len] = read_serial()) == '\n')
				break;
		last.len = 0;
		run(line, len);
		print("done\n", 5);
		for (uint32_t i = 0; i < last.len; i++)
			out8(SERIAL, last.text[i]);
	}
}

void ring3_run(const uint8_t *boot_params)
{
	read_memory_map(boot_params);
	if (*reg(VSOCK_REGS, 0) != VIRTIO_MAGIC)
		serve_serial_port();
	ring3_take_interrupts(1u << VSOCK_IRQ | 1u << PLATFORM_GENERATION_IRQ);
	become_unique();
	write_disk();
	start_vsock();
	for (;;) {
		if (ring3_is_copy)
			become_unique();
		take_events();
		if (take_packets())
			continue;
		if (writing)
			touch(writing);
		else
			wait_for_interrupt();
	}
}
