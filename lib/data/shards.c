/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - the files of a checkpoint by their names. */
#include "data/shards.h"
#include "data/json.h"
#include <k3/io.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char suffix[] = ".safetensors";

/* "PREFIX-00003-of-000096.safetensors" taken apart. */
struct numbered {
	size_t prefix;		/* length of PREFIX */
	size_t digits;		/* of the number */
	size_t total_digits;
	uint32_t number, total;
};

static size_t digits(const char *p, uint32_t *value)
{
	size_t n = 0;

	for (*value = 0; p[n] >= '0' && p[n] <= '9' && n < 9; n++)
		*value = *value * 10 + (uint32_t)(p[n] - '0');
	return n;
}

static bool take_apart(const char *name, struct numbered *out)
{
	const char *of = NULL, *p = name, *start;

	while ((p = strstr(p, "-of-")) != NULL)
		of = p++;
	if (!of)
		return false;
	for (start = of; start > name && start[-1] >= '0' && start[-1] <= '9';)
		start--;
	if (start == name || start[-1] != '-')
		return false;
	out->prefix = (size_t)(start - 1 - name);
	out->digits = digits(start, &out->number);
	out->total_digits = digits(of + 4, &out->total);
	return out->digits >= 5 && start + out->digits == of && out->total_digits >= 5 &&
	       !strcmp(of + 4 + out->total_digits, suffix);
}

static int by_name(const void *a, const void *b)
{
	const struct k3_shard *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static struct k3_shard *find(const struct k3_shards *s, const char *name)
{
	struct k3_shard key = { .name = (char *)name };

	return s->count ? bsearch(&key, s->shard, s->count, sizeof key, by_name) : NULL;
}

/* Adds a copy of name, not in order. */
static int add(struct k3_shards *s, const char *name, bool absent, struct k3_err *err)
{
	struct k3_shard *p;
	char *copy = strdup(name);

	if (!copy)
		return k3_fail_nomem(err);
	p = k3_reallocarray(s->shard, s->count + (size_t)1, sizeof *p);
	if (!p) {
		free(copy);
		return k3_fail_nomem(err);
	}
	s->shard = p;
	s->shard[s->count++] = (struct k3_shard){ .name = copy, .absent = absent };
	s->absent += absent;
	return 0;
}

static int list(const char *directory, struct k3_shards *s, struct k3_err *err)
{
	DIR *d = opendir(directory);
	struct dirent *e;
	size_t n;
	int rc = 0;

	if (!d)
		return k3_fail_errno(err, "%s", directory);
	while (!rc && (errno = 0, e = readdir(d)) != NULL) {
		n = strlen(e->d_name);
		if (e->d_name[0] == '.' || n < sizeof suffix ||
		    strcmp(e->d_name + n + 1 - sizeof suffix, suffix))
			continue;
		if (s->count + 1 >= K3I_NO_SHARD)
			rc = k3_fail(err, K3_EDATA, "%s: too many shards", directory);
		else
			rc = add(s, e->d_name, false, err);
	}
	if (!rc && errno)
		rc = k3_fail_errno(err, "%s", directory);
	closedir(d);
	if (!rc && !s->count)
		rc = k3_fail(err, K3_EDATA, "%s: no *.safetensors file is in it", directory);
	if (!rc)
		qsort(s->shard, s->count, sizeof *s->shard, by_name);
	return rc;
}

/* The name of shard number i of the set that name belongs to. */
static char *sibling(const char *name, const struct numbered *n, uint32_t i)
{
	struct k3_buf b = K3_BUF_INIT;

	k3_buf_printf(&b, "%.*s-%0*u%s", (int)n->prefix, name, (int)n->digits, i,
		      name + n->prefix + 1 + n->digits);
	return b.data;
}

/* Adds those of a numbered set that are not there. */
static int add_absent(const char *directory, struct k3_shards *s, struct k3_err *err)
{
	struct numbered first = { 0 }, n;
	struct k3_shards there;
	const char *one = NULL;
	char *name;
	int rc = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		if (!take_apart(s->shard[i].name, &n))
			continue;
		if (!n.number || n.number > n.total || n.total >= K3I_NO_SHARD)
			return k3_fail(err, K3_EDATA, "%s/%s: not a number of a shard", directory,
				       s->shard[i].name);
		if (one && (n.prefix != first.prefix || strncmp(one, s->shard[i].name, n.prefix) ||
			    n.digits != first.digits || n.total_digits != first.total_digits ||
			    n.total != first.total))
			return k3_fail(err, K3_EDATA, "%s: %s and %s belong to different sets of "
				       "shards", directory, one, s->shard[i].name);
		first = n;
		one = s->shard[i].name;
	}
	there = *s;
	for (uint32_t i = 1; one && !rc && i <= first.total; i++) {
		name = sibling(one, &first, i);
		if (!name)
			return k3_fail_nomem(err);
		there.shard = s->shard;		/* add() may have moved it */
		if (!find(&there, name))
			rc = add(s, name, true, err);
		free(name);
	}
	qsort(s->shard, s->count, sizeof *s->shard, by_name);
	return rc;
}

