// SPDX-License-Identifier: Apache-2.0
/*
 * The service over fake VMs whose agent is the real one. guest_api_server DIR AGENT_SOCKET
 * [TIER...] prints the port it listens on and one key for each tier. All sandboxes share that
 * agent. SIGUSR1 ends all VMs, and SIGTERM the service.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "orchestrator/api/server.h"
#include "orchestrator/core/core.h"
#include "orchestrator/keys/keys.h"
#include "test/unit/core/fakes.h"

#define MAX_VMS 8

static struct loop *loop;
static struct fakes *fakes;
static volatile sig_atomic_t kill_asked;
static struct loop_timer kill_timer;

static void on_usr1(int sig)
{
	kill_asked = 1;
}

/* Polls a flag, because the signal handler may interrupt anything. */
static void poll_kill(void *arg)
{
	for (uint32_t slot = 0; kill_asked && slot < MAX_VMS; slot++)
		fakes_kill(fakes, slot);
	kill_asked = 0;
	loop_timer_set(loop, &kill_timer, 20);
}

static void on_term(int sig)
{
	loop_stop(loop);
}

static void stop(void *arg)
{
	loop_stop(loop);
}

static void make_file(const char *dir, const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", dir, name);
	int fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, name, strlen(name)) < 0)
		exit(2);
	close(fd);
}

static void make_config(struct config *c, const char *dir)
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
	c->max_body_bytes = 64u << 20;
	c->max_vms = MAX_VMS;
	c->fork_max = 32;
	c->vcpus = 1;
	c->ram_mib = 128;
	c->rootfs_gb = 1;
	c->timeout_s = c->idle_timeout_s = 1000;
	c->boot_timeout_s = 20;
	c->port_idle_timeout_s = 5;
	strcpy(c->sandbox_domain, "http://sandboxes.test");
}

static void make_key(struct core *core, const char *tier)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	if (keys_create(core_keys(core), "a test", tier, NULL, text, &key, &e) < 0)
		exit(3);
	printf("%s\n", text);
}

static int serve(const struct config *config, char **tiers, struct err *e)
{
	struct core *core;
	struct api *api;
	int ret = loop_new(&loop, e);

	if (ret == 0)
		ret = core_new(&core, loop, config, fakes_attach(fakes), e);
	if (ret == 0)
		ret = api_new(&api, loop, core, config, e);
	if (ret < 0)
		return ret;
	signal(SIGTERM, on_term);
	signal(SIGUSR1, on_usr1);
	kill_timer.fn = poll_kill;
	poll_kill(NULL);
	printf("%u\n", api_port(api));
	for (; *tiers; tiers++)
		make_key(core, *tiers);
	fflush(stdout);
	loop_run(loop);
	loop_timer_clear(loop, &kill_timer);
	api_drain(api, stop, NULL);
	loop_run(loop);
	core_shutdown(core, stop, NULL);
	loop_run(loop);
	api_free(api);
	core_free(core);
	loop_free(loop);
	return 0;
}

int main(int argc, char **argv)
{
	struct config config = {0};
	struct err e = {0};

	if (argc < 3)
		return 2;
	log_init("service", LOG_INFO);
	make_config(&config, argv[1]);
	fakes = fakes_new(config.run_dir);
	fakes_use_agent(fakes, argv[2]);
	if (serve(&config, argv + 3, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	fakes_free(fakes);
	return 0;
}
