// SPDX-License-Identifier: Apache-2.0
/* What a program sees of /run. Each check runs in a process of its own. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/warden/view.h"

static char top[64]; /* a folder in /run with the folders "own/deep" and "other" and a file */

static const char *under(const char *name)
{
	static char paths[8][128];
	static unsigned last;
	char *path = paths[++last % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
	return path;
}

static struct sockaddr_un address(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", under(name));
	return at;
}

static void listen_at(const char *name)
{
	const struct sockaddr_un at = address(name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* open while the tests run */

	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
}

static bool connects(const char *name)
{
	const struct sockaddr_un at = address(name);
	scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0;
}

static bool put(const char *name)
{
	scoped_fd int fd = open(under(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd >= 0 && write(fd, "x", 1) == 1;
}

static bool exists(const char *name)
{
	return access(under(name), F_OK) == 0;
}

static int make_tree(void **state)
{
	if (geteuid() != 0)
		return 0;
	snprintf(top, sizeof(top), "/run/ramet-view-XXXXXX");
	if (!mkdtemp(top) || mkdir(under("own"), 0700) < 0 || mkdir(under("own/deep"), 0700) < 0 ||
	    mkdir(under("other"), 0700) < 0 || !put("file"))
		return -1;
	listen_at("own/socket");
	listen_at("other/socket");
	return 0;
}

static int remove_tree(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", top);
	return top[0] ? system(command) : 0;
}

/* Runs the check in a process that sees only these paths of /run. */
static void check(bool (*what)(void), const char *const *kept, size_t n)
{
	int status;

	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0) {
		struct err e = {0};

		if (view_hide_run(kept, n, &e) < 0) {
			fprintf(stderr, "%s\n", e.text);
			_exit(2);
		}
		_exit(what() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool sees_its_own_folder(void)
{
	return connects("own/socket") && put("own/deep/new") && exists("file") &&
	       !exists("other") && !connects("other/socket") && access("/run/systemd", F_OK) < 0;
}

static void only_kept_paths_are_visible(void **state)
{
	const char *const kept[] = {
		under("own"), under("own/deep"), under("file"), under("missing"), "", "/tmp"};

	if (geteuid() == 0)
		assert_true(connects("other/socket"));
	check(sees_its_own_folder, kept, ARRAY_LEN(kept));
	/* The folder is the host's, and the host's /run is as before. */
	assert_true(exists("own/deep/new") && exists("other"));
}

static bool sees_the_later_file(void)
{
	/* As the parent would make it. */
	return put("own/later") && exists("own/later") && !exists("other");
}

static void folder_kept_by_a_link_is_visible(void **state)
{
	static char link[64];
	const char *const kept[] = {link};

	if (geteuid() != 0)
		skip();
	snprintf(link, sizeof(link), "/tmp/ramet-view-link-%d", getpid());
	assert_int_equal(symlink(under("own"), link), 0);
	check(sees_the_later_file, kept, 1);
	unlink(link);
}

static bool sees_nothing(void)
{
	return !exists("own") && !exists("file");
}

static void without_paths_run_is_empty(void **state)
{
	check(sees_nothing, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_kept_paths_are_visible),
		cmocka_unit_test(folder_kept_by_a_link_is_visible),
		cmocka_unit_test(without_paths_run_is_empty),
	};

	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
