// SPDX-License-Identifier: GPL-2.0
/*
 * Notifies the kernel's random generator that this virtual machine is a copy of another one, and
 * gives the agent what it needs to make the rest of the guest unique and current. It is built
 * instead of the driver for the device that ACPI describes: this device has a fixed port and
 * interrupt (proto/platform.h).
 *
 * The interrupt is raised before a copy runs, so that the generator has its new seed before any
 * program draws from it.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/moduleparam.h>
#include <linux/random.h>
#include <linux/sysfs.h>
#include <linux/timekeeping.h>

#include "ramet-platform.h"

static void read_generation(u32 *id)
{
	for (int i = 0; i < PLATFORM_GENERATION_BYTES / 4; i++)
		id[i] = inl(PLATFORM_GENERATION_PORT + PLATFORM_GENERATION_ID + i * 4);
}

/* add_vmfork_randomness() calls a notifier chain, which may sleep. Only WireGuard registers there,
 * and it is not configured. */
static irqreturn_t on_new_generation(int irq, void *unused)
{
	u32 id[PLATFORM_GENERATION_BYTES / 4];

	read_generation(id);
	add_vmfork_randomness(id, sizeof(id));
	outb(PLATFORM_GENERATION_KERNEL, PLATFORM_GENERATION_PORT);
	return IRQ_HANDLED;
}

static bool present;

/* Called when the agent writes 1: the rest of the guest is unique too. */
static int set_unique(const char *value, const struct kernel_param *kp)
{
	bool unique;
	int ret = kstrtobool(value, &unique);

	if (ret || !unique)
		return ret ? ret : -EINVAL;
	if (!present)
		return -ENODEV;
	outb(PLATFORM_GENERATION_AGENT, PLATFORM_GENERATION_PORT);
	return 0;
}

static const struct kernel_param_ops unique_ops = {.set = set_unique};
module_param_cb(unique, &unique_ops, NULL, 0200);

/*
 * Returns the host's time in ns since 1970, as KVM reports it now. The agent sets the clock of a
 * copy by it, because the time in a message is as old as the message.
 */
static int get_host_realtime(char *buffer, const struct kernel_param *kp)
{
	struct timespec64 now;

	read_persistent_clock64(&now);
	return sysfs_emit(buffer, "%lld\n", timespec64_to_ns(&now));
}

static const struct kernel_param_ops host_realtime_ops = {.get = get_host_realtime};
module_param_cb(host_realtime, &host_realtime_ops, NULL, 0400);

static int __init vmgenid_init(void)
{
	u32 id[PLATFORM_GENERATION_BYTES / 4];
	int ret;

	if (inl(PLATFORM_GENERATION_PORT) != PLATFORM_GENERATION_MAGIC)
		return 0;
	ret = request_irq(PLATFORM_GENERATION_IRQ, on_new_generation,
			  IRQF_NOBALANCING | IRQF_NO_THREAD, "vmgenid", NULL);
	if (ret)
		return ret;
	read_generation(id);
	add_device_randomness(id, sizeof(id));
	present = true;
	outb(PLATFORM_GENERATION_KERNEL, PLATFORM_GENERATION_PORT);
	return 0;
}
device_initcall(vmgenid_init);
