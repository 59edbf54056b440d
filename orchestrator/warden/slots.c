// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/warden-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "base/state-machine.h"
#include "orchestrator/warden/program.h"

/* --- answers --------------------------------------------------------------------------------- */

static void ask(struct warden *w, struct slot *s, uint32_t seq)
{
	s->seq = seq;
	s->generation = w->service.generation;
	s->error = 0;
	free(s->text);
	s->text = NULL;
}

static void answer_later(struct slot *s, const struct err *e)
{
	free(s->text);
	s->error = e->code;
	s->text = strndup(e->text, WARDEN_TEXT_MAX - 1);
}

static void answer(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];

	if (s->seq && s->generation == w->service.generation)
		service_reply(w, s->seq, number, s->error, (uint64_t)s->pid, s->text);
	free(s->text);
	s->text = NULL;
	s->seq = 0;
}

/* --- states ---------------------------------------------------------------------------------- */

static const uint8_t next[SLOT_NSTATES][SLOT_NEVENTS] = {
	[SLOT_EMPTY] =
		{[SLOT_SPAWN] = STATE_TO(SLOT_STARTING), [SLOT_ADOPT] = STATE_TO(SLOT_RUNNING)},
	[SLOT_STARTING] = {[SLOT_STARTED] = STATE_TO(SLOT_RUNNING),
			   [SLOT_RELEASE] = STATE_TO(SLOT_RELEASING)},
	[SLOT_RUNNING] =
		{[SLOT_EXITED] = STATE_TO(SLOT_DEAD), [SLOT_RELEASE] = STATE_TO(SLOT_RELEASING)},
	[SLOT_DEAD] = {[SLOT_RELEASE] = STATE_TO(SLOT_RELEASING)},
	[SLOT_RELEASING] = {[SLOT_RELEASED] = STATE_TO(SLOT_EMPTY),
			    [SLOT_REMOVE_FAILED] = STATE_TO(SLOT_DEAD)},
};
static const struct state_machine machine = STATE_MACHINE("slot", next);

/* Moves to the next state. The step is legal, because each handler checks the state first. */
static void step(struct slot *s, enum slot_event event)
{
	s->state = (enum slot_state)state_after(&machine, s->state, event);
}

static void close_all(struct slot *s)
{
	close_fd(&s->pidfd);
	close_fd(&s->status);
	close_fd(&s->events);
}

/* --- namespaces without a VM ----------------------------------------------------------------- */

static void forget_idle_net(struct warden *w, uint32_t number)
{
	for (uint32_t i = 0; i < w->n_idle_nets; i++)
		if (w->idle_nets[i] == number) {
			w->idle_nets[i] = w->idle_nets[--w->n_idle_nets];
			return;
		}
}

static uint32_t last_idle_net(const struct warden *w)
{
	uint32_t last = 0;

	for (uint32_t i = 0; i < w->n_idle_nets; i++)
		last = max_u32(last, w->idle_nets[i]);
	return last;
}

/* Keeps the namespace of an empty slot, if it has one. Closes one if there are too many: the last
 * one, because the service takes the first free slot. */
static void keep_idle_net(struct warden *w, uint32_t number)
{
	if (w->slots[number].net.ns < 0)
		return;
	w->idle_nets[w->n_idle_nets++] = number;
	if (w->n_idle_nets <= IDLE_NETS_MAX)
		return;
	uint32_t last = last_idle_net(w);
	net_jail_close(&w->slots[last].net);
	forget_idle_net(w, last);
}

/* --- the end of a VM ------------------------------------------------------------------------- */

/* Prepares the network of a slot whose VM has ended for the next VM, or closes it. */
static void recycle_net(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];
	struct err e;

	if (s->net.ns >= 0 && net_jail_scrub(&w->net, &s->net, &e) < 0) {
		log_info("slot %u: its network namespace is not used again: %s", number, e.text);
		net_jail_close(&s->net);
	}
	/* If this fails, the slot is free anyway: the entries expire by themselves after days. */
	if (net_was_used(&w->net, number, &s->net) && net_forget(&w->net, number, &e) < 0)
		log_warn("slot %u: %s", number, e.text);
}

static void set_empty(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];

	close_all(s);
	step(s, SLOT_RELEASED);
	s->pid = 0;
	w->taken--;
	keep_idle_net(w, number);
}

/* Lets packets of a new VM leave the host, whatever the previous VM of the slot was set to. */
static int open_egress(struct warden *w, uint32_t number, struct err *e)
{
	struct slot *s = &w->slots[number];

	if (!s->closed)
		return 0;
	int r = net_egress(&w->net, number, true, e);
	s->closed = r < 0;
	return r;
}

/* Once nothing runs in the jail any more, removes it and answers the release. */
static void finish_release(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];
	struct err e;

	if (s->pidfd >= 0 || cgroup_populated(s->events) == 1)
		return;
	if (jail_remove(&w->jails, number, &e) < 0 || open_egress(w, number, &e) < 0) {
		/* The slot stays taken; a later release retries. */
		log_error("slot %u: %s", number, e.text);
		answer_later(s, &e);
		answer(w, number);
		step(s, SLOT_REMOVE_FAILED);
		return;
	}
	recycle_net(w, number);
	set_empty(w, number);
	answer(w, number);
}

