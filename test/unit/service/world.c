// SPDX-License-Identifier: Apache-2.0
#include "test/unit/service/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "test/remove_tree.h"

/* Counts all descriptors except the epoll descriptors of h2o's loops, which h2o never closes. */
static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	while ((entry = readdir(d))) {
		char target[64] = "";

		if (readlinkat(dirfd(d), entry->d_name, target, sizeof(target) - 1) > 0)
			n += strcmp(target, "anon_inode:[eventpoll]") != 0;
	}
	closedir(d);
	return n;
}

static void write_file(struct world *w, const char *name, char out[CONFIG_PATH_MAX])
{
	snprintf(out, CONFIG_PATH_MAX, "%s/%s", w->dir, name);
	int fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, name, strlen(name)), strlen(name));
	close(fd);
}

static void write_config(struct world *w)
{
	struct config *c = &w->config;

	write_file(w, "kernel", c->kernel);
	write_file(w, "initramfs", c->initramfs);
	write_file(w, "rootfs", c->rootfs);
	write_file(w, "vmm", c->vmm);
	snprintf(c->state_dir, sizeof(c->state_dir), "%s/state", w->dir);
	snprintf(c->run_dir, sizeof(c->run_dir), "%s/run", w->dir);
	mkdir(c->state_dir, 0700);
	mkdir(c->run_dir, 0700);
	c->max_vms = 8;
	c->fork_max = 32;
	c->visitor_connections = 32;
	c->vcpus = 1;
	c->ram_mib = 128;
	c->rootfs_gb = 1;
	c->pool_blank_vms = 1;
	c->pool_warm = 1;
	c->timeout_s = 1000;
	c->idle_timeout_s = 1000;
	c->boot_timeout_s = 20;
	c->audit_max_mib = 1;
	c->audit_days = 90;
}

void world_start_service(struct world *w)
{
	struct err e = {0};

	if (loop_new(&w->loop, &e) < 0)
		fail_msg("%s", e.text);
	if (service_new(&w->service, w->loop, &w->config, fakes_attach(w->fakes), &e) < 0)
		fail_msg("%s", e.text);
}

const char *world_tenant = "local";

/* The newest lines of the log, for a test that waits in vain. */
static struct {
	pthread_mutex_t lock;
	char text[16384];
	size_t len;
} newest = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_newest(const char *lines, size_t len)
{
	pthread_mutex_lock(&newest.lock);
	if (newest.len + len > sizeof(newest.text))
		newest.len = 0;
	if (len <= sizeof(newest.text)) {
		memcpy(newest.text + newest.len, lines, len);
		newest.len += len;
	}
	pthread_mutex_unlock(&newest.lock);
}

static void print_newest(void)
{
	pthread_mutex_lock(&newest.lock);
	fwrite(newest.text, 1, newest.len, stderr); /* print_message() cuts what is long */
	pthread_mutex_unlock(&newest.lock);
}

int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_tenant = "local";
	log_init("test", LOG_DEBUG);
	if (!getenv("RAMET_TEST_LOG"))
		log_set_output(keep_newest);
	w->fds_before = count_fds();
	snprintf(w->dir, sizeof(w->dir), "/tmp/ramet-core-XXXXXX");
	if (!mkdtemp(w->dir))
		return -1;
	write_config(w);
	w->fakes = fakes_new(w->config.run_dir);
	world_start_service(w);
	*state = w;
	return 0;
}

void world_kill_service(struct world *w)
{
	service_free(w->service);
	loop_free(w->loop);
	w->service = NULL;
	w->loop = NULL;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

void world_shut_down(struct world *w)
{
	bool closed = false;

	service_shutdown(w->service, on_closed, &closed);
	world_until_true(w, &closed);
}

static bool no_slot_is_left(void *arg)
{
	return fakes_slots(arg) == 0;
}

/* The service gives up waiting for slow VMs after SHUTDOWN_LIMIT_MS, but their slots are released.
 */
int world_teardown(void **state)
{
	struct world *w = *state;

	world_shut_down(w);
	world_until(w, no_slot_is_left, w->fakes);
	world_kill_service(w);
	fakes_free(w->fakes);
	remove_tree(w->dir);
	assert_int_equal(count_fds(), w->fds_before);
	free(w);
	return 0;
}

void world_lock_catalogue(struct world *w, bool locked)
{
	char path[CATALOGUE_PATH_MAX];

	config_live_catalogue(&w->config, path);
	if (locked) {
		assert_int_equal(sqlite3_open(path, &w->catalogue), SQLITE_OK);
		assert_int_equal(sqlite3_exec(w->catalogue, "BEGIN IMMEDIATE", NULL, NULL, NULL),
				 SQLITE_OK);
	} else {
		assert_int_equal(sqlite3_close(w->catalogue), SQLITE_OK);
	}
}

unsigned world_images(struct world *w, const char *prefix)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/templates", w->config.state_dir);
	DIR *d = opendir(path);
	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.' && !strstr(entry->d_name, ".tmp") &&
		     strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(d);
	return n;
}

