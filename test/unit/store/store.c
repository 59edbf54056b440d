// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orchestrator/events/line.h"
#include "orchestrator/store/store-internal.h"
#include "test/remove_tree.h"

struct fixture {
	char dir[64], path[96];
};

static int setup(void **state)
{
	struct fixture *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/tmp/ramet-store-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/catalogue.db", p->dir);
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

	if (store_open(&s, p->path, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

/* Returns a slot that differs between the rows of a test. */
static uint32_t slot_of(const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return hash;
}

static struct store_sandbox row_of(const char *id)
{
	return (struct store_sandbox){.id = id,
				      .tenant = "local",
				      .config = {.template = "default",
						 .size = {2, 512, 4},
						 .timeout_s = 60,
						 .idle_timeout_s = 30,
						 .egress = true},
				      .slot = slot_of(id),
				      .instance = {7, 7},
				      .pid = 77,
				      .created_at_ms = 1000,
				      .expires_at_ms = 61000,
				      .seq_reserved = 1u << 20,
				      .metadata = "{\"a\":1}",
				      .env = "A=1\0B=2",
				      .env_len = 8};
}

struct rows {
	unsigned n, ended;
	char ids[8][40];
	struct store_sandbox last;
	char env[16];
};

static void note(void *arg, const struct store_sandbox *row)
{
	struct rows *rows = arg;

	snprintf(rows->ids[rows->n % 8], sizeof(rows->ids[0]), "%s", row->id);
	rows->n++;
	rows->ended += row->ended_at_ms != 0;
	rows->last = *row;
	assert_true(row->env_len <= sizeof(rows->env));
	if (row->env_len)
		memcpy(rows->env, row->env, row->env_len);
	if (row->ended_at_ms) {
		assert_string_equal(row->ended_code, "expired");
		assert_string_equal(row->ended_text, "its time is over");
	}
}

static struct rows read_rows(struct store *s)
{
	struct rows rows = {0};
	struct err e;

	assert_int_equal(store_sandboxes(s, note, &rows, &e), 0);
	assert_int_equal(rows.ended, 0);
	assert_int_equal(store_sandboxes_ended(s, 0, UINT_MAX, note, &rows, &e), 0);
	return rows;
}

static void row_survives_a_reopen(void **state)
{
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 1u << 21, &e), 0);
	store_close(s);
	s = open_store(*state);
	struct rows rows = read_rows(s);
	assert_int_equal(rows.n, 1);
	assert_int_equal(rows.last.slot, row.slot);
	assert_memory_equal(rows.last.instance, row.instance, sizeof(row.instance));
	assert_int_equal(rows.last.pid, 77);
	assert_int_equal(rows.last.seq_reserved, 1u << 21);
	assert_int_equal(rows.last.env_len, 8);
	assert_memory_equal(rows.env, "A=1\0B=2", 8);
	assert_true(rows.last.config.egress);
	assert_false(rows.last.config.persistent);
	store_close(s);
}

static void duplicate_id_is_refused(void **state)
{
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	assert_true(store_sandbox_add(s, &row, &e) < 0);
	assert_int_equal(read_rows(s).n, 1);
	store_close(s);
}

static void ended_rows_are_kept_until_a_purge(void **state)
{
	struct store_sandbox a = row_of("a"), b = row_of("b"), c = row_of("c");
	struct store *s = open_store(*state);
	struct err e;

	b.created_at_ms = 500; /* the oldest comes first */
	assert_int_equal(store_sandbox_add(s, &a, &e), 0);
	assert_int_equal(store_sandbox_add(s, &b, &e), 0);
	assert_int_equal(store_sandbox_add(s, &c, &e), 0);
	assert_int_equal(store_sandbox_end(s, "a", 2000, "expired", "its time is over", &e), 0);
	assert_int_equal(store_sandbox_end(s, "c", 3000, "expired", "its time is over", &e), 0);
	struct rows rows = read_rows(s);
	assert_int_equal(rows.n, 3);
	assert_int_equal(rows.ended, 2);
	assert_string_equal(rows.ids[0], "b");
	assert_string_equal(rows.ids[1], "a");
	assert_int_equal(store_purge_ended(s, 2500, 9, &e), 1);
	assert_int_equal(read_rows(s).n, 2);
	assert_int_equal(store_sandbox_forget(s, "b", &e), 0);
	assert_int_equal(read_rows(s).n, 1);
	store_close(s);
}

static void end_at(struct store *s, const char *id, int64_t at_ms)
{
	struct err e;

	assert_int_equal(store_sandbox_end(s, id, at_ms, "expired", "its time is over", &e), 0);
}

static void end_deletes_metadata_and_env(void **state)
{
	struct store_sandbox row = row_of("a");
	struct store *s = open_store(*state);
	struct err e;

	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	end_at(s, "a", 2000);
	store_close(s);
	sqlite3 *db;
	sqlite3_stmt *st;
	assert_int_equal(sqlite3_open(((struct fixture *)*state)->path, &db), SQLITE_OK);
	sqlite3_prepare_v2(db, "SELECT length(metadata) + length(env) FROM sandboxes", -1, &st,
			   NULL);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_int_equal(sqlite3_column_int(st, 0), 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static void add_some(struct store *s, unsigned n, unsigned ended)
{
	struct err e;
	char id[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "sbx_%u", i);
		struct store_sandbox row = row_of(id);
		assert_int_equal(store_sandbox_add(s, &row, &e), 0);
		if (i < ended)
			end_at(s, id, 1 + i);
	}
}

/* Neither the time nor the size of a purge grows with the number of rows. */
static void purge_is_bounded(void **state)
{
	struct store *s = open_store(*state);
	sqlite3_stmt *purge = s->statements[SANDBOX_PURGE];
	struct err e;

	add_some(s, 200, 150);
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_purge_ended(s, 101, 30, &e), 30);
	assert_int_equal(store_purge_ended(s, 101, 30, &e), 10); /* the other 50 ended later */
	assert_int_equal(store_purge_ended(s, 101, 30, &e), 0);
	assert_int_equal(read_rows(s).ended, 50);
	assert_int_equal(read_rows(s).n, 100);
	assert_int_equal(sqlite3_stmt_status(purge, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0), 0);
	assert_int_equal(sqlite3_stmt_status(purge, SQLITE_STMTSTATUS_SORT, 0), 0);
	store_close(s);
}

static void last_ended_rows_are_read(void **state)
{
	struct store *s = open_store(*state);
	sqlite3_stmt *ended = s->statements[SANDBOX_ENDED];
	struct rows rows = {0};
	struct err e;

	add_some(s, 100, 90);
	assert_int_equal(store_sandboxes_ended(s, 60, 5, note, &rows, &e), 0);
	assert_int_equal(rows.n, 5);
	assert_string_equal(rows.ids[0], "sbx_85");
	assert_string_equal(rows.ids[4], "sbx_89");
	assert_in_range(sqlite3_stmt_status(ended, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0), 0, 5);
	rows = (struct rows){0};
	assert_int_equal(store_sandboxes_ended(s, 60, 50, note, &rows, &e), 0);
	assert_int_equal(rows.n, 30);
	store_close(s);
}

static void slot_has_one_living_sandbox(void **state)
{
	struct store_sandbox a = row_of("a"), b = row_of("b");
	struct store *s = open_store(*state);
	struct err e;

	b.slot = a.slot;
	assert_int_equal(store_sandbox_add(s, &a, &e), 0);
	assert_true(store_sandbox_add(s, &b, &e) < 0);
	assert_non_null(strstr(e.text, "slot"));
	end_at(s, "a", 2000);
	assert_int_equal(store_sandbox_add(s, &b, &e), 0);
	store_close(s);
}

static void add_large(struct store *s, const char *prefix, unsigned n)
{
	static const char env[32 << 10];
	struct err e;
	char id[32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "%s%u", prefix, i);
		struct store_sandbox row = row_of(id);
		row.env = env;
		row.env_len = sizeof(env);
		assert_int_equal(store_sandbox_add(s, &row, &e), 0);
		end_at(s, id, 1000);
	}
}

