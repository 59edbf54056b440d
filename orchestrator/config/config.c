// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text-file.h"
#include "orchestrator/config/tiers.h"
#include "proto/warden.h"

#define FILE_MAX_BYTES (64u << 10)
#define NAME_MAX_BYTES 32

enum kind {
	NUMBER,	 /* uint32_t in [min, max] */
	TEXT,	 /* printable; min 1: not empty */
	PATH,	 /* absolute; min 1: not empty */
	ADDRESS, /* IPv4 or IPv6, in numbers */
	CHOICE,	 /* one word of `choices` */
	TIER,	 /* limits as in tiers.h */
	RANGES,	 /* ranges or addresses, IPv4 or IPv6, like 10.0.0.0/8,fd00::1 */
	DOMAIN,	 /* a domain name, with an optional http:// or https:// and port */
};

struct setting {
	const char *name;
	enum kind kind;
	size_t offset;
	uint32_t min, max; /* NUMBER: the range; else: range of the length in bytes, without NUL */
	const char *initial; /* the default, as written in a configuration file */
	const char *choices; /* CHOICE: words with a space after each */
	const char *help;    /* NULL: covered by the help of the setting above */
};

#define AT(field)   offsetof(struct config, field)
#define ROOM(field) (sizeof(((struct config *)0)->field) - 1)
#define NUM(field, lo, hi, def, about)                                                             \
	{                                                                                          \
#field, NUMBER, AT(field), lo, hi, def, NULL, about                                \
	}
#define STR(field, kind, least, def, about)                                                        \
	{                                                                                          \
#field, kind, AT(field), least, ROOM(field), def, NULL, about                      \
	}

/* run_dir is shorter than the other paths: RUN_DIR/vm/16383/ctl.sock must fit in a sun_path. */
#define RUN_DIR_MAX 80
#define OURS_MIB    256 /* the part of memory_mib that Ramet's own processes need */

