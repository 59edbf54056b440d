// SPDX-License-Identifier: Apache-2.0
/*
 * Builds a template's image: boots its guest, waits until Python is ready for code, grows the root
 * file system to the disk, runs the template's warm-up, makes the priming calls, and takes a
 * snapshot as a freeze does: blank VM -> boot -> agent reached -> pong -> grown -> warmed up ->
 * primed -> recorded -> snapshot -> quit. A worker then writes the snapshot to the image's
 * directory. A failed step ends the VM and the build. While a build is held, its vCPUs are paused
 * and its time limit does not advance.
 *
 * Recording: the VM process notes which pages the guest uses while it does what each VM restored
 * from the image does first. These VMs then map the pages before they run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/agent/guest-link.h"
#include "orchestrator/images/guest-start.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/template-internal.h"
#include "orchestrator/io/disk-job.h"

#define CMDLINE "console=hvc0 quiet root=/dev/vda rw panic=-1 irqaffinity=0"
/* The guest's kernel requests its address from the VM's DHCP, so the image contains the address and
 * no program requests it again. */
#define CMDLINE_NETWORK " ip=dhcp"

enum build_step {
	BUILD_PONG,
	BUILD_GROW,
	BUILD_WARMUP,
	BUILD_PRIMING,
	BUILD_RESEED, /* this and the next step are recorded */
	BUILD_FIRST_CALL,
};

enum guest_state {
	GUEST_NONE,  /* no blank VM yet, or its snapshot is being taken */
	GUEST_BLANK, /* a blank VM, ready to boot */
	GUEST_RUNS,
	GUEST_PAUSING,
	GUEST_PAUSED,
	GUEST_STARTING,
	GUEST_RECORDING, /* its recording is about to start */
};

/* What the build waits for while its guest runs. */
enum build_next { NEXT_ANSWER, NEXT_RECORDING, NEXT_SNAPSHOT };

struct build {
	struct template *t;
	struct vmproc *vm;
	struct guest_link link; /* the deadline covers all requests to the agent */
	struct disk_job *opening;
	struct build_files *files;  /* NULL: not open yet */
	int fds[BUILD_FDS];	    /* descriptors not passed on yet; others are -1 */
	struct vmproc_image *image; /* the snapshot, once it is taken */
	enum guest_state guest;
	bool held;
	enum build_next next;
	uint64_t ran_ms;	     /* run time before `since_ms` */
	uint64_t since_ms;	     /* when it was started, or last held or released */
	enum build_step step;	     /* the agent's current step */
	unsigned primed;	     /* priming calls made */
	char said[TEMPLATE_WHY_MAX]; /* the end of the warm-up's stderr */
	size_t said_len;
};

