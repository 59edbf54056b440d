// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/privileges.h"
#include "orchestrator/warden/directory.h"

static const struct account someone = {.uid = 64123, .gid = 64124};
static char top[64];

static int set_up(void **state)
{
	snprintf(top, sizeof(top), "/tmp/ramet-directory-XXXXXX");
	if (geteuid() != 0)
		skip();
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command);
}

static const char *under(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

static void assert_is(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	struct stat st;

	assert_int_equal(lstat(under(name), &st), 0);
	assert_int_equal(st.st_uid, uid);
	assert_int_equal(st.st_gid, gid);
	assert_int_equal(st.st_mode & 07777, mode);
}

static void assert_says(const struct err *e, const char *words)
{
	if (!strstr(e->text, words))
		fail_msg("\"%s\" does not say \"%s\"", e->text, words);
}

static void missing_directories_are_created(void **state)
{
	struct err e;

	umask(077);
	scoped_fd int run = directory_for_root(under("a/b/run"), someone.gid, &e);
	scoped_fd int state_dir = directory_for_account(under("a/c/state"), someone, &e);
	assert_true(run >= 0 && state_dir >= 0);
	assert_is("a/b", 0, 0, 0755);
	assert_is("a/b/run", 0, someone.gid, 0750);
	assert_is("a/c/state", someone.uid, someone.gid, 0700);

	/* Existing directories are opened again. */
	scoped_fd int run2 = directory_for_root(under("a/b/run"), someone.gid, &e);
	scoped_fd int state2 = directory_for_account(under("a/c/state"), someone, &e);
	assert_true(run2 >= 0 && state2 >= 0);
}

/* Makes a folder of each kind, in a process of its own. */
static int make_all_as(const struct privileges *p)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct err e;
		bool made = privileges_bound(p, &e) == 0 && privileges_keep(p, &e) == 0 &&
			    directory_for_root(under("w/run"), someone.gid, &e) >= 0 &&
			    directory_for_account(under("w/state"), someone, &e) >= 0;

		if (!made)
			fprintf(stderr, "%s\n", e.text);
		_exit(!made);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void wardens_capabilities_suffice(void **state)
{
	assert_int_equal(make_all_as(&privileges_warden), 0);
	assert_is("w/run", 0, someone.gid, 0750);
	assert_is("w/state", someone.uid, someone.gid, 0700);
}

/* A directory that other programs use (as with run_dir=/run) must not be restricted. */
static void shared_directory_keeps_its_mode(void **state)
{
	struct err e;

	mkdir(under("shared"), 0755);
	chmod(under("shared"), 0755);
	scoped_fd int fd = directory_for_root(under("shared"), someone.gid, &e);
	assert_true(fd >= 0);
	assert_is("shared", 0, 0, 0755);
}

static void unsafe_directory_is_refused(void **state)
{
	struct err e;

	mkdir(under("writable"), 0755);
	chmod(under("writable"), 01777);
	assert_int_equal(directory_for_root(under("writable"), someone.gid, &e), -EPERM);
	assert_says(&e, "must belong to root and be writable by root only");

	mkdir(under("foreign"), 0755);
	assert_int_equal(chown(under("foreign"), 64125, 64125), 0);
	assert_int_equal(directory_for_root(under("foreign"), someone.gid, &e), -EPERM);

	mkdir(under("closed"), 0700);
	assert_int_equal(directory_for_root(under("closed"), someone.gid, &e), -EPERM);
	assert_says(&e, "must be open to group 64124");

	assert_int_equal(symlink("/etc", under("link")), 0);
	assert_true(directory_for_root(under("link"), someone.gid, &e) < 0);
	assert_true(directory_for_account(under("link"), someone, &e) < 0);

	close(open(under("file"), O_CREAT | O_WRONLY, 0600));
	assert_int_equal(directory_for_root(under("file"), someone.gid, &e), -ENOTDIR);
	assert_int_equal(directory_for_account(under("file/x"), someone, &e), -ENOTDIR);
}

static void only_empty_directory_changes_owner(void **state)
{
	struct err e;

	mkdir(under("empty"), 0755);
	scoped_fd int fd = directory_for_account(under("empty"), someone, &e);
	assert_true(fd >= 0);
	assert_is("empty", someone.uid, someone.gid, 0700);

	mkdir(under("full"), 0755);
	mkdir(under("full/of"), 0755);
	assert_int_equal(directory_for_account(under("full"), someone, &e), -EPERM);
	assert_says(&e, "belongs to uid 0, expected uid 64123 (chown -R 64123:64124 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(missing_directories_are_created, set_up, tear_down),
		cmocka_unit_test_setup_teardown(wardens_capabilities_suffice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shared_directory_keeps_its_mode, set_up, tear_down),
		cmocka_unit_test_setup_teardown(unsafe_directory_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_empty_directory_changes_owner, set_up,
						tear_down),
	};

	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
