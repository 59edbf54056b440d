// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/etcd/certificate.h"
#include "orchestrator/etcd/settings.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/json/json.h"
#include "orchestrator/json/text.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/warden/account.h"

#define SETTINGS_DIR "/etc/ramet/fleet"
#define FLEET_GROUP  "ramet-fleet"
#define FLEET_ID_LEN 16

static const char usage[] =
	"usage: rametctl fleet init DIR CELL ETCD…     begin a fleet: make its authorities in DIR\n"
	"       rametctl fleet ca DIR etcd NAME ADDRESS…\n"
	"                                             make a certificate of a member of etcd\n"
	"       rametctl fleet ca DIR host NUMBER NAME ADDRESS:PORT [REGION [ZONE]]\n"
	"                                             print a token for a host: it is secret\n"
	"       rametctl fleet join TOKEN-FILE|- [DIR]\n"
	"                                             make this machine the host of the token\n"
	"       rametctl fleet status [DIR]            print the table of hosts\n"
	"       rametctl fleet haproxy [DIR]           print a configuration of HAProxy\n"
	"       rametctl fleet check                   ask the members of etcd for their state\n";

/* --- files ------------------------------------------------------------------------------------ */

/* Returns the text of a file, which the caller frees; NULL with *e filled. */
static char *read_fd(int fd, const char *name, struct err *e)
{
	size_t len;
	char *text = file_text(fd, SETTINGS_MAX, &len, e);

	if (!text)
		err_context(e, "%s", name);
	return text;
}

static char *read_in(int dir, const char *name, struct err *e)
{
	scoped_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	return read_fd(fd, name, e);
}

static int write_secret(int dir, const char *name, const char *text, struct err *e)
{
	return file_replace(dir, name, text, strlen(text), 0600, 0, e);
}

static int write_public(int dir, const char *name, const char *text, struct err *e)
{
	return file_replace(dir, name, text, strlen(text), 0644, 0, e);
}

/* --- init ------------------------------------------------------------------------------------- */

static int make_authority(int dir, const char *name, const char *fleet, struct err *e)
{
	struct certificate authority;
	char cn[64], cert[64], key[64];
	const struct subject subject = {.name = cn};

	snprintf(cn, sizeof(cn), "Ramet fleet %s %s", fleet, name);
	snprintf(cert, sizeof(cert), "%s.pem", name);
	snprintf(key, sizeof(key), "%s-key.pem", name);
	int ret = certificate_make(&authority, &subject, e);
	if (ret == 0)
		ret = write_secret(dir, key, authority.key, e);
	if (ret == 0)
		ret = write_public(dir, cert, authority.cert, e);
	explicit_bzero(&authority, sizeof(authority));
	return ret;
}

static void make_hex(char *out, size_t digits)
{
	uint8_t bytes[FLEET_KEY_BYTES];

	random_bytes(bytes, sizeof(bytes));
	hex_write(out, bytes, digits / 2);
	explicit_bzero(bytes, sizeof(bytes));
}

static int write_fleet(int dir, const char *fleet, uint32_t cell, char *const etcd[], struct err *e)
{
	struct text text = {0};

	text_printf(&text, "{\"fleet\":\"%s\",\"cell\":%u,\"etcd\":[", fleet, cell);
	for (size_t i = 0; etcd[i]; i++) {
		text_puts(&text, i ? "," : "");
		json_string(&text, etcd[i], strlen(etcd[i]));
	}
	text_puts(&text, "]}\n");
	int ret = file_replace(dir, "fleet.json", text.p, text.len, 0644, 0, e);
	text_free(&text);
	return ret;
}

static bool is_etcd(const char *url)
{
	const char *port = strrchr(url, ':');
	uint32_t n;

	return strncmp(url, "https://", 8) == 0 && port > url + 8 &&
	       number_parse(port + 1, 1, UINT16_MAX, &n);
}

static int check_etcd(char *const etcd[], struct err *e)
{
	size_t n = 0;

	for (; etcd[n]; n++)
		if (!is_etcd(etcd[n]))
			return err_say(e, EINVAL,
				       "\"%.100s\" is not an address of etcd: it must be like "
				       "https://10.0.0.1:2379",
				       etcd[n]);
	if (n < 1 || n > ETCD_MEMBERS_MAX)
		return err_say(e, EINVAL, "give 1 to %d addresses of etcd's members, best 3",
			       ETCD_MEMBERS_MAX);
	return 0;
}