static void begin_release(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];
	struct err e;

	if (jail_kill(&w->jails, number, &e) < 0) {
		/* The slot stays as it is; a later release retries. */
		log_error("slot %u: %s", number, e.text);
		answer_later(s, &e);
		answer(w, number);
		return;
	}
	close_fd(&s->status);
	step(s, SLOT_RELEASE);
	finish_release(w, number);
}

/* --- spawn ----------------------------------------------------------------------------------- */

static int watch_all(struct warden *w, uint32_t number, struct err *e)
{
	struct slot *s = &w->slots[number];

	if (warden_watch(w, s->pidfd, EPOLLIN, SOURCE_SLOT_PID, number, e) < 0 ||
	    warden_watch(w, s->events, EPOLLPRI, SOURCE_SLOT_EVENTS, number, e) < 0)
		return e->code;
	return warden_watch(w, s->status, EPOLLIN, SOURCE_SLOT_STATUS, number, e);
}

static void spawn(struct warden *w, const struct warden_msg *m)
{
	struct slot *s = &w->slots[m->slot];
	struct jailed j;
	struct err e;

	if (s->state != SLOT_EMPTY) {
		err_say(&e, EBUSY, "slot %u is taken", m->slot);
		service_reply(w, m->seq, m->slot, e.code, 0, e.text);
		return;
	}
	forget_idle_net(w, m->slot);
	if (open_egress(w, m->slot, &e) < 0 || jail_start(&w->jails, m, &s->net, &j, &e) < 0) {
		keep_idle_net(w, m->slot);
		err_context(&e, "slot %u", m->slot);
		log_warn("%s", e.text);
		service_reply(w, m->seq, m->slot, e.code, 0, e.text);
		return;
	}
	w->taken++;
	step(s, SLOT_SPAWN);
	s->pid = j.pid;
	s->pidfd = j.pidfd;
	s->status = j.status;
	s->events = j.events;
	ask(w, s, m->seq);
	if (watch_all(w, m->slot, &e) < 0) {
		answer_later(s, &e);
		begin_release(w, m->slot);
	}
}

/* The child writes a struct err when it fails; the exec closes the pipe. */
void slots_on_status(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];
	struct err e = {0};

	if (s->state != SLOT_STARTING)
		return;
	ssize_t n = read(s->status, &e, sizeof(e));
	if (n < 0 && errno == EAGAIN)
		return;
	if (n < 0)
		err_set(&e, errno, "read the start report of the VM process");
	close_fd(&s->status);
	if (n == 0) {
		step(s, SLOT_STARTED);
		answer(w, number);
		return;
	}
	e.text[sizeof(e.text) - 1] = '\0';
	if (e.code >= 0)
		e.code = -EIO;
	err_context(&e, "slot %u", number);
	log_warn("%s", e.text);
	answer_later(s, &e);
	begin_release(w, number);
}

/* --- death ----------------------------------------------------------------------------------- */

static void set_dead(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];

	step(s, SLOT_EXITED);
	if (WIFSIGNALED(s->exit_status))
		log_warn("slot %u: the VM process was killed by signal %d (%s)", number,
			 WTERMSIG(s->exit_status), strsignal(WTERMSIG(s->exit_status)));
	service_tell_exited(w, number, s->exit_status);
}

void slots_on_pid(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];
	siginfo_t info;

	if (!program_ended(&s->pidfd, &info))
		return;
	s->exit_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	if (s->state == SLOT_STARTING) /* the child's error report comes first */
		slots_on_status(w, number);
	if (s->state == SLOT_RUNNING)
		set_dead(w, number);
	else if (s->state == SLOT_RELEASING)
		finish_release(w, number);
}

void slots_on_events(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];

	/* Read in every state, because the event stays pending until it is read. */
	if (s->events < 0 || cgroup_populated(s->events) == 1)
		return;
	if (s->state == SLOT_RELEASING) {
		finish_release(w, number);
	} else if (s->state == SLOT_RUNNING && s->pidfd < 0) {
		s->exit_status = WARDEN_STATUS_UNKNOWN;
		set_dead(w, number);
	}
}

/* --- release --------------------------------------------------------------------------------- */

/* Answers a request that still waits, if its result is known. Returns false when a release is
 * already waiting. */
static bool answer_waiting(struct warden *w, uint32_t number)
{
	struct slot *s = &w->slots[number];

	if (!s->seq || s->generation != w->service.generation)
		return true;
	if (s->state == SLOT_STARTING) {
		s->error = -ECANCELED;
		s->text = strdup("the slot was released before the VM started");
	}
	if (!s->error)
		return false;
	answer(w, number);
	return true;
}