/* --- waiting -------------------------------------------------------------------------------- */

struct wait {
	struct world *w;
	bool (*holds)(void *arg);
	void *arg;
	bool met;
	struct loop_timer again;
	uint64_t give_up_ms;
};

static void check_condition(void *arg)
{
	struct wait *wait = arg;

	wait->met = wait->met || wait->holds(wait->arg);
	if (wait->met || loop_now_ms(wait->w->loop) > wait->give_up_ms)
		loop_stop(wait->w->loop);
}

/* Checks on a timer too, since the fakes' threads do not wake the loop. */
static void check_periodically(void *arg)
{
	struct wait *wait = arg;

	check_condition(wait);
	loop_timer_set(wait->w->loop, &wait->again, 2);
}

void world_until(struct world *w, bool (*holds)(void *arg), void *arg)
{
	struct wait wait = {
		.w = w, .holds = holds, .arg = arg, .again = {.fn = check_periodically}};

	wait.again.arg = &wait;
	wait.give_up_ms = loop_now_ms(w->loop) + 120000;
	loop_timer_set(w->loop, &wait.again, 2);
	loop_before_sleep(w->loop, check_condition, &wait);
	assert_int_equal(loop_run(w->loop), 0);
	loop_before_sleep(w->loop, NULL, NULL);
	loop_timer_clear(w->loop, &wait.again);
	if (wait.met)
		return;
	print_newest();
	fail_msg("the condition did not become true within 120 s");
}

static bool is_true(void *arg)
{
	return *(const bool *)arg;
}

void world_until_true(struct world *w, const bool *flag)
{
	world_until(w, is_true, (void *)(uintptr_t)flag);
}

struct waiting {
	struct fakes *fakes;
	unsigned n;
};

static bool all_wait(void *arg)
{
	const struct waiting *waiting = arg;

	return fakes_waiting(waiting->fakes) == waiting->n;
}

void world_until_waiting(struct world *w, unsigned n)
{
	world_until(w, all_wait, &(struct waiting){w->fakes, n});
}

static void set_true(void *arg)
{
	*(bool *)arg = true;
}

void world_run_for(struct world *w, uint64_t ms)
{
	bool over = false;
	struct loop_timer t = {.fn = set_true, .arg = &over};

	loop_timer_set(w->loop, &t, ms);
	world_until_true(w, &over);
}

bool world_flow_has_stopped(void *arg)
{
	struct world_flow *flow = arg;

	flow->rounds = flow->before == *flow->bytes ? flow->rounds + 1 : 0;
	flow->before = *flow->bytes;
	return flow->rounds == 20;
}

static bool is_ready(void *arg)
{
	struct world *w = arg;

	return service_ready(w->service) && world_metric(w, "warm_ready") == 1 &&
	       world_metric(w, "blank_vms_ready") == 1;
}

void world_wait_ready(struct world *w)
{
	world_until(w, is_ready, w);
}

/* --- calls ---------------------------------------------------------------------------------- */

static void on_created(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	struct made *m = arg;

	assert_false(m->done);
	assert_true((view == NULL) != (f == NULL));
	m->done = true;
	m->ok = view != NULL;
	if (view)
		m->view = *view;
	else
		m->failure = *f;
}

void world_create_start(struct world *w, struct made *m, const struct sandbox_spec *spec)
{
	static const struct sandbox_spec plain = {.config.egress = true};

	*m = (struct made){0};
	m->call = service_create(w->service, TENANT, spec ? spec : &plain, on_created, m);
	assert_false(m->done); /* a call never answers before it returns */
}

void world_create(struct world *w, struct made *m, const struct sandbox_spec *spec)
{
	world_create_start(w, m, spec);
	world_until_true(w, &m->done);
}

void world_create_id(struct world *w, char id[static SANDBOX_ID_LEN + 1])
{
	struct made m;

	world_create(w, &m, NULL);
	assert_true(m.ok);
	memcpy(id, m.view.id, SANDBOX_ID_LEN + 1);
}

struct wanted_metric {
	const char *name;
	uint64_t value;
	bool found;
};

