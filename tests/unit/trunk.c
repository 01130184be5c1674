/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trunk.c - trunk files of a small model: packing, the check of every block, and files that were
 * made to deceive, with all their sums right.
 */
#include "checkpoint.h"
#include "data/order.h"
#include "data/trunk.h"
#include "engine/trunk_block.h"
#include "math/code.h"
#include "sys/le.h"

#include <k3/io.h>
#include <k3/pack.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

static struct checkpoint model;
static char path[700], forged[700];
static struct k3_err err;

static struct k3_buf load(const char *file)
{
	struct k3_buf b = K3_BUF_INIT;

	need(k3_slurp(file, 1 << 28, &b, &err), &err);
	return b;
}

static int pack(const char *file, unsigned threads)
{
	return k3_pack(model.ix, file, &(struct k3_pack_options){ .threads = threads }, &err);
}

static int verify(const char *file, unsigned threads)
{
	return k3_pack_verify(model.ix, file, &(struct k3_pack_options){ .threads = threads }, &err);
}

/* No file whose name begins with that of the trunk file. */
static bool nothing_left(void)
{
	char command[1500];

	snprintf(command, sizeof command, "ls '%s'.* >/dev/null 2>&1", path);
	return system(command) != 0;
}

static void test_pack(void)
{
	struct k3_buf one, b;

	ok(!pack(path, 1) && !verify(path, 1), "one thread packs and verifies");
	one = load(path);
	for (unsigned t = 2; t <= 16; t += 7) {
		ok(!pack(path, t) && !verify(path, t), "%u threads do", t);
		b = load(path);
		ok(b.len == one.len && !memcmp(b.data, one.data, b.len), "%u threads: the same bytes", t);
		k3_buf_free(&b);
	}
	k3_buf_free(&one);
}

/* ---- progress ---- */

struct watch {
	uint64_t last, total, calls, stop;
	bool backwards;
};

static bool watch(void *arg, uint64_t done, uint64_t total)
{
	struct watch *w = arg;

	w->backwards |= done <= w->last || done > total || (w->total && w->total != total);
	w->last = done;
	w->total = total;
	return ++w->calls != w->stop;
}

static uint64_t plain_bytes(void)
{
	const struct k3_config *c = k3_index_config(model.ix);
	uint64_t sum = 0, bytes;

	for (uint32_t i = 0; i <= c->layers; i++) {
		struct k3_order o;

		k3_order_init(c, i, 0, &o);
		for (uint64_t b = 0; b < o.blocks; b++) {
			const struct k3_use *u = k3_order_use(&o, b);

			k3_use_place(c, u, b - u->first, &bytes);
			sum += bytes;
		}
	}
	return sum;
}

static void test_progress(void)
{
	for (int verifying = 0; verifying < 2; verifying++) {
		struct watch w = { 0 };
		struct k3_pack_options o = { .threads = 3, .progress = watch, .arg = &w };
		int rc = verifying ? k3_pack_verify(model.ix, path, &o, &err) :
			 k3_pack(model.ix, path, &o, &err);

		ok(!rc && !w.backwards && w.last == w.total && w.total == plain_bytes(),
		   "progress goes up to the bytes of the trunk");
		w = (struct watch){ .stop = w.calls / 2 };
		rc = verifying ? k3_pack_verify(model.ix, path, &o, &err) :
		     k3_pack(model.ix, path, &o, &err);
		ok(rc == K3_EIO && !strcmp(err.text, "interrupted"), "and can end the work");
	}
	ok(!verify(path, 2) && nothing_left(), "the file that was there is as it was");
}

/* ---- blocks ---- */