/* New rows use the space of removed ones. */
static void file_stops_growing(void **state)
{
	const struct fixture *p = *state;
	struct store *s = open_store(p);
	off_t sizes[6];
	struct err e;

	for (int round = 0; round < 6; round++) {
		char prefix[8];
		struct stat st;

		snprintf(prefix, sizeof(prefix), "r%d-", round);
		add_large(s, prefix, 300);
		while (store_purge_ended(s, 2000, 64, &e) == 64)
			;
		assert_int_equal(stat(p->path, &st), 0);
		sizes[round] = st.st_size;
	}
	assert_int_equal(sizes[5], sizes[0]);
	assert_int_equal(read_rows(s).n, 0);
	store_close(s);
}

/* A child process is killed at a random moment; all rows that it reported as added must exist. */
static void confirmed_changes_survive_a_kill(void **state)
{
	for (int round = 0; round < 10; round++) {
		int pipe_fds[2];
		uint32_t reported = 0, number;

		assert_int_equal(pipe(pipe_fds), 0);
		pid_t child = fork();
		if (child == 0) {
			struct store *s = open_store(*state);
			struct err e;

			close(pipe_fds[0]);
			for (number = 1;; number++) {
				char id[32];

				snprintf(id, sizeof(id), "r%d-%u", round, number);
				struct store_sandbox row = row_of(id);
				if (store_sandbox_add(s, &row, &e) < 0 ||
				    write(pipe_fds[1], &number, sizeof(number)) < 0)
					_exit(1);
			}
		}
		close(pipe_fds[1]);
		for (int i = 0; i < 5 + round; i++)
			assert_int_equal(read(pipe_fds[0], &reported, sizeof(reported)),
					 sizeof(reported));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		while (read(pipe_fds[0], &number, sizeof(number)) == sizeof(number))
			reported = number;
		close(pipe_fds[0]);
		struct store *s = open_store(*state);
		struct err e;
		unsigned before = read_rows(s).n;
		assert_true(before >= reported);
		for (number = 1; number <= reported; number++) {
			char id[32];

			snprintf(id, sizeof(id), "r%d-%u", round, number);
			assert_int_equal(store_sandbox_forget(s, id, &e), 0);
		}
		assert_int_equal(read_rows(s).n, before - reported);
		store_close(s);
	}
}

struct lines {
	unsigned n, moved, ended;
	char of_d[16];
};