static const struct setting settings[] = {
	STR(listen_host, ADDRESS, 1, "127.0.0.1",
	    "Address that the API listens on, IPv4 or IPv6, in numbers."),
	NUM(listen_port, 1, 65535, "7070", "TCP port of the API."),
	{"allow_open", CHOICE, AT(allow_open), 1, ROOM(allow_open), "no", "no yes ",
	 "no: on an address that other machines can reach, the API is served only with TLS\n"
	 "and once a key exists (`rametctl key create`), because without keys everybody may do\n"
	 "everything. yes: serve it without these conditions, in a closed network or behind a\n"
	 "TLS proxy."},
	STR(tls_cert, PATH, 0, "",
	    "PEM files of the certificate chain and its key; set both or none. Empty: no TLS.\n"
	    "The account in `user` must be able to read them."),
	STR(tls_key, PATH, 0, "", NULL),
	STR(region, TEXT, 0, "",
	    "Names of this host's region and public endpoint, as reported by the API. Empty: not\n"
	    "reported."),
	STR(endpoint, TEXT, 0, "", NULL),
	STR(regions, TEXT, 0, "",
	    "Other regions and their endpoints, as reported by GET /v1/regions, like\n"
	    "hel=https://hel.example.com,iad=https://iad.example.com."),
	STR(sandbox_domain, DOMAIN, 0, "",
	    "A domain whose names lead to this host (a DNS wildcard record, *.DOMAIN). A server "
	    "on\n"
	    "a port of a sandbox is then reached at https://PORT-ID.DOMAIN/, ID without its sbx_.\n"
	    "A scheme and a port may be given for the links that the API returns, such as\n"
	    "http://localhost:7070. Empty: only below /v1/sandboxes/ID/ports/PORT/."),
	NUM(port_idle_timeout_s, 10, 86400, "900",
	    "A connection to a server in a sandbox is closed when no byte passed for so long."),
	NUM(visitor_connections, 1, 512, "64",
	    "Connections of one client address (IPv6: each /64) to shared ports of all sandboxes.\n"
	    "A browser opens up to six at once for a page over HTTP/1.1, and all browsers behind\n"
	    "one NAT or proxy have one address. The visitors of a sandbox get 64 in all."),
	STR(trusted_proxies, RANGES, 0, "",
	    "Addresses of proxies in front of the API, like 10.1.0.0/16. A request from one of\n"
	    "them counts against the limits of the client named in its X-Forwarded-For header.\n"
	    "The header Forwarded is never read."),
	NUM(client_connections_s, 0, 1000000, "200",
	    "Limits per second for each client address (IPv6: each /64), with bursts of up to ten\n"
	    "seconds' worth; 0: no limit. In order: new connections (each with a TLS handshake),\n"
	    "requests without a valid API key, and wrong keys. While there are no keys, clients\n"
	    "on this machine have no limit."),
	NUM(client_requests_s, 0, 1000000, "200", NULL),
	NUM(client_failures_s, 0, 1000000, "20", NULL),
	NUM(tenant_requests_s, 0, 1000000, "2000",
	    "The same limit for all requests of one tenant."),
	STR(vmm, PATH, 1, "/usr/lib/ramet/ramet-vmm", "Program that VM processes run."),
	STR(kernel, PATH, 1, "/usr/share/ramet/vmlinux",
	    "Guest kernel (uncompressed ELF), initramfs and root file system of the default\n"
	    "template."),
	STR(initramfs, PATH, 1, "/usr/share/ramet/initramfs.cpio", NULL),
	STR(rootfs, PATH, 1, "/usr/share/ramet/rootfs.ext4", NULL),
	STR(warmup, PATH, 0, "",
	    "File of Python code to run in the default template before its snapshot is taken:\n"
	    "whatever it imports is imported in each sandbox. Empty: none."),
	STR(templates_dir, PATH, 0, "/usr/share/ramet/templates",
	    "Further templates: each folder in it is one, with rootfs.ext4, warmup.py or\n"
	    "template.conf. Without rootfs.ext4 it has the default template's root file system.\n"
	    "Empty: none."),
	STR(ui_dir, PATH, 0, "/usr/share/ramet/ui",
	    "Folder with the files of the web page /ui/, which are read when the service starts.\n"
	    "Empty: no page."),
	STR(state_dir, PATH, 2, "/var/lib/ramet",
	    "Folder for what survives a reboot: catalogue, snapshots, disks. Created if missing."),
	{"run_dir", PATH, AT(run_dir), 2, RUN_DIR_MAX, "/run/ramet", NULL,
	 "Folder for what does not survive a reboot: control sockets, logs of VM processes."},
	STR(user, TEXT, 1, "ramet",
	    "Account of the service: a name, or a number that is both uid and gid. Nothing else\n"
	    "may use it."),
	STR(cgroup, PATH, 0, "",
	    "cgroup v2 path (/ is the root) under which rametd makes its own; created if\n"
	    "missing. Empty: the cgroup that rametd was started in, which must contain no other\n"
	    "process."),
	NUM(vm_uid_base, 1000, 4000000000, "300000",
	    "The VM process in slot N runs with uid and gid vm_uid_base + N, and ramet-notify\n"
	    "with vm_uid_base + 16384. No account may use these."),
	NUM(max_vms, 1, WARDEN_SLOTS_MAX, "256", "Maximum number of VM processes at one time."),
	NUM(memory_mib, 0, 4294967295, "0",
	    "Memory that VMs and rametd may use together. 0: all but a little, which is reserved\n"
	    "for the host's own programs. When it is used up, the kernel kills the largest VM of\n"
	    "a tenant above its share."),
	NUM(memory_overcommit, 0, 100000, "0",
	    "RAM that all sandboxes together may be promised, in percent of that memory;\n"
	    "requests beyond it are refused. Besides their RAM, sandboxes use memory for VM\n"
	    "processes and the snapshots of forks: with 100, a VM is rarely killed because of\n"
	    "others. 0: no limit, since most sandboxes use a part of their RAM and share their\n"
	    "template's memory."),
	NUM(cpu_weight, 1, 10000, "1000",
	    "CPU weight of VMs and rametd together, when CPUs are short; other services of the\n"
	    "host have 100. Within it, rametd has priority over VMs, and a VM that a request\n"
	    "waits for has priority over running ones. In a cgroup that systemd made, CPUWeight=\n"
	    "of its unit applies instead."),
	{"core_scheduling", CHOICE, AT(core_scheduling), 1, ROOM(core_scheduling), "yes", "yes no ",
	 "Whether a core with two threads (SMT) runs one VM at a time, so that no VM can\n"
	 "observe another through the core's caches. no: more throughput, for VMs that trust\n"
	 "each other."},
	NUM(disk_bytes_s, 0, 4294967295, "250000000",
	    "Limits of each VM's disk; 0: no limit. Bytes and operations per second on files of\n"
	    "the host, with bursts of up to one second's worth. An fsync counts as 20 operations.\n"
	    "A changed limit applies to VM processes started after the change."),
	NUM(disk_ops_s, 0, 100000000, "5000", NULL),
	NUM(output_mib, 0, 1048576, "0",
	    "Memory for the output of all sandboxes: events for replay, and unfinished lines. 0:\n"
	    "1/128 of the host's memory, at least 64 MiB. Above the limit, the oldest events of\n"
	    "the tenant with the most output are dropped."),
	NUM(vcpus, 1, 32, "2", "vCPUs, RAM and disk size of the default template."),
	NUM(ram_mib, 128, 65536, "1024", NULL),
	NUM(rootfs_gb, 1, 1024, "4", NULL),
	STR(sizes, TEXT, 0, "auto",
	    "Sizes of the default template whose snapshots are made ahead of requests, while the\n"
	    "service is idle: RAM in MiB x vCPUs, and x GB of disk if it is not the template's\n"
	    "own, like 2048x2,4096x4x16. The log and ramet_sizes_unlisted_total say which sizes\n"
	    "requests had to wait for. auto: no further size of it, but each other template in\n"
	    "its own size; up to 8 snapshots and 2 GB. Empty: none."),
	NUM(pool_blank_vms, 0, WARDEN_SLOTS_MAX, "6",
	    "Number of blank VMs (VM processes without a guest) and of warm sandboxes (restored\n"
	    "from the default template) to keep ready."),
	NUM(pool_warm, 0, WARDEN_SLOTS_MAX, "2", NULL),
	NUM(pool_others, 0, 16, "2",
	    "Number of warm sandboxes to keep ready of each further size and template that is\n"
	    "prepared ahead or was requested recently. Only one of each, if all of them together\n"
	    "would take more than half of max_vms."),
	NUM(fork_max, 1, 1000, "32", "Maximum number of children of one fork."),
	NUM(timeout_s, 1, 31536000, "86400",
	    "Default lifetime and idle timeout of a sandbox, in seconds."),
	NUM(idle_timeout_s, 1, 31536000, "3600", NULL),
	NUM(boot_timeout_s, 1, 86400, "300", "Maximum time for a template to boot, in seconds."),
	NUM(stop_timeout_s, 0, 3600, "10",
	    "Time that running requests get to end when rametd stops, in seconds."),
	STR(network, RANGES, 0, "10.251.0.0/17",
	    "IPv4 range that nothing else uses; the link between each VM and the host takes two\n"
	    "of its addresses. Empty: VMs have no network."),
	STR(dns, ADDRESS, 0, "",
	    "Name server of the VMs (IPv4). Empty: the first one that this host uses, which may\n"
	    "reveal names of internal zones to VMs; a public resolver does not."),
	{"ipv6", CHOICE, AT(ipv6), 1, ROOM(ipv6), "auto", "auto yes no ",
	 "Whether VMs reach the internet over IPv6 as well. auto: if this host has an IPv6\n"
	 "default route when the service starts."},
	STR(allow, RANGES, 0, "",
	    "Private ranges that VMs may reach, like 10.1.0.0/16,192.168.7.5. A range that\n"
	    "contains an address of this host exposes every service that listens there."),
	NUM(net_bytes_s, 0, 4294967295, "125000000",
	    "Limits of each VM's network; 0: no limit. Bytes and packets per second in each\n"
	    "direction, new connections per second, and concurrent connections."),
	NUM(net_packets_s, 0, 100000000, "100000", NULL),
	NUM(net_connections_s, 0, 1000000, "500", NULL),
	NUM(net_connections, 0, 1000000, "1024", NULL),
	STR(tier_free, TIER, 0, TIER_FREE,
	    "Limits of each tier. Make keys with `rametctl key create --tier NAME`. Values that a\n"
	    "line leaves out are as shown here. Without keys there are no such limits.\n"
	    "With private_memory=yes, each tenant gets its own copy of the memory of snapshots:\n"
	    "others cannot learn from the host's cache what the tenant reads, but creates are\n"
	    "slower."),
	STR(tier_pro, TIER, 0, TIER_PRO, NULL),
	STR(tier_scale, TIER, 0, TIER_SCALE, NULL),
	STR(tier_enterprise, TIER, 0, TIER_ENTERPRISE, NULL),
	STR(fleet_dir, PATH, 0, "",
	    "Makes this host part of a fleet: the folder of hosts.json, the table of its hosts.\n"
	    "Empty: no fleet."),
	STR(fleet_id_key, PATH, 0, "",
	    "File with the fleet's key for ids, 64 hexadecimal digits, and perhaps a second one:\n"
	    "the first makes ids, both are tried when one is read. The same on all hosts."),
	STR(fleet_listen, TEXT, 0, "",
	    "Address and port for requests that other hosts of the fleet pass on, like\n"
	    "10.0.0.17:7443. The port is the same on all hosts: the service may connect to no\n"
	    "other. Only hosts can connect, by the following certificates."),
	STR(fleet_ca, PATH, 0, "",
	    "PEM files: the fleet's own certificate authority, this host's certificate, whose\n"
	    "common name is its name in the table, and its key."),
	STR(fleet_cert, PATH, 0, "", NULL),
	STR(fleet_key, PATH, 0, "", NULL),
	NUM(max_body_bytes, 4096, 1073741824, "67108864",
	    "Maximum size of a request body, other than that of a file or archive."),
	{"log_level", CHOICE, AT(log_level), 1, ROOM(log_level), "info", "debug info warn error ",
	 "Lowest level that is logged: debug, info, warn or error."},
	{"log_format", CHOICE, AT(log_format), 1, ROOM(log_format), "text", "text json ",
	 "Format of each line of the log: text, or a JSON object."},
	NUM(audit_max_mib, 1, 1024, "16",
	    "Space and time for the audit log in the catalogue: what happened to each sandbox and\n"
	    "key (docs/observing.md). Without space, the oldest events are removed; a MiB holds\n"
	    "at least 2,048 events."),
	NUM(audit_days, 1, 36500, "90", NULL),
	STR(webhook_url, TEXT, 0, "",
	    "URL to which each event of the audit log is sent, in a POST signed with the secret "
	    "(at\n"
	    "least 16 bytes; better set in the environment than in a file that others can read).\n"
	    "Empty: none."),
	STR(webhook_secret, TEXT, 0, "", NULL),
	STR(webhook_events, TEXT, 1, "sandbox.*",
	    "Events to send, like sandbox.frozen,sandbox.died,key.* or *."),
	{"webhook_http", CHOICE, AT(webhook_http), 1, ROOM(webhook_http), "no", "no yes ",
	 "yes: webhook_url and otlp_url may be http:// to another host. Everyone on the network\n"
	 "path can then read the events and spans."},
	STR(otlp_url, TEXT, 0, "",
	    "URL of a collector to which a span of each request to create, call, fork, freeze or\n"
	    "resume is sent (OTLP/HTTP, JSON), like http://127.0.0.1:4318/v1/traces. Empty: none."),
	STR(notify, PATH, 1, "/usr/lib/ramet/ramet-notify",
	    "Program that sends webhooks and spans."),
};