static void test_blocks(void)
{
	const struct k3_config *c = k3_index_config(model.ix);
	unsigned good = 0, noticed = 0, named = 0, total = 0;
	struct k3_buf file = load(path);
	struct k3_trunk *t;
	struct rng g = { 3 };

	need(k3_trunk_open(path, model.ix, &t, &err), &err);
	ok(!strcmp(k3_trunk_path(t), path) && k3_trunk_length(t) == file.len &&
	   k3_trunk_sections(t) == c->layers + 1 &&
	   !memcmp(k3_trunk_fingerprint(t), k3_index_fingerprint(model.ix), 16), "an open trunk");
	for (uint32_t i = 0; i <= c->layers; i++) {
		struct k3_order o;

		k3_order_init(c, i, 0, &o);
		for (uint64_t k = 0; k < o.blocks; k++, total++) {
			struct k3_trunk_block b;
			unsigned char *p;
			char name[K3_NAME];

			k3_trunk_block(t, i, k, &b);
			p = malloc(b.bytes);	/* so that a sanitizer sees its end */
			if (!p || b.offset % 64 || b.offset + b.bytes > file.len)
				exit(1);
			memcpy(p, file.data + b.offset, b.bytes);
			good += !k3_trunk_block_check(t, model.ix, &o, k, p, &err);
			p[rng_u64(&g) % b.bytes] ^= (unsigned char)(1 << rng_u64(&g) % 8);
			noticed += k3_trunk_block_check(t, model.ix, &o, k, p, &err) == K3_EDATA;
			k3_role_name(k3_order_use(&o, k)->role, i < c->layers ? i : 0, 0, name,
				     sizeof name);
			named += strstr(err.text, name) && strstr(err.text, path);
			free(p);
		}
	}
	ok(good == total, "%u blocks are good", total);
	ok(noticed == total && named == total, "a changed bit in each is noticed, and its tensor named");
	k3_trunk_close(t);
	k3_buf_free(&file);
}

/* ---- files that deceive ---- */

static unsigned char *at(struct k3_buf *b, uint64_t offset)
{
	return (unsigned char *)b->data + offset;
}

static uint64_t section_offset(struct k3_buf *b, unsigned section)
{
	return k3_get64(at(b, 48 + 16 * section));
}

/* Makes the sums of the head and of all directories right again. */
static void sum_again(struct k3_buf *b)
{
	uint32_t sections = k3_index_config(model.ix)->layers + 1;
	uint64_t end = k3_trunk_head_end(sections) - 8, s;

	for (uint32_t i = 0; i < sections; i++) {
		s = section_offset(b, i);
		if (s < K3T_SECTION_STEP || s + 24 > b->len)
			continue;
		uint64_t n = k3_trunk_directory_size(k3_get32(at(b, s + 8))) - 8;

		if (s + n + 8 <= b->len)
			k3_put64(at(b, s + n), XXH3_64bits(at(b, s), n));
	}
	k3_put64(at(b, end), XXH3_64bits(at(b, 0), end));
}

static void write_forged(struct k3_buf *b)
{
	struct k3_buf file = { b->data, b->len, b->cap, false };

	sum_again(b);
	write_file(forged, &file, NULL);
}

/* The file with 32 bits at offset changed to v and all sums right is refused with the text. */
static void refuse32(uint64_t offset, uint32_t v, int status, const char *text)
{
	struct k3_buf b = load(path);
	struct k3_trunk *t;
	int rc;

	k3_put32(at(&b, offset), v);
	write_forged(&b);
	rc = k3_trunk_open(forged, model.ix, &t, &err);
	ok(rc == status && strstr(err.text, text), "refused: %s", text);
	if (rc != status || !strstr(err.text, text))
		printf("# %d: %s\n", rc, rc ? err.text : "it was opened");
	k3_trunk_close(t);
	k3_buf_free(&b);
}

