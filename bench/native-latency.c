// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the service with the tiny guest (tiny-guest.c), for `bench native-service`: what
 * http-latency and fork-latency do not measure. Prints one JSON object.
 *
 *   --calls N       N calls over HTTP/1.1 and HTTP/2, in turns with their floors: a byte through a
 *                   pipe to another process and back, an answer of the service without a guest, and
 *                   a ping of the same guest's agent in a VM without the service (needs --vmm and
 *                   --guest)
 *   --spaces N      N times a freeze, a resume, and the first call
 *   --forks N,R     R forks into N children, one right after the other, with whatever the pool has
 *   --rate OP,C,R   R seconds of calls ("exec"), forks or creates by C clients at once; every child
 *                   and sandbox is deleted by its client. With --cgroup also the CPU time of each
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/http.h"
#include "bench/http2.h"
#include "bench/stats.h"
#include "proto/agent.h"
#include "test/native/vmm-client.h"

#define TURN	    50 /* calls per turn of a layer, after WARM calls that are not counted */
#define WARM	    5
#define CLIENTS_MAX 32
#define DISK_BYTES  (1u << 20)
#define BODY	    "{\"code\":\"echo 1\",\"language\":\"bash\",\"output\":\"chunks\"}"

static uint16_t port = 7070;
static int fd;
static struct answer answer;
static const char *before = "{";