#define SETTINGS ARRAY_LEN(settings)

/* --- one value ------------------------------------------------------------------------------- */

/* A part of the input; not NUL-terminated. */
struct value {
	const char *p;
	size_t len;
};

/* The longest valid value, plus room to quote from a value that is too long. */
#define VALUE_MAX (512 + 64)

static int set_number(const struct setting *s, struct config *c, const char *text, struct err *e)
{
	uint32_t number;

	if (!number_parse(text, s->min, s->max, &number))
		return err_say(e, EINVAL, "%s must be a whole number from %u to %u, not \"%.60s\"",
			       s->name, s->min, s->max, text);
	memcpy((char *)c + s->offset, &number, sizeof(number));
	return 0;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; *p; p = strchr(p, ' ') + 1)
		if ((size_t)(strchr(p, ' ') - p) == len && strncmp(p, text, len) == 0)
			return true;
	return false;
}

static int check_ranges(const struct setting *s, const char *text, struct err *e)
{
	char part[RANGE_TEXT_MAX];
	struct range range;

	while (range_next(&text, part))
		if (!range_parse(&range, part))
			return err_say(
				e, EINVAL,
				"%s must be ranges like 10.0.0.0/8 or fd00::/8, with no bits "
				"set after the prefix, not \"%.60s\"",
				s->name, part);
	return 0;
}

