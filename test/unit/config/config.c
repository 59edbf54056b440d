// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/config/config.h"
#include "orchestrator/config/tiers.h"

#define TEXT(t) t, strlen(t)

/* An empty file replaces /etc/ramet/ramet.conf, so that tests do not depend on this machine's. */
#define NO_FILE "--config=/dev/null"

static int load(struct config *c, const char *flag, struct err *e)
{
	char *argv[] = {"rametd", NO_FILE, (char *)(uintptr_t)flag, NULL};

	*e = (struct err){0};
	return config_load(c, flag ? 3 : 2, argv, e);
}

static void assert_says(const struct err *e, const char *words)
{
	if (!strstr(e->text, words))
		fail_msg("\"%s\" does not say \"%s\"", e->text, words);
}

/* --- the file -------------------------------------------------------------------------------- */

static const struct {
	const char *text;
	const char *error; /* NULL: the file is correct */
} files[] = {
	{"", NULL},
	{"\n\n# only comments\n   # and blanks\n\t\n", NULL},
	{"listen_port = 80", NULL},
	{"listen_port=80\r\n", NULL},
	{"\tlisten_port\t=\t80\t# the usual one\n", NULL},
	{"listen_host = ::1\n", NULL},
	{"listen_host = 0.0.0.0\n", NULL},
	{"region = eu#1\n", NULL},
	{"region =\n", NULL},
	{"vmm = /opt/with blank/vmm\n", NULL},
	{"log_level = warn\n", NULL},

	{"allow = 10.0.0.0/8, fd00::/8,192.0.2.1 # a list\n", NULL},
	{"allow =\n", NULL},
	{"allow = 10.0.0.0/8 172.16.0.0/12\n", "f:1: allow must be ranges like 10.0.0.0/8"},
	{"allow = 10.0.0.1/8\n", "not \"10.0.0.1/8\""},
	{"allow = localhost\n", "not \"localhost\""},
	{"dns = resolver\n", "f:1: dns must be an IPv4 or IPv6 address in numbers"},
	{"ipv6 = maybe\n", "f:1: ipv6 must be one of: auto yes no"},
	{"listen_port\n", "f:1: expected `name = value`"},
	{"= 80\n", "f:1: there is no name before the ="},
	{"\n\nlisten_port = 0\n",
	 "f:3: listen_port must be a whole number from 1 to 65535, not \"0\""},
	{"listen_port = 65536\n", "f:1: listen_port must be a whole number from 1 to 65535"},
	{"listen_port = 99999999999999999999\n", "from 1 to 65535"},
	{"listen_port = 18446744073709551617\n", "from 1 to 65535"},
	{"listen_port = -1\n", "from 1 to 65535, not \"-1\""},
	{"listen_port = +1\n", "from 1 to 65535"},
	{"listen_port = 0x50\n", "from 1 to 65535"},
	{"listen_port = 80 81\n", "from 1 to 65535"},
	{"listen_port = 80#\n", "from 1 to 65535"},
	{"listen_port =\n", "from 1 to 65535, not \"\""},
	{"listen_port = 80\n# x\nlisten_port = 80\n",
	 "f:3: listen_port is set twice; line 1 set it first"},
	{"listen_prot = 80\n",
	 "f:1: there is no setting \"listen_prot\"; did you mean listen_port?"},
	{"tier_free = concurrent=3 persistent=yes   idle_s=1 # all else as it is\n", NULL},
	{"tier_free =\n", NULL},
	{"\ntier_free = concurrent=3 persistent=maybe\n",
	 "f:2: tier_free: persistent must be yes or no"},
	{"ram = 512\n", "there is no setting \"ram\""},
	{"rammib = 512\n", "did you mean ram_mib?"},
	{"colour_of_the_sky = blue\n", "there is no setting \"colour_of_the_sky\""},
	{"a_name_that_is_longer_than_any_name_there_is = 1\n", "there is no setting"},
	{"Listen_port = 80\n", "did you mean listen_port?"},
	{"listen_host = localhost\n", "listen_host must be an IPv4 or IPv6 address in numbers"},
	{"listen_host = 127.0.0.1.1\n", "IPv4 or IPv6"},
	{"listen_host =\n", "listen_host must not be empty"},
	{"vmm = ramet-vmm\n", "vmm must be an absolute path, not \"ramet-vmm\""},
	{"vmm =\n", "vmm must not be empty"},
	{"run_dir = /\n", "run_dir must be at least 2 bytes long"},
	{"state_dir = /\n", "state_dir must be at least 2 bytes long"},
	{"log_level = loud\n", "log_level must be one of: debug info warn error (not \"loud\")"},
	{"log_level = inf\n", "must be one of:"},
	{"log_level = debug info\n", "log_level must be one of:"},
	{"log_level =\n", "log_level must not be empty"},
	{"allow_open = true\n", "allow_open must be one of: no yes (not \"true\")"},
	{"region = a\033[2Jb\n", "region contains a control character (0x1b)"},
	{"max_vms = 16385\n", "max_vms must be a whole number from 1 to 16384"},
	{"vcpus = 33\n", "vcpus must be a whole number from 1 to 32"},
	{"ram_mib = 127\n", "ram_mib must be a whole number from 128 to 65536"},
};

