// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"

/* The numbers of the kernel's interface; the headers of a distribution may be older. */
#define EXECUTE	    (1ull << 0)
#define WRITE_FILE  (1ull << 1)
#define READ_FILE   (1ull << 2)
#define READ_DIR    (1ull << 3)
#define REMOVE_DIR  (1ull << 4)
#define REMOVE_FILE (1ull << 5)
#define MAKE_CHAR   (1ull << 6)
#define MAKE_DIR    (1ull << 7)
#define MAKE_REG    (1ull << 8)
#define MAKE_SOCK   (1ull << 9)
#define MAKE_FIFO   (1ull << 10)
#define MAKE_BLOCK  (1ull << 11)
#define MAKE_SYM    (1ull << 12)
#define REFER	    (1ull << 13) /* ABI 2 */
#define TRUNCATE    (1ull << 14) /* ABI 3 */
#define IOCTL_DEV   (1ull << 15) /* ABI 5 */

#define BIND_TCP    (1ull << 0) /* ABI 4 */
#define CONNECT_TCP (1ull << 1)

#define SCOPE_ABSTRACT_UNIX_SOCKET (1ull << 0) /* ABI 6 */
#define SCOPE_SIGNAL		   (1ull << 1)

#define RULE_NET_PORT 2

#define ABI_LEAST 2 /* earlier versions forbid moving a file to another directory */

#define FIRST_ACCESSES                                                                             \
	(EXECUTE | WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR |      \
	 MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK | MAKE_SYM | REFER)
#define READING (READ_FILE | READ_DIR)
#define KEEPING                                                                                    \
	(READING | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE)
#define REPLACING (READING | WRITE_FILE | REMOVE_FILE | MAKE_REG | TRUNCATE)
#define ON_FILES  (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

struct port_attr {
	uint64_t access, port;
};

struct fence {
	int ruleset;
	struct ruleset_attr handled;
};

/* --- rules ---------------------------------------------------------------------------------- */

/* Allows `access` to a file, or to a folder with all below it. A path that does not exist
 * needs no rule. */
static int allow(const struct fence *f, const char *path, uint64_t access, struct err *e)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access & f->handled.fs};
	scoped_fd int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= ON_FILES;
	rule.parent_fd = fd;
	if (syscall(SYS_landlock_add_rule, f->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_set(e, errno, "confine the service to %s", path);
	return 0;
}

/* Allows reading the folder of a file that may be replaced and, if the file is a link, the folder
 * of its target. */
static int allow_around(const struct fence *f, const char *path, struct err *e)
{
	char folder[PATH_MAX];
	scoped_free char *real = realpath(path, NULL);
	int r = 0;

	for (const char *each = path; r == 0 && each && each[0];
	     each = each == path ? real : NULL) {
		snprintf(folder, sizeof(folder), "%s", each);
		char *slash = strrchr(folder, '/');

		/* For a file in the root folder, allow only the file. */
		if (slash && slash != folder)
			*slash = '\0';
		r = allow(f, folder, READING, e);
	}
	return r;
}

/* Allows reading each template, which is a folder or a link to one. */
static int allow_templates(const struct fence *f, const char *path, struct err *e)
{
	DIR *dir = path[0] ? opendir(path) : NULL;
	struct dirent *entry;
	char each[PATH_MAX];
	int r = path[0] ? allow(f, path, READING, e) : 0;

	while (r == 0 && dir && (entry = readdir(dir)))
		if (entry->d_type == DT_LNK &&
		    snprintf(each, sizeof(each), "%s/%s", path, entry->d_name) < (int)sizeof(each))
			r = allow(f, each, READING, e);
	if (dir)
		closedir(dir);
	return r;
}

static int allow_settings(const struct fence *f, const struct config *c, struct err *e)
{
	const char *const replaced[] = {c->kernel,    c->initramfs,   c->rootfs,   c->warmup,
					c->tls_cert,  c->tls_key,     c->fleet_ca, c->fleet_cert,
					c->fleet_key, c->fleet_id_key};
	char journals[CONFIG_PATH_MAX + 16], offers[CONFIG_PATH_MAX + 16];
	int r = 0;

	snprintf(journals, sizeof(journals), "%s/journals", c->run_dir);
	snprintf(offers, sizeof(offers), "%s/out", c->fleet_dir);
	if (allow(f, c->state_dir, KEEPING, e) < 0 || allow(f, journals, KEEPING, e) < 0 ||
	    allow(f, c->run_dir, READING, e) < 0 || allow_templates(f, c->templates_dir, e) < 0 ||
	    (c->ui_dir[0] && allow(f, c->ui_dir, READING, e) < 0) ||
	    (c->fleet_dir[0] &&
	     (allow(f, c->fleet_dir, READING, e) < 0 || allow(f, offers, REPLACING, e) < 0)))
		return e->code;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(replaced); i++)
		r = allow_around(f, replaced[i], e);
	return r;
}

