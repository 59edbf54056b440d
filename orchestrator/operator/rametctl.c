// SPDX-License-Identifier: Apache-2.0
/*
 * rametctl: the operators' command. It sends its arguments to the service, which runs the command,
 * and shows the answer. It runs `doctor`, `top`, `backup`, `check` and `restore` itself, and
 * `audit` asks for the events part by part. While no service runs, `key` works too, because the
 * first key is made before the API is opened to others: rametctl then changes the catalogue itself,
 * as the service's account.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "orchestrator/config/config.h"
#include "orchestrator/operator/backup.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/operator/doctor.h"
#include "orchestrator/operator/fleet.h"
#include "orchestrator/operator/host-commands.h"
#include "orchestrator/operator/posture.h"
#include "orchestrator/operator/top.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/store/store.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/directory.h"

/* --- the words ------------------------------------------------------------------------------ */

struct words {
	char text[COMMAND_BYTES_MAX];
	size_t len;
};

static int gather(struct words *w, int argc, char *const argv[], struct err *e)
{
	for (int i = 0; i < argc; i++) {
		size_t len = strlen(argv[i]) + 1;

		if (len > sizeof(w->text) - w->len)
			return err_say(e, E2BIG, "the arguments have more than %d bytes",
				       COMMAND_BYTES_MAX);
		memcpy(w->text + w->len, argv[i], len);
		w->len += len;
	}
	return 0;
}

/* --- a service that runs -------------------------------------------------------------------- */

#define EXPLAIN_MS 5000

/* Connects to the service. Returns a descriptor; -ENOENT or -ECONNREFUSED if no service runs. */
static int reach(const struct config *config, struct err *e)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	int used = snprintf(at.sun_path, sizeof(at.sun_path), "%s/admin.sock", config->run_dir);
	if (used >= (int)sizeof(at.sun_path)) /* config.c keeps run_dir short enough */
		return err_set(e, ENAMETOOLONG, "run_dir");
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return take_fd(&fd);
	if (fd >= 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return err_say(e, errno,
			       "no service answers at %s: start rametd, or give its settings "
			       "(--config=FILE, --run_dir=DIR); only `key`, `audit`, `doctor`, "
			       "`fleet`, `host`, `backup`, `check` and `restore` work without one",
			       at.sun_path);
	if (fd >= 0 && errno == EACCES)
		return err_say(e, EACCES,
			       "only root may send commands to the service (%s): run this command "
			       "as root",
			       at.sun_path);
	return err_set(e, errno, "reach the service at %s", at.sun_path);
}

static int send_words(int fd, const struct words *w, struct err *e)
{
	for (size_t at = 0; at < w->len;) {
		ssize_t n = send(fd, w->text + at, w->len - at, MSG_NOSIGNAL);

		if (n < 0)
			return err_set(e, errno, "send the command to the service");
		at += (size_t)n;
	}
	return shutdown(fd, SHUT_WR) < 0 ? err_set(e, errno, "send the command to the service") : 0;
}

/* The warden's socket takes commands while no service runs, also if none can start. */
static void explain_wait(int fd)
{
	struct pollfd answer = {.fd = fd, .events = POLLIN};

	if (poll(&answer, 1, EXPLAIN_MS) == 0)
		fputs("rametctl: waiting for the service; if it does not start, "
		      "`journalctl -u ramet -u ramet-vms` says why\n",
		      stderr);
}

static const struct err broken = {
	.code = -EPIPE,
	.text = "the service closed the connection before its answer was complete; see its log"};

static char *read_all(int fd, struct err *e)
{
	char chunk[16384], *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	ssize_t n;

	while (out && (n = read(fd, chunk, sizeof(chunk))) > 0)
		fwrite(chunk, 1, (size_t)n, out);
	bool kept = out && fclose(out) == 0;
	if (kept && n == 0)
		return text;
	free(text);
	*e = broken;
	if (!kept)
		err_set(e, ENOMEM, "read the service's answer");
	return NULL;
}

