// SPDX-License-Identifier: Apache-2.0
/*
 * The API and the service over fake VMs (test/unit/service/fakes.h). `server NAME=VALUE...` prints
 * the port it listens on, and a line with the key for each key=TIER. Names are the service's
 * settings (0 or empty unless make_config fills them in), the limits of the API (struct
 * http_limits), and:
 *   dir=PATH       folder for the service's files; needed
 *   agent=SOCKET   all sandboxes share the real agent that listens there; without it, each has an
 *                  agent that runs the scripts of fakes.h
 *   key=TIER       makes a key
 *   spans=FD       a socket that gets the spans
 *   fault=NAME     injects a fault (fault_names) once, before the service starts
 * It obeys these lines on its standard input, and answers each with a line:
 *   go             releases what waits (fakes_go)
 *   fault NAME N   injects a fault the next N times
 *   waiting        answers with the number of threads that wait for `go`
 *   reseeded       answers with the number of reseeds that include user generators
 *   revoke         revokes the first key
 *   spaces TENANT N  counts N MiB more for the tenant's Spaces; the same with -N must follow
 *   loads          answers with what the fleet's hosts say of themselves, with commas for ends of
 *                  lines
 *   kill           ends all VMs
 *   kill_at N      kills this program instead of its Nth change of a file in state_dir; 0: does not
 *   restart        replaces the service as a crash would, without an end; the VMs live on. The
 *                  answer is the new port
 * SIGTERM drains and ends it. Its clocks can be moved: see test/moved_clock.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/api/api.h"
#include "orchestrator/guestops/diff-result.h"
#include "orchestrator/http/server.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/service/service.h"
#include "orchestrator/store/keys.h"
#include "test/moved_clock.h"
#include "test/unit/service/fakes.h"
#include "test/unit/writes/failing-writes.h"

#define KEYS_MAX 4

static struct loop *loop;
static struct service *service;
static struct api *api;
static struct fakes *fakes;
static uint32_t n_vms;
static const char *state_dir;
static bool restart;

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "%s: %s\n", what, name);
	exit(2);
}

static void on_term(int sig)
{
	loop_stop(loop);
}

static void stop(void *arg)
{
	loop_stop(loop);
}

/* --- settings ------------------------------------------------------------------------------- */

#define LIMIT(field)                                                                               \
	{                                                                                          \
#field, offsetof(struct http_limits, field), sizeof(http_limits.field)             \
	}
static const struct {
	const char *name;
	size_t offset, size;
} limits[] = {
	LIMIT(read_ms),		LIMIT(body_rate),     LIMIT(write_ms),	    LIMIT(silence_ms),
	LIMIT(connections),	LIMIT(requests),      LIMIT(answers_bytes), LIMIT(bodies_bytes),
	LIMIT(read_here_bytes), LIMIT(reading_bytes), LIMIT(tick_ms),
};

static bool set_limit(const char *name, const char *value)
{
	size_t n = strtoul(value, NULL, 10);

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		if (strcmp(limits[i].name, name) != 0)
			continue;
		memcpy((char *)&http_limits + limits[i].offset, &n, limits[i].size);
		return true;
	}
	return false;
}

static const struct {
	const char *name;
	enum fakes_fault fault;
} fault_names[] = {
	{"fill", FAKES_FILL},		{"fork", FAKES_FORK},		{"reseed", FAKES_RESEED},
	{"fork_wait", FAKES_FORK_WAIT}, {"seed_wait", FAKES_SEED_WAIT}, {"stall", FAKES_STALL},
};

static void inject(const char *name, int count)
{
	for (size_t i = 0; i < ARRAY_LEN(fault_names); i++) {
		if (strcmp(fault_names[i].name, name) != 0)
			continue;
		fakes_fault(fakes, fault_names[i].fault, count);
		return;
	}
	fail("there is no fault", name);
}

static struct {
	const char *dir, *agent, *fault, *spans;
	const char *tiers[KEYS_MAX];
	char keys[KEYS_MAX][KEY_TEXT_LEN + 1];
	size_t n_tiers;
	char first_key[KEY_ID_LEN + 1];
} own;

static void make_file(const char *dir, const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	scoped_fd int fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, name, strlen(name)) < 0)
		fail("cannot write", out);
}

