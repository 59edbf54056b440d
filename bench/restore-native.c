// SPDX-License-Identifier: Apache-2.0
/*
 * The real ramet-vmm beside its floor: from the CTL_FILL sent to a ready shell until
 *   restore_reply_ms  it answers that the vCPUs run
 *   restore_exit_ms   what the guest says with its first exits is here
 *   restore_net_ms    the same, less what it takes to talk to the process at all:
 *   ctl_echo_ms       a CTL_STATS and its answer
 * usage: restore-native [--ram-mib M] [--vcpus V] [--runs N] RAMET-VMM [KVM-FLOOR]
 * JSON on standard output, with the figures of kvm-floor (same shape, same run) when its path is
 * given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/stats.h"
#include "test/native/guests.h"
#include "test/native/vmm-client.h"

#define DISK_BYTES (1u << 20)

static void die(const char *what)
{
	fprintf(stderr, "restore-native: %s\n", what);
	exit(EXIT_FAILURE);
}

/* An image of a guest that says something as soon as it runs. */
static struct vmm_image make_image(const struct vmm_options *o)
{
	struct vmm_image img = {.base = vmm_file("disk", 4, DISK_BYTES), .disk_bytes = DISK_BYTES};
	struct vmm v;

	if (!vmm_start(&v, o) || vmm_boot(&v, guest_elf(GUEST_BRIEF), -1, "", &img) ||
	    !vmm_expect_log(&v, "serial: ready") || vmm_save(&v, &img))
		die("the guest can't be booted and saved");
	vmm_stop(&v);
	if (pwrite(img.memory, "!", 1, GUEST_NEAR) != 1)
		die("the image can't be written");
	return img;
}

static double ms_since(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e6;
}

struct figures {
	struct samples reply_ms, exit_ms, net_ms, echo_ms;
};

static void measure(const struct vmm_options *o, const struct vmm_image *img, struct figures *f)
{
	struct vmm v;
	uint64_t start;
	double echo, ms;

	if (!vmm_start(&v, o))
		die("ramet-vmm does not start");
	start = bench_now_ns();
	if (vmm_ask(&v, CTL_STATS))
		die("ramet-vmm does not answer");
	echo = ms_since(start);
	samples_add(&f->echo_ms, echo);
	start = bench_now_ns();
	if (vmm_restore(&v, img))
		die("the image is not restored");
	samples_add(&f->reply_ms, ms_since(start));
	if (!vmm_expect_log(&v, "serial: !"))
		die("the guest does not run");
	ms = ms_since(start);
	samples_add(&f->exit_ms, ms);
	samples_add(&f->net_ms, ms - echo);
	vmm_stop(&v);
}

/* kvm-floor prints one object; its figures become ours. */
static void print_floor(const char *exe, const struct vmm_options *o, unsigned runs)
{
	char command[512], text[4096];
	size_t len;
	FILE *p;

	snprintf(command, sizeof(command), "%s --vcpus %u --ram-mib %u --runs %u", exe, o->vcpus,
		 o->ram_mib, runs);
	p = popen(command, "r");
	len = p ? fread(text, 1, sizeof(text) - 1, p) : 0;
	if (!p || pclose(p) || len < 3 || text[0] != '{')
		die("kvm-floor failed");
	text[len] = '\0';
	*strrchr(text, '}') = '\0';
	printf("%s, ", text + 1);
}

static unsigned number(const char *name, const char *text, unsigned long max)
{
	char *end;
	unsigned long v = text ? strtoul(text, &end, 10) : 0;

	if (!text || *end || !v || v > max)
		die(name);
	return (unsigned)v;
}

int main(int argc, char **argv)
{
	struct vmm_options o = {.vcpus = 1, .ram_mib = 256, .debug_serial = true};
	struct figures f = {0};
	struct vmm_image img;
	unsigned runs = 100;
	int i = 1;

	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (!strcmp(argv[i], "--ram-mib"))
			o.ram_mib = number("--ram-mib", argv[i + 1], 65536);
		else if (!strcmp(argv[i], "--vcpus"))
			o.vcpus = number("--vcpus", argv[i + 1], 32);
		else if (!strcmp(argv[i], "--runs"))
			runs = number("--runs", argv[i + 1], 100000);
		else
			die("an option it does not know");
	}
	if (i >= argc)
		die("the path of ramet-vmm is missing");
	o.exe = argv[i];
	img = make_image(&o);
	printf("{");
	if (i + 1 < argc)
		print_floor(argv[i + 1], &o, runs);
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
