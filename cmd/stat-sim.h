/* SPDX-License-Identifier: Apache-2.0 */
/* stat-sim.h - k3-stat sim: recorded routes, and caches that are tried on them. */
#ifndef K3_STAT_SIM_H
#define K3_STAT_SIM_H

#include "stat.h"

/* One layer of one sweep: the experts that are asked for, each once. */
struct sim_visit {
	uint32_t sweep, layer;	/* numbered from 0 without gaps */
	uint32_t n;
	size_t first;		/* of expert and users */
};

struct sim_trace {
	struct sim_visit *visit;	/* in the order in which an engine comes to them */
	size_t n;
	uint32_t *expert;		/* ascending in each visit */
	uint32_t *users;		/* tokens that chose it */
	size_t asked, asked_first;	/* experts of all visits, and of the first sweep */
	uint32_t sweeps, layers;
	uint32_t experts;		/* all are below this */
	uint32_t chosen;		/* the most that a token has in a layer */
};

/*
 * Reads routes: events of k3-step, or lines of position, layer and experts.  Sweeps are the rounds of
 * the events, or, if by_token, each token alone; of lines, each position.
 */
int sim_read(const struct stat_source *s, bool by_token, struct sim_trace *out,
	     struct k3_err *err);
void sim_free(struct sim_trace *t);

/* How many of the experts asked for were there, in all sweeps (the first can have none). */
int sim_policy(const struct sim_trace *t, uint32_t slots, float decay, uint64_t *hits,
	       struct k3_err *err);
/* One cache of that many experts, at least one, for all layers: the least recently used goes. */
int sim_global_lru(const struct sim_trace *t, uint64_t slots, uint64_t *hits, struct k3_err *err);
/* The same size, and it knows what will be asked for: what no policy can better. */
int sim_optimal(const struct sim_trace *t, uint64_t slots, uint64_t *hits, struct k3_err *err);

#endif
