// SPDX-License-Identifier: Apache-2.0
/* Intrusive doubly linked list. A zeroed list is empty, and a zeroed node is in no list. */
#ifndef RAMET_BASE_LIST_H
#define RAMET_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return !l->next || l->next == l;
}

/* Returns the node after a node, or the first node of a list; after the last one, the list. */
static inline struct list *list_next(const struct list *l)
{
	return l->next ? l->next : (struct list *)(uintptr_t)l;
}

/* Returns the node before a node, or the last node of a list; before the first one, the list. */
static inline struct list *list_prev(const struct list *l)
{
	return l->prev ? l->prev : (struct list *)(uintptr_t)l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	if (!head->next)
		list_init(head);
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_del(struct list *node)
{
	if (!node->next)
		return;
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

#define list_each(pos, head)                                                                       \
	for (struct list *pos = list_next(head); pos != (head); pos = list_next(pos))

/* Like list_each, but `pos` may be removed from the list in the body. */
#define list_each_safe(pos, head)                                                                  \
	for (struct list *pos = list_next(head), *pos##_next = list_next(pos); pos != (head);      \
	     pos = pos##_next, pos##_next = list_next(pos))

/* Returns the number of nodes, in time proportional to it. */
static inline unsigned list_count(const struct list *head)
{
	unsigned n = 0;

	list_each (pos, head)
		n++;
	return n;
}

#endif