static void die(const char *what)
{
	fprintf(stderr, "native-latency: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void print_figure(struct samples *s, const char *name, const char *unit)
{
	fputs(before, stdout);
	before = ", ";
	samples_print(s, name, unit, stdout);
	samples_free(s);
}

static void create(char path[SANDBOX_PATH])
{
	http_call(fd, "POST", "/v1/sandboxes", "{}", &answer);
	http_sandbox_path(&answer, 0, path);
}

static void check_exec(const char *body)
{
	if (strstr(body, "\"data\":\"1") && strstr(body, "\"exit\",\"data\":0"))
		return;
	fprintf(stderr, "native-latency: a call: %s\n", body);
	exit(1);
}

static void exec_in(const char *sandbox)
{
	char path[SANDBOX_PATH + 8];

	snprintf(path, sizeof(path), "%s/exec", sandbox);
	http_call(fd, "POST", path, BODY, &answer);
	check_exec(answer.body);
}

/* --- a call and its floors -------------------------------------------------------------------- */

static const char *vmm, *guest;
static int to_echo, from_echo;
static struct http2 h2;
static char sandbox[SANDBOX_PATH], exec_path[SANDBOX_PATH + 8];

/* Starts a process that returns each byte. It ends with this one. */
static void start_echo(void)
{
	int there[2], back[2];
	char c;

	if (pipe2(there, O_CLOEXEC) < 0 || pipe2(back, O_CLOEXEC) < 0)
		die("pipe");
	if (fork() == 0) {
		close(there[1]);
		while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
			;
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	to_echo = there[1];
	from_echo = back[0];
}

static void pipe_trip(int unused)
{
	char c = 0;

	if (write(to_echo, &c, 1) != 1 || read(from_echo, &c, 1) != 1)
		die("the pipe");
}

static void http_echo(int unused)
{
	http_call(fd, "GET", "/v1/healthz", "", &answer);
}

static void read_all(int from, void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(from, (char *)to + done, len - done);
		if (n <= 0)
			die("the guest closed the connection");
		done += (size_t)n;
	}
}

static void ping(int agent)
{
	uint8_t frame[AGENT_HEADER_SIZE] = {[4] = AGENT_PING}, pong[AGENT_HEADER_SIZE + 4];

	if (write(agent, frame, sizeof(frame)) != sizeof(frame))
		die("write to the guest");
	read_all(agent, pong, sizeof(pong));
}

static void exec_http1(int unused)
{
	http_call(fd, "POST", exec_path, BODY, &answer);
	check_exec(answer.body);
}

static void exec_http2(int unused)
{
	http2_post(&h2, exec_path, BODY);
	check_exec(h2.body);
}

/* Boots the guest in a VM without the service, and returns a connection to its agent. */
static int boot_guest(struct vmm *v)
{
	const struct vmm_options o = {.exe = vmm, .vcpus = 1, .ram_mib = 256, .log_here = true};
	struct ctl_msg m = {.type = CTL_CONNECT, .connect.port = AGENT_PORT};
	struct vmm_snapshot disk = {.disk_bytes = DISK_BYTES};
	int kernel = open(guest, O_RDONLY | O_CLOEXEC), pair[2];

	disk.base = vmm_file(NULL, 0, DISK_BYTES);
	if (kernel < 0 || !vmm_start(v, &o) || vmm_boot(v, kernel, -1, "", &disk) < 0)
		die("boot the guest");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
	    fcntl(pair[1], F_SETFL, O_NONBLOCK) < 0)
		die("socketpair");
	if (vmm_call(v, &m, &pair[1], 1) < 0)
		die("connect to the guest");
	close(pair[1]);
	close(kernel);
	return pair[0];
}

struct layer {
	const char *name;
	void (*step)(int fd);
	int fd;
	struct samples samples;
};

static void take_turn(struct layer *l, unsigned runs)
{
	for (unsigned i = 0; i < WARM + TURN && l->samples.n < runs; i++) {
		uint64_t began = bench_now_ns();
		l->step(l->fd);
		if (i >= WARM)
			samples_add(&l->samples, bench_ms_since(began));
	}
}

static void measure_calls(unsigned runs)
{
	struct vmm v = {0};
	struct layer layers[] = {
		{.name = "pipe_trip_ms", .step = pipe_trip},
		{.name = "http_echo_ms", .step = http_echo},
		{.name = "vsock_rtt_ms", .step = ping},
		{.name = "exec_ms", .step = exec_http1},
		{.name = "exec_http2_ms", .step = exec_http2},
	};
	const size_t count = sizeof(layers) / sizeof(layers[0]);

	start_echo();
	layers[2].fd = boot_guest(&v);
	create(sandbox);
	snprintf(exec_path, sizeof(exec_path), "%s/exec", sandbox);
	http2_connect(&h2, port);
	while (layers[count - 1].samples.n < runs)
		for (size_t i = 0; i < count; i++)
			take_turn(&layers[i], runs);
	for (size_t i = 0; i < count; i++)
		print_figure(&layers[i].samples, layers[i].name, "ms");
	http_call(fd, "DELETE", sandbox, "", &answer);
	close(layers[2].fd);
	vmm_stop(&v);
}

/* --- freeze and resume ------------------------------------------------------------------------ */

static void measure_spaces(unsigned runs)
{
	struct samples freeze = {0}, resume = {0}, usable = {0};
	char path[SANDBOX_PATH + 16], space[SANDBOX_PATH];
	const char *id;

	for (unsigned i = 0; i < runs; i++) {
		create(sandbox);
		exec_in(sandbox);
		snprintf(path, sizeof(path), "%s/freeze", sandbox);
		uint64_t began = bench_now_ns();
		http_call(fd, "POST", path, "", &answer);
		samples_add(&freeze, bench_ms_since(began));
		id = strstr(answer.body, "spc_");
		if (!id) {
			fprintf(stderr, "native-latency: no space in %s\n", answer.body);
			exit(1);
		}
		snprintf(space, sizeof(space), "/v1/spaces/%.36s", id);
		snprintf(path, sizeof(path), "%s/resume", space);
		began = bench_now_ns();
		http_call(fd, "POST", path, "{}", &answer);
		samples_add(&resume, bench_ms_since(began));
		http_sandbox_path(&answer, 0, sandbox);
		exec_in(sandbox);
		samples_add(&usable, bench_ms_since(began));
		http_call(fd, "DELETE", sandbox, "", &answer);
		http_ask(fd, "DELETE", space, "", &answer); /* it may be gone */
	}
	print_figure(&freeze, "freeze_ms", "ms");
	print_figure(&resume, "resume_ms", "ms");
	print_figure(&usable, "resume_usable_ms", "ms");
}

/* --- forks right after each other ------------------------------------------------------------- */

static void fork_into(const char *parent, unsigned n)
{
	char path[SANDBOX_PATH + 8], body[32];

	snprintf(path, sizeof(path), "%s/fork", parent);
	snprintf(body, sizeof(body), "{\"n\":%u}", n);
	http_call(fd, "POST", path, body, &answer);
}

static void delete_children(unsigned n)
{
	static struct answer children;
	char path[SANDBOX_PATH];

	children = answer;
	children.body = children.text + (answer.body - answer.text);
	for (unsigned i = 0; i < n; i++) {
		http_sandbox_path(&children, i, path);
		http_call(fd, "DELETE", path, "", &answer);
	}
}

static void measure_forks(unsigned n, unsigned runs)
{
	struct samples took = {0};
	char name[64];

	create(sandbox);
	exec_in(sandbox);
	for (unsigned i = 0; i < runs; i++) {
		uint64_t began = bench_now_ns();
		fork_into(sandbox, n);
		samples_add(&took, bench_ms_since(began));
		delete_children(n);
	}
	http_call(fd, "DELETE", sandbox, "", &answer);
	snprintf(name, sizeof(name), "fork_in_a_row_n%u_ms", n);
	print_figure(&took, name, "ms");
}

/* --- rates ------------------------------------------------------------------------------------ */

static const char *cgroup;

struct op {
	const char *name;
	bool needs_sandbox;
	void (*step)(void);
};

static void step_exec(void)
{
	exec_in(sandbox);
}

static void step_fork(void)
{
	fork_into(sandbox, 1);
	delete_children(1);
}

static void step_create(void)
{
	create(sandbox);
	http_call(fd, "DELETE", sandbox, "", &answer);
}

static const struct op ops[] = {
	{"exec", true, step_exec}, {"fork", true, step_fork}, {"create", false, step_create}};

static const struct op *find_op(const char *name)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strncmp(ops[i].name, name, strlen(ops[i].name)))
			return &ops[i];
	fprintf(stderr, "native-latency: %s is not exec, fork or create\n", name);
	exit(2);
}

