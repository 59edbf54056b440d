// SPDX-License-Identifier: Apache-2.0
/* The live copy of the catalogue and the file that is updated from it: kills, failed writes and
 * replaced files. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/events/line.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/store/store-internal.h"
#include "test/unit/writes/failing-writes.h"
#include "test/remove_tree.h"

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
	char dir[64], path[96], live[96];
};

static int setup(void **state)
{
	struct fixture *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/tmp/ramet-store-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/catalogue.db", p->dir);
	snprintf(p->live, sizeof(p->live), "%s/live.db", p->dir);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *p = *state;

	remove_tree(p->dir);
	free(p);
	return 0;
}

static struct store *open_store(const struct fixture *p)
{
	struct store *s;
	struct err e;

	if (store_open_live(&s, p->path, p->live, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static bool has_live(const struct fixture *p)
{
	return access(p->live, F_OK) == 0;
}

static struct store_sandbox row_of(const char *id, uint32_t slot)
{
	return (struct store_sandbox){.id = id,
				      .tenant = "local",
				      .config.template = "default",
				      .slot = slot,
				      .instance = {7, 0, 39},
				      .created_at_ms = 1000,
				      .metadata = "{\"a\":\"it's \xc3\xa9\"}",
				      .env = "A='1'\0B=2;",
				      .env_len = 11};
}

static void add(struct store *s, const char *id, uint32_t slot)
{
	struct store_sandbox row = row_of(id, slot);
	struct err e;

	store_event(s, &(struct audit_event){.name = "sandbox.created", .text = "it's"});
	if (store_sandbox_add(s, &row, &e) < 0)
		fail_msg("%s", e.text);
}

static void add_number(struct store *s, unsigned number)
{
	char id[32];

	snprintf(id, sizeof(id), "sbx_%06u", number);
	add(s, id, number);
}

/* Returns the result of store_write. */
static int write_out(struct store *s)
{
	struct store_batch *b = store_take(s);
	struct err e;

	assert_non_null(b);
	int ret = store_write(s, b, true, &e);
	store_written(s, b, ret);
	return ret;
}

/* --- two databases with the same rows -------------------------------------------------------- */

static void dump_rows(sqlite3 *db, const char *table, FILE *out)
{
	char sql[128];
	sqlite3_stmt *st;

	snprintf(sql, sizeof(sql), "SELECT * FROM %s ORDER BY 1", table);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(st); i++) {
			const void *value = sqlite3_column_blob(st, i);

			fprintf(out, "%s.%s=", table, sqlite3_column_name(st, i));
			fwrite(value ? value : "", 1, (size_t)sqlite3_column_bytes(st, i), out);
			fputc('\n', out);
		}
	sqlite3_finalize(st);
}

/* Returns the rows of all tables as text. Reads the names of the tables, so that none is left
 * out. */
static char *dump(sqlite3 *db)
{
	sqlite3_stmt *st;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(sqlite3_prepare_v2(db,
					    "SELECT name FROM sqlite_master WHERE type = 'table' "
					    "AND name != 'live_copy' ORDER BY name",
					    -1, &st, NULL),
			 SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW)
		dump_rows(db, text_at(st, 0), out);
	sqlite3_finalize(st);
	fclose(out);
	return text;
}

static sqlite3 *open_file(const struct fixture *p)
{
	sqlite3 *db;
	struct err e;

	assert_int_equal(store_open_db(&db, p->path, &e), 0);
	return db;
}

static void assert_same(const struct fixture *p, struct store *s)
{
	sqlite3 *file = open_file(p);
	char *ours = dump(s->db), *theirs = dump(file);

	assert_string_equal(ours, theirs);
	free(ours);
	free(theirs);
	sqlite3_close(file);
}