static int run_init(int argc, char *const argv[], struct err *e)
{
	char fleet[FLEET_ID_LEN + 1], id_key[2 * FLEET_KEY_BYTES + 2] = {0};
	uint32_t cell;

	if (argc < 5)
		return -EINVAL;
	if (!number_parse(argv[3], 0, FLEET_CELL_MAX, &cell))
		return err_say(e, ERANGE, "the cell must be a number from 0 to %u, not \"%.40s\"",
			       FLEET_CELL_MAX, argv[3]);
	if (check_etcd(argv + 4, e) < 0)
		return e->code;
	scoped_fd int dir = directory_open(argv[2], e);
	if (dir < 0)
		return dir;
	if (faccessat(dir, "fleet.json", F_OK, 0) == 0)
		return err_say(e, EEXIST, "%s has a fleet already", argv[2]);
	make_hex(fleet, FLEET_ID_LEN);
	make_hex(id_key, 2 * FLEET_KEY_BYTES);
	strcat(id_key, "\n");
	/* fleet.json is the last one: with it, the folder is whole. */
	int ret = make_authority(dir, "ca", fleet, e);
	if (ret == 0)
		ret = make_authority(dir, "etcd-ca", fleet, e);
	if (ret == 0)
		ret = write_secret(dir, "id.key", id_key, e);
	if (ret == 0)
		ret = write_fleet(dir, fleet, cell, argv + 4, e);
	explicit_bzero(id_key, sizeof(id_key));
	if (ret == 0)
		printf("The fleet %s, cell %u, is in %s. Its keys are there: whoever has them can "
		       "join.\n",
		       fleet, cell, argv[2]);
	return ret;
}

/* --- ca --------------------------------------------------------------------------------------- */

/* Reads a file that must be shorter than `size`. */
static int read_into(char *out, size_t size, int dir, const char *name, struct err *e)
{
	scoped_free char *text = read_in(dir, name, e);

	if (!text)
		return e->code;
	if (strlen(text) >= size)
		return err_say(e, EFBIG, "%s has more than %zu bytes", name, size - 1);
	memcpy(out, text, strlen(text) + 1);
	explicit_bzero(text, strlen(text));
	return 0;
}

/* Reads the authority into `by`, and has it certify `name`. */
static int certify(struct certificate *out, struct certificate *by, int dir, const char *authority,
		   const char *name, const char *const *addresses, struct err *e)
{
	const struct subject subject = {.name = name, .addresses = addresses, .by = by};
	char cert[64], key[64];

	snprintf(cert, sizeof(cert), "%s.pem", authority);
	snprintf(key, sizeof(key), "%s-key.pem", authority);
	if (read_into(by->cert, sizeof(by->cert), dir, cert, e) < 0 ||
	    read_into(by->key, sizeof(by->key), dir, key, e) < 0)
		return e->code;
	return certificate_make(out, &subject, e);
}

static bool is_name(const char *name)
{
	return name[0] && strlen(name) <= 40 &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789."
				  "_-")] &&
	       name[0] != '.' && name[0] != '-';
}

static int check_name(const char *name, struct err *e)
{
	return is_name(name) ? 0
			     : err_say(e, ERANGE,
				       "the name \"%.60s\" must have 1 to 40 letters, digits, . _ "
				       "and -",
				       name);
}

static int make_etcd(int dir, int argc, char *const argv[], struct err *e)
{
	struct certificate own, by;
	char cert[64], key[64];

	if (argc < 6)
		return -EINVAL;
	if (check_name(argv[4], e) < 0)
		return e->code;
	snprintf(cert, sizeof(cert), "etcd-%s.pem", argv[4]);
	snprintf(key, sizeof(key), "etcd-%s-key.pem", argv[4]);
	int ret = certify(&own, &by, dir, "etcd-ca", argv[4], (const char *const *)argv + 5, e);
	if (ret == 0)
		ret = write_secret(dir, key, own.key, e);
	if (ret == 0)
		ret = write_public(dir, cert, own.cert, e);
	explicit_bzero(&own, sizeof(own));
	explicit_bzero(&by, sizeof(by));
	if (ret == 0)
		printf("%s and %s, with etcd-ca.pem, are for the member %s of etcd.\n", cert, key,
		       argv[4]);
	return ret;
}

/* The host's part of fleet.json, without braces. */
static int write_host(struct text *out, char *const argv[], int argc, const uint8_t sha256[32],
		      struct err *e)
{
	struct fleet_host h = {.has_cert = true};
	struct text text = {0};

