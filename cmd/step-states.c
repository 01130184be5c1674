/* SPDX-License-Identifier: Apache-2.0 */
/* step-states.c - the states of a run: files by name, files of a directory by number, or none. */
#include "cli.h"
#include "step.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file of a sequence in the directory of --states; the caller frees it.  NULL without memory. */
static char *file_of(const char *directory, uint32_t sequence)
{
	struct k3_buf b = K3_BUF_INIT;

	k3_buf_printf(&b, "%s/%06" PRIu32 ".k3s", directory, sequence);
	k3_buf_char(&b, '\0');
	if (b.failed) {
		k3_buf_free(&b);
		return NULL;
	}
	return b.data;
}

/* 1 if the directory has a state for that sequence, 0, or K3_ENOMEM. */
static int has(const char *directory, uint32_t sequence, struct k3_err *err)
{
	char *file = file_of(directory, sequence);
	struct stat st;
	int there;

	if (!file)
		return k3_fail_nomem(err);
	there = !lstat(file, &st);
	free(file);
	return there;
}

int step_states_count(const char *directory, uint32_t *out, struct k3_err *err)
{
	int rc = 1;

	for (*out = 0; rc == 1 && *out < UINT32_MAX; *out += rc == 1)
		rc = has(directory, *out, err);
	if (!rc && !*out)
		rc = k3_fail(err, K3_EDATA, "%s: there is no state 000000.k3s: for new ones say how many, "
			     "with -b", directory);
	return rc;
}

int step_states_name(struct step_options *o, uint32_t n, struct k3_err *err)
{
	int rc = has(o->directory, n, err);

	/* more than there are sequences: then these are not their states */
	if (rc == 1)
		rc = k3_fail(err, K3_EDATA, "%s: has a state %06" PRIu32 ".k3s, and there are only %"
			     PRIu32 " sequences", o->directory, n, n);
	if (rc)
		return rc;
	o->state = k3_calloc(n, sizeof *o->state);
	if (!o->state)
		return k3_fail_nomem(err);
	o->numbered = true;
	for (o->states = 0; o->states < n; o->states++) {
		o->state[o->states] = file_of(o->directory, o->states);
		if (!o->state[o->states])
			return k3_fail_nomem(err);
	}
	return 0;
}

void step_states_forget(struct step_options *o)
{
	for (uint32_t i = 0; o->numbered && i < o->states; i++)
		free((char *)o->state[i]);
	free(o->state);
}

/* A file for each state may be more than a process usually opens. */
static void allow_files(void)
{
	struct rlimit files;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

int step_states_open(struct step_run *r, struct k3_err *err)
{
	struct k3_state_spec spec = { r->config, k3_index_fingerprint(r->ix), r->o.first,
				      r->o.last };
	int rc = 0;

	if (r->o.directory && mkdir(r->o.directory, 0777) && errno != EEXIST)
		return k3_fail_errno(err, "%s", r->o.directory);
	if (r->o.directory && !r->o.numbered)
		rc = step_states_name(&r->o, r->lines, err);
	if (rc)
		return rc;
	allow_files();
	r->state = k3_calloc(r->lines, sizeof *r->state);
	if (!r->state)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		rc = r->o.states ? k3_state_open(r->o.state[i], &spec, &r->state[i], err)
				 : k3_state_new(&spec, r->o.all, &r->state[i], err);
		if (!rc && r->o.at_given && k3_state_position(r->state[i]) != r->o.at)
			rc = k3_fail(err, K3_EDATA, "%s: holds %" PRIu64 " ids, not %" PRIu64,
				     r->o.state[i], k3_state_position(r->state[i]), r->o.at);
	}
	return rc;
}
