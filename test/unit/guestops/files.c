// SPDX-License-Identifier: Apache-2.0
/* Files, with fake guests: results, errors, limits and events during an operation. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"
#include "test/unit/service/fake-files.h"
#include "test/unit/service/world.h"

struct outcome {
	bool done, failed;
	struct failure failure;
	unsigned files;
	char last[64]; /* name of the last file */
	struct file_view view;
	uint64_t bytes;
	bool wrong; /* a byte has the wrong value */
	char id[CORE_ID_LEN + 1];
	struct op *call;
};

static void on_done(void *arg, const struct failure *f)
{
	struct outcome *t = arg;

	assert_false(t->done);
	t->done = true;
	t->failed = f != NULL;
	if (f)
		t->failure = *f;
}

static void on_file(void *arg, const struct file_view *f)
{
	struct outcome *t = arg;

	assert_false(t->done);
	t->files++;
	t->view = *f;
	snprintf(t->last, sizeof(t->last), "%.*s", (int)f->name_len, f->name);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	struct outcome *t = arg;
	const uint8_t *p = data;

	assert_false(t->done);
	for (size_t i = 0; i < len; i++)
		t->wrong |= p[i] != (t->view.offset + t->bytes + i) % 251;
	t->bytes += len;
}

static const struct file_sink sink = {.file = on_file, .bytes = on_bytes, .ended = on_done};

static char id[SANDBOX_ID_LEN + 1]; /* of the test's sandbox */

static void put_start(struct world *w, struct outcome *t, const char *path, const void *data,
		      size_t len)
{
	const struct agent_file_request put = {.type = AGENT_PUT, .path = path};
	const struct file_data all = {.p = data, .len = len};

	*t = (struct outcome){0};
	t->call = service_file_do(w->service, TENANT, id, &put, &all, on_done, t);
	assert_false(t->done);
}

static void ask(struct world *w, struct outcome *t, enum agent_request type, const char *path,
		const char *to)
{
	const struct agent_file_request request = {.type = type, .path = path, .to = to};

	*t = (struct outcome){0};
	service_file_do(w->service, TENANT, id, &request, NULL, on_done, t);
	world_until_true(w, &t->done);
}

static void put(struct world *w, struct outcome *t, const char *path, const void *data, size_t len)
{
	put_start(w, t, path, data, len);
	world_until_true(w, &t->done);
}

static void get_start(struct world *w, struct outcome *t, const char *path,
		      const struct file_range *range)
{
	static const struct file_range all = {.length = UINT64_MAX};

	*t = (struct outcome){0};
	t->call = service_file_get(w->service, TENANT, id, path, range ? range : &all, &sink, t);
	assert_false(t->done);
}

static void get(struct world *w, struct outcome *t, const char *path,
		const struct file_range *range)
{
	get_start(w, t, path, range);
	world_until_true(w, &t->done);
}

static void list(struct world *w, struct outcome *t, const char *path)
{
	const struct file_list all = {.path = path, .depth = 1, .after = ""};

	*t = (struct outcome){0};
	service_file_list(w->service, TENANT, id, &all, &sink, t);
	world_until_true(w, &t->done);
}

static void stat_it(struct world *w, struct outcome *t, const char *path, bool link)
{
	*t = (struct outcome){0};
	service_file_stat(w->service, TENANT, id, path, link, &sink, t);
	world_until_true(w, &t->done);
}

static void fails_with(const struct outcome *t, enum failure_code code)
{
	assert_true(t->failed);
	assert_int_equal(t->failure.code, code);
	assert_true(t->failure.text[0]);
}

static bool nothing_in_flight(void *arg)
{
	struct world *w = arg;

	fakes_go(w->fakes);
	return world_metric(w, "operations") == 0 && world_metric(w, "listeners") == 0;
}

/* ------------------------------------------------------------------------------------------ */