static void note_line(void *arg, const struct store_sandbox *row)
{
	struct lines *l = arg;

	l->n++;
	if (!strcmp(row->id, "p") && row->slot == 9 && row->pid == 99 && row->seq_reserved == 555 &&
	    row->instance[0] == 8)
		l->moved++;
	if (!strcmp(row->id, "w") && row->ended_at_ms == 7 && !strcmp(row->ended_code, "merged"))
		l->ended++;
	if (!strcmp(row->id, "d"))
		snprintf(l->of_d, sizeof(l->of_d), "%s", row->ancestors);
}

static struct lines read_lines(struct store *s)
{
	struct lines l = {0};
	struct err e;

	assert_int_equal(store_sandboxes(s, note_line, &l, &e), 0);
	assert_int_equal(store_sandboxes_ended(s, 0, UINT_MAX, note_line, &l, &e), 0);
	if (l.n == 3)
		assert_string_equal(l.of_d, l.moved ? "p" : "p w");
	return l;
}

static void many_rows_are_added_atomically(void **state)
{
	struct store_sandbox rows[] = {row_of("a"), row_of("b"), row_of("a")};
	struct store *s = open_store(*state);
	struct err e;

	assert_true(store_sandboxes_add(s, rows, 3, &e) < 0); /* an id twice */
	assert_int_equal(read_rows(s).n, 0);
	assert_int_equal(store_sandboxes_add(s, rows, 2, &e), 0);
	assert_int_equal(read_rows(s).n, 2);
	store_close(s);
}

static const struct store_line merged_line = {"d", "p"};
static const struct store_merge merged = {.parent = "p",
					  .winner = "w",
					  .slot = 9,
					  .pid = 99,
					  .instance = (const uint8_t[STORE_INSTANCE_LEN]){8},
					  .seq_reserved = 555,
					  .at_ms = 7,
					  .code = "merged",
					  .text = "into p",
					  .lines = &merged_line,
					  .n_lines = 1};

static void add_family(struct store *s)
{
	struct store_sandbox rows[] = {row_of("p"), row_of("w"), row_of("d")};
	struct err e;

	rows[1].ancestors = "p";
	rows[2].ancestors = "p w";
	assert_int_equal(store_sandboxes_add(s, rows, 3, &e), 0);
}

static void merge_is_atomic(void **state)
{
	struct store_merge nobody = merged;
	struct store *s = open_store(*state);
	struct err e;

	add_family(s);
	nobody.parent = "nobody";
	assert_true(store_sandbox_merge(s, &nobody, &e) < 0);
	assert_non_null(strstr(e.text, "nobody"));
	assert_int_equal(read_lines(s).ended, 0);
	assert_int_equal(store_sandbox_merge(s, &merged, &e), 0);
	store_close(s);
	s = open_store(*state);
	struct lines l = read_lines(s);
	assert_int_equal(l.moved, 1);
	assert_int_equal(l.ended, 1);
	store_close(s);
}

/* After a kill at a random moment, the rows are those before or those after the merge. */
static void merge_is_atomic_under_kills(void **state)
{
	unsigned after = 0;

	for (int round = 0; round < 40; round++) {
		struct store *s = open_store(*state);
		struct err e;
		int pipe_fds[2];
		char byte;

		add_family(s);
		store_close(s);
		assert_int_equal(pipe(pipe_fds), 0);
		pid_t child = fork();
		if (child == 0) {
			s = open_store(*state);
			if (write(pipe_fds[1], "x", 1) != 1)
				_exit(1);
			store_sandbox_merge(s, &merged, &e);
			if (write(pipe_fds[1], "y", 1) != 1)
				_exit(1);
			pause();
		}
		assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
		for (volatile int spin = round * 60000; spin > 0; spin--)
			;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		s = open_store(*state);
		struct lines l = read_lines(s);
		assert_int_equal(l.n, 3);
		assert_int_equal(l.moved, l.ended);
		after += l.moved;
		for (int i = 0; i < 3; i++)
			assert_int_equal(
				store_sandbox_forget(s, (const char *[]){"p", "w", "d"}[i], &e), 0);
		store_close(s);
	}
	print_message("%u of 40 merges were complete when the writer was killed\n", after);
}