/* Allows reading the system files that the service itself, libc and OpenSSL need. */
static int allow_system(const struct fence *f, struct err *e)
{
	static const char *const read[] = {"/proc",
					   "/sys/devices/system/cpu",
					   "/usr/lib",
					   "/lib",
					   "/lib64",
					   "/etc/ld.so.cache",
					   "/etc/ssl",
					   "/etc/localtime",
					   "/usr/share/zoneinfo",
					   "/dev/urandom"};
	int r = allow(f, "/dev/null", READ_FILE | WRITE_FILE, e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(read); i++)
		r = allow(f, read[i], READING, e);
	return r;
}

static int allow_port(const struct fence *f, uint64_t access, uint32_t port, struct err *e)
{
	const struct port_attr rule = {.access = access, .port = port};

	if (f->handled.net &&
	    syscall(SYS_landlock_add_rule, f->ruleset, RULE_NET_PORT, &rule, 0) < 0)
		return err_set(e, errno, "confine the service to port %u", port);
	return 0;
}

/* All hosts of a fleet use the same port, on which this one listens and connects to others. */
static int allow_fleet_port(const struct fence *f, const struct config *config, struct err *e)
{
	const char *colon = strrchr(config->fleet_listen, ':');
	uint32_t port;

	if (!colon || !number_parse(colon + 1, 1, UINT16_MAX, &port))
		return 0;
	return allow_port(f, BIND_TCP | CONNECT_TCP, port, e);
}

/* --- the ruleset ---------------------------------------------------------------------------- */

static struct ruleset_attr handled_by(long abi)
{
	struct ruleset_attr handled = {.fs = FIRST_ACCESSES};

	if (abi >= 3)
		handled.fs |= TRUNCATE;
	if (abi >= 4)
		handled.net = BIND_TCP | CONNECT_TCP;
	if (abi >= 5)
		handled.fs |= IOCTL_DEV;
	if (abi >= 6)
		handled.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
	return handled;
}

static int confine(const struct fence *f, const struct config *config, struct err *e)
{
	if (allow_settings(f, config, e) < 0 || allow_system(f, e) < 0 ||
	    allow_port(f, BIND_TCP, config->listen_port, e) < 0 ||
	    allow_fleet_port(f, config, e) < 0)
		return e->code;
	if (syscall(SYS_landlock_restrict_self, f->ruleset, 0) < 0)
		return err_set(e, errno, "confine the service with Landlock");
	return 0;
}

int landlock_confine(const struct config *config, struct err *e)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct fence f = {.ruleset = -1};

	if (abi < ABI_LEAST) {
		log_warn(
			"this kernel's Landlock is off or too old: the service can open every file "
			"that its user can (boot with lsm=landlock,... or use Linux 5.19 or "
			"later)");
		return 0;
	}
	f.handled = handled_by(abi);
	/* Pass the whole struct to any kernel, which accepts unknown fields that are 0. */
	f.ruleset = (int)syscall(SYS_landlock_create_ruleset, &f.handled, sizeof(f.handled), 0);
	if (f.ruleset < 0)
		return err_set(e, errno, "make a Landlock ruleset");
	int r = confine(&f, config, e);
	close_fd(&f.ruleset);
	return r;
}