/* Returns the length of the domain name at the start of `text`; 0: there is none. Labels have lower
 * case letters, digits and inner hyphens. */
static size_t domain_len(const char *text)
{
	size_t len = 0, label = 0;

	for (;; len++) {
		char c = text[len];
		bool hyphen = c == '-';

		if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (hyphen && label)) {
			label++;
			continue;
		}
		if (!label || label > 63 || text[len - 1] == '-')
			return 0;
		if (c != '.')
			return len;
		label = 0;
	}
}

/* A name below the domain has 39 more characters ("65535-", 32 digits and a dot), of at most 253.
 */
#define DOMAIN_MAX 214

static int check_domain(const struct setting *s, const char *text, struct err *e)
{
	const char *scheme = strstr(text, "://");
	bool known =
		!scheme || strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
	const char *name = scheme ? scheme + 3 : text;
	size_t len = domain_len(name);
	uint32_t port;

	if (known && len && len <= DOMAIN_MAX &&
	    (!name[len] ||
	     (name[len] == ':' && number_parse(name + len + 1, 1, UINT16_MAX, &port))))
		return 0;
	return err_say(e, EINVAL,
		       "%s must be a domain name of at most %d characters in lower case, like "
		       "sandboxes.example.com or http://localhost:7070, not \"%.60s\"",
		       s->name, DOMAIN_MAX, text);
}

static int check_tier(const struct setting *s, const char *text, struct err *e)
{
	struct tier any;

	return tier_parse(&any, text, e) < 0 ? err_context(e, "%s", s->name) : 0;
}

static int check_text(const struct setting *s, const char *text, struct err *e)
{
	size_t len = strlen(text);

	if (len == 0)
		return s->min == 0 ? 0 : err_say(e, EINVAL, "%s must not be empty", s->name);
	if (s->kind == CHOICE)
		return is_choice(s->choices, text)
			       ? 0
			       : err_say(e, EINVAL, "%s must be one of: %s(not \"%.60s\")", s->name,
					 s->choices, text);
	if (len > s->max)
		return err_say(e, EINVAL, "%s must be at most %u bytes long, not %zu", s->name,
			       s->max, len);
	if (s->kind == PATH && text[0] != '/')
		return err_say(e, EINVAL, "%s must be an absolute path, not \"%.60s\"", s->name,
			       text);
	if (len < s->min)
		return err_say(e, EINVAL, "%s must be at least %u bytes long, not \"%s\"", s->name,
			       s->min, text);
	if (s->kind == ADDRESS && !is_address(text))
		return err_say(e, EINVAL,
			       "%s must be an IPv4 or IPv6 address in numbers, not \"%.60s\"",
			       s->name, text);
	if (s->kind == TIER)
		return check_tier(s, text, e);
	if (s->kind == DOMAIN)
		return check_domain(s, text, e);
	return s->kind == RANGES ? check_ranges(s, text, e) : 0;
}

