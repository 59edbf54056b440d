// SPDX-License-Identifier: Apache-2.0
/* Intel MultiProcessor Specification 1.4: CPUs and interrupts for a kernel without ACPI. */
#include "vmm/arch/x86/boot.h"

#include <errno.h>
#include <string.h>

#include "base/wire.h"
#include "vmm/arch/x86/layout.h"

#define FLOATING_BYTES 16
#define HEADER_BYTES   44
#define TABLE_MAX      4096
#define ISA_BUS	       0
#define ISA_IRQS       16

enum entry { ENTRY_CPU, ENTRY_BUS, ENTRY_IOAPIC, ENTRY_IRQ, ENTRY_LOCAL_IRQ };
enum irq_type { IRQ_VECTORED, IRQ_NMI, IRQ_SMI, IRQ_EXTINT };

static uint8_t checksum(const uint8_t *p, size_t len)
{
	uint8_t sum = 0;

	while (len--)
		sum += *p++;
	return -sum;
}

static void put_cpu(struct wire *w, unsigned apic_id)
{
	wire_put_u8(w, ENTRY_CPU);
	wire_put_u8(w, (uint8_t)apic_id);
	wire_put_u8(w, 0x14);			  /* version of an integrated APIC */
	wire_put_u8(w, apic_id == 0 ? 0x3 : 0x1); /* enabled; bit 1: the boot processor */
	wire_put_u32(w, 0x600);			  /* family 6 */
	wire_put_u32(w, 0x201);			  /* has an FPU and an APIC */
	wire_put_u64(w, 0);
}

static void put_bus(struct wire *w)
{
	wire_put_u8(w, ENTRY_BUS);
	wire_put_u8(w, ISA_BUS);
	wire_put_bytes(w, "ISA   ", 6);
}

static void put_ioapic(struct wire *w, unsigned id)
{
	wire_put_u8(w, ENTRY_IOAPIC);
	wire_put_u8(w, (uint8_t)id);
	wire_put_u8(w, 0x11); /* version */
	wire_put_u8(w, 0x1);  /* enabled */
	wire_put_u32(w, IOAPIC_ADDR);
}

static void put_irq(struct wire *w, enum entry entry, enum irq_type type, unsigned irq,
		    unsigned apic, unsigned pin)
{
	wire_put_u8(w, entry);
	wire_put_u8(w, type);
	wire_put_u16(w, 0); /* polarity and trigger conform to the bus: edge, active high */
	wire_put_u8(w, ISA_BUS);
	wire_put_u8(w, (uint8_t)irq);
	wire_put_u8(w, (uint8_t)apic);
	wire_put_u8(w, (uint8_t)pin);
}

/* Returns the number of entries. */
static unsigned put_entries(struct wire *w, unsigned vcpus)
{
	unsigned ioapic = vcpus, n = vcpus + 2;

	for (unsigned i = 0; i < vcpus; i++)
		put_cpu(w, i);
	put_bus(w);
	put_ioapic(w, ioapic);
	for (unsigned irq = 0; irq < ISA_IRQS; irq++) {
		if (irq == 2) /* only cascades the two PICs */
			continue;
		put_irq(w, ENTRY_IRQ, IRQ_VECTORED, irq, ioapic, irq);
		n++;
	}
	put_irq(w, ENTRY_LOCAL_IRQ, IRQ_EXTINT, 0, 0, 0);
	put_irq(w, ENTRY_LOCAL_IRQ, IRQ_NMI, 0, 0xff, 1);
	return n + 2;
}

static void put_header(struct wire *w, size_t bytes, unsigned entries)
{
	wire_put_bytes(w, "PCMP", 4);
	wire_put_u16(w, (uint16_t)bytes);
	wire_put_u8(w, 4); /* specification 1.4 */
	wire_put_u8(w, 0); /* checksum */
	wire_put_bytes(w, "RAMET   ", 8);
	wire_put_bytes(w, "MICROVM     ", 12);
	wire_put_u32(w, 0); /* no OEM table */
	wire_put_u16(w, 0);
	wire_put_u16(w, (uint16_t)entries);
	wire_put_u32(w, LAPIC_ADDR);
	wire_put_u32(w, 0);
}

static void put_floating(struct wire *w)
{
	wire_put_bytes(w, "_MP_", 4);
	wire_put_u32(w, (uint32_t)(MPTABLE_ADDR + FLOATING_BYTES));
	wire_put_u8(w, 1); /* length in units of 16 bytes */
	wire_put_u8(w, 4); /* specification 1.4 */
	wire_put_u8(w, 0); /* checksum */
	wire_put_u8(w, 0); /* a table follows */
	wire_put_u32(w, 0);
}

int mptable_write(const struct gm *m, unsigned vcpus, struct err *e)
{
	uint8_t table[TABLE_MAX] = {0};
	struct wire floating = wire_on(table, FLOATING_BYTES);
	struct wire header = wire_on(table + FLOATING_BYTES, HEADER_BYTES);
	struct wire body = wire_on(table + FLOATING_BYTES + HEADER_BYTES,
				   sizeof(table) - FLOATING_BYTES - HEADER_BYTES);
	unsigned entries = put_entries(&body, vcpus);
	size_t bytes = HEADER_BYTES + body.pos;

	put_header(&header, bytes, entries);
	put_floating(&floating);
	table[10] = checksum(table, FLOATING_BYTES);
	table[FLOATING_BYTES + 7] = checksum(table + FLOATING_BYTES, bytes);
	if (body.bad)
		return err_say(e, E2BIG, "%u vCPUs don't fit into a MultiProcessor table", vcpus);
	if (!gm_write(m, MPTABLE_ADDR, table, FLOATING_BYTES + bytes))
		return err_say(e, ENOMEM, "guest memory ends below 1 MiB");
	return 0;
}
