// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/staged.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define SILENCE_MS 600000	/* limit without progress: a guest may merge many files by lines */
#define ROUNDS_MAX 6		/* the whole operation may take this many times SILENCE_MS */
#define PART_MAX   (256u << 10) /* bytes of an archive that wait for the guest with the stage */
#define PREFIX	   "/var/tmp/.ramet-merge-"
#define PATH_SIZE  (sizeof(PREFIX) + 2 * RANDOM_ID_BYTES)
#define WORDS_MAX  32
#define SAID_MAX   160 /* bytes of a sentence of the script */

extern const unsigned char merge_files_py[]; /* generated */
extern const unsigned long merge_files_py_len;

struct staged {
	struct op base;
	staged_fn *fn;
	struct staged_spec spec;
	char *tenant, *id, *script;
	char **ids;   /* of the sources */
	char **words; /* of the script's command */
	char stage[PATH_SIZE], list[PATH_SIZE];
	bool made;	/* `stage` may exist, and is to be removed here */
	bool listed;	/* `list` may exist in the source's guest, and is to be removed here */
	unsigned at;	/* the source being copied */
	struct op *sub; /* the step in progress; while a source is copied: the unpacking */
	struct op *program;
	/* While a source is copied. `wanted`: the guest with the stage wants the next part of the
	 * archive; `packed`: the archive has ended. */
	bool wanted, packed, paused;
	struct text part; /* of an archive */
	uint64_t total;	  /* bytes of archives */
	struct text output;
	char said[SAID_MAX + 1]; /* on stderr */
	size_t said_len;
	struct loop_timer silence;
	bool heard;
	unsigned rounds;
};

static struct staged *staged_of(const struct op *base)
{
	return container_of(base, struct staged, base);
}