/* Returns the CPU time of all processes of the service, in us; 0: not known. */
static double cpu_us(void)
{
	char path[512];
	double us = 0;

	if (!cgroup)
		return 0;
	snprintf(path, sizeof(path), "%s/cpu.stat", cgroup);
	FILE *f = fopen(path, "re");
	if (!f || fscanf(f, "usage_usec %lf", &us) != 1)
		die(path);
	fclose(f);
	return us;
}

/* Runs as a client: repeats the step, counts in *done, until *end. */
static _Noreturn void be_client(const struct op *op, volatile unsigned *done,
				const volatile bool *end)
{
	fd = http_connect(port, 0);
	if (op->needs_sandbox)
		create(sandbox);
	while (!*end) {
		op->step();
		__atomic_fetch_add(done, 1, __ATOMIC_RELAXED);
	}
	if (op->needs_sandbox)
		http_call(fd, "DELETE", sandbox, "", &answer);
	_exit(0);
}

static void measure_rate(const struct op *op, unsigned clients, unsigned seconds)
{
	struct samples rate = {0}, cpu = {0};
	struct shared {
		unsigned done;
		bool end;
	} *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	char name[64];
	pid_t pid[CLIENTS_MAX];

	if (shared == MAP_FAILED || clients > CLIENTS_MAX)
		die("shared memory");
	for (unsigned i = 0; i < clients; i++) {
		pid[i] = fork();
		if (!pid[i])
			be_client(op, &shared->done, &shared->end);
	}
	sleep(1); /* until the caches and pools are as they stay */
	for (unsigned i = 0; i < seconds; i++) {
		unsigned done = __atomic_load_n(&shared->done, __ATOMIC_RELAXED);
		uint64_t began = bench_now_ns();
		double used = cpu_us();

		sleep(1);
		unsigned n = __atomic_load_n(&shared->done, __ATOMIC_RELAXED) - done;
		samples_add(&rate, n * 1e3 / bench_ms_since(began));
		if (n && cgroup)
			samples_add(&cpu, (cpu_us() - used) / n);
	}
	shared->end = true;
	for (unsigned i = 0, status = 0; i < clients; i++)
		if (waitpid(pid[i], (int *)&status, 0) < 0 || status)
			die("a client failed");
	snprintf(name, sizeof(name), "%s_rate", op->name);
	print_figure(&rate, name, "/s");
	snprintf(name, sizeof(name), "%s_cpu_us", op->name);
	if (cgroup)
		print_figure(&cpu, name, "us");
}

/* --- the program ------------------------------------------------------------------------------ */

/* Returns the number after the nth comma. */
static unsigned part(const char *text, unsigned nth)
{
	for (; nth && text; nth--) {
		text = strchr(text, ',');
		text = text ? text + 1 : NULL;
	}
	unsigned v = text ? (unsigned)atoi(text) : 0;
	if (v)
		return v;
	fprintf(stderr, "native-latency: a number is missing\n");
	exit(2);
}

enum { PORT = 1, CALLS, SPACES, FORKS, RATE, CGROUP, VMM, GUEST };

static void measure(int what, const char *text)
{
	switch (what) {
	case CALLS:
		measure_calls(part(text, 0));
		break;
	case SPACES:
		measure_spaces(part(text, 0));
		break;
	case FORKS:
		measure_forks(part(text, 0), part(text, 1));
		break;
	case RATE:
		measure_rate(find_op(text), part(text, 1), part(text, 2));
		break;
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"port", required_argument, NULL, PORT},
						{"calls", required_argument, NULL, CALLS},
						{"spaces", required_argument, NULL, SPACES},
						{"forks", required_argument, NULL, FORKS},
						{"rate", required_argument, NULL, RATE},
						{"cgroup", required_argument, NULL, CGROUP},
						{"vmm", required_argument, NULL, VMM},
						{"guest", required_argument, NULL, GUEST},
						{0}};

	/* The options name what to measure, in this order. */
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (o == PORT)
			port = (uint16_t)atoi(optarg);
		else if (o == CGROUP)
			cgroup = optarg;
		else if (o == VMM)
			vmm = optarg;
		else if (o == GUEST)
			guest = optarg;
		else if (o == '?')
			return 2;
		if (o >= PORT && !fd)
			fd = o == PORT ? http_connect(port, 60) : 0;
		measure(o, optarg);
	}
	puts(*before == '{' ? "{}" : "}");
	return 0;
}