static void files_are_accepted_or_errors_name_the_line(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		struct config c;
		struct err e = {0};

		config_defaults(&c);
		int r = config_parse(&c, "f", TEXT(files[i].text), &e);
		if (!files[i].error && r < 0)
			fail_msg("\"%s\": %s", files[i].text, e.text);
		if (files[i].error) {
			if (r != -EINVAL)
				fail_msg("\"%s\" is accepted", files[i].text);
			assert_says(&e, files[i].error);
		}
	}
}

static void values_are_stored(void **state)
{
	static const char text[] = "listen_host = ::1\nlisten_port = 65535 # last\n"
				   "region = eu#1\nvmm = /opt/with blank/vmm\nlog_level = error\n";
	struct config c;
	struct err e;

	config_defaults(&c);
	assert_int_equal(config_parse(&c, "f", TEXT(text), &e), 0);
	assert_string_equal(c.listen_host, "::1");
	assert_int_equal(c.listen_port, 65535);
	assert_string_equal(c.region, "eu#1");
	assert_string_equal(c.vmm, "/opt/with blank/vmm");
	assert_string_equal(c.log_level, "error");
	assert_string_equal(c.run_dir, "/run/ramet");
}

static void shorter_value_overwrites_longer_one(void **state)
{
	struct config a, b;
	struct err e;

	config_defaults(&a);
	config_defaults(&b);
	assert_int_equal(config_parse(&a, "f", TEXT("kernel = /k\n"), &e), 0);
	assert_int_equal(config_parse(&b, "f", TEXT("kernel = /a/longer/name/of/a/kernel\n"), &e),
			 0);
	assert_int_equal(config_parse(&b, "f", TEXT("kernel = /k\n"), &e), 0);
	assert_memory_equal(&a, &b, sizeof(a));
}

static void nul_byte_is_refused(void **state)
{
	static const char text[] = "region = a\0b\n";
	struct config c;
	struct err e;

	config_defaults(&c);
	assert_int_equal(config_parse(&c, "f", text, sizeof(text) - 1, &e), -EINVAL);
	assert_says(&e, "control character (0x00)");
}

/* The longest path is accepted, and one more byte is an error. The limit of run_dir is lower,
 * because paths of sockets begin with it. */
static void values_above_the_maximum_length_are_refused(void **state)
{
	static const struct {
		const char *name;
		size_t most;
	} paths[] = {{"kernel", CONFIG_PATH_MAX - 1}, {"run_dir", 80}};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		for (size_t over = 0; over < 2; over++) {
			char text[CONFIG_PATH_MAX + 64];
			struct config c;
			struct err e;
			int n = snprintf(text, sizeof(text), "%s = /", paths[i].name);

			memset(text + n, 'x', paths[i].most - 1 + over);
			text[(size_t)n + paths[i].most - 1 + over] = '\0';
			config_defaults(&c);
			int r = config_parse(&c, "f", TEXT(text), &e);
			assert_int_equal(r, over ? -EINVAL : 0);
			if (over)
				assert_says(&e, "bytes long, not");
		}
}