static void make_folder(const char *dir, const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	if (mkdir(out, 0700) < 0 && errno != EEXIST)
		fail("cannot make", out);
}

static bool set_own(const char *name, const char *value)
{
	if (strcmp(name, "agent") == 0)
		own.agent = value;
	else if (strcmp(name, "fault") == 0)
		own.fault = value;
	else if (strcmp(name, "spans") == 0)
		own.spans = value;
	else if (strcmp(name, "key") == 0 && own.n_tiers < KEYS_MAX)
		own.tiers[own.n_tiers++] = value;
	else
		return strcmp(name, "dir") == 0;
	return true;
}

static void set(struct config *c, const char *name, const char *value)
{
	char line[CONFIG_PATH_MAX * 3];
	struct err e;

	if (set_limit(name, value) || set_own(name, value))
		return;
	snprintf(line, sizeof(line), "%s = %s\n", name, value);
	if (config_parse(c, "setting", line, strlen(line), &e) < 0)
		fail("invalid setting", e.text);
}

static void make_config(struct config *c, const char *dir)
{
	make_file(dir, "kernel", c->kernel);
	make_file(dir, "initramfs", c->initramfs);
	make_file(dir, "rootfs", c->rootfs);
	make_file(dir, "vmm", c->vmm);
	make_folder(dir, "state", c->state_dir);
	make_folder(dir, "run", c->run_dir);
	make_folder(dir, "templates", c->templates_dir);
	strcpy(c->listen_host, "127.0.0.1");
	strcpy(c->allow_open, "no");
	c->max_body_bytes = 64u << 20;
	c->max_vms = 8;
	c->fork_max = 32;
	c->visitor_connections = 64;
	c->vcpus = 1;
	c->ram_mib = 128;
	c->rootfs_gb = 1;
	c->timeout_s = c->idle_timeout_s = 1000;
	c->boot_timeout_s = 20;
	c->audit_max_mib = 1;
	c->audit_days = 90;
	c->stop_timeout_s = 10;
	c->port_idle_timeout_s = 15;
	strcpy(c->sandbox_domain, "http://sandboxes.test");
}

static void read_settings(struct config *c, char **argv)
{
	if (!argv[1] || strncmp(argv[1], "dir=", 4) != 0)
		fail("the first setting must be dir=PATH, not", argv[1] ? argv[1] : "");
	make_config(c, argv[1] + 4);
	for (char **arg = argv + 1; *arg; arg++) {
		char *value = strchr(*arg, '=');

		if (!value)
			fail("a setting has the form NAME=VALUE, not", *arg);
		*value++ = '\0';
		set(c, *arg, value);
	}
}

/* --- work that is not for the loop --- */

void __real_service_diff_sort(struct service_diff *d);
void __wrap_service_diff_sort(struct service_diff *d);

/* Ends the server if the loop's thread sorts many paths. */
void __wrap_service_diff_sort(struct service_diff *d)
{
	if (d->bytes > 1000000 && gettid() == getpid())
		abort();
	__real_service_diff_sort(d);
}

/* --- lines on standard input ---------------------------------------------------------------- */

static void kill_vms(void)
{
	for (uint32_t slot = 0; slot < n_vms; slot++)
		fakes_kill(fakes, slot);
}

/* The new service answers. */
static void leave(void)
{
	restart = true;
	loop_stop(loop);
}

static void on_loads(void *arg, const char *text, const struct failure *f)
{
	for (; *text; text++)
		putchar(*text == '\n' ? ',' : *text);
	putchar('\n');
	fflush(stdout);
}

static void count_spaces(const char *name, int mib)
{
	struct tenant *t = tenant_get(service, name); /* held while it has more */

	t->spaces_bytes += (uint64_t)((int64_t)mib * 1024 * 1024);
	for (int i = 0; mib < 0 && i < 2; i++)
		tenant_put(t);
}

