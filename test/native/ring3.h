// SPDX-License-Identifier: Apache-2.0
/*
 * The start of a guest whose program runs in ring 3, which is native even where KVM emulates a
 * guest's kernel mode: freestanding, linked to the address of a kernel in the boot protocol. The
 * program may use all memory below 4 GiB, I/O ports below 0x800, and the functions below. Ring 0
 * consists of a few instructions that halt until an interrupt.
 */
#ifndef RAMET_TEST_NATIVE_RING3_H
#define RAMET_TEST_NATIVE_RING3_H

#include <stddef.h>
#include <stdint.h>

/* The program; it must not return. The zero page of Linux's boot protocol describes the memory. */
void ring3_run(const uint8_t *boot_params);

/* Set by the interrupt of the generation device (proto/platform.h): the guest is a copy. */
extern volatile uint8_t ring3_is_copy;

/* Lets interrupts end a halt; bit n of `irqs` is interrupt n. Without a call, none does. */
void ring3_take_interrupts(uint16_t irqs);
/* Halts until one of those interrupts, or returns at once if one has come since the last halt. */
void ring3_halt(void);

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);

static inline void out8(uint16_t port, uint8_t value)
{
	asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
	uint8_t value;

	asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline uint32_t in32(uint16_t port)
{
	uint32_t value;

	asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

#endif