	if (!number_parse(argv[4], 0, FLEET_NUMBER_MAX, &h.number))
		return err_say(e, ERANGE, "the number must be from 0 to %u, not \"%.40s\"",
			       FLEET_NUMBER_MAX, argv[4]);
	snprintf(h.name, sizeof(h.name), "%s", argv[5]);
	snprintf(h.address, sizeof(h.address), "%s", argv[6]);
	snprintf(h.region, sizeof(h.region), "%s", argc > 7 ? argv[7] : "");
	snprintf(h.zone, sizeof(h.zone), "%s", argc > 8 ? argv[8] : "");
	memcpy(h.cert, sha256, sizeof(h.cert));
	host_write(&text, &h);
	int ret = fleet_host_read(&h, text.p, text.len, e);
	if (ret == 0)
		text_add(out, text.p + 1, text.len - 2);
	text_free(&text);
	return ret;
}

static int add_file(struct text *out, const char *name, int dir, const char *file, struct err *e)
{
	scoped_free char *text = read_in(dir, file, e);

	if (!text)
		return e->code;
	json_member(out, name, text);
	return 0;
}

struct host_certificates {
	struct certificate peer, etcd, by;
};

static int write_token(struct text *out, int dir, int argc, char *const argv[],
		       struct host_certificates *c, struct err *e)
{
	scoped_free char *fleet = read_in(dir, "fleet.json", e);

	if (!fleet || certify(&c->etcd, &c->by, dir, "etcd-ca", argv[5], NULL, e) < 0 ||
	    certify(&c->peer, &c->by, dir, "ca", argv[5], NULL, e) < 0)
		return e->code;
	size_t len = strcspn(fleet, "}");
	text_printf(out, "{\"settings\":%.*s,\"format\":%d,", (int)len, fleet, CARD_FORMAT);
	if (write_host(out, argv, argc, c->peer.sha256, e) < 0)
		return e->code;
	text_putc(out, '}');
	json_member(out, "cert", c->peer.cert);
	json_member(out, "key", c->peer.key);
	json_member(out, "etcd_cert", c->etcd.cert);
	json_member(out, "etcd_key", c->etcd.key);
	if (add_file(out, "ca", dir, "ca.pem", e) < 0 ||
	    add_file(out, "etcd_ca", dir, "etcd-ca.pem", e) < 0 ||
	    add_file(out, "id_key", dir, "id.key", e) < 0)
		return e->code;
	text_puts(out, "}\n");
	return 0;
}

static int make_host(int dir, int argc, char *const argv[], struct err *e)
{
	struct host_certificates certificates;
	struct text token = {0};

	if (argc < 7 || argc > 9)
		return -EINVAL;
	if (check_name(argv[5], e) < 0)
		return e->code;
	int ret = write_token(&token, dir, argc, argv, &certificates, e);
	if (ret == 0 && (fwrite(token.p, 1, token.len, stdout) != token.len || fflush(stdout) != 0))
		ret = err_set(e, errno, "print the token");
	explicit_bzero(&certificates, sizeof(certificates));
	if (token.p)
		explicit_bzero(token.p, token.len);
	text_free(&token);
	return ret;
}

static int run_ca(int argc, char *const argv[], struct err *e)
{
	if (argc < 4)
		return -EINVAL;
	scoped_fd int dir = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, errno, "open %s (`rametctl fleet init` makes it)", argv[2]);
	if (strcmp(argv[3], "etcd") == 0)
		return make_etcd(dir, argc, argv, e);
	return strcmp(argv[3], "host") == 0 ? make_host(dir, argc, argv, e) : -EINVAL;
}

/* --- join ------------------------------------------------------------------------------------- */

