// SPDX-License-Identifier: Apache-2.0
/*
 * Compares a restore by the real ramet-vmm with its lower bound. From sending CTL_FILL to a ready
 * blank VM until
 *   restore_reply_ms  the VMM answers that the vCPUs run
 *   restore_exit_ms   the output of the guest's first exits has arrived
 *   restore_net_ms    the same, minus the round trip to the process:
 *   ctl_echo_ms       a CTL_STATS and its answer
 * usage: restore-native [--ram-mib M] [--vcpus V] [--runs N] RAMET-VMM [KVM-FLOOR]
 * Prints JSON, with the figures of kvm-floor (same RAM, vCPUs and runs) if its path is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/native.h"
#include "bench/stats.h"
#include "test/native/guests.h"

#define DISK_BYTES (1u << 20)

/* Returns an image of a guest that produces output as soon as it runs. */
static struct vmm_snapshot make_image(const struct vmm_options *o)
{
	struct vmm_snapshot img = {.base = vmm_file("disk", 4, DISK_BYTES),
				   .disk_bytes = DISK_BYTES};
	struct vmm v;

	if (!vmm_start(&v, o) || vmm_boot(&v, guest_elf(GUEST_BRIEF), -1, "", &img) ||
	    !vmm_expect_log(&v, "serial: ready") || vmm_save(&v, &img))
		native_die("the guest cannot be booted and saved");
	vmm_stop(&v);
	if (pwrite(img.memory, "!", 1, GUEST_NEAR) != 1)
		native_die("the image cannot be written");
	return img;
}

struct stats {
	struct samples reply_ms, exit_ms, net_ms, echo_ms;
};

static void measure(const struct vmm_options *o, const struct vmm_snapshot *img, struct stats *f)
{
	struct vmm v;
	uint64_t start;
	double echo, ms;

	if (!vmm_start(&v, o))
		native_die("ramet-vmm does not start");
	start = bench_now_ns();
	if (vmm_ask(&v, CTL_STATS))
		native_die("ramet-vmm does not answer");
	echo = native_ms_since(start);
	samples_add(&f->echo_ms, echo);
	start = bench_now_ns();
	if (vmm_restore(&v, img))
		native_die("the image is not restored");
	samples_add(&f->reply_ms, native_ms_since(start));
	if (!vmm_expect_log(&v, "serial: !"))
		native_die("the guest does not run");
	ms = native_ms_since(start);
	samples_add(&f->exit_ms, ms);
	samples_add(&f->net_ms, ms - echo);
	vmm_stop(&v);
}

int main(int argc, char **argv)
{
	struct vmm_options o = {.vcpus = 1, .ram_mib = 256, .debug_serial = true};
	struct stats f = {0};
	struct vmm_snapshot img;
	unsigned runs = 100;
	int i = native_options(argc, argv, &o, &runs);

	if (i >= argc)
		native_die("the path of ramet-vmm is missing");
	o.exe = argv[i];
	img = make_image(&o);
	printf("{");
	if (i + 1 < argc)
		native_print_floor(argv[i + 1], &o, runs);
	for (unsigned n = 0; n < runs; n++)
		measure(&o, &img, &f);
	samples_print(&f.reply_ms, "restore_reply_ms", "ms", stdout);
	printf(", ");
	samples_print(&f.exit_ms, "restore_exit_ms", "ms", stdout);
	printf(", ");
	samples_print(&f.net_ms, "restore_net_ms", "ms", stdout);
	printf(", ");
	samples_print(&f.echo_ms, "ctl_echo_ms", "ms", stdout);
	printf("}\n");
	samples_free(&f.reply_ms);
	samples_free(&f.exit_ms);
	samples_free(&f.net_ms);
	samples_free(&f.echo_ms);
	return EXIT_SUCCESS;
}