static void refused(const struct fixture *p, const char *says)
{
	struct store *s = NULL;
	struct err e = {0};

	assert_true(store_open(&s, p->path, &e) < 0);
	assert_non_null(strstr(e.text, p->path));
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

static void run_sql(const struct fixture *p, const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void foreign_database_is_refused(void **state)
{
	run_sql(*state, "CREATE TABLE theirs (x)");
	refused(*state, "another program");
}

static const char *const old_steps[] = {"CREATE TABLE t (a)"};
static const char *const new_steps[] = {"CREATE TABLE t (a)", "ALTER TABLE t ADD COLUMN b",
					"ALTER TABLE t ADD COLUMN c"};

/* A program whose schema begins with step 4 and a later one whose schema has two steps more. */
static const struct schema old_schema = {old_steps, 4, 4}, new_schema = {new_steps, 4, 6};

static void later_steps_upgrade_an_older_catalogue(void **state)
{
	const struct fixture *p = *state;
	struct err e;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(store_check_schema(db, &old_schema, &e), 0);
	assert_int_equal(store_exec(db, "INSERT INTO t (a) VALUES (1)", &e), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(store_check_schema(db, &new_schema, &e), 0);
	assert_int_equal(store_exec(db, "UPDATE t SET b = a, c = a", &e), 0);
	assert_int_equal(sqlite3_changes(db), 1);
	assert_int_equal(store_check_schema(db, &old_schema, &e), -ENOTSUP);
	assert_string_equal(e.text,
			    "its schema has version 6, of a newer Ramet; this one supports only 4");
	sqlite3_close(db);
}

static void count_gone(void *arg, const char *id)
{
	assert_string_equal(id, "spc_1");
	++*(int *)arg;
}

static void space_is_gone_until_its_files_are_removed(void **state)
{
	const struct store_space space = {.id = "spc_1", .sandbox = "sbx_1"};
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;
	int n = 0;

	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	assert_int_equal(store_space_freeze(s, &space, 1, "frozen", "it is", &e), 0);
	assert_int_equal(store_space_is_gone(s, "spc_1", &e), 0);
	assert_int_equal(store_space_forget(s, "spc_1", &e), 0);
	assert_true(store_space_forget(s, "spc_1", &e) < 0);
	store_close(s);
	s = open_store(*state);
	assert_int_equal(store_space_is_gone(s, "spc_1", &e), 1);
	assert_int_equal(store_spaces_gone(s, count_gone, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(store_space_removed(s, "spc_1", &e), 0);
	assert_int_equal(store_space_is_gone(s, "spc_1", &e), 0);
	store_close(s);
}

struct answers {
	unsigned n;
	struct store_answer last;
	uint8_t key[STORE_HASH_LEN], asks[STORE_HASH_LEN];
	char tenant[16], ids[64];
};

static void note_answer(void *arg, const struct store_answer *row)
{
	struct answers *a = arg;

	a->n++;
	a->last = *row;
	memcpy(a->key, row->key, sizeof(a->key));
	memcpy(a->asks, row->asks, sizeof(a->asks));
	snprintf(a->tenant, sizeof(a->tenant), "%s", row->tenant);
	snprintf(a->ids, sizeof(a->ids), "%s", row->ids);
}

static struct answers read_answers(struct store *s)
{
	struct answers a = {0};
	struct err e;

	assert_int_equal(store_answers(s, note_answer, &a, &e), 0);
	return a;
}

static const uint8_t key_1[STORE_HASH_LEN] = {1, 0, 39}, key_2[STORE_HASH_LEN] = {2},
		     asks_1[STORE_HASH_LEN] = {3};

static void answer_is_added_with_its_sandbox(void **state)
{
	const struct store_answer answer = {.key = key_1,
					    .asks = asks_1,
					    .tenant = "local",
					    .answered_at_ms = 1000,
					    .kind = 2,
					    .ids = "sbx_1 sbx_2",
					    .pause_us = 4,
					    .ready_us = 5,
					    .copied_bytes = 6};
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	row.answer = &answer;
	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	store_close(s);
	s = open_store(*state);
	struct answers a = read_answers(s);
	assert_int_equal(a.n, 1);
	assert_memory_equal(a.key, key_1, sizeof(a.key));
	assert_memory_equal(a.asks, asks_1, sizeof(a.asks));
	assert_string_equal(a.tenant, "local");
	assert_string_equal(a.ids, "sbx_1 sbx_2");
	assert_int_equal(a.last.answered_at_ms, 1000);
	assert_int_equal(a.last.kind, 2);
	assert_int_equal(a.last.pause_us, 4);
	assert_int_equal(a.last.ready_us, 5);
	assert_int_equal(a.last.copied_bytes, 6);
	store_close(s);
}

/* Neither the sandbox nor the answer is added when the other can't be. */
static void answer_of_a_refused_sandbox_is_not_added(void **state)
{
	const struct store_answer first = {.key = key_1, .asks = asks_1, .ids = "sbx_1"};
	const struct store_answer second = {.key = key_2, .asks = asks_1, .ids = "sbx_1"};
	struct store_space space = {.id = "spc_1", .sandbox = "none", .n_answers = 1};
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	row.answer = &first;
	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	row.answer = &second;
	assert_true(store_sandbox_add(s, &row, &e) < 0);
	space.answers = &second;
	assert_true(store_space_freeze(s, &space, 1, "frozen", "it is", &e) < 0);
	assert_int_equal(read_answers(s).n, 1);
	assert_memory_equal(read_answers(s).key, key_1, sizeof(key_1));
	store_close(s);
}

static void answers_are_forgotten(void **state)
{
	struct store_answer answers[] = {
		{.key = key_1, .asks = asks_1, .answered_at_ms = 100, .ids = "spc_1"},
		{.key = key_2, .asks = asks_1, .answered_at_ms = 200, .ids = "spc_1"}};
	const struct store_space space = {
		.id = "spc_1", .sandbox = "sbx_1", .answers = answers, .n_answers = 2};
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	assert_int_equal(store_space_freeze(s, &space, 1, "frozen", "it is", &e), 0);
	assert_int_equal(read_answers(s).n, 2);
	assert_memory_equal(read_answers(s).key, key_2, sizeof(key_2)); /* oldest first */
	assert_int_equal(store_answers_purge(s, 200, &e), 0);
	assert_int_equal(read_answers(s).n, 1);
	assert_int_equal(store_answer_forget(s, key_1, &e), 0); /* there is none */
	assert_int_equal(read_answers(s).n, 1);
	assert_int_equal(store_answer_forget(s, key_2, &e), 0);
	assert_int_equal(read_answers(s).n, 0);
	store_close(s);
}

static void add_many(struct store *s, int from, int to)
{
	struct err e;

	for (int i = from; i < to; i++) {
		char id[32], env[2000];

		snprintf(id, sizeof(id), "sbx_%d", i);
		memset(env, 'e', sizeof(env));
		struct store_sandbox row = row_of(id);
		row.env = env;
		row.env_len = sizeof(env);
		row.slot = (uint32_t)i;
		assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	}
}

static void count_row(void *arg, const struct store_sandbox *row)
{
	++*(int *)arg;
}

static int count_rows(struct store *s)
{
	struct err e;
	int n = 0;

	assert_int_equal(store_sandboxes(s, count_row, &n, &e), 0);
	return n;
}

/* Damage is found before any row is used, and the file is not changed. */
static void damaged_catalogue_is_refused(void **state)
{
	char zeros[4096] = "", before[4096], after[4096];
	struct fixture *p = *state;
	struct store *s = open_store(p);

	add_many(s, 0, 300);
	store_close(s);
	char log[sizeof(p->path) + 8];
	snprintf(log, sizeof(log), "%s-wal", p->path);
	assert_int_equal(unlink(log), 0); /* the log holds copies of the pages */
	int fd = open(p->path, O_RDWR | O_CLOEXEC);
	for (off_t page = 40; page < 60; page++)
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), page * 4096), sizeof(zeros));
	assert_int_equal(pread(fd, before, sizeof(before), 0), sizeof(before));
	refused(p, "is damaged (");
	refused(p, "(Page "); /* the place of the damage */
	refused(p, "restore a backup, as described in docs/recovery.md");
	assert_int_equal(pread(fd, after, sizeof(after), 0), sizeof(after));
	assert_memory_equal(before, after, sizeof(before));
	close(fd);
}

/* Copies a file that has no name any more to `path`. */
static void keep(int from, const char *path)
{
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	off_t at = 0;

	while (sendfile(to, from, &at, 1 << 20) > 0)
		;
	close(to);
	close(from);
}

/* --- events ---------------------------------------------------------------------------------- */

static void event_of(struct store *s, const char *tenant, const char *name)
{
	const struct audit_event new = {.name = name, .at_ms = 1795298467007, .tenant = tenant};

	store_event(s, &new);
}

static void event(struct store *s, const char *name)
{
	event_of(s, "t", name);
}

static bool note_event(void *arg, const struct logged_event *event)
{
	struct audit_line head;
	char *text = arg;

	assert_true(audit_line_parse(&head, event->line, event->len));
	assert_int_equal(head.n, event->n);
	sprintf(text + strlen(text), "%d %s|", (int)event->n, head.name);
	return strcmp(head.name, "sandbox.failed") != 0;
}

static const char *events_in(struct store *s, const struct store_events_range *range, unsigned most)
{
	static char text[1024];
	struct err e;

	text[0] = 0;
	assert_int_equal(store_events(s, range, most, note_event, text, &e), 0);
	return text;
}

static const char *events_after(struct store *s, uint64_t after, unsigned most)
{
	return events_in(s, &(struct store_events_range){.after = after}, most);
}

static void count_call(void *arg)
{
	++*(int *)arg;
}

static void event_shares_the_fate_of_its_change(void **state)
{
	struct store_sandbox rows[] = {row_of("sbx_1"), row_of("sbx_2"), row_of("sbx_1")};
	struct store *s = open_store(*state);
	struct err e;
	int told = 0;

	store_events_watch(s, count_call, &told);
	event(s, "sandbox.created");
	assert_int_equal(store_sandbox_add(s, &rows[0], &e), 0);
	event(s, "sandbox.failed");
	assert_int_equal(store_sandbox_add(s, &rows[0], &e), -EEXIST);
	event(s, "sandbox.failed");
	event(s, "sandbox.failed");
	assert_int_equal(store_sandboxes_add(s, rows + 1, 2, &e), -EEXIST);
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	event(s, "sandbox.forked");
	event(s, "sandbox.forked");
	assert_int_equal(store_sandboxes_add(s, rows + 1, 1, &e), 0);
	assert_int_equal(told, 2);
	assert_string_equal(events_after(s, 0, 10),
			    "1 sandbox.created|2 sandbox.forked|3 sandbox.forked|");
	store_close(s);
	s = open_store(*state);
	assert_string_equal(events_after(s, 1, 1), "2 sandbox.forked|");
	assert_string_equal(events_after(s, 3, 10), "");
	event(s, "sandbox.died");
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 8, &e), 0);
	assert_string_equal(events_after(s, 3, 10), "4 sandbox.died|");
	assert_int_equal(store_events_count(s).added, 1);
	store_close(s);
}

