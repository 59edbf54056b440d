// SPDX-License-Identifier: Apache-2.0
/* Each write of a freeze and of a resume fails in turn: afterwards there is either the sandbox or
 * the Space, intact, and nothing else. A checkpoint whose write fails stays in memory, and is
 * written later. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "orchestrator/snapshot/space-files.h"
#include "orchestrator/snapshot/state.h"
#include "test/unit/service/world.h"
#include "test/unit/writes/failing-writes.h"

static const int errors[] = {ENOSPC, EIO, 0};

/* Fails the `n`th change of a file with `error`; if that is 0, makes the `n`th write short. */
static void break_write(struct world *w, unsigned n, int error)
{
	if (error)
		writes_fail(w->config.state_dir, n, error);
	else
		writes_are_short(w->config.state_dir, n);
}

struct listing {
	unsigned n;
	bool damaged;
	char id[SANDBOX_ID_LEN + 1]; /* of the last Space */
};

static void on_space(void *arg, const struct space_view *view)
{
	struct listing *l = arg;

	l->n++;
	memcpy(l->id, view->id, sizeof(l->id));
	l->damaged = l->damaged || strcmp(view->state, "frozen") != 0;
}

static unsigned spaces(struct world *w)
{
	struct listing l = {0};

	world_spaces(w, TENANT, on_space, &l);
	assert_false(l.damaged);
	return l.n;
}

static unsigned entries(struct world *w, const char *name, const char *part)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/%s", w->config.state_dir, name);
	DIR *d = opendir(path);
	while (d && (entry = readdir(d)))
		n += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
	if (d)
		closedir(d);
	return n;
}

struct count {
	struct world *w;
	unsigned n;
};

static bool has_directories(void *arg)
{
	const struct count *c = arg;

	return entries(c->w, "spaces", "") == c->n;
}

/* Waits until `n` directories are left, since workers remove the others in the background. */
static void expect_directories(struct world *w, unsigned n)
{
	struct count c = {w, n};

	world_until(w, has_directories, &c);
	assert_int_equal(entries(w, "bases", ".tmp"), 0);
}

static void expect_alive(struct world *w, const char *id)
{
	struct run r;

	world_exec(w, &r, id, "marked");
	assert_string_equal(r.out, "of before");
}

static uint32_t checksum_of(int fd, uint64_t bytes)
{
	struct file_walk walk = {0};
	uint64_t done = 0;
	struct err e;

	assert_int_equal(file_walk_begin(&walk, fd, -1, bytes, &e), 0);
	while (file_walk_step(&walk, SPACE_STEP_BYTES, &done, &e) == 0)
		;
	file_walk_end(&walk);
	return walk.sum;
}

/* Reads and verifies all files of the Space, even those whose checksums this process has cached. */
static void expect_whole(struct world *w, const char *space)
{
	struct space_read read = {0};

	space_read_begin(&read, w->config.state_dir, space);
	int ret;
	do
		ret = space_read_step(&read);
	while (ret == 0);
	if (ret < 0)
		fail_msg("%s", read.job.err.text);
	for (unsigned i = 0; i < read.manifest.image.n_files; i++)
		assert_int_equal(checksum_of(read.fds[i], read.manifest.image.files[i].bytes),
				 read.manifest.image.files[i].sum);
	space_read_fini(&read);
}

static void make(struct world *w, struct made *m)
{
	struct run r;

	world_create(w, m, NULL);
	assert_true(m->ok);
	world_exec(w, &r, m->view.id, "mark of before");
	world_wait_ready(w);
}

/* Asserts that the freeze was undone, or, when the catalogue has the Space and the disk may not,
 * that the error names the Space. */
static void expect_reported(struct world *w, struct frozen *z, int error)
{
	assert_non_null(strstr(z->failure.text, strerror(error)));
	if (z->failure.code == FAIL_CATALOGUE) {
		struct listing l = {0};

		world_spaces(w, TENANT, on_space, &l);
		assert_int_equal(l.n, 1);
		assert_non_null(strstr(z->failure.text, l.id));
		memcpy(z->id, l.id, sizeof(z->id));
		z->ok = true;
		return;
	}
	assert_int_equal(z->failure.code, FAIL_FREEZE_FAILED);
	assert_non_null(strstr(z->failure.text, "keeps running: "));
	assert_int_equal(spaces(w), 0);
	expect_directories(w, 0);
}

/* Fails the first write of a freeze, then the second of another, and so on, until a freeze has
 * fewer writes. Freezes a new sandbox each time, so that all do the same writes. Returns how many
 * freezes failed. */
