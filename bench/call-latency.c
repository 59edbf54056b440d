// SPDX-License-Identifier: Apache-2.0
/*
 * Times a call layer by layer. The layers alternate, so that other load of the machine affects all
 * of them: an answer of the service that needs no guest; one round trip over virtio-vsock (a ping
 * of the guest's agent without the service); `print(1)` by a minimal Python process that holds the
 * vsock connection itself; the same by the Python driver, which holds the connection; `pass` by
 * agent and driver; `print(1)` by agent and driver; the same over HTTP. Layers without the service
 * use a separate VM that is restored from the template. Prints one JSON object.
 *
 *   call-latency --port 7070 --runs 400
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

#include "base/fd.h"
#include "base/wire.h"
#include "bench/http.h"
#include "bench/stats.h"
#include "proto/agent.h"
#include "test/native/vmm-client.h"

#define TEMPLATES   "/var/lib/ramet/templates"
#define ROOTFS	    "/usr/share/ramet/rootfs.ext4"
#define VMM	    "/usr/lib/ramet/ramet-vmm"
#define BARE_PORT   7000 /* the code below contains these two values as well */
#define DRIVER_PORT 7001
#define TURN	    40 /* calls per turn of a layer, after WARM calls that are not counted */
#define WARM	    5

/* Prefix of a program, after a line that sets `port`. The code that follows it runs in a separate
 * process, is connected to the host by `client`, and prints to `output`. */
#define PYTHON_SERVER                                                                              \
	"import os, socket, sys\n"                                                                 \
	"listener = socket.socket(socket.AF_VSOCK)\n"                                              \
	"listener.bind((socket.VMADDR_CID_ANY, port))\n"                                           \
	"listener.listen()\n"                                                                      \
	"if os.fork() == 0:\n"                                                                     \
	"    os.setsid()\n"                                                                        \
	"    class Output:\n"                                                                      \
	"        closed = False\n"                                                                 \
	"        text = ''\n"                                                                      \
	"        def write(self, text): self.text += text\n"                                       \
	"        def flush(self): pass\n"                                                          \
	"    output = sys.stdout = Output()\n"                                                     \
	"    client = listener.accept()[0]\n"

/* Reads code, compiles and runs it, and answers with its output. It has nothing else that a call
 * has: no second stream, no limits, no interrupt, no other client. */
static const char bare_python[] =
	"port = 7000\n" PYTHON_SERVER "    names = {}\n"
	"    while code := client.recv(65536):\n"
	"        output.text = ''\n"
	"        exec(compile(str(code, 'utf-8'), '<call>', 'exec'), names)\n"
	"        client.send(output.text.encode())\n"
	"    os._exit(0)\n";

/* Uses the driver's functions, but exchanges the frames with the host directly. This is the cost of
 * a call without an agent, and so without the two ordered pipes, the time limit, interrupts, and
 * output that is kept for a host that reconnects. */
static const char driver_python[] =
	"port = 7001\n" PYTHON_SERVER "    frame = sys._getframe()\n"
	"    while 'serve_exec' not in frame.f_globals: frame = frame.f_back\n"
	"    driver = frame.f_globals\n"
	"    def send_both(kind, payload, before=b''):\n"
	"        out, output.text = output.text.encode(), ''\n"
	"        head = driver['HEADER'].pack(len(out), 65, 0, 0)\n"
	"        end = driver['HEADER'].pack(len(payload), kind, 0, 0)\n"
	"        os.write(1000, head + out + end + payload)\n"
	"    os.dup2(client.fileno(), 1000)\n"
	"    driver.update(driver_pid=os.getpid(), received=b'', send_frame=send_both)\n"
	"    while True:\n"
	"        driver['serve_exec'](driver['read_frame']()[1])\n";