static int set_value(const struct setting *s, struct config *c, struct value v, struct err *e)
{
	char text[VALUE_MAX];

	if (v.len >= sizeof(text))
		return err_say(e, EINVAL, "%s is %zu bytes long, which is too long", s->name,
			       v.len);
	memcpy(text, v.p, v.len);
	text[v.len] = '\0';
	for (size_t i = 0; i < v.len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return err_say(e, EINVAL, "%s contains a control character (0x%02x)",
				       s->name, (unsigned char)text[i]);
	if (s->kind == NUMBER)
		return set_number(s, c, text, e);
	int r = check_text(s, text, e);
	if (r < 0)
		return r;
	char *field = (char *)c + s->offset;
	memset(field, 0, s->max + 1);
	memcpy(field, text, v.len);
	return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Returns the Levenshtein distance of two names, both shorter than NAME_MAX_BYTES. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_BYTES + 1], lb = strlen(b);

	for (size_t j = 0; j <= lb; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = least(change, 1 + least(row[j], row[j - 1]));
		}
	}
	return row[lb];
}

/* Returns -EINVAL with a message that suggests the setting with the most similar name. */
static int unknown(const char *name, struct err *e)
{
	const struct setting *nearest = NULL;
	size_t best = least(4, strlen(name) / 3 + 1); /* this many differences are no typo */

	for (size_t i = 0; i < SETTINGS; i++) {
		size_t d = distance(name, settings[i].name);

		if (d < best) {
			best = d;
			nearest = &settings[i];
		}
	}
	if (nearest)
		return err_say(e, EINVAL, "there is no setting \"%s\"; did you mean %s?", name,
			       nearest->name);
	return err_say(e, EINVAL, "there is no setting \"%s\"", name);
}

/* Sets *out to the index of the setting called `name`. Returns -EINVAL with a suggestion when there
 * is none. */
static int find(struct value name, size_t *out, struct err *e)
{
	char text[NAME_MAX_BYTES];

	if (name.len == 0)
		return err_say(e, EINVAL, "there is no name before the =");
	if (name.len >= sizeof(text))
		return err_say(e, EINVAL, "there is no setting \"%.*s...\"", NAME_MAX_BYTES - 1,
			       name.p);
	memcpy(text, name.p, name.len);
	text[name.len] = '\0';
	for (size_t i = 0; i < SETTINGS; i++)
		if (strcmp(settings[i].name, text) == 0) {
			*out = i;
			return 0;
		}
	return unknown(text, e);
}

/* --- the file -------------------------------------------------------------------------------- */

static bool is_blank(char ch)
{
	return ch == ' ' || ch == '\t' || ch == '\r';
}

static struct value trimmed(const char *p, const char *end)
{
	while (p < end && is_blank(*p))
		p++;
	while (end > p && is_blank(end[-1]))
		end--;
	return (struct value){p, (size_t)(end - p)};
}

/* Returns where the comment starts (a # that begins the line or follows a blank), or `end`. */
static const char *comment(const char *p, const char *end)
{
	for (const char *at = p; at < end; at++)
		if (*at == '#' && (at == p || is_blank(at[-1])))
			return at;
	return end;
}

/* Parses one line. `seen` holds, for each setting, the number of the line that set it; 0: none. */
static int parse_line(struct config *c, const char *p, const char *end, unsigned line,
		      unsigned *seen, struct err *e)
{
	size_t i;

	end = comment(p, end);
	if (trimmed(p, end).len == 0)
		return 0;
	const char *equals = memchr(p, '=', (size_t)(end - p));
	if (!equals)
		return err_say(e, EINVAL,
			       "expected `name = value` or a comment that begins with #");
	int r = find(trimmed(p, equals), &i, e);
	if (r < 0)
		return r;
	if (seen[i])
		return err_say(e, EINVAL, "%s is set twice; line %u set it first", settings[i].name,
			       seen[i]);
	seen[i] = line;
	return set_value(&settings[i], c, trimmed(equals + 1, end), e);
}

int config_parse(struct config *out, const char *name, const char *text, size_t len, struct err *e)
{
	unsigned seen[SETTINGS] = {0}, line = 1;
	const char *end = text + len;

	for (const char *p = text; p < end; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));

		if (!eol)
			eol = end;
		if (parse_line(out, p, eol, line, seen, e) < 0)
			return err_context(e, "%s:%u", name, line);
		p = eol + 1;
	}
	return 0;
}

static int load_file(struct config *c, const char *path, bool must_exist, struct err *e)
{
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len;

	if (fd < 0 && errno == ENOENT && !must_exist)
		return 0;
	if (fd < 0)
		return err_set(e, errno, "open the configuration file %s", path);
	scoped_free char *text = file_text(fd, FILE_MAX_BYTES, &len, e);
	if (text)
		return config_parse(c, path, text, len, e);
	if (e->code != -EFBIG)
		return err_set(e, -e->code, "read the configuration file %s", path);
	return err_say(e, EFBIG, "%s is not a configuration file: it is larger than %u KiB", path,
		       FILE_MAX_BYTES >> 10);
}

