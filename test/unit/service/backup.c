// SPDX-License-Identifier: Apache-2.0
/* A damaged catalogue, and a catalogue restored from a backup. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/fd.h"
#include "test/unit/service/world.h"

#define PAGE 4096

struct copied {
	bool done;
	int fd;
	struct failure failure;
};

static void on_copied(void *arg, int fd, const struct failure *f)
{
	struct copied *c = arg;

	c->done = true;
	c->fd = fd;
	if (f)
		c->failure = *f;
}

static void catalogue_path(struct world *w, char out[CONFIG_PATH_MAX + 16])
{
	snprintf(out, CONFIG_PATH_MAX + 16, "%s/catalogue.db", w->config.state_dir);
}

/* Restores the backup by the steps of docs/recovery.md. */
static void put_back(struct world *w, int copy)
{
	char path[CONFIG_PATH_MAX + 16], log[CONFIG_PATH_MAX + 32];
	off_t at = 0;

	catalogue_path(w, path);
	snprintf(log, sizeof(log), "%s-wal", path);
	unlink(log);
	scoped_fd int to = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	while (sendfile(to, copy, &at, 1 << 20) > 0)
		;
	assert_true(at > 0);
}

/* Overwrites the pages from the second on, and removes the log that could repair the first. */
static void damage(struct world *w)
{
	char path[CONFIG_PATH_MAX + 16], log[CONFIG_PATH_MAX + 32], junk[PAGE];

	catalogue_path(w, path);
	snprintf(log, sizeof(log), "%s-wal", path);
	unlink(log);
	memset(junk, 0x55, sizeof(junk));
	scoped_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	for (off_t page = 1; page < 8; page++)
		assert_int_equal(pwrite(fd, junk, PAGE, page * PAGE), PAGE);
}

static int backup(struct world *w)
{
	struct copied c = {.fd = -1};

	service_backup(w->service, on_copied, &c);
	assert_false(c.done);
	world_until_true(w, &c.done);
	assert_true(c.fd >= 0);
	return c.fd;
}

static void expect_running(struct world *w, const char *id)
{
	struct run r;

	world_exec(w, &r, id, "out alive");
	assert_string_equal(r.out, "alive");
}

static void test_vms_outlive_a_damaged_catalogue(void **state)
{
	struct world *w = *state;
	struct made m;
	struct err e;

	world_create(w, &m, NULL);
	world_wait_ready(w);
	scoped_fd int copy = backup(w);
	world_kill_service(w);
	unsigned live = fakes_live(w->fakes);
	damage(w);
	for (int i = 0; i < 3; i++) {
		scoped_fd int warden = fakes_attach(w->fakes);

		assert_int_equal(loop_new(&w->loop, &e), 0);
		assert_true(service_new(&w->service, w->loop, &w->config, warden, &e) < 0);
		assert_non_null(strstr(e.text, "catalogue.db: it is damaged ("));
		loop_free(w->loop);
	}
	assert_int_equal(fakes_live(w->fakes), live);
	put_back(w, copy);
	world_start_service(w);
	expect_running(w, m.view.id);
}

static void test_backup_has_the_sandboxes_of_its_time(void **state)
{
	struct world *w = *state;
	struct copied second = {.fd = -1}, first = {.fd = -1};
	struct sandbox_view view;
	struct made old, new;
	struct failure f;

	world_create(w, &old, NULL);
	service_backup(w->service, on_copied, &first);
	service_backup(w->service, on_copied, &second);
	world_until_true(w, &first.done);
	world_until_true(w, &second.done);
	assert_int_equal(second.failure.code, FAIL_IN_USE);
	scoped_fd int copy = first.fd;
	world_create(w, &new, NULL);
	world_kill_service(w);
	put_back(w, copy);
	world_start_service(w);
	expect_running(w, old.view.id);
	assert_false(service_view(w->service, TENANT, new.view.id, &view, &f));
}

/* The first backup completes, the second is abandoned, and the service shuts down during the third.
 */
static void test_abandoned_backup_leaves_no_files(void **state)
{
	struct world *w = *state;
	struct copied c = {.fd = -1};

	op_abandon(service_backup(w->service, on_copied, &c));
	world_wait_ready(w);
	close(backup(w));
	service_backup(w->service, on_copied, &c);
	world_kill_service(w);
	assert_false(c.done);
	world_start_service(w);
	char path[CONFIG_PATH_MAX + 16];
	snprintf(path, sizeof(path), "%s/backup.tmp", w->config.state_dir);
	assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_vms_outlive_a_damaged_catalogue),
		WORLD_TEST(test_backup_has_the_sandboxes_of_its_time),
		WORLD_TEST(test_abandoned_backup_leaves_no_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
