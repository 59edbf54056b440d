// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the service with many sandboxes, over HTTP. Loop, service and API are the real ones; VMs
 * and agents are fakes (test/unit/service/fakes.h). `scale-latency [--runs N] [COUNT...]` times a
 * create, a GET of one sandbox, a page of ten, and a call to the fake agent and back, each with
 * COUNT sandboxes. The default counts are 10, 1,000 and 10,000; the last one is reduced if the
 * limit of descriptors is too low and cannot be raised. Then it times a start of the service that
 * adopts all of them and 1,000 Spaces.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/http.h"
#include "bench/stats.h"
#include "orchestrator/api/api.h"
#include "orchestrator/service/service.h"
#include "test/unit/service/fakes.h"

#define COUNTS_MAX 8
#define SPACES	   1000
#define SPARE_VMS  16
#define FDS_PER_VM 6 /* both ends of its connections, its listener and its pipe */
#define FDS_BESIDE 128
#define PAGE_PATH  256
#define TIMEOUT_S  1000000

static void fail(const char *what)
{
	fprintf(stderr, "scale-latency: %s\n", what);
	_exit(1);
}

/* --- the service, in a separate thread -------------------------------------------------------- */

static struct hosted {
	struct config config;
	struct fakes *fakes;
	struct loop *loop;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool up;
	double start_ms, start_cpu_ms; /* until it listens; CPU time of its thread until then */
} hosted = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void make_file(const char *dir, const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	int fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, name, strlen(name)) < 0)
		fail("files cannot be written");
	close(fd);
}

static void make_config(struct config *c, const char *dir, unsigned vms)
{
	make_file(dir, "kernel", c->kernel);
	make_file(dir, "initramfs", c->initramfs);
	make_file(dir, "rootfs", c->rootfs);
	make_file(dir, "vmm", c->vmm);
	snprintf(c->state_dir, sizeof(c->state_dir), "%s/state", dir);
	snprintf(c->run_dir, sizeof(c->run_dir), "%s/run", dir);
	mkdir(c->state_dir, 0700);
	mkdir(c->run_dir, 0700);
	strcpy(c->listen_host, "127.0.0.1");
	strcpy(c->allow_open, "no");
	c->max_body_bytes = 1 << 20;
	c->max_vms = vms;
	c->fork_max = 32;
	c->vcpus = 1;
	c->ram_mib = 128;
	c->rootfs_gb = 1;
	c->timeout_s = c->idle_timeout_s = TIMEOUT_S;
	c->boot_timeout_s = 20;
	c->audit_max_mib = 64;
	c->audit_days = 90;
}

static double cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *serve(void *arg)
{
	uint64_t began = bench_now_ns();
	struct service *service = NULL;
	struct api *api = NULL;
	struct err e;

	if (loop_new(&hosted.loop, &e) < 0 ||
	    service_new(&service, hosted.loop, &hosted.config, fakes_attach(hosted.fakes), &e) <
		    0 ||
	    api_new(&api, hosted.loop, service, &hosted.config, &e) < 0)
		fail(e.text);
	pthread_mutex_lock(&hosted.lock);
	hosted.config.listen_port = api_port(api);
	hosted.start_ms = MS(bench_now_ns() - began);
	hosted.start_cpu_ms = cpu_ms();
	hosted.up = true;
	pthread_cond_broadcast(&hosted.changed);
	pthread_mutex_unlock(&hosted.lock);
	loop_run(hosted.loop);
	api_free(api);
	service_free(service);
	loop_free(hosted.loop);
	return NULL;
}

/* Starts the service and returns a connection to it. */
static int start_service(void)
{
	hosted.up = false;
	int ret = pthread_create(&hosted.thread, NULL, serve, NULL);
	if (ret != 0)
		fail(strerror(ret));
	pthread_mutex_lock(&hosted.lock);
	while (!hosted.up)
		pthread_cond_wait(&hosted.changed, &hosted.lock);
	pthread_mutex_unlock(&hosted.lock);
	return http_connect((uint16_t)hosted.config.listen_port, 60);
}

/* Stops the service as a kill would: the fakes continue. */
static void stop_service(int fd)
{
	close(fd);
	loop_stop(hosted.loop);
	pthread_join(hosted.thread, NULL);
}

/* --- sandboxes -------------------------------------------------------------------------------- */

static struct answer answer;
static char (*paths)[SANDBOX_PATH];
static unsigned n_open;