/* --- environment and flags ------------------------------------------------------------------- */

/* Applies the environment variable that belongs to the setting. */
static int load_variable(struct config *c, const struct setting *s, struct err *e)
{
	char variable[sizeof("RAMET_") + NAME_MAX_BYTES] = "RAMET_";
	size_t used = strlen(variable);

	for (const char *p = s->name; *p; p++)
		variable[used++] = *p == '_' ? '_' : (char)(*p - 'a' + 'A');
	variable[used] = '\0';
	const char *text = getenv(variable);
	if (text && set_value(s, c, (struct value){text, strlen(text)}, e) < 0)
		return err_context(e, "environment variable %s", variable);
	return 0;
}

static int load_environment(struct config *c, struct err *e)
{
	for (size_t i = 0; i < SETTINGS; i++)
		if (load_variable(c, &settings[i], e) < 0)
			return e->code;
	return 0;
}

/* Copies the name out of a flag, with underscores for dashes: --listen-port is --listen_port. */
static struct value flag_name(const char *flag, char name[static NAME_MAX_BYTES + 1])
{
	size_t len = strcspn(flag, "=");
	size_t copied = least(len, NAME_MAX_BYTES);

	for (size_t i = 0; i < copied; i++)
		name[i] = flag[i] == '-' ? '_' : flag[i];
	name[copied] = '\0';
	return (struct value){name, copied};
}

static int apply_flag(struct config *c, const char *flag, bool *seen, struct err *e)
{
	char name[NAME_MAX_BYTES + 1];
	size_t i;

	int r = find(flag_name(flag, name), &i, e);
	if (r < 0)
		return r;
	const char *equals = strchr(flag, '=');
	if (!equals)
		return err_say(e, EINVAL, "a flag needs its value: --%s=VALUE", settings[i].name);
	if (seen[i])
		return err_say(e, EINVAL, "--%s is given twice", settings[i].name);
	seen[i] = true;
	return set_value(&settings[i], c, (struct value){equals + 1, strlen(equals + 1)}, e);
}

static int load_flags(struct config *c, int argc, char *const argv[], struct err *e)
{
	bool seen[SETTINGS] = {false};

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--config=", 9) == 0)
			continue;
		if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2])
			return err_say(e, EINVAL, "argument %.60s: expected --NAME=VALUE", argv[i]);
		if (apply_flag(c, argv[i] + 2, seen, e) < 0)
			return err_context(e, "flag %.60s", argv[i]);
	}
	return 0;
}

/* Sets *path to the value of --config, or NULL without that flag. */
static int config_flag(int argc, char *const argv[], const char **path, struct err *e)
{
	*path = NULL;
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--config", 8) != 0 || (argv[i][8] && argv[i][8] != '='))
			continue;
		if (!argv[i][8] || !argv[i][9])
			return err_say(e, EINVAL, "flag --config: write --config=FILE");
		if (*path)
			return err_say(e, EINVAL, "flag --config is given twice");
		*path = argv[i] + 9;
	}
	return 0;
}

/* --- all sources ----------------------------------------------------------------------------- */

void config_defaults(struct config *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < SETTINGS; i++) {
		const char *text = settings[i].initial;
		struct err e;

		if (set_value(&settings[i], out, (struct value){text, strlen(text)}, &e) < 0)
			abort(); /* the table contradicts itself */
	}
}

bool config_sizes_auto(const struct config *c)
{
	return strcmp(c->sizes, "auto") == 0;
}

int config_sizes(const struct config *c, struct size out[CONFIG_SIZES_MAX], struct err *e)
{
	const char *p = c->sizes;
	int n = 0;

	while (*p) {
		struct size size = {0};

		if (!number_take(&p, 128, 65536, &size.ram_mib) || *p++ != 'x' ||
		    !number_take(&p, 1, 32, &size.vcpus) ||
		    (*p == 'x' && (p++, !number_take(&p, 1, 1024, &size.rootfs_gb))) ||
		    (*p && *p != ',') || size.ram_mib % 64)
			return err_say(
				e, EINVAL,
				"sizes must be auto or like 1024x2,4096x4x16: MiB of RAM (a"
				" multiple of 64 from 128 to 65536) x vCPUs (1 to 32) x GB of"
				" disk (1 to 1024), not \"%.60s\"",
				c->sizes);
		if (n == CONFIG_SIZES_MAX)
			return err_say(e, EINVAL, "sizes names more than %d sizes",
				       CONFIG_SIZES_MAX);
		out[n++] = size;
		p += *p == ',';
	}
	return n;
}

/* Reads NAME=URL up to a comma or the end, and moves *p past them. */
static bool take_region(const char **p, struct config_region *out)
{
	const size_t len = strcspn(*p, "=,"), url_len = strcspn(*p + len, ",");
	const char *url = *p + len + 1;

	if (!len || len > CONFIG_REGION_MAX || (*p)[len] != '=' ||
	    url_len > sizeof(out->endpoint) ||
	    (strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0))
		return false;
	snprintf(out->name, sizeof(out->name), "%.*s", (int)len, *p);
	snprintf(out->endpoint, sizeof(out->endpoint), "%.*s", (int)url_len - 1, url);
	*p += len + url_len;
	*p += **p == ',';
	return true;
}