static void huge_value_is_refused(void **state)
{
	static char text[4096] = "region = ";
	struct config c;
	struct err e;

	memset(text + 9, 'x', sizeof(text) - 10);
	config_defaults(&c);
	assert_int_equal(config_parse(&c, "f", TEXT(text), &e), -EINVAL);
	assert_says(&e, "region is 4086 bytes long, which is too long");
}

/* --- files on disk --------------------------------------------------------------------------- */

static void file_with(char path[static 64], const char *text)
{
	snprintf(path, 64, "/tmp/ramet-config-XXXXXX");
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int load_path(struct config *c, const char *path, const char *flag, struct err *e)
{
	char option[128];
	char *argv[] = {"rametd", option, (char *)(uintptr_t)flag, NULL};

	snprintf(option, sizeof(option), "--config=%s", path);
	return config_load(c, flag ? 3 : 2, argv, e);
}

static void errors_name_file_and_line(void **state)
{
	struct config c;
	struct err e;
	char path[64], expected[128];

	file_with(path, "# x\nlisten_port = many\n");
	snprintf(expected, sizeof(expected), "%s:2: listen_port must be", path);
	assert_int_equal(load_path(&c, path, NULL, &e), -EINVAL);
	assert_says(&e, expected);
	unlink(path);
}

static void file_named_by_flag_must_exist(void **state)
{
	struct config c;
	struct err e;

	assert_int_equal(load_path(&c, "/nonexistent/ramet.conf", NULL, &e), -ENOENT);
	assert_says(&e, "open the configuration file /nonexistent/ramet.conf: No such file");
	assert_int_equal(load_path(&c, "/tmp", NULL, &e), -EISDIR);
	assert_says(&e, "read the configuration file /tmp");
}

static void endless_file_is_refused(void **state)
{
	struct config c;
	struct err e;

	assert_int_equal(load_path(&c, "/dev/zero", NULL, &e), -EFBIG);
	assert_says(&e, "/dev/zero is not a configuration file: it is larger than 64 KiB");
}

static void failed_load_changes_nothing(void **state)
{
	struct config c, before;
	struct err e;

	memset(&c, 0x5a, sizeof(c));
	before = c;
	assert_int_equal(load(&c, "--listen_port=0", &e), -EINVAL);
	assert_memory_equal(&c, &before, sizeof(c));
}

/* --- environment and flags ------------------------------------------------------------------- */

static void flags_override_environment_and_file(void **state)
{
	struct config c;
	struct err e;
	char path[64];

	file_with(path, "listen_port = 1001\nvcpus = 3\nram_mib = 256\n");
	setenv("RAMET_LISTEN_PORT", "1002", 1);
	setenv("RAMET_VCPUS", "4", 1);
	assert_int_equal(load_path(&c, path, "--listen-port=1003", &e), 0);
	assert_int_equal(c.listen_port, 1003);
	assert_int_equal(c.vcpus, 4);
	assert_int_equal(c.ram_mib, 256);
	assert_int_equal(c.rootfs_gb, 4);
	unsetenv("RAMET_LISTEN_PORT");
	unsetenv("RAMET_VCPUS");
	unlink(path);
}

static void errors_name_the_environment_variable(void **state)
{
	struct config c;
	struct err e;

	setenv("RAMET_IDLE_TIMEOUT_S", "soon", 1);
	assert_int_equal(load(&c, NULL, &e), -EINVAL);
	assert_says(&e,
		    "environment variable RAMET_IDLE_TIMEOUT_S: idle_timeout_s must be a whole");
	unsetenv("RAMET_IDLE_TIMEOUT_S");
}

static void unknown_variables_are_ignored(void **state)
{
	struct config c;
	struct err e;

	setenv("RAMET_HOST", "http://127.0.0.1:7070", 1); /* a setting of the SDK */
	assert_int_equal(load(&c, NULL, &e), 0);
	unsetenv("RAMET_HOST");
}

static const struct {
	const char *flag, *error;
} flags[] = {
	{"--listen_port=0", "flag --listen_port=0: listen_port must be a whole number"},
	{"--listen_port", "flag --listen_port: a flag needs its value: --listen_port=VALUE"},
	{"--listen_prot=1", "did you mean listen_port?"},
	{"--run-dri=/x", "did you mean run_dir?"},
	{"--a-name-that-is-longer-than-any-name-there-is=1", "there is no setting"},
	{"listen_port=1", "argument listen_port=1: expected --NAME=VALUE"},
	{"-p", "argument -p: expected --NAME=VALUE"},
	{"--", "argument --: expected --NAME=VALUE"},
	{"--=1", "there is no name before the ="},
	{"--config", "write --config=FILE"},
	{"--config=", "write --config=FILE"},
	{"--config=/dev/null", "--config is given twice"},
	{"--tls_cert=/c", "tls_cert is set but tls_key is not"},
	{"--tls_key=/k", "tls_key is set but tls_cert is not"},
	{"--fleet_dir=/f", "fleet_dir is set but fleet_id_key is not"},
	{"--fleet_ca=/f", "fleet_ca is set but fleet_dir is not"},
	{"--tier_pro=ram_mib", "tier_pro: expected NAME=VALUE, not \"ram_mib\""},
	{"--tier_pro=ram=1",
	 "tier_pro: a tier has no limit \"ram\"; its limits are ram_mib, rootfs_gb"},
	{"--tier_pro=ram_mib=127", "tier_pro: ram_mib must be a whole number from 128 to 65536"},
	{"--tier_pro=rootfs_gb=1025", "rootfs_gb must be a whole number from 1 to 1024"},
	{"--tier_pro=idle_s=0", "idle_s must be a whole number from 1 to 31536000"},
	{"--tier_pro=lifetime_s=", "lifetime_s must be a whole number from 1 to 31536000"},
	{"--tier_pro=concurrent=99999999999999999999", "concurrent must be a whole number"},
	{"--tier_pro=concurrent=-1", "concurrent must be a whole number from 1 to 1000000"},
	{"--tier_pro=spaces_gb=1.5", "spaces_gb must be a whole number from 0 to 1000000"},
	{"--tier_pro=private_memory=1", "private_memory must be yes or no, not \"1\""},
	{"--tier_pro=persistent=maybe", "persistent must be yes or no, not \"maybe\""},
	{"--tier_pro=concurrent=5 a_word_that_is_longer_than_any_limit_that_there_is=12",
	 "is too long for a limit"},
	{"--regions=hel", "regions must be like hel=https://"},
	{"--regions=hel=hel.example.com", "regions must be like hel=https://"},
	{"--regions==https://a", "regions must be like hel=https://"},
	{"--regions=hel=https://a,,iad=https://b", "not \",iad=https://b\""},
	{"--sizes=1024", "sizes must be auto or like 1024x2,4096x4x16"},
	{"--sizes=automatic", "sizes must be auto or like"},
	{"--sizes=1024x2x", "sizes must be auto or like"},
	{"--sizes=1024x2x1025", "sizes must be auto or like"},
	{"--sizes=1024x2x8x1", "sizes must be auto or like"},
	{"--sizes=1024x33", "sizes must be auto or like"},
	{"--sizes=1000x2", "a multiple of 64"},
	{"--sizes=4294968320x2", "sizes must be auto or like"},
	{"--sizes=128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,128x1,"
	 "128x1,128x1,128x1,128x1",
	 "sizes names more than 16 sizes"},
	{"--network=10.0.0.0/31", "network 10.0.0.0/31 has addresses for 1 VMs, max_vms is 256"},
	{"--network=10.0.0.0/8,11.0.0.0/8", "network must be one IPv4 range"},
	{"--network=fd00::/64", "network must be one IPv4 range"},
	{"--network=0.0.0.0/0", "network must be one IPv4 range"},
	{"--dns=127.0.0.53", "dns must be an IPv4 address that VMs can reach"},
	{"--dns=::1", "dns must be an IPv4 address that VMs can reach"},
	{"--max_vms=7", "pool_blank_vms + pool_warm is 8, more than max_vms allows (7)"},
	{"--memory_mib=1279",
	 "memory_mib is 1279, less than a sandbox (ram_mib, 1024) and rametd (256)"},
	{"--audit_days=0", "audit_days must be a whole number from 1 to 36500"},
	{"--log_format=xml", "log_format must be one of: text json"},
	{"--webhook_url=ftp://a/", "webhook_url must begin with https://"},
	{"--otlp_url=127.0.0.1:4318", "otlp_url must begin with https://"},
	{"--otlp_url=http://example.net/", "otlp_url is http:// to another host"},
	{"--webhook_url=https://a/", "webhook_secret must be at least 16 bytes long, not 0"},
	{"--webhook_url=http://example.net/", "http:// to another host"},
	{"--webhook_url=http://127.0.0.1.example.net/", "http:// to another host"},
	{"--webhook_url=http://localhost:x@example.net/", "http:// to another host"},
};

static void errors_name_the_flag(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		struct config c;
		struct err e;

		if (load(&c, flags[i].flag, &e) != -EINVAL)
			fail_msg("%s is accepted", flags[i].flag);
		assert_says(&e, flags[i].error);
	}
}