static void create(int fd, char path[SANDBOX_PATH])
{
	http_call(fd, "POST", "/v1/sandboxes", "{}", &answer);
	http_sandbox_path(&answer, 0, path);
}

static void grow(int fd, unsigned count)
{
	while (n_open < count)
		create(fd, paths[n_open++]);
}

static const char *any(void)
{
	static uint32_t seed = 1;

	seed = seed * 1664525u + 1013904223u;
	return paths[(seed >> 8) % n_open];
}

static void time_create(int fd)
{
	char path[SANDBOX_PATH];

	create(fd, path);
	snprintf(paths[n_open], SANDBOX_PATH, "%s", path);
}

static void time_get(int fd)
{
	http_call(fd, "GET", any(), "", &answer);
}

/* Times the next page; after the last one it continues with the first. */
static void time_page(int fd)
{
	static const char name[] = "ramet-next-cursor: ";
	static char path[PAGE_PATH] = "/v1/sandboxes?limit=10";

	http_call(fd, "GET", path, "", &answer);
	const char *cursor = strcasestr(answer.text, name);
	snprintf(path, sizeof(path), "/v1/sandboxes?limit=10");
	if (cursor && cursor < answer.body)
		snprintf(path, sizeof(path), "/v1/sandboxes?limit=10&cursor=%.*s",
			 (int)strcspn(cursor + strlen(name), "\r"), cursor + strlen(name));
}

static void time_exec(int fd)
{
	char path[SANDBOX_PATH + 8];

	snprintf(path, sizeof(path), "%s/exec", any());
	http_call(fd, "POST", path, "{\"code\":\"out x\"}", &answer);
}

static void drop_created(int fd)
{
	http_call(fd, "DELETE", paths[n_open], "", &answer);
}

/* --- figures ---------------------------------------------------------------------------------- */

static const struct operation {
	const char *name;
	void (*fn)(int fd);
	void (*after)(int fd); /* not timed */
} operations[] = {
	{"create", time_create, drop_created},
	{"get", time_get, NULL},
	{"page", time_page, NULL},
	{"exec", time_exec, NULL},
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const char *separator = "{";

static double print(struct samples *s, const char *name, const char *unit)
{
	fputs(separator, stdout);
	separator = ", ";
	samples_print(s, name, unit, stdout);
	double median = s->v[s->n / 2];
	samples_free(s);
	*s = (struct samples){0};
	return median;
}

static void print_one(double value, const char *name, const char *unit)
{
	struct samples s = {0};

	samples_add(&s, value);
	print(&s, name, unit);
}

/* Times the operations in turns, so that a change of the machine's speed affects all of them. */
static void measure(int fd, unsigned runs, const char *count, double medians[N_OPERATIONS])
{
	struct samples s[N_OPERATIONS] = {0};
	char name[64];

	for (unsigned run = 0; run < runs; run++)
		for (size_t i = 0; i < N_OPERATIONS; i++) {
			uint64_t began = bench_now_ns();

			operations[i].fn(fd);
			samples_add(&s[i], (double)(bench_now_ns() - began) / 1e3);
			if (operations[i].after)
				operations[i].after(fd);
		}
	for (size_t i = 0; i < N_OPERATIONS; i++) {
		snprintf(name, sizeof(name), "%s_%s_us", operations[i].name, count);
		medians[i] = print(&s[i], name, "us");
	}
}

static void print_ratios(const char *count, const char *to, const double medians[N_OPERATIONS],
			 const double first[N_OPERATIONS])
{
	char name[64];

	for (size_t i = 0; i < N_OPERATIONS; i++) {
		snprintf(name, sizeof(name), "%s_%s_to_%s", operations[i].name, count, to);
		print_one(medians[i] / first[i], name, "times");
	}
}

/* --- Spaces, as rows and directories ---------------------------------------------------------- */

static void add_spaces(void)
{
	static const char sql[] =
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "
		"INSERT INTO spaces SELECT printf('spc_%032x', i), 'local', printf('sbx_%032x', "
		"i), "
		"'default', 1, 128, 1, 60, 60, 1, 1700000000000 + i, 4096, 1, '{}', x'' FROM n";
	char path[CONFIG_PATH_MAX + 64];
	sqlite3_stmt *st = NULL;
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/catalogue.db", hosted.config.state_dir);
	if (sqlite3_open(path, &db) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK ||
	    sqlite3_bind_int(st, 1, SPACES) != SQLITE_OK || sqlite3_step(st) != SQLITE_DONE)
		fail(sqlite3_errmsg(db));
	sqlite3_finalize(st);
	sqlite3_close(db);
	snprintf(path, sizeof(path), "%s/spaces", hosted.config.state_dir);
	mkdir(path, 0700);
	for (unsigned i = 1; i <= SPACES; i++) {
		snprintf(path, sizeof(path), "%s/spaces/spc_%032x", hosted.config.state_dir, i);
		mkdir(path, 0700);
	}
}

/* Returns the ms until ten of the sandboxes have answered a call each. */
static double until_reached(int fd)
{
	uint64_t began = bench_now_ns();

	for (unsigned i = 0; i < 10; i++) {
		char path[SANDBOX_PATH + 8];

		snprintf(path, sizeof(path), "%s/exec", paths[(size_t)i * (n_open - 1) / 9]);
		http_call(fd, "POST", path, "{\"code\":\"out x\"}", &answer);
	}
	return MS(bench_now_ns() - began);
}

static void measure_start(int fd)
{
	uint64_t began;

	stop_service(fd);
	add_spaces();
	began = bench_now_ns();
	fd = start_service();
	print_one(hosted.start_ms, "start_listens_ms", "ms");
	print_one(hosted.start_cpu_ms, "start_listens_cpu_ms", "ms");
	print_one(MS(bench_now_ns() - began), "start_ready_ms", "ms");
	print_one(until_reached(fd), "start_reached_ms", "ms");
}

/* --- main ------------------------------------------------------------------------------------- */

/* Raises the limit of descriptors, if it may, and returns how many VMs, up to `vms`, it allows. */
static unsigned allow_files(unsigned vms)
{
	struct rlimit now, more;

	getrlimit(RLIMIT_NOFILE, &now);
	more.rlim_cur = (rlim_t)vms * FDS_PER_VM + FDS_BESIDE;
	more.rlim_max = now.rlim_max > more.rlim_cur ? now.rlim_max : more.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &more) == 0)
		return vms;
	now.rlim_cur = now.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_max < FDS_BESIDE)
		fail("the limit of descriptors is too low");
	return (unsigned)((now.rlim_max - FDS_BESIDE) / FDS_PER_VM);
}

