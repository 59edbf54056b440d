// SPDX-License-Identifier: Apache-2.0
/* `rametctl fleet haproxy`: a configuration of HAProxy 2.6 or later for the hosts of a region. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/operator/fleet.h"

/*
 * Timeouts: the slowest requests (freeze, diff) may be silent for an hour; streams are never silent
 * for more than 10 s; a tunnel is a WebSocket or terminal.
 *
 * Retries: a request is sent to another host if no connection was made, since nothing of it
 * arrived anywhere. A 503 is retried only for a create, which has made nothing then, and for GET.
 *
 * A reload leaves streams and tunnels to the old process, which ends after the last one.
 */
static const char head[] =
	"# Written by `rametctl fleet haproxy`. Write it again when a host joins or is forgotten.\n"
	"global\n"
	"    user haproxy\n"
	"    group haproxy\n"
	"    log /dev/log local0\n"
	"    stats socket /run/haproxy/admin.sock mode 660 level admin expose-fd listeners\n"
	"    ssl-default-bind-options ssl-min-ver TLSv1.2\n"
	"\n"
	"defaults\n"
	"    mode http\n"
	"    log global\n"
	"    option httplog\n"
	"    option dontlognull\n"
	"    option forwardfor\n"
	"    option http-no-delay\n"
	"    # A reload closes no idle connection on which a client may just send.\n"
	"    option idle-close-on-response\n"
	"    option srvtcpka\n"
	"    srvtcpka-idle 30s\n"
	"    srvtcpka-intvl 10s\n"
	"    srvtcpka-cnt 3\n"
	"    timeout connect 1s\n"
	"    timeout queue 5s\n"
	"    timeout http-request 30s\n"
	"    timeout http-keep-alive 60s\n"
	"    timeout client 3700s\n"
	"    timeout server 3700s\n"
	"    timeout client-fin 30s\n"
	"    timeout tunnel 24h\n"
	"    timeout check 2s\n"
	"    http-error status 503 content-type application/json string "
	"'{\"error\":\"no host can be reached\",\"code\":\"host_unreachable\"}' hdr Retry-After 1\n"
	"    http-error status 502 content-type application/json string "
	"'{\"error\":\"the host closed the connection: whether it carried out the request is not "
	"known\",\"code\":\"host_failed\"}'\n"
	"\n"
	"frontend ramet\n"
	"    bind :443 ssl crt /etc/haproxy/ramet.pem alpn h2,http/1.1\n"
	"    http-request del-header X-Forwarded-For\n"
	"    http-request set-header X-Forwarded-Proto https\n"
	"    # While no host is ready for new sandboxes, those that exist can still be used.\n"
	"    use_backend ramet_alive if { nbsrv(ramet_ready) eq 0 }\n"
	"    default_backend ramet_ready\n";

static const char retries[] =
	"    retries 3\n"
	"    option redispatch 1\n"
	"    retry-on conn-failure 503\n"
	"    acl is_read method GET HEAD\n"
	"    acl is_create path_reg ^(/r/[^/]+)?/v1/sandboxes$\n"
	"    # HAProxy can send again only what it had as a whole.\n"
	"    http-request wait-for-body time 30s if { method POST } is_create\n"
	"    http-request disable-l7-retry unless is_read || { method POST } is_create\n";

static void print_backend(const struct config *config, const struct fleet_table *t,
			  const char *name, const char *health)
{
	printf("\nbackend %s\n"
	       "    balance roundrobin\n" /* so that a retry does not return to the same host */
	       "    option httpchk\n"
	       "    http-check send meth GET uri %s\n"
	       "    http-check expect status 200\n"
	       "%s"
	       "    default-server check inter 2s fall 2 rise 1 tcp-ut 60s%s\n",
	       name, health, retries,
	       config->tls_cert[0] ? " ssl verify required ca-file /etc/haproxy/ramet-ca.pem" : "");
	for (size_t i = 0; i < t->n; i++) {
		const struct fleet_host *h = &t->hosts[i];

		if (!h->gone && strcmp(h->region, t->self->region) == 0)
			printf("    server %s %.*s:%u\n", h->name,
			       (int)(strrchr(h->address, ':') - h->address), h->address,
			       config->listen_port);
	}
}

/* Returns whether a service with this listen_host can be reached at the host's address. */
static bool listens_at(const char *listen_host, const struct fleet_host *h)
{
	static const unsigned char any[sizeof(((struct range *)0)->first)];
	const struct sockaddr_in *v4 = (const void *)&h->at;
	const struct sockaddr_in6 *v6 = (const void *)&h->at;
	const bool is_v4 = h->at.ss_family == AF_INET;
	struct range listen;

	if (!range_parse(&listen, listen_host))
		return false;
	if (memcmp(listen.first, any, sizeof(any)) == 0) /* :: is for IPv4, too */
		return listen.family == AF_INET6 || is_v4;
	if (listen.family != h->at.ss_family)
		return false;
	return is_v4 ? memcmp(listen.first, &v4->sin_addr, sizeof(v4->sin_addr)) == 0
		     : memcmp(listen.first, &v6->sin6_addr, sizeof(v6->sin6_addr)) == 0;
}

/* Warns about this host only: the settings of other hosts are not known here. */
static void warn_if_unreachable(const struct config *config, const struct fleet_host *self)
{
	const bool is_v4 = self->at.ss_family == AF_INET;
	const int len = (int)(strrchr(self->address, ':') - self->address);

	if (listens_at(config->listen_host, self))
		return;
	fprintf(stderr,
		"rametctl: warning: HAProxy connects to this host at %.*s, port %u, where its "
		"service does not listen, as listen_host is %s. Set listen_host to %.*s or %s; on "
		"each host, to its own address or that\n",
		len, self->address, config->listen_port, config->listen_host, len - 2 * !is_v4,
		self->address + !is_v4, is_v4 ? "0.0.0.0" : "::");
}

int haproxy_show(const struct config *config, const char *tables, struct err *e)
{
	struct fleet_table *t;

	if (hosts_read(&t, tables, e) < 0)
		return e->code;
	fputs(head, stdout);
	print_backend(config, t, "ramet_ready", "/readyz");
	print_backend(config, t, "ramet_alive", "/livez");
	warn_if_unreachable(config, t->self);
	free(t);
	return fflush(stdout) == 0 ? 0 : err_set(e, errno, "print the configuration");
}
