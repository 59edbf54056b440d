// SPDX-License-Identifier: Apache-2.0
/* I/O ports and interrupts of the virtual machine that its guest must know by number. */
#ifndef RAMET_PROTO_PLATFORM_H
#define RAMET_PROTO_PLATFORM_H

/*
 * Writing the byte PLATFORM_POWER_OFF to this I/O port powers the guest off; there is no ACPI. A
 * guest reboots through the keyboard controller, with 0xfe to port 0x64 (Linux with reboot=k).
 */
#define PLATFORM_POWER_PORT 0x604
#define PLATFORM_POWER_OFF  0x34

/*
 * The generation device. A fork's child, a resumed Space and a sandbox of a template all begin as a
 * copy of another VM. At PLATFORM_GENERATION_PORT the guest reads the magic number (u32), by which
 * a kernel finds the device, and the id: PLATFORM_GENERATION_BYTES random bytes that differ in each
 * copy. Before a copy's vCPUs run, the new id is in place and PLATFORM_GENERATION_IRQ (edge) has
 * been raised.
 *
 * The kernel and the agent each write a byte to the port when they have made themselves unique. By
 * its first write, each of them promises a write in every copy. In a copy, all vCPUs but the first
 * wait until the kernel has written, for a short time at most, and the frames that the guest sends
 * wait until the agent has.
 */
#define PLATFORM_GENERATION_PORT   0x610
#define PLATFORM_GENERATION_LEN	   20
#define PLATFORM_GENERATION_MAGIC  0x4e454752 /* "RGEN" */
#define PLATFORM_GENERATION_ID	   4	      /* offset of the id */
#define PLATFORM_GENERATION_BYTES  16
#define PLATFORM_GENERATION_IRQ	   12
#define PLATFORM_GENERATION_KERNEL 1
#define PLATFORM_GENERATION_AGENT  2

#endif