static char **copy_words(const char *const *words)
{
	size_t n = 0;

	while (words[n])
		n++;
	char **out = must_alloc((n + 1) * sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = must_copy(words[i]);
	return out;
}

static void free_words(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

/* --- end ------------------------------------------------------------------------------------ */

static void remove_in(const struct staged *s, const char *id, const char *path)
{
	const struct agent_file_request request = {
		.type = AGENT_REMOVE, .path = path, .flag = true};

	service_file_do(s->base.service, s->tenant, id, &request, NULL, NULL, NULL);
}

static void leave(struct staged *s)
{
	loop_timer_clear(s->base.service->loop, &s->silence);
	if (s->sub)
		op_abandon(s->sub);
	if (s->program && s->made) /* a command that has begun is not interrupted */
		op_hang_up(s->program);
	else if (s->program)
		op_abandon(s->program);
	s->sub = s->program = NULL;
	if (s->made)
		remove_in(s, s->id, s->stage);
	if (s->listed)
		remove_in(s, s->ids[s->at], s->list);
	s->made = s->listed = false;
}

static void staged_put_away(struct op *base)
{
	struct staged *s = staged_of(base);

	leave(s);
	for (unsigned i = 0; i < s->spec.n; i++)
		text_free(&s->spec.sources[i].list);
	text_free(&s->spec.roots);
	text_free(&s->spec.plan);
	text_free(&s->part);
	text_free(&s->output);
	free(s->spec.sources);
	free_words(s->ids);
	free_words(s->words);
	free(s->script);
	free(s->tenant);
	free(s->id);
}

static void staged_notify(struct op *base)
{
	struct staged *s = staged_of(base);

	if (base->failed)
		s->fn(base->arg, NULL, &base->failure);
	else
		s->fn(base->arg, &s->output, NULL);
}

static void on_silence(void *arg)
{
	struct staged *s = arg;
	const char *id = s->at < s->spec.n ? s->ids[s->at] : s->id;
	struct failure f;

	if (s->heard && ++s->rounds < ROUNDS_MAX) {
		s->heard = false;
		loop_timer_set(s->base.service->loop, &s->silence, SILENCE_MS);
		return;
	}
	failure_set(&f, FAIL_AGENT_ERROR, 0,
		    "sandbox %s: copying and merging its files takes longer than %d s", id,
		    SILENCE_MS / 1000 * (s->heard ? ROUNDS_MAX : 1));
	op_finish(&s->base, &f);
}

/* Fails for a program that has exited: its stderr says why. */
static void fail_exit(struct staged *s, const char *id, const struct process_exit *exit)
{
	static const struct {
		int exit;
		enum failure_code code;
	} codes[] = {{3, FAIL_DISK_FULL},
		     {4, FAIL_FILE_CHANGED},
		     {5, FAIL_NOT_A_FILE},
		     {6, FAIL_NO_SUCH_FILE}};
	enum failure_code code = FAIL_AGENT_ERROR;
	struct failure f;

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (codes[i].exit == exit->code)
			code = codes[i].code;
	while (s->said_len && s->said[s->said_len - 1] == '\n')
		s->said[--s->said_len] = '\0';
	if (exit->code == 127)
		failure_set(&f, FAIL_NOT_INSTALLED, 0,
			    "sandbox %s has no python3, which copies and merges its files", id);
	else
		failure_set(&f, code, 0, "sandbox %s: %s", id,
			    s->said_len ? s->said : "its python3 could not do it");
	op_finish(&s->base, &f);
}

/* --- programs ------------------------------------------------------------------------------- */

static void on_started(void *arg, const struct process_view *process)
{
	((struct staged *)arg)->heard = true;
}

static void on_program_failed(void *arg, const struct failure *f)
{
	struct staged *s = arg;

	s->program = NULL;
	op_finish(&s->base, f);
}

static void note_said(struct staged *s, const void *data, size_t len)
{
	size_t n = min_u64(len, SAID_MAX - s->said_len);

	memcpy(s->said + s->said_len, data, n);
	s->said_len += n;
	s->said[s->said_len] = '\0';
}

static void run(struct staged *s, const char *id, const char *command, const char *path,
		char *const *more, const struct process_sink *sink)
{
	const char *argv[WORDS_MAX + 8] = {"python3", "-I", "-S", "-c", s->script, command, path};
	const struct process_spec spec = {.argv = argv, .label = "merge files", .cwd = "/"};

	for (size_t i = 0; more && more[i] && i < WORDS_MAX; i++)
		argv[7 + i] = more[i];
	s->said_len = 0;
	s->said[0] = '\0';
	s->program = service_process_run(s->base.service, s->tenant, id, &spec, sink, s);
}

/* --- the command ---------------------------------------------------------------------------- */

static void on_output(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct staged *s = arg;
	struct failure f;

	s->heard = true;
	if (stream != 1) {
		note_said(s, data, len);
	} else if (s->output.len + len <= s->spec.output_max) {
		text_add(&s->output, data, len);
	} else {
		failure_set(&f, FAIL_TOO_LARGE, 0, "sandbox %s: the result has more than %zu bytes",
			    s->id, s->spec.output_max);
		op_finish(&s->base, &f);
	}
}

/* From here on the script removes the stage. */
static void on_command_started(void *arg, const struct process_view *process)
{
	((struct staged *)arg)->made = false;
	on_started(arg, process);
}

static void on_command_exit(void *arg, const struct process_exit *exit)
{
	struct staged *s = arg;

	s->program = NULL;
	/* Without python3 the script did not run, so nothing has removed the stage. */
	s->made = exit->code == 127;
	if (exit->code) {
		fail_exit(s, s->id, exit);
		return;
	}
	leave(s);
	op_finish(&s->base, NULL);
}

static const struct process_sink command_sink = {on_command_started, on_output, on_command_exit,
						 on_program_failed};

static void run_command(struct staged *s)
{
	run(s, s->id, s->spec.command, s->stage, s->words, &command_sink);
}

/* --- the files of the stage ----------------------------------------------------------------- */

/* Ends a step. Returns false when the step failed, and the whole operation with it. */
static bool step_done(struct staged *s, const struct failure *f)
{
	s->sub = NULL;
	s->heard = true;
	if (f)
		op_finish(&s->base, f);
	return !f;
}

static void on_plan(void *arg, const struct failure *f)
{
	if (step_done(arg, f))
		run_command(arg);
}

static void put(struct staged *s, const char *id, const char *path, const struct text *t,
		service_done_fn *fn)
{
	const struct file_data data = {.p = t->p, .len = t->len};
	const struct agent_file_request request = {.type = AGENT_PUT, .path = path, .mode = 0600};

	s->sub = service_file_do(s->base.service, s->tenant, id, &request, &data, fn, s);
}

static void put_in_stage(struct staged *s, const char *name, const struct text *t,
			 service_done_fn *fn)
{
	char path[PATH_SIZE + 8];

	snprintf(path, sizeof(path), "%s/%s", s->stage, name);
	put(s, s->id, path, t, fn);
}

static void on_roots(void *arg, const struct failure *f)
{
	struct staged *s = arg;

	if (step_done(s, f))
		put_in_stage(s, "plan", &s->spec.plan, on_plan);
}

/* --- copies --------------------------------------------------------------------------------- */

static void next_source(struct staged *s);

/* Passes on what has arrived of the archive, if the guest with the stage wants more. */
static void pump(struct staged *s)
{
	struct op *program = s->program;

	if (!s->wanted || (!s->part.len && !s->packed))
		return;
	s->wanted = false;
	service_file_feed(s->sub, s->part.p, s->part.len, s->packed);
	s->part.len = 0;
	if (s->paused && program)
		op_resume(program);
	s->paused = false;
}

static void on_wants(void *arg)
{
	struct staged *s = arg;

	s->wanted = true;
	s->heard = true;
	pump(s);
}

static void on_archive(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct staged *s = arg;
	struct failure f;

	s->heard = true;
	if (stream != 1) {
		note_said(s, data, len);
		return;
	}
	s->total += len;
	if (s->total > STAGED_BYTES_MAX) {
		failure_set(&f, FAIL_TOO_LARGE, 0,
			    "the changed files have more than %llu MiB, which is the limit: merge "
			    "fewer paths",
			    STAGED_BYTES_MAX >> 20);
		op_finish(&s->base, &f);
		return;
	}
	text_add(&s->part, data, len);
	if (s->part.len >= PART_MAX) {
		s->paused = true;
		op_pause(s->program);
	}
	pump(s);
}

static void on_packed(void *arg, const struct process_exit *exit)
{
	struct staged *s = arg;

	s->program = NULL;
	s->listed = exit->code != 0; /* after a success, the script has removed it */
	if (exit->code) {
		fail_exit(s, s->ids[s->at], exit);
		return;
	}
	s->packed = true;
	pump(s);
}

static const struct process_sink pack_sink = {on_started, on_archive, on_packed, on_program_failed};

static void on_unpacked(void *arg, const struct failure *f)
{
	struct staged *s = arg;
	struct failure named;

	if (f)
		failure_set(&named, f->code, f->retry_after, "files of sandbox %s: %.150s",
			    s->ids[s->at], f->text);
	if (!step_done(s, f ? &named : NULL))
		return;
	s->at++;
	next_source(s);
}

static void on_list(void *arg, const struct failure *f)
{
	struct staged *s = arg;
	char path[PATH_SIZE + 8];
	const struct file_data data = {.len = AGENT_UNSIZED, .wants = on_wants};
	const struct agent_file_request request = {.type = AGENT_UNPACK, .path = path};

	if (!step_done(s, f))
		return;
	snprintf(path, sizeof(path), "%s/%u", s->stage, s->at);
	s->wanted = s->packed = s->paused = false;
	s->sub =
		service_file_do(s->base.service, s->tenant, s->id, &request, &data, on_unpacked, s);
	run(s, s->ids[s->at], "pack", s->list, NULL, &pack_sink);
}

/* Copies the files of the next source that has any; after the last one, writes the plan. */
static void next_source(struct staged *s)
{
	while (s->at < s->spec.n && !s->spec.sources[s->at].list.len)
		s->at++;
	s->listed = s->at < s->spec.n;
	if (s->listed)
		put(s, s->ids[s->at], s->list, &s->spec.sources[s->at].list, on_list);
	else
		put_in_stage(s, "roots", &s->spec.roots, on_roots);
}

static void on_stage(void *arg, const struct failure *f)
{
	if (step_done(arg, f))
		next_source(arg);
}

/* --- start ---------------------------------------------------------------------------------- */

static const struct op_methods staged_ops = {
	.size = sizeof(struct staged),
	.put_away = staged_put_away,
	.notify = staged_notify,
	.abandon = op_free,
};

struct op *staged_run(struct service *c, const char *tenant, const struct staged_spec *spec,
		      staged_fn *fn, void *arg)
{
	struct staged *s = staged_of(op_new(c, &staged_ops, arg));
	const size_t sources_size = spec->n * sizeof(*spec->sources);

	s->fn = fn;
	s->spec = *spec;
	s->tenant = must_copy(tenant);
	s->id = must_copy(spec->id);
	s->words = copy_words(spec->words);
	s->spec.sources = memcpy(must_alloc(sources_size), spec->sources, sources_size);
	s->ids = must_alloc((spec->n + 1) * sizeof(*s->ids));
	for (unsigned i = 0; i < spec->n; i++)
		s->ids[i] = must_copy(spec->sources[i].id);
	s->script = must_alloc(merge_files_py_len + 1);
	memcpy(s->script, merge_files_py, merge_files_py_len);
	random_id(s->stage, sizeof(s->stage), PREFIX);
	random_id(s->list, sizeof(s->list), PREFIX);
	list_add_tail(&guestops_of_service(c)->staged, &s->base.link);
	loop_timer_start(c->loop, &s->silence, on_silence, s, SILENCE_MS);
	s->made = true;
	const struct agent_file_request request = {
		.type = AGENT_MKDIR, .path = s->stage, .mode = 0700, .flag = true};
	s->sub = service_file_do(c, tenant, s->id, &request, NULL, on_stage, s);
	return &s->base;
}