static void die(const char *what)
{
	fprintf(stderr, "call-latency: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), tail = strlen(end);

	return len >= tail && !strcmp(name + len - tail, end);
}

/* Returns the path of the running service's image of the default template in its default size. */
static const char *find_template(void)
{
	static char path[PATH_MAX];
	DIR *d = opendir(TEMPLATES);

	for (struct dirent *f; d && (f = readdir(d));)
		if (!strncmp(f->d_name, "default-", 8) && ends_with(f->d_name, "-2c-1024m-4g"))
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

static int connect_guest(struct vmm *v, uint32_t port)
{
	struct ctl_msg m = {.type = CTL_CONNECT, .connect.port = port};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
	    fcntl(pair[1], F_SETFL, O_NONBLOCK) < 0)
		die("socketpair");
	int r = vmm_call(v, &m, &pair[1], 1);
	if (r < 0) {
		errno = -r;
		die("connect to the guest");
	}
	close(pair[1]);
	return pair[0];
}

static void read_all(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)buf + done, len - done);
		if (n <= 0)
			die("the guest closed the connection");
		done += (size_t)n;
	}
}

static void write_all(int fd, const void *buf, size_t len)
{
	if (write(fd, buf, len) != (ssize_t)len)
		die("write to the guest");
}

static void ping(int fd, const char *unused)
{
	uint8_t frame[AGENT_HEADER_SIZE] = {[4] = AGENT_PING}, pong[AGENT_HEADER_SIZE + 4];

	write_all(fd, frame, sizeof(frame));
	read_all(fd, pong, sizeof(pong));
	if (pong[4] != AGENT_PONG) {
		fprintf(stderr, "call-latency: the agent answered a ping with frame %u\n", pong[4]);
		exit(1);
	}
}

static void put_header(struct wire *w, size_t len, enum agent_request type)
{
	wire_put_u32(w, (uint32_t)len);
	wire_put_u8(w, (uint8_t)type);
	wire_put_u8(w, 0);
	wire_put_u16(w, 0);
}

static void send_exec(int fd, const char *code)
{
	static uint64_t call;
	uint8_t buf[4096];
	struct wire w = wire_on(buf, sizeof(buf));
	size_t len = strlen(code);

	put_header(&w, 26, AGENT_EXEC);
	wire_put_u8(&w, AGENT_PYTHON);
	wire_put_u8(&w, 0); /* no flags */
	wire_put_u32(&w, 0);
	wire_put_u32(&w, (uint32_t)len);
	wire_put_u64(&w, ++call);
	wire_put_u32(&w, 0); /* no folder */
	wire_put_u32(&w, 0); /* no variables */
	put_header(&w, len, AGENT_CODE);
	wire_put_bytes(&w, code, len);
	write_all(fd, buf, w.pos);
}

static void agent_call(int fd, const char *code)
{
	static uint8_t payload[AGENT_PAYLOAD_MAX];
	uint8_t header[AGENT_HEADER_SIZE];

	send_exec(fd, code);
	do {
		read_all(fd, header, sizeof(header));
		struct wire w = wire_from(header, sizeof(header));
		uint32_t len = wire_get_u32(&w);
		if (len > sizeof(payload))
			len = 0;
		read_all(fd, payload, len);
	} while (header[4] == AGENT_STDOUT);
	if (header[4] != AGENT_EXIT || payload[0]) {
		fprintf(stderr, "call-latency: a call ended with frame %u: %.200s\n", header[4],
			payload);
		exit(1);
	}
}

static void bare_call(int fd, const char *code)
{
	uint8_t answer[2];

	write_all(fd, code, strlen(code));
	read_all(fd, answer, sizeof(answer));
}

static void http_echo(int fd, const char *unused)
{
	static struct answer a;

	http_call(fd, "GET", "/v1/healthz", "", &a);
}

static char exec_path[SANDBOX_PATH + 8];