/* Starts the process that all VMs report as theirs. It has one thread: reading /proc/PID/stat takes
 * longer the more threads there are. */
static pid_t start_vm_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail(strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const char *counts[COUNTS_MAX] = {"10", "1000", "10000"};
	double first[N_OPERATIONS], medians[N_OPERATIONS];
	char dir[] = "/dev/shm/ramet-scale-XXXXXX";
	unsigned runs = 1000;
	size_t n = 3;

	log_init("scale", LOG_ERROR);
	if (argc > 2 && !strcmp(argv[1], "--runs")) {
		runs = (unsigned)atoi(argv[2]);
		argc -= 2;
		argv += 2;
	}
	if (argc > 1)
		for (n = 0; n + 1 < (size_t)argc && n < COUNTS_MAX; n++)
			counts[n] = argv[n + 1];
	unsigned most = (unsigned)atoi(counts[n - 1]), room = most ? allow_files(most) : 0;
	static char fewer[16];
	if (room < most) { /* the largest count is limited by the descriptors */
		snprintf(fewer, sizeof(fewer), "%u", room);
		counts[n - 1] = fewer;
		most = room;
	}
	if (!runs || !most || !mkdtemp(dir))
		fail("usage: scale-latency [--runs N] [COUNT...], the largest last");
	make_config(&hosted.config, dir, most + SPARE_VMS);
	pid_t vm_process = start_vm_process();
	hosted.fakes = fakes_new_many(hosted.config.run_dir, most + SPARE_VMS);
	fakes_use_pid(hosted.fakes, vm_process);
	paths = calloc(most + 1, SANDBOX_PATH);
	int fd = start_service();
	for (size_t i = 0; i < n; i++) {
		grow(fd, (unsigned)atoi(counts[i]));
		measure(fd, runs, counts[i], i ? medians : first);
		if (i)
			print_ratios(counts[i], counts[0], medians, first);
	}
	measure_start(fd);
	puts("}");
	fflush(stdout);
	execlp("rm", "rm", "-rf", dir, (char *)NULL);
	_exit(1);
}
