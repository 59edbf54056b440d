// SPDX-License-Identifier: Apache-2.0
/* Connections to other hosts that wait for their next request. A new connection would cost two
 * signatures. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/peers/internal.h"

#define IDLE_MS	 30000 /* less than the peer's own limit (http_limits.read_ms) */
#define IDLE_MAX 256

struct idle {
	struct list link; /* in peers->idle */
	struct peers *peers;
	struct fleet_host host;
	h2o_socket_t *sock;
	struct loop_timer expiry;
};

static h2o_socket_t *release(struct idle *i)
{
	h2o_socket_t *sock = i->sock;

	list_del(&i->link);
	i->peers->n_idle--;
	loop_timer_clear(i->peers->loop, &i->expiry);
	free(i);
	return sock;
}

static void on_expiry(void *arg)
{
	h2o_socket_close(release(arg));
}

/* The peer has closed the connection, or has sent data that nobody asked for. */
static void on_read(h2o_socket_t *sock, const char *err)
{
	h2o_socket_close(release(sock->data));
}

void peer_idle_put(struct peers *p, const struct fleet_host *host, h2o_socket_t *sock)
{
	struct idle *i = must_alloc(sizeof(*i));

	if (p->n_idle == IDLE_MAX)
		on_expiry(container_of(p->idle.next, struct idle, link));
	i->peers = p;
	i->host = *host;
	i->sock = sock;
	sock->data = i;
	list_add_tail(&p->idle, &i->link);
	p->n_idle++;
	loop_timer_start(p->loop, &i->expiry, on_expiry, i, IDLE_MS);
	h2o_socket_read_start(sock, on_read);
}

/* Returns whether the table still has that host, with this address and certificate. */
static bool is_same(const struct fleet_host *a, const struct fleet_host *b)
{
	return a->number == b->number && strcmp(a->name, b->name) == 0 &&
	       strcmp(a->address, b->address) == 0 && a->has_cert == b->has_cert &&
	       memcmp(a->cert, b->cert, sizeof(a->cert)) == 0;
}

h2o_socket_t *peer_idle_take(struct peers *p, const struct fleet_host *host)
{
	/* The youngest first: the others may expire. */
	for (struct list *pos = p->idle.prev; pos != &p->idle; pos = pos->prev) {
		struct idle *i = container_of(pos, struct idle, link);

		if (!is_same(&i->host, host))
			continue;
		h2o_socket_t *sock = release(i);
		h2o_socket_read_stop(sock);
		return sock;
	}
	return NULL;
}

void peer_idle_free(struct peers *p)
{
	while (!list_empty(&p->idle))
		on_expiry(container_of(p->idle.next, struct idle, link));
}