static void test_forged_heads(void)
{
	struct k3_buf b = load(path);
	uint64_t s = section_offset(&b, 1);
	uint32_t blocks = k3_get32(at(&b, s + 8)), first = k3_get32(at(&b, s + 24));
	uint32_t size = k3_get32(at(&b, s + 28));

	k3_buf_free(&b);
	refuse32(12, 1, K3_EDATA, "flags that this program does not know");
	refuse32(36, 1, K3_EDATA, "flags that this program does not know");
	refuse32(16, 12345, K3_ESTALE, "a trunk file of another model");
	refuse32(32, 0, K3_EDATA, "too few for 0 sections");
	refuse32(32, UINT32_MAX, K3_EDATA, "too few for 4294967295 sections");
	refuse32(40, 65536, K3_EDATA, "but should have 65536");
	refuse32(48, 0, K3_EDATA, "section 0 cannot lie at 0");
	refuse32(48, 65536 + 64, K3_EDATA, "section 0 cannot lie at 65600");
	refuse32(48 + 16, 65536, K3_EDATA, "section 1 cannot lie at 65536");
	refuse32(48 + 8, 0, K3_EDATA, "section 0 cannot lie at 65536 with 0 bytes");
	refuse32(48 + 8, 65535, K3_EDATA, "section 0 cannot lie");
	refuse32(48 + 12, 1, K3_EDATA, "section 0 cannot lie");
	refuse32(48 + 12, UINT32_MAX, K3_EDATA, "section 0 cannot lie");
	refuse32(s, 0, K3_EDATA, "not the beginning of a section");
	refuse32(s + 12, 1, K3_EDATA, "not the beginning of a section");
	refuse32(s + 8, 0, K3_EDATA, "not the beginning of a section");
	refuse32(s + 8, UINT32_MAX, K3_EDATA, "not the beginning of a section");
	refuse32(s + 8, blocks - 1, K3_EDATA, "section 1");
	refuse32(s + 8, blocks + 1, K3_EDATA, "section 1");
	refuse32(s + 16, 1, K3_EDATA, "section 1 is said to stand for 1 bytes");
	refuse32(s + 24, first + 1, K3_EDATA, "block 0 of section 1 cannot lie");
	refuse32(s + 24, 0, K3_EDATA, "block 0 of section 1 cannot lie at 0");
	refuse32(s + 24, UINT32_MAX, K3_EDATA, "block 0 of section 1 cannot lie");
	refuse32(s + 28, 0, K3_EDATA, "block 0 of section 1 cannot lie");
	refuse32(s + 28, UINT32_MAX, K3_EDATA, "block 0 of section 1 cannot lie");
	refuse32(s + 28, size - 1, K3_EDATA, "block 0 of section 1 has");
	refuse32(s + 28, size + 64, K3_EDATA, "block 1 of section 1 cannot lie");
}

/* The file is cut, or grows, by whole steps of a section, and its head agrees. */
static void test_forged_length(void)
{
	struct k3_buf b = load(path);
	struct k3_trunk *t;
	uint32_t last = k3_index_config(model.ix)->layers;
	uint64_t length = k3_get64(at(&b, 48 + 16 * last + 8));

	k3_buf_reserve(&b, K3T_SECTION_STEP);
	memset(b.data + b.len, 0, K3T_SECTION_STEP);
	b.len += K3T_SECTION_STEP;
	k3_put64(at(&b, 40), b.len);
	write_forged(&b);
	ok(k3_trunk_open(forged, model.ix, &t, &err) == K3_EDATA &&
	   strstr(err.text, "the last section ends at"),
	   "something behind the last section");
	k3_put64(at(&b, 48 + 16 * last + 8), length + K3T_SECTION_STEP);
	write_forged(&b);
	ok(k3_trunk_open(forged, model.ix, &t, &err) == K3_EDATA &&
	   strstr(err.text, "the blocks of section 5 end at"),
	   "or behind its last block");
	k3_buf_free(&b);
}

