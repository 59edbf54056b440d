// SPDX-License-Identifier: Apache-2.0
/*
 * One round trip over virtio-vsock with no service in between: restores the template in a VM of its
 * own and pings the guest's agent. Prints one JSON object.
 *
 *   vsock-rtt --runs 400
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/wire.h"
#include "bench/stats.h"
#include "proto/agent.h"
#include "test/native/vmm-client.h"

#define TEMPLATES "/var/lib/ramet/templates"
#define ROOTFS	  "/usr/share/ramet/rootfs.ext4"
#define VMM	  "/usr/lib/ramet/ramet-vmm"
#define MS(ns)	  ((double)(ns) / 1e6)

static void die(const char *what)
{
	fprintf(stderr, "vsock-rtt: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), tail = strlen(end);

	return len >= tail && !strcmp(name + len - tail, end);
}

/* The image of the default template's default size, as the running service made it. */
static const char *find_template(void)
{
	static char path[PATH_MAX];
	DIR *d = opendir(TEMPLATES);

	for (struct dirent *f; d && (f = readdir(d));)
		if (!strncmp(f->d_name, "default-", 8) && ends_with(f->d_name, "-2c-512m-4g"))
			snprintf(path, sizeof(path), TEMPLATES "/%s", f->d_name);
	if (d)
		closedir(d);
	if (!path[0])
		die("no template image in " TEMPLATES);
	return path;
}

static int open_in(const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static int connect_agent(struct vmm *v)
{
	struct ctl_msg m = {.type = CTL_CONNECT, .connect.port = AGENT_PORT};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
	    fcntl(pair[1], F_SETFL, O_NONBLOCK) < 0)
		die("socketpair");
	int r = vmm_call(v, &m, &pair[1], 1);
	if (r < 0) {
		errno = -r;
		die("connect to the guest's agent");
	}
	close(pair[1]);
	return pair[0];
}

static void read_all(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)buf + done, len - done);
		if (n <= 0)
			die("the agent closed the connection");
		done += (size_t)n;
	}
}

static void ping(int fd)
{
	uint8_t frame[AGENT_HEADER_SIZE] = {[4] = AGENT_PING}, pong[AGENT_HEADER_SIZE + 4];

	if (write(fd, frame, sizeof(frame)) != sizeof(frame))
		die("ping");
	read_all(fd, pong, sizeof(pong));
	if (pong[4] != AGENT_PONG) {
		fprintf(stderr, "vsock-rtt: the agent answered a ping with frame %u\n", pong[4]);
		exit(1);
	}
}

static void measure(struct vmm *v, unsigned runs)
{
	struct samples s = {0};
	int fd = connect_agent(v);

	for (unsigned i = 0; i < runs + 5; i++) {
		uint64_t began = bench_now_ns();
		ping(fd);
		if (i >= 5) /* the first ones warm caches up */
			samples_add(&s, MS(bench_now_ns() - began));
	}
	fputs("{", stdout);
	samples_print(&s, "vsock_rtt_ms", "ms", stdout);
	puts("}");
	samples_free(&s);
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"runs", required_argument, NULL, 'r'}, {0}};
	struct vmm_options o = {.exe = VMM, .vcpus = 2, .ram_mib = 512, .log_here = true};
	unsigned runs = 400;
	struct vmm v = {0};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c != 'r')
			return 2;
		runs = (unsigned)atoi(optarg);
	}
	const char *template = find_template();
	struct vmm_image image = {
		.state = open_in(template, "state"),
		.memory = open_in(template, "memory"),
		.base = open(ROOTFS, O_RDONLY | O_CLOEXEC),
		.layers = {open_in(template, "layer-0")},
		.nlayers = 1,
		.writable = vmm_file(NULL, 0, 0),
		.disk_bytes = 4ull << 30,
	};
	if (image.base < 0)
		die(ROOTFS);
	if (!vmm_start(&v, &o) || vmm_restore(&v, &image) < 0)
		return 1;
	measure(&v, runs);
	vmm_stop(&v);
	return 0;
}
