/* SPDX-License-Identifier: Apache-2.0 */
/* stat-routes.c - reads which experts were chosen, and puts the choices into the order of sweeps. */
#include "stat-sim.h"

#include <inttypes.h>
#include <jv.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXPERTS = 1 << 16, MAX_LAYERS = 1 << 16 };

/* What one token chose in one layer. */
struct route {
	uint64_t round, sequence, position;
	uint32_t layer, n;
	size_t first;	/* of expert */
};

struct routes {
	bool by_token;
	struct route *route;
	size_t n, room;
	uint32_t *expert;
	size_t experts, expert_room;
};

/* Makes room for one more element of an array that has n; false without memory. */
static bool grow(void **array, size_t n, size_t *room, size_t size)
{
	void *p;

	if (n < *room)
		return true;
	p = k3_reallocarray(*array, n * 2 + 64, size);
	if (!p)
		return false;
	*array = p;
	*room = n * 2 + 64;
	return true;
}

static bool add_expert(struct routes *r, uint32_t expert)
{
	if (!grow((void **)&r->expert, r->experts, &r->expert_room, sizeof *r->expert))
		return false;
	r->expert[r->experts++] = expert;
	return true;
}

/* A whole number below `end`, of which *p is moved to the end; false if there is none. */
static bool number(const char **p, uint64_t end, uint64_t *out)
{
	const char *start = *p;
	uint64_t v = 0;

	for (; **p >= '0' && **p <= '9'; ++*p) {
		v = v * 10 + (uint64_t)(**p - '0');
		if (v >= end)
			return false;
	}
	*out = v;
	return *p > start;
}

static int bad_line(const struct stat_source *s, uint64_t number_of_line, struct k3_err *err)
{
	return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 " is neither an event nor 'position<TAB>"
		       "layer<TAB>experts'", s->name, number_of_line);
}

/* "position<TAB>layer<TAB>expert expert ...", ended by a NUL. */
static int parse_text(struct routes *r, struct route *t, const char *p,
		      const struct stat_source *s, uint64_t line, struct k3_err *err)
{
	uint64_t layer, expert;

	if (!number(&p, UINT64_MAX / 16, &t->position) || *p++ != '\t' ||
	    !number(&p, MAX_LAYERS, &layer) || *p++ != '\t')
		return bad_line(s, line, err);
	t->round = t->position;
	t->layer = (uint32_t)layer;
	do {
		while (*p == ' ')
			p++;
		if (!number(&p, MAX_EXPERTS, &expert) || (*p && *p != ' '))
			return bad_line(s, line, err);
		if (!add_expert(r, (uint32_t)expert))
			return k3_fail_nomem(err);
	} while (*p);
	return 0;
}

/* A member that is a whole number below `end`; UINT64_MAX if it is not. */
static uint64_t member(jv object, const char *name, uint64_t end)
{
	jv v = jv_object_get(jv_copy(object), jv_string(name));
	double d = jv_get_kind(v) == JV_KIND_NUMBER ? jv_number_value(v) : -1;

	jv_free(v);
	return d >= 0 && d < (double)end && d == (double)(uint64_t)d ? (uint64_t)d : UINT64_MAX;
}

static int event_experts(struct routes *r, jv list, const struct stat_source *s, uint64_t line,
			 struct k3_err *err)
{
	int n = jv_array_length(jv_copy(list));

	for (int i = 0; i < n; i++) {
		jv v = jv_array_get(jv_copy(list), i);
		double d = jv_get_kind(v) == JV_KIND_NUMBER ? jv_number_value(v) : -1;

		jv_free(v);
		if (!(d >= 0 && d < MAX_EXPERTS && d == (double)(uint32_t)d))
			return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ": experts has what is "
				       "no number of an expert", s->name, line);
		if (!add_expert(r, (uint32_t)d))
			return k3_fail_nomem(err);
	}
	return 0;
}

static bool is_route(jv object)
{
	jv event = jv_object_get(jv_copy(object), jv_string("event"));
	bool yes = jv_get_kind(event) == JV_KIND_STRING && !strcmp(jv_string_value(event), "route");

	jv_free(event);
	return yes;
}

/* An event "route", which it consumes. */
static int parse_route(struct routes *r, struct route *t, jv object, const struct stat_source *s,
		       uint64_t line, struct k3_err *err)
{
	const uint64_t end = (uint64_t)1 << 53;		/* of whole numbers in JSON */
	uint64_t layer = member(object, "layer", MAX_LAYERS);
	jv list;
	int rc;

	t->round = member(object, "round", end);
	t->sequence = member(object, "sequence", end);
	t->position = member(object, "position", end);
	t->layer = (uint32_t)layer;
	list = jv_object_get(object, jv_string("experts"));
	if (t->round == UINT64_MAX || t->sequence == UINT64_MAX || t->position == UINT64_MAX ||
	    layer == UINT64_MAX || jv_get_kind(list) != JV_KIND_ARRAY)
		rc = k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ": a route without its round, layer, "
			     "sequence, position or experts", s->name, line);
	else
		rc = event_experts(r, list, s, line, err);
	jv_free(list);
	return rc;
}