static void test_put_delivers_all_bytes(void **state)
{
	static const size_t sizes[] = {0, 1, 65536, 65537, 262144, 3000001};
	struct world *w = *state;
	struct outcome t;
	uint64_t sum, sent = 0;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint8_t *data = malloc(sizes[i] + 1);

		for (size_t j = 0; j < sizes[i]; j++)
			data[j] = (uint8_t)(j * 7 + j / 1000);
		put(w, &t, "/x", data, sizes[i]);
		assert_false(t.failed);
		assert_int_equal(fakes_put(w->fakes, &sum), sizes[i]);
		assert_true(sum == fake_sum(0, data, sizes[i]));
		sent += sizes[i];
		free(data);
	}
	assert_int_equal(world_metric(w, "file_bytes_in_total"), sent);
	assert_int_equal(world_metric(w, "file_calls_total"), ARRAY_LEN(sizes));
}

/* --- data that arrives in parts --- */

/* A client: feeds the call whenever it asks, and a part has arrived. */
struct client {
	struct outcome t;
	const uint8_t *data;
	size_t arrived, fed, len; /* len: where the last part ends */
	unsigned asked;
	bool waits;
};

static void feed(struct client *c)
{
	size_t part = c->arrived - c->fed;

	if (!c->waits || !part)
		return;
	c->waits = false;
	c->fed += part;
	service_file_feed(c->t.call, c->data + c->fed - part, part, c->fed == c->len);
}

static void on_wanted(void *arg)
{
	struct client *c = container_of((struct outcome *)arg, struct client, t);

	assert_false(c->waits || c->t.done);
	c->waits = true;
	c->asked++;
	feed(c);
}

static void arrive(struct client *c, size_t len)
{
	c->arrived += len;
	feed(c);
}

static void put_parts(struct world *w, struct client *c, const char *path, const uint8_t *data,
		      size_t len, bool sized)
{
	const struct agent_file_request put = {.type = AGENT_PUT, .path = path};
	const struct file_data parts = {.len = sized ? len : AGENT_UNSIZED, .wants = on_wanted};

	*c = (struct client){.data = data, .len = len};
	c->t.call = service_file_do(w->service, TENANT, id, &put, &parts, on_done, &c->t);
	assert_false(c->t.done || c->asked);
}

static bool waits(void *arg)
{
	return ((struct client *)arg)->waits;
}

static void test_data_is_passed_on_as_it_arrives(void **state)
{
	static uint8_t data[700000];
	struct world *w = *state;
	struct client c;
	uint64_t sum;

	world_create_id(w, id);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 1000);
	for (int sized = 0; sized < 2; sized++) {
		put_parts(w, &c, "/x", data, sizeof(data), sized);
		world_until(w, waits, &c);
		arrive(&c, 1);
		world_until(w, waits, &c);
		arrive(&c, 299999);
		world_until(w, waits, &c);
		assert_false(c.t.done);
		arrive(&c, 400000);
		world_until_true(w, &c.t.done);
		assert_false(c.t.failed);
		assert_int_equal(c.asked, 3);
		assert_int_equal(fakes_put(w->fakes, &sum), sizeof(data));
		assert_true(sum == fake_sum(0, data, sizeof(data)));
	}
	assert_int_equal(world_metric(w, "file_bytes_in_total"), 2 * sizeof(data));
}

static void test_empty_data_without_a_length_is_complete(void **state)
{
	const struct agent_file_request put = {.type = AGENT_PUT, .path = "/x"};
	const struct file_data parts = {.len = AGENT_UNSIZED, .wants = on_wanted};
	struct world *w = *state;
	struct client c = {.len = 0};
	uint64_t sum;

	world_create_id(w, id);
	c.t.call = service_file_do(w->service, TENANT, id, &put, &parts, on_done, &c.t);
	world_until(w, waits, &c);
	service_file_feed(c.t.call, NULL, 0, true);
	world_until_true(w, &c.t.done);
	assert_false(c.t.failed);
	assert_int_equal(fakes_put(w->fakes, &sum), 0);
}

static void test_data_of_another_length_fails(void **state)
{
	static const struct {
		size_t len;
		bool last;
	} parts[] = {{9, true}, {0, true}, {11, true}, {11, false}, {10, false}};
	static uint8_t data[16];
	struct world *w = *state;
	struct client c;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		put_parts(w, &c, "/x", data, 10, true);
		world_until(w, waits, &c);
		service_file_feed(c.t.call, data, parts[i].len, parts[i].last);
		world_until_true(w, &c.t.done);
		fails_with(&c.t, FAIL_OUT_OF_RANGE);
	}
}