static void oldest_events_are_removed(void **state)
{
	struct store *s = open_store(*state);
	struct err e;

	for (int i = 0; i < 5; i++) {
		event(s, "sandbox.died");
		assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	}
	store_events_keep(s, 2);
	event(s, "sandbox.died");
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	assert_string_equal(events_after(s, 0, 10), "5 sandbox.died|6 sandbox.died|");
	assert_int_equal(store_events_purge(s, 1795298467007, 10, &e), 0);
	/* The last one is kept, so that no number occurs twice. */
	assert_int_equal(store_events_purge(s, INT64_MAX, 10, &e), 1);
	store_close(s);
	s = open_store(*state);
	assert_string_equal(events_after(s, 0, 10), "6 sandbox.died|");
	event(s, "sandbox.died");
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	assert_string_equal(events_after(s, 6, 10), "7 sandbox.died|");
	store_close(s);
}

static uint64_t later(struct store *s, int64_t at_ms)
{
	uint64_t n = 0;
	struct err e;

	assert_int_equal(store_events_later(s, at_ms, &n, &e), 0);
	return n;
}

static void events_are_found_by_their_time(void **state)
{
	static const int64_t times[] = {1, 10, 20, 20, 30, 40};
	struct store *s = open_store(*state);
	struct err e;

	assert_int_equal(later(s, 5), 1);
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		const struct audit_event new = {
			.name = "sandbox.died", .at_ms = times[i], .tenant = "t"};

		store_event(s, &new);
		assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	}
	assert_int_equal(later(s, 0), 1);
	assert_int_equal(later(s, 1), 2);
	assert_int_equal(later(s, 19), 3);
	assert_int_equal(later(s, 20), 5);
	assert_int_equal(later(s, 39), 6);
	assert_int_equal(later(s, 40), 7);
	assert_int_equal(later(s, INT64_MAX), 7);
	assert_int_equal(store_events_purge(s, 25, 10, &e), 4);
	assert_int_equal(later(s, 39), 6);
	assert_in_range(later(s, 5), 1, 5); /* whatever was removed before the first one */
	store_close(s);
}

