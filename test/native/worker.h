// SPDX-License-Identifier: Apache-2.0
/*
 * A tiny guest that takes orders while it runs. It reads the first sector of its disk again and
 * again and carries out the order that it finds there, so a test gives orders by writing to the
 * disk's base file. The guest runs its program in ring 3, which is native even where KVM emulates a
 * guest's kernel mode. It answers each order with "done SEQ VALUE" on the serial port, in
 * hexadecimal.
 */
#ifndef RAMET_TEST_NATIVE_WORKER_H
#define RAMET_TEST_NATIVE_WORKER_H

#include <stdint.h>

enum worker_order {
	WORKER_COUNT = 1, /* VALUE: the number of looks for orders so far */
	WORKER_FILL,	  /* u64 c + i at the start of page i of memory [a, a + b) */
	WORKER_SUM,	  /* VALUE: the sum of what WORKER_FILL wrote there */
	WORKER_WRITE,	  /* fills 512-byte sector a of the disk with c */
	WORKER_READ,	  /* VALUE: the u64 at the start of sector a */
	WORKER_HAMMER,	  /* from now on writes to all pages of [a, a + b) before each look */
	WORKER_FLUSH,	  /* flushes the disk */
	WORKER_SEND,	  /* sends a frame (struct worker_frame) with c in it */
	WORKER_HEAR,	  /* waits for such a frame; VALUE: its value */
	WORKER_FREE,	  /* tells the balloon device that nothing is in memory [a, a + b) */
};

struct worker_mail {
	uint32_t seq; /* a new number is a new order */
	uint32_t order;
	uint64_t a, b, c;
};

#define WORKER_ETHERTYPE 0xb588 /* 0x88b5 in network byte order: for experiments (IEEE 802) */

struct worker_frame {
	uint8_t to[6], from[6];
	uint16_t type;
	uint64_t value;
	uint8_t rest[38]; /* padding to the minimum length of an Ethernet frame */
} __attribute__((packed));

/* Orders may use memory from this address on. */
#define WORKER_MEMORY 0x1000000u

#endif