/* Blocks that are not what belongs there, with the right size and sum. */
static void test_forged_blocks(void)
{
	const struct k3_config *c = k3_index_config(model.ix);
	struct k3_buf b = load(path);
	struct k3_order o;
	struct k3_trunk *t;
	struct k3_trunk_block place;
	uint64_t s = section_offset(&b, 0), i;
	unsigned char *block, head[64];

	k3_order_init(c, 0, 0, &o);
	need(k3_trunk_open(path, model.ix, &t, &err), &err);
	/* q_proj: the block says that it has another number of rows, and is one of such rows */
	i = o.use[o.vectors + 1].first;
	k3_trunk_block(t, 0, i, &place);
	k3_trunk_close(t);
	block = at(&b, place.offset);
	memcpy(head, block, sizeof head);
	memset(block + 64, 0, place.bytes - 64);
	block[6] = 0;
	k3_put32(block + 8, (place.bytes - 64) / 2);
	k3_put32(block + 12, 1);
	k3_put64(at(&b, s + 24 + 16 * i + 8), XXH3_64bits(block, place.bytes));
	write_forged(&b);
	need(k3_trunk_open(forged, model.ix, &t, &err), &err);
	ok(k3_trunk_block_check(t, model.ix, &o, i, block, &err) == K3_EDATA &&
	   strstr(err.text, "layers.0.self_attn.q_proj.weight, rows 0 to ") &&
	   strstr(err.text, "rows of another number or width"), "a block of other measures");
	ok(verify(forged, 2) == K3_EDATA && strstr(err.text, "another number or width"), "--verify too");
	k3_trunk_close(t);
	/* of the right measures, but a code that would lead out of the block */
	memcpy(block, head, sizeof head);
	memset(block + 64, 255, place.bytes - 64);
	block[6] = 1;
	k3_put64(at(&b, s + 24 + 16 * i + 8), XXH3_64bits(block, place.bytes));
	write_forged(&b);
	need(k3_trunk_open(forged, model.ix, &t, &err), &err);
	ok(k3_trunk_block_check(t, model.ix, &o, i, block, &err) == K3_EDATA &&
	   strstr(err.text, "layers.0.self_attn.q_proj.weight, rows 0 to ") &&
	   !strstr(err.text, "another number"), "a code that is none: %s",
	   strrchr(err.text, ':'));
	k3_trunk_close(t);
	k3_buf_free(&b);
}

/* A whole and coded block whose weights are others. */
static void test_other_weights(void)
{
	struct k3_buf b = load(path);
	uint64_t s = section_offset(&b, 2);
	unsigned char *v = at(&b, s + (uint64_t)k3_get32(at(&b, s + 24)) * 64);

	v[3] ^= 4;
	k3_put64(at(&b, s + 24 + 8), XXH3_64bits(v, k3_get32(at(&b, s + 28))));
	write_forged(&b);
	ok(verify(forged, 3) == K3_EDATA &&
	   strstr(err.text, "layers.2.self_attention_res_norm.weight differs in row 0 from"),
	   "another vector with the right sum differs from the shard");
	k3_buf_free(&b);
}

/* Any byte of head and directories, all sums made right again. */
static void test_forged_anywhere(void)
{
	struct rng g = { 9 };
	unsigned passed = 0;

	for (int i = 0; i < 200; i++) {
		struct k3_buf b = load(path);
		unsigned section = (unsigned)(rng_u64(&g) % (k3_index_config(model.ix)->layers + 2));
		uint64_t begin = section ? section_offset(&b, section - 1) : 0;
		uint64_t n = section ? k3_trunk_directory_size(k3_get32(at(&b, begin + 8))) :
			     k3_trunk_head_end(k3_index_config(model.ix)->layers + 1);

		*at(&b, begin + rng_u64(&g) % (n - 8)) ^= (unsigned char)(1 + rng_u64(&g) % 255);
		write_forged(&b);
		passed += !verify(forged, 2);
		k3_buf_free(&b);
	}
	ok(!passed, "200 changes of head and directories, with right sums, are noticed");
}

/* ---- the disk ---- */

/* A progress that cuts a shard when so many tenths are done. */
static bool cut(void *arg, uint64_t done, uint64_t total)
{
	unsigned *tenth = arg;

	if (*tenth && done >= total * *tenth / 10) {
		*tenth = 0;
		return !truncate(model.shard[1], 4096);
	}
	return true;
}