static void test_guest_confirms_before_all_data_has_arrived(void **state)
{
	static uint8_t data[10];
	struct world *w = *state;
	struct client c;

	world_create_id(w, id);
	for (int sized = 0; sized < 2; sized++) {
		put_parts(w, &c, "/early", data, sizeof(data), sized);
		arrive(&c, 5);
		world_until_true(w, &c.t.done);
		fails_with(&c.t, FAIL_AGENT_ERROR);
	}
}

static void test_refusal_or_loss_ends_data_that_arrives(void **state)
{
	static const struct {
		const char *path;
		enum failure_code code;
	} ends[] = {
		{"/errno/28", FAIL_DISK_FULL},
		{"/hang-up", FAIL_AGENT_LOST},
		{"/garbage", FAIL_AGENT_ERROR},
	};
	static uint8_t data[10];
	struct world *w = *state;
	struct client c;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		for (int sized = 0; sized < 2; sized++) {
			put_parts(w, &c, ends[i].path, data, sizeof(data), sized);
			world_until_true(w, &c.t.done);
			fails_with(&c.t, ends[i].code);
		}
	}
	world_until(w, nothing_in_flight, w);
}

static void test_data_that_arrives_is_abandoned(void **state)
{
	static uint8_t data[10];
	struct world *w = *state;
	struct client c;

	world_create_id(w, id);
	for (int sized = 0; sized < 2; sized++) {
		put_parts(w, &c, "/x", data, sizeof(data), sized);
		world_until(w, waits, &c);
		arrive(&c, 5);
		op_abandon(c.t.call);
		world_until(w, nothing_in_flight, w);
		assert_false(c.t.done);
	}
}

static void test_connection_is_reused_unless_a_request_failed(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	world_wait_ready(w);
	unsigned before = fakes_dials(w->fakes);
	for (int i = 0; i < 20; i++) {
		put(w, &t, "/x", "abc", 3);
		get(w, &t, "/size/5", NULL);
		stat_it(w, &t, "/size/5", false);
		assert_false(t.failed);
	}
	assert_int_equal(fakes_dials(w->fakes), before + 1);
	/* A connection whose request failed is not reused. */
	get(w, &t, "/errno/2", NULL);
	get(w, &t, "/size/5", NULL);
	assert_false(t.failed);
	assert_int_equal(fakes_dials(w->fakes), before + 2);
}

static void test_get_returns_the_requested_range(void **state)
{
	static const struct {
		const char *path;
		struct file_range range;
		uint64_t offset, bytes;
	} gets[] = {
		{"/size/300000", {0, UINT64_MAX, false}, 0, 300000},
		{"/size/300000", {70000, UINT64_MAX, false}, 70000, 230000},
		{"/size/300000", {70000, 10, false}, 70000, 10},
		{"/size/300000", {299999, 10, false}, 299999, 1},
		{"/size/300000", {300000, 10, false}, 300000, 0},
		{"/size/300000", {INT64_MAX, UINT64_MAX, false}, INT64_MAX, 0},
		{"/size/300000", {100000, UINT64_MAX, true}, 200000, 100000},
		{"/size/300000", {300001, UINT64_MAX, true}, 0, 300000},
		{"/more/300000", {0, UINT64_MAX, false}, 0, 300000},
		{"/more/300000", {10, 20, false}, 10, 20},
		{"/zero/70000", {0, UINT64_MAX, false}, 0, 70000},
		{"/size/0", {0, UINT64_MAX, false}, 0, 0},
	};
	struct world *w = *state;
	uint64_t all = 0;
	struct outcome t;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(gets); i++) {
		get(w, &t, gets[i].path, &gets[i].range);
		assert_false(t.failed);
		assert_int_equal(t.files, 1);
		assert_int_equal(t.view.mode, S_IFREG | 0640);
		assert_true(t.view.offset == gets[i].offset);
		assert_true(t.bytes == gets[i].bytes && !t.wrong);
		assert_true(t.view.length == (t.view.size ? gets[i].bytes : UINT64_MAX));
		all += t.bytes;
	}
	assert_int_equal(world_metric(w, "file_bytes_out_total"), all);
}

static void test_get_fails_when_the_file_became_shorter(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	get(w, &t, "/less/1000", NULL);
	fails_with(&t, FAIL_FILE_CHANGED);
	assert_int_equal(t.bytes, 500);
}