int config_regions(const struct config *c, struct config_region out[CONFIG_REGIONS_MAX],
		   struct err *e)
{
	int n = 0;

	for (const char *p = c->regions; *p; n++) {
		if (n == CONFIG_REGIONS_MAX)
			return err_say(e, EINVAL, "regions names more than %d regions",
				       CONFIG_REGIONS_MAX);
		if (!take_region(&p, &out[n]))
			return err_say(e, EINVAL,
				       "regions must be like hel=https://hel.example.com,"
				       "iad=https://iad.example.com, with names of at most %d "
				       "bytes, not \"%.60s\"",
				       CONFIG_REGION_MAX, p);
	}
	return n;
}

/* Checks that the range holds two addresses for each slot. */
static int check_network(const struct config *c, struct err *e)
{
	struct range r;

	if (!c->network[0])
		return 0;
	if (!range_parse(&r, c->network) || r.family != AF_INET || r.prefix < 8)
		return err_say(e, EINVAL,
			       "network must be one IPv4 range of at most /8, like 10.251.0.0/17, "
			       "not \"%s\"",
			       c->network);
	if (c->max_vms > (1ull << (32 - r.prefix)) / 2)
		return err_say(e, EINVAL, "network %s has addresses for %llu VMs, max_vms is %u",
			       c->network, (1ull << (32 - r.prefix)) / 2, c->max_vms);
	return 0;
}

static int check_dns(const struct config *c, struct err *e)
{
	struct range r;

	if (!c->dns[0] || (range_parse(&r, c->dns) && r.family == AF_INET && r.first[0] != 127))
		return 0;
	return err_say(
		e, EINVAL,
		"dns must be an IPv4 address that VMs can reach (not 127.0.0.0/8), not \"%s\"",
		c->dns);
}

/* Returns whether the host in an http:// URL is this machine, without looking up a name. */
static bool is_loopback_url(const char *url)
{
	static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};

	url += strlen("http://");
	if (strchr(url, '@')) /* the text before it is a user name, not a host */
		return false;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		size_t len = strlen(hosts[i]);

		if (strncmp(url, hosts[i], len) == 0 && strchr(":/", url[len]))
			return true; /* strchr also finds the NUL, when the URL ends there */
	}
	return false;
}

/* Checks the URL of the setting `name`, to which ramet-notify sends. */
static int check_target(const struct config *c, const char *name, const char *url, struct err *e)
{
	bool plain = strncmp(url, "http://", 7) == 0;

	if (!plain && strncmp(url, "https://", 8) != 0)
		return err_say(e, EINVAL, "%s must begin with https://, not \"%.60s\"", name, url);
	if (plain && !is_loopback_url(url) && c->webhook_http[0] != 'y')
		return err_say(e, EINVAL,
			       "%s is http:// to another host: use https://, or set webhook_http "
			       "to yes",
			       name);
	return 0;
}

static int check_webhook(const struct config *c, struct err *e)
{
	if (!c->webhook_url[0])
		return 0;
	int r = check_target(c, "webhook_url", c->webhook_url, e);
	if (r == 0 && strlen(c->webhook_secret) < 16)
		r = err_say(e, EINVAL,
			    "webhook_secret must be at least 16 bytes long, not %zu, as "
			    "webhook_url is set",
			    strlen(c->webhook_secret));
	return r;
}

static int check_targets(const struct config *c, struct err *e)
{
	int r = check_webhook(c, e);

	if (r == 0 && c->otlp_url[0])
		r = check_target(c, "otlp_url", c->otlp_url, e);
	return r;
}

/* Checks that the settings of a fleet are all there, or none. */
static int check_fleet(const struct config *c, struct err *e)
{
	const struct {
		const char *name, *value;
	} others[] = {{"fleet_id_key", c->fleet_id_key},
		      {"fleet_listen", c->fleet_listen},
		      {"fleet_ca", c->fleet_ca},
		      {"fleet_cert", c->fleet_cert},
		      {"fleet_key", c->fleet_key}};
	struct sockaddr_storage at;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (!others[i].value[0] != !c->fleet_dir[0])
			return err_say(e, EINVAL, "%s is set but %s is not: a fleet needs both",
				       c->fleet_dir[0] ? "fleet_dir" : others[i].name,
				       c->fleet_dir[0] ? others[i].name : "fleet_dir");
	if (c->fleet_dir[0] && !address_port_parse(&at, c->fleet_listen))
		return err_say(e, EINVAL,
			       "fleet_listen must be an address and a port in numbers, like "
			       "10.0.0.17:7443 or [fd00::17]:7443, not \"%s\"",
			       c->fleet_listen);
	return 0;
}

