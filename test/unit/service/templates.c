// SPDX-License-Identifier: Apache-2.0
/* Templates other than the default: how they are found, their warm-up and their images. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/images/template-source.h"
#include "test/unit/service/world.h"

static void put_file(struct world *w, const char *template, const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", w->config.templates_dir, template);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%s/%s", w->config.templates_dir, template, name);
	unlink(path); /* as a template build does: a new file under the old name */
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int setup(void **state)
{
	struct world *w;

	if (world_setup(state) < 0)
		return -1;
	w = *state;
	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.templates_dir, sizeof(w->config.templates_dir), "%s/templates", w->dir);
	mkdir(w->config.templates_dir, 0700);
	world_start_service(w);
	world_wait_ready(w);
	return 0;
}

static void restart(struct world *w)
{
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
}

/* Prepares each template ahead that has a template.conf with its RAM: the default size does not fit
 * the host. */
static void restart_with_sizes_auto(struct world *w)
{
	world_kill_service(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "auto");
	w->config.ram_mib = 65536;
	world_start_service(w);
	world_wait_ready(w);
}

static void create(struct world *w, struct made *m, const char *template)
{
	struct sandbox_spec spec = {0};

	snprintf(spec.config.template, sizeof(spec.config.template), "%s", template);
	world_create(w, m, &spec);
}

/* --- sources -------------------------------------------------------------------------------- */

static void test_folders_with_files_of_a_template_are_templates(void **state)
{
	struct world *w = *state;

	put_file(w, "zoo", "rootfs.ext4", "z");
	put_file(w, "ants", "warmup.py", "");
	put_file(w, "bees", "template.conf", "");
	put_file(w, "notes", "notes.txt", "");
	put_file(w, "Upper", "rootfs.ext4", "U");
	put_file(w, "default", "rootfs.ext4", "d");
	char **names = source_names(&w->config);
	assert_string_equal(names[0], "ants");
	assert_string_equal(names[1], "bees");
	assert_string_equal(names[2], "zoo");
	assert_null(names[3]);
	source_names_free(names);
}

static void test_template_without_a_root_file_system_has_the_default_one(void **state)
{
	struct world *w = *state;
	struct source own, shared;
	struct err e;

	put_file(w, "zoo", "rootfs.ext4", "z");
	put_file(w, "zoo", "warmup.py", "x = 1");
	assert_int_equal(source_find(&w->config, "zoo", &own, &e), 0);
	assert_non_null(strstr(own.rootfs, "/zoo/rootfs.ext4"));
	put_file(w, "ants", "warmup.py", "x = 1");
	assert_int_equal(source_find(&w->config, "ants", &shared, &e), 0);
	assert_string_equal(shared.rootfs, w->config.rootfs);
	assert_non_null(strstr(shared.warmup, "/ants/warmup.py"));
	put_file(w, "ants", "template.conf", "rootfs_gb = 3");
	assert_int_equal(source_find(&w->config, "ants", &shared, &e), 0);
	assert_int_equal(shared.size.rootfs_gb, 3);
	put_file(w, "notes", "notes.txt", "");
	assert_int_equal(source_find(&w->config, "notes", &shared, &e), -ENOENT);
}

static void test_names_that_are_paths_are_refused(void **state)
{
	static const char *const bad[] = {"",	".",  "..", "../x", "a/b",
					  "-a", "_a", "A",  "a b",  "a\n"};
	char longer[SOURCE_NAME_MAX + 2];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(source_name_ok(bad[i]));
	memset(longer, 'a', sizeof(longer));
	longer[SOURCE_NAME_MAX + 1] = 0;
	assert_false(source_name_ok(longer));
	longer[SOURCE_NAME_MAX] = 0;
	assert_true(source_name_ok(longer));
	assert_true(source_name_ok("python-3.12_x"));
}

