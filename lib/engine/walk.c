/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - the order of use, unrolled over layers, tiles and experts. */
#include "engine/walk.h"
#include "data/roles.h"

/* MXFP4: weights to a scale byte. */
enum { GROUP = 32 };

const enum k3_role k3_expert_matrix[K3_EXPERT_MATRICES] = { K3_W1, K3_W3, K3_W2 };

void k3_walk_begin(struct k3_walk *w, const struct k3_route *route)
{
	*w = (struct k3_walk){ .route = route, .section = route->from, .fresh = true };
}

struct k3_expert_cut k3_expert_cut(const struct k3_config *c, enum k3_role role,
				   uint64_t block_rows)
{
	struct k3_expert_cut m = {
		.rows = role == K3_W2 ? c->latent : c->expert_width,
		.cols = role == K3_W2 ? c->expert_width : c->latent,
	};

	m.code_bytes = m.cols / 2;
	m.scale_bytes = m.cols / GROUP;
	m.block_rows = block_rows ? block_rows
				  : k3_block_rows(m.rows, m.code_bytes + m.scale_bytes);
	if (m.rows / m.block_rows >= K3_EXPERT_BLOCKS)
		m.block_rows = m.rows / K3_EXPERT_BLOCKS + 1;
	m.blocks = (m.rows + m.block_rows - 1) / m.block_rows;
	return m;
}

void k3_cut_rows(const struct k3_expert_cut *m, uint64_t i, uint64_t *row, uint64_t *rows)
{
	*row = (m->blocks - 1 - i) * m->block_rows;
	*rows = m->rows - *row < m->block_rows ? m->rows - *row : m->block_rows;
}

uint64_t k3_cut_codes(const struct k3_expert_cut *m, uint64_t i)
{
	uint64_t row, rows;

	k3_cut_rows(m, i, &row, &rows);
	return row * m->code_bytes;
}

uint64_t k3_expert_bytes(const struct k3_config *c)
{
	uint64_t sum = 0;

	for (int i = 0; i < K3_EXPERT_MATRICES; i++) {
		struct k3_expert_cut m = k3_expert_cut(c, k3_expert_matrix[i], 0);

		sum += m.rows * (m.code_bytes + m.scale_bytes);
	}
	return sum;
}

static void expert_step(struct k3_walk *w, struct k3_step *step)
{
	enum k3_role role = k3_expert_matrix[w->matrix];

	*step = (struct k3_step){
		.section = w->section, .role = role, .expert = w->route->expert[w->expert],
		.number = w->expert, .first = w->entry,
		.cut = k3_expert_cut(w->route->config, role, w->route->block_rows),
	};
	step->entries = 1 + step->cut.blocks;
	w->entry += step->entries;
	if (++w->matrix == K3_EXPERT_MATRICES) {
		w->matrix = 0;
		w->expert++;
	}
}

static void use_step(struct k3_walk *w, struct k3_step *step)
{
	uint32_t passed = w->use < w->order.experts_at ? w->tile : w->tail;
	bool once = w->use < w->order.vectors;
	const struct k3_use *u = &w->order.use[w->use++];

	*step = (struct k3_step){ .section = w->section, .use = u, .role = u->role,
				  .first = w->entry, .entries = u->blocks };
	step->left = once ? 0 : w->route->tiles[w->section - w->route->from] - 1 - passed;
	w->entry += step->entries;
}

/* To the next section through which something passes; false behind the last one. */
static bool enter(struct k3_walk *w)
{
	const struct k3_route *r = w->route;

	while (w->section < r->until && !r->tiles[w->section - r->from])
		w->section++;
	if (w->section == r->until)
		return false;
	k3_order_init(r->config, w->section, r->block_rows, &w->order);
	w->tile = w->tail = w->use = w->expert = 0;
	w->fresh = false;
	return true;
}

/* What stands before the experts passes for each tile, but for the vectors; so does what stands behind them. */
enum k3_walked k3_walk_next(struct k3_walk *w, struct k3_step *step)
{
	const struct k3_route *r = w->route;

	for (;;) {
		uint32_t tiles;

		if (w->fresh && !enter(w))
			return K3_WALK_END;
		tiles = r->tiles[w->section - r->from];
		if (w->use < w->order.experts_at) {
			use_step(w, step);
			return K3_WALK_STEP;
		}
		if (w->tile + 1 < tiles) {
			w->tile++;
			w->use = w->order.vectors;
			continue;
		}
		if (w->use == w->order.experts_at && w->use < w->order.uses) {
			if (r->experts_layer != w->section)
				return K3_WALK_UNKNOWN;
			if (w->expert < r->experts) {
				expert_step(w, step);
				return K3_WALK_STEP;
			}
		}
		if (w->use < w->order.uses) {
			use_step(w, step);
			return K3_WALK_STEP;
		}
		if (w->order.experts_at < w->order.uses && ++w->tail < tiles) {
			w->use = w->order.experts_at;
			continue;
		}
		w->section++;
		w->fresh = true;
	}
}