static bool has_begun(void *arg)
{
	return ((struct outcome *)arg)->bytes > 0;
}

static void test_paused_get_applies_back_pressure_to_the_guest(void **state)
{
	struct world *w = *state;
	struct outcome t;
	struct world_flow flow = {.bytes = &t.bytes};

	world_create_id(w, id);
	get_start(w, &t, "/size/50000000", NULL);
	world_until(w, has_begun, &t);
	op_pause(t.call);
	world_until(w, world_flow_has_stopped, &flow);
	assert_true(t.bytes < 10000000 && !t.done);
	op_resume(t.call);
	world_until_true(w, &t.done);
	assert_true(!t.failed && t.bytes == 50000000 && !t.wrong);
	get_start(w, &t, "/size/10", NULL);
	op_pause(t.call);
	flow = (struct world_flow){.bytes = &t.bytes};
	world_until(w, world_flow_has_stopped, &flow);
	assert_int_equal(t.files, 0);
	op_resume(t.call);
	world_until_true(w, &t.done);
	assert_int_equal(t.bytes, 10);
}

static void test_stat_and_list_return_file_metadata(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	stat_it(w, &t, "/size/7", false);
	assert_true(!t.failed && t.files == 1 && t.view.size == 7 && t.view.uid == 1);
	assert_string_equal(t.last, "/size/7");
	assert_true(t.view.mtime_ns == 1700000000000000000);
	stat_it(w, &t, "/size/7", true);
	assert_true(S_ISLNK(t.view.mode) && t.view.target_len == 5);
	list(w, &t, "/many/3000");
	assert_true(!t.failed && t.files == 3000);
	assert_string_equal(t.last, "00002999");
	list(w, &t, "/many/0");
	assert_true(!t.failed && t.files == 0);
}

static void test_errnos_of_the_guest_are_mapped_to_codes(void **state)
{
	static const struct {
		int errnum;
		enum failure_code code;
	} refusals[] = {
		{ENOENT, FAIL_NO_SUCH_FILE},	 {EISDIR, FAIL_IS_A_DIRECTORY},
		{ENOTDIR, FAIL_NOT_A_DIRECTORY}, {EEXIST, FAIL_FILE_EXISTS},
		{ENOTEMPTY, FAIL_NOT_EMPTY},	 {EBUSY, FAIL_FILE_BUSY},
		{EINVAL, FAIL_NOT_A_FILE},	 {ELOOP, FAIL_BAD_PATH},
		{ENAMETOOLONG, FAIL_BAD_PATH},	 {EACCES, FAIL_NOT_PERMITTED},
		{EROFS, FAIL_NOT_PERMITTED},	 {EXDEV, FAIL_NOT_PERMITTED},
		{EFBIG, FAIL_TOO_LARGE},	 {ENOSPC, FAIL_DISK_FULL},
		{EDQUOT, FAIL_DISK_FULL},	 {EIO, FAIL_AGENT_ERROR},
		{4000000, FAIL_AGENT_ERROR},
	};
	struct world *w = *state;
	struct outcome t, d;
	char path[32];

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		snprintf(path, sizeof(path), "/errno/%d", refusals[i].errnum);
		get(w, &t, path, NULL);
		fails_with(&t, refusals[i].code);
		assert_non_null(strstr(t.failure.text, "as requested"));
		put(w, &t, path, "x", 1);
		fails_with(&t, refusals[i].code);
		ask(w, &d, AGENT_REMOVE, path, NULL);
		fails_with(&d, refusals[i].code);
		ask(w, &d, AGENT_MOVE, path, "/to");
		fails_with(&d, refusals[i].code);
		ask(w, &d, AGENT_CHANGE, path, NULL);
		fails_with(&d, refusals[i].code);
	}
	assert_int_equal(world_metric(w, "file_failures_total"), 5 * ARRAY_LEN(refusals));
	ask(w, &d, AGENT_MKDIR, "/d", NULL);
	assert_false(d.failed);
}