static void test_template_conf_is_read(void **state)
{
	struct source s = {0};
	struct err e;
	const char *text = "# a comment\n\n description = Python, with numbers \r\n"
			   "ram_mib=1024\nvcpus = 4\nrootfs_gb = 8";

	assert_int_equal(source_conf(&s, text, strlen(text), &e), 0);
	assert_string_equal(s.description, "Python, with numbers");
	assert_int_equal(s.size.ram_mib, 1024);
	assert_int_equal(s.size.vcpus, 4);
	assert_int_equal(s.size.rootfs_gb, 8);
}

static void test_error_names_the_line_in_template_conf(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"ram_mib = 1000", "template.conf:1: ram_mib must be"},
		{"ram_mib = 99999999999999999999", "ram_mib must be"},
		{"\nvcpus = 0", "template.conf:2: vcpus must be a whole number from 1 to 32"},
		{"vcpus =", "vcpus must be"},
		{"vcpus = -1", "vcpus must be"},
		{"rootfs_gb = 1025", "rootfs_gb must be"},
		{"colour = red", "no setting \"colour\""},
		{"just words", "expected `name = value`"},
		{"description = \x01", "control character"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct source s = {0};
		struct err e;

		assert_true(source_conf(&s, cases[i].text, strlen(cases[i].text), &e) < 0);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
	}
}

static void test_template_conf_of_any_length_is_safe(void **state)
{
	char *text = malloc(SOURCE_CONF_MAX + 2);
	struct source s = {0};
	struct err e;

	memset(text, '#', SOURCE_CONF_MAX + 2);
	assert_int_equal(source_conf(&s, text, SOURCE_CONF_MAX, &e), 0);
	assert_true(source_conf(&s, text, SOURCE_CONF_MAX + 1, &e) < 0);
	text[3] = 0;
	assert_true(source_conf(&s, text, SOURCE_CONF_MAX, &e) < 0);
	memcpy(text, "description = ", 14);
	assert_true(source_conf(&s, text, 14 + sizeof(s.description), &e) < 0);
	free(text);
}

/* --- life ----------------------------------------------------------------------------------- */

static void test_sandbox_starts_from_a_template(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct sandbox_view view;
	struct failure f;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	put_file(w, "datasci", "template.conf", "ram_mib = 256\nrootfs_gb = 2\n");
	unsigned boots = fakes_boots(w->fakes);
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_string_equal(m.view.config.template, "datasci");
	assert_int_equal(m.view.config.size.ram_mib, 256);
	assert_int_equal(m.view.config.size.rootfs_gb, 2);
	assert_int_equal(fakes_boots(w->fakes), boots + 1);
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), boots + 1);
	world_fork(w, &k, m.view.id, 1);
	assert_true(service_view(w->service, TENANT, k.ids[0], &view, &f));
	assert_string_equal(view.config.template, "datasci");
	char id[SANDBOX_ID_LEN + 1];
	memcpy(id, m.view.id, sizeof(id));
	restart(w);
	assert_true(service_view(w->service, TENANT, id, &view, &f));
	assert_string_equal(view.config.template, "datasci");
	create(w, &m, "datasci"); /* the template's image is already on disk */
	assert_int_equal(fakes_boots(w->fakes), boots + 1);
}

/* The image is that of the template, and is made again when the shared root file system changes. */
static void test_sandbox_starts_from_a_template_that_shares_the_root_file_system(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "warmup.py", "out 1");
	put_file(w, "datasci", "template.conf", "ram_mib = 256\n");
	unsigned boots = fakes_boots(w->fakes);
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_string_equal(m.view.config.template, "datasci");
	assert_int_equal(m.view.config.size.ram_mib, 256);
	assert_int_equal(fakes_boots(w->fakes), boots + 1);
	assert_int_equal(world_images(w, "datasci-"), 1);
	scoped_fd int fd = open(w->config.rootfs, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "x", 1), 1);
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), boots + 2);
}

static void test_error_for_an_unknown_template_lists_all(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	create(w, &m, "datasic");
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_UNKNOWN_TEMPLATE);
	assert_non_null(strstr(m.failure.text, "datasic is not known; this host has: default, "
					       "datasci"));
	create(w, &m, "../templates/datasci");
	assert_int_equal(m.failure.code, FAIL_UNKNOWN_TEMPLATE);
	create(w, &m, "default");
	assert_true(m.ok);
}