int k3_shards_find(const char *directory, struct k3_shards *out, struct k3_err *err)
{
	int rc;

	*out = (struct k3_shards){ 0 };
	rc = list(directory, out, err);
	return rc ? rc : add_absent(directory, out, err);
}

void k3_shards_free(struct k3_shards *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		free(s->shard[i].name);
	free(s->shard);
	*s = (struct k3_shards){ 0 };
}

/* The reading of model.safetensors.index.json. */
struct blame {
	const char *path;
	const struct k3_shards *shards;
	const struct k3_layout *layout;
	uint64_t *entry;
};

static int map_event(void *arg, jv path, jv leaf, struct k3_err *err)
{
	struct blame *b = arg;
	jv top = jv_array_get(jv_copy(path), 0), name = jv_array_get(jv_copy(path), 1);
	const struct k3_shard *shard;
	uint64_t slot;
	int rc = 0;

	if (jv_array_length(jv_copy(path)) == 2 && k3_json_is(top, "weight_map") &&
	    jv_get_kind(name) == JV_KIND_STRING && jv_get_kind(leaf) == JV_KIND_STRING &&
	    k3_layout_find(b->layout, jv_string_value(name),
			   (size_t)jv_string_length_bytes(jv_copy(name)), &slot) &&
	    b->entry[slot] == K3I_UNKNOWN) {
		shard = find(b->shards, jv_string_value(leaf));
		if (!shard)
			rc = k3_fail(err, K3_EDATA, "%s: tensor %s is in %.200s, which is no "
				     "shard here", b->path, jv_string_value(name),
				     jv_string_value(leaf));
		else if (!shard->absent)
			rc = k3_fail(err, K3_EDATA, "%s: tensor %s should be in %s, but is not",
				     b->path, jv_string_value(name), shard->name);
		else
			b->entry[slot] = (uint64_t)(shard - b->shards->shard) << 48 | K3I_NO_OFFSET;
	}
	jv_free(top);
	jv_free(name);
	return rc;
}

/* Passes the whole of fd to j. */
static int push_file(struct k3_json *j, int fd, const char *path, struct k3_err *err)
{
	char *piece = malloc(65536);
	size_t got = 65536;
	int rc = piece ? 0 : k3_fail_nomem(err);

	while (!rc && got == 65536) {
		rc = k3_read_full(fd, piece, 65536, &got, path, err);
		if (!rc)
			rc = k3_json_push(j, piece, got, got < 65536, err);
	}
	free(piece);
	return rc;
}

int k3_shards_blame(const char *directory, const struct k3_shards *s, const struct k3_layout *l,
		    uint64_t *entry, struct k3_err *err)
{
	char *path = k3_index_join(directory, "model.safetensors.index.json");
	struct blame b = { path, s, l, entry };
	uint64_t size;
	int64_t mtime;
	struct k3_json j;
	int fd = -1, rc = 0;

	if (!path)
		return k3_fail_nomem(err);
	if (access(path, F_OK) && errno == ENOENT)
		goto out;
	rc = k3_st_open(path, &fd, &size, &mtime, err);
	if (rc)
		goto out;
	rc = k3_json_begin(&j, path, map_event, &b, err);
	if (!rc)
		rc = push_file(&j, fd, path, err);
	k3_json_end(&j);
	close(fd);
	for (uint64_t i = 0; !rc && i < l->slots; i++)
		if (entry[i] == K3I_UNKNOWN)
			rc = k3_fail(err, K3_EDATA, "%s: it does not say where tensor %s is", path,
				     k3_layout_name(l, i, (char[K3_NAME]){ 0 }));
out:
	free(path);
	return rc;
}
