// SPDX-License-Identifier: Apache-2.0
/* The few things about the virtual machine that its guest must know by number. */
#ifndef RAMET_PROTO_PLATFORM_H
#define RAMET_PROTO_PLATFORM_H

/*
 * The guest writes the byte PLATFORM_POWER_OFF to this I/O port, and it is off: there is no ACPI.
 * A reboot is asked for in the old way, with 0xfe to port 0x64 (what Linux does with reboot=k).
 */
#define PLATFORM_POWER_PORT 0x604
#define PLATFORM_POWER_OFF  0x34

/*
 * The generation of the virtual machine. A fork's child, a resumed Space and a sandbox of a
 * template all begin as a copy of another VM. From PLATFORM_GENERATION_PORT on there are the magic
 * number (u32), by which a kernel finds the device, and the id, PLATFORM_GENERATION_BYTES random
 * bytes that differ in each copy. Before a copy's vCPUs run, its id is there and
 * PLATFORM_GENERATION_IRQ (edge) was raised.
 *
 * The kernel and the agent each write a byte to the port when they have made themselves unique. One
 * that wrote it once promises to do so in each copy: there all vCPUs but the first wait for the
 * kernel, for a moment at most, and the guest's frames wait for the agent.
 */
#define PLATFORM_GENERATION_PORT   0x610
#define PLATFORM_GENERATION_LEN	   20
#define PLATFORM_GENERATION_MAGIC  0x4e454752 /* "RGEN" */
#define PLATFORM_GENERATION_ID	   4	      /* its offset */
#define PLATFORM_GENERATION_BYTES  16
#define PLATFORM_GENERATION_IRQ	   12
#define PLATFORM_GENERATION_KERNEL 1
#define PLATFORM_GENERATION_AGENT  2

#endif