static void test_create_reports_why_a_template_is_unusable(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "broken", "rootfs.ext4", "x");
	put_file(w, "broken", "template.conf", "vcpus = many\n");
	create(w, &m, "broken");
	assert_int_equal(m.failure.code, FAIL_TEMPLATE_FAILED);
	assert_non_null(strstr(m.failure.text, "template.conf:1: vcpus must be"));
}

struct seen {
	const char *name;
	struct template_view view;
	char name_seen[64], reason[2048], description[256];
	unsigned n;
};

static void on_template(void *arg, const struct template_view *view)
{
	struct seen *s = arg;

	s->n++;
	if (strcmp(view->name, s->name) != 0)
		return;
	s->view = *view;
	snprintf(s->reason, sizeof(s->reason), "%s", view->reason);
	snprintf(s->description, sizeof(s->description), "%s", view->description);
}

/* Returns the template's view from a list made by a new scan. */
static struct seen view_of(struct world *w, const char *name)
{
	struct seen s = {.name = name};

	world_look(w);
	service_templates(w->service, on_template, &s);
	return s;
}

static void test_failed_warm_up_is_the_reason(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	put_file(w, "datasci", "warmup.py",
		 "out importing\nerr Traceback (most recent call last):\nerr   line 1\n"
		 "err ModuleNotFoundError: No module named 'numpyy'\nexit 1");
	create(w, &m, "datasci");
	assert_int_equal(m.failure.code, FAIL_TEMPLATE_FAILED);
	assert_non_null(strstr(m.failure.text, "warm-up ended with exit code 1: ModuleNotFound"));
	struct seen s = view_of(w, "datasci");
	assert_string_equal(s.view.state, "failed");
	assert_non_null(strstr(s.reason, "Traceback (most recent call last):\n  line 1\nModule"));
	assert_int_equal(s.view.n_sizes, 0);
	/* Fixes the warm-up. */
	put_file(w, "datasci", "warmup.py", "out importing");
	do
		create(w, &m, "datasci");
	while (!m.ok && m.failure.retry_after <= 2 && m.failure.code == FAIL_TEMPLATE_FAILED);
	assert_true(m.ok);
	assert_string_equal(view_of(w, "datasci").view.state, "ready");
}

static void test_long_warm_up_output_is_reported_by_its_end(void **state)
{
	struct world *w = *state;
	struct made m;
	char script[8192] = "";

	for (int i = 0; i < 200; i++)
		strcat(script, "err a line of a long traceback\n");
	strcat(script, "err the end of it\nexit 3");
	put_file(w, "datasci", "rootfs.ext4", "numbers");
	put_file(w, "datasci", "warmup.py", script);
	create(w, &m, "datasci");
	assert_non_null(strstr(m.failure.text, "exit code 3: the end of it"));
	struct seen s = view_of(w, "datasci");
	assert_in_range(strlen(s.reason), 1000, 2047);
	assert_string_equal(s.reason + strlen(s.reason) - 13, "the end of it");
}

static void test_all_templates_are_listed(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	put_file(w, "datasci", "template.conf", "description = Numbers\nvcpus = 1\n");
	put_file(w, "broken", "rootfs.ext4", "x");
	put_file(w, "broken", "template.conf", "vcpus = many\n");
	struct seen s = view_of(w, "datasci");
	assert_int_equal(s.n, 3);
	assert_string_equal(s.view.state, "waiting");
	assert_string_equal(s.description, "Numbers");
	s = view_of(w, "broken");
	assert_string_equal(s.view.state, "failed");
	assert_non_null(strstr(s.reason, "template.conf:1"));
	s = view_of(w, "default");
	assert_string_equal(s.view.state, "ready");
	assert_int_equal(s.view.n_sizes, 1);
	assert_int_equal(s.view.size.ram_mib, w->config.ram_mib);
	create(w, &m, "datasci");
	assert_string_equal(view_of(w, "datasci").view.state, "ready");
}

