// SPDX-License-Identifier: Apache-2.0
/*
 * Boots a template's guest, waits until its Python waits for code, rehearses a call of each kind,
 * and has the VM process write the image: shell -> fill -> agent reached -> pong -> rehearsed ->
 * paused -> saved -> quit. A step that fails ends the VM and the build.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/core/template-internal.h"

#define CMDLINE "console=hvc0 quiet root=/dev/vda rw panic=-1"

struct build {
	struct template *t;
	struct vm *vm;
	struct dial *dial;
	struct agent *agent;
	int dir_fd;
	uint64_t started_ms;
	struct loop_timer patience; /* for the pong and the rehearsal */
	bool pong;
	unsigned rehearsed; /* calls of the rehearsal that were made */
	struct later later;
	struct err err;
};

void build_free(struct build *b)
{
	struct core *c = b->t->core;

	b->t->build = NULL;
	loop_timer_clear(c->loop, &b->patience);
	later_cancel(&b->later);
	dial_cancel(b->dial);
	agent_free(b->agent);
	if (b->vm)
		vm_drop(b->vm, NULL, NULL);
	close_fd(&b->dir_fd);
	free(b);
}

static void fail(struct build *b, const char *text)
{
	struct template *t = b->t;
	char copy[ERR_TEXT_MAX];

	snprintf(copy, sizeof(copy), "%s", text);
	build_free(b);
	template_fail(t, copy);
}

/* The guest did not come up: what it said last tells most. */
static void fail_boot(struct build *b, const char *text)
{
	char words[80], all[ERR_TEXT_MAX];

	vm_last_words(b->vm, VM_GUEST, words, sizeof(words));
	snprintf(all, sizeof(all), "the guest did not come up: %.100s%s%s%s", text,
		 words[0] ? " (last line of its console: " : "", words, words[0] ? ")" : "");
	fail(b, all);
}

static void on_quit(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;
	struct template *t = b->t;

	/* Dropping ends it as well; the image is whole. */
	build_free(b);
	template_built(t);
}

static void on_saved(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;

	if (error) {
		fail(b, text);
		return;
	}
	vm_quit(b->vm, on_quit, b);
}

