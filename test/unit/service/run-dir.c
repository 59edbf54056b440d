// SPDX-License-Identifier: Apache-2.0
/* The tmpfs for RUN_DIR has room for what the service writes there, as docs/capacity.md says. */
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "orchestrator/exec/output-budget.h"
#include "orchestrator/sandbox/sandbox.h"
#include "test/unit/service/world.h"

/* The sizes that docs/capacity.md promises. */
#define FOR_EACH_VM   ((uint64_t)256 << 10)
#define FOR_CATALOGUE ((uint64_t)32 << 20)
#define VMS_OF_A_GIB  64

#define MANY  24
#define PRINT "big 300000"

static uint64_t sum, largest; /* bytes of all files; of the largest session journal, which is
				 named by a slot's number */

static int add_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *name = path + ftw->base;
	uint64_t bytes = type == FTW_F ? (uint64_t)st->st_blocks * 512 : 0;

	sum += bytes;
	if (!name[strspn(name, "0123456789")] && bytes > largest)
		largest = bytes;
	return 0;
}

static uint64_t bytes_in(const char *dir)
{
	sum = largest = 0;
	assert_int_equal(nftw(dir, add_file, 16, FTW_PHYS), 0);
	return sum;
}

static void fill(char *text, size_t len)
{
	memset(text, 'x', len);
	text[len] = 0;
}

/* Gives each sandbox the maximum of catalogue data, and prints more output than is retained. */
static void test_sandbox_stays_within_the_documented_size(void **state)
{
	static char variables[8][SANDBOX_ENV_MAX / 8], metadata[SANDBOX_METADATA_MAX + 1];
	const char *env[8 + 1] = {NULL};
	const struct sandbox_spec spec = {.env = env, .metadata = metadata, .config.egress = true};
	struct world *w = *state;
	struct made m;
	struct run r;

	for (int i = 0; i < 8; i++) {
		fill(variables[i], sizeof(variables[i]) - 1);
		variables[i][1] = '=';
		env[i] = variables[i];
	}
	fill(metadata, SANDBOX_METADATA_MAX);
	memcpy(metadata, "{\"m\":\"", 6);
	memcpy(metadata + SANDBOX_METADATA_MAX - 2, "\"}", 2);
	world_kill_service(w);
	w->config.max_vms = 2 * MANY;
	w->config.output_mib = 1;
	world_start_service(w);
	world_wait_ready(w);
	uint64_t before = bytes_in(w->config.run_dir);
	for (int i = 0; i < MANY; i++) {
		world_create(w, &m, &spec);
		assert_true(m.ok);
		world_exec(w, &r, m.view.id, PRINT);
		if (r.failed)
			fail_msg("%s", r.failure.text);
	}
	uint64_t taken = bytes_in(w->config.run_dir) - before;
	print_message("%d sandboxes: %llu KiB each, the largest journal has %llu KiB\n", MANY,
		      (unsigned long long)(taken / MANY >> 10),
		      (unsigned long long)(largest >> 10));
	assert_true(before <= FOR_CATALOGUE / 2);
	assert_true(taken <= MANY * FOR_EACH_VM + ((uint64_t)1 << 20) /* output_mib */);
	/* The catalogue's file grows ahead of use, so `taken` does not include the first rows. */
	assert_true(largest > 0);
	assert_true(SANDBOX_ENV_MAX + SANDBOX_METADATA_MAX + 4096 + largest <= FOR_EACH_VM);
}

static unsigned size_percent(void)
{
	unsigned percent = 0;
	char line[256];
	FILE *f = fopen(MOUNT_UNIT, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Options=size=%u%%,", &percent) == 1)
			break;
	fclose(f);
	return percent;
}

static void expect_room(uint64_t host, uint64_t output)
{
	uint64_t vms = (host >> 30) * VMS_OF_A_GIB;

	assert_true(host / 100 * size_percent() >= output + vms * FOR_EACH_VM + FOR_CATALOGUE);
}

static void test_mount_has_room_for_all_vms(void **state)
{
	struct output_budget budget;
	struct sysinfo info;

	for (uint64_t gib = 4; gib <= 4096; gib *= 2)
		expect_room(gib << 30, (gib << 30) / 128 > 64 << 20 ? (gib << 30) / 128 : 64 << 20);
	/* Tests this host, with its default output_mib; a smaller host has no room for many VMs. */
	output_budget_init(&budget, 0);
	assert_int_equal(sysinfo(&info), 0);
	uint64_t host = (uint64_t)info.totalram * info.mem_unit;
	if (host >= (uint64_t)4 << 30)
		expect_room(host, budget.most);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sandbox_stays_within_the_documented_size,
						world_setup, world_teardown),
		cmocka_unit_test(test_mount_has_room_for_all_vms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
