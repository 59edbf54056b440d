// SPDX-License-Identifier: Apache-2.0
/* Runs each case in a confined child process, with all folders of the settings under /tmp. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/daemon/landlock.h"

static char top[64];
static struct config config;
static struct sockaddr_in listening; /* a service of the host */

static const char *under(const char *name)
{
	static char path[CONFIG_PATH_MAX];

	snprintf(path, sizeof(path), "%.64s/%s", top, name);
	return path;
}

static bool put(const char *path)
{
	scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd >= 0 && write(fd, "x", 1) == 1;
}

static bool can_read(const char *path)
{
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0;
}

static int make_tree(void **state)
{
	static const char *const folders[] = {"state",	      "state/a", "state/b",  "run",
					      "run/journals", "run/vm",	 "images",   "elsewhere",
					      "templates",    "fleet",	 "fleet/out"};
	socklen_t len = sizeof(listening);

	snprintf(top, sizeof(top), "/tmp/ramet-landlock-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		mkdir(under(folders[i]), 0700);
	config_defaults(&config);
	snprintf(config.state_dir, sizeof(config.state_dir), "%s", under("state"));
	snprintf(config.run_dir, sizeof(config.run_dir), "%s", under("run"));
	snprintf(config.kernel, sizeof(config.kernel), "%s", under("images/vmlinux"));
	snprintf(config.templates_dir, sizeof(config.templates_dir), "%s", under("templates"));
	put(under("elsewhere/secret"));
	put(under("images/vmlinux"));
	int fd = socket(AF_INET, SOCK_STREAM, 0); /* open while the tests run */
	listening.sin_family = AF_INET;
	listening.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return bind(fd, (struct sockaddr *)&listening, sizeof(listening)) < 0 ||
			       listen(fd, 1) < 0 ||
			       getsockname(fd, (struct sockaddr *)&listening, &len) < 0
		       ? -1
		       : 0;
}

static int remove_tree(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static bool confined(bool (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct err e;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || landlock_confine(&config, &e) < 0)
			_exit(2);
		_exit(what() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_in_range(status, 0, 1 << 8);
	return status == 0;
}

static bool keeps_its_state(void)
{
	char from[CONFIG_PATH_MAX], link[64];
	scoped_fd int dir = open(under("state/a"), O_RDONLY | O_DIRECTORY);
	scoped_fd int unnamed = open(under("state"), O_TMPFILE | O_RDWR, 0600);

	snprintf(from, sizeof(from), "%s", under("state/a/file"));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", unnamed);
	return put(from) && rename(from, under("state/b/file")) == 0 && unnamed >= 0 &&
	       linkat(AT_FDCWD, link, dir, "named", AT_SYMLINK_FOLLOW) == 0 &&
	       can_read(under("state/a/named")) && truncate(under("state/a/named"), 1) == 0 &&
	       unlink(under("state/a/named")) == 0 && mkdir(under("state/c"), 0700) == 0 &&
	       rmdir(under("state/c")) == 0 && put(under("run/journals/7"));
}

static bool replaces_its_keys(void)
{
	char from[CONFIG_PATH_MAX];

	snprintf(from, sizeof(from), "%s", under("fleet/out/.keys.json"));
	return put(from) && rename(from, under("fleet/out/keys.json")) == 0 && put(from) &&
	       rename(from, under("fleet/out/keys.json")) == 0;
}

static bool replaces_those_of_all(void)
{
	return put(under("fleet/keys.json")) || put(under("fleet/hosts.json"));
}

static bool opens_memory_again(void)
{
	scoped_fd int memory = memfd_create("memory", MFD_CLOEXEC);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	return memory >= 0 && can_read(path);
}

static bool reads_what_was_replaced(void)
{
	return can_read(under("images/vmlinux")) && can_read("/proc/meminfo");
}

static bool replaces_the_kernel(void)
{
	return put(under("images/vmlinux")) || put(under("images/new"));
}

static bool reads_elsewhere(void)
{
	return can_read(under("elsewhere/secret")) || can_read("/etc/passwd");
}

static bool writes_elsewhere(void)
{
	char from[CONFIG_PATH_MAX];

	snprintf(from, sizeof(from), "%s", under("state/a"));
	return put(under("elsewhere/new")) || put(under("run/vm/socket")) ||
	       rename(from, under("elsewhere/a")) == 0;
}

static bool connects(void)
{
	scoped_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&listening, sizeof(listening)) == 0;
}

static bool binds(uint16_t port)
{
	scoped_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
}

/* Returns a port that no program on this machine uses. */
static uint16_t free_port(void)
{
	scoped_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return ntohs(at.sin_port);
}

static bool binds_its_port(void)
{
	return binds((uint16_t)config.listen_port);
}

static bool binds_another(void)
{
	return binds(0);
}

static long abi(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
}

static void needed_files_are_accessible(void **state)
{
	assert_true(confined(keeps_its_state));
	assert_true(confined(opens_memory_again));
}

static void replaced_file_is_accessible(void **state)
{
	char new[CONFIG_PATH_MAX];

	assert_true(confined(reads_what_was_replaced));
	snprintf(new, sizeof(new), "%s", under("images/next"));
	put(new);
	rename(new, under("images/vmlinux"));
	assert_true(confined(reads_what_was_replaced));
}

static void linked_template_is_accessible(void **state)
{
	char to[CONFIG_PATH_MAX];

	snprintf(to, sizeof(to), "%s", under("elsewhere"));
	assert_int_equal(symlink(to, under("templates/linked")), 0);
	assert_true(confined(reads_elsewhere));
	unlink(under("templates/linked"));
}

static void other_files_are_inaccessible(void **state)
{
	if (abi() < 2)
		skip();
	assert_false(confined(reads_elsewhere));
	assert_false(confined(writes_elsewhere));
	assert_false(confined(replaces_the_kernel));
}

static void only_its_own_keys_are_writable(void **state)
{
	snprintf(config.fleet_dir, sizeof(config.fleet_dir), "%s", under("fleet"));
	assert_true(confined(replaces_its_keys));
	if (abi() >= 2)
		assert_false(confined(replaces_those_of_all));
	config.fleet_dir[0] = '\0';
	if (abi() >= 2)
		assert_false(confined(replaces_its_keys));
}

static void connecting_is_forbidden(void **state)
{
	assert_true(connects());
	if (abi() < 4)
		skip();
	assert_false(confined(connects));
	config.listen_port = free_port();
	assert_true(confined(binds_its_port));
	assert_false(confined(binds_another));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(needed_files_are_accessible),
		cmocka_unit_test(replaced_file_is_accessible),
		cmocka_unit_test(linked_template_is_accessible),
		cmocka_unit_test(other_files_are_inaccessible),
		cmocka_unit_test(only_its_own_keys_are_writable),
		cmocka_unit_test(connecting_is_forbidden),
	};

	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
