// SPDX-License-Identifier: Apache-2.0
/* Tenants' private copies of memory files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/images/private.h"

#define TEXT "the memory of a guest"

struct world {
	struct loop *loop;
	struct config config;
	struct template_env env;
	struct privates *all;
	int memory; /* the memory file of an image */
	struct stat st;
	bool has_sandboxes, is_answered, has_failed;
};

static bool tenant_has_sandboxes(void *arg, const char *tenant)
{
	const struct world *w = arg;

	return w->has_sandboxes;
}

static const struct template_env_ops ops = {.tenant_has_sandboxes = tenant_has_sandboxes};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char path[CONFIG_PATH_MAX + 16];
	struct err e;

	strcpy(w->config.state_dir, "/tmp/ramet-private-XXXXXX");
	assert_non_null(mkdtemp(w->config.state_dir));
	assert_int_equal(loop_new(&w->loop, &e), 0);
	w->env =
		(struct template_env){.loop = w->loop, .config = &w->config, .ops = &ops, .arg = w};
	w->all = privates_new(&w->env);
	snprintf(path, sizeof(path), "%s/memory", w->config.state_dir);
	w->memory = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(w->memory >= 0);
	assert_int_equal(write(w->memory, TEXT, sizeof(TEXT)), sizeof(TEXT));
	assert_int_equal(fstat(w->memory, &w->st), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[CONFIG_PATH_MAX + 16];

	privates_free(w->all);
	loop_free(w->loop);
	close_fd(&w->memory);
	snprintf(command, sizeof(command), "rm -r %s", w->config.state_dir);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static void on_copy(void *arg, const struct failure *f)
{
	struct world *w = arg;

	w->is_answered = true;
	w->has_failed = f != NULL;
	loop_stop(w->loop);
}

/* Returns a descriptor of the tenant's copy, which is made if there is none. */
static int copy_of(struct world *w, const char *tenant)
{
	struct waiter wait = {0};
	int fd = fcntl(w->memory, F_DUPFD_CLOEXEC, 3);
	struct err e;

	w->is_answered = false;
	if (!private_ready(w->all, tenant, fd, &w->st, &wait, on_copy, w)) {
		loop_run(w->loop);
		assert_true(w->is_answered);
		assert_false(w->has_failed);
	}
	assert_int_equal(private_take(w->all, tenant, &fd, &w->st, &e), 0);
	return fd;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void test_copy_is_another_file_with_the_same_bytes(void **state)
{
	struct world *w = *state;
	char text[sizeof(TEXT)];
	scoped_fd int copy = copy_of(w, "tnt_a");

	assert_int_not_equal(inode_of(copy), w->st.st_ino);
	assert_int_equal(pread(copy, text, sizeof(text), 0), sizeof(text));
	assert_string_equal(text, TEXT);
	assert_int_equal(write(copy, "x", 1), -1); /* read-only */
	assert_true(private_bytes(w->all, "tnt_a") > 0);
	assert_int_equal(private_bytes(w->all, "tnt_b"), 0);
}

static void test_vms_of_a_tenant_share_one_copy(void **state)
{
	struct world *w = *state;
	scoped_fd int first = copy_of(w, "tnt_a"), second = copy_of(w, "tnt_a");

	assert_false(w->is_answered); /* nobody had to wait */
	assert_int_equal(inode_of(first), inode_of(second));
}

static void test_tenants_share_no_copy(void **state)
{
	struct world *w = *state;
	scoped_fd int a = copy_of(w, "tnt_a"), b = copy_of(w, "tnt_b");

	assert_int_not_equal(inode_of(a), inode_of(b));
}

/* The memory file of a frozen sandbox's image may be such a copy. */
static void test_copy_is_not_copied_again(void **state)
{
	struct world *w = *state;
	struct waiter wait = {0};
	int copy = copy_of(w, "tnt_a"), before = copy;
	struct stat st;
	struct err e;

	assert_int_equal(fstat(copy, &st), 0);
	assert_true(private_ready(w->all, "tnt_a", copy, &st, &wait, on_copy, w));
	assert_int_equal(private_take(w->all, "tnt_a", &copy, &st, &e), 0);
	assert_int_equal(copy, before);
	close_fd(&copy);
}

static void test_restart_removes_copies_of_tenants_without_sandboxes(void **state)
{
	struct world *w = *state;
	scoped_fd int copy = copy_of(w, "tnt_a");
	struct stat st;

	for (int has = 1; has >= 0; has--) {
		privates_free(w->all);
		w->all = privates_new(&w->env);
		w->has_sandboxes = has;
		privates_load(w->all);
		assert_int_equal(private_bytes(w->all, "tnt_a") != 0, has);
		assert_int_equal(fstat(copy, &st), 0);
		assert_int_equal(st.st_nlink, has);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_copy_is_another_file_with_the_same_bytes),
		TEST(test_vms_of_a_tenant_share_one_copy),
		TEST(test_tenants_share_no_copy),
		TEST(test_copy_is_not_copied_again),
		TEST(test_restart_removes_copies_of_tenants_without_sandboxes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
