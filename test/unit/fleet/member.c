// SPDX-License-Identifier: Apache-2.0
/* A host's part in a fleet: its files, and what it does when they change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/random.h"
#include "orchestrator/fleet/member.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

static char dir[] = "/tmp/ramet-member-XXXXXX";
static struct config config;
static struct loop *loop;

static void write_file(const char *name, const char *text)
{
	char path[512], made[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(made, sizeof(made), "%s/new", dir);
	f = fopen(made, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
	assert_int_equal(rename(made, path), 0);
}

static void write_table(unsigned self, unsigned more)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"format\":1,\"fleet\":\"f\",\"cell\":3,\"self\":%u,\"hosts\":["
		 "{\"host\":%u,\"name\":\"a\",\"address\":\"10.0.0.1:1\"},"
		 "{\"host\":%u,\"name\":\"b\",\"address\":\"10.0.0.2:1\"}]}",
		 self, self, more);
	write_file("hosts.json", text);
}

static int set_up(void **state)
{
	struct err e;

	config_defaults(&config);
	assert_non_null(mkdtemp(dir));
	snprintf(config.fleet_dir, sizeof(config.fleet_dir), "%s", dir);
	snprintf(config.fleet_id_key, sizeof(config.fleet_id_key), "%s/key", dir);
	write_file("key", KEY);
	write_table(17, 18);
	return loop_new(&loop, &e);
}

static void remove_file(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static int tear_down(void **state)
{
	loop_free(loop);
	remove_file("key");
	remove_file("hosts.json");
	return rmdir(dir);
}

static struct member *start(void)
{
	struct member *m;
	struct err e;

	if (member_new(&m, loop, &config, &e) < 0)
		fail_msg("%s", e.text);
	return m;
}

static bool is_from_here(const struct member *m, const char *id)
{
	struct fleet_place at;

	return fleet_id_find_text(member_keys(m), id, strlen(id), &at) && at.cell == 3 &&
	       at.host == 17;
}

static void ids_are_hidden_only_in_a_fleet(void **state)
{
	char id[FLEET_ID_TEXT + 1], token[33];
	unsigned by_chance = 0;

	struct member *m = start();
	for (int i = 0; i < 100; i++) {
		random_id(id, sizeof(id), "sbx_");
		assert_true(id_valid("sbx_", id, strlen(id)) && is_from_here(m, id));
		random_id(token, sizeof(token), ""); /* a secret stays random in all its bytes */
		memcpy(id + 4, token, sizeof(token));
		by_chance += is_from_here(m, id);
	}
	assert_in_range(by_chance, 0, 1);
	const struct fleet_keys keys = *member_keys(m);
	member_free(m);
	for (int i = 0; i < 100; i++) {
		struct fleet_place at;

		random_id(id, sizeof(id), "sbx_");
		by_chance += fleet_id_find_text(&keys, id, strlen(id), &at) && at.host == 17;
	}
	assert_in_range(by_chance, 0, 1);
}

/* --- changes -------------------------------------------------------------------------------- */

static const struct member *watched;
static uint32_t wanted;
static struct loop_timer again;

static void until_there(void *arg)
{
	if (fleet_table_host(member_table(watched), wanted))
		loop_stop(loop);
	else
		loop_timer_start(loop, &again, until_there, NULL, 1);
}

static void stop(void *arg)
{
	loop_stop(loop);
}

static void run_until(const struct member *m, uint32_t host)
{
	watched = m;
	wanted = host;
	until_there(NULL);
	assert_int_equal(loop_run(loop), 0);
}

/* Long enough for a change to be read; if not, the test finds less. */
static void run_a_while(void)
{
	loop_timer_start(loop, &again, stop, NULL, 50);
	assert_int_equal(loop_run(loop), 0);
}

static void changed_table_is_read(void **state)
{
	struct member *m = start();

	write_table(17, 19);
	run_until(m, 19);
	assert_null(fleet_table_host(member_table(m), 18));
	write_file("hosts.json", "{\"format\":1,");
	run_a_while();
	assert_non_null(fleet_table_host(member_table(m), 19));
	/* This host cannot become another one: ids name the first. */
	write_table(16, 21);
	run_a_while();
	assert_non_null(fleet_table_host(member_table(m), 19));
	write_table(17, 22);
	run_until(m, 22);
	assert_int_equal(member_table(m)->self->number, 17);
	member_free(m);
}

static void is_freed_while_it_reads(void **state)
{
	struct member *m = start();

	write_table(17, 23);
	loop_timer_start(loop, &again, stop, NULL, 1);
	assert_int_equal(loop_run(loop), 0);
	member_free(m);
	write_table(17, 18);
}

static void start_fails(const char *why)
{
	struct member *m;
	struct err e = {0};

	assert_true(member_new(&m, loop, &config, &e) < 0);
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
}

static void missing_files_are_named(void **state)
{
	write_file("key", "secret");
	start_fails("/key: line 1 is not a key");
	write_file("key", KEY);
	write_file("hosts.json", "[]");
	start_fails("/hosts.json: ");
	remove_file("hosts.json");
	start_fails("/hosts.json: `systemctl enable --now ramet-fleet`");
	write_table(17, 18);
	strcpy(config.fleet_dir, "/nonexistent");
	start_fails("/nonexistent");
	strcpy(config.fleet_dir, dir);
	strcpy(config.fleet_id_key, "/nonexistent");
	start_fails("/nonexistent");
	snprintf(config.fleet_id_key, sizeof(config.fleet_id_key), "%s/key", dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_hidden_only_in_a_fleet),
		cmocka_unit_test(changed_table_is_read),
		cmocka_unit_test(is_freed_while_it_reads),
		cmocka_unit_test(missing_files_are_named),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