/* Shards that are others than those which the index was seen to fit. */
static void test_other_shard(void)
{
	struct k3_buf shard = load(model.shard[1]);
	struct stat was;
	struct timespec times[2];
	struct k3_index *ix;
	unsigned ends = 0, others = 0;
	int rc;

	need(k3_index_open(model.index, &ix, &err), &err);
	if (stat(model.shard[1], &was) || truncate(model.shard[1], (off_t)shard.len - 20000))
		exit(1);
	for (unsigned t = 1; t < 6; t += 2) {
		rc = k3_pack(ix, path, &(struct k3_pack_options){ .threads = t }, &err);
		ok(rc == K3_ESTALE && strstr(err.text, model.shard[1]) && strstr(err.text, "bytes, but had"),
		   "a shard that is too short, %u threads", t);
	}
	write_file(model.shard[1], &shard, NULL);
	times[0] = was.st_atim;
	times[1] = was.st_mtim;
	for (unsigned tenth = 1; tenth < 10; tenth++) {
		unsigned at = tenth;

		if (utimensat(AT_FDCWD, model.shard[1], times, 0))
			exit(1);
		rc = k3_pack(ix, path, &(struct k3_pack_options){ .threads = 1 + tenth % 3, .progress = cut, .arg = &at }, &err);
		ends += rc == K3_EDATA && strstr(err.text, model.shard[1]) && strstr(err.text, "the file ends");
		others += rc && rc != K3_EDATA && rc != K3_ESTALE;
		write_file(model.shard[1], &shard, NULL);
	}
	ok(ends > 0 && !others, "one that is cut short while it is read, noticed %u times", ends);
	unlink(model.shard[1]);
	rc = k3_pack(ix, path, &(struct k3_pack_options){ .threads = 2 }, &err);
	ok(rc == K3_EIO && strstr(err.text, model.shard[1]), "a shard that is gone");
	write_file(model.shard[1], &shard, NULL);
	times[1].tv_nsec ^= 1;
	if (utimensat(AT_FDCWD, model.shard[1], times, 0))
		exit(1);
	rc = k3_pack(ix, path, &(struct k3_pack_options){ .threads = 2 }, &err);
	ok(rc == K3_ESTALE && strstr(err.text, model.shard[1]) && strstr(err.text, "replaced or written to"),
	   "one of another time, by a nanosecond");
	k3_index_close(ix);
	need(k3_index_open(model.index, &ix, &err), &err);
	ok(!k3_pack(ix, path, &(struct k3_pack_options){ .threads = 2 }, &err),
	   "whose contents are found to be the same when the index is opened");
	ok(!k3_index_add_sums(&ix, &err) && !k3_index_verify(ix, &err), "also when sums are added");
	times[1].tv_nsec ^= 1;
	if (utimensat(AT_FDCWD, model.shard[1], times, 0))
		exit(1);
	k3_index_close(ix);
	k3_buf_free(&shard);
	ok(!verify(path, 2) && nothing_left(), "the file that was there is as it was");
}

static void test_full_disk(void)
{
	struct rlimit old, small;
	struct stat st;
	unsigned bad = 0, tries = 0;

	stat(path, &st);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	for (off_t n = 0; n < st.st_size - 65536; n += st.st_size / 13, tries++) {
		small.rlim_cur = (rlim_t)n;
		setrlimit(RLIMIT_FSIZE, &small);
		bad += pack(path, 1 + tries % 4) != K3_EIO || !strstr(err.text, "File too large");
	}
	setrlimit(RLIMIT_FSIZE, &old);
	ok(!bad, "%u places where writing fails", tries);
	ok(!verify(path, 2) && nothing_left(), "the file that was there is as it was");
}

static void test_beside(void)
{
	char *beside;

	ok(!k3_trunk_beside(model.ix, &beside, &err) && !strcmp(beside, path), "the place of a trunk file");
	free(beside);
}

int main(void)
{
	checkpoint_new(&model);
	snprintf(path, sizeof path, "%s/model.k3t", model.directory);
	snprintf(forged, sizeof forged, "%s/forged", model.directory);
	test_beside();
	test_pack();
	test_progress();
	test_blocks();
	test_forged_heads();
	test_forged_length();
	test_forged_blocks();
	test_other_weights();
	test_forged_anywhere();
	test_other_shard();
	test_full_disk();
	unlink(path);
	unlink(forged);
	checkpoint_free(&model);
	return tap_done();
}
