// SPDX-License-Identifier: Apache-2.0
/*
 * Sends a client's bytes to the service, whose VMs are fakes. The first byte is the number of
 * chunks in which they are sent. One sandbox exists from the start. Ids are not random: the first
 * one of each kind ends in 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/api/api.h"
#include "orchestrator/service/service.h"
#include "test/unit/service/fakes.h"

#define TURNS  12
#define INPUTS 200 /* between restarts of the server: calls that hang accumulate */

static struct loop *loop;
static struct api *api;
static struct service *service;
static struct fakes *fakes;
static char dir[] = "/tmp/ramet-fuzz-XXXXXX";

/* --- ids ------------------------------------------------------------------------------------ */

static struct {
	char prefix[8];
	unsigned n;
} kinds[16];

void __wrap_random_id(char *out, size_t size, const char *prefix);
void __wrap_random_id(char *out, size_t size, const char *prefix)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	size_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < ARRAY_LEN(kinds) - 1 && kinds[i].prefix[0] && strcmp(kinds[i].prefix, prefix))
		i++;
	snprintf(kinds[i].prefix, sizeof(kinds[i].prefix), "%s", prefix);
	snprintf(out, size, "%s%032x", prefix, ++kinds[i].n);
	pthread_mutex_unlock(&lock);
}

/* --- the service ---------------------------------------------------------------------------- */

static void stop(void *arg)
{
	loop_stop(loop);
}

static void on_created(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	loop_stop(loop);
}

/* Runs a few turns of the loop. */
static void turn(void)
{
	for (int i = 0; i < TURNS; i++) {
		struct loop_timer t = {.fn = stop};

		loop_timer_set(loop, &t, 0);
		loop_run(loop);
	}
}

static void make_file(const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	scoped_fd int fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, name, strlen(name)) < 0)
		abort();
}

static void make_folder(const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	if (mkdir(out, 0700) < 0)
		abort();
}

static void set_up(void)
{
	static struct config config = {.max_body_bytes = 1 << 20,
				       .stop_timeout_s = 0,
				       .listen_host = "127.0.0.1",
				       .allow_open = "no",
				       .fork_max = 2,
				       .region = "eu-1",
				       .max_vms = 4,
				       .vcpus = 1,
				       .ram_mib = 128,
				       .rootfs_gb = 1,
				       .timeout_s = 1000,
				       .idle_timeout_s = 1000,
				       .boot_timeout_s = 20,
				       .audit_max_mib = 1,
				       .audit_days = 90};
	struct sandbox_spec spec = {0};
	struct err e;

	log_init("fuzz", LOG_ERROR + 1);
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		abort();
	make_file("kernel", config.kernel);
	make_file("initramfs", config.initramfs);
	make_file("rootfs", config.rootfs);
	make_file("vmm", config.vmm);
	make_folder("state", config.state_dir);
	make_folder("run", config.run_dir);
	fakes = fakes_new_many(config.run_dir, config.max_vms);
	if (loop_new(&loop, &e) < 0 ||
	    service_new(&service, loop, &config, fakes_attach(fakes), &e) < 0)
		abort();
	while (!service_ready(service))
		turn();
	memset(kinds, 0, sizeof(kinds));
	service_create(service, "local", &spec, on_created, NULL);
	loop_run(loop);
	if (api_new(&api, loop, service, &config, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void take_down(void)
{
	api_free(api);
	service_free(service);
	loop_free(loop);
	fakes_free(fakes);
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	api = NULL;
}

/* Returns a connected socket, or -1 when the fuzzer's timer interrupted it. */
static int try_dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)api_port(api)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	scoped_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return take_fd(&fd);
	if (errno == EINTR)
		return -1;
	perror("connect to the server");
	abort();
}

static int dial(void)
{
	struct linger none = {.l_onoff = 1}; /* no TIME_WAIT, which would use up the ports */
	int fd;

	while ((fd = try_dial()) < 0)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned inputs;
	char drain[65536];

	if (api && ++inputs % INPUTS == 0)
		take_down();
	if (!api)
		set_up();
	if (size < 2)
		return 0;
	size_t chunks = 1 + data[0] % 4, step = (size - 1 + chunks - 1) / chunks;
	data++;
	size--;
	scoped_fd int fd = dial();
	for (size_t at = 0; at < size; at += step) {
		size_t len = size - at < step ? size - at : step;

		if (send(fd, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turn();
		while (recv(fd, drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
	}
	close_fd(&fd);
	turn();
	return 0;
}