/* A list must not use a scan that had read the folder before the request. */
static void test_list_waits_for_a_new_scan(void **state)
{
	struct world *w = *state;
	struct done first, second, third;
	struct seen s = {.name = "datasci"};

	world_look_start(w, &first);
	usleep(100000); /* the worker ends the scan, but the loop does not run */
	put_file(w, "datasci", "rootfs.ext4", "numbers");
	world_look_start(w, &second);
	world_look_start(w, &third);
	world_until_true(w, &second.done);
	assert_true(first.done);
	assert_true(third.done); /* it shared the scan of the second */
	service_templates(w->service, on_template, &s);
	assert_int_equal(s.n, 2);
	assert_string_equal(s.view.name, "datasci");
}

static void on_shut_down(void *arg)
{
	*(bool *)arg = true;
}

static void test_shutdown_ends_a_scan(void **state)
{
	struct world *w = *state;
	struct done killed, first, waiting, late;
	bool closed = false;

	world_look_start(w, &killed);
	world_kill_service(w);
	assert_false(killed.done);
	world_start_service(w);
	world_look_start(w, &first);
	world_look_start(w, &waiting);
	service_shutdown(w->service, on_shut_down, &closed);
	world_look_start(w, &late);
	world_until_true(w, &closed);
	world_until_true(w, &waiting.done);
	assert_true(first.done && waiting.done && late.done);
	assert_false(first.failed);
	assert_int_equal(waiting.failure.code, FAIL_STOPPING);
	assert_int_equal(late.failure.code, FAIL_STOPPING);
	world_kill_service(w);
	world_start_service(w);
}

static bool is_prepared(void *arg)
{
	struct world *w = arg;
	struct seen s = {.name = "datasci"};

	service_templates(w->service, on_template, &s);
	return s.view.name && !strcmp(s.view.state, "ready");
}

static void test_templates_are_prepared_ahead(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	put_file(w, "datasci", "template.conf", "ram_mib = 256");
	restart_with_sizes_auto(w);
	world_until(w, is_prepared, w);
	unsigned boots = fakes_boots(w->fakes);
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), boots);
}

static void test_only_the_default_template_is_prepared_without_sizes_auto(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	restart(w);
	world_run_for(w, 4000); /* longer than it takes until the service is calm */
	assert_int_equal(world_images(w, ""), 1);
	create(w, &m, "datasci"); /* prepared when it is requested */
	assert_true(m.ok);
	assert_int_equal(world_images(w, "datasci-"), 1);
}

/* A rebuilt template is served from then on, without a restart. */
static void test_replaced_template_is_rebuilt(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	create(w, &m, "datasci");
	unsigned boots = fakes_boots(w->fakes);
	put_file(w, "datasci", "rootfs.ext4", "more numbers");
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), boots + 1);
	put_file(w, "datasci", "warmup.py", "out 1");
	create(w, &m, "datasci");
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), boots + 2);
}

static void test_images_of_removed_templates_are_removed(void **state)
{
	struct world *w = *state;
	struct made m;
	char path[512];

	put_file(w, "py", "rootfs.ext4", "a");
	put_file(w, "py-data", "rootfs.ext4", "b");
	create(w, &m, "py");
	create(w, &m, "py-data");
	/* None of these images is mistaken for an older image of another template. */
	assert_int_equal(world_images(w, "py-"), 2);
	assert_int_equal(world_images(w, "default-"), 1);
	snprintf(path, sizeof(path), "%s/py-data/rootfs.ext4", w->config.templates_dir);
	assert_int_equal(unlink(path), 0);
	restart(w);
	assert_int_equal(world_images(w, "py-"), 1);
	assert_int_equal(world_images(w, "default-"), 1);
}

/* Python's random and numpy are reseeded in sandboxes restored from a template's image, and nowhere
 * else. */