static void run_sql(const struct fixture *p, const char *sql)
{
	sqlite3 *db = open_file(p);

	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static unsigned count(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st;

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	unsigned n = u32_at(st, 0);
	sqlite3_finalize(st);
	return n;
}

#define LIVING "SELECT count(*) FROM sandboxes WHERE ended_at_ms = 0"

/* --- changes --------------------------------------------------------------------------------- */

static void change_keys(struct store *s)
{
	const uint8_t hash[2][STORE_KEY_HASH_LEN] = {{'\'', 0, ';'}, {1}};
	const struct store_revocation at = {.at_ms = 5}, now = {.at_ms = 6, .done = true};
	const struct key first = {.id = "key_1", .name = "it's; x"};
	const struct key second = {.id = "key_2", .name = "two"};
	struct err e;

	assert_int_equal(store_key_add(s, &first, hash[0], &e), 0);
	assert_int_equal(store_key_rotate(s, &second, hash[1], "key_1", &at, &e), 0);
	assert_int_equal(store_key_revoke(s, "key_1", &now, &e), 0);
}

static void change_spaces(struct store *s)
{
	static const uint8_t keys[3][STORE_HASH_LEN] = {{1, 0, 39}, {2}, {3}};
	const struct store_answer answers[] = {
		{.key = keys[0], .asks = keys[1], .tenant = "it's", .kind = 3, .ids = "spc_1"},
		{.key = keys[1], .asks = keys[1], .tenant = "b", .kind = 3, .ids = "spc_1"},
		{.key = keys[2], .asks = keys[1], .tenant = "c", .kind = 1, .ids = "again"}};
	struct store_space space = {.id = "spc_1",
				    .sandbox = "froze",
				    .metadata = "{}",
				    .env = "E=\0",
				    .env_len = 3,
				    .answers = answers,
				    .n_answers = 2};
	struct store_sandbox row = row_of("again", 40);
	struct err e;

	row.answer = &answers[2];

	add(s, "froze", 41);
	assert_int_equal(store_space_freeze(s, &space, 9, "frozen", "it was", &e), 0);
	assert_int_equal(store_space_resume(s, "spc_1", &row, &e), 0);
	assert_int_equal(store_space_removed(s, "spc_1", &e), 0);
	space.n_answers = 0;
	assert_int_equal(store_answer_forget(s, keys[1], &e), 0);
	space.id = "spc_2";
	space.sandbox = "again";
	assert_int_equal(store_space_freeze(s, &space, 9, "frozen", "it was", &e), 0);
	assert_int_equal(store_space_forget(s, "spc_2", &e), 0);
	space.id = "spc_3";
	add(s, "last", 42);
	space.sandbox = "last";
	assert_int_equal(store_space_freeze(s, &space, 9, "frozen", "it was", &e), 0);
}

static void change_sandboxes(struct store *s)
{
	const struct store_sandbox rows[] = {row_of("c1", 2), row_of("c2", 3)};
	const struct store_line line = {"c2", "p"};
	const struct store_merge m = {.parent = "p",
				      .winner = "c1",
				      .slot = 2,
				      .instance = rows[0].instance,
				      .at_ms = 7,
				      .code = "merged",
				      .text = "it was",
				      .lines = &line,
				      .n_lines = 1};
	struct err e;

	store_events_keep(s, 8);
	assert_int_equal(store_webhooks_set(s, 3, &e), 0);
	add(s, "p", 1);
	assert_int_equal(store_sandboxes_add(s, rows, 2, &e), 0);
	assert_int_equal(store_sandbox_merge(s, &m, &e), 0);
	assert_int_equal(store_sandbox_seq(s, "p", 1u << 20, &e), 0);
	add(s, "gone", 5);
	assert_int_equal(store_sandbox_forget(s, "gone", &e), 0);
	for (unsigned i = 0; i < 10; i++) {
		char id[8];

		snprintf(id, sizeof(id), "old%u", i);
		add(s, id, 100 + i);
		assert_int_equal(store_sandbox_end(s, id, 3, "expired", "its time", &e), 0);
	}
	assert_int_equal(store_purge_ended(s, 5, 4, &e), 4);
}

/* The first row is recorded as a change before the second is refused. */
static void rolled_back_changes_are_not_written(void **state)
{
	const struct store_sandbox rows[] = {row_of("x", 70), row_of("sbx_000001", 71)};
	struct fixture *p = *state;
	struct store *s = open_store(p);
	struct err e;

	add_number(s, 1);
	assert_int_equal(store_sandboxes_add(s, rows, 2, &e), -EEXIST);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	add_number(s, 2);
	assert_int_equal(store_sandboxes_add(s, rows, 2, &e), -EEXIST);
	add_number(s, 3);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	store_close(s);
}

static void file_gets_all_changes(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);

	assert_false(store_is_behind(s));
	change_sandboxes(s);
	assert_true(store_is_behind(s));
	assert_int_equal(write_out(s), 0);
	assert_false(store_is_behind(s));
	assert_same(p, s);
	change_keys(s);
	change_spaces(s);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	char *before = dump(s->db);
	store_close(s);
	assert_false(has_live(p));
	s = open_store(p);
	char *after = dump(s->db);
	assert_string_equal(before, after);
	free(before);
	free(after);
	store_close(s);
}

static void close_writes_remaining_changes(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);

	add(s, "sbx_1", 1);
	store_close(s);
	assert_false(has_live(p));
	sqlite3 *file = open_file(p);
	assert_int_equal(count(file, LIVING), 1);
	sqlite3_close(file);
}

