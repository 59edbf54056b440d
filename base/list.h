// SPDX-License-Identifier: Apache-2.0
/* Intrusive doubly linked list. list_del leaves the node pointing to itself. */
#ifndef RAMET_BASE_LIST_H
#define RAMET_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void list_move_all(struct list *to, struct list *from)
{
	while (!list_empty(from)) {
		struct list *node = from->next;

		list_del(node);
		list_add_tail(to, node);
	}
}

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define list_each(pos, head) for (struct list *pos = (head)->next; pos != (head); pos = pos->next)

/* Like list_each, but `pos` may be removed from the list in the body. */
#define list_each_safe(pos, head)                                                                  \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);              \
	     pos = pos##_next, pos##_next = pos->next)

/* Returns the number of nodes, in time proportional to it. */
static inline unsigned list_count(const struct list *head)
{
	unsigned n = 0;

	list_each (pos, head)
		n++;
	return n;
}

#endif
