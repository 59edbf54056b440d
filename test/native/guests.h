// SPDX-License-Identifier: Apache-2.0
/*
 * Tiny guests: flat 64-bit code that runs at GUEST_ADDR in the state that the boot protocol
 * defines. They use only simple instructions, since some machines' KVM emulates all of a guest's
 * kernel mode. Words of memory that tests write into an image or read out of it have fixed
 * addresses.
 */
#ifndef RAMET_TEST_NATIVE_GUESTS_H
#define RAMET_TEST_NATIVE_GUESTS_H

#include <stddef.h>
#include <stdint.h>

#define GUEST_ADDR   0x100000
#define GUEST_FLAG   0x200000 /* a guest that waits continues when this byte is not 0 */
#define GUEST_NUMBER 0x201000 /* byte that guest_twin reads, says, and counts up */

#define GUEST_OTHERS 0x210000 /* u32: how many other processors guest_crowd, guest_copy wake */
#define GUEST_COUNT  0x220000 /* u32 that guest_copy counts up */
#define GUEST_COUNTS 0x6010   /* u32 that its other processors count up */

enum guest {
	/* Says "hi", reads the first device's magic number and says "magic" if it is right, powers
	 * off. */
	GUEST_HELLO,
	/* Fills registers and memory with a pattern, says "ready", waits for the flag, then says
	 * "same" or "differs", and powers off. */
	GUEST_TIMEOUT,
	/* Says "ready", waits for the flag, says "n=" and its number, counts it up, says it again,
	 * and spins. */
	GUEST_TWIN,
	/* Wakes all other processors, which count for ever; says "alone" without them, else "all
	 * up". Waits for the flag, then says "still counting" if they continue to count. */
	GUEST_CROWD,
	/*
	 * Wakes the other processors, which count for ever; says "ready" and counts too. When
	 * notified that it is a copy, says "copied", then in hexadecimal both counts and the four
	 * words of its generation's id; confirms it, unless the flag is set; says "followed" if
	 * the others continue to count, and powers off.
	 */
	GUEST_COPY,
	/* Writes a register of the CPU that an image contains, says "kept"; reads one that an image
	 * does not contain, says "read"; writes it, and says "written". */
	GUEST_MSR,
	/* Runs an undefined instruction without a handler: a triple fault. */
	GUEST_FAULT,
	/* Says "ready" and halts with its interrupts off: nothing wakes it. */
	GUEST_HALT,
	/* Asks the keyboard controller for a reset. */
	GUEST_RESET,
};

/* Returns a memory file with an ELF file whose one segment is the guest. */
int guest_elf(enum guest g);
/* Does the same as guest_elf, and sets a word of the guest's memory to `value`. */
int guest_elf_with(enum guest g, uint64_t addr, uint32_t value);

#endif
