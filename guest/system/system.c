// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/log-console.h"
#include "proto/agent.h"

#define LINK_OUTSIDE "eth0"

/* kernel-config/vmgenid.c */
#define UNIQUE_FILE	   "/sys/module/vmgenid/parameters/unique"
#define HOST_REALTIME_FILE "/sys/module/vmgenid/parameters/host_realtime"

static int add_entropy(const void *bytes, size_t len)
{
	/* struct rand_pool_info with its buffer in it */
	struct {
		int entropy_count; /* bits */
		int buf_size;	   /* bytes */
		uint8_t bytes[AGENT_ENTROPY_LEN];
	} pool;
	scoped_fd int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (len > sizeof(pool.bytes))
		return -EINVAL;
	pool.entropy_count = (int)len * 8;
	pool.buf_size = (int)len;
	memcpy(pool.bytes, bytes, len);
	int bad = ioctl(fd, RNDADDENTROPY, &pool) < 0 ? -errno : 0;
	explicit_bzero(&pool, sizeof(pool));
	if (bad)
		return bad;
	/* Otherwise the CRNG would use its old key for up to a minute. */
	return ioctl(fd, RNDRESEEDCRNG) < 0 ? -errno : 0;
}

static int64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Opens the file once, since the guest's programs may unmount /sys. */
static int64_t host_realtime_ns(void)
{
	static int fd = -1;
	char text[32];
	ssize_t n;

	if (fd < 0)
		fd = open(HOST_REALTIME_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return -errno;
	text[n] = 0;
	return strtoll(text, NULL, 10);
}

static int set_realtime(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	return clock_settime(CLOCK_REALTIME, &t) < 0 ? -errno : 0;
}

static int set_hostname(const char *name)
{
	return sethostname(name, strlen(name)) < 0 ? -errno : 0;
}

static int renew_boot_id(void)
{
	struct err e;
	int bad = boot_id_renew();

	if (bad != -EACCES)
		return bad;
	/* A user unmounted our file, or mounted another /proc over it. */
	bad = boot_id_mount(BOOT_ID_FILE, &e);
	return bad ? bad : boot_id_renew();
}

/* A connection that stays is useless but harmless: the host drops all of its packets. So a guest
 * whose kernel cannot end connections still serves. */
static int reset_tcp(void)
{
	int ended = tcp_reset(LINK_OUTSIDE);

	if (ended < 0)
		log_console("reset connections: %s", strerror(-ended));
	return 0;
}

/* Opens the file once, since the guest's programs may unmount /sys. A kernel without it promised
 * nothing, so the VMM does not wait. */
static int confirm_unique(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open(UNIQUE_FILE, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return pwrite(fd, "1", 1, 0) == 1 || errno == ENODEV ? 0 : -errno;
}

const struct system_ops system_real = {
	.add_entropy = add_entropy,
	.realtime_ns = realtime_ns,
	.host_realtime_ns = host_realtime_ns,
	.set_realtime = set_realtime,
	.set_hostname = set_hostname,
	.renew_boot_id = renew_boot_id,
	.reset_tcp = reset_tcp,
	.confirm_unique = confirm_unique,
	.grow_root = grow_root,
};

/* Defines a function that only logs what it would do. */
#define DRY(name, parameters, ...)                                                                 \
	static int dry_##name parameters                                                           \
	{                                                                                          \
		log_console("dry: " __VA_ARGS__);                                                  \
		return 0;                                                                          \
	}

DRY(entropy, (const void *bytes, size_t len), "add %zu bytes of entropy", len)
DRY(set_realtime, (int64_t ns), "set the clock to %lld ns", (long long)ns)
DRY(set_hostname, (const char *name), "set the host name to %s", name)
DRY(renew_boot_id, (void), "renew the boot id")
DRY(reset_tcp, (void), "reset TCP connections to the outside")
DRY(confirm_unique, (void), "confirm that the guest is unique")
DRY(grow_root, (uint64_t bytes, struct err *e), "grow the root file system to %llu bytes",
    (unsigned long long)bytes)

static int64_t dry_host_realtime_ns(void)
{
	return -ENOENT;
}

const struct system_ops system_dry = {
	.add_entropy = dry_entropy,
	.realtime_ns = realtime_ns,
	.host_realtime_ns = dry_host_realtime_ns,
	.set_realtime = dry_set_realtime,
	.set_hostname = dry_set_hostname,
	.renew_boot_id = dry_renew_boot_id,
	.reset_tcp = dry_reset_tcp,
	.confirm_unique = dry_confirm_unique,
	.grow_root = dry_grow_root,
};