static void http_exec(int fd, const char *body)
{
	static struct answer a;

	http_call(fd, "POST", exec_path, body, &a);
	if (!strstr(a.body, "\"exit\",\"data\":0")) {
		fprintf(stderr, "call-latency: a call over HTTP: %s\n", a.body);
		exit(1);
	}
}

struct layer {
	const char *name;
	void (*step)(int fd, const char *text);
	int fd;
	const char *text;
	struct samples samples;
};

static void take_turn(struct layer *l, unsigned runs)
{
	for (unsigned i = 0; i < WARM + TURN && l->samples.n < runs; i++) {
		uint64_t began = bench_now_ns();
		l->step(l->fd, l->text);
		if (i >= WARM)
			samples_add(&l->samples, MS(bench_now_ns() - began));
	}
}

static void measure(struct layer *layers, size_t count, unsigned runs)
{
	const char *before = "{";

	while (layers[count - 1].samples.n < runs)
		for (size_t i = 0; i < count; i++)
			take_turn(&layers[i], runs);
	for (size_t i = 0; i < count; i++) {
		fputs(before, stdout);
		samples_print(&layers[i].samples, layers[i].name, "ms", stdout);
		samples_free(&layers[i].samples);
		before = ", ";
	}
	puts("}");
}

static void measure_all(struct vmm *v, int http, unsigned runs)
{
	int agent = connect_guest(v, AGENT_PORT);

	agent_call(agent, bare_python);
	agent_call(agent, driver_python);
	int bare = connect_guest(v, BARE_PORT);
	int driver = connect_guest(v, DRIVER_PORT);
	struct layer layers[] = {
		{.name = "http_echo_ms", .step = http_echo, .fd = http},
		{.name = "vsock_rtt_ms", .step = ping, .fd = agent},
		{.name = "bare_python_ms", .step = bare_call, .fd = bare, .text = "print(1)"},
		{.name = "driver_python_ms", .step = agent_call, .fd = driver, .text = "print(1)"},
		{.name = "agent_pass_ms", .step = agent_call, .fd = agent, .text = "pass"},
		{.name = "agent_python_ms", .step = agent_call, .fd = agent, .text = "print(1)"},
		{.name = "exec_python_ms",
		 .step = http_exec,
		 .fd = http,
		 .text = "{\"code\":\"print(1)\",\"output\":\"chunks\"}"},
	};
	measure(layers, ARRAY_LEN(layers), runs);
	close(driver);
	close(bare);
	close(agent);
}

/* Creates a sandbox for the calls over HTTP, sets its path, and returns the connection. */
static int open_sandbox(uint16_t port, char path[SANDBOX_PATH])
{
	static struct answer a;
	int http = http_connect(port, 0);

	http_call(http, "POST", "/v1/sandboxes", "{}", &a);
	http_sandbox_path(&a, 0, path);
	snprintf(exec_path, sizeof(exec_path), "%s/exec", path);
	return http;
}

static void restore_template(struct vmm *v)
{
	struct vmm_options o = {.exe = VMM, .vcpus = 2, .ram_mib = 1024, .log_here = true};
	const char *template = find_template();
	struct vmm_snapshot image = {
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
	if (!vmm_start(v, &o))
		die(VMM);
	int r = vmm_restore(v, &image);
	if (r < 0) {
		errno = -r;
		die("restore the template");
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"port", required_argument, NULL, 'p'},
						{"runs", required_argument, NULL, 'r'},
						{0}};
	static struct answer a;
	char sandbox[SANDBOX_PATH];
	unsigned port = 7070, runs = 400;
	struct vmm v = {0};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 'p')
			port = (unsigned)atoi(optarg);
		else if (c == 'r')
			runs = (unsigned)atoi(optarg);
		else
			return 2;
	}
	restore_template(&v);
	int http = open_sandbox((uint16_t)port, sandbox);
	measure_all(&v, http, runs);
	http_call(http, "DELETE", sandbox, "", &a);
	close(http);
	vmm_stop(&v);
	return 0;
}
