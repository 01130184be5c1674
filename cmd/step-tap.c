/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-tap.c - values of sites into files: one record a line of ids and a layer,
 * layers ascending.
 */
#include "step.h"
#include "cli.h"

#include <k3/num.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct step_tap {
	enum k3_site site;
	char *layers;		/* owned, as given */
	char *file;		/* owned */
	bool last;		/* only the row of a line's last id */
	bool *on;		/* owned: of each layer of the model */
	struct k3_npy_stream out;
};

static const char *const sites[K3_SITES] = { "resid" };

static bool find_site(const char *text, size_t n, enum k3_site *out)
{
	for (int i = 0; i < K3_SITES; i++)
		if (strlen(sites[i]) == n && !memcmp(sites[i], text, n)) {
			*out = (enum k3_site)i;
			return true;
		}
	return false;
}

bool step_taps_add(struct step_taps *t, const char *arg)
{
	const char *at = strchr(arg, '@'), *eq = at ? strchr(at, '=') : NULL;
	static const char suffix[] = ",rows=last";
	struct step_tap tap = { .out.fd = -1 };
	size_t n;

	if (!eq || !eq[1]) {
		cli_usage("--tap: '%s' is not of the form SITE@LAYERS=FILE", arg);
		return false;
	}
	if (!find_site(arg, (size_t)(at - arg), &tap.site)) {
		cli_usage("--tap: no site '%.*s'; there is: resid", (int)(at - arg), arg);
		return false;
	}
	n = strlen(eq + 1);
	if (n > strlen(suffix) && !strcmp(eq + 1 + n - strlen(suffix), suffix)) {
		tap.last = true;
		n -= strlen(suffix);
	}
	if (memmem(eq + 1, n, ",rows=", 6)) {
		cli_usage("--tap: '%s': rows can only be =last, once and at the end", arg);
		return false;
	}
	tap.layers = strndup(at + 1, (size_t)(eq - at - 1));
	tap.file = strndup(eq + 1, n);
	if (!tap.layers || !tap.file) {
		cli_warn("out of memory");
		exit(CLI_FAIL);
	}
	t->tap = cli_grow(t->tap, t->n, sizeof *t->tap);
	t->tap[t->n++] = tap;
	return true;
}

const char *step_taps_file(const struct step_taps *t, size_t i)
{
	return t->tap[i].file;
}

/* One element of a list of layers: kda, mla, N, or A:B with either end open. */
static bool mark(const struct k3_config *c, char *item, bool *on)
{
	char *colon = strchr(item, ':');
	uint64_t from = 0, to = c->layers;

	if (!strcmp(item, "kda") || !strcmp(item, "mla")) {
		for (uint32_t l = 0; l < c->layers; l++)
			on[l] |= c->kind[l] == (*item == 'k' ? K3_KDA : K3_MLA);
		return true;
	}
	if (colon) {
		*colon = '\0';
		if ((*item && !k3_num_u64(item, c->layers, &from)) ||
		    (colon[1] && !k3_num_u64(colon + 1, c->layers, &to)))
			return false;
	} else {
		if (!k3_num_u64(item, c->layers - 1, &from))
			return false;
		to = from + 1;
	}
	for (uint64_t l = from; l < to; l++)
		on[l] = true;
	return from < to;
}

static int resolve(struct step_tap *t, const struct k3_config *c, uint32_t first, uint32_t last)
{
	char *copy = strdup(t->layers), *rest = copy, *item;
	bool good = copy && *copy, touches = false;

	t->on = k3_calloc(c->layers, sizeof *t->on);
	while (good && t->on && (item = strsep(&rest, ",")))
		good = mark(c, item, t->on);
	free(copy);
	if (!t->on)
		return cli_error(K3_ENOMEM, &(struct k3_err){ "out of memory" });
	if (!good)
		return cli_usage("--tap: '%s' is not a list of layers of this model, which has %"
				 PRIu32, t->layers, c->layers);
	for (uint32_t l = first; l < last; l++)
		touches |= t->on[l];
	if (!touches)
		return cli_usage("--tap: none of the layers %s is among %" PRIu32 ":%" PRIu32
				 ", which are run", t->layers, first, last);
	return 0;
}

int step_taps_open(struct step_taps *t, const struct k3_config *c, uint32_t first, uint32_t last)
{
	struct k3_err err;
	int rc = 0;

	/* all are checked before the first file is touched */
	for (size_t i = 0; !rc && i < t->n; i++)
		rc = resolve(&t->tap[i], c, first, last);
	for (size_t i = 0; !rc && i < t->n; i++) {
		struct step_tap *p = &t->tap[i];

		p->out = (struct k3_npy_stream){ .fd = -1, .name = p->file };
		if (cli_create(p->file, &p->out.fd, &err)) {
			cli_warn("%s", err.text);
			rc = CLI_FAIL;
		}
	}
	return rc;
}

int step_taps_visit(struct step_taps *t, const struct k3_visit *v, struct k3_err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < t->n; i++) {
		struct step_tap *p = &t->tap[i];
		uint64_t from = p->last && v->n ? v->n - 1 : 0;

		if (p->site != v->site || !p->on[v->layer])
			continue;
		if (!v->first)
			rc = k3_npy_begin(&p->out, 2, (uint64_t[]){ v->n - from, v->width }, err);
		for (uint64_t r = 0; !rc && r < v->count; r++)
			if (v->first + r >= from)
				rc = k3_npy_put(&p->out, v->row[r], v->width, err);
	}
	return rc;
}

int step_taps_close(struct step_taps *t, struct k3_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct step_tap *p = &t->tap[i];

		if (p->out.fd >= 0 && close(p->out.fd) && !rc)
			rc = k3_fail_errno(err, "%s", p->file);
		free(p->layers);
		free(p->file);
		free(p->on);
	}
	free(t->tap);
	*t = (struct step_taps){ 0 };
	return rc;
}