struct token {
	struct json_text settings, ca, cert, key, etcd_ca, etcd_cert, etcd_key, id_key;
};
#define PART(member, kind)                                                                         \
	JSON_FIELD(struct token, member, #member, kind, .min = 1, .max = PEM_MAX, .required = true)
static const struct json_field token_fields[] = {
	PART(settings, JSON_OBJECT), PART(ca, JSON_TEXT),      PART(cert, JSON_TEXT),
	PART(key, JSON_TEXT),	     PART(etcd_ca, JSON_TEXT), PART(etcd_cert, JSON_TEXT),
	PART(etcd_key, JSON_TEXT),   PART(id_key, JSON_TEXT),
};

/* A machine that joins again, with new certificates, stays the same instance of the same host. */
static int take_instance(char out[static INSTANCE_TEXT + 1], int dir, const char *path,
			 const struct card *wanted, struct err *e)
{
	struct fleet_settings now;
	struct err reason;

	if (faccessat(dir, "fleet.json", F_OK, 0) < 0)
		return 0;
	scoped_free char *text = read_in(dir, "fleet.json", e);
	if (!text)
		return e->code;
	if (fleet_settings_read(&now, text, strlen(text), &reason) < 0)
		return err_say(e, EINVAL, "the present fleet.json is damaged: %.150s; remove it",
			       reason.text);
	bool same = strcmp(now.self.fleet, wanted->fleet) == 0 &&
		    now.self.host.number == wanted->host.number;
	if (same)
		memcpy(out, now.self.instance, INSTANCE_TEXT + 1);
	else
		err_say(e, EEXIST,
			"this machine is host %u (%s) of the fleet %.40s already, and the token is "
			"for host %u (%s) of %.40s: remove %s if it is to change",
			now.self.host.number, now.self.host.name, now.self.fleet,
			wanted->host.number, wanted->host.name, wanted->fleet, path);
	fleet_settings_free(&now);
	return same ? 0 : e->code;
}

/* Makes fleet.json: the settings of the token, and which machine this is. */
static int make_settings(struct text *out, struct fleet_settings *read, int dir, const char *path,
			 const struct token *token, struct err *e)
{
	char instance[INSTANCE_TEXT + 1];

	make_hex(instance, INSTANCE_TEXT);
	for (int i = 0; i < 2; i++) {
		out->len = 0;
		text_printf(out, "{\"instance\":\"%s\",%s\n", instance, token->settings.p + 1);
		int ret = fleet_settings_read(read, out->p, out->len, e);
		if (ret < 0)
			return err_context(e, "the token");
		if (i == 0) {
			ret = take_instance(instance, dir, path, &read->self, e);
			fleet_settings_free(read);
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

struct readers {
	gid_t service, fleet; /* groups of both programs */
};

/* fleet.json is the last one: with it, the host is whole. */
static int write_all(int dir, const struct token *t, const struct text *settings,
		     const struct readers *readers, struct err *e)
{
	const struct {
		const char *name;
		const struct json_text *text;
		gid_t group;
		mode_t mode;
	} files[] = {
		{"ca.pem", &t->ca, 0, 0644},
		{"cert.pem", &t->cert, 0, 0644},
		{"key.pem", &t->key, readers->service, 0640},
		{"id.key", &t->id_key, readers->service, 0640},
		{"etcd-ca.pem", &t->etcd_ca, 0, 0644},
		{"etcd-cert.pem", &t->etcd_cert, 0, 0644},
		{"etcd-key.pem", &t->etcd_key, readers->fleet, 0640},
	};

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (file_replace(dir, files[i].name, files[i].text->p, files[i].text->len,
				 files[i].mode, files[i].group, e) < 0)
			return e->code;
	return file_replace(dir, "fleet.json", settings->p, settings->len, 0644, 0, e);
}

/* Finds the groups. If this process is not root, as in tests, it keeps all files. */
static int find_readers(struct readers *out, const struct config *config, const char *dir,
			struct err *e)
{
	struct account service;
	const struct group *group = getgrnam(FLEET_GROUP);

	*out = (struct readers){0};
	if (strcmp(dir, SETTINGS_DIR) != 0)
		return 0;
	if (account_find(&service, config->user, e) < 0)
		return e->code;
	if (!group)
		return err_say(e, ENOENT,
			       "there is no group " FLEET_GROUP ": the package ramet makes it "
			       "(`systemd-sysusers`)");
	*out = (struct readers){.service = service.gid, .fleet = group->gr_gid};
	return 0;
}

/* Prints the settings. All else is a comment, so that the output can be appended to CONFIG_FILE.
 * `again`: the file should have them already, so they are printed as comments, too: a setting that
 * is there twice is an error. */
static void show_next(const struct fleet_settings *s, const char *dir, bool again)
{
	const char *const settings[][3] = {
		{"fleet_dir", FLEET_TABLES, ""},
		{"fleet_id_key", dir, "/id.key"},
		{"fleet_listen", s->self.host.address, ""},
		{"fleet_ca", dir, "/ca.pem"},
		{"fleet_cert", dir, "/cert.pem"},
		{"fleet_key", dir, "/key.pem"},
	};

	printf("# This machine is host %u (%s) of the fleet %s. %s " CONFIG_FILE ":\n",
	       s->self.host.number, s->self.host.name, s->self.fleet,
	       again ? "These must be the settings in" : "Add this to");
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		printf("%s%s = %s%s\n", again ? "# " : "", settings[i][0], settings[i][1],
		       settings[i][2]);
	if (strcmp(dir, SETTINGS_DIR) == 0)
		printf("# Then: systemctl %s\n",
		       again ? "restart ramet-fleet && systemctl reload ramet"
			     : "enable --now ramet-fleet && systemctl restart ramet");
	else
		printf("# Then start " FLEET_PROGRAM " %s " FLEET_TABLES
		       ", and restart the service\n",
		       dir);
}

static int join(const struct config *config, const struct token *token, const char *path,
		struct err *e)
{
	struct fleet_settings settings;
	struct readers readers;
	struct text text = {0};
	scoped_fd int dir = directory_open(path, e);
	scoped_free char *whole = dir < 0 ? NULL : realpath(path, NULL);

	if (dir < 0 || find_readers(&readers, config, path, e) < 0)
		return e->code;
	if (!whole)
		return err_set(e, errno, "find the path of %s", path);
	int ret = make_settings(&text, &settings, dir, path, token, e);
	if (ret == 0) {
		ret = write_all(dir, token, &text, &readers, e);
		if (ret == 0 && fchmod(dir, 0755) < 0)
			ret = err_set(e, errno, "open %s to its readers", path);
		if (ret == 0)
			show_next(&settings, whole, config->fleet_dir[0]);
		fleet_settings_free(&settings);
	}
	text_free(&text);
	return ret;
}

static int run_join(const struct config *config, int argc, char *const argv[], struct err *e)
{
	struct token token = {0};

	if (argc < 3 || argc > 4)
		return -EINVAL;
	bool piped = strcmp(argv[2], "-") == 0;
	scoped_fd int fd = piped ? dup(STDIN_FILENO) : open(argv[2], O_RDONLY | O_CLOEXEC);
	scoped_free char *text = read_fd(fd, piped ? "the token" : argv[2], e);
	if (!text)
		return e->code;
	int ret = json_read(text, strlen(text), token_fields, ARRAY_LEN(token_fields), &token, e);
	if (ret < 0)
		return err_say(
			e, EINVAL,
			"%.150s is no whole token of `rametctl fleet ca DIR host`: copy it again",
			piped ? "the standard input" : argv[2]);
	ret = join(config, &token, argc > 3 ? argv[3] : SETTINGS_DIR, e);
	json_free(token_fields, ARRAY_LEN(token_fields), &token);
	return ret;
}

/* --- check ------------------------------------------------------------------------------------ */

static int run_check(int argc, struct err *e)
{
	if (argc > 2)
		return -EINVAL;
	execl(FLEET_PROGRAM, "ramet-fleet", "--check", (char *)NULL);
	return err_set(e, errno, "execute " FLEET_PROGRAM);
}

/* -----------------------------------------------------------------------------------------------
 */

/* Runs a command. Returns -EINVAL without an error text if the arguments are wrong. */
static int run(const struct config *config, int argc, char *const argv[], struct err *e)
{
	const char *command = argc > 1 ? argv[1] : "";
	const char *tables = hosts_folder(config, argc > 2 ? argv[2] : NULL);

	if (fleet_option(argc, argv))
		return -EINVAL;
	if (strcmp(command, "init") == 0)
		return run_init(argc, argv, e);
	if (strcmp(command, "ca") == 0)
		return run_ca(argc, argv, e);
	if (strcmp(command, "join") == 0)
		return run_join(config, argc, argv, e);
	if (strcmp(command, "status") == 0)
		return argc > 3 ? -EINVAL : hosts_show(config, tables, e);
	if (strcmp(command, "haproxy") == 0)
		return argc > 3 ? -EINVAL : haproxy_show(config, tables, e);
	return strcmp(command, "check") == 0 ? run_check(argc, e) : -EINVAL;
}

int fleet_help(void)
{
	return fputs(usage, stdout) < 0 || fflush(stdout) != 0 ? COMMAND_FAILED : COMMAND_DONE;
}

int fleet_command(const struct config *config, int argc, char *const argv[])
{
	struct err e = {0};

	return fleet_ended(run(config, argc, argv, &e), &e, argc, argv, usage);
}