static void test_protocol_violations_of_the_guest_fail_the_request(void **state)
{
	static const char *const gets[] = {"/garbage", "/twice", "/none", "/bytes-first"};
	static const char *const lists[] = {"/garbage", "/slash", "/dots"};
	struct world *w = *state;
	uint8_t *data = calloc(1, 2000000);
	struct outcome t;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(gets); i++) {
		get(w, &t, gets[i], NULL);
		fails_with(&t, FAIL_AGENT_ERROR);
		stat_it(w, &t, gets[i], false);
		fails_with(&t, FAIL_AGENT_ERROR);
	}
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		list(w, &t, lists[i]);
		fails_with(&t, FAIL_AGENT_ERROR);
	}
	put(w, &t, "/early", data, 2000000);
	fails_with(&t, FAIL_AGENT_ERROR);
	put(w, &t, "/garbage", data, 2000000);
	fails_with(&t, FAIL_AGENT_ERROR);
	put(w, &t, "/hang-up", data, 2000000);
	fails_with(&t, FAIL_AGENT_LOST);
	get(w, &t, "/hang-up", NULL);
	fails_with(&t, FAIL_AGENT_LOST);
	/* The sandbox still works. */
	put(w, &t, "/x", data, 2000000);
	assert_false(t.failed);
	free(data);
}

static void test_bad_paths_and_unknown_sandboxes_are_refused(void **state)
{
	struct world *w = *state;
	char path[AGENT_PATH_MAX + 2];
	struct outcome t;

	world_create_id(w, id);
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	get(w, &t, path, NULL);
	fails_with(&t, FAIL_OUT_OF_RANGE);
	assert_non_null(strstr(t.failure.text, "4096"));
	path[sizeof(path) - 2] = '\0';
	get(w, &t, path, NULL);
	fails_with(&t, FAIL_NO_SUCH_FILE);
	strcpy(id, "sbx_00000000000000000000000000000000");
	put(w, &t, "/x", "x", 1);
	fails_with(&t, FAIL_NOT_FOUND);
	get(w, &t, "/x", NULL);
	fails_with(&t, FAIL_NOT_FOUND);
}

static void test_concurrent_operations_are_limited(void **state)
{
	static struct outcome many[OPS_MAX];
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	world_wait_ready(w);
	for (int i = 0; i < OPS_MAX; i++)
		put_start(w, &many[i], "/wait", "x", 1);
	assert_int_equal(world_metric(w, "operations"), OPS_MAX);
	put(w, &t, "/x", "x", 1);
	fails_with(&t, FAIL_TOO_MANY);
	assert_int_equal(t.failure.retry_after, 1);
	world_until_waiting(w, OPS_MAX);
	fakes_go(w->fakes);
	for (int i = 0; i < OPS_MAX; i++) {
		world_until_true(w, &many[i].done);
		assert_false(many[i].failed);
	}
	assert_int_equal(world_metric(w, "operations"), 0);
	put(w, &t, "/x", "x", 1);
	assert_false(t.failed);
}

static bool connections_are_closed(void *arg)
{
	struct world *w = arg;

	fakes_go(w->fakes);
	/* One connection is left for the sandbox and one for the warm sandbox. */
	return fakes_agents(w->fakes) <= 2;
}

static void test_abandoned_operation_closes_its_connection(void **state)
{
	struct world *w = *state;
	struct outcome t, g;

	world_create_id(w, id);
	put_start(w, &t, "/wait", "x", 1);
	get_start(w, &g, "/size/100000000", NULL);
	world_until_waiting(w, 1);
	world_until(w, has_begun, &g);
	op_abandon(t.call);
	op_abandon(g.call);
	assert_int_equal(world_metric(w, "operations"), 0);
	world_until(w, connections_are_closed, w);
	assert_false(t.done || g.done);
}

static void on_file_leave(void *arg, const struct file_view *f)
{
	struct outcome *t = arg;

	t->files++;
	op_abandon(t->call);
}

static void test_operation_can_be_abandoned_in_its_callback(void **state)
{
	static const struct file_sink leaving_sink = {
		.file = on_file_leave, .bytes = on_bytes, .ended = on_done};
	static const struct file_range all = {.length = UINT64_MAX};
	struct world *w = *state;
	struct outcome t = {0};

	world_create_id(w, id);
	t.call = service_file_get(w->service, TENANT, id, "/size/1000000", &all, &leaving_sink, &t);
	world_until(w, connections_are_closed, w);
	world_until(w, nothing_in_flight, w);
	const struct file_list many = {.path = "/many/1000", .depth = 1, .after = ""};
	t.call = service_file_list(w->service, TENANT, id, &many, &leaving_sink, &t);
	world_until(w, nothing_in_flight, w);
	assert_true(t.files >= 1 && !t.done && !t.bytes);
}

