// SPDX-License-Identifier: Apache-2.0
/*
 * A tool for use by hand: starts a ramet-vmm, boots a kernel in it and prints its log.
 *   ctl-client [--vcpus N] [--ram-mib M] [--serial] [--initrd FILE] [--disk FILE]
 *              [--cmdline TEXT] [--save-after TEXT] [--exec CODE] RAMET-VMM KERNEL
 * With --save-after, the VM is saved when a line of the log contains TEXT, and a second VM is
 * restored from it and replaces it. With --exec, the guest's agent then runs CODE in Python, twice,
 * and the client ends; otherwise the client ends when the guest does.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/wire.h"
#include "proto/agent.h"
#include "test/native/vmm-client.h"

struct job {
	struct vmm_options vmm;
	const char *kernel, *initrd, *disk, *cmdline, *save_after, *exec;
};

static void die(const char *what)
{
	fprintf(stderr, "ctl-client: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	return fd;
}

static void use(struct job *j, const char *name, const char *value)
{
	if (!strcmp(name, "--vcpus"))
		j->vmm.vcpus = (unsigned)atoi(value);
	else if (!strcmp(name, "--ram-mib"))
		j->vmm.ram_mib = (unsigned)atoi(value);
	else if (!strcmp(name, "--initrd"))
		j->initrd = value;
	else if (!strcmp(name, "--disk"))
		j->disk = value;
	else if (!strcmp(name, "--cmdline"))
		j->cmdline = value;
	else if (!strcmp(name, "--save-after"))
		j->save_after = value;
	else if (!strcmp(name, "--exec"))
		j->exec = value;
	else
		die(name);
}

static void parse(struct job *j, int argc, char **argv)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--serial"))
			j->vmm.debug_serial = true;
		else if (i + 1 < argc)
			use(j, argv[i], argv[i + 1]), i++;
	}
	if (argc - i != 2) {
		fprintf(stderr, "usage: ctl-client [OPTION...] RAMET-VMM KERNEL\n");
		exit(2);
	}
	j->vmm.exe = argv[i];
	j->kernel = argv[i + 1];
}

static void need(int r, const struct ctl_msg *m, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "ctl-client: %s: %s\n", what, m ? m->reply.text : strerror(-r));
	exit(1);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Copies the VM's log to standard output until the log contains `until`, or the VM process ends. */
static bool copy_log(struct vmm *v, const char *until)
{
	char line[4096];
	size_t len = 0;

	for (;;) {
		struct pollfd p[2] = {{.fd = v->log, .events = POLLIN},
				      {.fd = v->ctl, .events = POLLIN}};
		struct ctl_msg m;
		ssize_t n;

		poll(p, 2, -1);
		if (p[1].revents && (!vmm_receive(v, &m) || v->has_ended))
			return false;
		if (!p[0].revents)
			continue;
		n = read(v->log, line + len, sizeof(line) - 1 - len);
		if (n <= 0)
			return false;
		fwrite(line + len, 1, (size_t)n, stdout);
		fflush(stdout);
		len += (size_t)n;
		line[len] = '\0';
		if (until && strstr(line, until))
			return true;
		/* Keeps only the last, incomplete line for the next search. */
		char *end = memrchr(line, '\n', len);
		size_t used = end ? (size_t)(end - line) + 1 : len == sizeof(line) - 1 ? len : 0;
		len -= used;
		memmove(line, line + used, len);
	}
}

static void save_and_restore(struct vmm *v, const struct job *j, struct vmm_snapshot *img)
{
	struct vmm copy;
	double start = now_ms(), restored;

	need(vmm_save(v, img), NULL, "save");
	fprintf(stderr, "ctl-client: saved in %.1f ms\n", now_ms() - start);
	vmm_stop(v);
	if (!vmm_start(&copy, &j->vmm))
		exit(1);
	start = now_ms();
	need(vmm_restore(&copy, img), NULL, "restore");
	restored = now_ms();
	fprintf(stderr, "ctl-client: restored in %.1f ms\n", restored - start);
	*v = copy;
}