static void find_metric(void *arg, const struct metric *m)
{
	struct wanted_metric *wanted = arg;

	if (strcmp(m->name + strlen("ramet_"), wanted->name) != 0)
		return;
	wanted->value = m->value;
	wanted->found = true;
}

uint64_t world_metric(struct world *w, const char *name)
{
	struct wanted_metric wanted = {.name = name};

	service_metrics(w->service, find_metric, &wanted);
	if (!wanted.found)
		fail_msg("the service has no metric ramet_%s", name);
	return wanted.value;
}

bool world_few_agents(void *world)
{
	struct world *w = world;

	fakes_go(w->fakes);
	return fakes_agents(w->fakes) <= 2;
}

static void on_started(void *arg)
{
	struct run *r = arg;

	assert_false(r->started || r->over);
	r->started = true;
}

static void join(char *to, size_t size, const struct event *ev)
{
	size_t used = strlen(to);

	snprintf(to + used, size - used, "%s%.*s", used ? "|" : "", (int)ev->len,
		 ev->data ? (const char *)ev->data : "");
}

static void on_event(void *arg, const struct event *ev)
{
	struct run *r = arg;

	assert_true(r->started && !r->over);
	if (!r->events++)
		r->first_seq = ev->seq;
	else if (r->gaps)
		assert_true(ev->seq > r->last_seq);
	else
		assert_int_equal(ev->seq, r->last_seq + 1);
	r->last_seq = ev->seq;
	r->bytes += ev->len;
	if (ev->type == EVENT_STDOUT)
		join(r->out, sizeof(r->out), ev);
	if (ev->type == EVENT_STDERR)
		join(r->err, sizeof(r->err), ev);
	if (ev->type == EVENT_EXIT) {
		r->exit_code = ev->exit_code;
		r->over = true;
	}
	if (r->on_event)
		r->on_event(r, ev);
}

static void on_failed(void *arg, const struct failure *f, const struct event *ev)
{
	struct run *r = arg;

	assert_false(r->over);
	if (r->events && !r->gaps)
		assert_int_equal(ev->seq, r->last_seq + 1);
	assert_string_equal(ev->code, failure_code_name(f->code));
	r->over = r->failed = true;
	r->last_seq = ev->seq;
	r->failure = *f;
}

static void exec_start(struct world *w, struct run *r, const char *id, const struct exec_spec *spec)
{
	static const struct exec_sink sink = {on_started, on_event, on_failed};

	r->call = service_exec(w->service, TENANT, id, spec, &sink, r);
	assert_false(r->started || r->over);
}

void world_exec_start(struct world *w, struct run *r, const char *id, const char *script,
		      bool chunks)
{
	exec_start(
		w, r, id,
		&(struct exec_spec){.code = script, .code_len = strlen(script), .chunks = chunks});
}

void world_exec_timed_start(struct world *w, struct run *r, const char *id, const char *script,
			    uint32_t timeout_ms)
{
	exec_start(w, r, id,
		   &(struct exec_spec){
			   .code = script, .code_len = strlen(script), .timeout_ms = timeout_ms});
}

void world_exec_rich_start(struct world *w, struct run *r, const char *id, const char *script)
{
	exec_start(
		w, r, id,
		&(struct exec_spec){.code = script, .code_len = strlen(script), .results = true});
}

void world_exec_in(struct world *w, struct run *r, const char *id, const char *context,
		   const char *script)
{
	r->gaps = true;
	exec_start(w, r, id,
		   &(struct exec_spec){
			   .context = context, .code = script, .code_len = strlen(script)});
}

void world_exec(struct world *w, struct run *r, const char *id, const char *script)
{
	*r = (struct run){0};
	world_exec_start(w, r, id, script, false);
	world_until_true(w, &r->over);
}

void world_on_done(void *arg, const struct failure *f)
{
	struct done *d = arg;

	assert_false(d->done);
	d->done = true;
	d->failed = f != NULL;
	if (f)
		d->failure = *f;
}

void world_delete_start(struct world *w, struct done *d, const char *id)
{
	*d = (struct done){0};
	service_delete(w->service, TENANT, id, world_on_done, d);
	assert_false(d->done);
}

void world_delete(struct world *w, struct done *d, const char *id)
{
	world_delete_start(w, d, id);
	world_until_true(w, &d->done);
}

void world_look_start(struct world *w, struct done *d)
{
	*d = (struct done){0};
	service_templates_look(w->service, world_on_done, d);
	assert_false(d->done);
}