static void assert_tier(const struct config *c, const char *name, struct tier expected)
{
	struct tier t;

	assert_true(tier_find(&t, c, name));
	assert_int_equal(t.ram_mib, expected.ram_mib);
	assert_int_equal(t.rootfs_gb, expected.rootfs_gb);
	assert_int_equal(t.idle_s, expected.idle_s);
	assert_int_equal(t.lifetime_s, expected.lifetime_s);
	assert_int_equal(t.concurrent, expected.concurrent);
	assert_int_equal(t.disks_gb, expected.disks_gb);
	assert_int_equal(t.spaces_gb, expected.spaces_gb);
	assert_int_equal(t.checkpoints, expected.checkpoints);
	assert_int_equal(t.persistent, expected.persistent);
	assert_int_equal(t.private_memory, expected.private_memory);
}

static void tiers_have_documented_limits(void **state)
{
	struct config c;
	struct tier t;

	config_defaults(&c);
	assert_tier(&c, "free", (struct tier){1024, 4, 300, 1800, 10, 40, 0, 0, false, false});
	assert_tier(&c, "pro", (struct tier){4096, 16, 1800, 28800, 50, 200, 50, 200, true, false});
	assert_tier(&c, "scale",
		    (struct tier){16384, 64, 7200, 86400, 500, 2000, 500, 2000, true, false});
	assert_tier(
		&c, "enterprise",
		(struct tier){65536, 512, 86400, 604800, 10000, 40000, 5000, 20000, true, false});
	assert_false(tier_find(&t, &c, "gold"));
	assert_false(tier_find(&t, &c, "operator"));
}