static void write_frame(int fd, uint8_t type, struct wire *payload)
{
	uint8_t raw[AGENT_HEADER_SIZE];
	struct wire h = wire_on(raw, sizeof(raw));

	wire_put_u32(&h, (uint32_t)payload->pos);
	wire_put_u32(&h, type);
	if (write(fd, raw, sizeof(raw)) != sizeof(raw) ||
	    write(fd, payload->p, payload->pos) != (ssize_t)payload->pos)
		die("write to the agent");
}

static void read_all(int fd, void *out, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, (uint8_t *)out + got, len - got);

		if (n <= 0)
			die("read from the agent");
		got += (size_t)n;
	}
}

/* Reads frames until the one that ends the operation; copies their output to stdout and stderr. */
static void copy_frames(int fd)
{
	uint8_t raw[AGENT_HEADER_SIZE], payload[AGENT_PAYLOAD_MAX];

	for (;;) {
		struct wire h = wire_from(raw, sizeof(raw));
		uint32_t len, type;

		read_all(fd, raw, sizeof(raw));
		len = wire_get_u32(&h);
		type = wire_get_u8(&h);
		if (len > sizeof(payload))
			die("a frame of the agent");
		read_all(fd, payload, len);
		if (type != AGENT_STDOUT && type != AGENT_STDERR)
			return;
		fwrite(payload, 1, len, stdout);
		fflush(stdout);
	}
}

static void exec_code(struct vmm *v, const char *code)
{
	struct ctl_msg m = {.type = CTL_CONNECT, .connect.port = AGENT_PORT};
	uint8_t raw[64];
	struct wire w = wire_on(raw, sizeof(raw));
	struct wire text = wire_from(code, strlen(code));
	int pair[2];
	double start = now_ms();

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		die("socketpair");
	need(vmm_call(v, &m, &pair[1], 1), &m, "connect to the agent");
	close(pair[1]);
	wire_put_u8(&w, AGENT_PYTHON);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, 0);
	wire_put_u32(&w, (uint32_t)strlen(code));
	wire_put_u64(&w, 0);
	wire_put_str(&w, "", 0);
	wire_put_u32(&w, 0);
	write_frame(pair[0], AGENT_EXEC, &w);
	text.pos = text.size;
	write_frame(pair[0], AGENT_CODE, &text);
	copy_frames(pair[0]);
	close(pair[0]);
	fprintf(stderr, "ctl-client: ran in %.1f ms\n", now_ms() - start);
}

int main(int argc, char **argv)
{
	struct job j = {.vmm = {.vcpus = 1, .ram_mib = 256}, .cmdline = "console=hvc0"};
	struct vmm_snapshot img = {.base = -1, .disk_bytes = 1 << 20};
	struct vmm v;
	struct stat st;
	int status;

	parse(&j, argc, argv);
	if (!vmm_start(&v, &j.vmm))
		return 1;
	img.base = j.disk ? open_file(j.disk) : vmm_file(NULL, 0, 1 << 20);
	if (!fstat(img.base, &st))
		img.disk_bytes = (uint64_t)st.st_size & ~4095ull;
	need(vmm_boot(&v, open_file(j.kernel), j.initrd ? open_file(j.initrd) : -1, j.cmdline,
		      &img),
	     NULL, "boot");
	if (j.save_after && copy_log(&v, j.save_after))
		save_and_restore(&v, &j, &img);
	if (j.exec) {
		exec_code(&v, j.exec);
		exec_code(&v, j.exec);
		vmm_stop(&v);
		return 0;
	}
	copy_log(&v, NULL);
	if (v.has_ended)
		fprintf(stderr, "ctl-client: the guest ended (%u): %s\n", v.ended.ended.reason,
			v.ended.ended.text);
	else if (waitpid(v.pid, &status, 0) == v.pid)
		fprintf(stderr, "ctl-client: ramet-vmm ended with wait status 0x%x\n", status);
	vmm_stop(&v);
	return 0;
}