void world_look(struct world *w)
{
	struct done d;

	world_look_start(w, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
}

void world_interrupt(struct world *w, struct done *d, const char *id)
{
	*d = (struct done){0};
	service_interrupt(w->service, TENANT, id, NULL, world_on_done, d);
	assert_false(d->done);
	world_until_true(w, &d->done);
}

static void on_forked(void *arg, const struct service_forked *forked, const struct failure *f)
{
	struct forked *k = arg;

	assert_false(k->done);
	assert_true((forked == NULL) == (f != NULL));
	k->done = true;
	k->ok = forked != NULL;
	if (f) {
		k->failure = *f;
		return;
	}
	k->n = forked->n;
	for (unsigned i = 0; i < k->n; i++)
		snprintf(k->ids[i], sizeof(k->ids[i]), "%s", forked->ids[i]);
}

void world_fork_start(struct world *w, struct forked *k, const char *id, unsigned n, bool reseed)
{
	*k = (struct forked){0};
	k->call = service_fork(w->service, TENANT, id,
			       &(struct fork_spec){.n = n, .reseed = reseed}, on_forked, k);
	assert_false(k->done);
}

void world_fork(struct world *w, struct forked *k, const char *id, unsigned n)
{
	world_fork_start(w, k, id, n, false);
	world_until_true(w, &k->done);
}

void world_merge_start(struct world *w, struct done *d, const char *parent, const char *winner)
{
	*d = (struct done){0};
	service_merge(w->service, TENANT, parent, winner, world_on_done, d);
	assert_false(d->done);
}

void world_merge(struct world *w, struct done *d, const char *parent, const char *winner)
{
	world_merge_start(w, d, parent, winner);
	world_until_true(w, &d->done);
}

static void on_frozen(void *arg, const char *id, const struct failure *f)
{
	struct frozen *z = arg;

	assert_false(z->done);
	z->done = true;
	z->ok = id != NULL;
	if (id)
		snprintf(z->id, sizeof(z->id), "%s", id);
	else
		z->failure = *f;
}

void world_freeze_start(struct world *w, struct frozen *z, const char *id)
{
	*z = (struct frozen){0};
	z->call = service_freeze(w->service, TENANT, id, on_frozen, z);
}

void world_freeze(struct world *w, struct frozen *z, const char *id)
{
	world_freeze_start(w, z, id);
	world_until_true(w, &z->done);
}

void world_resume_start(struct world *w, struct made *m, const char *space,
			const struct space_resume *how)
{
	const struct space_resume plain = {0};

	*m = (struct made){0};
	m->call =
		service_space_resume(w->service, TENANT, space, how ? how : &plain, on_created, m);
}

void world_resume(struct world *w, struct made *m, const char *space)
{
	world_resume_start(w, m, space, NULL);
	world_until_true(w, &m->done);
}

static void on_replayed(void *arg, const struct event *ev, const char *traceparent)
{
	struct history *h = arg;
	struct event text = *ev;
	char number[32];

	if (h->events++)
		assert_true(ev->seq > h->last_seq);
	h->last_seq = ev->seq;
	if (ev->type == EVENT_ERROR) {
		text.data = (const uint8_t *)ev->code;
		text.len = strlen(ev->code);
	} else if (ev->type == EVENT_EXIT) {
		snprintf(number, sizeof(number), "=%d", ev->exit_code);
		text.data = (const uint8_t *)number;
		text.len = strlen(number);
	} else {
		h->bytes += ev->len;
	}
	if (text.len < 200)
		join(h->text, sizeof(h->text), &text);
}

void world_history(struct world *w, struct history *h, const char *id)
{
	struct failure f;

	*h = (struct history){0};
	if (!service_replay(w->service, TENANT, id, 0, on_replayed, h, &f))
		snprintf(h->text, sizeof(h->text), "%s", failure_code_name(f.code));
}

/* --- lists ---------------------------------------------------------------------------------- */

static struct list_page whole_list(struct world *w, const struct list_name *list)
{
	struct list_page page = {0};
	struct failure f;

	assert_true(service_page(w->service, list, SIZE_MAX, &page, &f));
	assert_false(page.more);
	return page;
}

void world_list(struct world *w, const char *tenant,
		void (*each)(void *arg, const struct sandbox_view *view), void *arg)
{
	const struct list_name list = {.kind = LIST_SANDBOXES, .tenant = tenant};
	struct list_page page = whole_list(w, &list);

	assert_false(service_list(w->service, &list, &page, SIZE_MAX, each, arg));
}

void world_spaces(struct world *w, const char *tenant,
		  void (*each)(void *arg, const struct space_view *view), void *arg)
{
	const struct list_name list = {.kind = LIST_SPACES, .tenant = tenant};
	struct list_page page = whole_list(w, &list);

	assert_false(service_spaces(w->service, &list, &page, SIZE_MAX, each, arg));
}