static void test_operations_fail_when_the_vm_dies(void **state)
{
	struct world *w = *state;
	struct outcome t, other;

	world_create_id(w, id);
	put_start(w, &other, "/wait", "x", 1);
	world_until_waiting(w, 1);
	put(w, &t, "/die", "x", 1);
	fails_with(&t, FAIL_VM_DIED);
	world_until_true(w, &other.done);
	fails_with(&other, FAIL_VM_DIED);
	put(w, &t, "/x", "x", 1);
	fails_with(&t, FAIL_VM_DIED);
}

static void test_operations_fail_when_the_sandbox_is_deleted(void **state)
{
	struct world *w = *state;
	struct outcome t, idle;
	struct done d;

	world_create_id(w, id);
	put(w, &idle, "/x", "x", 1); /* leaves an idle connection */
	put_start(w, &t, "/wait", "x", 1);
	world_until_waiting(w, 1);
	world_delete(w, &d, id);
	assert_true(t.done);
	fails_with(&t, FAIL_DELETED);
}

static const struct sandbox *made_sandbox(struct world *w)
{
	return sandbox_living(w->service, TENANT, id);
}

static bool has_idle_connection(struct world *w)
{
	for (size_t i = 0; i < IDLE_CONNS_MAX; i++)
		if (guestops_of(made_sandbox(w))->idle_conns[i])
			return true;
	return false;
}

/* Makes sandboxes until one is in the slot. */
static void make_in(struct world *w, uint32_t slot)
{
	do {
		world_wait_ready(w);
		world_create_id(w, id);
	} while (made_sandbox(w)->slot != slot);
	world_wait_ready(w);
}

/* A connection that stays open for the next operation must not outlive the VM that it leads to. */
static void test_next_sandbox_in_a_slot_gets_its_own_connection(void **state)
{
	struct world *w = *state;
	struct outcome t;
	struct done d;

	for (unsigned dies = 0; dies < 2; dies++) {
		world_create_id(w, id);
		put(w, &t, "/x", "x", 1);
		assert_true(has_idle_connection(w));
		uint32_t slot = made_sandbox(w)->slot;
		if (dies)
			put(w, &t, "/die", "x", 1);
		else
			world_delete(w, &d, id);
		make_in(w, slot);
		assert_false(has_idle_connection(w));
		unsigned dials = fakes_dials(w->fakes);
		put(w, &t, "/x", "x", 1);
		assert_false(t.failed);
		assert_int_equal(fakes_dials(w->fakes), dials + 1);
		world_delete(w, &d, id);
	}
}

static void test_merged_sandbox_gets_a_connection_to_its_new_vm(void **state)
{
	struct world *w = *state;
	struct outcome t;
	struct forked k;
	struct done d;

	world_create_id(w, id);
	put(w, &t, "/x", "x", 1);
	world_fork(w, &k, id, 1);
	assert_true(k.ok && has_idle_connection(w));
	world_merge(w, &d, id, k.ids[0]);
	assert_false(d.failed || has_idle_connection(w));
	world_wait_ready(w);
	unsigned dials = fakes_dials(w->fakes);
	put(w, &t, "/x", "x", 1);
	assert_false(t.failed);
	assert_int_equal(fakes_dials(w->fakes), dials + 1);
}

static void test_merge_fails_operations_of_both_sandboxes(void **state)
{
	struct world *w = *state;
	struct outcome p, c, t;
	char parent[SANDBOX_ID_LEN + 1];
	struct forked k;
	struct done d;

	world_create_id(w, id);
	memcpy(parent, id, sizeof(parent));
	put(w, &t, "/x", "x", 1);
	world_fork(w, &k, parent, 1);
	assert_true(k.ok);
	put_start(w, &p, "/wait", "x", 1);
	memcpy(id, k.ids[0], sizeof(id));
	put(w, &t, "/x", "x", 1);
	put_start(w, &c, "/wait", "x", 1);
	world_until_waiting(w, 2);
	world_merge(w, &d, parent, k.ids[0]);
	assert_false(d.failed);
	world_until_true(w, &p.done);
	world_until_true(w, &c.done);
	fails_with(&p, FAIL_MERGED_DURING_CALL);
	fails_with(&c, FAIL_MERGED_DURING_CALL);
	memcpy(id, parent, sizeof(id));
	fakes_go(w->fakes);
	put(w, &t, "/x", "x", 1);
	assert_false(t.failed);
}