static unsigned freeze_until_no_write_fails(struct world *w, int error)
{
	unsigned n = 0, failed = 0;
	struct frozen z;
	struct made m;
	struct done d;
	bool broke;

	do {
		make(w, &m);
		break_write(w, ++n, error);
		world_freeze(w, &z, m.view.id);
		broke = writes_end();
		if (!z.ok) {
			assert_true(broke);
			failed++;
			expect_reported(w, &z, error);
		}
		if (z.ok) {
			expect_whole(w, z.id);
			world_resume(w, &m, z.id);
			assert_true(m.ok);
		}
		expect_alive(w, m.view.id);
		world_delete(w, &d, m.view.id);
		assert_int_equal(spaces(w), 0);
		expect_directories(w, 0);
	} while (broke);
	print_message("%u writes in a freeze, %u of which are essential: %s\n", n - 1, failed,
		      error ? strerror(error) : "short");
	return failed;
}

static void test_each_failed_write_of_a_freeze_is_survived(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		unsigned failed = freeze_until_no_write_fails(*state, errors[i]);

		assert_int_equal(failed > 8, errors[i] != 0); /* short writes are continued */
	}
}

/* Fails the first write of a resume, then the second of another, and so on, until a resume has
 * fewer writes. Returns how many resumes failed. */
static unsigned resume_until_no_write_fails(struct world *w, int error)
{
	unsigned n = 0, failed = 0;
	struct frozen z;
	struct made m;
	struct done d;
	bool broke;

	make(w, &m);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	do {
		world_wait_ready(w);
		break_write(w, ++n, error);
		world_resume(w, &m, z.id);
		broke = writes_end();
		if (m.ok) {
			expect_alive(w, m.view.id);
			assert_int_equal(spaces(w), 0);
			world_freeze(w, &z, m.view.id);
			if (!z.ok)
				fail_msg("%s", z.failure.text);
		} else {
			assert_true(broke);
			failed++;
			assert_non_null(strstr(m.failure.text, "is kept: "));
			assert_non_null(strstr(m.failure.text, strerror(error)));
		}
		assert_int_equal(spaces(w), 1);
		expect_directories(w, 1);
		expect_whole(w, z.id);
	} while (broke);
	print_message("%u writes in a resume, %u of which are essential: %s\n", n - 1, failed,
		      error ? strerror(error) : "short");
	world_resume(w, &m, z.id);
	expect_alive(w, m.view.id);
	world_delete(w, &d, m.view.id);
	expect_directories(w, 0);
	return failed;
}

static void test_each_failed_write_of_a_resume_is_survived(void **state)
{
	for (size_t i = 0; i < 2; i++)
		assert_int_not_equal(resume_until_no_write_fails(*state, errors[i]), 0);
}

struct taken {
	bool done;
	char id[SANDBOX_ID_LEN + 1]; /* empty: it was not taken */
};

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct taken *t = arg;

	t->done = true;
	if (view)
		memcpy(t->id, view->id, sizeof(t->id));
}

static bool is_stored(const struct world *w)
{
	return list_empty(&snapshots_of_service(w->service)->unwritten);
}

static bool write_is_over(void *arg)
{
	const struct world *w = arg;

	return is_stored(w) || snapshots_of_service(w->service)->write_at_ms;
}

static void write_again(struct world *w)
{
	expect_directories(w, 0);
	snapshots_of_service(w->service)->write_at_ms = 0;
	checkpoints_check(w->service);
	world_until(w, write_is_over, w);
	assert_true(is_stored(w));
}

/* Fails the first write of a checkpoint, then the second of another, and so on, until one has fewer
 * writes. Returns how many could not be written at once. */
static unsigned take_until_no_write_fails(struct world *w, int error)
{
	const struct checkpoint_spec spec = {0};
	unsigned n = 0, failed = 0;
	struct made m;
	struct done d;
	bool broke;

	do {
		struct taken t = {0};

		make(w, &m);
		break_write(w, ++n, error);
		service_checkpoint(w->service, TENANT, m.view.id, &spec, on_taken, &t);
		world_until_true(w, &t.done);
		world_until(w, write_is_over, w);
		broke = writes_end();
		expect_alive(w, m.view.id);
		failed += !t.id[0] || !is_stored(w);
		assert_true(broke || (t.id[0] && is_stored(w)));
		if (!is_stored(w))
			write_again(w);
		if (t.id[0]) {
			expect_whole(w, t.id);
			d = (struct done){0};
			service_checkpoint_delete(w->service, TENANT, t.id, world_on_done, &d);
			world_until_true(w, &d.done);
			assert_false(d.failed);
		}
		world_delete(w, &d, m.view.id);
		expect_directories(w, 0);
	} while (broke);
	print_message("%u writes in a checkpoint, %u of which are essential: %s\n", n - 1, failed,
		      error ? strerror(error) : "short");
	return failed;
}

static void test_each_failed_write_of_a_checkpoint_is_survived(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		unsigned failed = take_until_no_write_fails(*state, errors[i]);

		assert_int_equal(failed > 8, errors[i] != 0); /* short writes are continued */
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_failed_write_of_a_freeze_is_survived),
		TEST(test_each_failed_write_of_a_resume_is_survived),
		TEST(test_each_failed_write_of_a_checkpoint_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