static void add_event_at(struct store *s, int64_t at_ms)
{
	const struct audit_event new = {.name = "sandbox.died", .at_ms = at_ms, .tenant = "t"};
	struct err e;

	store_event(s, &new);
	assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
}

static bool note_time(void *arg, const struct logged_event *event)
{
	struct audit_line head;

	assert_true(audit_line_parse(&head, event->line, event->len));
	sprintf((char *)arg + strlen(arg), "%d(%d) ", (int)event->at_ms, (int)head.at_ms);
	return true;
}

/* An event counts as not before the one before it, and keeps its own time. */
static void events_are_found_after_the_clock_was_set_back(void **state)
{
	static const int64_t times[] = {1000, 2000, 3000, 500, 600, 700, 800, 3500};
	const struct store_events_range all = {0};
	struct store *s = open_store(*state);
	char text[200] = "";
	struct err e;

	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++)
		add_event_at(s, times[i]);
	assert_int_equal(later(s, 550), 1);
	assert_int_equal(later(s, 1000), 2);
	assert_int_equal(later(s, 2999), 3);
	assert_int_equal(later(s, 3000), 8);
	store_close(s);
	s = open_store(*state);
	add_event_at(s, 900);
	assert_int_equal(later(s, 3499), 8);
	assert_int_equal(later(s, 3500), 10);
	assert_int_equal(store_events(s, &all, 100, note_time, text, &e), 0);
	assert_string_equal(text, "1000(1000) 2000(2000) 3000(3000) 3000(500) 3000(600) "
				  "3000(700) 3000(800) 3500(3500) 3500(900) ");
	assert_int_equal(store_events_purge(s, 600, 100, &e), 1);
	assert_int_equal(store_events_purge(s, 601, 100, &e), 1);
	assert_int_equal(store_events_purge(s, 2000, 100, &e), 3); /* not the last event */
	store_close(s);
}

/* The time of an event whose change was undone counts for no other. */
static void undone_event_leaves_no_time(void **state)
{
	struct store *s = open_store(*state);
	struct err e;

	store_event(s, &(struct audit_event){.name = "sandbox.died", .at_ms = 5000, .tenant = "t"});
	assert_int_equal(store_begin(s, &e), 0);
	assert_int_equal(store_end(s, -EIO, &e), -EIO);
	add_event_at(s, 1000);
	assert_int_equal(later(s, 1000), 2);
	store_close(s);
}

static bool note_number(void *arg, const struct logged_event *event)
{
	sprintf((char *)arg + strlen(arg), "%d ", (int)event->n);
	return true;
}

static const char *kept_of(struct store *s, const char *tenant)
{
	const struct store_events_range range = {.tenant = tenant};
	static char text[2][256];
	static unsigned turn;
	char *out = text[turn++ % 2];
	struct err e;

	out[0] = '\0';
	assert_int_equal(store_events(s, &range, 100, note_number, out, &e), 0);
	return out;
}

static void add_events(struct store *s, const char *tenant, int n)
{
	struct err e;

	while (n--) {
		event_of(s, tenant, "port.shared");
		assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	}
}

/* A tenant that has many events pushes out its own only. */
static void tenant_with_most_events_loses_its_oldest(void **state)
{
	struct store *s = open_store(*state);

	store_events_keep(s, 8);
	add_events(s, "quiet", 2);
	add_events(s, "loud", 40);
	assert_string_equal(kept_of(s, "quiet"), "1 2 ");
	assert_string_equal(kept_of(s, "loud"), "37 38 39 40 41 42 ");
	add_events(s, "other", 40);
	assert_string_equal(kept_of(s, "quiet"), "1 2 ");
	assert_string_equal(kept_of(s, "loud"), "40 41 42 ");
	assert_string_equal(kept_of(s, "other"), "80 81 82 ");
	store_close(s);
	s = open_store(*state);
	store_events_keep(s, 4);
	add_events(s, "quiet", 1); /* the counts are those of the catalogue */
	assert_string_equal(kept_of(s, "quiet"), "83 ");
	assert_string_equal(kept_of(s, "loud"), "41 42 ");
	assert_string_equal(kept_of(s, "other"), "82 ");
	store_close(s);
}