/* A line of JSON; *wanted tells whether it is a route. */
static int parse_event(struct routes *r, struct route *t, jv object, bool *wanted,
		       const struct stat_source *s, uint64_t line, struct k3_err *err)
{
	int rc;

	*wanted = jv_get_kind(object) == JV_KIND_OBJECT && is_route(object);
	if (*wanted)
		return parse_route(r, t, object, s, line, err);
	rc = jv_get_kind(object) == JV_KIND_OBJECT ? 0 : bad_line(s, line, err);
	jv_free(object);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Sorts the experts of the route that was just read; one that is there twice is an error. */
static int check_experts(const struct routes *r, struct route *t, const struct stat_source *s,
			 uint64_t line, struct k3_err *err)
{
	uint32_t *e = r->expert + t->first;

	t->n = (uint32_t)(r->experts - t->first);
	if (t->n)
		qsort(e, t->n, sizeof *e, by_number);
	for (uint32_t i = 1; i < t->n; i++)
		if (e[i] == e[i - 1])
			return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ": expert %" PRIu32
				       " is there twice", s->name, line, e[i]);
	return 0;
}

static int read_line(void *ctx, const struct stat_source *s, const char *line, size_t n,
		     uint64_t number_of_line, struct k3_err *err)
{
	struct routes *r = ctx;
	struct route t = { .first = r->experts };
	bool wanted = n && *line != '#';
	char *text;
	int rc;

	if (!wanted)
		return 0;
	if (*line == '{') {
		rc = parse_event(r, &t, jv_parse_sized(line, (int)n), &wanted, s, number_of_line, err);
	} else {
		text = strndup(line, n);
		if (!text)
			rc = k3_fail_nomem(err);
		else if (strlen(text) < n)
			rc = bad_line(s, number_of_line, err);
		else
			rc = parse_text(r, &t, text, s, number_of_line, err);
		free(text);
	}
	if (!rc && wanted)
		rc = check_experts(r, &t, s, number_of_line, err);
	if (rc || !wanted)
		return rc;
	if (!grow((void **)&r->route, r->n, &r->room, sizeof *r->route))
		return k3_fail_nomem(err);
	/* all of a round are one sweep, unless each token is to be alone */
	if (!r->by_token)
		t.sequence = t.position = 0;
	r->route[r->n++] = t;
	return 0;
}

static int compare_sweeps(const struct route *x, const struct route *y)
{
	if (x->round != y->round)
		return x->round < y->round ? -1 : 1;
	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return x->position < y->position ? -1 : x->position > y->position;
}

static int by_visit(const void *a, const void *b)
{
	const struct route *x = a, *y = b;
	int sweep = compare_sweeps(x, y);

	return sweep ? sweep : x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* Numbers the layers that occur without gaps; place has MAX_LAYERS. */
static uint32_t number_layers(const struct routes *r, uint32_t *place)
{
	uint32_t layers = 0;

	for (size_t i = 0; i < r->n; i++)
		place[r->route[i].layer] = 1;
	for (uint32_t l = 0; l < MAX_LAYERS; l++)
		if (place[l])
			place[l] = layers++;
	return layers;
}

/* The experts of the visit that routes[0 .. n-1] are; users has a zero for each expert. */
static void add_visit(struct sim_trace *t, const struct routes *r, const struct route *routes,
		      size_t n, uint32_t *users)
{
	struct sim_visit *v = &t->visit[t->n];

	v->first = t->asked;
	for (size_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < routes[i].n; k++) {
			uint32_t e = r->expert[routes[i].first + k];

			if (!users[e]++)
				t->expert[t->asked++] = e;
		}
	}
	v->n = (uint32_t)(t->asked - v->first);
	if (v->n)
		qsort(t->expert + v->first, v->n, sizeof *t->expert, by_number);
	for (size_t i = v->first; i < t->asked; i++) {
		t->users[i] = users[t->expert[i]];
		users[t->expert[i]] = 0;
	}
	if (!v->sweep)
		t->asked_first = t->asked;
	t->n++;
}

static int make_trace(struct routes *r, struct sim_trace *t, struct k3_err *err)
{
	uint32_t *users = k3_calloc(MAX_EXPERTS, sizeof *users);
	uint32_t *place = k3_calloc(MAX_LAYERS, sizeof *place);
	size_t n;

	t->visit = k3_calloc(r->n, sizeof *t->visit);
	t->expert = k3_calloc(r->experts, sizeof *t->expert);
	t->users = k3_calloc(r->experts, sizeof *t->users);
	if (!users || !place || !t->visit || !t->expert || !t->users) {
		free(users);
		free(place);
		return k3_fail_nomem(err);
	}
	qsort(r->route, r->n, sizeof *r->route, by_visit);
	t->layers = number_layers(r, place);
	for (size_t i = 0; i < r->n; i += n) {
		const struct route *first = &r->route[i];

		for (n = 1; i + n < r->n && !by_visit(first, &r->route[i + n]); n++)
			;
		if (i && compare_sweeps(first, first - 1))
			t->sweeps++;
		t->visit[t->n] = (struct sim_visit){ .sweep = t->sweeps, .layer = place[first->layer] };
		add_visit(t, r, first, n, users);
	}
	t->sweeps++;
	free(users);
	free(place);
	return 0;
}

int sim_read(const struct stat_source *s, bool by_token, struct sim_trace *out, struct k3_err *err)
{
	struct routes r = { .by_token = by_token };
	int rc = stat_lines(s, read_line, &r, err);

	*out = (struct sim_trace){ 0 };
	for (size_t i = 0; i < r.n; i++)
		if (r.route[i].n > out->chosen)
			out->chosen = r.route[i].n;
	for (size_t i = 0; i < r.experts; i++)
		if (r.expert[i] >= out->experts)
			out->experts = r.expert[i] + 1;
	if (!rc && !out->chosen)
		rc = k3_fail(err, K3_EDATA, "%s: no routes are in it", s->name);
	if (!rc)
		rc = make_trace(&r, out, err);
	free(r.route);
	free(r.expert);
	return rc;
}

void sim_free(struct sim_trace *t)
{
	free(t->visit);
	free(t->expert);
	free(t->users);
	*t = (struct sim_trace){ 0 };
}