static void test_fork_does_not_disturb_operations(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct outcome t;

	world_create_id(w, id);
	put_start(w, &t, "/wait", "x", 1);
	world_until_waiting(w, 1);
	world_fork(w, &k, id, 2);
	assert_true(k.ok && !t.done);
	fakes_go(w->fakes);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	memcpy(id, k.ids[1], sizeof(id));
	put(w, &t, "/x", "x", 1);
	assert_false(t.failed);
}

struct watched_sandbox {
	struct world *w;
	char id[SANDBOX_ID_LEN + 1];
};

static bool is_gone(void *arg)
{
	struct watched_sandbox *watched = arg;
	struct sandbox_view view;
	struct failure f;

	return !service_view(watched->w->service, TENANT, watched->id, &view, &f);
}

static void test_sandbox_with_an_operation_in_flight_is_not_idle(void **state)
{
	const struct sandbox_spec spec = {.config.idle_timeout_s = 1, .config.egress = true};
	struct world *w = *state;
	struct made busy, idle;
	struct watched_sandbox watched = {.w = w};
	struct outcome t;

	world_create(w, &busy, &spec);
	memcpy(id, busy.view.id, sizeof(id));
	put_start(w, &t, "/wait", "x", 1);
	world_create(w, &idle, &spec);
	memcpy(watched.id, idle.view.id, sizeof(watched.id));
	world_until(w, is_gone, &watched);
	memcpy(watched.id, id, sizeof(watched.id));
	assert_false(is_gone(&watched));
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	world_until(w, is_gone, &watched);
}

static void test_operations_work_after_a_service_crash(void **state)
{
	struct world *w = *state;
	struct outcome t, g;

	world_create_id(w, id);
	put_start(w, &t, "/wait", "x", 1);
	get_start(w, &g, "/size/100000000", NULL);
	world_until_waiting(w, 1);
	world_kill_service(w);
	assert_false(t.done);
	fakes_go(w->fakes);
	world_start_service(w);
	/* The next instance refuses a put while it reconnects to the VM, and serves it
	 * afterwards. */
	put(w, &t, "/x", "x", 1);
	while (t.failed) {
		fails_with(&t, FAIL_NOT_READY);
		put(w, &t, "/x", "x", 1);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_put_delivers_all_bytes),
		TEST(test_data_is_passed_on_as_it_arrives),
		TEST(test_empty_data_without_a_length_is_complete),
		TEST(test_data_of_another_length_fails),
		TEST(test_guest_confirms_before_all_data_has_arrived),
		TEST(test_refusal_or_loss_ends_data_that_arrives),
		TEST(test_data_that_arrives_is_abandoned),
		TEST(test_connection_is_reused_unless_a_request_failed),
		TEST(test_get_returns_the_requested_range),
		TEST(test_get_fails_when_the_file_became_shorter),
		TEST(test_paused_get_applies_back_pressure_to_the_guest),
		TEST(test_stat_and_list_return_file_metadata),
		TEST(test_errnos_of_the_guest_are_mapped_to_codes),
		TEST(test_protocol_violations_of_the_guest_fail_the_request),
		TEST(test_bad_paths_and_unknown_sandboxes_are_refused),
		TEST(test_concurrent_operations_are_limited),
		TEST(test_abandoned_operation_closes_its_connection),
		TEST(test_operation_can_be_abandoned_in_its_callback),
		TEST(test_operations_fail_when_the_vm_dies),
		TEST(test_operations_fail_when_the_sandbox_is_deleted),
		TEST(test_merge_fails_operations_of_both_sandboxes),
		TEST(test_fork_does_not_disturb_operations),
		TEST(test_next_sandbox_in_a_slot_gets_its_own_connection),
		TEST(test_merged_sandbox_gets_a_connection_to_its_new_vm),
		TEST(test_sandbox_with_an_operation_in_flight_is_not_idle),
		TEST(test_operations_work_after_a_service_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