/* Also when its tenant has no other: the next number follows it. */
static void last_event_is_not_removed(void **state)
{
	struct store *s = open_store(*state);

	store_events_keep(s, 1);
	for (int i = 0; i < 3; i++) {
		add_events(s, "z", 1);
		add_events(s, "a", 1);
	}
	store_close(s);
	s = open_store(*state);
	assert_int_equal(store_events_count(s).last, 6);
	add_events(s, "z", 1);
	assert_int_equal(store_events_count(s).last, 7);
	store_close(s);
}

static void counts_follow_changes_that_fail_and_purges(void **state)
{
	struct store_sandbox row = row_of("sbx_1");
	struct store *s = open_store(*state);
	struct err e;

	store_events_keep(s, 4);
	assert_int_equal(store_sandbox_add(s, &row, &e), 0);
	for (int i = 0; i < 9; i++) {
		event_of(s, "failing", "sandbox.failed");
		assert_int_equal(store_sandbox_add(s, &row, &e), -EEXIST);
	}
	add_events(s, "old", 3);
	assert_int_equal(store_events_purge(s, INT64_MAX, 10, &e), 2);
	add_events(s, "new", 3);
	assert_string_equal(kept_of(s, "old"), "3 ");
	assert_string_equal(kept_of(s, "new"), "4 5 6 ");
	store_close(s);
}

static void events_are_read_by_range(void **state)
{
	struct store *s = open_store(*state);
	struct store_events_range range = {.newest_first = true};
	struct err e;

	for (int i = 0; i < 3; i++) {
		event_of(s, "a", "sandbox.created");
		event_of(s, "b", i == 1 ? "sandbox.failed" : "sandbox.died");
		assert_int_equal(store_sandbox_seq(s, "sbx_1", 7, &e), 0);
	}
	assert_string_equal(events_in(s, &range, 3),
			    "6 sandbox.died|5 sandbox.created|4 sandbox.failed|");
	range.before = 5; /* the callback wants none behind the one that failed */
	assert_string_equal(events_in(s, &range, 10), "4 sandbox.failed|");
	range.before = 4;
	range.after = 1;
	assert_string_equal(events_in(s, &range, 10), "3 sandbox.created|2 sandbox.died|");
	range = (struct store_events_range){.tenant = "a", .newest_first = true};
	assert_string_equal(events_in(s, &range, 2), "5 sandbox.created|3 sandbox.created|");
	range = (struct store_events_range){.tenant = "a", .after = 1};
	assert_string_equal(events_in(s, &range, 10), "3 sandbox.created|5 sandbox.created|");
	store_close(s);
}

/* The backup runs step by step, while rows are added. */
static void backup_is_a_snapshot(void **state)
{
	struct fixture *p = *state, copy = {0};
	struct store *s = open_store(p);
	struct store_backup *b;
	char wal[sizeof(copy.path) + 4];
	struct err e;
	int ret, n = 1000, steps = 0;

	snprintf(copy.path, sizeof(copy.path), "%s/copy", p->dir);
	add_many(s, 0, n);
	assert_int_equal(store_backup_new(&b, p->path, copy.path, &e), 0);
	while ((ret = store_backup_step(b, &e)) == 0) {
		add_many(s, n, n + 100);
		n += 100;
		steps++;
	}
	assert_int_equal(ret, 1);
	assert_true(steps > 1);
	int fd = store_backup_end(b);
	assert_true(fd >= 0 && access(copy.path, F_OK) < 0);
	snprintf(wal, sizeof(wal), "%s-wal", copy.path);
	assert_int_equal(access(wal, F_OK), -1);
	keep(fd, copy.path);
	assert_int_equal(count_rows(s), n);
	store_close(s);
	s = open_store(&copy);
	assert_int_equal(count_rows(s), 1000);
	add_many(s, n, n + 1);
	store_close(s);
}

static void other_versions_of_a_catalogue_are_refused(void **state)
{
	store_close(open_store(*state));
	run_sql(*state, "PRAGMA user_version = 1000");
	refused(*state, "its schema has version 1000, of a newer Ramet");
	run_sql(*state, "PRAGMA user_version = 9");
	refused(*state, "its schema has version 9, of an older Ramet");
	run_sql(*state, "PRAGMA user_version = -1");
	refused(*state, "of a newer Ramet");
}

static void file_that_is_not_a_database_is_refused(void **state)
{
	struct fixture *p = *state;
	int fd = open(p->path, O_WRONLY | O_CREAT, 0600);
	char junk[4096];

	memset(junk, 'j', sizeof(junk));
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	refused(p, "not a database");
}

static void missing_folder_is_refused(void **state)
{
	struct fixture missing = {.path = "/nowhere/at/all/catalogue.db"};

	refused(&missing, "open");
}