static void tier_keeps_defaults_of_other_limits(void **state)
{
	struct config c;
	struct err e;

	assert_int_equal(load(&c, "--tier_free=persistent=yes concurrent=3", &e), 0);
	assert_tier(&c, "free", (struct tier){1024, 4, 300, 1800, 3, 40, 0, 0, true, false});
	assert_tier(&c, "pro", (struct tier){4096, 16, 1800, 28800, 50, 200, 50, 200, true, false});
}

static void sizes_are_listed_in_order(void **state)
{
	struct size sizes[CONFIG_SIZES_MAX];
	struct config c = {.sizes = "4096x4,128x1,65536x32x1024"};
	struct err e;

	assert_int_equal(config_sizes(&c, sizes, &e), 3);
	assert_int_equal(sizes[0].ram_mib, 4096);
	assert_int_equal(sizes[0].vcpus, 4);
	assert_int_equal(sizes[1].vcpus, 1);
	assert_int_equal(sizes[1].rootfs_gb, 0);
	assert_int_equal(sizes[2].ram_mib, 65536);
	assert_int_equal(sizes[2].rootfs_gb, 1024);
	assert_false(config_sizes_auto(&c));
	c.sizes[0] = 0;
	assert_int_equal(config_sizes(&c, sizes, &e), 0);
	assert_false(config_sizes_auto(&c));
	config_defaults(&c);
	assert_true(config_sizes_auto(&c));
}

static void webhooks_on_this_host_need_no_tls(void **state)
{
	static const char *const urls[] = {
		"--webhook_url=http://127.0.0.1:80/x", "--webhook_url=http://localhost",
		"--webhook_url=http://[::1]/", "--webhook_url=https://a/"};
	char secret[] = "--webhook_secret=0123456789abcdef";
	struct config c;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		char *argv[] = {"rametd", NO_FILE, (char *)(uintptr_t)urls[i], secret, NULL};

		if (config_load(&c, 4, argv, &e) < 0)
			fail_msg("%s", e.text);
	}
}