void build_free(struct build *b)
{
	struct templates *ts = b->t->templates;

	b->t->build = NULL;
	guest_link_close(&b->link);
	if (b->vm)
		vmproc_drop(b->vm, NULL, NULL);
	disk_job_cancel(b->opening);
	for (unsigned i = 0; i < BUILD_FDS; i++)
		disk_close(ts->env->loop, &b->fds[i]);
	vmproc_image_put(b->image);
	free(b->files);
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

/* Fails a build whose guest did not come up. The last line of its console is the best hint. */
static void fail_boot(struct build *b, const char *text)
{
	char words[80], all[ERR_TEXT_MAX];

	vmproc_last_words(b->vm, VM_GUEST, words, sizeof(words));
	snprintf(all, sizeof(all), "the guest did not come up: %.100s%s%s%s", text,
		 words[0] ? " (last line of its console: " : "", words, words[0] ? ")" : "");
	fail(b, all);
}

static void on_quit(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;
	struct template *t = b->t;
	struct vmproc_image *image = b->image;

	/* Errors do not matter: the snapshot is complete, and build_free ends the VM. */
	b->image = NULL;
	build_free(b);
	template_built(t, image);
}

static void on_image(void *arg, int error, const char *text, struct vmproc_image *image)
{
	struct build *b = arg;

	b->image = image;
	if (error)
		fail(b, text);
	else if (image->memory_layers || image->layers != 1)
		/* An image has one memory file, and the disk layer that the build has made. */
		fail(b, "the VM process made a snapshot with another number of layers than is "
			"expected after a boot");
	else
		vmproc_ask(b->vm, CTL_QUIT, on_quit, b);
}

/* --- time ------------------------------------------------------------------------------------ */

static uint64_t ran_ms(const struct build *b)
{
	return b->ran_ms + (b->held ? 0 : loop_now_ms(b->t->templates->env->loop) - b->since_ms);
}

static uint32_t left_ms(const struct build *b)
{
	uint64_t limit = (uint64_t)b->t->templates->env->config->boot_timeout_s * 1000,
		 ran = ran_ms(b);

	return ran < limit ? (uint32_t)(limit - ran) : 0;
}

static void on_late(void *arg)
{
	struct build *b = arg;

	if (b->step == BUILD_WARMUP)
		fail(b, "its warm-up exceeded the time limit (boot_timeout_s)");
	else if (b->step >= BUILD_RESEED)
		fail_boot(b,
			  "a first call was not answered within the time limit (boot_timeout_s)");
	else
		fail_boot(b, "Python was not ready within the time limit (boot_timeout_s)");
}

/* Starts the deadline for the agent's answer, or dials the agent first. */
static void await(struct build *b)
{
	if (b->link.agent)
		guest_link_set_deadline(&b->link, left_ms(b));
	else
		guest_link_dial(&b->link, b->vm, left_ms(b), false);
}

static void stop_awaiting(struct build *b)
{
	guest_link_clear_deadline(&b->link);
	guest_link_cancel_dial(&b->link);
}

/* --- hold ------------------------------------------------------------------------------------ */

static void boot(struct build *b);
static void follow(struct build *b);

static void on_paused(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;

	if (error) {
		fail(b, text);
		return;
	}
	b->guest = GUEST_PAUSED;
	follow(b);
}

static void on_runs(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;

	if (error) {
		fail(b, text);
		return;
	}
	b->guest = GUEST_RUNS;
	if (!b->held && b->next == NEXT_ANSWER)
		await(b);
	follow(b);
}

static void on_recording(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct build *b = arg;

	if (error && !reply) { /* the VM process is gone */
		fail(b, text);
		return;
	}
	if (error)
		log_debug("template %s: no working set is recorded: %s", b->t->name, text);
	b->next = error ? NEXT_SNAPSHOT : NEXT_ANSWER;
	on_runs(b, 0, NULL, NULL);
}

/* Moves the guest towards the state that it should be in: paused while the build is held, else
 * running. Then starts the recording, or takes the snapshot, when it is time for that. */
static void follow(struct build *b)
{
	if (b->guest == GUEST_BLANK && !b->held) {
		boot(b);
	} else if (b->guest == GUEST_RUNS && b->held) {
		b->guest = GUEST_PAUSING;
		vmproc_ask(b->vm, CTL_PAUSE, on_paused, b);
	} else if (b->guest == GUEST_RUNS && b->next == NEXT_RECORDING) {
		b->guest = GUEST_RECORDING;
		vmproc_ask(b->vm, CTL_RECORD, on_recording, b);
	} else if (b->guest == GUEST_RUNS && b->next == NEXT_SNAPSHOT) {
		b->guest = GUEST_NONE;
		vmproc_freeze(b->vm, take_fd(&b->fds[NEXT_LAYER_FD]), on_image, b);
	} else if (b->guest == GUEST_PAUSED && !b->held) {
		b->guest = GUEST_STARTING;
		vmproc_ask(b->vm, CTL_RUN, on_runs, b);
	}
}

void build_hold(struct build *b, bool hold)
{
	if (b->held == hold)
		return;
	b->ran_ms = ran_ms(b);
	b->since_ms = loop_now_ms(b->t->templates->env->loop);
	b->held = hold;
	if (hold)
		stop_awaiting(b);
	log_debug("template %s: its build is %s", b->t->name, hold ? "held" : "released");
	follow(b);
}

bool build_has_vm(const struct build *b)
{
	return b->vm != NULL;
}

/* --- priming and recording ------------------------------------------------------------------- */

/* Prints, and shows a value, as most users' first calls do. */
static const struct agent_exec first_call = {.language = AGENT_PYTHON,
					     .code = "print(1)\n1",
					     .code_len = 10,
					     .results = true,
					     .prepares = true};

/* The guest reports freed pages to the host 2 s later. It should report those of its boot before
 * the snapshot: otherwise each clone does, which costs it a megabyte. It is Python that sleeps,
 * since the end of another process would free pages again. It sleeps in short parts, since the
 * guest's clock runs on while the build is held. */
static const char sleep_5_s[] = "[__import__('time').sleep(0.1) for i in range(50)]";
static const struct agent_exec wait_for_reports = {.language = AGENT_PYTHON,
						   .code = sleep_5_s,
						   .code_len = sizeof(sleep_5_s) - 1,
						   .prepares = true};

static const struct agent_exec *const calls_before_recording[] = {
	&priming_calls[0], &priming_calls[1], &first_call, &wait_for_reports};

/* Hangs up before the recording, which includes a new connection, and before the snapshot, which
 * must not contain an open one. */
static void hang_up(struct build *b, enum build_next next)
{
	stop_awaiting(b);
	guest_link_hang_up(&b->link);
	b->next = next;
	follow(b);
}

static void call(struct build *b, enum build_step step, const struct agent_exec *exec)
{
	b->step = step;
	guest_link_send(&b->link, agent_exec_bytes(exec));
}

static void prime(struct build *b)
{
	if (b->primed < ARRAY_LEN(calls_before_recording)) {
		call(b, BUILD_PRIMING, calls_before_recording[b->primed++]);
		return;
	}
	log_info("template %s: the guest is primed after %llu ms", b->t->name,
		 (unsigned long long)ran_ms(b));
	b->step = BUILD_RESEED;
	hang_up(b, NEXT_RECORDING);
}

/* --- warm-up -------------------------------------------------------------------------------- */

static void warm_up(struct build *b)
{
	const struct agent_exec exec = {.language = AGENT_PYTHON,
					.code = b->files->warmup,
					.code_len = b->files->warmup_len,
					.prepares = true};

	if (b->files->source.warmup[0])
		call(b, BUILD_WARMUP, &exec);
	else
		prime(b);
}

/* Keeps the last TEMPLATE_WHY_MAX - 1 bytes: the end of a traceback says most. */
static void note_words(struct build *b, const uint8_t *data, size_t len)
{
	size_t room = sizeof(b->said) - 1;

	if (len > room) {
		data += len - room;
		len = room;
	}
	if (b->said_len + len > room) {
		size_t drop = b->said_len + len - room;

		memmove(b->said, b->said + drop, b->said_len - drop);
		b->said_len -= drop;
	}
	memcpy(b->said + b->said_len, data, len);
	b->said_len += len;
	b->said[b->said_len] = 0;
}

static void fail_warmup(struct build *b, const struct agent_frame *frame)
{
	struct template *t = b->t;
	char text[ERR_TEXT_MAX];
	const char *last;

	while (b->said_len && strchr("\r\n ", b->said[b->said_len - 1]))
		b->said[--b->said_len] = 0;
	last = strrchr(b->said, '\n');
	snprintf(text, sizeof(text), "its warm-up ended with exit code %d: %.180s",
		 frame->exit_code, last ? last + 1 : b->said);
	free(t->reason);
	t->reason = strdup(b->said_len ? b->said : text);
	fail(b, text);
}

static void on_warmup_frame(struct build *b, const struct agent_frame *frame)
{
	if (frame->type == AGENT_STDERR)
		note_words(b, frame->data, frame->len);
	else if (frame->type == AGENT_EXIT && frame->exit_code)
		fail_warmup(b, frame);
	else if (frame->type == AGENT_EXIT)
		prime(b);
	else if (frame->type != AGENT_STDOUT)
		fail_boot(b, "the agent sent an unexpected frame during the warm-up");
}

/* --- agent's answers -------------------------------------------------------------------------- */

static void grow(struct build *b)
{
	uint64_t disk = (uint64_t)b->t->size.rootfs_gb << 30;

	b->step = BUILD_GROW;
	if (b->files->rootfs_bytes >= disk)
		warm_up(b);
	else
		guest_link_send(&b->link, agent_grow_bytes(disk));
}

/* Fails the build with `what` and the reason that the agent gave, if any. */
static void fail_refused(struct build *b, const char *what, const struct agent_frame *frame)
{
	char text[ERR_TEXT_MAX];

	snprintf(text, sizeof(text), "%s: %.*s", what, (int)(frame->len < 128 ? frame->len : 128),
		 frame->type == AGENT_ERROR && frame->data ? (const char *)frame->data : "");
	fail_boot(b, text);
}

static void on_grow_frame(struct build *b, const struct agent_frame *frame)
{
	char what[80];

	if (frame->type == AGENT_DONE) {
		warm_up(b);
		return;
	}
	snprintf(what, sizeof(what), "its root file system can't grow to %u GiB",
		 b->t->size.rootfs_gb);
	fail_refused(b, what, frame);
}

/* Ignores what a call prints or shows. Returns true when it has succeeded. */
static bool has_ended(struct build *b, const struct agent_frame *frame, const char *what)
{
	bool shows = frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR ||
		     frame->type == AGENT_BUNDLE || frame->type == AGENT_RESULT;
	bool succeeded = frame->type == AGENT_EXIT && !frame->exit_code;

	if (!shows && !succeeded)
		fail_boot(b, what);
	return succeeded;
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct build *b = arg;

	switch (b->step) {
	case BUILD_PONG:
		if (frame->type != AGENT_PONG || frame->version != AGENT_VERSION)
			fail(b, "the guest's agent has another protocol version; update its root "
				"file system");
		else
			grow(b);
		break;
	case BUILD_GROW:
		on_grow_frame(b, frame);
		break;
	case BUILD_WARMUP:
		on_warmup_frame(b, frame);
		break;
	case BUILD_PRIMING:
		if (has_ended(b, frame, "a priming call failed"))
			prime(b);
		break;
	case BUILD_RESEED:
		if (frame->type == AGENT_DONE)
			call(b, BUILD_FIRST_CALL, &first_call);
		else
			fail_refused(b, "the guest could not be made unique", frame);
		break;
	case BUILD_FIRST_CALL:
		if (has_ended(b, frame, "the first call failed"))
			hang_up(b, NEXT_SNAPSHOT);
		break;
	}
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	if (reason == GUEST_NO_MEMORY)
		fail(arg, text);
	else
		fail_boot(arg, text);
}

static void on_reached(void *arg)
{
	struct build *b = arg;
	const struct agent_bytes request = b->step == BUILD_RESEED ? reseed_bytes("template", true)
								   : agent_plain_bytes(AGENT_PING);

	if (guest_link_send(&b->link, request))
		await(b);
}

static const struct guest_link_events agent_events = {on_reached, on_frame, on_lost, on_late, NULL};

void template_cmdline(const struct config *config, char *out, size_t size)
{
	snprintf(out, size, CMDLINE "%s", config->network[0] ? CMDLINE_NETWORK : "");
}

static void boot(struct build *b)
{
	const struct config *config = b->t->templates->env->config;
	struct ctl_msg fill = {.fill = {.kind = CTL_BOOT,
					.has_initrd = config->initramfs[0] != 0,
					.disk_bytes = (uint64_t)b->t->size.rootfs_gb << 30}};

	template_cmdline(config, fill.fill.cmdline, sizeof(fill.fill.cmdline));
	b->guest = GUEST_STARTING;
	vmproc_fill(b->vm, &fill, b->fds, b->files->n_boot, on_runs, b);
}

static void on_blank(void *arg)
{
	struct build *b = arg;

	b->guest = GUEST_BLANK;
	follow(b);
}

static void on_died(void *arg, const char *reason)
{
	fail(arg, reason);
}

static const struct vmproc_owner vmproc_owner = {on_blank, on_died};

void build_set_priority(struct templates *ts)
{
	struct build *b = ts->building ? ts->building->build : NULL;

	if (b && b->vm && !templates_closing(ts))
		vmproc_set_priority(b->vm, template_is_background(ts->building) ? WARDEN_BACKGROUND
										: WARDEN_BRINGUP);
}

static void on_files(void *arg, struct disk_job *job)
{
	struct build *b = arg;
	struct templates *ts = b->t->templates;
	struct vmproc_spec spec = size_vm_spec(&b->t->size, true);

	b->opening = NULL;
	if (job->job.ret < 0) {
		fail(b, job->job.err.text);
		return;
	}
	for (unsigned i = 0; i < BUILD_FDS; i++)
		b->fds[i] = take_fd(&job->fds[i]);
	b->files = job->what;
	job->what = NULL;
	b->vm = vmproc_spawn(ts->env->vms, &spec, &vmproc_owner, b);
	build_set_priority(ts);
}

void build_start(struct template *t)
{
	struct build *b = must_alloc(sizeof(*b));
	struct build_files *files = must_alloc(sizeof(*files));
	const struct config *config = t->templates->env->config;

	b->t = t;
	b->since_ms = loop_now_ms(t->templates->env->loop);
	for (unsigned i = 0; i < BUILD_FDS; i++)
		b->fds[i] = -1;
	guest_link_init(&b->link, t->templates->env->loop, &agent_events, b);
	t->build = b;
	memcpy(files->kernel, config->kernel, sizeof(files->kernel));
	memcpy(files->initramfs, config->initramfs, sizeof(files->initramfs));
	memcpy(files->state_dir, config->state_dir, sizeof(files->state_dir));
	memcpy(files->name, t->name, sizeof(files->name));
	files->source = t->source;
	b->opening = disk_job_start(t->templates->env->loop, build_files_open, files, BUILD_FDS,
				    on_files, b);
}
