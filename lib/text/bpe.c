/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpe.c - byte-pair encoding with a linked list and a heap.
 *
 * A piece may have many thousand bytes, so the next merge is not searched for:
 * every pair that is a token waits in a heap, by rank and then by place.  A merge
 * makes the pairs at its two sides wrong; their entries stay in the heap and are
 * passed over when they come up.
 */
#include "text/bpe.h"

#include <k3/buf.h>

#include <stdlib.h>

/* The token that begins at a byte of the piece, which is also its number in the list. */
struct bpe_node {
	uint32_t prev, next;	/* the neighbours; the end of the piece is a node too */
	uint32_t id;
	uint32_t pair;		/* the token that this and the next make, or VOCAB_NONE */
};

static void push(uint64_t *heap, size_t *count, uint64_t key)
{
	size_t i = (*count)++, up;

	for (; i; i = up) {
		up = (i - 1) / 2;
		if (heap[up] <= key)
			break;
		heap[i] = heap[up];
	}
	heap[i] = key;
}

static uint64_t pop(uint64_t *heap, size_t *count)
{
	uint64_t top = heap[0], last = heap[--*count];
	size_t i, down;

	for (i = 0; (down = 2 * i + 1) < *count; i = down) {
		if (down + 1 < *count && heap[down + 1] < heap[down])
			down++;
		if (last <= heap[down])
			break;
		heap[i] = heap[down];
	}
	heap[i] = last;
	return top;
}

static int make_room(struct bpe *b, size_t n, struct k3_err *err)
{
	size_t size = b->size ? b->size : 64;
	void *p;

	while (size < n)
		size *= 2;
	if (size == b->size)
		return 0;
	p = k3_reallocarray(b->nodes, size + 1, sizeof *b->nodes);
	if (!p)
		return k3_fail_nomem(err);
	b->nodes = p;
	/* a key for every pair at the start, and two for every merge */
	p = k3_reallocarray(b->heap, size, 3 * sizeof *b->heap);
	if (!p)
		return k3_fail_nomem(err);
	b->heap = p;
	b->size = size;
	return 0;
}

/* Finds the pair of node i, and puts it on the heap if it is a token. */
static void look_at_pair(struct bpe *b, const struct vocab *v, const unsigned char *p, size_t n,
			 uint32_t i, size_t *waiting)
{
	struct bpe_node *a = &b->nodes[i];

	a->pair = VOCAB_NONE;
	if (a->next < n)
		a->pair = k3i_vocab_find(v, p + i, b->nodes[a->next].next - i);
	if (a->pair != VOCAB_NONE)
		push(b->heap, waiting, (uint64_t)a->pair << 32 | i);
}

int k3i_bpe_piece(struct bpe *b, const struct vocab *v, const unsigned char *p, size_t n,
		  struct k3_ids *out, struct k3_err *err)
{
	uint32_t whole = k3i_vocab_find(v, p, n), i, right;
	struct bpe_node *a;
	size_t waiting = 0;
	uint64_t key;
	int rc;

	if (whole != VOCAB_NONE)
		return k3_ids_add(out, whole, err);
	rc = make_room(b, n, err);
	if (rc)
		return rc;
	for (i = 0; i < n; i++)
		b->nodes[i] = (struct bpe_node){ i - 1, i + 1, v->of_byte[p[i]], VOCAB_NONE };
	b->nodes[n] = (struct bpe_node){ (uint32_t)n - 1, 0, VOCAB_NONE, VOCAB_NONE };
	for (i = 0; i < n; i++)
		look_at_pair(b, v, p, n, i, &waiting);
	while (waiting) {
		key = pop(b->heap, &waiting);
		i = (uint32_t)key;
		a = &b->nodes[i];
		/* of an earlier state of the list, or of a node that is gone */
		if (a->pair != key >> 32)
			continue;
		right = a->next;
		a->id = a->pair;
		a->next = b->nodes[right].next;
		b->nodes[a->next].prev = i;
		b->nodes[right].pair = VOCAB_NONE;
		look_at_pair(b, v, p, n, i, &waiting);
		if (i > 0)
			look_at_pair(b, v, p, n, a->prev, &waiting);
	}
	for (i = 0; i < n && !rc; i = b->nodes[i].next)
		rc = k3_ids_add(out, b->nodes[i].id, err);
	return rc;
}

void k3i_bpe_free(struct bpe *b)
{
	free(b->nodes);
	free(b->heap);
	*b = (struct bpe){ 0 };
}