static int open_image(struct build *b, int fds[3], struct err *e)
{
	static const char *const names[] = {"state", "memory"};

	for (int i = 0; i < 2; i++) {
		fds[i] = openat(b->dir_fd, names[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fds[i] < 0)
			return err_set(e, errno, "make %s of the image", names[i]);
	}
	fds[2] = disk_layer_new(&b->t->core->config, e);
	return fds[2] < 0 ? fds[2] : 0;
}

static void on_paused(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;
	int fds[3] = {-1, -1, -1};
	struct err e;

	if (error) {
		fail(b, text);
		return;
	}
	if (open_image(b, fds, &e) < 0) {
		for (int i = 0; i < 3; i++)
			close_fd(&fds[i]);
		fail(b, e.text);
		return;
	}
	vm_save(b->vm, fds, on_saved, b);
}

static void rehearse(struct build *b)
{
	uint8_t *bytes;
	size_t len;

	if (b->rehearsed < REHEARSAL_CALLS) {
		if (agent_exec_bytes(&rehearsal[b->rehearsed++], &bytes, &len) < 0)
			fail(b, "no memory");
		else
			agent_send(b->agent, bytes, len);
		return;
	}
	log_info("template %s: Python waits after %llu ms", b->t->name,
		 (unsigned long long)(loop_now_ms(b->t->core->loop) - b->started_ms));
	loop_timer_clear(b->t->core->loop, &b->patience);
	/* The image has no connection in it. */
	agent_free(b->agent);
	b->agent = NULL;
	vm_pause(b->vm, on_paused, b);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct build *b = arg;

	if (!b->pong && (frame->type != AGENT_PONG || frame->version != AGENT_VERSION)) {
		fail(b, "the guest's agent speaks another version of the protocol");
	} else if (b->pong && (frame->type != AGENT_EXIT || frame->exit_code)) {
		fail_boot(b, "a call that does nothing did not end well");
	} else {
		b->pong = true;
		rehearse(b);
	}
}

static void on_agent_ended(void *arg, const char *why)
{
	fail_boot(arg, why);
}

static const struct agent_events agent_events = {.frame = on_frame, .ended = on_agent_ended};

static void on_patience(void *arg)
{
	fail_boot(arg, "Python was not ready in time (boot_timeout_s)");
}

static void on_dialed(void *arg, int fd, const char *text)
{
	struct build *b = arg;
	struct loop *loop = b->t->core->loop;
	uint64_t limit = (uint64_t)b->t->core->config.boot_timeout_s * 1000;
	uint64_t spent = loop_now_ms(loop) - b->started_ms;
	uint8_t *bytes = NULL;
	size_t len;

	b->dial = NULL;
	if (fd < 0) {
		fail_boot(b, text);
		return;
	}
	b->agent = agent_new(loop, fd, &agent_events, b);
	if (!b->agent || agent_plain_bytes(AGENT_PING, &bytes, &len) < 0) {
		fail(b, "no memory");
		return;
	}
	agent_send(b->agent, bytes, len);
	b->patience = (struct loop_timer){.fn = on_patience, .arg = b};
	loop_timer_set(loop, &b->patience, spent < limit ? limit - spent : 0);
}

static void on_filled(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;

	if (error)
		fail(b, text);
	else
		b->dial = dial_start(b->vm, b->t->core->config.boot_timeout_s * 1000, on_dialed, b);
}

static int open_boot(struct build *b, struct ctl_msg *fill, int fds[4], struct err *e)
{
	const struct config *config = &b->t->core->config;
	const char *paths[] = {config->kernel, config->initramfs, config->rootfs};
	int n = 0;

	*fill = (struct ctl_msg){.fill = {.kind = CTL_BOOT,
					  .has_initrd = config->initramfs[0] != 0,
					  .disk_bytes = (uint64_t)b->t->size.rootfs_gb << 30}};
	snprintf(fill->fill.cmdline, sizeof(fill->fill.cmdline), "%s", CMDLINE);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (!paths[i][0])
			continue;
		fds[n] = open(paths[i], O_RDONLY | O_CLOEXEC);
		if (fds[n] < 0)
			return err_set(e, errno, "open %s", paths[i]);
		n++;
	}
	fds[n] = openat(b->dir_fd, "layer-0", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fds[n] < 0)
		return err_set(e, errno, "make the template's disk layer");
	return n + 1;
}

static void on_shell(void *arg)
{
	struct build *b = arg;
	int fds[4] = {-1, -1, -1, -1};
	struct ctl_msg fill;
	struct err e;
	int n = open_boot(b, &fill, fds, &e);

	if (n < 0) {
		for (int i = 0; i < 4; i++)
			close_fd(&fds[i]);
		fail(b, e.text);
		return;
	}
	vm_fill(b->vm, &fill, fds, (unsigned)n, on_filled, b);
}

static void on_died(void *arg, const char *why)
{
	fail(arg, why);
}

static const struct vm_owner vm_owner = {on_shell, on_died};

static void fail_later(void *arg)
{
	struct build *b = arg;

	fail(b, b->err.text);
}

void build_start(struct template *t)
{
	struct build *b = must_alloc(sizeof(*b));
	struct vm_spec spec = size_vm_spec(&t->size, true);

	b->t = t;
	b->started_ms = loop_now_ms(t->core->loop);
	t->build = b;
	b->dir_fd = template_files_begin(&t->core->config, t->name, &b->err);
	if (b->dir_fd < 0) {
		later_run(&t->core->later, &b->later, fail_later, b);
		return;
	}
	b->vm = vm_spawn(&t->core->vms, &spec, &vm_owner, b);
}
