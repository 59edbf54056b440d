// SPDX-License-Identifier: Apache-2.0
/* The audit log on a real loop and real files: order, rotation, full disks, kills. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/events/audit.h"
#include "orchestrator/events/files.h"
#include "test/remove_tree.h"

struct world {
	struct config config;
	struct loop *loop;
	struct audit *audit;
	int ring;
	char dir[64];
};

static void start(struct world *w)
{
	struct err e;

	if (loop_new(&w->loop, &e) < 0 ||
	    audit_new(&w->audit, w->loop, &w->config, w->ring, &e) < 0)
		fail_msg("%s", e.text);
}

static void stop(struct world *w)
{
	audit_stop(w->audit);
	loop_free(w->loop);
	audit_free(w->audit);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "/tmp/ramet-audit-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->config.audit_dir, sizeof(w->config.audit_dir), "%s", w->dir);
	w->config.audit_max_mib = 1;
	w->config.audit_files = 3;
	w->ring = memfd_create("ring", MFD_CLOEXEC);
	assert_int_equal(ftruncate(w->ring, AUDIT_RING_BYTES), 0);
	log_init("test", LOG_ERROR + 1);
	start(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	remove_tree(w->dir);
	close(w->ring);
	free(w);
	return 0;
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit = {bytes, RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void add(struct world *w, const char *text)
{
	audit_add(w->audit, &(struct audit_event){
				    .name = "sandbox.died", .at_ms = 1795298467007, .text = text});
}

/* Reads the content of all files, oldest first. */
static char *read_all(struct world *w)
{
	char path[128], *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	for (int age = 9; age >= 0; age--) {
		snprintf(path, sizeof(path), age ? "%s/" AUDIT_FILE ".%d" : "%s/" AUDIT_FILE,
			 w->dir, age);
		FILE *f = fopen(path, "r");
		for (int c; f && (c = fgetc(f)) != EOF;)
			fputc(c, out);
		if (f)
			fclose(f);
	}
	fclose(out);
	return text;
}

struct tally {
	unsigned lines, bad, gaps;
	uint64_t first, last, lost;
};

/* Counts the lines, whose numbers must grow by one. */
static struct tally count(struct world *w)
{
	scoped_free char *text = read_all(w);
	struct tally t = {0};
	struct audit_line line;

	for (char *p = text, *end; *p; p = end + 1) {
		end = strchr(p, '\n');
		assert_non_null(end);
		if (!audit_line_parse(&line, p, (size_t)(end - p))) {
			t.bad++;
			continue;
		}
		if (t.lines++)
			assert_int_equal(line.n, t.last + 1);
		else
			t.first = line.n;
		t.last = line.n;
		if (strcmp(line.name, "audit.lost") == 0) {
			t.gaps++;
			*end = 0;
			t.lost += strtoull(strstr(p, "\"lost\":") + 7, NULL, 10);
		}
	}
	return t;
}

struct wait {
	struct world *w;
	struct loop_timer timer;
	bool (*holds)(struct world *w);
	unsigned turns;
};

static void on_wait(void *arg)
{
	struct wait *wait = arg;

	if (wait->holds(wait->w) || ++wait->turns > 20000)
		loop_stop(wait->w->loop);
	else
		loop_timer_set(wait->w->loop, &wait->timer, 1);
}

static void until(struct world *w, bool (*holds)(struct world *w))
{
	struct wait wait = {.w = w, .holds = holds};

	wait.timer = (struct loop_timer){.fn = on_wait, .arg = &wait};
	loop_timer_set(w->loop, &wait.timer, 0);
	assert_int_equal(loop_run(w->loop), 0);
	assert_true(holds(w));
}

static bool nothing_waits(struct world *w)
{
	struct audit_stats f;

	audit_stats(w->audit, &f);
	return f.waiting_bytes == 0;
}

static bool has_failed(struct world *w)
{
	struct audit_stats f;

	audit_stats(w->audit, &f);
	return f.failures > 0;
}

static void lines_are_written_in_order(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 1000; i++)
		add(w, "one of them");
	until(w, nothing_waits);
	struct tally t = count(w);
	assert_int_equal(t.lines, 1000);
	assert_int_equal(t.first, 1);
	stop(w);
}

static void waiting_lines_are_written_at_the_end(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2000; i++)
		add(w, "one of them");
	stop(w);
	assert_int_equal(count(w).lines, 2000);
	start(w);
	add(w, "and one more");
	stop(w);
	assert_int_equal(count(w).last, 2001);
}

/* Adds lines as `rametctl` does while no service runs. */
static void lines_can_be_added_without_a_service(void **state)
{
	struct world *w = *state;
	const struct audit_event made = {
		.name = "key.created", .at_ms = 1795298467007, .key = "key_1", .previous = "key_0"};
	scoped_fd int dir = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct audit_files j = {.dir = dir, .fd = -1, .max_bytes = 1 << 20, .files = 3};
	struct err e;

	add(w, "before");
	stop(w);
	assert_int_equal(audit_files_add(&j, &made, &e), 0);
	assert_int_equal(audit_files_add(&j, &made, &e), 0);
	limit_files(0);
	assert_int_equal(audit_files_add(&j, &made, &e), -EFBIG);
	limit_files(RLIM_INFINITY);
	audit_files_close(&j);
	start(w);
	add(w, "after");
	stop(w);
	assert_int_equal(count(w).lines, 4);
	scoped_free char *text = read_all(w);
	assert_non_null(strstr(text, "\"event\":\"key.created\",\"key\":\"key_1\","
				     "\"previous\":\"key_0\"}\n"));
}