static void release(struct warden *w, const struct warden_msg *m)
{
	struct slot *s = &w->slots[m->slot];

	if (s->state == SLOT_EMPTY) {
		service_reply(w, m->seq, m->slot, 0, 0, NULL);
		return;
	}
	if (!answer_waiting(w, m->slot)) {
		service_reply(w, m->seq, m->slot, -EALREADY, 0,
			      "the slot is already being released");
		return;
	}
	ask(w, s, m->seq);
	if (s->state != SLOT_RELEASING)
		begin_release(w, m->slot);
}

/* --- requests about a running VM ------------------------------------------------------------- */

static int serve_vm(struct warden *w, const struct warden_msg *m, uint64_t *value, struct err *e)
{
	const struct cgroup_limits limits = {.memory_max = m->memory.max};
	const struct jail_name name = jail_name(m->slot);

	if (w->slots[m->slot].state != SLOT_RUNNING)
		return err_say(e, ESRCH, "no VM runs in slot %u", m->slot);
	switch (m->type) {
	case WARDEN_MEMORY:
		return cgroup_limit(&w->tree, name.text, &limits, e);
	case WARDEN_CHARGED:
		return cgroup_charged(&w->tree, name.text, value, e);
	case WARDEN_PRIORITY:
		return jail_set_priority(&w->jails, m->slot, m->priority.priority, e);
	case WARDEN_OOM:
		return jail_set_oom(&w->jails, m->slot, m->oom.first, e);
	case WARDEN_NO_EGRESS:
	default:
		/* Counts as closed until it is certainly open again. */
		w->slots[m->slot].closed = true;
		return net_egress(&w->net, m->slot, false, e);
	}
}

void slots_serve(struct warden *w, const struct warden_msg *m)
{
	uint64_t value = 0;
	struct err e = {0};

	if (m->type == WARDEN_SPAWN) {
		spawn(w, m);
		return;
	}
	if (m->type == WARDEN_RELEASE) {
		release(w, m);
		return;
	}
	serve_vm(w, m, &value, &e); /* the service logs failures */
	service_reply(w, m->seq, m->slot, e.code, value, e.text);
}

/* --- all slots ------------------------------------------------------------------------------- */

static void adopt(struct warden *w, uint32_t number, int events)
{
	struct slot *s = &w->slots[number];

	step(s, SLOT_ADOPT);
	s->events = events;
	w->taken++;
}

/* Adopts the VM that a previous warden left in a slot if it is alive; else removes its remains. */
static void find_one(void *arg, uint32_t number)
{
	struct warden *w = arg;
	const struct jail_name name = jail_name(number);
	struct err e = {0};

	scoped_fd int events = cgroup_watch(&w->tree, name.text, &e);
	if (events >= 0 && number < w->config->max_vms && cgroup_populated(events) == 1 &&
	    warden_watch(w, events, EPOLLPRI, SOURCE_SLOT_EVENTS, number, &e) == 0) {
		adopt(w, number, take_fd(&events));
		return;
	}
	if (number >= w->config->max_vms)
		log_warn("slot %u exceeds max_vms: ending its VM", number);
	if (cgroup_empty(&w->tree, name.text, &e) < 0 || jail_remove(&w->jails, number, &e) < 0)
		log_error("cannot remove what the previous warden left in slot %u: %s", number,
			  e.text);
}

static bool is_taken(void *arg, uint32_t number)
{
	const struct warden *w = arg;

	return number < w->config->max_vms && w->slots[number].state != SLOT_EMPTY;
}

int slots_init(struct warden *w, struct err *e)
{
	w->slots = calloc(w->config->max_vms, sizeof(*w->slots));
	if (!w->slots)
		return err_set(e, ENOMEM, "allocate %u slots", w->config->max_vms);
	for (uint32_t i = 0; i < w->config->max_vms; i++) {
		w->slots[i].pidfd = w->slots[i].status = w->slots[i].events = -1;
		w->slots[i].net = NET_JAIL_NONE;
		/* A previous warden may have closed the slot's egress. */
		w->slots[i].closed = true;
	}
	int r = cgroup_each_vm(&w->tree, find_one, w, e);
	if (w->taken)
		log_info("%u VM processes of the previous warden keep running", w->taken);
	return r < 0 ? r : jails_sweep(&w->jails, is_taken, w, e);
}

void slots_fini(struct warden *w)
{
	for (uint32_t i = 0; w->slots && i < w->config->max_vms; i++) {
		close_all(&w->slots[i]);
		net_jail_close(&w->slots[i].net);
		free(w->slots[i].text);
	}
	free(w->slots);
	w->slots = NULL;
}

void slots_tell_dead(struct warden *w)
{
	for (uint32_t i = 0; i < w->config->max_vms; i++)
		if (w->slots[i].state == SLOT_DEAD)
			service_tell_exited(w, i, w->slots[i].exit_status);
}

void slots_kill_all(struct warden *w)
{
	for (uint32_t i = 0; i < w->config->max_vms; i++)
		if (w->slots[i].state != SLOT_EMPTY && w->slots[i].state != SLOT_RELEASING)
			begin_release(w, i);
}