static void repeated_flag_is_refused(void **state)
{
	char *argv[] = {"rametd", NO_FILE, "--vcpus=1", "--vcpus=1", NULL};
	struct config c;
	struct err e;

	assert_int_equal(config_load(&c, 4, argv, &e), -EINVAL);
	assert_says(&e, "--vcpus is given twice");
}

/* --- the example ----------------------------------------------------------------------------- */

static char *read_example_file(void)
{
	static char text[1 << 16];
	scoped_fd int fd = open(EXAMPLE_FILE, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	assert_true(n > 0);
	text[n] = '\0';
	return text;
}

static void installed_file_is_the_example(void **state)
{
	const char *file = read_example_file(), *example = config_example();
	unsigned line = 1;
	size_t i = 0;

	for (; file[i] && file[i] == example[i]; i++)
		line += file[i] == '\n';
	if (file[i] != example[i])
		fail_msg("orchestrator/config/ramet.conf differs from `rametd --example` at line "
			 "%u: write that command's output to it",
			 line);
}

static void example_contains_the_defaults(void **state)
{
	struct config defaults, c;
	struct err e = {0};
	char *text = strdup(config_example());

	config_defaults(&defaults);
	config_defaults(&c);
	assert_int_equal(config_parse(&c, "example", TEXT(text), &e), 0);
	assert_memory_equal(&c, &defaults, sizeof(c));

	/* "#name = value" is a setting that is commented out; other comments begin with "# ". */
	unsigned settings = 0;
	for (char *p = text; (p = strchr(p, '#')); p++)
		if (p[1] != ' ') {
			*p = ' ';
			settings++;
		}
	memset(&c, 0, sizeof(c));
	if (config_parse(&c, "example", TEXT(text), &e) < 0)
		fail_msg("%s", e.text);
	assert_memory_equal(&c, &defaults, sizeof(c));
	assert_true(settings > 20);
	free(text);
}

static void a_domain_is_checked(void **state)
{
	const char *good[] = {"boxes.example.com", "localhost", "http://localhost:7070",
			      "https://a-1.b:443"};
	const char *bad[] = {"Boxes.example", "a..b", "-a",	 "a-",	    "a/b", "ftp://a",
			     "a:0",	      "a:x",  "a:65536", "http://", "*.a", "a b"};
	struct config c;
	struct err e;
	char text[100];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		config_defaults(&c);
		int len = snprintf(text, sizeof(text), "sandbox_domain = %s\n", good[i]);
		assert_int_equal(config_parse(&c, "f", text, (size_t)len, &e), 0);
		assert_string_equal(c.sandbox_domain, good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		config_defaults(&c);
		int len = snprintf(text, sizeof(text), "sandbox_domain = %s\n", bad[i]);
		assert_true(config_parse(&c, "f", text, (size_t)len, &e) < 0);
		assert_non_null(strstr(e.text, "sandbox_domain must be a domain name"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_domain_is_checked),
		cmocka_unit_test(files_are_accepted_or_errors_name_the_line),
		cmocka_unit_test(values_are_stored),
		cmocka_unit_test(shorter_value_overwrites_longer_one),
		cmocka_unit_test(nul_byte_is_refused),
		cmocka_unit_test(values_above_the_maximum_length_are_refused),
		cmocka_unit_test(huge_value_is_refused),
		cmocka_unit_test(errors_name_file_and_line),
		cmocka_unit_test(file_named_by_flag_must_exist),
		cmocka_unit_test(endless_file_is_refused),
		cmocka_unit_test(failed_load_changes_nothing),
		cmocka_unit_test(flags_override_environment_and_file),
		cmocka_unit_test(errors_name_the_environment_variable),
		cmocka_unit_test(unknown_variables_are_ignored),
		cmocka_unit_test(errors_name_the_flag),
		cmocka_unit_test(tiers_have_documented_limits),
		cmocka_unit_test(tier_keeps_defaults_of_other_limits),
		cmocka_unit_test(sizes_are_listed_in_order),
		cmocka_unit_test(repeated_flag_is_refused),
		cmocka_unit_test(installed_file_is_the_example),
		cmocka_unit_test(webhooks_on_this_host_need_no_tls),
		cmocka_unit_test(example_contains_the_defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