/* Sends a command; returns the service's text, owned by the caller, and its status. NULL: *e is
 * filled. */
static char *ask(const struct config *config, const struct words *words, unsigned char *status,
		 struct err *e)
{
	scoped_fd int fd = reach(config, e);

	if (fd < 0 || send_words(fd, words, e) < 0)
		return NULL;
	explain_wait(fd);
	if (read(fd, status, 1) == 1)
		return read_all(fd, e);
	*e = broken;
	return NULL;
}

char *service_says(const struct config *config, const char *command, struct err *e)
{
	unsigned char status = COMMAND_FAILED;
	struct words words;

	words.len = (size_t)snprintf(words.text, sizeof(words.text), "%s", command) + 1;
	char *text = ask(config, &words, &status, e);
	if (!text || status == COMMAND_DONE)
		return text;
	err_say(e, EPROTO, "%.*s", (int)strcspn(text, "\n"), text);
	free(text);
	return NULL;
}

/* --- backup ---------------------------------------------------------------------------------- */

/* Receives the status; returns the descriptor that comes with it, or -1. */
static int receive_copy(int fd, unsigned char *status)
{
	MESSAGE_FDS_ROOM(control, 1);
	struct iovec iov = {status, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int copy;

	explain_wait(fd);
	message_want_fds(&msg, control, 1);
	if (recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	return message_take_fds(&msg, &copy) ? copy : -1;
}

/* Has the service copy its catalogue, for struct catalogue_source. `arg` is the struct config. */
static int copy_from_service(void *arg, const char *path, struct err *e)
{
	static const struct words words = {.text = COMMAND_COPY, .len = sizeof(COMMAND_COPY)};
	unsigned char status = COMMAND_FAILED;
	scoped_fd int fd = reach(arg, e);

	if (fd < 0 || send_words(fd, &words, e) < 0)
		return e->code;
	scoped_fd int copy = receive_copy(fd, &status);
	if (status == COMMAND_DONE && copy >= 0)
		return file_copy(copy, path, e);
	scoped_free char *text = read_all(fd, e);
	if (!text)
		return e->code;
	text[strcspn(text, "\n")] = '\0';
	return err_say(e, EIO, "%s",
		       text[0] ? text : "the service sent no copy of the catalogue; see its log");
}

/* Copies the catalogue for struct catalogue_source while no service runs. `arg` is the struct
 * config.
 */
static int copy_here(void *arg, const char *path, struct err *e)
{
	char catalogue[CATALOGUE_PATH_MAX], live[CATALOGUE_PATH_MAX];

	config_catalogue(arg, catalogue);
	config_live_catalogue(arg, live);
	if (access(live, F_OK) == 0)
		return err_say(e, EBUSY,
			       "the service was killed, so the catalogue on the disk may be old: "
			       "start rametd");
	return catalogue_copy(catalogue, path, e);
}

static int usage(const char *text)
{
	fprintf(stderr, "usage: rametctl %s\n", text);
	return COMMAND_USAGE;
}

static int run_backup(struct config *config, int argc, char *const argv[])
{
	struct catalogue_source source = {.copy = copy_here, .arg = config};
	bool check = strcmp(argv[0], "check") == 0;
	struct err e;

	if (check ? argc > 2 : argc != 2)
		return usage(check ? "check [DIR]" : "backup DIR");
	if (check && argc == 2)
		return check_run(config, NULL, argv[1]);
	scoped_fd int fd = reach(config, &e);
	if (fd < 0 && fd != -ENOENT && fd != -ECONNREFUSED)
		return command_failed(&e);
	source.online = fd >= 0;
	if (source.online)
		source.copy = copy_from_service;
	close_fd(&fd);
	return check ? check_run(config, &source, NULL) : backup_run(config, &source, argv[1]);
}

static int run_restore(const struct config *config, int argc, char *const argv[])
{
	bool skip = argc == 3 && strcmp(argv[2], "--skip-damaged") == 0;

	if (argc != 2 && !skip)
		return usage("restore DIR [--skip-damaged]");
	return restore_run(config, argv[1], skip);
}

/* --- audit ---------------------------------------------------------------------------------- */

#define FOLLOW_MS 500

/* Prints the lines; returns the number of the last event, or `since` if there is none. */
static unsigned long long show_events(char *text, unsigned long long since)
{
	size_t len = strlen(text);

	fputs(text, stdout);
	if (!len)
		return since;
	text[len - 1] = '\0';
	const char *before = strrchr(text, '\n');
	sscanf(before ? before + 1 : text, "{\"n\":%llu,", &since);
	return since;
}

/* Asks the service for the events after number `since` until there are no more; with `follow`, for
 * ever. */
static int follow_audit(const struct config *config, unsigned long long since, bool follow)
{
	for (;;) {
		unsigned char status = COMMAND_FAILED;
		unsigned long long before = since;
		struct words words;
		struct err e;

		words.len = (size_t)snprintf(words.text, sizeof(words.text), "audit%c--since=%llu",
					     0, since) +
			    1;
		scoped_free char *text = ask(config, &words, &status, &e);
		if (!text)
			return command_failed(&e);
		if (status != COMMAND_DONE) {
			fputs(text, stderr);
			return status;
		}
		since = show_events(text, since);
		if (fflush(stdout) != 0)
			return COMMAND_FAILED;
		if (since != before)
			continue;
		if (!follow)
			return COMMAND_DONE;
		nanosleep(&(struct timespec){.tv_nsec = FOLLOW_MS * 1000000}, NULL);
	}
}

static int run_here(const struct config *config, const struct words *w);

static int run_audit(const struct config *config, int argc, char *const argv[])
{
	bool follow = argc > 1 && strcmp(argv[argc - 1], "--follow") == 0;
	int n = argc - follow;
	const char *since = "0";
	struct words words = {.len = 0};
	char *end;
	struct err e;

	if (n == 2 && strncmp(argv[1], "--since=", 8) == 0)
		since = argv[1] + 8;
	else if (n == 3 && strcmp(argv[1], "--since") == 0)
		since = argv[2];
	else if (n > 1)
		return usage("audit [--since N] [--follow]");
	errno = 0;
	unsigned long long number = strtoull(since, &end, 10);
	if (errno || *since < '0' || *since > '9' || *end)
		return usage("audit [--since N] [--follow]: N is the number (\"n\") of an event");
	scoped_fd int fd = reach(config, &e);
	if (fd >= 0) {
		close_fd(&fd);
		return follow_audit(config, number, follow);
	}
	if (follow || (fd != -ENOENT && fd != -ECONNREFUSED))
		return command_failed(&e);
	return gather(&words, n, argv, &e) < 0 ? command_failed(&e) : run_here(config, &words);
}

static int run_top(const struct config *config, int argc, char *const argv[])
{
	bool once = argc == 2 && strcmp(argv[1], "--once") == 0;

	if (argc > 1 && !once)
		return usage("top [--once]");
	return top_run(config, once);
}

/* --- doctor --------------------------------------------------------------------------------- */

static void add_finding(struct doctor_printer *p, const char *check, enum doctor_result result,
			const char *text, const char *remedy)
{
	const struct doctor_finding finding = {check, result, text, remedy};

	doctor_print(p, &finding);
}

/* Makes a sandbox in the service and forks it. */
static void check_canary(const struct config *config, struct doctor_printer *p)
{
	unsigned char status = COMMAND_FAILED;
	struct err e;
	static const struct words words = {.text = "canary", .len = sizeof("canary")};
	scoped_free char *text = ask(config, &words, &status, &e);

	if (text)
		text[strcspn(text, "\n")] = '\0';
	if (text && status == COMMAND_DONE)
		add_finding(p, "canary", DOCTOR_OK, text, NULL);
	else
		add_finding(p, "canary", DOCTOR_PROBLEM, text ? text : e.text,
			    "`journalctl -u ramet -u ramet-vms` and `rametctl checks` say more");
}

static void check_service(const struct config *config, struct doctor_printer *p)
{
	struct err e;
	int fd = reach(config, &e);

	if (fd < 0) {
		add_finding(p, "service", DOCTOR_WARNING, e.text,
			    "`systemctl start ramet`; then run this command again, as root. If it "
			    "does not start, `journalctl -u ramet -u ramet-vms` says why");
		return;
	}
	close_fd(&fd);
	add_finding(p, "service", DOCTOR_OK, "rametd runs", NULL);
	check_canary(config, p);
}

static int run_doctor(const struct config *config, int argc, char *const argv[])
{
	struct doctor_printer printer = {.out = stdout,
					 .json = argc == 2 && strcmp(argv[1], "--json") == 0};
	const struct doctor_host host = {.root = "",
					 .config = config,
					 .cores_are_apart = config->core_scheduling[0] == 'y' &&
							    posture_can_part_cores(),
					 .found = doctor_print,
					 .arg = &printer};

	if (argc > 1 && !printer.json)
		return usage("doctor [--json]");
	doctor_print_begin(&printer);
	doctor_check_files(&host);
	doctor_check_live(&host);
	check_service(config, &printer);
	enum doctor_result worst = doctor_print_end(&printer);
	return fflush(stdout) != 0 || worst == DOCTOR_PROBLEM ? COMMAND_FAILED : COMMAND_DONE;
}

/* --- no service runs ------------------------------------------------------------------------ */

static const struct command *const tables[] = {key_commands, audit_commands, NULL};

static int become_account(const struct config *config, struct err *e)
{
	struct account account;
	int ret = account_find(&account, config->user, e);

	if (ret < 0)
		return ret;
	if (geteuid() != 0)
		return err_say(e, EPERM, "no service runs, and only root may open its catalogue");
	int dir = directory_for_account(config->state_dir, account, e);
	if (dir < 0)
		return err_context(e, "state_dir");
	close_fd(&dir);
	return account_become(account.uid, account.gid, e);
}

static int run_here(const struct config *config, const struct words *w)
{
	char path[CATALOGUE_PATH_MAX], live[CATALOGUE_PATH_MAX];
	static struct arguments args;
	struct command_env env = {.config = config};
	enum command_wait wait; /* not needed: each change waited for the disk */
	struct store *store = NULL;
	struct err e;

	config_catalogue(config, path);
	config_live_catalogue(config, live);
	if (arguments_parse(&args, w->text, w->len, &e) < 0 || become_account(config, &e) < 0 ||
	    store_fold(path, live, &e) < 0 || store_open(&store, path, &e) < 0)
		return command_failed(&e);
	env.store = store;
	if (store_wait_for_disk(store, &e) < 0 || keys_new(&env.keys, store, &e) < 0) {
		store_close(store);
		return command_failed(&e);
	}
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int status = out ? (int)command_run(tables, &env, &args, out, &wait) : COMMAND_FAILED;
	if (!out || fclose(out) != 0)
		status = COMMAND_FAILED;
	else
		fputs(text, status == COMMAND_DONE ? stdout : stderr);
	free(text);
	keys_free(env.keys);
	store_close(store);
	return fflush(stdout) == 0 ? status : COMMAND_FAILED;
}

/* ------------------------------------------------------------------------------------------- */

/* Returns the number of arguments before the command: the program's name and the settings
 * (--config=FILE, --run_dir=DIR). */
static int settings_count(int argc, char *const argv[])
{
	int n = 1;

	while (n < argc && strncmp(argv[n], "--", 2) == 0 && strchr(argv[n], '='))
		n++;
	return n;
}

/* --- help ----------------------------------------------------------------------------------- */

#define ROW(words, arguments, help, run, n_plain, wait)                                            \
	{words, arguments, help, NULL, n_plain, wait},

static const struct command others[] = {
	HOST_COMMANDS(ROW){NULL, NULL, NULL, NULL, 0, COMMAND_AT_ONCE}};
static const struct command *const all_tables[] = {key_commands, audit_commands, others, NULL};

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Returns whether help is asked for: "help …", "… --help", or nothing at all. */
static bool wants_help(int argc, char *const argv[])
{
	if (argc == 0 || strcmp(argv[0], "help") == 0)
		return true;
	for (int i = 0; i < argc; i++)
		if (is_help(argv[i]))
			return true;
	return false;
}

/* Shows the help for the words up to --help, also while no service runs. */
static int show_help(int argc, char *const argv[])
{
	static struct arguments args;

	if (argc > 0 && strcmp(argv[0], "help") == 0) {
		argc--;
		argv++;
	}
	while (args.argc < argc && args.argc < COMMAND_ARGS_MAX && !is_help(argv[args.argc])) {
		args.argv[args.argc] = argv[args.argc];
		args.argc++;
	}
	if (args.argc && strcmp(args.argv[0], "fleet") == 0)
		return fleet_help();
	if (args.argc && strcmp(args.argv[0], "host") == 0)
		return host_help();
	int status = (int)command_help(all_tables, &args, stdout);
	return fflush(stdout) == 0 ? status : COMMAND_FAILED;
}

/* Returns whether a command begins with the word. */
static bool is_command(const char *word)
{
	size_t len = strlen(word);

	for (const struct command *const *table = all_tables; *table; table++)
		for (const struct command *c = *table; c->words; c++)
			if (strncmp(c->words, word, len) == 0 && strchr(" ", c->words[len]))
				return true;
	return false;
}

/* ------------------------------------------------------------------------------------------- */

int main(int argc, char *argv[])
{
	struct config config;
	struct words words = {.len = 0};
	unsigned char status = COMMAND_FAILED;
	struct err e;
	int settings = settings_count(argc, argv), n = argc - settings;
	char **command = argv + settings;

	log_init("rametctl", LOG_WARN);
	if (wants_help(n, command))
		return show_help(n, command);
	if (strcmp(command[0], "--version") == 0)
		return puts("rametctl " RAMET_VERSION) < 0 ? COMMAND_FAILED : COMMAND_DONE;
	if (!is_command(command[0])) {
		fprintf(stderr,
			"rametctl: there is no command \"%.60s\": `rametctl help` lists "
			"them\n",
			command[0]);
		return COMMAND_USAGE;
	}
	if (config_load(&config, settings, argv, &e) < 0 || gather(&words, n, command, &e) < 0)
		return command_failed(&e);
	if (strcmp(command[0], "fleet") == 0)
		return fleet_command(&config, n, command);
	if (strcmp(command[0], "host") == 0)
		return host_command(&config, n, command);
	if (strcmp(command[0], "top") == 0)
		return run_top(&config, n, command);
	if (strcmp(command[0], "audit") == 0)
		return run_audit(&config, n, command);
	if (strcmp(command[0], "doctor") == 0)
		return run_doctor(&config, n, command);
	if (strcmp(command[0], "backup") == 0 || strcmp(command[0], "check") == 0)
		return run_backup(&config, n, command);
	if (strcmp(command[0], "restore") == 0)
		return run_restore(&config, n, command);
	scoped_free char *text = ask(&config, &words, &status, &e);
	if (text) {
		FILE *out = status == COMMAND_DONE ? stdout : stderr;

		fputs(text, out);
		return fflush(out) == 0 ? status : COMMAND_FAILED;
	}
	if ((e.code == -ENOENT || e.code == -ECONNREFUSED) && strcmp(command[0], "key") == 0)
		return run_here(&config, &words);
	return command_failed(&e);
}