static void obey(const char *line)
{
	char name[64];
	struct err e;
	int count;

	if (sscanf(line, "fault %63s %d", name, &count) == 2)
		inject(name, count);
	else if (sscanf(line, "spaces %63s %d", name, &count) == 2)
		count_spaces(name, count);
	else if (sscanf(line, "kill_at %d", &count) == 1)
		writes_kill(state_dir, (unsigned)count);
	else if (strcmp(line, "go") == 0)
		fakes_go(fakes);
	else if (strcmp(line, "kill") == 0)
		kill_vms();
	else if (strcmp(line, "revoke") == 0 &&
		 keys_revoke(service_keys(service), own.first_key, &e) < 0)
		fail("revoke", e.text);
	if (strcmp(line, "waiting") == 0)
		printf("%u\n", fakes_waiting(fakes));
	else if (strcmp(line, "reseeded") == 0)
		printf("%u\n", fakes_user_reseeds(fakes));
	else if (strcmp(line, "restart") == 0)
		leave();
	else if (strcmp(line, "loads") == 0)
		peers_loads(api_peers(api), service, on_loads, NULL);
	else
		puts("done");
	fflush(stdout);
}

static void on_input(void *arg, int result)
{
	static char input[256];
	static size_t len;
	char *end;

	ssize_t n = result < 0 ? 0 : read(STDIN_FILENO, input + len, sizeof(input) - 1 - len);
	if (n <= 0)
		return;
	len += (size_t)n;
	input[len] = '\0';
	while ((end = strchr(input, '\n'))) {
		*end = '\0';
		obey(input);
		len -= (size_t)(end + 1 - input);
		memmove(input, end + 1, len + 1);
	}
	loop_poll(loop, STDIN_FILENO, POLLIN, on_input, NULL);
}

/* --- the service ---------------------------------------------------------------------------- */

static void make_keys(void)
{
	const struct key *key;
	struct err e;

	for (size_t i = 0; i < own.n_tiers; i++) {
		if (keys_create(service_keys(service), "a test", own.tiers[i], NULL, own.keys[i],
				&key, &e) < 0)
			fail("make a key", e.text);
		if (i == 0)
			strcpy(own.first_key, key->id);
	}
}

/* Prints the port and the keys once sandboxes can be created, or at once if a fault is injected. */
static void announce(void *arg)
{
	static struct loop_timer again = {.fn = announce};

	if (!service_ready(service) && !own.fault) {
		again.arg = arg;
		loop_timer_set(loop, &again, 2);
		return;
	}
	printf("%u\n", api_port(arg));
	for (size_t i = 0; i < own.n_tiers; i++)
		puts(own.keys[i]);
	own.n_tiers = 0; /* a restart keeps them */
	fflush(stdout);
}

/* The counters of audit log and webhooks, which do not exist here, stay 0. */
static void on_watch(void *arg, struct api_watched *out)
{
}

static void end(void)
{
	if (restart)
		return;
	api_drain(api, stop, NULL);
	loop_run(loop);
	service_shutdown(service, stop, NULL);
	loop_run(loop);
}

static int serve(const struct config *config, struct err *e)
{
	int ret = loop_new(&loop, e);

	if (ret == 0)
		ret = service_new(&service, loop, config, fakes_attach(fakes), e);
	if (ret < 0)
		return ret;
	make_keys(); /* on some addresses the API does not start without one */
	ret = api_new(&api, loop, service, config, e);
	if (ret < 0)
		return ret;
	api_watch(api, on_watch, NULL);
	if (own.spans)
		api_trace(api, atoi(own.spans));
	signal(SIGTERM, on_term);
	restart = false;
	announce(api);
	loop_poll(loop, STDIN_FILENO, POLLIN, on_input, NULL);
	loop_run(loop);
	end();
	api_free(api);
	service_free(service);
	loop_free(loop);
	return 0;
}

int main(int argc, char **argv)
{
	struct config config = {0};
	struct err e = {0};

	log_init("service", LOG_INFO);
	http_limits.tick_ms = 100;
	read_settings(&config, argv);
	n_vms = config.max_vms;
	state_dir = config.state_dir;
	fakes = fakes_new_many(config.run_dir, n_vms);
	if (own.agent)
		fakes_use_agent(fakes, own.agent);
	if (own.fault)
		inject(own.fault, 1);
	do {
		if (serve(&config, &e) < 0) {
			fprintf(stderr, "%s\n", e.text);
			return 1;
		}
	} while (restart);
	fakes_free(fakes);
	return 0;
}