static void files_are_rotated_by_size(void **state)
{
	struct world *w = *state;
	char path[128];
	struct stat st;

	for (int i = 0; i < 40000; i++) {
		add(w, "a line of some length, that fills a MiB with some thousands of them");
		if (i % 1000 == 0)
			until(w, nothing_waits);
	}
	stop(w);
	struct tally t = count(w);
	assert_int_equal(t.last, 40000);
	assert_int_equal(t.bad + t.gaps, 0);
	assert_true(t.first > 1); /* the oldest are gone */
	for (int age = 0; age < 4; age++) {
		snprintf(path, sizeof(path), age ? "%s/" AUDIT_FILE ".%d" : "%s/" AUDIT_FILE,
			 w->dir, age);
		assert_int_equal(stat(path, &st), age < 3 ? 0 : -1);
		if (age < 3)
			assert_in_range(st.st_size, 1, 1 << 20);
	}
}

static void full_disk_leaves_a_counted_gap(void **state)
{
	struct world *w = *state;
	struct audit_stats f;

	add(w, "before");
	until(w, nothing_waits);
	limit_files(1000); /* the limit is in the middle of a line */
	for (int i = 0; i < 20000; i++)
		add(w, "one that may be lost");
	until(w, has_failed);
	audit_stats(w->audit, &f);
	assert_true(f.lost > 0);
	assert_in_range(f.waiting_bytes, 1, 1 << 20);
	limit_files(RLIM_INFINITY);
	until(w, nothing_waits);
	add(w, "after");
	stop(w);
	struct tally t = count(w);
	assert_int_equal(t.bad, 0);
	assert_int_equal(t.gaps, 1);
	assert_int_equal(t.lost, f.lost);
	assert_int_equal(t.lines - t.gaps + t.lost, 20002);
}

static void service_survives_a_full_disk(void **state)
{
	struct world *w = *state;

	limit_files(300);
	add(w, "one");
	add(w, "two");
	add(w, "three");
	stop(w);
	limit_files(RLIM_INFINITY);
	/* The remaining lines are in the memory that the next instance finds. */
	start(w);
	add(w, "four");
	stop(w);
	struct tally t = count(w);
	assert_int_equal(t.last, 4);
	assert_true(t.bad <= 1); /* the torn line */
}

/* Simulates a kill: the ring has lines, and the first `bytes` of them are also in the file. */
static void killed_after(struct world *w, off_t bytes)
{
	char path[128];

	stop(w);
	close(w->ring);
	w->ring = memfd_create("ring", MFD_CLOEXEC);
	assert_int_equal(ftruncate(w->ring, AUDIT_RING_BYTES), 0);
	snprintf(path, sizeof(path), "%s/" AUDIT_FILE, w->dir);
	unlink(path);
	limit_files(0);
	start(w);
	for (int i = 0; i < 9; i++)
		add(w, "of the killed one");
	struct audit *killed = w->audit;
	until(w, has_failed);
	audit_stop(killed);
	loop_free(w->loop);
	/* No line could be written, so all are still in the ring; the test writes the file
	 * itself. */
	limit_files(RLIM_INFINITY);
	char *ring = mmap(NULL, AUDIT_RING_BYTES, PROT_READ, MAP_SHARED, w->ring, 0);
	FILE *f = fopen(path, "w");
	fwrite(memmem(ring, AUDIT_RING_BYTES, "{\"n\":1,", 7), 1, (size_t)bytes, f);
	fclose(f);
	munmap(ring, AUDIT_RING_BYTES);
	free(killed); /* its descriptors and mapping end with the process */
	start(w);
	add(w, "of the next");
	stop(w);
}

static void kill_neither_loses_nor_repeats_lines(void **state)
{
	struct world *w = *state;
	static const off_t cuts[] = {0, 1, 70, 136, 137, 138, 500, 900, 1000};

	for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
		if (i)
			start(w);
		killed_after(w, cuts[i]);
		struct tally t = count(w);
		assert_int_equal(t.lines, 10);
		assert_int_equal(t.first, 1);
		assert_true(t.bad <= 1);
	}
}

static void invalid_ring_is_reset(void **state)
{
	struct world *w = *state;
	char junk[4096];

	stop(w);
	memset(junk, 0xa5, sizeof(junk));
	assert_int_equal(pwrite(w->ring, junk, sizeof(junk), 0), sizeof(junk));
	start(w);
	add(w, "here");
	stop(w);
	assert_int_equal(count(w).lines, 1);
	/* The positions are valid, but the content is not. */
	assert_int_equal(pwrite(w->ring, junk, sizeof(junk), 32), sizeof(junk));
	uint64_t tail = 4000, head = 0;
	assert_int_equal(pwrite(w->ring, &head, 8, 8), 8);
	assert_int_equal(pwrite(w->ring, &tail, 8, 16), 8);
	start(w);
	add(w, "there");
	stop(w);
	assert_int_equal(count(w).last, 2);
}

static void missing_folder_is_an_error(void **state)
{
	struct world *w = *state;
	struct config config = w->config;
	struct audit *none;
	struct err e;

	strcat(config.audit_dir, "/not-there");
	assert_true(audit_new(&none, w->loop, &config, -1, &e) < 0);
	assert_non_null(strstr(e.text, "not-there"));
	config.audit_dir[0] = 0;
	assert_int_equal(audit_new(&none, w->loop, &config, -1, &e), 0);
	assert_null(none);
	audit_add(none, &(struct audit_event){.name = "sandbox.died"});
	stop(w);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(lines_are_written_in_order),
		TEST(waiting_lines_are_written_at_the_end),
		TEST(lines_can_be_added_without_a_service),
		TEST(files_are_rotated_by_size),
		TEST(full_disk_leaves_a_counted_gap),
		TEST(service_survives_a_full_disk),
		TEST(kill_neither_loses_nor_repeats_lines),
		TEST(invalid_ring_is_reset),
		TEST(missing_folder_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
