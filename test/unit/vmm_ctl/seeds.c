// SPDX-License-Identifier: Apache-2.0
/*
 * The seeds of the fuzz target ctl_message: one valid request of each kind, and the requests with
 * the most content. This program makes them, so that they follow the current protocol. After a
 * change of the protocol, `RAMET_WRITE_SEEDS=1 unit_vmm_ctl_seeds` writes the files again.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vmm/ctl.h"

#define DISK_BYTES (4ull << 30)
#define MAX_RAM	   65536

static const struct {
	const char *name;
	struct ctl_msg msg; /* without its version and number */
} seeds[] = {
	{"fill-boot",
	 {.type = CTL_FILL,
	  .nfds = 4,
	  .fill = {.kind = CTL_BOOT,
		   .has_initrd = 1,
		   .ram_mib = 512,
		   .disk_bytes = DISK_BYTES,
		   .cmdline = "console=ttyS0 root=/dev/vda",
		   .instance = {1}}}},
	{"fill-restore",
	 {.type = CTL_FILL,
	  .nfds = 4,
	  .fill = {.kind = CTL_RESTORE,
		   .ram_mib = 128,
		   .disk_bytes = 4096,
		   .instance = {[15] = 1}}}},
	{"fill-restore-all-layers",
	 {.type = CTL_FILL,
	  .nfds = 4 + CTL_MEMORY_MAX + CTL_LAYERS_MAX,
	  .fill = {.kind = CTL_RESTORE,
		   .ram_mib = MAX_RAM,
		   .layers = CTL_LAYERS_MAX,
		   .memory_layers = CTL_MEMORY_MAX,
		   .disk_bytes = DISK_BYTES,
		   .instance = {1}}}},
	{"connect", {.type = CTL_CONNECT, .nfds = 1, .connect = {.port = 1024}}},
	{"pause", {.type = CTL_PAUSE}},
	{"run", {.type = CTL_RUN}},
	{"stats", {.type = CTL_STATS}},
	{"quit", {.type = CTL_QUIT}},
	{"fork", {.type = CTL_FORK, .nfds = 1, .fork = {.children = 32}}},
	{"fork-stay-paused",
	 {.type = CTL_FORK, .nfds = 1, .fork = {.children = 1, .stay_paused = 1}}},
	{"inspect", {.type = CTL_INSPECT, .nfds = 1}},
	{"record", {.type = CTL_RECORD}},
};

struct seed {
	uint8_t nfds; /* number of descriptors, as the target reads it */
	struct ctl_msg msg;
} __attribute__((packed));

static struct seed seed(size_t i)
{
	struct seed s = {.nfds = (uint8_t)seeds[i].msg.nfds, .msg = seeds[i].msg};

	s.msg.version = CTL_VERSION;
	s.msg.seq = 1;
	return s;
}

static FILE *open_seed(size_t i, const char *mode)
{
	char path[4096];

	snprintf(path, sizeof(path), SEEDS_DIR "/%s", seeds[i].name);
	FILE *f = fopen(path, mode);
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	return f;
}

static void test_each_seed_is_accepted(void **state)
{
	bool seen[CTL_RECORD + 1] = {0};

	for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
		struct seed s = seed(i);
		struct ctl_msg m = s.msg;
		struct err e = {0};

		if (ctl_check_request(&m, sizeof(m), s.nfds, &e) < 0)
			fail_msg("%s: %s", seeds[i].name, e.text);
		seen[m.type] = true;
	}
	for (int type = CTL_FILL; type <= CTL_RECORD; type++)
		assert_true(seen[type] || type == 5); /* type 5 was CTL_SAVE */
}

static void test_seed_files_are_up_to_date(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
		struct seed s = seed(i), found;
		char more;
		FILE *f = open_seed(i, "rb");

		assert_int_equal(fread(&found, sizeof(found), 1, f), 1);
		assert_int_equal(fread(&more, 1, 1, f), 0);
		fclose(f);
		assert_memory_equal(&found, &s, sizeof(s));
	}
}

static void write_seeds(void)
{
	for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
		struct seed s = seed(i);
		FILE *f = open_seed(i, "wb");

		if (fwrite(&s, sizeof(s), 1, f) != 1 || fclose(f) != 0)
			fail_msg("%s: %s", seeds[i].name, strerror(errno));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_seed_is_accepted),
		cmocka_unit_test(test_seed_files_are_up_to_date),
	};

	if (getenv("RAMET_WRITE_SEEDS"))
		write_seeds();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