static void second_process_is_refused(void **state)
{
	struct fixture *p = *state;
	int pipe_fds[2];
	struct store *s;
	struct err e;
	char byte;

	assert_int_equal(pipe(pipe_fds), 0);
	pid_t child = fork();
	if (child == 0) {
		if (store_open(&s, p->path, &e) == 0 && write(pipe_fds[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(pipe_fds[1]);
	ssize_t opened = read(pipe_fds[0], &byte, 1);
	int ret = store_open(&s, p->path, &e);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(pipe_fds[0]);
	assert_int_equal(opened, 1);
	assert_int_equal(ret, -EBUSY);
	assert_non_null(strstr(e.text, "another process has it open"));
	store_close(open_store(p));
}

/* --- a full disk, in a child process, which exits with 77 where it may not mount one ---------- */

#define SKIPPED 77

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "on a full disk: %s\n", what);
	_exit(1);
}

static void write_line(const char *path, const char *line)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		_exit(SKIPPED);
	close(fd);
}

static void become_root(void)
{
	char uids[32], gids[32];

	snprintf(uids, sizeof(uids), "0 %u 1", geteuid());
	snprintf(gids, sizeof(gids), "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER) < 0)
		_exit(SKIPPED);
	write_line("/proc/self/setgroups", "deny");
	write_line("/proc/self/uid_map", uids);
	write_line("/proc/self/gid_map", gids);
}

static void mount_disk(const struct fixture *p)
{
	if (geteuid())
		become_root();
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("disk", p->dir, "tmpfs", 0, "size=8m") < 0)
		_exit(SKIPPED);
}

static void fill_disk(const struct fixture *p)
{
	static const char page[4096];
	char path[96];

	snprintf(path, sizeof(path), "%s/filler", p->dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	while (write(fd, page, sizeof(page)) > 0)
		;
	check(fd >= 0 && errno == ENOSPC, strerror(errno));
	close(fd);
}

static void add(struct store *s, const char *name, unsigned number)
{
	char id[32];
	struct err e;

	snprintf(id, sizeof(id), "%s_%u", name, number);
	struct store_sandbox row = row_of(id);
	check(store_sandbox_add(s, &row, &e) == 0, e.text);
}

#define ROWS 40 /* enough to need some of the reserved pages */

static void exit_with_rows(const struct fixture *p)
{
	struct store *s;
	struct err e;

	pid_t child = fork();
	if (child == 0) {
		check(store_open(&s, p->path, &e) == 0, e.text);
		for (unsigned i = 0; i < ROWS; i++)
			add(s, "sbx", i);
		kill(getpid(), SIGKILL);
	}
	int status = 0;
	waitpid(child, &status, 0);
	check(WIFSIGNALED(status), "no row could be added before it was full");
}

/* Removes the -shm file: the next instance, on a full disk, has no space to create it again. */
static void leave_only_the_catalogue(const struct fixture *p)
{
	char path[128];

	snprintf(path, sizeof(path), "%s-shm", p->path);
	unlink(path);
}

static void continue_on_full_disk(const struct fixture *p)
{
	struct store *s;
	struct err e;

	mount_disk(p);
	exit_with_rows(p);
	leave_only_the_catalogue(p);
	fill_disk(p);
	check(store_open(&s, p->path, &e) == 0, e.text);
	add(s, "late", 0);
	check(store_sandbox_end(s, "sbx_1", 1, "expired", "its time is over", &e) == 0, e.text);
	struct rows rows = {0};
	check(store_sandboxes(s, note, &rows, &e) == 0, e.text);
	check(rows.n == ROWS, "rows are lost");
	for (unsigned restart = 1; restart < 50; restart++) {
		store_close(s);
		fill_disk(p); /* fills the space that the end freed */
		check(store_open(&s, p->path, &e) == 0, e.text);
		add(s, "late", restart);
	}
	_exit(0);
}

static void catalogue_opens_on_a_full_disk(void **state)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		continue_on_full_disk(*state);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(status, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(row_survives_a_reopen),
		TEST(duplicate_id_is_refused),
		TEST(ended_rows_are_kept_until_a_purge),
		TEST(end_deletes_metadata_and_env),
		TEST(purge_is_bounded),
		TEST(last_ended_rows_are_read),
		TEST(slot_has_one_living_sandbox),
		TEST(file_stops_growing),
		TEST(confirmed_changes_survive_a_kill),
		TEST(foreign_database_is_refused),
		TEST(event_shares_the_fate_of_its_change),
		TEST(events_are_found_by_their_time),
		TEST(events_are_found_after_the_clock_was_set_back),
		TEST(undone_event_leaves_no_time),
		TEST(oldest_events_are_removed),
		TEST(tenant_with_most_events_loses_its_oldest),
		TEST(last_event_is_not_removed),
		TEST(counts_follow_changes_that_fail_and_purges),
		TEST(events_are_read_by_range),
		TEST(other_versions_of_a_catalogue_are_refused),
		TEST(later_steps_upgrade_an_older_catalogue),
		TEST(space_is_gone_until_its_files_are_removed),
		TEST(answer_is_added_with_its_sandbox),
		TEST(answer_of_a_refused_sandbox_is_not_added),
		TEST(answers_are_forgotten),
		TEST(damaged_catalogue_is_refused),
		TEST(backup_is_a_snapshot),
		TEST(many_rows_are_added_atomically),
		TEST(merge_is_atomic),
		TEST(merge_is_atomic_under_kills),
		TEST(file_that_is_not_a_database_is_refused),
		TEST(missing_folder_is_refused),
		TEST(second_process_is_refused),
		TEST(catalogue_opens_on_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