static void test_each_restore_reseeds_the_users_generators(void **state)
{
	struct world *w = *state;
	struct made m;

	put_file(w, "datasci", "rootfs.ext4", "numbers");
	unsigned before = fakes_user_reseeds(w->fakes), restores = fakes_restores(w->fakes);
	create(w, &m, "datasci");
	create(w, &m, "datasci");
	world_wait_ready(w);
	assert_true(fakes_restores(w->fakes) >= restores + 2);
	assert_int_equal(fakes_user_reseeds(w->fakes) - before,
			 fakes_restores(w->fakes) - restores);
}

/* --- priorities ------------------------------------------------------------------------------ */

struct expected {
	struct fakes *fakes;
	const char *priorities;
};

static bool has_priorities(void *arg)
{
	const struct expected *e = arg;

	return fakes_with_priorities(e->fakes, e->priorities) > 0;
}

static void until_priorities(struct world *w, const char *priorities)
{
	struct expected e = {w->fakes, priorities};

	world_until(w, has_priorities, &e);
}

static bool guest_is_paused(void *arg)
{
	return fakes_waiting(arg) > 0;
}

/* Priorities: 0 is WARDEN_BACKGROUND, 1 is WARDEN_BRINGUP, 2 is WARDEN_NORMAL. */
static void test_build_leaves_the_background_for_a_request(void **state)
{
	struct sandbox_spec spec = {.config.template = "zoo"};
	struct world *w = *state;
	struct made m;

	put_file(w, "zoo", "rootfs.ext4", "z");
	put_file(w, "zoo", "warmup.py", "wait");
	put_file(w, "zoo", "template.conf", "ram_mib = 256");
	restart_with_sizes_auto(w);
	world_until(w, guest_is_paused, w->fakes); /* the image is being prepared ahead */
	until_priorities(w, "0");
	world_create_start(w, &m, &spec);
	until_priorities(w, "01");
	op_abandon(m.call);
	until_priorities(w, "010");
	fakes_go(w->fakes);
}

static void test_background_build_yields_to_a_requested_build(void **state)
{
	struct sandbox_spec spec = {.config.template = "zoo"};
	struct world *w = *state;
	struct made m;

	put_file(w, "ants", "rootfs.ext4", "a");
	put_file(w, "ants", "warmup.py", "wait");
	put_file(w, "ants", "template.conf", "ram_mib = 256");
	restart_with_sizes_auto(w);
	world_until(w, guest_is_paused, w->fakes);
	put_file(w, "zoo", "rootfs.ext4", "z");
	world_create_start(w, &m, &spec);
	world_until_true(w, &m.done); /* the other build never ends */
	assert_true(m.ok);
	until_priorities(w, "2"); /* no step for the sandbox ran in the background */
}

static void test_pool_refill_gives_way_to_busy_sandboxes(void **state)
{
	until_priorities(*state, "21"); /* raised when ready, for its first call */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_folders_with_files_of_a_template_are_templates),
		TEST(test_template_without_a_root_file_system_has_the_default_one),
		cmocka_unit_test(test_names_that_are_paths_are_refused),
		cmocka_unit_test(test_template_conf_is_read),
		cmocka_unit_test(test_error_names_the_line_in_template_conf),
		cmocka_unit_test(test_template_conf_of_any_length_is_safe),
		TEST(test_sandbox_starts_from_a_template),
		TEST(test_sandbox_starts_from_a_template_that_shares_the_root_file_system),
		TEST(test_error_for_an_unknown_template_lists_all),
		TEST(test_create_reports_why_a_template_is_unusable),
		TEST(test_failed_warm_up_is_the_reason),
		TEST(test_long_warm_up_output_is_reported_by_its_end),
		TEST(test_all_templates_are_listed),
		TEST(test_list_waits_for_a_new_scan),
		TEST(test_shutdown_ends_a_scan),
		TEST(test_templates_are_prepared_ahead),
		TEST(test_only_the_default_template_is_prepared_without_sizes_auto),
		TEST(test_replaced_template_is_rebuilt),
		TEST(test_images_of_removed_templates_are_removed),
		TEST(test_each_restore_reseeds_the_users_generators),
		TEST(test_build_leaves_the_background_for_a_request),
		TEST(test_background_build_yields_to_a_requested_build),
		TEST(test_pool_refill_gives_way_to_busy_sandboxes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