/* Writes a batch, in a thread, while the main thread makes changes, each in one transaction.
 * Returns NULL on success. */
static void *write_all(void *arg)
{
	void **args = arg;
	struct err e;

	if (store_write(args[0], args[1], false, &e) < 0)
		return "failed";
	return NULL;
}

static void changes_continue_while_a_batch_is_written(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);
	unsigned n = 0;

	for (unsigned round = 0; round < 20; round++) {
		pthread_t thread;
		void *result;

		add_number(s, n++);
		void *args[] = {s, store_take(s)};
		assert_int_equal(pthread_create(&thread, NULL, write_all, args), 0);
		for (unsigned i = 0; i < 10; i++)
			add_number(s, n++);
		pthread_join(thread, &result);
		assert_null(result);
		store_written(s, args[1], 0);
	}
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	store_close(s);
}

static void too_many_changes_cause_a_full_copy(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);
	static char env[1 << 20];
	struct err e;

	for (unsigned i = 10; i < 20; i++)
		add_number(s, i);
	assert_int_equal(write_out(s), 0);
	store_events_keep(s, 6); /* those that the file has lack the first ones, and the last */
	for (unsigned i = 0; i < 4; i++) {
		char id[8];

		snprintf(id, sizeof(id), "big%u", i);
		struct store_sandbox row = row_of(id, i);
		row.env = env;
		row.env_len = sizeof(env);
		store_event(s, &(struct audit_event){.name = "sandbox.created"});
		assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	}
	assert_int_equal(store_sandbox_forget(s, "big0", &e), 0);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	add_number(s, 7);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	store_close(s);
}

/* --- failures -------------------------------------------------------------------------------- */

static bool disk_is_full;

static ssize_t write_or_fail(int fd, const void *data, size_t len, off_t at)
{
	if (!disk_is_full)
		return pwrite(fd, data, len, at);
	errno = ENOSPC;
	return -1;
}

static void take_over_writes(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find("unix-excl");

	vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)write_or_fail);
	vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)write_or_fail);
}

static int write_to_full_disk(struct store *s)
{
	disk_is_full = true;
	int ret = write_out(s);
	disk_is_full = false;
	return ret;
}

static void failed_changes_join_the_next_batch(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);
	struct err e;

	add_number(s, 1);
	assert_int_equal(write_to_full_disk(s), -ENOSPC);
	assert_true(store_is_behind(s));
	add_number(s, 2);
	assert_int_equal(store_sandbox_forget(s, "sbx_000001", &e), 0);
	assert_int_equal(write_to_full_disk(s), -ENOSPC);
	assert_int_equal(write_out(s), 0);
	assert_false(store_is_behind(s));
	assert_same(p, s);
	store_close(s);
}

/* After a failed sync the rows are in the file, but perhaps not on the disk: adding them again
 * would fail. */
static void failed_sync_does_not_fail_the_next_write(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);

	add_number(s, 1);
	assert_int_equal(write_out(s), 0);
	add_number(s, 2);
	writes_fail(p->dir, 1, EIO);
	assert_int_equal(write_out(s), -EIO);
	assert_true(writes_end());
	assert_true(store_is_behind(s));
	add_number(s, 3);
	assert_int_equal(write_out(s), 0);
	assert_false(store_is_behind(s));
	assert_same(p, s);
	store_close(s);
}

/* Another program changes rows of the file while the service runs. */
static void file_with_foreign_rows_is_overwritten(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);

	add_number(s, 1);
	assert_int_equal(write_out(s), 0);
	run_sql(p, "UPDATE sandboxes SET id = 'other', slot = 2");
	add_number(s, 2);
	assert_int_equal(write_out(s), -EEXIST);
	assert_int_equal(write_to_full_disk(s), -ENOSPC);
	add_number(s, 3);
	assert_int_equal(write_out(s), 0);
	assert_same(p, s);
	store_close(s);
}

static void close_on_a_full_disk_keeps_the_live_copy(void **state)
{
	struct fixture *p = *state;
	struct store *s = open_store(p);

	add_number(s, 1);
	disk_is_full = true;
	store_close(s);
	disk_is_full = false;
	assert_true(has_live(p));
	s = open_store(p);
	assert_int_equal(count(s->db, LIVING), 1);
	store_close(s);
	assert_false(has_live(p));
}

