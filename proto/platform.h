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

#endif