static int check_together(const struct config *c, struct err *e)
{
	struct size sizes[CONFIG_SIZES_MAX];
	struct config_region regions[CONFIG_REGIONS_MAX];

	if (config_regions(c, regions, e) < 0)
		return e->code;
	if (check_network(c, e) < 0 || check_dns(c, e) < 0 || check_targets(c, e) < 0 ||
	    check_fleet(c, e) < 0 || (!config_sizes_auto(c) && config_sizes(c, sizes, e) < 0))
		return e->code;
	if (!c->tls_cert[0] != !c->tls_key[0])
		return err_say(e, EINVAL, "%s is set but %s is not: TLS needs both",
			       c->tls_cert[0] ? "tls_cert" : "tls_key",
			       c->tls_cert[0] ? "tls_key" : "tls_cert");
	if (c->pool_blank_vms + c->pool_warm > c->max_vms)
		return err_say(e, EINVAL,
			       "pool_blank_vms + pool_warm is %u, more than max_vms allows (%u)",
			       c->pool_blank_vms + c->pool_warm, c->max_vms);
	if (c->memory_mib && c->memory_mib < c->ram_mib + OURS_MIB)
		return err_say(
			e, EINVAL,
			"memory_mib is %u, less than a sandbox (ram_mib, %u) and rametd (%u) may "
			"take",
			c->memory_mib, c->ram_mib, OURS_MIB);
	return 0;
}

int config_load(struct config *out, int argc, char *const argv[], struct err *e)
{
	struct config c;
	const char *path;

	config_defaults(&c);
	if (config_flag(argc, argv, &path, e) < 0 ||
	    load_file(&c, path ? path : CONFIG_FILE, path != NULL, e) < 0 ||
	    load_environment(&c, e) < 0 || load_flags(&c, argc, argv, e) < 0 ||
	    check_together(&c, e) < 0)
		return e->code;
	*out = c;
	return 0;
}

/* --- the example file ------------------------------------------------------------------------ */

static void print_help(FILE *f, const char *help)
{
	fputs("\n# ", f);
	for (const char *p = help; *p; p++) {
		fputc(*p, f);
		if (*p == '\n')
			fputs("# ", f);
	}
	fputc('\n', f);
}

static void print_example(FILE *f, const void *arg)
{
	fputs("# Settings of rametd. Each line that is commented out shows the default.\n"
	      "# The environment (RAMET_NAME) and flags (--name=value) override this file.\n"
	      "# rametd --check checks it. Values have no quotation marks.\n",
	      f);
	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *s = &settings[i];

		if (s->help)
			print_help(f, s->help);
		if (s->kind == NUMBER)
			fprintf(f, "# %s: %u to %u\n", s->name, s->min, s->max);
		fprintf(f, "#%s =%s%s\n", s->name, s->initial[0] ? " " : "", s->initial);
	}
}

const char *config_example(void)
{
	static char *text;

	if (!text)
		text = text_print(print_example, NULL);
	return text ? text : "";
}

void config_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX])
{
	snprintf(out, CATALOGUE_PATH_MAX, "%s/catalogue.db", c->state_dir);
}

void config_live_catalogue(const struct config *c, char out[static CATALOGUE_PATH_MAX])
{
	snprintf(out, CATALOGUE_PATH_MAX, "%s/journals/catalogue.db", c->run_dir);
}

int config_log_level(const struct config *c)
{
	switch (c->log_level[0]) {
	case 'd':
		return LOG_DEBUG;
	case 'w':
		return LOG_WARN;
	case 'e':
		return LOG_ERROR;
	default:
		return LOG_INFO;
	}
}

/* --- tiers -------------------------------------------------------------------------------------
 */

static const struct {
	const char *name;
	size_t offset;
	const char *initial;
} tiers[] = {
	{"free", offsetof(struct config, tier_free), TIER_FREE},
	{"pro", offsetof(struct config, tier_pro), TIER_PRO},
	{"scale", offsetof(struct config, tier_scale), TIER_SCALE},
	{"enterprise", offsetof(struct config, tier_enterprise), TIER_ENTERPRISE},
};

const char tier_names[] = "free, pro, scale or enterprise";

bool tier_at(struct tier *out, const struct config *c, size_t i)
{
	struct err e;

	if (i >= ARRAY_LEN(tiers))
		return false;
	*out = (struct tier){0};
	if (tier_parse(out, tiers[i].initial, &e) < 0 ||
	    tier_parse(out, (const char *)c + tiers[i].offset, &e) < 0)
		abort(); /* the value was checked where it was read */
	return true;
}

bool tier_find(struct tier *out, const struct config *c, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(tiers); i++)
		if (strcmp(tiers[i].name, name) == 0)
			return tier_at(out, c, i);
	return false;
}

int tier_check(const struct config *c, const char *name, struct err *e)
{
	struct tier tier;

	if (tier_is_operators(name) || tier_find(&tier, c, name))
		return 0;
	return err_say(e, EINVAL,
		       "the tier must be %s (or " TIER_OPERATOR " or " TIER_ADMIN
		       "), not \"%.40s\"",
		       tier_names, name);
}