static void file_is_used_without_space_for_a_live_copy(void **state)
{
	struct fixture p = *(struct fixture *)*state;
	struct store_batch *b;
	struct err e;

	snprintf(p.live, sizeof(p.live), "%s/missing/live.db", p.dir);
	struct store *s = open_store(&p);
	add_number(s, 1);
	assert_false(store_is_behind(s));
	assert_same(&p, s);
	b = store_take(s);
	assert_int_equal(store_write(s, b, true, &e), 0);
	store_written(s, b, 0);
	store_close(s);
}

/* --- kills ----------------------------------------------------------------------------------- */

/* Adds rows in a child process, and kills it. Returns the number of rows that it had reported. */
static unsigned add_until_killed(const struct fixture *p, unsigned from, useconds_t after_us)
{
	int pipe_fds[2];
	unsigned reported = 0, number;

	assert_int_equal(pipe(pipe_fds), 0);
	pid_t child = fork();
	if (child == 0) {
		struct store *s = open_store(p);

		for (unsigned i = from;; i++) {
			add_number(s, i);
			if (write(pipe_fds[1], &i, sizeof(i)) != sizeof(i))
				_exit(1);
			if (i % 3 == 0)
				write_out(s);
		}
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], &number, sizeof(number)), sizeof(number));
	usleep(after_us);
	kill(child, SIGKILL);
	reported = number;
	while (read(pipe_fds[0], &number, sizeof(number)) == sizeof(number))
		reported = number;
	close(pipe_fds[0]);
	waitpid(child, NULL, 0);
	return reported + 1;
}

static void confirmed_changes_survive_a_kill(void **state)
{
	struct fixture *p = *state;
	unsigned rows = 0;

	for (unsigned round = 0; round < 10; round++) {
		rows = add_until_killed(p, rows, round * 1500);
		assert_true(has_live(p));
		struct store *s = open_store(p);
		unsigned found = count(s->db, LIVING);
		assert_in_range(found, rows, rows + 1); /* the last row may be unreported */
		assert_true(store_is_behind(s));
		rows = found;
		store_close(s);
	}
	sqlite3 *file = open_file(p);
	assert_int_equal(count(file, LIVING), rows);
	sqlite3_close(file);
}

static void fold_updates_the_file(void **state)
{
	struct fixture *p = *state;
	struct err e;

	assert_int_equal(store_fold(p->path, p->live, &e), 0); /* there is no live copy yet */
	unsigned rows = add_until_killed(p, 0, 0);
	assert_int_equal(store_fold(p->path, p->live, &e), 0);
	assert_false(has_live(p));
	sqlite3 *file = open_file(p);
	assert_in_range(count(file, LIVING), rows, rows + 1);
	sqlite3_close(file);
}

static void back_up(const struct fixture *p, const char *to)
{
	struct store_backup *b;
	char copy[160];
	struct err e;
	int ret;

	snprintf(copy, sizeof(copy), "%s.tmp", to);
	assert_int_equal(store_backup_new(&b, p->path, copy, &e), 0);
	while ((ret = store_backup_step(b, &e)) == 0)
		;
	assert_int_equal(ret, 1);
	assert_int_equal(link(copy, to), 0);
	close(store_backup_end(b));
}

/* The killed service left a live copy that is newer than the backup, which has no rows. */
static void restored_backup_overrides_the_live_copy(void **state)
{
	struct fixture *p = *state;
	char copy[128], log[128];

	snprintf(copy, sizeof(copy), "%s/copy", p->dir);
	snprintf(log, sizeof(log), "%s-wal", p->path);
	pid_t child = fork();
	if (child == 0) {
		struct store *s = open_store(p);

		back_up(p, copy);
		add_number(s, 1);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
	assert_true(has_live(p));
	assert_int_equal(rename(copy, p->path), 0);
	unlink(log);
	struct store *s = open_store(p);
	assert_int_equal(count(s->db, LIVING), 0);
	add_number(s, 2);
	store_close(s);
	assert_false(has_live(p));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(file_gets_all_changes),
		TEST(rolled_back_changes_are_not_written),
		TEST(close_writes_remaining_changes),
		TEST(changes_continue_while_a_batch_is_written),
		TEST(too_many_changes_cause_a_full_copy),
		TEST(failed_changes_join_the_next_batch),
		TEST(failed_sync_does_not_fail_the_next_write),
		TEST(file_with_foreign_rows_is_overwritten),
		TEST(close_on_a_full_disk_keeps_the_live_copy),
		TEST(file_is_used_without_space_for_a_live_copy),
		TEST(confirmed_changes_survive_a_kill),
		TEST(fold_updates_the_file),
		TEST(restored_backup_overrides_the_live_copy),
	};

	take_over_writes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
